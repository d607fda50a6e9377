//! DNS as the agent sees it: full parsing, what was learned, and for how long it holds.
//!
//! Owns: the slow path behind the kernel's scanner. Must not know: policies, sockets, clocks.

pub mod cache;
pub mod journal;
pub mod lifetime;
pub mod parse;
pub mod tcp;
