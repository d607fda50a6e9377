//! What is kept from one compilation to the next, so that a change costs what it touches.
//!
//! ```text
//!  World, endpoints ──step──> touched identities and addresses ──> Roster ──┐
//!                        ├──> patterns in force ──> name tables, classes ───┼──> Draft ──> Delta
//!                        └──> sets that come, stay, go ──> Kept ────────────┘
//! ```
//! From nothing is a step as well: the maps do not depend on how they came about. After an error the cache means nothing
//! and must be dropped.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use egret_common::{
    ids::{ClassId, SetId},
    maps::{ENDPOINT_DNS_PORTS, Endpoint, ResolverKey},
    net::Direction,
};

use super::{
    Book, ClassKey, CompileError, Compiled, EndpointSpec, NameIndex, NamesAsk, World, addr,
    book::SetIdentity,
    claims::Numbered,
    kept::{Draft, Kept, Touched},
    resolver_key,
    roster::Roster,
    set::Set,
};
use crate::{
    desired::{Delta, Desired, Suffix, changes, resolver_changes},
    identity::NamedPorts,
    names::{Name, Pattern},
    policy::{DNS_PORT, Peers, Policies, Policy},
};

/// See the module.
#[derive(Debug, Clone, Default)]
pub(crate) struct Cache {
    roster: Roster,
    sets: BTreeMap<SetId, Kept>,
    /// The sets of a list of policies, by where the list is.
    asked: BTreeMap<(usize, Direction, NamesAsk), Asked>,
    /// The policies in use.
    policies: InUse,
    names: Option<Names>,
    /// The patterns are those of the policies in use.
    patterns_known: bool,
}

/// Which sets a list of policies leads to.
#[derive(Debug, Clone)]
struct Asked {
    #[expect(dead_code, reason = "held, so that no other list can be there")]
    policies: Policies,
    /// By the workload's own named ports.
    sets: Vec<(NamedPorts, SetId)>,
}

/// Policies, each once, in the order in which they are met first.
#[derive(Debug, Clone, Default)]
struct InUse {
    /// Where they are.
    places: Vec<usize>,
    policies: Vec<Arc<Policy>>,
}

/// What the name tables follow from.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Names {
    /// Every pattern, and whether some rule opens its names.
    patterns: BTreeMap<Pattern, bool>,
    search: Vec<Name>,
    cluster_domain: Option<Name>,
}

/// What a step leads to.
#[derive(Debug)]
pub(crate) struct Step {
    pub(crate) delta: Delta,
    /// How names are classified from now on, if otherwise than before.
    pub(crate) index: Option<NameIndex>,
}

impl Cache {
    /// From nothing.
    pub(crate) fn whole(
        world: &World,
        endpoints: &[EndpointSpec],
        book: &mut Book,
    ) -> Result<(Self, Compiled), CompileError> {
        let (mut cache, mut desired) = (Self::default(), Desired::default());
        let Step { delta, index } = cache.step(&desired, None, world, endpoints, book)?;
        delta.enter(&mut desired);
        Ok((cache, Compiled { desired, index: index.unwrap_or_default() }))
    }

    /// From the maps `old`, which are those of the last step and of the world `was`.
    pub(crate) fn step(
        &mut self,
        old: &Desired,
        was: Option<&World>,
        now: &World,
        endpoints: &[EndpointSpec],
        book: &mut Book,
    ) -> Result<Step, CompileError> {
        let mut draft = Draft { old, delta: Delta::default() };
        let touched = self.meet(was, now, &mut draft);
        self.rank(endpoints, book);
        let index = self.name(now, book, &mut draft);
        let numbers: Vec<[SetId; 2]> = self.number(now.names_ask, endpoints, book);
        let in_use: BTreeSet<SetId> = numbers.iter().flatten().copied().collect();
        let gone: Vec<SetId> = self.sets.keys().filter(|set| !in_use.contains(set)).copied().collect();
        gone.iter().filter_map(|set| self.sets.remove(set)).for_each(|kept| kept.remove(&mut draft));
        for kept in self.sets.values_mut() {
            kept.follow(&touched, &self.roster, book, &mut draft)?;
        }
        self.add_names(book.names_mut().take_fresh(), &mut draft)?;
        for (spec, sets) in endpoints.iter().zip(&numbers) {
            for (set, direction) in sets.iter().zip(DIRECTIONS) {
                if !self.sets.contains_key(set) {
                    let kept = self.make(*set, (spec, direction, now.names_ask), book, &mut draft)?;
                    self.sets.insert(*set, kept);
                }
            }
        }
        self.put_endpoints(now, endpoints, &numbers, &mut draft);
        let resolvers: BTreeSet<ResolverKey> = now.resolvers.iter().map(|r| resolver_key(*r)).collect();
        draft.delta.resolvers = resolver_changes(&old.resolvers, &resolvers);
        self.forget(!gone.is_empty(), book);
        Ok(Step { delta: draft.delta, index })
    }

