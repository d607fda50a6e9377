//! One rule: what it claims at its peers, and the classes that its peers are.

use std::collections::BTreeSet;

use egret_common::{
    ids::{CLASS_ANY, ClassId, identity},
    maps::{COOKIE_DNS, cidr_port},
    net::{Direction, proto},
};

use super::{ports::Claim, roster::Roster};
use crate::{
    identity::NamedPorts,
    policy::{Entity, Peers, Rule, Tier},
    ports::Ports,
};

/// A rule with the number under which flows and explain name it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Numbered<'a> {
    pub(super) cookie: u32,
    pub(super) tier: Tier,
    pub(super) rule: &'a Rule,
}

/// [`cidr_port`] of every port of the intervals.
pub(super) fn cidr_ports(claims: &[Claim]) -> u32 {
    let bits_of = |claim: &Claim| {
        let last = claim.hi.min(claim.lo.saturating_add(15));
        (claim.lo..=last).map(cidr_port).fold(0, |bits, bit| bits | bit)
    };
    claims.iter().map(bits_of).fold(0, |bits, more| bits | more)
}

/// The pods whose identities have rules of their own: those that are selected, every pod of the cluster, and for a
/// rule about everybody with a named port of theirs, each for its own.
pub(super) fn pods_of(rule: &Rule, roster: &Roster<'_>) -> BTreeSet<u32> {
    let named = rule.direction == Direction::Egress && rule.ports.names().next().is_some();
    match &rule.peers {
        Peers::Pods(selectors) => roster.meant_by(selectors),
        Peers::Any if named => roster.everyone(),
        Peers::Entities(e) if e.contains(&Entity::All) && named => roster.everyone(),
        Peers::Entities(e) if e.contains(&Entity::Cluster) => roster.everyone(),
        _ => BTreeSet::new(),
    }
}

/// Classes that do not depend on names or addresses.
pub(super) fn fixed_classes_of(peers: &Peers) -> BTreeSet<ClassId> {
    match peers {
        Peers::Any => BTreeSet::from([CLASS_ANY]),
        Peers::Entities(entities) => entities.iter().flat_map(|e| entity_classes(*e)).copied().collect(),
        Peers::Nobody
        | Peers::Names(_)
        | Peers::Cidrs(_)
        | Peers::Pods(_)
        | Peers::Resolvers
        | Peers::Objects(_) => BTreeSet::new(),
    }
}

fn entity_classes(entity: Entity) -> &'static [ClassId] {
    match entity {
        Entity::All => &[CLASS_ANY],
        Entity::World => &[identity::WORLD],
        Entity::Cluster => &[identity::HOST, identity::REMOTE_NODE, identity::KUBE_APISERVER],
        Entity::Host => &[identity::HOST],
        Entity::RemoteNode => &[identity::REMOTE_NODE],
        Entity::KubeApiserver => &[identity::KUBE_APISERVER],
        Entity::None => &[],
    }
}

/// What a rule claims at a destination with these named ports.
pub(super) fn claims(n: &Numbered<'_>, names: &NamedPorts) -> Vec<Claim> {
    let cookie = n.cookie | if n.rule.dns.is_some() { COOKIE_DNS } else { 0 };
    let whole = Claim { proto: proto::ANY, lo: 0, hi: u16::MAX, tier: n.tier, effect: n.rule.effect, cookie };
    match &n.rule.ports {
        Ports::All => vec![whole],
        Ports::Only(specs) => specs
            .iter()
            .flat_map(|s| s.resolve(names))
            .map(|r| Claim { proto: r.proto().number(), lo: r.lo(), hi: r.hi(), ..whole })
            .collect(),
    }
}
