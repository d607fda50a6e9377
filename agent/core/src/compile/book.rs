//! The numbers of sets, classes and rules. They keep their meaning while they are remembered, and what is in use is.
//!
//! The number of a rule of the Admin or Baseline tier is its rank as well: the lesser one is asked first, in whatever
//! sets the two stand. A rule that comes in between takes new numbers for itself and for all that come after it, and so
//! do their sets.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use egret_common::{
    ids::{CLASS_CIDR_BASE, ClassId, SetId},
    maps::COOKIE_DNS,
    net::Direction,
};

use super::{ClassKey, NameBook, NamesAsk, set::PodInCidr};
use crate::{
    identity::NamedPorts,
    numbering::Numbering,
    policy::{Origin, Policy, Rule, Tier, in_order},
};

/// First class of addresses of pods inside CIDRs, above those of the CIDRs themselves.
const CLASS_POD_IN_CIDR: ClassId = CLASS_CIDR_BASE | 0x0080_0000;
/// The last one.
const LAST_POD_IN_CIDR: ClassId = CLASS_CIDR_BASE | 0x00ff_ffff;

/// Numbers of rules of the Admin and Baseline tiers are greater. They end below 2^30: `decide` keeps two bits beside them.
const BELOW_RANKS: u32 = 1 << 28;
/// Numbers of such rules that are kept for explanations, those in force not counted.
const OLD_RANKS: usize = 65_536;

/// A rule of an object.
type Source = (Origin, Rule);

/// A rule of the Admin or Baseline tier, with its tier and object.
type TierRule = Arc<(Tier, Origin, Rule)>;

/// Numbers, and what they stand for.
#[derive(Debug, Clone)]
pub struct Book {
    names: NameBook,
    sets: Numbering<SetIdentity>,
    cookies: Numbering<Source>,
    /// Cookies of the rules of a policy of the Normal tier, by where the policy is.
    policies: BTreeMap<usize, (Arc<Policy>, Vec<u32>)>,
    /// Numbers of rules of the Admin and Baseline tiers, of those in force.
    ranks: BTreeMap<TierRule, u32>,
    /// The same by number, with some that have ended.
    ranked: BTreeMap<u32, TierRule>,
    last_rank: u32,
    /// Classes of each set.
    pods: BTreeMap<SetId, Numbering<PodInCidr>>,
}

impl Default for Book {
    fn default() -> Self {
        Self::above(0)
    }
}

impl Book {
    /// A book whose sets begin above `last_set`.
    #[must_use]
    pub fn above(last_set: SetId) -> Self {
        Self {
            names: NameBook::default(),
            sets: Numbering::new(last_set.saturating_add(1), SetId::MAX),
            cookies: Numbering::new(1, BELOW_RANKS),
            policies: BTreeMap::new(),
            ranks: BTreeMap::new(),
            ranked: BTreeMap::new(),
            last_rank: 0,
            pods: BTreeMap::new(),
        }
    }

    /// The rule behind a cookie in a flow or a destination, `COOKIE_*` bits or not.
    #[must_use]
    pub fn rule(&self, cookie: u32) -> Option<(&Origin, &Rule)> {
        let cookie = cookie & !COOKIE_DNS;
        if let Some(rule) = self.ranked.get(&cookie) {
            return Some((&rule.1, &rule.2));
        }
        let source = self.cookies.thing(cookie)?;
        Some((&source.0, &source.1))
    }

    /// The patterns behind a name class.
    #[must_use]
    pub fn class(&self, id: ClassId) -> Option<&ClassKey> {
        self.names.key(id)
    }

    /// The number of a class, new if need be.
    pub fn class_id(&mut self, key: ClassKey) -> ClassId {
        self.names.id(key)
    }

    /// The name classes.
    #[must_use]
    pub fn names(&self) -> &NameBook {
        &self.names
    }

    /// The name classes, to add and to forget some.
    pub fn names_mut(&mut self) -> &mut NameBook {
        &mut self.names
    }

    /// How many sets, rules and policies are remembered, and how many classes of pods' addresses.
    #[must_use]
    pub fn sizes(&self) -> [usize; 4] {
        let pods = self.pods.values().map(Numbering::len).sum();
        [self.sets.len(), self.cookies.len(), self.policies.len(), pods]
    }

    /// The number of a set. There are more numbers than endpoints can use.
    pub(super) fn set_id(&mut self, identity: SetIdentity) -> SetId {
        self.sets.number(identity).unwrap_or(SetId::MAX)
    }

