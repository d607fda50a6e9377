//! Host names and the name patterns of the policy languages.
//!
//! Owns: the canonical form of a name, the limits (RFC 1035 2.3.4), the two wildcard grammars and an obvious
//! matcher that everything faster is tested against. Must not know: rules, maps, DNS messages.

mod name;
mod pattern;

pub use name::{MAX_LABEL, MAX_NAME, Name, NameError};
pub use pattern::{Kind, Pattern, PatternError, Slow};
