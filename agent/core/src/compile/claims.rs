//! One rule: what it claims at its peers, and the classes that its peers are.

use std::{collections::BTreeSet, sync::Arc};

use egret_common::{
    ids::{CLASS_ANY, ClassId, identity},
    maps::{COOKIE_DNS, cidr_port},
    net::{Direction, proto},
};

use super::{ports::Claim, roster::Roster};
use crate::{
    identity::{Identity, NamedPorts},
    policy::{Entity, Peers, Policy, Rule, Tier},
    ports::Ports,
};

/// A rule with the number under which flows and explain name it.
#[derive(Debug, Clone)]
pub(super) struct Numbered {
    pub(super) cookie: u32,
    policy: Arc<Policy>,
    at: usize,
}

impl Numbered {
    /// The rules of a policy for one direction; `cookies`: of all its rules, in their order.
    pub(super) fn of(
        policy: &Arc<Policy>,
        cookies: &[u32],
        direction: Direction,
    ) -> impl Iterator<Item = Self> {
        let rules = policy.rules().iter().zip(cookies).enumerate();
        let meant = rules.filter(move |(_, (rule, _))| rule.direction == direction);
        meant.map(|(at, (_, cookie))| Self { cookie: *cookie, policy: policy.clone(), at })
    }

    pub(super) fn rule(&self) -> &Rule {
        &self.policy.rules()[self.at]
    }

    pub(super) fn tier(&self) -> Tier {
        self.policy.standing().tier
    }
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
pub(super) fn pods_of(rule: &Rule, roster: &Roster) -> BTreeSet<u32> {
    match &rule.peers {
        Peers::Pods(selectors) => roster.meant_by(selectors),
        _ if means_everyone(rule) => roster.everyone(),
        _ => BTreeSet::new(),
    }
}

/// Whether the pods with this identity are among [`pods_of`] the rule.
pub(super) fn means_pod(rule: &Rule, identity: &Identity) -> bool {
    match &rule.peers {
        Peers::Pods(selectors) => selectors.iter().any(|selector| selector.matches(&identity.labels)),
        _ => means_everyone(rule),
    }
}

fn means_everyone(rule: &Rule) -> bool {
    let named = || rule.direction == Direction::Egress && rule.ports.names().next().is_some();
    match &rule.peers {
        Peers::Any => named(),
        Peers::Entities(e) => e.contains(&Entity::Cluster) || e.contains(&Entity::All) && named(),
        _ => false,
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
pub(super) fn claims(n: &Numbered, names: &NamedPorts) -> Vec<Claim> {
    let rule = n.rule();
    let cookie = n.cookie | if rule.dns.is_some() { COOKIE_DNS } else { 0 };
    let whole = Claim { proto: proto::ANY, lo: 0, hi: u16::MAX, tier: n.tier(), effect: rule.effect, cookie };
    match &rule.ports {
        Ports::All => vec![whole],
        Ports::Only(specs) => specs
            .iter()
            .flat_map(|s| s.resolve(names))
            .map(|r| Claim { proto: r.proto().number(), lo: r.lo(), hi: r.hi(), ..whole })
            .collect(),
    }
}
