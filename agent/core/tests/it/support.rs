//! Random policies over a small alphabet, so that rules, names and addresses often meet.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
    sync::Arc,
};

use egret_common::net::Direction;
use egret_core::{
    eval::KnownName,
    identity::{Identity, NamedPorts},
    labels::{Condition, Labels, Requirement, Selector},
    names::{Name, Pattern},
    policy::{CidrPeer, Effect, Entity, Isolation, Origin, Peers, Policy, Rule, Standing, Subject, Tier},
    ports::{PortRange, PortSpec, Ports, Proto},
};
use proptest::{collection::vec, option, prelude::*, sample::select};

/// One question to all readings.
#[derive(Debug, Clone)]
pub(crate) struct Probe {
    pub(crate) direction: Direction,
    pub(crate) remote: IpAddr,
    pub(crate) names: Vec<KnownName>,
    pub(crate) proto: u8,
    pub(crate) port: u16,
}

const PATTERNS: &[&str] = &[
    "a.x", "b.x", "x", "a.b.x", "*.x", "**.x", "*.b.x", "**.b.x", "*", "a*.x", "a.*.x", "**.a*.x", "*b.x",
    "a.y", "**.y",
];
const NAMES: &[&str] = &[
    "x", "a.x", "b.x", "ab.x", "a.b.x", "c.b.x", "a.c.b.x", "y", "a.y", "b.a.y", "a.x.s", "b.b.x.s",
    "c.y.d.s", "s", "d.s", "z",
];
const NETS: &[&str] = &[
    "0.0.0.0/0",
    "10.0.0.0/8",
    "10.1.0.0/16",
    "10.1.2.0/24",
    "10.1.2.3/32",
    "192.0.2.0/24",
    "::/0",
    "2001:db8::/32",
    "2001:db8:1::/48",
    "64:ff9b::/96",
    "64:ff9b::a00:0/104",
];
const ADDRESSES: &[&str] = &[
    "10.0.0.0",
    "10.1.0.1",
    "10.1.2.3",
    "10.255.255.255",
    "11.0.0.0",
    "192.0.2.1",
    "198.51.100.1",
    "2001:db8::1",
    "2001:db8:1::1",
    "2001:db9::1",
    "64:ff9b::a01:203",
    "64:ff9b::c000:201",
    "::ffff:10.1.2.3",
    "203.0.113.1",
    "203.0.113.6",
    "203.0.113.7",
    // Pods.
    "10.1.2.4",
    "10.1.2.5",
    "10.9.0.1",
    "192.0.2.9",
    "2001:db8:1::5",
];

