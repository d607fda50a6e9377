//! From policies to the content of the maps.
//!
//! Owns: rule sets, name classes, CIDR classes and their numbers. Must not know: YAML, pods, sockets, aya. A
//! rule set is immutable: other rules make another set with another number. Class numbers never change meaning.

mod book;
mod cidrs;
mod claims;
mod names;
mod ports;
mod roster;
mod set;

use std::{
    collections::{BTreeMap, BTreeSet},
    net::{IpAddr, SocketAddr},
};

use egret_common::{
    ids::{ClassId, EndpointId, SetId},
    maps::{CONFIG_SLOW_PATTERNS, ENDPOINT_DNS_PORTS, Endpoint, ResolverKey, RuleChunk, RuleKey},
    net::{Addr, Direction},
};
use thiserror::Error;

pub use book::Book;
pub use names::{ClassKey, Member, NameBook, NameIndex, Role};

use crate::{
    desired::{CidrPrefix, Desired, Suffix},
    dns::lifetime::Lifetime,
    identity::{Identity, NamedPorts},
    names::{Name, Pattern},
    policy::{DNS_PORT, Peers, Policy, in_order},
};
use book::SetIdentity;
use claims::Numbered;
use roster::Roster;
use set::Set;

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
    pub peers: BTreeMap<u32, Identity>,
    /// Whether name rules permit the question.
    pub names_ask: NamesAsk,
    /// Names that were seen and that a slow pattern matches; they get an entry of their own.
    pub seen_names: BTreeSet<Name>,
}

impl World {
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
    pub policies: Vec<Policy>,
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
    let index = NameIndex::new(patterns(endpoints), &world.search, world.cluster_domain.as_ref());
    let name_exact = index.exact_entries(&world.seen_names, book.names_mut());
    let suffixes = index.suffix_entries(book.names_mut());
    let name_suffix = suffixes.into_iter().map(|(text, classes)| (Suffix(text), classes)).collect();
    let mut desired = Desired { name_exact, name_suffix, ..Desired::default() };
    index.reserve_slow(book.names_mut());
    book.rank(&in_order(endpoints.iter().flat_map(|e| &e.policies)));
    let roster = Roster::new(world, endpoints);
    let mut done = BTreeMap::new();
    for spec in endpoints {
        let mut set = |direction| -> Result<SetRef, CompileError> {
            let (id, set) = set_of(spec, direction, world.names_ask, book);
            if let Some(features) = done.get(&id) {
                return Ok((id, *features));
            }
            let features = add_set(id, &set, &roster, book, &mut desired)?;
            done.insert(id, features);
            Ok((id, features))
        };
        let (egress, ingress) = (set(Direction::Egress)?, set(Direction::Ingress)?);
        desired.endpoints.insert(spec.id, endpoint(spec, egress, ingress, world));
    }
    desired.identities = world.identities.iter().map(|(ip, id)| (addr(*ip), *id)).collect();
    desired.resolvers = world.resolvers.iter().map(|r| resolver_key(*r)).collect();
    Ok(Compiled { desired, index })
}

