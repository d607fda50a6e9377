//! The oracle: a slow, obvious reading of policies, straight from the text of their APIs.
//!
//! Owns: nothing that runs in production. Must not know: classes, sets, maps, or anything else of the compiler that
//! it is the judge of.

use std::{
    collections::BTreeSet,
    net::{IpAddr, Ipv6Addr},
};

use egret_common::{ids::identity, net::Direction, verdict::DropReason};
use ipnet::IpNet;

use crate::{
    compile::NamesAsk,
    identity::{Identity, NamedPorts},
    labels::{Labels, POD_NAMESPACE},
    names::{Name, Pattern},
    policy::{CidrPeer, DNS_PORT, Effect, Entity, Peers, Policy, Reference, Rule, Tier},
    ports::{PortRange, PortSpec, Ports, Proto},
};

/// A name under which the workload was told the remote address.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KnownName {
    /// The name that was asked for.
    pub name: Name,
    /// Whether its lifetime is over.
    pub expired: bool,
}

/// What is asked.
#[derive(Debug, Clone)]
pub struct Situation<'a> {
    /// Who begins the flow.
    pub direction: Direction,
    /// The peer.
    pub remote: IpAddr,
    /// The peer's identity; [`identity::WORLD`] if nothing claims the address.
    pub identity: u32,
    /// The peer, if it is a pod of the cluster: its labels and its named ports.
    pub pod: Option<&'a Identity>,
    /// The workload's own named ports.
    pub own_ports: &'a NamedPorts,
    /// Names of the peer that this workload resolved, of those that some policy mentions.
    pub names: &'a [KnownName],
    /// IP protocol number.
    pub proto: u8,
    /// Destination port; ICMP: type << 8 | code.
    pub port: u16,
    /// What else there is in the cluster.
    pub objects: &'a Objects,
}

/// Objects that rules may name.
#[derive(Debug, Clone, Default)]
pub struct Objects {
    /// Nodes: labels and addresses.
    pub nodes: Vec<(Labels, BTreeSet<IpAddr>)>,
    /// CiliumCIDRGroups: name, labels and networks.
    pub groups: Vec<(String, Labels, Vec<IpNet>)>,
    /// Services.
    pub services: Vec<Backed>,
}

impl Objects {
    /// No objects.
    pub const NONE: &'static Self = &Self { nodes: Vec::new(), groups: Vec::new(), services: Vec::new() };
}

/// A service and what is behind it.
#[derive(Debug, Clone, Default)]
pub struct Backed {
    /// Namespace.
    pub namespace: String,
    /// Name.
    pub name: String,
    /// Its labels.
    pub labels: Labels,
    /// Which pods of its namespace are behind it; empty: `endpoints` are.
    pub selector: Labels,
    /// Addresses of its endpoints.
    pub endpoints: BTreeSet<IpAddr>,
}

/// The answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// May pass.
    Allow,
    /// May not, and why.
    Deny(DropReason),
}

/// Whether the flow may start under these policies: the tiers in order, each final if it says anything.
#[must_use]
pub fn eval(policies: &[Policy], s: &Situation<'_>) -> Verdict {
    match decided_by(policies, s).map(|rule| rule.effect) {
        Some(Effect::Deny) => Verdict::Deny(DropReason::DenyRule),
        Some(_) => Verdict::Allow,
        None => eval_normal(policies, s).unwrap_or(Verdict::Allow),
    }
}

/// The rule of the Admin or Baseline tier that decides, if it is one of them.
#[must_use]
pub fn decided_by<'p>(policies: &'p [Policy], s: &Situation<'_>) -> Option<&'p Rule> {
    let decides = |rule: &&Rule| rule.effect != Effect::Pass;
    let admin = first_match(policies, Tier::Admin, s).filter(decides);
    if admin.is_some() || eval_normal(policies, s).is_some() {
        return admin;
    }
    first_match(policies, Tier::Baseline, s).filter(decides)
}

/// The first rule of a tier that matches: by priority, then by the object's name, then in the order of the text.
fn first_match<'p>(policies: &'p [Policy], tier: Tier, s: &Situation<'_>) -> Option<&'p Rule> {
    let mut of_tier: Vec<&Policy> = policies.iter().filter(|p| p.standing().tier == tier).collect();
    of_tier.sort_by_key(|p| (p.standing().priority, &p.origin().name));
    let mut rules = of_tier.into_iter().flat_map(Policy::rules).filter(|r| r.direction == s.direction);
    let remote = s.remote.to_canonical();
    rules.find(|r| {
        r.ports.covers_at(s.proto, s.port, destination_ports(s))
            && means(r, remote, s, |known| !known.expired)
    })
}

