//! One rule set: the rules of some policies for one direction, by the class of the remote.

use std::collections::{BTreeMap, BTreeSet};

use egret_common::{
    ids::{CLASS_ANY, CLASS_NAMES_SUMMARY, ClassId, identity},
    maps::{COOKIE_DNS, RuleChunk, SET_ANY, SET_CIDR, SET_IDENTITY, SET_ISOLATED, SET_NAMES, cidr_port},
    net::proto,
};

use super::{
    CompileError, NamesAsk,
    cidrs::{CidrClasses, Peer},
    names::{ClassKey, Role},
    ports::{self, Claim},
};
use crate::{
    names::{Kind, Pattern},
    policy::{Effect, Entity, Peers, Rule},
    ports::{Ports, Proto},
};

/// A rule with the number under which flows and explain name it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Numbered<'a> {
    pub(super) cookie: u32,
    pub(super) rule: &'a Rule,
}

/// The rules of one set, ready to be asked for any class.
#[derive(Debug)]
pub(super) struct Set<'a> {
    rules: Vec<Numbered<'a>>,
    isolated: bool,
    names_ask: NamesAsk,
    by_name: BTreeMap<&'a Pattern, Vec<usize>>,
    by_dns: BTreeMap<&'a Pattern, Vec<usize>>,
    pub(super) cidrs: CidrClasses,
}

impl<'a> Set<'a> {
    pub(super) fn new(rules: Vec<Numbered<'a>>, isolated: bool, names_ask: NamesAsk) -> Self {
        let mut by_name: BTreeMap<&Pattern, Vec<usize>> = BTreeMap::new();
        let mut by_dns: BTreeMap<&Pattern, Vec<usize>> = BTreeMap::new();
        let mut peers = Vec::new();
        for (i, n) in rules.iter().enumerate() {
            match &n.rule.peers {
                Peers::Names(patterns) => patterns.iter().for_each(|p| by_name.entry(p).or_default().push(i)),
                Peers::Cidrs(cidrs) => {
                    peers.extend(cidrs.iter().flat_map(|c| Peer::of_rule(i, n.rule.effect, c)))
                }
                _ => {}
            }
            n.rule.dns.iter().flatten().for_each(|p| by_dns.entry(p).or_default().push(i));
        }
        let cidrs = CidrClasses::new(&peers);
        Self { rules, isolated, names_ask, by_name, by_dns, cidrs }
    }

    /// `SET_*` bits; 0 = the direction is open.
    pub(super) fn features(&self) -> u32 {
        let mut bits = if self.isolated { SET_ISOLATED } else { 0 };
        for n in &self.rules {
            bits |= match &n.rule.peers {
                Peers::Any => SET_ANY,
                Peers::Names(_) => SET_NAMES,
                Peers::Cidrs(_) => {
                    SET_CIDR | claims(n).iter().map(cidr_ports).fold(0, |bits, more| bits | more)
                }
                Peers::Entities(e) if e.contains(&Entity::All) => SET_ANY | SET_IDENTITY,
                Peers::Entities(_) => SET_IDENTITY,
                Peers::Nobody | Peers::Resolvers => 0,
            };
        }
        bits
    }

    /// The chunks of every class except name classes.
    pub(super) fn fixed_classes(&self) -> Result<BTreeMap<ClassId, Vec<RuleChunk>>, CompileError> {
        let mut classes: BTreeMap<ClassId, Vec<Claim>> = BTreeMap::new();
        for n in &self.rules {
            for class in fixed_classes_of(&n.rule.peers) {
                classes.entry(class).or_default().extend(claims(n));
            }
        }
        classes.entry(CLASS_ANY).or_default().extend(self.asks_for_everything());
        for (class, rules) in &self.cidrs.classes {
            classes.insert(*class, rules.iter().flat_map(|i| claims(&self.rules[*i])).collect());
        }
        classes.insert(CLASS_NAMES_SUMMARY, self.summary());
        let chunks = classes.into_iter().map(|(class, claims)| Ok((class, self.chunks(&claims)?)));
        chunks.filter(|c: &Result<(_, Vec<_>), _>| !matches!(c, Ok((_, v)) if v.is_empty())).collect()
    }

    /// The ports of all name rules. It only explains denials, so it may say too much where there are too many.
    fn summary(&self) -> Vec<Claim> {
        let named = self.rules.iter().filter(|n| matches!(n.rule.peers, Peers::Names(_)));
        let anonymous: BTreeSet<Claim> = named.flat_map(claims).map(|c| Claim { cookie: 0, ..c }).collect();
        let claims: Vec<Claim> = anonymous.into_iter().collect();
        if ports::chunks(&claims).is_ok() {
            return claims;
        }
        let mut hulls: BTreeMap<u8, Claim> = BTreeMap::new();
        for c in claims {
            let hull = hulls.entry(c.proto).or_insert(c);
            (hull.lo, hull.hi) = (hull.lo.min(c.lo), hull.hi.max(c.hi));
        }
        hulls.into_values().collect()
    }

