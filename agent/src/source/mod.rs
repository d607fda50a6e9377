//! Where objects come from. A source gives texts; what they say is `egret_core`'s business.

pub mod events;
pub mod folder;
