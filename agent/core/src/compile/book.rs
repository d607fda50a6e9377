//! The numbers of sets, classes and rules, which keep their meaning while the process lives.

use std::collections::{BTreeMap, BTreeSet};

use egret_common::{
    ids::{CLASS_CIDR_BASE, ClassId, SetId},
    net::Direction,
};

use super::{ClassKey, NameBook, NamesAsk, set::PodInCidr};
use crate::{
    identity::NamedPorts,
    policy::{Origin, Rule},
};

/// First class of addresses of pods inside CIDRs, above those of the CIDRs themselves.
const CLASS_POD_IN_CIDR: ClassId = CLASS_CIDR_BASE | 0x0080_0000;

/// Numbers that must not change while the process lives.
#[derive(Debug, Clone, Default)]
pub struct Book {
    names: NameBook,
    sets: BTreeMap<SetIdentity, SetId>,
    /// The last number that another process gave to a set.
    last_set: SetId,
    cookies: BTreeMap<(Origin, Rule), u32>,
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

    pub(super) fn cookie(&mut self, origin: &Origin, rule: &Rule) -> u32 {
        let next = self.cookies.len() as u32 + 1;
        *self.cookies.entry((origin.clone(), rule.clone())).or_insert(next)
    }

    /// The class of a pod's address inside the CIDRs of a set.
    pub(super) fn pod_class(&mut self, set: SetId, pod: &PodInCidr) -> ClassId {
        let next = CLASS_POD_IN_CIDR + self.pods.len() as ClassId;
        *self.pods.entry((set, pod.clone())).or_insert(next)
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
