//! The rules by which resolvers may be asked.
//!
//! Owns: which names a workload must be able to ask for, and whom. Must not know: what it does with the answers.

use std::collections::{BTreeMap, BTreeSet};

use super::{peers::Meant, wild};
use crate::{
    names::Name,
    policy::write::{DraftName, DraftPeer, DraftRule, dns_rule, is_writable, unwritable},
};

/// Look-ups of one workload.
#[derive(Debug, Clone, Default)]
pub(super) struct Lookups {
    /// Resolvers: peer and port, with a remark.
    pub(super) resolvers: BTreeMap<(DraftPeer, u16), String>,
    /// Names, and how often each was asked for.
    pub(super) names: BTreeMap<Name, u64>,
}

impl Lookups {
    /// A question was asked there.
    pub(super) fn ask(&mut self, meant: &[Meant], name: &Name, count: u64) {
        self.reach(meant);
        let asked = self.names.entry(name.clone()).or_default();
        *asked = asked.saturating_add(count);
    }

    /// A resolver is there.
    pub(super) fn reach(&mut self, meant: &[Meant]) {
        self.resolvers.extend(meant.iter().map(|m| ((m.peer.clone(), m.port), m.remark.clone())));
    }

    /// Whether the rules of DNS open this already.
    pub(super) fn opens(&self, meant: &Meant) -> bool {
        !self.names.is_empty() && self.resolvers.contains_key(&(meant.peer.clone(), meant.port))
    }

    /// The rules. Names with a search domain appended come with the name itself, if that is asked for as well.
    pub(super) fn rules(
        &self,
        search: &[Name],
        least: Option<usize>,
        remarks: &mut Vec<String>,
    ) -> Vec<DraftRule> {
        let names = without_searches(&self.names, search);
        let (names, odd): (BTreeSet<Name>, BTreeSet<Name>) = names.into_iter().partition(is_writable);
        remarks.extend(odd.iter().map(unwritable));
        let named: Vec<(DraftName, String)> = wild::collapsed(&names, least)
            .into_iter()
            .map(|(name, members)| {
                let asked = members.iter().map(|name| self.asked(name, search)).sum();
                let many =
                    if members.len() > 1 { format!("{} names, ", members.len()) } else { String::new() };
                let text =
                    if asked == 0 { "asked earlier".to_owned() } else { format!("asked {}", times(asked)) };
                (name, many + &text)
            })
            .collect();
        if named.is_empty() { Vec::new() } else { self.of_resolvers(&named) }
    }

    /// With what was asked for it and a search domain.
    fn asked(&self, name: &Name, search: &[Name]) -> u64 {
        let searched = search.iter().filter_map(|domain| self.names.get(&name.join(domain).ok()?));
        searched.chain(self.names.get(name)).fold(0, |sum, count| sum.saturating_add(*count))
    }

    fn of_resolvers(&self, names: &[(DraftName, String)]) -> Vec<DraftRule> {
        let mut groups: BTreeMap<(usize, u16), Vec<(DraftPeer, String)>> = BTreeMap::new();
        for ((peer, port), remark) in &self.resolvers {
            groups.entry((peer.kind(), *port)).or_default().push((peer.clone(), remark.clone()));
        }
        let rule = |((_, port), peers): ((usize, u16), Vec<_>)| dns_rule(peers, port, names.to_vec());
        groups.into_iter().map(rule).collect()
    }
}

/// How often, in words.
#[must_use]
pub(super) fn times(count: u64) -> String {
    if count == 1 { "once".to_owned() } else { format!("{count} times") }
}

/// Those of which no shorter one that stays says as much (`State` lets a permitted name be asked with a search domain).
fn without_searches(names: &BTreeMap<Name, u64>, search: &[Name]) -> BTreeSet<Name> {
    let mut by_length: Vec<&Name> = names.keys().collect();
    by_length.sort_by_key(|name| (name.label_count(), *name));
    let mut kept = BTreeSet::new();
    for name in by_length {
        let bare = |domain: &Name| Name::from_dns(name.prefix_above(domain)?).ok();
        if !search.iter().filter_map(bare).any(|bare| kept.contains(&bare) && is_writable(&bare)) {
            kept.insert(name.clone());
        }
    }
    kept
}