    /// Rules for the name classes that came up since the last step, or since they were asked for last.
    pub(crate) fn rules_of_new_names(&self, old: &Desired, book: &mut Book) -> Result<Delta, CompileError> {
        let mut draft = Draft { old, delta: Delta::default() };
        self.add_names(book.names_mut().take_fresh(), &mut draft)?;
        Ok(draft.delta)
    }

    /// Takes name classes out of every set.
    pub(crate) fn remove_names(&self, old: &Desired, classes: &[ClassId]) -> Delta {
        let mut draft = Draft { old, delta: Delta::default() };
        for set in self.sets.keys() {
            classes.iter().for_each(|class| draft.class(*set, *class, Vec::new()));
        }
        draft.delta
    }

    /// How many sets, lists of policies, policies and selectors are kept.
    pub(crate) fn sizes(&self) -> [usize; 4] {
        [self.sets.len(), self.asked.len(), self.policies.policies.len(), self.roster.size()]
    }

    /// Takes in which pods and addresses there are.
    fn meet(&mut self, was: Option<&World>, now: &World, draft: &mut Draft<'_>) -> Touched {
        let nobody = (BTreeMap::new(), BTreeMap::new());
        let (peers, identities) = was.map_or((&nobody.0, &nobody.1), |was| (&was.peers, &was.identities));
        let mut touched = Touched::default();
        for (number, identity) in changes(peers, &now.peers) {
            self.roster.put(number, identity.as_ref());
            touched.identities.insert(number);
        }
        // An address may be written in two ways.
        touched.addresses =
            changes(identities, &now.identities).into_keys().map(|ip| ip.to_canonical()).collect();
        for ip in &touched.addresses {
            let owner = now.owner(*ip);
            self.roster.put_address(*ip, owner);
            if draft.old.identities.get(&addr(*ip)).copied() != owner {
                draft.delta.identities.insert(addr(*ip), owner);
            }
        }
        touched.addresses.extend(self.roster.addresses_of(&touched.identities));
        touched
    }

    /// Notes which policies are in use. The rules of the Admin and Baseline tiers are numbered by their order among all.
    fn rank(&mut self, endpoints: &[EndpointSpec], book: &mut Book) {
        let policies = InUse::of(endpoints);
        if policies.places != self.policies.places {
            if book.rank(policies.policies.iter().map(|policy| &**policy)) {
                self.asked.clear();
            }
            self.policies = policies;
            self.patterns_known = false;
        }
    }

    /// Makes the name tables anew if other patterns are in force.
    fn name(&mut self, now: &World, book: &mut Book, draft: &mut Draft<'_>) -> Option<NameIndex> {
        let known = self.names.as_ref().filter(|_| self.patterns_known);
        if known.is_some_and(|n| n.search == now.search && n.cluster_domain == now.cluster_domain) {
            return None;
        }
        let patterns = patterns(self.policies.policies.iter());
        self.patterns_known = true;
        let (search, cluster_domain) = (now.search.clone(), now.cluster_domain.clone());
        let names = Names { patterns, search, cluster_domain };
        if self.names.as_ref() == Some(&names) {
            return None;
        }
        let patterns = names.patterns.iter().map(|(p, opens)| (p, *opens));
        let index = NameIndex::new(patterns, &names.search, names.cluster_domain.as_ref());
        let exact = index.exact_entries(&now.seen_names, book.names_mut());
        let suffixes = index.suffix_entries(book.names_mut());
        let suffix = suffixes.into_iter().map(|(text, classes)| (Suffix(text), classes)).collect();
        index.reserve_slow(book.names_mut());
        draft.delta.name_exact = changes(&draft.old.name_exact, &exact);
        draft.delta.name_suffix = changes(&draft.old.name_suffix, &suffix);
        self.names = Some(names);
        Some(index)
    }

    /// The numbers of each endpoint's sets, in the order of [`DIRECTIONS`].
    fn number(&mut self, ask: NamesAsk, endpoints: &[EndpointSpec], book: &mut Book) -> Vec<[SetId; 2]> {
        let before = std::mem::take(&mut self.asked);
        let mut number = |spec: &EndpointSpec, direction| {
            let place = (spec.policies.place(), direction, ask);
            // What goes out goes to ports that its destination names.
            let ports = if direction == Direction::Ingress { &spec.ports } else { &NO_PORTS };
            let new = || Asked { policies: spec.policies.clone(), sets: Vec::new() };
            let asked = self.asked.entry(place).or_insert_with(new);
            let known = before.get(&place).and_then(|asked| asked.set(ports));
            asked.set(ports).unwrap_or_else(|| {
                let set = known.unwrap_or_else(|| {
                    let rules = rules_of(spec, direction, book);
                    book.set_id(identity_of(spec, direction, ask, &rules))
                });
                asked.sets.push((ports.clone(), set));
                set
            })
        };
        endpoints.iter().map(|spec| DIRECTIONS.map(|direction| number(spec, direction))).collect()
    }