    /// The chunks of a name class; empty if the set says nothing about it.
    pub(super) fn name_class(&self, key: &ClassKey) -> Result<Vec<RuleChunk>, CompileError> {
        let mut claims_of_class = Vec::new();
        let mut opened = BTreeSet::new();
        let mut asked = BTreeSet::new();
        for member in key {
            let named = self.by_name.get(&member.pattern).into_iter().flatten();
            if self.names_ask == NamesAsk::Yes {
                asked.extend(named.clone().map(|i| self.ask(*i)));
            }
            if member.role == Role::Opens {
                opened.extend(named.copied());
            }
            let dns = self.by_dns.get(&member.pattern).into_iter().flatten();
            asked.extend(dns.flat_map(|i| self.asks(*i)));
        }
        claims_of_class.extend(opened.iter().flat_map(|i| claims(&self.rules[*i])));
        claims_of_class.extend(asked);
        self.chunks(&claims_of_class)
    }

    fn chunks(&self, claims: &[Claim]) -> Result<Vec<RuleChunk>, CompileError> {
        ports::chunks(claims).map_err(|ports::TooMany(intervals)| CompileError::TooManyIntervals {
            rule: claims
                .first()
                .and_then(|c| self.rules.iter().find(|n| n.cookie == c.cookie & !COOKIE_DNS))
                .map_or_else(String::new, |n| n.rule.path.clone()),
            intervals,
        })
    }

    /// The right to ask through a `rules.dns` rule: at its ports, or wherever the trusted resolvers listen.
    fn asks(&self, rule: usize) -> Vec<Claim> {
        let r = self.rules[rule].rule;
        match &r.ports {
            Ports::Only(ranges) if r.peers != Peers::Resolvers => ranges
                .iter()
                .filter(|r| matches!(r.proto(), Proto::Udp | Proto::Tcp))
                .map(|r| Claim { lo: r.lo(), hi: r.hi(), ..self.ask(rule) })
                .collect(),
            _ => vec![self.ask(rule)],
        }
    }

    /// The right to ask any resolver.
    fn ask(&self, rule: usize) -> Claim {
        let cookie = self.rules[rule].cookie;
        Claim { proto: proto::DNS_QUERY, lo: 0, hi: u16::MAX, effect: Effect::Allow, cookie }
    }

    /// Every name may be asked for: a pattern of every name, or a rule that opens DNS to everybody and has no
    /// `rules.dns` to narrow it.
    fn asks_for_everything(&self) -> Vec<Claim> {
        let mut out = Vec::new();
        for (i, n) in self.rules.iter().enumerate() {
            let all = |patterns: &[Pattern]| patterns.iter().any(|p| *p.kind() == Kind::All);
            if n.rule.dns.as_deref().is_some_and(all) {
                out.extend(self.asks(i));
            }
            let named = matches!(&n.rule.peers, Peers::Names(p) if all(p)) && self.names_ask == NamesAsk::Yes;
            if named || n.rule.opens_dns_to_everybody() {
                out.push(self.ask(i));
            }
        }
        out
    }
}

/// [`cidr_port`] of every port of the interval.
fn cidr_ports(claim: &Claim) -> u32 {
    let last = claim.hi.min(claim.lo.saturating_add(15));
    (claim.lo..=last).map(cidr_port).fold(0, |bits, bit| bits | bit)
}

/// Classes that do not depend on names or addresses.
fn fixed_classes_of(peers: &Peers) -> BTreeSet<ClassId> {
    match peers {
        Peers::Any => BTreeSet::from([CLASS_ANY]),
        Peers::Entities(entities) => entities.iter().flat_map(|e| entity_classes(*e)).copied().collect(),
        Peers::Nobody | Peers::Names(_) | Peers::Cidrs(_) | Peers::Resolvers => BTreeSet::new(),
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

fn claims(n: &Numbered<'_>) -> Vec<Claim> {
    let effect = n.rule.effect;
    let cookie = n.cookie | if n.rule.dns.is_some() { COOKIE_DNS } else { 0 };
    match &n.rule.ports {
        Ports::All => vec![Claim { proto: proto::ANY, lo: 0, hi: u16::MAX, effect, cookie }],
        Ports::Only(ranges) => ranges
            .iter()
            .map(|r| Claim { proto: r.proto().number(), lo: r.lo(), hi: r.hi(), effect, cookie })
            .collect(),
    }
}