/// Identities of pods: number, labels, named ports.
type PodRow = (u32, &'static [(&'static str, &'static str)], &'static [(&'static str, Proto, u16)]);
const PODS: &[PodRow] = &[
    (300, &[("app", "a")], &[("web", Proto::Tcp, 80), ("dns", Proto::Udp, 53)]),
    (301, &[("app", "a"), ("tier", "x")], &[("web", Proto::Tcp, 8000), ("web", Proto::Udp, 80)]),
    (302, &[("app", "b")], &[]),
    (303, &[("tier", "y")], &[("dns", Proto::Udp, 5353), ("web", Proto::Sctp, 443)]),
];

/// Two search domains, one below the other.
pub(crate) fn search() -> Vec<Name> {
    ["s", "d.s"].iter().map(|n| Name::parse(n).unwrap()).collect()
}

/// Addresses that belong to the host, a node, the API server, and to pods.
pub(crate) fn identities() -> BTreeMap<IpAddr, u32> {
    [
        ("203.0.113.1", 1),
        ("203.0.113.6", 6),
        ("203.0.113.7", 7),
        ("10.1.2.4", 300),
        ("10.1.2.5", 301),
        ("10.9.0.1", 300),
        ("192.0.2.9", 302),
        ("2001:db8:1::5", 303),
    ]
    .map(|(a, i)| (a.parse().unwrap(), i))
    .into()
}

/// The identities of pods by number.
pub(crate) fn pods() -> BTreeMap<u32, Arc<Identity>> {
    let text = |(k, v): &(&str, &str)| ((*k).to_owned(), (*v).to_owned());
    let identity = |(number, labels, ports): &PodRow| {
        let labels: Labels = labels.iter().map(text).collect();
        (*number, Arc::new(Identity { number: *number, labels, ports: named_ports(ports) }))
    };
    PODS.iter().map(identity).collect()
}

/// Named ports of the workload itself.
pub(crate) fn own_ports() -> NamedPorts {
    named_ports(&[("web", Proto::Tcp, 81), ("dns", Proto::Tcp, 53)])
}

pub(crate) fn named_ports(ports: &[(&str, Proto, u16)]) -> NamedPorts {
    ports.iter().map(|(name, proto, port)| (((*name).to_owned(), *proto), *port)).collect()
}

pub(crate) fn any_name() -> impl Strategy<Value = Name> {
    select(NAMES).prop_map(|n| Name::parse(n).unwrap())
}

pub(crate) fn any_probe() -> impl Strategy<Value = Probe> {
    let known = (any_name(), any::<bool>()).prop_map(|(name, expired)| KnownName { name, expired });
    let names = vec(known, 0..3).prop_map(|mut names| {
        let mut seen = BTreeSet::new();
        names.retain(|k| seen.insert(k.name.clone()));
        names
    });
    let direction = prop_oneof![4 => Just(Direction::Egress), 1 => Just(Direction::Ingress)];
    (direction, select(ADDRESSES), names, select(&[1u8, 6, 6, 6, 17, 58, 132, 47][..]), any_port()).prop_map(
        |(direction, remote, names, proto, port)| Probe {
            direction,
            remote: remote.parse().unwrap(),
            names,
            proto,
            port,
        },
    )
}

fn any_port() -> impl Strategy<Value = u16> {
    select(&[0u16, 53, 79, 80, 81, 82, 443, 5353, 8000, 65535, 0x0800][..])
}

fn any_ports() -> impl Strategy<Value = Ports> {
    let proto = select(&[Proto::Tcp, Proto::Tcp, Proto::Udp, Proto::Sctp, Proto::Icmp][..]);
    let range = (proto, any_port(), any_port())
        .prop_map(|(proto, a, b)| PortRange::new(proto, a.min(b), a.max(b)).unwrap());
    let proto = option::of(select(&[Proto::Tcp, Proto::Udp][..]));
    let named = (proto, select(&["web", "dns", "none"][..]))
        .prop_map(|(proto, name)| PortSpec::Named(proto, name.to_owned()));
    let spec = prop_oneof![3 => range.prop_map(PortSpec::Range), 1 => named];
    prop_oneof![1 => Just(Ports::All), 4 => vec(spec, 1..4).prop_map(Ports::Only)]
}

/// A name and `rules.dns` take no named ports.
fn numbers(ports: Ports) -> Ports {
    match ports {
        Ports::Only(specs) => {
            Ports::Only(specs.into_iter().filter(|s| matches!(s, PortSpec::Range(_))).collect())
        }
        Ports::All => Ports::All,
    }
}

fn any_selector() -> impl Strategy<Value = Selector> {
    let values = vec(select(&["a", "b", "x", "y"][..]).prop_map(str::to_owned), 1..3);
    let condition = prop_oneof![
        3 => values.clone().prop_map(|v| Condition::In(v.into_iter().collect())),
        1 => values.prop_map(|v| Condition::NotIn(v.into_iter().collect())),
        1 => Just(Condition::Exists),
        1 => Just(Condition::DoesNotExist),
    ];
    let requirement = (select(&["app", "tier"][..]), condition).prop_map(|(k, c)| Requirement::new(k, c));
    vec(requirement, 0..3).prop_map(Selector::all_of)
}

fn any_patterns() -> impl Strategy<Value = Vec<Pattern>> {
    vec(select(PATTERNS).prop_map(|p| Pattern::match_pattern(p).unwrap()), 1..3)
}

fn any_cidr() -> impl Strategy<Value = CidrPeer> {
    (select(NETS), vec(select(NETS), 0..3), any::<bool>()).prop_map(|(net, except, pods)| {
        let net: ipnet::IpNet = net.parse().unwrap();
        let except = except.iter().map(|e| e.parse().unwrap()).filter(|e| net.contains(e)).collect();
        CidrPeer { net, except, pods }
    })
}

fn any_peers() -> impl Strategy<Value = Peers> {
    let entity = select(
        &[
            Entity::All,
            Entity::World,
            Entity::Cluster,
            Entity::Host,
            Entity::RemoteNode,
            Entity::KubeApiserver,
            Entity::None,
        ][..],
    );
    prop_oneof![
        1 => Just(Peers::Any),
        1 => Just(Peers::Nobody),
        1 => Just(Peers::Resolvers),
        6 => any_patterns().prop_map(Peers::Names),
        5 => vec(any_cidr(), 1..3).prop_map(Peers::Cidrs),
        4 => vec(any_selector(), 1..3).prop_map(Peers::Pods),
        3 => vec(entity, 1..3).prop_map(|e| Peers::Entities(e.into_iter().collect())),
    ]
}

/// A rule within the limits of the API: names and `rules.dns` only where egress is allowed.
fn any_rule() -> impl Strategy<Value = Rule> {
    let direction = prop_oneof![4 => Just(Direction::Egress), 1 => Just(Direction::Ingress)];
    let effect = prop_oneof![3 => Just(Effect::Allow), 1 => Just(Effect::Deny)];
    (direction, effect, any_peers(), any_ports(), option::weighted(0.2, any_patterns()), 0..1000u32).prop_map(
        |(direction, effect, peers, ports, dns, n)| {
            let by_name = matches!(peers, Peers::Names(_));
            let dns = if by_name { None } else { dns };
            let plain = dns.is_none() && !by_name;
            let ports = if plain { ports } else { numbers(ports) };
            let (direction, effect) =
                if plain { (direction, effect) } else { (Direction::Egress, Effect::Allow) };
            Rule { direction, effect, peers, ports, dns, path: format!("rule{n}") }
        },
    )
}

/// A rule of a ClusterNetworkPolicy: names only where the Admin tier accepts.
fn any_tier_rule(tier: Tier) -> impl Strategy<Value = Rule> {
    let effect = select(&[Effect::Allow, Effect::Allow, Effect::Deny, Effect::Deny, Effect::Pass][..]);
    (any_rule(), effect).prop_filter_map("names are opened by Admin", move |(rule, effect)| {
        match rule.peers {
            Peers::Names(_) if tier == Tier::Admin => Some(rule),
            Peers::Names(_) => None,
            _ => Some(Rule { effect, dns: None, ..rule }),
        }
    })
}

fn any_tier_policy() -> impl Strategy<Value = Policy> {
    (select(&[Tier::Admin, Tier::Admin, Tier::Baseline][..]), 0..3u16).prop_flat_map(|(tier, priority)| {
        vec(any_tier_rule(tier), 0..5).prop_map(move |rules| {
            Policy::tiered(origin(0), Subject::This, Standing { tier, priority }, rules)
        })
    })
}

/// Policies of all tiers in any order; none has the name of another.
pub(crate) fn any_policies() -> impl Strategy<Value = Vec<Policy>> {
    let isolation = prop_oneof![3 => Just(true), 1 => Just(false)];
    let normal = (vec(any_rule(), 0..5), isolation, any::<bool>()).prop_map(|(rules, egress, ingress)| {
        Policy::new(origin(0), Subject::This, Isolation { egress, ingress }, rules)
    });
    let any = prop_oneof![1 => normal.boxed(), 1 => any_tier_policy().boxed()];
    (vec(any, 1..5), vec(0..1000u32, 5)).prop_map(|(policies, names)| {
        let named = |(i, p): (usize, Policy)| renamed(&p, origin(names[i] * 10 + i as u32));
        policies.into_iter().enumerate().map(named).collect()
    })
}

fn renamed(policy: &Policy, origin: Origin) -> Policy {
    let (subject, rules) = (policy.subject().clone(), policy.rules().to_vec());
    match policy.standing().tier {
        Tier::Normal => Policy::new(origin, subject, policy.isolates(), rules),
        _ => Policy::tiered(origin, subject, policy.standing(), rules),
    }
}

fn origin(n: u32) -> Origin {
    Origin { kind: "Test".into(), namespace: None, name: format!("p{n}") }
}

/// The same policy as one object per rule, where their order means nothing.
pub(crate) fn one_rule_each(policy: &Policy) -> Vec<Policy> {
    if policy.standing().tier != Tier::Normal {
        return vec![policy.clone()];
    }
    let alone =
        |rules| Policy::new(policy.origin().clone(), policy.subject().clone(), policy.isolates(), rules);
    let mut out: Vec<Policy> = policy.rules().iter().map(|r| alone(vec![r.clone()])).collect();
    out.push(alone(Vec::new()));
    out
}
