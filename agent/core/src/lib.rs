//! (architecture page follows)

pub mod allow;
pub mod compile;
pub mod desired;
pub mod dns;
pub mod eval;
pub mod names;
pub mod net;
pub mod policy;
pub mod ports;
