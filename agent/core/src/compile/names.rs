//! Name classes and their numbers.
//!
//! A name class is a set of patterns that match the same names. Its number never changes while it is remembered, so
//! grants survive a change of policy (CASES T-A06).

mod index;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use egret_common::ids::{
    CLASS_CLUSTER, CLASS_NAME_BASE, CLASS_QUERY_ONLY, CLASS_SEARCHED, CLASS_UNSURE, ClassId,
};

pub use index::NameIndex;

use crate::{names::Pattern, numbering::Numbering};

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

/// Numbers of name classes. A class that opens nothing carries `CLASS_QUERY_ONLY`, and `CLASS_SEARCHED` if a search
/// domain is the reason.
#[derive(Debug, Clone)]
pub struct NameBook {
    /// By place: the part of the number that tells one class from another.
    keys: Numbering<ClassKey>,
    /// Places of the classes that a pattern is a reason for.
    by_pattern: BTreeMap<Pattern, BTreeSet<u32>>,
    /// Places that were given since somebody asked.
    fresh: BTreeSet<u32>,
}

impl Default for NameBook {
    fn default() -> Self {
        // Below the least of the bits.
        let keys = Numbering::new(1, CLASS_CLUSTER - 1);
        Self { keys, by_pattern: BTreeMap::new(), fresh: BTreeSet::new() }
    }
}

impl NameBook {
    /// The number of a class, new if need be; 0 for the class without patterns. Should there be a million of them, every
    /// further one is 0 as well, which opens nothing.
    pub fn id(&mut self, key: ClassKey) -> ClassId {
        if key.iter().all(|member| member.role == Role::Cluster) {
            return 0;
        }
        if let Some(place) = self.keys.get(&key) {
            return number(place, &key);
        }
        let key = Arc::new(key);
        let Some(place) = self.keys.number(key.clone()) else { return 0 };
        self.enter(place, &key);
        number(place, &key)
    }

    /// The number of a class that has one.
    pub(crate) fn get(&self, key: &ClassKey) -> Option<ClassId> {
        self.keys.get(key).map(|place| number(place, key))
    }

    /// Gives a class the place that it had in another process. False: there is another one.
    pub fn restore(&mut self, place: u32, key: ClassKey) -> bool {
        let key = Arc::new(key);
        let restored = !key.is_empty() && self.keys.restore(place, key.clone());
        if restored {
            self.enter(place, &key);
        }
        restored
    }

    fn enter(&mut self, place: u32, key: &ClassKey) {
        self.fresh.insert(place);
        for member in key {
            self.by_pattern.entry(member.pattern.clone()).or_default().insert(place);
        }
    }

    /// How many classes there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.keys.len()
    }

    /// Whether there is no class yet.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// All classes with their places.
    pub fn iter(&self) -> impl Iterator<Item = (u32, &ClassKey)> {
        self.keys.iter().map(|(place, key)| (place, &**key))
    }

    /// The patterns behind a number.
    #[must_use]
    pub fn key(&self, id: ClassId) -> Option<&ClassKey> {
        let place = (id & !BITS).checked_sub(CLASS_NAME_BASE)?;
        let (own, key) = self.at(place)?;
        (own == id).then_some(key)
    }

    /// The class at a place.
    fn at(&self, place: u32) -> Option<(ClassId, &ClassKey)> {
        let key = self.keys.thing(place)?;
        Some((number(place, key), key))
    }

    /// The classes that one of these patterns is a reason for.
    pub(super) fn with<'a>(
        &self,
        patterns: impl Iterator<Item = &'a Pattern>,
    ) -> impl Iterator<Item = (ClassId, &ClassKey)> {
        let places: BTreeSet<u32> =
            patterns.filter_map(|p| self.by_pattern.get(p)).flatten().copied().collect();
        places.into_iter().filter_map(|place| self.at(place))
    }

    /// The classes that came up since the last call.
    pub(super) fn take_fresh(&mut self) -> Vec<(ClassId, ClassKey)> {
        let fresh = std::mem::take(&mut self.fresh);
        let class = |place| self.at(place).map(|(id, key)| (id, key.clone()));
        fresh.into_iter().filter_map(class).collect()
    }

    /// Whether more classes are remembered than is worth it, if `used` are used.
    #[must_use]
    pub fn is_crowded(&self, used: usize) -> bool {
        self.keys.is_crowded(used)
    }

    /// Forgets what is not to be kept; gives the numbers back.
    pub fn retain(&mut self, keep: impl Fn(ClassId) -> bool) -> Vec<ClassId> {
        let gone = self.keys.retain(|place, key| keep(number(place, key)));
        for (place, key) in &gone {
            self.fresh.remove(place);
            for member in &**key {
                let Some(places) = self.by_pattern.get_mut(&member.pattern) else { continue };
                places.remove(place);
                if places.is_empty() {
                    self.by_pattern.remove(&member.pattern);
                }
            }
        }
        gone.into_iter().map(|(place, key)| number(place, &key)).collect()
    }
}

const BITS: u32 = CLASS_QUERY_ONLY | CLASS_SEARCHED | CLASS_UNSURE | CLASS_CLUSTER;

fn number(place: u32, key: &ClassKey) -> ClassId {
    (CLASS_NAME_BASE + place) | bits(key)
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
