//! From all name patterns to the two name tables: which class does a name belong to?
//!
//! `NAME_SUFFIX` goes by bytes, not by labels: an entry is any ending of a name. The longest ending decides, so each
//! entry speaks for all shorter ones as well.

use std::collections::{BTreeMap, BTreeSet};

use egret_common::{ids::ClassId, maps::SuffixClasses};

use super::{ClassKey, Member, NameBook, Role};
use crate::names::{Kind, Name, Pattern};

/// What one ending of a name is a reason for.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct End {
    /// For names with exactly one label more than whole ones in the ending.
    one: ClassKey,
    /// For names with more.
    more: ClassKey,
}

/// All patterns in force, sorted by how a name finds them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct NameIndex {
    exact: BTreeMap<Name, ClassKey>,
    /// By reversed text; the empty one ends every name.
    ends: BTreeMap<String, End>,
    slow: Vec<(Pattern, Member)>,
}

impl NameIndex {
    /// Sorts patterns in, each also with every search domain appended. True: some rule opens the pattern's names. Names
    /// under the cluster's own domain are classes of their own.
    pub fn new<'a>(
        patterns: impl IntoIterator<Item = (&'a Pattern, bool)>,
        search: &[Name],
        cluster_domain: Option<&Name>,
    ) -> Self {
        let mut index = Self::default();
        for (pattern, opens) in patterns {
            let role = if opens { Role::Opens } else { Role::Asks };
            index.add(pattern, Member { pattern: pattern.clone(), role });
            for expanded in search.iter().filter_map(|domain| pattern.below(domain)) {
                index.add(&expanded, Member { pattern: pattern.clone(), role: Role::Searched });
            }
        }
        let below = |domain: &Name| Pattern::domain_name(&format!("*.{domain}")).ok();
        if let Some(pattern) = cluster_domain.and_then(below)
            && index != Self::default()
        {
            index.add(&pattern, Member { pattern: pattern.clone(), role: Role::Cluster });
        }
        index
    }

    fn add(&mut self, pattern: &Pattern, member: Member) {
        let (end, one, more, member) = match pattern.kind() {
            Kind::Exact(name) => {
                self.exact.entry(name.clone()).or_default().insert(member);
                return;
            }
            Kind::OneLabelSuffix(name) => (name.reversed(), true, false, member),
            Kind::DeepSuffix(name) => (name.reversed(), true, true, member),
            Kind::All => (String::new(), true, true, member),
            Kind::Slow(slow) => {
                let tail = Member { role: Role::Tail, ..member.clone() };
                self.slow.push((pattern.clone(), member));
                (slow.tail().chars().rev().collect(), slow.ends_in_one(), !slow.ends_in_one(), tail)
            }
        };
        let end = self.ends.entry(end).or_default();
        if one {
            end.one.insert(member.clone());
        }
        if more {
            end.more.insert(member);
        }
    }

    /// Whether some pattern needs the matcher, so that the kernel's tables are not complete.
    #[must_use]
    pub fn has_slow(&self) -> bool {
        !self.slow.is_empty()
    }

    /// Every reason for which `name` belongs to a class.
    #[must_use]
    pub fn classify(&self, name: &Name) -> ClassKey {
        let mut key = self.by_end(name);
        key.retain(|member| member.role != Role::Tail);
        key.extend(self.exact.get(name).into_iter().flatten().cloned());
        key.extend(self.slow.iter().filter(|(p, _)| p.matches(name)).map(|(_, m)| m.clone()));
        key
    }

    /// Whether the tables alone give another class, until the name has an entry of its own.
    #[must_use]
    pub fn is_slow(&self, name: &Name) -> bool {
        !self.exact.contains_key(name) && self.by_end(name).iter().any(|member| member.role == Role::Tail)
    }

    /// Whether some pattern that needs the matcher matches.
    #[must_use]
    pub fn matches_slow(&self, name: &Name) -> bool {
        self.slow.iter().any(|(p, _)| p.matches(name))
    }

    /// What the endings of a name are reasons for.
    fn by_end(&self, name: &Name) -> ClassKey {
        self.union(&name.reversed(), name.label_count())
    }

    /// The reasons of all endings of `reversed`, for a name with so many labels.
    fn union(&self, reversed: &str, labels: usize) -> ClassKey {
        let mut key = ClassKey::new();
        let mut whole = 0;
        // Names are ASCII: each byte is a character.
        for at in 0..=reversed.len() {
            if at > 0 && reversed.as_bytes()[at - 1] == b'.' {
                whole += 1;
            }
            let Some(end) = self.ends.get(&reversed[..at]) else { continue };
            match labels {
                n if n == whole + 1 => key.extend(end.one.iter().cloned()),
                n if n > whole + 1 => key.extend(end.more.iter().cloned()),
                _ => {}
            }
        }
        key
    }

    /// Entries of `NAME_EXACT`: the names that patterns spell out, and those `seen` of which the endings say too little.
    /// Class 0: no pattern's.
    pub fn exact_entries(&self, seen: &BTreeSet<Name>, book: &mut NameBook) -> BTreeMap<Name, ClassId> {
        let names: BTreeSet<&Name> = self.exact.keys().chain(seen).collect();
        let entries = names.into_iter().map(|name| (name.clone(), book.id(self.classify(name))));
        entries.filter(|(name, class)| *class != 0 || self.is_slow(name)).collect()
    }

    /// Entries of `NAME_SUFFIX`, by reversed text; the entry of every name has the empty text.
    pub fn suffix_entries(&self, book: &mut NameBook) -> BTreeMap<String, SuffixClasses> {
        let entry = |end: &String| {
            let labels = end.bytes().filter(|b| *b == b'.').count();
            let (one, more) = (self.union(end, labels + 1), self.union(end, labels + 2));
            (end.clone(), SuffixClasses { labels: labels as u32, one: book.id(one), more: book.id(more) })
        };
        self.ends.keys().map(entry).collect()
    }

    /// Gives every slow pattern's own class a number, so that its rules are in the maps before a name needs them.
    pub fn reserve_slow(&self, book: &mut NameBook) {
        for key in self.slow_keys() {
            book.id(key);
        }
    }

    /// The own class of every slow pattern.
    pub fn slow_keys(&self) -> impl Iterator<Item = ClassKey> {
        self.slow.iter().map(|(_, member)| {
            let everywhere = self.ends.get("").into_iter().flat_map(|end| end.more.iter().cloned());
            let mut key: ClassKey = everywhere.filter(|m| m.role != Role::Tail).collect();
            key.insert(member.clone());
            key
        })
    }
}
