//! From all name patterns to the two name tables: which class does a name belong to?
//!
//! A name class is a set of patterns that match the same names. Its number never changes while the process lives,
//! so grants survive a change of policy (CASES T-A06).

use std::collections::{BTreeMap, BTreeSet};

use egret_common::{
    ids::{CLASS_NAME_BASE, CLASS_QUERY_ONLY, CLASS_SEARCHED, ClassId},
    maps::SuffixClasses,
};

use crate::names::{Kind, Name, Pattern};

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
        if key.is_empty() {
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
        let place = (id & !(CLASS_QUERY_ONLY | CLASS_SEARCHED)).checked_sub(CLASS_NAME_BASE + 1)?;
        let (key, own) = self.at(place as usize)?;
        (own == id).then_some(key)
    }
}

/// What a class's number tells the kernel beside its place.
fn bits(key: &ClassKey) -> ClassId {
    let has = |role: Role| key.iter().any(|member| member.role == role);
    match (has(Role::Opens), has(Role::Searched)) {
        (true, _) => 0,
        (false, true) => CLASS_QUERY_ONLY | CLASS_SEARCHED,
        (false, false) => CLASS_QUERY_ONLY,
    }
}

/// All patterns in force, sorted by how a name finds them.
#[derive(Debug, Clone, Default)]
pub struct NameIndex {
    exact: BTreeMap<Name, ClassKey>,
    one: BTreeMap<Name, ClassKey>,
    deep: BTreeMap<Name, ClassKey>,
    all: ClassKey,
    slow: Vec<(Pattern, Member)>,
}

impl NameIndex {
    /// Sorts patterns in, each also with every search domain appended. True: some rule opens the pattern's names.
    pub fn new<'a>(patterns: impl IntoIterator<Item = (&'a Pattern, bool)>, search: &[Name]) -> Self {
        let mut index = Self::default();
        for (pattern, opens) in patterns {
            let role = if opens { Role::Opens } else { Role::Asks };
            index.add(pattern, Member { pattern: pattern.clone(), role });
            for expanded in search.iter().filter_map(|domain| pattern.below(domain)) {
                index.add(&expanded, Member { pattern: pattern.clone(), role: Role::Searched });
            }
        }
        index
    }

    fn add(&mut self, pattern: &Pattern, member: Member) {
        let set = match pattern.kind() {
            Kind::Exact(name) => self.exact.entry(name.clone()).or_default(),
            Kind::OneLabelSuffix(name) => self.one.entry(name.clone()).or_default(),
            Kind::DeepSuffix(name) => self.deep.entry(name.clone()).or_default(),
            Kind::All => &mut self.all,
            Kind::Slow(_) => {
                self.slow.push((pattern.clone(), member));
                return;
            }
        };
        set.insert(member);
    }

    /// Whether some pattern needs the matcher, so that the kernel's tables are not complete.
    #[must_use]
    pub fn has_slow(&self) -> bool {
        !self.slow.is_empty()
    }

    /// Every reason for which `name` belongs to a class.
    #[must_use]
    pub fn classify(&self, name: &Name) -> ClassKey {
        let mut key = self.by_suffix(name);
        key.extend(self.exact.get(name).into_iter().flatten().cloned());
        key.extend(self.slow.iter().filter(|(p, _)| p.matches(name)).map(|(_, m)| m.clone()));
        key
    }

    /// Whether a slow pattern matches, so that the tables alone would give another class.
    #[must_use]
    pub fn is_slow(&self, name: &Name) -> bool {
        !self.exact.contains_key(name) && self.slow.iter().any(|(p, _)| p.matches(name))
    }

    fn by_suffix(&self, name: &Name) -> ClassKey {
        match parent(name) {
            Some(parent) => {
                let mut key = self.below(&parent);
                key.extend(self.one.get(&parent).into_iter().flatten().cloned());
                key
            }
            None => self.all.clone(),
        }
    }

    /// What every name two or more labels below `suffix` belongs to.
    fn below(&self, suffix: &Name) -> ClassKey {
        let mut key = self.all.clone();
        let mut at = Some(suffix.clone());
        while let Some(name) = at {
            key.extend(self.deep.get(&name).into_iter().flatten().cloned());
            at = parent(&name);
        }
        key
    }

    /// Entries of `NAME_EXACT`: the names that patterns spell out, the suffixes themselves, and `extra`. The
    /// suffixes are there so that no look-up of theirs can end in their own suffix entry.
    pub fn exact_entries(&self, extra: &BTreeSet<Name>, book: &mut NameBook) -> BTreeMap<Name, ClassId> {
        let names: BTreeSet<&Name> =
            self.exact.keys().chain(self.one.keys()).chain(self.deep.keys()).chain(extra).collect();
        let entries = names.into_iter().map(|name| (name.clone(), book.id(self.classify(name))));
        entries.filter(|(_, class)| *class != 0).collect()
    }

    /// Entries of `NAME_SUFFIX`, by reversed text; the entry of every name has the empty text.
    pub fn suffix_entries(&self, book: &mut NameBook) -> BTreeMap<String, SuffixClasses> {
        let mut entries = BTreeMap::new();
        let suffixes: BTreeSet<&Name> = self.one.keys().chain(self.deep.keys()).collect();
        for suffix in suffixes {
            let more = self.below(suffix);
            let mut one = more.clone();
            one.extend(self.one.get(suffix).into_iter().flatten().cloned());
            let labels = suffix.label_count() as u32;
            let value = SuffixClasses { labels, one: book.id(one), more: book.id(more) };
            entries.insert(suffix.reversed(), value);
        }
        if !self.all.is_empty() {
            let class = book.id(self.all.clone());
            entries.insert(String::new(), SuffixClasses { labels: 0, one: class, more: class });
        }
        entries
    }

    /// Gives every slow pattern's own class a number, so that its rules are in the maps before a name needs them.
    pub fn reserve_slow(&self, book: &mut NameBook) {
        for (_, member) in &self.slow {
            let mut key = self.all.clone();
            key.insert(member.clone());
            book.id(key);
        }
    }
}

fn parent(name: &Name) -> Option<Name> {
    let (_, rest) = name.as_str().split_once('.')?;
    Name::from_dns(rest).ok()
}