/// NetworkPolicy and CiliumNetworkPolicy; `None` if they leave the flow to the next tier.
fn eval_normal(policies: &[Policy], s: &Situation<'_>) -> Option<Verdict> {
    let remote = s.remote.to_canonical();
    let normal = || policies.iter().filter(|p| p.standing().tier == Tier::Normal);
    let rules = || normal().flat_map(Policy::rules).filter(|r| r.direction == s.direction);
    let matching = || {
        let covering = rules().filter(|r| r.ports.covers_at(s.proto, s.port, destination_ports(s)));
        covering.filter(|r| means(r, remote, s, |known| !known.expired))
    };
    if matching().any(|r| r.effect == Effect::Deny) {
        return Some(Verdict::Deny(DropReason::DenyRule));
    }
    if matching().any(|r| r.effect == Effect::Allow) {
        return Some(Verdict::Allow);
    }
    let isolated = normal().any(|p| p.isolates().of(s.direction));
    isolated.then(|| Verdict::Deny(why_not(policies, s)))
}

/// The reason when no rule matches. Name rules of every tier count: they say which names were meant.
fn why_not(policies: &[Policy], s: &Situation<'_>) -> DropReason {
    let rules = || policies.iter().flat_map(Policy::rules).filter(|r| r.direction == s.direction);
    let by_name = |r: &&Rule| matches!(r.peers, Peers::Names(_));
    let named = || rules().filter(by_name);
    let covering = || named().filter(|r| r.ports.covers_at(s.proto, s.port, destination_ports(s)));
    let remote = s.remote.to_canonical();
    if named().next().is_none() {
        DropReason::NoRule
    } else if covering().any(|r| means(r, remote, s, |known| known.expired)) {
        DropReason::NameExpired
    } else if s.names.iter().any(|known| !known.expired) {
        DropReason::NamePortMismatch
    } else if covering().next().is_some() {
        DropReason::NameUnresolved
    } else {
        DropReason::NoRule
    }
}

/// Whether a resolver listening on `port` may be asked for `name`, whatever the type.
#[must_use]
pub fn eval_query(policies: &[Policy], name: &Name, port: u16, search: &[Name], names_ask: NamesAsk) -> bool {
    // What the Baseline tier accepts counts only where nobody filters.
    let counting = policies.iter().filter(|p| p.standing().tier != Tier::Baseline);
    let rules = counting.flat_map(Policy::rules);
    let mut rules = rules.filter(|r| r.direction == Direction::Egress && r.effect == Effect::Allow);
    let meant = |p: &Pattern| {
        let bare = search.iter().filter_map(|domain| Name::from_dns(name.prefix_above(domain)?).ok());
        p.matches(name) || bare.into_iter().any(|bare| p.matches(&bare))
    };
    rules.any(|r| {
        let opened = match &r.peers {
            Peers::Names(patterns) => names_ask == NamesAsk::Yes && patterns.iter().any(meant),
            _ => false,
        };
        let listed =
            r.dns.iter().flatten().any(meant) && (r.peers == Peers::Resolvers || covers_dns(r, port));
        opened || listed || r.opens_dns_to_everybody()
    })
}

/// Whether a policy mentions the name at all, so that its addresses are worth remembering.
#[must_use]
pub fn mentioned(policies: &[Policy], name: &Name) -> bool {
    policies.iter().flat_map(Policy::rules).any(|r| {
        let named = match &r.peers {
            Peers::Names(patterns) => patterns.iter().any(|p| p.matches(name)),
            _ => false,
        };
        named || r.dns.iter().flatten().any(|p| p.matches(name))
    })
}

/// A named port is a port of the destination, be it the workload itself or a pod; nobody else has any.
fn destination_ports<'a>(s: &Situation<'a>) -> &'a NamedPorts {
    static NONE: NamedPorts = NamedPorts::new();
    match s.direction {
        Direction::Ingress => s.own_ports,
        Direction::Egress => s.pod.map_or(&NONE, |pod| &pod.ports),
    }
}

/// The ports of a rule are those of the DNS pods; their Service has 53 (CASES R-A02).
fn covers_dns(rule: &Rule, port: u16) -> bool {
    let datagram = |r: &PortRange| matches!(r.proto(), Proto::Udp | Proto::Tcp);
    let at = |r: &PortRange| port == DNS_PORT || r.covers(r.proto().number(), port);
    match &rule.ports {
        Ports::All => true,
        Ports::Only(specs) => specs.iter().any(|s| matches!(s, PortSpec::Range(r) if datagram(r) && at(r))),
    }
}

