//! Name classes and their numbers.
//!
//! A name class is a set of patterns that match the same names. Its number never changes while the process lives,
//! so grants survive a change of policy (CASES T-A06).

mod index;

use std::collections::{BTreeMap, BTreeSet};

use egret_common::ids::{
    CLASS_CLUSTER, CLASS_NAME_BASE, CLASS_QUERY_ONLY, CLASS_SEARCHED, CLASS_UNSURE, ClassId,
};

pub use index::NameIndex;

use crate::names::Pattern;

/// One reason for which a name belongs to a class.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Member {
    /// A pattern of some policy.
    pub pattern: Pattern,
    /// What the pattern does for the name.
    pub role: Role,
}

/// What a pattern does for a name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Role {
    /// Some rule opens the addresses of the pattern's names.
    Opens,
    /// The pattern stands in `rules.dns` only: its names may be asked for, they open nothing.
    Asks,
    /// The name is not of the pattern itself, but with one of the client's search domains appended: it may be asked
    /// for, it opens nothing (CASES W-A12).
    Searched,
    /// The name ends like the pattern, which the kernel's tables cannot express. It may be asked for, since it may be
    /// one of the pattern's; only the agent can tell. Never part of what [`NameIndex::classify`] says.
    Tail,
    /// Not the pattern, but the name: it lies under the cluster's own domain. Never alone in a class.
    Cluster,
}

/// The identity of a name class.
pub type ClassKey = BTreeSet<Member>;

/// Numbers of name classes; append-only. A class that opens nothing carries `CLASS_QUERY_ONLY`, and
/// `CLASS_SEARCHED` if a search domain is the reason.
#[derive(Debug, Clone, Default)]
pub struct NameBook {
    ids: BTreeMap<ClassKey, ClassId>,
    keys: Vec<ClassKey>,
}

impl NameBook {
    /// The number of a class, new if need be; 0 for the class without patterns.
    pub fn id(&mut self, key: ClassKey) -> ClassId {
        if key.iter().all(|member| member.role == Role::Cluster) {
            return 0;
        }
        if let Some(id) = self.ids.get(&key) {
            return *id;
        }
        self.keys.push(key.clone());
        let id = CLASS_NAME_BASE + self.keys.len() as ClassId;
        let id = id | bits(&key);
        self.ids.insert(key, id);
        id
    }

    /// How many classes there are. Each keeps its place in the order in which they came up.
    #[must_use]
    pub fn len(&self) -> usize {
        self.keys.len()
    }

    /// Whether there is no class yet.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.keys.is_empty()
    }

    /// All classes with their numbers.
    pub fn iter(&self) -> impl Iterator<Item = (&ClassKey, ClassId)> {
        self.ids.iter().map(|(key, id)| (key, *id))
    }

    /// The class at a place, from 0.
    #[must_use]
    pub fn at(&self, place: usize) -> Option<(&ClassKey, ClassId)> {
        let key = self.keys.get(place)?;
        Some((key, *self.ids.get(key)?))
    }

    /// The patterns behind a number.
    #[must_use]
    pub fn key(&self, id: ClassId) -> Option<&ClassKey> {
        let bits = CLASS_QUERY_ONLY | CLASS_SEARCHED | CLASS_UNSURE | CLASS_CLUSTER;
        let place = (id & !bits).checked_sub(CLASS_NAME_BASE + 1)?;
        let (key, own) = self.at(place as usize)?;
        (own == id).then_some(key)
    }
}

/// What a class's number tells the kernel beside its place.
fn bits(key: &ClassKey) -> ClassId {
    let has = |role: Role| key.iter().any(|member| member.role == role);
    let closed = match (has(Role::Opens), has(Role::Searched)) {
        (true, _) => 0,
        (false, true) => CLASS_QUERY_ONLY | CLASS_SEARCHED,
        (false, false) => CLASS_QUERY_ONLY,
    };
    let unsure = if has(Role::Tail) { CLASS_UNSURE } else { 0 };
    closed | unsure | if has(Role::Cluster) { CLASS_CLUSTER } else { 0 }
}