/// Compiles the name class at a place of the book, which has no rules in the maps yet, into every set. Sets keep their numbers: they say the same
/// as before, about one more kind of name.
///
/// # Errors
/// [`CompileError`].
pub fn rules_of_class(
    world: &World,
    endpoints: &[EndpointSpec],
    book: &mut Book,
    place: usize,
) -> Result<BTreeMap<RuleKey, RuleChunk>, CompileError> {
    let mut out = BTreeMap::new();
    let Some((key, class)) = book.class_at(place).map(|(key, class)| (key.clone(), class)) else {
        return Ok(out);
    };
    for spec in endpoints {
        let (set_id, set) = set_of(spec, Direction::Egress, world.names_ask, book);
        put_class(&mut out, set_id, class, set.name_class(&key)?);
    }
    Ok(out)
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

/// Every pattern, and whether some rule opens its names.
fn patterns(endpoints: &[EndpointSpec]) -> BTreeMap<&Pattern, bool> {
    let mut patterns = BTreeMap::new();
    for rule in endpoints.iter().flat_map(|e| &e.policies).flat_map(Policy::rules) {
        if let Peers::Names(named) = &rule.peers {
            patterns.extend(named.iter().map(|p| (p, true)));
        }
        for pattern in rule.dns.iter().flatten() {
            patterns.entry(pattern).or_insert(false);
        }
    }
    patterns
}

/// Set number and `SET_*` bits.
type SetRef = (SetId, u32);

fn set_of<'a>(
    spec: &'a EndpointSpec,
    direction: Direction,
    names_ask: NamesAsk,
    book: &mut Book,
) -> (SetId, Set<'a>) {
    let isolated = spec.policies.iter().any(|p| p.isolates().of(direction));
    let mut rules = BTreeMap::new();
    for policy in &spec.policies {
        let tier = policy.standing().tier;
        for rule in policy.rules().iter().filter(|r| r.direction == direction) {
            rules.insert(book.cookie(tier, policy.origin(), rule), (tier, rule));
        }
    }
    // What comes in goes to the workload's own ports; what goes out, to ports that its destination names.
    let names: BTreeSet<&str> = rules.values().flat_map(|(_, r)| r.ports.names()).collect();
    let own = spec.ports.iter().filter(|((name, _), _)| names.contains(name.as_str()));
    let ports: NamedPorts = match direction {
        Direction::Ingress => own.map(|(name, port)| (name.clone(), *port)).collect(),
        Direction::Egress => NamedPorts::new(),
    };
    let cookies = rules.keys().copied().collect();
    let identity = SetIdentity { direction, isolated, names_ask, rules: cookies, ports: ports.clone() };
    let id = book.set_id(identity);
    let numbered = |(cookie, (tier, rule))| Numbered { cookie, tier, rule };
    let rules = rules.into_iter().map(numbered).collect();
    (id, Set::new(rules, isolated, names_ask, ports))
}

/// Writes the set into the maps; returns its `SET_*` bits.
fn add_set(
    id: SetId,
    set: &Set<'_>,
    roster: &Roster<'_>,
    book: &mut Book,
    desired: &mut Desired,
) -> Result<u32, CompileError> {
    for (class, chunks) in set.fixed_classes(roster)? {
        put_class(&mut desired.rules, id, class, chunks);
    }
    for (key, class) in book.names() {
        put_class(&mut desired.rules, id, class, set.name_class(key)?);
    }
    for (net, class) in &set.cidrs.prefixes {
        let (bits, key) = cidrs::key(id, *net);
        desired.cidrs.insert(CidrPrefix { bits, key }, *class);
    }
    let mut features = set.features();
    for (address, pod) in set.pods_in_cidrs(roster) {
        let class = book.pod_class(id, &pod);
        let (bits, key) = cidrs::key(id, crate::net::host_net(address));
        desired.cidrs.insert(CidrPrefix { bits, key }, class);
        let (chunks, ports) = set.pod_class(&pod, roster)?;
        put_class(&mut desired.rules, id, class, chunks);
        features |= ports;
    }
    Ok(features)
}

fn put_class(rules: &mut BTreeMap<RuleKey, RuleChunk>, set: SetId, class: ClassId, chunks: Vec<RuleChunk>) {
    for (chunk, value) in chunks.into_iter().enumerate() {
        rules.insert(RuleKey { set, class, chunk: chunk as u32 }, value);
    }
}

fn endpoint(spec: &EndpointSpec, egress: SetRef, ingress: SetRef, world: &World) -> Endpoint {
    let other_port = world.resolvers.iter().any(|r| r.port() != DNS_PORT);
    Endpoint {
        id: spec.id,
        egress_set: egress.0,
        ingress_set: ingress.0,
        flags: spec.flags | if other_port { ENDPOINT_DNS_PORTS } else { 0 },
        identity: spec.identity,
        egress_features: egress.1,
        ingress_features: ingress.1,
        ttl_floor: spec.lifetime.floor(),
        ttl_cap: spec.lifetime.cap(),
        grace: spec.lifetime.grace(),
        zero: 0,
    }
}
