//! One rule set: the rules of some policies for one direction, by the class of the remote.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    net::IpAddr,
};

use egret_common::{
    ids::{CLASS_ANY, CLASS_NAMES_SUMMARY, ClassId},
    maps::{COOKIE_DNS, SET_ANY, SET_CIDR, SET_IDENTITY, SET_ISOLATED, SET_NAMES},
    net::{Direction, proto},
};
use ipnet::IpNet;

use super::{
    CompileError, NamesAsk,
    cidrs::{CidrClasses, OnPod, Peer, on_pod},
    claims::{Numbered, cidr_ports, claims, fixed_classes_of, means_pod, pods_of},
    names::{ClassKey, Role},
    ports::{self, Chunks, Claim},
    roster::Roster,
};
use crate::{
    identity::NamedPorts,
    labels::Selector,
    names::{Kind, Pattern},
    policy::{DNS_PORT, Effect, Entity, Peers, Tier},
    ports::{PortSpec, Ports, Proto},
};

/// What a set says about the address of a pod by CIDR: these rules, with the named ports of that identity (0 where it
/// does not matter whose they are).
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct PodInCidr {
    rules: BTreeSet<usize>,
    pub(super) identity: u32,
}

/// Which claims were made about which classes. A list of claims has a number, so that classes about which the same is
/// said are found by comparing numbers.
#[derive(Debug, Default)]
struct Said {
    lists: Vec<Vec<Claim>>,
    numbers: HashMap<Vec<Claim>, u32>,
    /// Class and list, as they came.
    about: Vec<(ClassId, u32)>,
}

impl Said {
    /// The number of a list of claims.
    fn list(&mut self, claims: Vec<Claim>) -> u32 {
        if let Some(number) = self.numbers.get(&claims) {
            return *number;
        }
        let number = self.lists.len() as u32;
        self.lists.push(claims.clone());
        self.numbers.insert(claims, number);
        number
    }

    fn add(&mut self, class: ClassId, list: u32) {
        self.about.push((class, list));
    }

    /// The chunks of each class about which something is said.
    fn classes(
        mut self,
        chunks: impl Fn(&[Claim]) -> Result<Chunks, CompileError>,
    ) -> Result<Vec<(ClassId, Chunks)>, CompileError> {
        self.about.sort_unstable();
        self.about.dedup();
        let mut made: HashMap<Vec<u32>, Chunks> = HashMap::new();
        let mut out = Vec::new();
        for of_class in self.about.chunk_by(|a, b| a.0 == b.0) {
            let lists: Vec<u32> = of_class.iter().map(|(_, list)| *list).collect();
            let found = match made.get(&lists) {
                Some(found) => found.clone(),
                None => {
                    let claims = lists.iter().flat_map(|list| &self.lists[*list as usize]);
                    let new = chunks(&claims.copied().collect::<Vec<_>>())?;
                    made.insert(lists, new.clone());
                    new
                }
            };
            if !found.is_empty() {
                out.push((of_class[0].0, found));
            }
        }
        Ok(out)
    }
}

/// The rules of one set, ready to be asked for any class.
#[derive(Debug, Clone)]
pub(super) struct Set {
    rules: Vec<Numbered>,
    isolated: bool,
    names_ask: NamesAsk,
    /// The workload's own named ports in a set for ingress; none for egress, where the destination's count.
    own_ports: NamedPorts,
    by_name: BTreeMap<Pattern, Vec<usize>>,
    by_dns: BTreeMap<Pattern, Vec<usize>>,
    cidr_peers: Vec<Peer>,
    pub(super) cidrs: CidrClasses,
}

impl Set {
    pub(super) fn new(
        rules: Vec<Numbered>,
        isolated: bool,
        names_ask: NamesAsk,
        own_ports: NamedPorts,
    ) -> Self {
        let mut by_name: BTreeMap<Pattern, Vec<usize>> = BTreeMap::new();
        let mut by_dns: BTreeMap<Pattern, Vec<usize>> = BTreeMap::new();
        let mut cidr_peers = Vec::new();
        for (i, rule) in rules.iter().map(Numbered::rule).enumerate() {
            match &rule.peers {
                Peers::Names(patterns) => {
                    patterns.iter().for_each(|p| by_name.entry(p.clone()).or_default().push(i));
                }
                Peers::Cidrs(cidrs) => {
                    cidr_peers.extend(cidrs.iter().flat_map(|c| Peer::of_rule(i, rule.effect, c)))
                }
                _ => {}
            }
            rule.dns.iter().flatten().for_each(|p| by_dns.entry(p.clone()).or_default().push(i));
        }
        let cidrs = CidrClasses::new(&cidr_peers);
        Self { rules, isolated, names_ask, own_ports, by_name, by_dns, cidr_peers, cidrs }
    }

