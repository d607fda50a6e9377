//! DNS as the agent sees it: full parsing, what was learned, and for how long it holds.
//!
//! Owns: the slow path behind the kernel's scanner. Must not know: policies, sockets, clocks.

pub mod cache;
pub mod journal;
pub mod lifetime;
pub mod parse;
pub mod tcp;

/// Response codes by number, those that resolvers give (RFC 1035 4.1.1).
pub const RCODES: [&str; 6] = ["NOERROR", "FORMERR", "SERVFAIL", "NXDOMAIN", "NOTIMP", "REFUSED"];