    /// Numbers the rules of the Admin and Baseline tiers among these policies, which are all those in force, in the order in
    /// which they are asked. Of equal rules the first one counts. True: some number is another one now.
    pub(super) fn rank<'a>(&mut self, policies: impl Iterator<Item = &'a Policy>) -> bool {
        let mut ranks = BTreeMap::new();
        let mut last = 0;
        for (tier, origin, rule) in in_order(policies) {
            let key: TierRule = Arc::new((tier, origin.clone(), rule.clone()));
            if ranks.contains_key(&key) {
                continue;
            }
            let known = self.ranks.get(&key).copied().filter(|number| *number > last);
            last = known.unwrap_or_else(|| self.new_rank(key.clone()));
            ranks.insert(key, last);
        }
        let changed = ranks != self.ranks;
        self.ranks = ranks;
        self.forget_ranks();
        changed
    }

    fn new_rank(&mut self, rule: TierRule) -> u32 {
        self.last_rank = self.last_rank.max(BELOW_RANKS) + 1;
        self.ranked.insert(self.last_rank, rule);
        self.last_rank
    }

    /// Nothing may grow without a bound.
    fn forget_ranks(&mut self) {
        let excess = self.ranked.len().saturating_sub(self.ranks.len() + OLD_RANKS);
        let ended = |(number, rule): (&u32, &TierRule)| self.ranks.get(rule) != Some(number);
        let oldest: Vec<u32> = self.ranked.iter().filter(|e| ended(*e)).map(|e| *e.0).take(excess).collect();
        for number in oldest {
            self.ranked.remove(&number);
        }
    }

    /// The cookies of the policy's rules, in their order.
    pub(super) fn cookies(&mut self, policy: &Arc<Policy>) -> Vec<u32> {
        let tier = policy.standing().tier;
        if tier != Tier::Normal {
            return policy.rules().iter().map(|rule| self.rank_of(tier, policy.origin(), rule)).collect();
        }
        let cookies = &mut self.cookies;
        let (_, found) = self.policies.entry(Arc::as_ptr(policy).addr()).or_insert_with(|| {
            let number = |rule: &Rule| cookies.number((policy.origin().clone(), rule.clone())).unwrap_or(0);
            (policy.clone(), policy.rules().iter().map(number).collect())
        });
        found.clone()
    }

    fn rank_of(&mut self, tier: Tier, origin: &Origin, rule: &Rule) -> u32 {
        let key: TierRule = Arc::new((tier, origin.clone(), rule.clone()));
        let known = self.ranks.get(&key).copied();
        // One that was not ranked is asked last.
        known.unwrap_or_else(|| self.new_rank(key))
    }

    /// The class of a pod's address inside the CIDRs of a set. `None`: there are eight million.
    pub(super) fn pod_class(&mut self, set: SetId, pod: &PodInCidr) -> Option<ClassId> {
        let of_set = || Numbering::new(CLASS_POD_IN_CIDR, LAST_POD_IN_CIDR);
        let pods = self.pods.entry(set).or_insert_with(of_set);
        pods.get(pod).or_else(|| pods.number(pod.clone()))
    }

    /// Forgets classes of pods' addresses that the set does not use, once they are many.
    pub(super) fn forget_pods(&mut self, set: SetId, used: usize, uses: impl Fn(ClassId) -> bool) {
        if let Some(pods) = self.pods.get_mut(&set).filter(|pods| pods.is_crowded(used)) {
            pods.retain(|class, _| uses(class));
        }
    }

    /// Forgets sets and rules that are not used, once they are many. `policies`: those in use, by where they are.
    pub(super) fn forget(&mut self, uses: impl Fn(SetId) -> bool, used: usize, policies: &BTreeSet<usize>) {
        if self.sets.is_crowded(used) {
            let gone = self.sets.retain(|set, _| uses(set));
            gone.iter().for_each(|(set, _)| drop(self.pods.remove(set)));
        }
        // A policy that is not in use any more may lie in memory for this entry alone.
        self.policies.retain(|place, _| policies.contains(place));
        let used: BTreeSet<u32> = self.policies.values().flat_map(|(_, cookies)| cookies).copied().collect();
        if self.cookies.is_crowded(used.len()) {
            self.cookies.retain(|cookie, _| used.contains(&cookie));
        }
    }
}

/// What makes two sets the same.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct SetIdentity {
    pub(super) direction: Direction,
    pub(super) isolated: bool,
    pub(super) names_ask: NamesAsk,
    /// Cookies of its rules; each stands for one rule of one object.
    pub(super) rules: BTreeSet<u32>,
    /// What the named ports of its rules are, where the workload's own ports are meant.
    pub(super) ports: NamedPorts,
}