    /// `SET_*` bits, but for the ports of [`Set::pod_class`]; 0 = the direction is open.
    pub(super) fn features(&self) -> u32 {
        let mut bits = if self.isolated { SET_ISOLATED } else { 0 };
        for n in &self.rules {
            bits |= match &n.rule().peers {
                Peers::Any => SET_ANY | self.named_bit(n),
                Peers::Names(_) => SET_NAMES,
                Peers::Cidrs(_) => SET_CIDR | cidr_ports(&self.claims(n)),
                Peers::Entities(e) if e.contains(&Entity::All) => SET_ANY | SET_IDENTITY,
                Peers::Entities(_) | Peers::Pods(_) => SET_IDENTITY,
                Peers::Nobody | Peers::Resolvers | Peers::Objects(_) => 0,
            };
        }
        bits
    }

    /// The bit of identities, for a rule about everybody whose named ports each pod resolves for itself.
    fn named_bit(&self, n: &Numbered) -> u32 {
        if n.rule().ports.names().next().is_some() { SET_IDENTITY } else { 0 }
    }

    /// The patterns that the set has rules for.
    pub(super) fn patterns(&self) -> impl Iterator<Item = &Pattern> {
        self.by_name.keys().chain(self.by_dns.keys())
    }

    /// The selectors of its rules' peers.
    pub(super) fn selectors(&self) -> impl Iterator<Item = &Selector> {
        let selectors = |n| match &Numbered::rule(n).peers {
            Peers::Pods(selectors) => selectors.as_slice(),
            _ => &[],
        };
        self.rules.iter().flat_map(selectors)
    }

    /// The chunks of every class except name classes and [`Set::pod_class`], in the order of the classes. Many identities
    /// are the same to a set, so that chunks are made once for those about which the same rules claim the same.
    pub(super) fn fixed_classes(&self, roster: &Roster) -> Result<Vec<(ClassId, Chunks)>, CompileError> {
        let mut said = Said::default();
        for n in &self.rules {
            let claims = said.list(self.claims(n));
            for class in fixed_classes_of(&n.rule().peers) {
                said.add(class, claims);
            }
            let named = n.rule().ports.names().next().is_some();
            for number in pods_of(n.rule(), roster) {
                let claims = if named { said.list(self.claims_at(n, number, roster)) } else { claims };
                said.add(number, claims);
            }
        }
        let everything = said.list(self.asks_for_everything());
        said.add(CLASS_ANY, everything);
        for (class, rules) in &self.cidrs.classes {
            let claims = said.list(rules.iter().flat_map(|i| self.claims(&self.rules[*i])).collect());
            said.add(*class, claims);
        }
        let summary = said.list(self.summary());
        said.add(CLASS_NAMES_SUMMARY, summary);
        said.classes(|claims| self.chunks(claims))
    }

    /// The chunks of one identity's class, as [`Set::fixed_classes`] has them.
    pub(super) fn identity_class(&self, number: u32, roster: &Roster) -> Result<Chunks, CompileError> {
        let mut claims = Vec::new();
        for n in &self.rules {
            if fixed_classes_of(&n.rule().peers).contains(&number) {
                claims.extend(self.claims(n));
            }
            if roster.identity(number).is_some_and(|identity| means_pod(n.rule(), identity)) {
                claims.extend(self.claims_at(n, number, roster));
            }
        }
        self.chunks(&claims)
    }

    /// Whether a pod's address needs more than the prefixes, for some pod.
    pub(super) fn tells_pods_apart(&self) -> bool {
        let named = |peer: &Peer| self.rules[peer.rule()].rule().ports.names().next().is_some();
        self.cidr_peers.iter().any(|peer| !peer.means_pods() || named(peer))
    }

    /// The networks of the CIDRs, without those inside others.
    pub(super) fn outer_nets(&self) -> Vec<IpNet> {
        IpNet::aggregate(&self.cidr_peers.iter().map(Peer::net).collect())
    }

    /// What the set says about a pod's address inside its CIDRs, if the prefixes alone would say something else.
    pub(super) fn pod_in_cidr(&self, address: IpAddr, number: u32, roster: &Roster) -> Option<PodInCidr> {
        let OnPod { rules, fewer } = on_pod(&self.cidr_peers, address);
        let names = rules.iter().any(|i| self.is_named_at(&self.rules[*i], number, roster));
        let identity = if names { number } else { 0 };
        (fewer || names).then_some(PodInCidr { rules, identity })
    }