fn means(rule: &Rule, remote: IpAddr, s: &Situation<'_>, counts: impl Fn(&KnownName) -> bool) -> bool {
    match &rule.peers {
        Peers::Any => true,
        Peers::Nobody | Peers::Resolvers => false,
        Peers::Names(patterns) => s
            .names
            .iter()
            .filter(|known| counts(known))
            .any(|known| patterns.iter().any(|p| p.matches(&known.name))),
        Peers::Pods(selectors) => {
            s.pod.is_some_and(|pod| selectors.iter().any(|selector| selector.matches(&pod.labels)))
        }
        Peers::Cidrs(cidrs) => cidrs.iter().any(|c| {
            contains(c, remote) && (c.pods || s.pod.is_none())
                || rule.effect == Effect::Deny && embedded(remote).is_some_and(|v4| contains(c, v4))
        }),
        Peers::Entities(entities) => entities.iter().any(|e| is_entity(*e, s)),
        Peers::Objects(references) => {
            let v4 = if rule.effect == Effect::Deny { embedded(remote) } else { None };
            let at = |ip: &IpAddr| *ip == remote || Some(*ip) == v4;
            let inside = |net: &IpNet| {
                net.contains(&remote) && s.pod.is_none() || v4.is_some_and(|ip| net.contains(&ip))
            };
            references.iter().any(|reference| stands_for(reference, s, &at, &inside))
        }
    }
}

/// Whether the peer is behind an object, given whether it has an address or lies inside a network.
fn stands_for(
    reference: &Reference,
    s: &Situation<'_>,
    at: &dyn Fn(&IpAddr) -> bool,
    inside: &dyn Fn(&IpNet) -> bool,
) -> bool {
    let behind = |service: &Backed| match service.selector.is_empty() {
        true => s.pod.is_none() && service.endpoints.iter().any(at),
        false => s.pod.is_some_and(|pod| {
            pod.labels.get(POD_NAMESPACE) == Some(&service.namespace)
                && service.selector.iter().all(|(key, value)| pod.labels.get(key) == Some(value))
        }),
    };
    let here = |wanted: &Option<String>, service: &Backed| {
        wanted.as_ref().is_none_or(|namespace| *namespace == service.namespace)
    };
    let (nodes, groups, services) =
        (s.objects.nodes.iter(), s.objects.groups.iter(), s.objects.services.iter());
    match reference {
        Reference::Nodes(wanted) => {
            nodes.filter(|(labels, _)| wanted.matches(labels)).any(|(_, ips)| ips.iter().any(at))
        }
        Reference::CidrGroup(wanted) => {
            groups.filter(|(name, ..)| name == wanted).any(|(.., nets)| nets.iter().any(inside))
        }
        Reference::CidrGroups(wanted) => {
            groups.filter(|(_, labels, _)| wanted.matches(labels)).any(|(.., nets)| nets.iter().any(inside))
        }
        Reference::Service { namespace, name } => {
            services.filter(|sv| here(namespace, sv) && sv.name == *name).any(behind)
        }
        Reference::Services { namespace, labels } => {
            services.filter(|sv| here(namespace, sv) && labels.matches(&sv.labels)).any(behind)
        }
    }
}

fn contains(peer: &CidrPeer, ip: IpAddr) -> bool {
    peer.net.contains(&ip) && !peer.except.iter().any(|e: &IpNet| e.contains(&ip))
}

/// The IPv4 address inside `64:ff9b::/96`.
fn embedded(ip: IpAddr) -> Option<IpAddr> {
    let IpAddr::V6(v6) = ip else { return None };
    let prefix = u128::from(Ipv6Addr::new(0x64, 0xff9b, 0, 0, 0, 0, 0, 0)) >> 32;
    let bits = u128::from(v6);
    (bits >> 32 == prefix).then(|| IpAddr::from((bits as u32).to_be_bytes()))
}

fn is_entity(entity: Entity, s: &Situation<'_>) -> bool {
    let id = s.identity;
    match entity {
        Entity::All => true,
        Entity::World => id == identity::WORLD,
        Entity::Cluster => {
            let nodes = [identity::HOST, identity::REMOTE_NODE, identity::KUBE_APISERVER];
            s.pod.is_some() || nodes.contains(&id)
        }
        Entity::Host => id == identity::HOST,
        Entity::RemoteNode => id == identity::REMOTE_NODE,
        Entity::KubeApiserver => id == identity::KUBE_APISERVER,
        Entity::None => false,
    }
}
