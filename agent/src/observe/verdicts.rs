//! How often each policy decided.
//!
//! Owns: which policies have counts of their own. Bounded, whatever names policies have. Must not know: which policies are
//! in force.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use egret_common::net::Direction;
use egret_common::verdict::Verdict;
use egret_core::flow::{Flow, Kind, PolicyRef};

/// Policies that are told apart; the others share one count.
const MOST: usize = 1_000;

/// Verdicts: by direction (egress, ingress) and by action (forwarded, dropped, audited).
pub type Counts = [[u64; 3]; 2];

/// Counts of first packets by the policies that decided.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Verdicts {
    /// By `Kind/namespace/name`.
    policies: BTreeMap<String, Counts>,
    other: Counts,
    /// Of the policy that is looked up, so that nothing is allocated for each flow.
    name: String,
}

impl Verdicts {
    /// The policies and their counts, in order.
    pub fn policies(&self) -> impl Iterator<Item = (&str, &Counts)> {
        self.policies.iter().map(|(name, counts)| (name.as_str(), counts))
    }

    /// Of the policies beyond those that are told apart.
    #[must_use]
    pub fn other(&self) -> &Counts {
        &self.other
    }

    /// Counts a verdict for every policy that it names.
    pub(super) fn count(&mut self, flow: &Flow) {
        if flow.kind != Kind::Verdict {
            return;
        }
        let (list, action) = match flow.verdict {
            Verdict::Forwarded => (&flow.allowed_by, 0),
            Verdict::Dropped => (&flow.denied_by, 1),
            Verdict::Audited => (&flow.denied_by, 2),
        };
        let direction = usize::from(flow.direction == Direction::Ingress);
        for (n, policy) in list.iter().enumerate() {
            // An object may hold several specifications.
            if !list[..n].contains(policy) {
                self.of(policy)[direction][action] += 1;
            }
        }
    }

    /// Forgets the policies that are gone.
    pub(super) fn retain(&mut self, is_there: impl Fn(&str) -> bool) {
        self.policies.retain(|name, _| is_there(name));
    }

    fn of(&mut self, policy: &PolicyRef) -> &mut Counts {
        let PolicyRef { kind, namespace, name, .. } = policy;
        self.name.clear();
        // Writing to a text never fails.
        let _ = match namespace.as_str() {
            "" => write!(self.name, "{kind}/{name}"),
            namespace => write!(self.name, "{kind}/{namespace}/{name}"),
        };
        if !self.policies.contains_key(self.name.as_str()) {
            if self.policies.len() >= MOST {
                return &mut self.other;
            }
            self.policies.insert(self.name.clone(), Counts::default());
        }
        self.policies.get_mut(self.name.as_str()).unwrap_or(&mut self.other)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::observe::join::{self, Common, tests::Nobody};

    fn policy(kind: &str, namespace: &str, name: &str) -> PolicyRef {
        PolicyRef { kind: kind.into(), namespace: namespace.into(), name: name.into(), revision: 1 }
    }

    /// A first packet that these policies decided about.
    fn flow(verdict: Verdict, policies: &[PolicyRef]) -> Flow {
        let common = Common { node: Arc::default(), clock: 0 };
        let mut flow = join::flows(&join::tests::event(), &Nobody, &common).remove(0);
        flow.verdict = verdict;
        match verdict {
            Verdict::Forwarded => flow.allowed_by = policies.to_vec(),
            _ => flow.denied_by = policies.to_vec(),
        }
        flow
    }

    #[test]
    fn a_verdict_counts_for_every_policy_that_it_names() {
        let mut verdicts = Verdicts::default();
        let (a, b) = (policy("NetworkPolicy", "shop", "a"), policy("ClusterNetworkPolicy", "", "b"));
        verdicts.count(&flow(Verdict::Forwarded, std::slice::from_ref(&a)));
        verdicts.count(&flow(Verdict::Dropped, &[a.clone(), b.clone(), a.clone()]));
        let audited = Flow { direction: Direction::Ingress, ..flow(Verdict::Audited, &[b]) };
        verdicts.count(&audited);
        // Nobody's rule, and the packet itself beside the verdict.
        verdicts.count(&flow(Verdict::Forwarded, &[]));
        verdicts.count(&Flow { kind: Kind::Drop, ..flow(Verdict::Dropped, std::slice::from_ref(&a)) });
        let seen: Vec<_> = verdicts.policies().map(|(name, counts)| (name.to_owned(), *counts)).collect();
        let want = [
            ("ClusterNetworkPolicy/b".to_owned(), [[0, 1, 0], [0, 0, 1]]),
            ("NetworkPolicy/shop/a".to_owned(), [[1, 1, 0], [0; 3]]),
        ];
        assert_eq!((seen.as_slice(), verdicts.other()), (&want[..], &Counts::default()));
        verdicts.retain(|name| name.ends_with("/a"));
        assert_eq!(verdicts.policies().map(|(name, _)| name).collect::<Vec<_>>(), ["NetworkPolicy/shop/a"]);
    }

    #[test]
    fn policies_beyond_the_bound_share_a_count_until_there_is_room() {
        let mut verdicts = Verdicts::default();
        let of = |n: usize| flow(Verdict::Forwarded, &[policy("NetworkPolicy", "x", &n.to_string())]);
        for n in 0..MOST + 5 {
            verdicts.count(&of(n));
        }
        assert_eq!((verdicts.policies().count(), verdicts.other()[0][0]), (MOST, 5));
        verdicts.count(&of(0));
        assert_eq!(verdicts.other()[0][0], 5, "one that is there");
        verdicts.retain(|name| name != "NetworkPolicy/x/0");
        verdicts.count(&of(MOST));
        assert_eq!((verdicts.policies().count(), verdicts.other()[0][0]), (MOST, 5));
    }
}