    /// The chunks of such an address's class, and [`cidr_ports`] of what they claim.
    pub(super) fn pod_class(&self, pod: &PodInCidr, roster: &Roster) -> Result<(Chunks, u32), CompileError> {
        let rules = pod.rules.iter().map(|i| &self.rules[*i]);
        let claims: Vec<Claim> = rules.flat_map(|n| self.claims_at(n, pod.identity, roster)).collect();
        Ok((self.chunks(&claims)?, cidr_ports(&claims)))
    }

    /// Whether a rule has a named port that this identity has too.
    fn is_named_at(&self, n: &Numbered, number: u32, roster: &Roster) -> bool {
        n.rule().ports.names().next().is_some()
            && self.claims_at(n, number, roster).len() > self.claims(n).len()
    }

    /// What a rule claims where the destination's named ports are not known: at the workload's own, if it is the
    /// destination.
    fn claims(&self, n: &Numbered) -> Vec<Claim> {
        claims(n, &self.own_ports)
    }

    /// What a rule claims about a pod with this identity.
    fn claims_at(&self, n: &Numbered, number: u32, roster: &Roster) -> Vec<Claim> {
        match (n.rule().direction, roster.ports(number)) {
            (Direction::Egress, Some(ports)) => claims(n, ports),
            _ => self.claims(n),
        }
    }

    /// The ports of all name rules. It only explains denials, so it may say too much where there are too many.
    fn summary(&self) -> Vec<Claim> {
        let named = self.rules.iter().filter(|n| matches!(n.rule().peers, Peers::Names(_)));
        let anonymous: BTreeSet<Claim> = named
            .flat_map(|n| self.claims(n))
            .map(|c| Claim { tier: Tier::Normal, cookie: 0, ..c })
            .collect();
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
    pub(super) fn name_class(&self, key: &ClassKey) -> Result<Chunks, CompileError> {
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
        claims_of_class.extend(opened.iter().flat_map(|i| self.claims(&self.rules[*i])));
        claims_of_class.extend(asked);
        self.chunks(&claims_of_class)
    }

    fn chunks(&self, claims: &[Claim]) -> Result<Chunks, CompileError> {
        ports::chunks(claims).map_err(|ports::TooMany(intervals)| CompileError::TooManyIntervals {
            rule: claims
                .first()
                .and_then(|c| self.rules.iter().find(|n| n.cookie == c.cookie & !COOKIE_DNS))
                .map_or_else(String::new, |n| n.rule().path.clone()),
            intervals,
        })
    }

    /// The right to ask through a `rules.dns` rule: at its ports, or wherever the trusted resolvers listen. Always at port 53
    /// as well, where the Service of DNS pods with another port is asked (CASES R-A02).
    fn asks(&self, rule: usize) -> Vec<Claim> {
        let r = self.rules[rule].rule();
        match &r.ports {
            Ports::Only(specs) if r.peers != Peers::Resolvers => specs
                .iter()
                .filter_map(|s| match s {
                    PortSpec::Range(range) => Some(range),
                    PortSpec::Named(..) => None,
                })
                .filter(|r| matches!(r.proto(), Proto::Udp | Proto::Tcp))
                .flat_map(|r| [(r.lo(), r.hi()), (DNS_PORT, DNS_PORT)])
                .map(|(lo, hi)| Claim { lo, hi, ..self.ask(rule) })
                .collect(),
            _ => vec![self.ask(rule)],
        }
    }

    /// The right to ask any resolver.
    fn ask(&self, rule: usize) -> Claim {
        let cookie = self.rules[rule].cookie;
        let (tier, effect) = (Tier::Normal, Effect::Allow);
        Claim { proto: proto::DNS_QUERY, lo: 0, hi: u16::MAX, tier, effect, cookie }
    }

    /// Every name may be asked for: a pattern of every name, or a rule that opens DNS to everybody and has no
    /// `rules.dns` to narrow it.
    fn asks_for_everything(&self) -> Vec<Claim> {
        let mut out = Vec::new();
        for (i, n) in self.rules.iter().enumerate() {
            let all = |patterns: &[Pattern]| patterns.iter().any(|p| *p.kind() == Kind::All);
            if n.rule().dns.as_deref().is_some_and(all) {
                out.extend(self.asks(i));
            }
            let named =
                matches!(&n.rule().peers, Peers::Names(p) if all(p)) && self.names_ask == NamesAsk::Yes;
            // What the Baseline tier accepts narrows no policy that filters.
            let opens = n.tier() != Tier::Baseline && n.rule().opens_dns_to_everybody();
            if named || opens {
                out.push(self.ask(i));
            }
        }
        out
    }
}
