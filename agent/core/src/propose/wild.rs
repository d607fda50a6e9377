//! Many names of one zone as one pattern, for who asks for that.

use std::collections::{BTreeMap, BTreeSet};

use crate::{names::Name, policy::write::DraftName};

/// Labels that the part behind the star has at least: below one label anybody can have a name.
const MIN_LABELS: usize = 2;

/// The patterns that stand for the names: `*.x` for `least` names or more that are one label below `x`. Each with the names
/// that it stands for.
#[must_use]
pub(super) fn collapsed(names: &BTreeSet<Name>, least: Option<usize>) -> BTreeMap<DraftName, Vec<Name>> {
    let mut below: BTreeMap<Option<Name>, Vec<Name>> = BTreeMap::new();
    for name in names {
        below.entry(parent(name).filter(|_| least.is_some())).or_default().push(name.clone());
    }
    let mut out = BTreeMap::new();
    for (parent, members) in below {
        match parent {
            Some(parent) if least.is_some_and(|least| members.len() >= least) => {
                out.insert(DraftName::Below(parent), members);
            }
            _ => out.extend(members.into_iter().map(|name| (DraftName::Exact(name.clone()), vec![name]))),
        }
    }
    out
}

fn parent(name: &Name) -> Option<Name> {
    let (_, rest) = name.as_str().split_once('.')?;
    Name::parse(rest).ok().filter(|parent| parent.label_count() >= MIN_LABELS)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(least: Option<usize>, names: &[&str], want: &[(&str, usize)]) {
        let names = names.iter().map(|name| Name::parse(name).unwrap()).collect();
        let got = collapsed(&names, least);
        let shown: Vec<(String, usize)> = got
            .iter()
            .map(|(name, members)| match name {
                DraftName::Exact(name) => (name.to_string(), members.len()),
                DraftName::Below(name) => (format!("*.{name}"), members.len()),
            })
            .collect();
        let want: Vec<(String, usize)> = want.iter().map(|(name, n)| ((*name).to_owned(), *n)).collect();
        assert_eq!(shown, want);
    }

    #[test]
    fn only_siblings_that_are_enough_become_a_pattern() {
        let names =
            ["a.x.example", "b.x.example", "c.x.example", "a.y.example", "x.example", "q.a.x.example"];
        let five = [("a.y.example", 1), ("q.a.x.example", 1), ("x.example", 1)];
        let plain: Vec<(&str, usize)> =
            [("a.x.example", 1), ("a.y.example", 1), ("b.x.example", 1), ("c.x.example", 1)]
                .into_iter()
                .chain(five[1..].iter().copied())
                .collect();
        check(None, &names, &plain);
        check(Some(4), &names, &plain);
        let collapsed: Vec<(&str, usize)> = five.into_iter().chain([("*.x.example", 3)]).collect();
        check(Some(3), &names, &collapsed);
    }

    #[test]
    fn a_zone_of_one_label_is_never_opened() {
        check(
            Some(2),
            &["a.example", "b.example", "c.example", "com", "org"],
            &[("a.example", 1), ("b.example", 1), ("c.example", 1), ("com", 1), ("org", 1)],
        );
    }
}
