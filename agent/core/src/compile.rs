//! From policies to the content of the maps.
//!
//! Owns: rule sets, name classes, CIDR classes and their numbers. Must not know: YAML, pods, sockets, aya. A
//! rule set is immutable: other rules make another set with another number. Class numbers never change meaning.

mod book;
mod cache;
mod cidrs;
mod claims;
mod kept;
mod names;
mod ports;
mod roster;
mod set;

use std::{
    collections::{BTreeMap, BTreeSet},
    net::{IpAddr, SocketAddr},
    sync::Arc,
};

use egret_common::{
    ids::EndpointId,
    maps::{CONFIG_SLOW_PATTERNS, ResolverKey},
    net::Addr,
};
use thiserror::Error;

pub use book::Book;
pub(crate) use cache::{Cache, Step};
pub use names::{ClassKey, Member, NameBook, NameIndex, Role};

use crate::{
    desired::Desired,
    dns::lifetime::Lifetime,
    identity::{Identity, NamedPorts},
    names::Name,
    policy::Policies,
};

/// Why policies cannot be put into the maps.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum CompileError {
    /// One class (one name, one CIDR...) has more separate port intervals than the map holds.
    #[error("{rule}: the rules for one peer make {intervals} separate port ranges, the limit is 120")]
    TooManyIntervals {
        /// A rule of that class.
        rule: String,
        /// The number of intervals.
        intervals: usize,
    },
}

/// Whether a rule that opens a name also permits the question for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum NamesAsk {
    /// `egret run`: DNS is implied.
    Yes,
    /// Pods: only `rules.dns` permits.
    No,
}

/// What all endpoints share.
#[derive(Debug, Clone)]
pub struct World {
    /// Search domains of the clients.
    pub search: Vec<Name>,
    /// The cluster's own domain, if there is a cluster.
    pub cluster_domain: Option<Name>,
    /// Resolvers whose answers are learned.
    pub resolvers: BTreeSet<SocketAddr>,
    /// Addresses with an identity (`egret_common::ids::identity`), those of pods among them.
    pub identities: BTreeMap<IpAddr, u32>,
    /// The identities of all pods of the cluster, by number.
    pub peers: BTreeMap<u32, Arc<Identity>>,
    /// Whether name rules permit the question.
    pub names_ask: NamesAsk,
    /// Names that were seen and that a slow pattern matches; they get an entry of their own.
    pub seen_names: BTreeSet<Name>,
}

impl World {
    /// The identity of an address.
    fn owner(&self, ip: IpAddr) -> Option<u32> {
        let mapped = match ip {
            IpAddr::V4(v4) => self.identities.get(&IpAddr::V6(v4.to_ipv6_mapped())),
            IpAddr::V6(_) => None,
        };
        mapped.or_else(|| self.identities.get(&ip)).copied()
    }

    /// Whether a name may stand for the address: those of the cluster are opened only by names under its own domain
    /// (CASES K-A10, K-A15).
    pub(crate) fn may_open(&self, name: &Name, address: IpAddr) -> bool {
        let inside = |domain: &Name| name.prefix_above(domain).is_some();
        let owned = self.identities.contains_key(&address.to_canonical());
        !owned || self.cluster_domain.as_ref().is_some_and(inside)
    }
}

/// One workload with its policies.
#[derive(Debug, Clone)]
pub struct EndpointSpec {
    /// Index in `ENDPOINTS`, not 0.
    pub id: EndpointId,
    /// The workload's own identity.
    pub identity: u32,
    /// `ENDPOINT_*` bits; `ENDPOINT_DNS_PORTS` is set by the compiler.
    pub flags: u32,
    /// Lifetimes of learned addresses.
    pub lifetime: Lifetime,
    /// The workload's own named ports.
    pub ports: NamedPorts,
    /// The policies that select it.
    pub policies: Policies,
}

/// The result: what the maps shall hold, and how further names are classified.
#[derive(Debug, Clone, Default)]
pub struct Compiled {
    /// The content of the maps.
    pub desired: Desired,
    /// Classifies names; complete, unlike the kernel's tables.
    pub index: NameIndex,
}

impl Compiled {
    /// `CONFIG_*` bits that the programs need for these tables.
    #[must_use]
    pub fn config_flags(&self) -> u32 {
        if self.index.has_slow() { CONFIG_SLOW_PATTERNS } else { 0 }
    }
}

/// Compiles everything. Numbers come from `book`, which grows.
///
/// # Errors
/// [`CompileError`]; the book may have grown, nothing else happened.
pub fn compile(world: &World, endpoints: &[EndpointSpec], book: &mut Book) -> Result<Compiled, CompileError> {
    Cache::whole(world, endpoints, book).map(|(_, compiled)| compiled)
}

/// Address as the maps hold it.
#[must_use]
pub fn addr(ip: IpAddr) -> Addr {
    match ip.to_canonical() {
        IpAddr::V4(v4) => Addr::from_v4(v4.octets()),
        IpAddr::V6(v6) => Addr::from_octets(v6.octets()),
    }
}

/// Key of `TRUSTED_RESOLVERS`.
#[must_use]
pub fn resolver_key(resolver: SocketAddr) -> ResolverKey {
    ResolverKey { addr: addr(resolver.ip()), port: resolver.port().into() }
}
