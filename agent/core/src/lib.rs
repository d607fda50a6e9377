//! (architecture page follows)

pub mod names;