    /// A set that is new.
    fn make(
        &mut self,
        id: SetId,
        (spec, direction, ask): (&EndpointSpec, Direction, NamesAsk),
        book: &mut Book,
        draft: &mut Draft<'_>,
    ) -> Result<Kept, CompileError> {
        let rules = rules_of(spec, direction, book);
        let SetIdentity { isolated, ports, .. } = identity_of(spec, direction, ask, &rules);
        let set = Set::new(rules.into_values().collect(), isolated, ask, ports);
        self.roster.learn(set.selectors());
        Kept::new(id, set, &self.roster, book, draft)
    }

    fn add_names(
        &self,
        classes: Vec<(ClassId, ClassKey)>,
        draft: &mut Draft<'_>,
    ) -> Result<(), CompileError> {
        let mut all = classes.iter().flat_map(|class| self.sets.values().map(move |kept| (kept, class)));
        all.try_for_each(|(kept, (class, key))| kept.add_name(*class, key, draft))
    }

    fn put_endpoints(
        &self,
        now: &World,
        endpoints: &[EndpointSpec],
        sets: &[[SetId; 2]],
        draft: &mut Draft<'_>,
    ) {
        let other_port = now.resolvers.iter().any(|r| r.port() != DNS_PORT);
        let flags = if other_port { ENDPOINT_DNS_PORTS } else { 0 };
        let features = |set: &SetId| self.sets.get(set).map_or(0, Kept::features);
        let mut wanted = BTreeMap::new();
        for (spec, [egress, ingress]) in endpoints.iter().zip(sets) {
            let endpoint = Endpoint {
                id: spec.id,
                egress_set: *egress,
                ingress_set: *ingress,
                flags: spec.flags | flags,
                identity: spec.identity,
                egress_features: features(egress),
                ingress_features: features(ingress),
                ttl_floor: spec.lifetime.floor(),
                ttl_cap: spec.lifetime.cap(),
                grace: spec.lifetime.grace(),
                zero: 0,
            };
            wanted.insert(spec.id, endpoint);
        }
        draft.delta.endpoints = changes(&draft.old.endpoints, &wanted);
    }

    /// Nothing grows for ever.
    fn forget(&mut self, sets_have_gone: bool, book: &mut Book) {
        let policies = self.policies.places.iter().copied().collect();
        book.forget(|set| self.sets.contains_key(&set), self.sets.len(), &policies);
        if sets_have_gone {
            self.roster.forget(self.sets.values().flat_map(|kept| kept.set.selectors()));
        }
    }
}

impl InUse {
    fn of(endpoints: &[EndpointSpec]) -> Self {
        let mut lists = BTreeSet::new();
        let mut met = BTreeSet::new();
        let mut in_use = Self::default();
        for spec in endpoints.iter().filter(|spec| lists.insert(spec.policies.place())) {
            for policy in spec.policies.iter() {
                let place = Arc::as_ptr(policy).addr();
                if met.insert(place) {
                    in_use.places.push(place);
                    in_use.policies.push(policy.clone());
                }
            }
        }
        in_use
    }
}

impl Asked {
    fn set(&self, ports: &NamedPorts) -> Option<SetId> {
        self.sets.iter().find(|(own, _)| own == ports).map(|(_, set)| *set)
    }
}

static NO_PORTS: NamedPorts = NamedPorts::new();

const DIRECTIONS: [Direction; 2] = [Direction::Egress, Direction::Ingress];

/// Every pattern, and whether some rule opens its names.
fn patterns<'a>(policies: impl Iterator<Item = &'a Arc<Policy>>) -> BTreeMap<Pattern, bool> {
    let mut patterns = BTreeMap::new();
    for rule in policies.flat_map(|policy| policy.rules()) {
        if let Peers::Names(named) = &rule.peers {
            patterns.extend(named.iter().map(|p| (p.clone(), true)));
        }
        for pattern in rule.dns.iter().flatten() {
            patterns.entry(pattern.clone()).or_insert(false);
        }
    }
    patterns
}

/// The rules of the workload for one direction, by cookie.
fn rules_of(spec: &EndpointSpec, direction: Direction, book: &mut Book) -> BTreeMap<u32, Numbered> {
    let mut rules = BTreeMap::new();
    for policy in spec.policies.iter() {
        let cookies = book.cookies(policy);
        let numbered = Numbered::of(policy, &cookies, direction);
        rules.extend(numbered.map(|n| (n.cookie, n)));
    }
    rules
}

fn identity_of(
    spec: &EndpointSpec,
    direction: Direction,
    names_ask: NamesAsk,
    rules: &BTreeMap<u32, Numbered>,
) -> SetIdentity {
    let isolated = spec.policies.iter().any(|p| p.isolates().of(direction));
    // What comes in goes to the workload's own ports; what goes out, to ports that its destination names.
    let names: BTreeSet<&str> = rules.values().flat_map(|n| n.rule().ports.names()).collect();
    let own = spec.ports.iter().filter(|((name, _), _)| names.contains(name.as_str()));
    let ports = match direction {
        Direction::Ingress => own.map(|(name, port)| (name.clone(), *port)).collect(),
        Direction::Egress => NamedPorts::new(),
    };
    SetIdentity { direction, isolated, names_ask, rules: rules.keys().copied().collect(), ports }
}
