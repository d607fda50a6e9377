//! The numbers of sets, classes and rules, which keep their meaning while the process lives.
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
    net::Direction,
};

use super::{ClassKey, NameBook, NamesAsk, set::PodInCidr};
use crate::{
    identity::NamedPorts,
    policy::{Origin, Rule, Tier},
};

/// First class of addresses of pods inside CIDRs, above those of the CIDRs themselves.
const CLASS_POD_IN_CIDR: ClassId = CLASS_CIDR_BASE | 0x0080_0000;

/// Numbers of rules of the Admin and Baseline tiers are greater. They end below 2^30: `decide` keeps two bits beside them.
const BELOW_RANKS: u32 = 1 << 28;
/// Numbers of such rules that are kept for explanations, those in force not counted.
const OLD_RANKS: usize = 65_536;

/// Numbers that must not change while the process lives.
#[derive(Debug, Clone, Default)]
pub struct Book {
    names: NameBook,
    sets: BTreeMap<SetIdentity, SetId>,
    /// The last number that another process gave to a set.
    last_set: SetId,
    cookies: BTreeMap<(Origin, Rule), u32>,
    /// Numbers of rules of the Admin and Baseline tiers, of those in force.
    ranks: BTreeMap<TierRule, u32>,
    /// The same by number, with some that have ended.
    ranked: BTreeMap<u32, TierRule>,
    last_rank: u32,
    pods: BTreeMap<(SetId, PodInCidr), ClassId>,
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
        if let Some(rule) = self.ranked.get(&cookie) {
            return Some((&rule.1, &rule.2));
        }
        self.cookies.iter().find(|(_, c)| **c == cookie).map(|((origin, rule), _)| (origin, rule))
    }

    /// The patterns behind a name class.
    #[must_use]
    pub fn class(&self, id: ClassId) -> Option<&ClassKey> {
        self.names.key(id)
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

    /// Every name class with what it stands for.
    pub(super) fn names(&self) -> impl Iterator<Item = (&ClassKey, ClassId)> {
        self.names.iter()
    }

    pub(super) fn names_mut(&mut self) -> &mut NameBook {
        &mut self.names
    }

    /// The name class at a place.
    pub(crate) fn class_at(&self, place: usize) -> Option<(&ClassKey, ClassId)> {
        self.names.at(place)
    }

    pub(super) fn set_id(&mut self, identity: SetIdentity) -> SetId {
        let next = self.last_set + self.sets.len() as SetId + 1;
        *self.sets.entry(identity).or_insert(next)
    }

    /// Numbers the rules of the Admin and Baseline tiers, which are all those in force, in the order in which they are
    /// asked. Of equal rules the first one counts.
    pub(super) fn rank(&mut self, rules: &[(Tier, &Origin, &Rule)]) {
        let mut ranks = BTreeMap::new();
        let mut last = 0;
        for (tier, origin, rule) in rules {
            let key: TierRule = Arc::new((*tier, (*origin).clone(), (*rule).clone()));
            if ranks.contains_key(&key) {
                continue;
            }
            let known = self.ranks.get(&key).copied().filter(|number| *number > last);
            last = known.unwrap_or_else(|| self.new_rank(key.clone()));
            ranks.insert(key, last);
        }
        self.ranks = ranks;
        self.forget_ranks();
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

    pub(super) fn cookie(&mut self, tier: Tier, origin: &Origin, rule: &Rule) -> u32 {
        if tier != Tier::Normal {
            let key: TierRule = Arc::new((tier, origin.clone(), rule.clone()));
            let known = self.ranks.get(&key).copied();
            // One that was not ranked is asked last.
            return known.unwrap_or_else(|| self.new_rank(key));
        }
        let next = self.cookies.len() as u32 + 1;
        *self.cookies.entry((origin.clone(), rule.clone())).or_insert(next)
    }

    /// The class of a pod's address inside the CIDRs of a set.
    pub(super) fn pod_class(&mut self, set: SetId, pod: &PodInCidr) -> ClassId {
        let next = CLASS_POD_IN_CIDR + self.pods.len() as ClassId;
        *self.pods.entry((set, pod.clone())).or_insert(next)
    }
}

/// A rule of the Admin or Baseline tier, with its tier and object.
type TierRule = Arc<(Tier, Origin, Rule)>;

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
