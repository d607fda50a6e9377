//! What policies would do with what was seen, by the decision that the kernel takes.
//!
//! Owns: a small world in which each need is asked about by itself. Must not know: how policies came about.
//!
//! What flows do not tell is not there: named ports, nodes and networks that a policy names by object. A rule that needs them
//! opens nothing here.

mod people;
mod tables;

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    net::IpAddr,
};

use egret_common::{
    decide::{Question, decision_of, may_ask, set_of},
    grant::{self, GrantTime},
    ids::{ClassId, EndpointId},
    maps::{self, BACKENDS, Backends, ENDPOINT_SERVICES, GRANT_SLOTS, GrantKey, Grants, ServiceKey},
    net::{Addr, Direction},
    verdict::DropReason,
};

use self::{people::People, tables::AtThatTime};
use super::dns::times;
use super::{Act, Collected, Need, Node, Options, Peer, ProposeError, Services, Subject, search};
use crate::{
    compile::{Book, Compiled, EndpointSpec, NamesAsk, World, addr, compile},
    desired::View,
    dns::lifetime::Lifetime,
    identity::NamedPorts,
    labels::Labels,
    names::Name,
    policy::{Policies, Policy},
    ports::Proto,
};

/// Now, for grants.
const NOW: GrantTime = 1;

/// What policies would do.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Replayed {
    /// Flows that would pass.
    pub passed: u64,
    /// Those that would not.
    pub denied: Vec<Denied>,
    /// Workloads that no policy is about: nothing of theirs is denied.
    pub unselected: BTreeSet<String>,
}

/// Something that would be denied: of all pods that one reads alike.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Denied {
    /// Whose it is: namespace and labels.
    pub subject: String,
    /// Who begins.
    pub direction: Direction,
    /// With whom.
    pub peer: String,
    /// What.
    pub what: String,
    /// Why not.
    pub reason: DropReason,
    /// How often it was seen.
    pub count: u64,
}

impl fmt::Display for Denied {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let arrow = if self.direction == Direction::Egress { "to" } else { "from" };
        let Self { subject, peer, what, reason, count, .. } = self;
        write!(f, "{subject} {arrow} {peer}: {what}: {} (seen {})", reason.name(), times(*count))
    }
}

/// Asks the policies about what was seen, in the directions that the options mean.
///
/// # Errors
/// [`ProposeError::Compile`], [`ProposeError::TooMany`].
pub fn replay(
    policies: &[Policy],
    collected: &Collected,
    services: &Services,
    options: &Options,
) -> Result<Replayed, ProposeError> {
    let needs = collected.needs()?.iter().filter(|(need, _)| options.counts(need.seen.direction));
    let seen = needs.clone().map(|(need, _)| need);
    let scene = Scene::new(policies, seen.clone(), services, &options.cluster_domain)?;
    let (mut replayed, mut denials) = (Replayed::default(), BTreeMap::new());
    for (need, tally) in needs {
        match scene.judge(need) {
            Some(reason) => {
                let count: &mut u64 = denials.entry(denied(need, reason)).or_default();
                *count = count.saturating_add(tally.count);
            }
            None => replayed.passed = replayed.passed.saturating_add(tally.count),
        }
    }
    replayed.denied = denials.into_iter().map(|(denied, count)| Denied { count, ..denied }).collect();
    let all = seen.map(|need| &need.seen.subject);
    let unselected = all.filter(|subject| !policies.iter().any(|p| p.selects(&subject.labels)));
    replayed.unselected = unselected.map(ToString::to_string).collect();
    Ok(replayed)
}

/// Not counted yet.
fn denied(need: &Need, reason: DropReason) -> Denied {
    let what = match &need.seen.act {
        Act::Connect(proto @ (Proto::Icmp | Proto::Icmpv6), port) => format!("{proto} type {}", port >> 8),
        Act::Connect(proto, port) => format!("port {port}/{proto}"),
        Act::Ask(_, _, name) => format!("the question for {name}"),
        Act::Odd(what) => what.clone(),
    };
    let (subject, direction, peer) =
        (need.seen.subject.to_string(), need.seen.direction, need.seen.peer.to_string());
    Denied { subject, direction, peer, what, reason, count: 0 }
}

/// Everything compiled.
struct Scene {
    compiled: Compiled,
    endpoints: BTreeMap<Subject, EndpointId>,
    identities: BTreeMap<Labels, u32>,
    /// Workloads whose questions are filtered.
    filtered: BTreeSet<EndpointId>,
}

