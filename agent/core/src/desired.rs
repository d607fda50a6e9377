//! The content that the maps shall have, and the steps from one content to another.
//!
//! Owns: which maps the agent writes, and in which order. Must not know: how a map is written, or why it says what
//! it says. `GRANTS` and everything that the kernel writes are not here.

mod delta;
mod diff;
mod view;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use egret_common::{
    ids::{ClassId, EndpointId},
    maps::{Backends, CidrKey, Endpoint, ResolverKey, RuleChunk, RuleKey, ServiceKey, SuffixClasses},
    net::Addr,
};

pub(crate) use delta::{Delta, changes, resolver_changes};
pub use diff::{Entry, MapOp, diff};
pub use view::View;

use crate::names::Name;

/// Key of `CIDR_CLASSES` with the length of its prefix in bits, the 32 of the set included.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct CidrPrefix {
    /// Prefix length in bits: 32 + 96 + n for an IPv4 /n, 32 + n for an IPv6 /n.
    pub bits: u32,
    /// Set and address.
    pub key: CidrKey,
}

/// Key of `NAME_SUFFIX`: the end of a name as reversed text, ending in a dot where whole labels are meant (empty for
/// every name); the prefix length is 8 bits per character.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Suffix(pub String);

/// What the agent's maps shall hold.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Desired {
    /// `ENDPOINTS`.
    pub endpoints: BTreeMap<EndpointId, Endpoint>,
    /// `IDENTITIES`.
    pub identities: BTreeMap<Addr, u32>,
    /// `CIDR_CLASSES`.
    pub cidrs: BTreeMap<CidrPrefix, ClassId>,
    /// `NAME_EXACT`; the map's key is [`Name::to_key`].
    pub name_exact: BTreeMap<Name, ClassId>,
    /// `NAME_SUFFIX`.
    pub name_suffix: BTreeMap<Suffix, SuffixClasses>,
    /// `ADDRESSES`: who owns an address of this node's pods.
    pub addresses: BTreeMap<Addr, EndpointId>,
    /// `SERVICES`.
    pub services: BTreeMap<ServiceKey, Backends>,
    /// `RULES`. Equal values may be shared.
    pub rules: BTreeMap<RuleKey, Arc<RuleChunk>>,
    /// `TRUSTED_RESOLVERS`.
    pub resolvers: BTreeSet<ResolverKey>,
}

impl Desired {
    /// The class that the kernel's two name tables give a name; 0 = none. The reference for the kernel's look-up:
    /// the whole name first, else the longest ending, which already speaks for all shorter ones.
    #[must_use]
    pub fn name_class(&self, name: &Name) -> ClassId {
        if let Some(class) = self.name_exact.get(name) {
            return *class;
        }
        let reversed: String = name.as_str().chars().rev().collect();
        let mut ends = (0..=reversed.len()).rev();
        let hit = ends.find_map(|end| self.name_suffix.get(&Suffix(reversed[..end].to_owned())));
        match (hit, name.label_count() as u32) {
            (None, _) => 0,
            (Some(s), n) if n == s.labels + 1 => s.one,
            (Some(s), n) if n > s.labels + 1 => s.more,
            (Some(_), _) => 0,
        }
    }
}
