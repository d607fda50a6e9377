//! From policies to the content of the maps.
//!
//! Owns: rule sets, name classes, CIDR classes and their numbers. Must not know: YAML, pods, sockets, aya. A
//! rule set is immutable: other rules make another set with another number. Class numbers never change meaning.

mod cidrs;
mod names;
mod ports;
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

pub use names::{ClassKey, Member, NameBook, NameIndex, Role};

use crate::{
    desired::{CidrPrefix, Desired, Suffix},
    dns::lifetime::Lifetime,
    names::{Name, Pattern},
    policy::{DNS_PORT, Origin, Peers, Policy, Rule},
};
use set::{Numbered, Set};

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
    /// Resolvers whose answers are learned.
    pub resolvers: BTreeSet<SocketAddr>,
    /// Addresses with an identity (`egret_common::ids::identity`).
    pub identities: BTreeMap<IpAddr, u32>,
    /// Whether name rules permit the question.
    pub names_ask: NamesAsk,
    /// Names that were seen and that a slow pattern matches; they get an entry of their own.
    pub seen_names: BTreeSet<Name>,
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
    /// The policies that select it.
    pub policies: Vec<Policy>,
}

/// Numbers that must not change while the process lives.
#[derive(Debug, Clone, Default)]
pub struct Book {
    names: NameBook,
    sets: BTreeMap<SetIdentity, SetId>,
    /// The last number that another process gave to a set.
    last_set: SetId,
    cookies: BTreeMap<(Origin, Rule), u32>,
}

impl Book {
    /// A book whose sets begin above `last_set`.
    #[must_use]
    pub fn above(last_set: SetId) -> Self {
        Self { last_set, ..Self::default() }
    }

    /// The rule behind a cookie in a flow or a destination, `COOKIE_*` bits or not.
    #[must_use]
    pub fn rule(&self, cookie: u32) -> Option<(&Origin, &Rule)> {
        let cookie = cookie & !egret_common::maps::COOKIE_DNS;
        self.cookies.iter().find(|(_, c)| **c == cookie).map(|((origin, rule), _)| (origin, rule))
    }

    /// The patterns behind a name class.
    #[must_use]
    pub fn class(&self, id: ClassId) -> Option<&ClassKey> {
        self.names.key(id)
    }

    /// The name class at a place, from 0.
    #[must_use]
    pub fn class_at(&self, place: usize) -> Option<&ClassKey> {
        self.names.at(place).map(|(key, _)| key)
    }

    /// How many name classes there are so far.
    #[must_use]
    pub fn classes(&self) -> usize {
        self.names.len()
    }

    /// The number of a class, new if need be.
    pub fn class_id(&mut self, key: ClassKey) -> ClassId {
        self.names.id(key)
    }

    fn set_id(&mut self, identity: SetIdentity) -> SetId {
        let next = self.last_set + self.sets.len() as SetId + 1;
        *self.sets.entry(identity).or_insert(next)
    }

    fn cookie(&mut self, origin: &Origin, rule: &Rule) -> u32 {
        let next = self.cookies.len() as u32 + 1;
        *self.cookies.entry((origin.clone(), rule.clone())).or_insert(next)
    }
}

/// What makes two sets the same.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct SetIdentity {
    direction: Direction,
    isolated: bool,
    names_ask: NamesAsk,
    /// Cookies of its rules; each stands for one rule of one object.
    rules: BTreeSet<u32>,
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
    let index = NameIndex::new(patterns(endpoints), &world.search);
    let name_exact = index.exact_entries(&world.seen_names, &mut book.names);
    let suffixes = index.suffix_entries(&mut book.names);
    let name_suffix = suffixes.into_iter().map(|(text, classes)| (Suffix(text), classes)).collect();
    let mut desired = Desired { name_exact, name_suffix, ..Desired::default() };
    index.reserve_slow(&mut book.names);
    for spec in endpoints {
        let [egress, ingress] = [Direction::Egress, Direction::Ingress]
            .map(|direction| add_set(spec, direction, world.names_ask, book, &mut desired));
        desired.endpoints.insert(spec.id, endpoint(spec, egress?, ingress?, world));
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
    let Some((key, class)) = book.names.at(place).map(|(key, class)| (key.clone(), class)) else {
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
        for rule in policy.rules().iter().filter(|r| r.direction == direction) {
            rules.insert(book.cookie(policy.origin(), rule), rule);
        }
    }
    let cookies = rules.keys().copied().collect();
    let id = book.set_id(SetIdentity { direction, isolated, names_ask, rules: cookies });
    let rules = rules.into_iter().map(|(cookie, rule)| Numbered { cookie, rule }).collect();
    (id, Set::new(rules, isolated, names_ask))
}

fn add_set(
    spec: &EndpointSpec,
    direction: Direction,
    names_ask: NamesAsk,
    book: &mut Book,
    desired: &mut Desired,
) -> Result<SetRef, CompileError> {
    let (id, set) = set_of(spec, direction, names_ask, book);
    for (class, chunks) in set.fixed_classes()? {
        put_class(&mut desired.rules, id, class, chunks);
    }
    for (key, class) in book.names.iter() {
        put_class(&mut desired.rules, id, class, set.name_class(key)?);
    }
    for (net, class) in &set.cidrs.prefixes {
        let (bits, key) = cidrs::key(id, *net);
        desired.cidrs.insert(CidrPrefix { bits, key }, *class);
    }
    Ok((id, set.features()))
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