impl Scene {
    fn new<'a>(
        policies: &[Policy],
        needs: impl Iterator<Item = &'a Need> + Clone,
        services: &Services,
        cluster_domain: &Name,
    ) -> Result<Self, ProposeError> {
        let mut people = People::default();
        let (mut names, mut subjects) = (BTreeSet::new(), BTreeSet::new());
        for need in needs {
            subjects.insert(&need.seen.subject);
            people.number(&need.seen.subject.labels);
            people.meet(&need.seen.peer, None);
            names.extend(known(need).cloned());
        }
        for (.., backends) in services.iter() {
            backends.iter().for_each(|backend| people.meet(&backend.peer, Some(backend.ip)));
        }
        let subjects: Vec<&Subject> = subjects.into_iter().collect();
        let specs: Vec<EndpointSpec> =
            (1..).zip(&subjects).map(|(id, s)| spec(id, s, policies, &mut people)).collect();
        let filters = |spec: &&EndpointSpec| spec.policies.rules().any(|rule| rule.dns.is_some());
        let filtered = specs.iter().filter(filters).map(|spec| spec.id).collect();
        let world = World {
            search: search(subjects.iter().map(|subject| subject.namespace.as_str()), cluster_domain),
            cluster_domain: Some(cluster_domain.clone()),
            resolvers: BTreeSet::new(),
            identities: people.addresses.clone(),
            peers: people.peers.clone(),
            names_ask: NamesAsk::No,
            seen_names: names,
        };
        let mut compiled = compile(&world, &specs, &mut Book::default())?;
        compiled.desired.services = services.iter().map(service).collect();
        let endpoints = subjects.into_iter().cloned().zip(1..).collect();
        Ok(Self { compiled, endpoints, identities: people.numbers, filtered })
    }

    /// Why not; `None`: it would pass.
    fn judge(&self, need: &Need) -> Option<DropReason> {
        let id = *self.endpoints.get(&need.seen.subject)?;
        let endpoint = self.compiled.desired.endpoints.get(&id)?;
        if need.seen.direction == Direction::Ingress && matches!(need.seen.peer, Peer::Entity(Node::Host, _))
        {
            // A node may always begin with its own pods.
            return None;
        }
        let (proto, port) = match &need.seen.act {
            Act::Connect(proto, port) | Act::Ask(proto, port, _) => (*proto, *port),
            Act::Odd(_) => return endpoint_denies(endpoint, need).then_some(DropReason::UnsupportedProtocol),
        };
        let identity = match &need.seen.peer {
            Peer::Pod(labels, _) => self.identities.get(labels).copied(),
            Peer::Entity(node, _) => Some(node.number()),
            Peer::Service { .. } | Peer::World { .. } | Peer::Unknown(_) => None,
        };
        let remote = need.seen.peer.address().map_or(NOWHERE, addr);
        let grants = self.grants(id, remote, need);
        let view = View { desired: &self.compiled.desired, grants: &grants, now: NOW };
        let tables = AtThatTime { view, remote, identity };
        if let Act::Ask(_, port, name) = &need.seen.act {
            let class = self.compiled.desired.name_class(name);
            if self.filtered.contains(&id) && !may_ask(&tables, endpoint, class, *port) {
                return Some(DropReason::QueryRefused);
            }
        }
        let question = Question { remote, direction: need.seen.direction, proto: proto.number(), port };
        decision_of(&tables, endpoint, &question).reason()
    }

    /// What the workload was told by then.
    fn grants(&self, endpoint: EndpointId, remote: Addr, need: &Need) -> BTreeMap<GrantKey, Grants> {
        let classes: BTreeSet<ClassId> =
            known(need).map(|name| self.compiled.desired.name_class(name)).collect();
        let mut slots = [0; GRANT_SLOTS];
        for (slot, class) in slots.iter_mut().zip(classes.into_iter().filter(|class| *class != 0)) {
            *slot = grant::pack(class, NOW + 1);
        }
        BTreeMap::from([(GrantKey { addr: remote, endpoint, pad: 0 }, Grants { slots })])
    }
}

/// An address that nobody has.
const NOWHERE: Addr = Addr::from_v4([0, 0, 0, 0]);

fn endpoint_denies(endpoint: &maps::Endpoint, need: &Need) -> bool {
    set_of(endpoint, need.seen.direction).1 != 0
}

/// Names that the need tells of.
fn known(need: &Need) -> impl Iterator<Item = &Name> {
    let told = match &need.seen.peer {
        Peer::World { names, .. } => Some(names),
        _ => None,
    };
    let asked = match &need.seen.act {
        Act::Ask(.., name) => Some(name),
        _ => None,
    };
    told.into_iter().flatten().chain(asked)
}

fn spec(id: EndpointId, subject: &Subject, policies: &[Policy], people: &mut People) -> EndpointSpec {
    let about: Vec<Policy> =
        policies.iter().filter(|policy| policy.selects(&subject.labels)).cloned().collect();
    let identity = people.number(&subject.labels);
    let (lifetime, ports, policies) = (Lifetime::default(), NamedPorts::new(), Policies::from(about));
    EndpointSpec { id, identity, flags: ENDPOINT_SERVICES, lifetime, ports, policies }
}

fn service((vip, proto, port, list): (IpAddr, Proto, u16, &[super::Backend])) -> (ServiceKey, Backends) {
    let key = ServiceKey { addr: addr(vip), port: port.into(), proto: proto.number().into() };
    let mut backends = Backends::default();
    if list.len() <= BACKENDS {
        for (slot, backend) in backends.slots.iter_mut().zip(list) {
            *slot = maps::Backend { addr: addr(backend.ip), port: backend.port.into(), pad: 0 };
        }
        backends.count = list.len() as u32;
    }
    (key, backends)
}
