//! Labels and label selectors with the semantics of Kubernetes (apimachinery `labels.Selector`).
//!
//! Owns: one label space for everything that policies select. Must not know: which labels count for an identity, how a
//! policy language writes a selector, YAML.
//!
//! The *identity labels* of a pod are its own labels after the identity filter and, under reserved keys, what else the
//! policy languages can ask for: see [`POD_NAMESPACE`], [`SERVICE_ACCOUNT`], [`CLUSTER`] and [`NAMESPACE_LABELS`].

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
};

/// Labels by key.
pub type Labels = BTreeMap<String, String>;

/// Key of the pod's namespace.
pub const POD_NAMESPACE: &str = "io.kubernetes.pod.namespace";
/// Key of the pod's service account.
pub const SERVICE_ACCOUNT: &str = "io.cilium.k8s.policy.serviceaccount";
/// Key of the cluster's name.
pub const CLUSTER: &str = "io.cilium.k8s.policy.cluster";
/// Before the key of each label of the pod's namespace.
pub const NAMESPACE_LABELS: &str = "io.cilium.k8s.namespace.labels.";

/// Identity labels as Cilium prints them: `k8s:app=web`.
pub fn printed(labels: &Labels) -> impl Iterator<Item = String> + '_ {
    labels.iter().map(|(key, value)| format!("k8s:{key}={value}"))
}

/// What a [`Requirement`] asks of its key.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Condition {
    /// The key is there with one of these values.
    In(BTreeSet<String>),
    /// The key is missing, or has none of these values.
    NotIn(BTreeSet<String>),
    /// The key is there.
    Exists,
    /// The key is missing.
    DoesNotExist,
}

/// One condition on one key.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Requirement {
    key: String,
    condition: Condition,
}

impl Requirement {
    /// A condition on `key`.
    #[must_use]
    pub fn new(key: impl Into<String>, condition: Condition) -> Self {
        Self { key: key.into(), condition }
    }

    /// `key` has exactly this value.
    #[must_use]
    pub fn is(key: impl Into<String>, value: impl Into<String>) -> Self {
        Self::new(key, Condition::In(BTreeSet::from([value.into()])))
    }

    /// The key.
    #[must_use]
    pub fn key(&self) -> &str {
        &self.key
    }

    /// The condition.
    #[must_use]
    pub fn condition(&self) -> &Condition {
        &self.condition
    }

    /// Whether the labels meet the condition. A missing key meets `NotIn` and `DoesNotExist`.
    #[must_use]
    pub fn matches(&self, labels: &Labels) -> bool {
        let value = labels.get(&self.key);
        match &self.condition {
            Condition::In(values) => value.is_some_and(|v| values.contains(v)),
            Condition::NotIn(values) => value.is_none_or(|v| !values.contains(v)),
            Condition::Exists => value.is_some(),
            Condition::DoesNotExist => value.is_none(),
        }
    }
}

/// Requirements that must all be met; without any, everything matches.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct Selector {
    requirements: BTreeSet<Requirement>,
}

impl Selector {
    /// Matches whatever labels there are.
    #[must_use]
    pub fn everything() -> Self {
        Self::default()
    }

    /// All of these requirements.
    #[must_use]
    pub fn all_of(requirements: impl IntoIterator<Item = Requirement>) -> Self {
        Self { requirements: requirements.into_iter().collect() }
    }

    /// The same with one more requirement.
    #[must_use]
    pub fn and(mut self, requirement: Requirement) -> Self {
        self.requirements.insert(requirement);
        self
    }

    /// The requirements, sorted.
    pub fn requirements(&self) -> impl Iterator<Item = &Requirement> {
        self.requirements.iter()
    }

    /// Whether the labels meet every requirement.
    #[must_use]
    pub fn matches(&self, labels: &Labels) -> bool {
        self.requirements.iter().all(|r| r.matches(labels))
    }
}

impl fmt::Display for Requirement {
    /// As `kubectl -l` writes it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let key = &self.key;
        let list =
            |values: &BTreeSet<String>| values.iter().map(String::as_str).collect::<Vec<_>>().join(",");
        match &self.condition {
            Condition::In(values) if values.len() == 1 => write!(f, "{key}={}", list(values)),
            Condition::In(values) => write!(f, "{key} in ({})", list(values)),
            Condition::NotIn(values) => write!(f, "{key} notin ({})", list(values)),
            Condition::Exists => f.write_str(key),
            Condition::DoesNotExist => write!(f, "!{key}"),
        }
    }
}

impl fmt::Display for Selector {
    /// As `kubectl -l` writes it; empty for everything.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let texts: Vec<String> = self.requirements.iter().map(ToString::to_string).collect();
        f.write_str(&texts.join(","))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(pairs: &[(&str, &str)]) -> Labels {
        pairs.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect()
    }

    fn set(values: &[&str]) -> BTreeSet<String> {
        values.iter().map(|v| (*v).to_owned()).collect()
    }

    /// One requirement on `app` against: the value `a`, the value `b`, an empty value, no such key.
    fn check(condition: Condition, want: [bool; 4]) {
        let requirement = Requirement::new("app", condition);
        let cases = [&[("app", "a")][..], &[("app", "b")], &[("app", "")], &[("tier", "a")]];
        let got = cases.map(|pairs| requirement.matches(&labels(pairs)));
        assert_eq!(got, want, "{requirement}");
        assert_eq!(cases.map(|pairs| Selector::all_of([requirement.clone()]).matches(&labels(pairs))), want);
    }

    #[test]
    fn a_missing_key_meets_only_the_negative_operators() {
        check(Condition::In(set(&["a"])), [true, false, false, false]);
        check(Condition::In(set(&["a", "b"])), [true, true, false, false]);
        check(Condition::In(set(&[""])), [false, false, true, false]);
        check(Condition::In(set(&[])), [false, false, false, false]);
        check(Condition::NotIn(set(&["a"])), [false, true, true, true]);
        check(Condition::NotIn(set(&["a", "b"])), [false, false, true, true]);
        check(Condition::Exists, [true, true, true, false]);
        check(Condition::DoesNotExist, [false, false, false, true]);
    }

    #[test]
    fn a_selector_asks_for_all_and_the_empty_one_for_nothing() {
        let both = Selector::all_of([Requirement::is("app", "a"), Requirement::is("tier", "x")]);
        assert!(both.matches(&labels(&[("app", "a"), ("tier", "x"), ("more", "z")])));
        assert!(!both.matches(&labels(&[("app", "a")])));
        assert!(!both.matches(&labels(&[("app", "a"), ("tier", "y")])));
        assert!(Selector::everything().matches(&Labels::new()));
        assert!(Selector::everything().matches(&labels(&[("app", "a")])));
        // Two demands on one key: both count.
        let never = Selector::all_of([Requirement::is("app", "a"), Requirement::is("app", "b")]);
        assert!(!never.matches(&labels(&[("app", "a")])));
    }

    #[test]
    fn selectors_with_the_same_demands_are_equal() {
        let one = Selector::everything().and(Requirement::is("a", "1")).and(Requirement::is("b", "2"));
        let two = Selector::all_of([Requirement::is("b", "2"), Requirement::is("a", "1")]);
        assert_eq!(one, two);
        assert_eq!(one.to_string(), "a=1,b=2");
        let odd = Selector::everything()
            .and(Requirement::new("a", Condition::NotIn(set(&["x", "y"]))))
            .and(Requirement::new("b", Condition::DoesNotExist))
            .and(Requirement::new("c", Condition::Exists));
        assert_eq!(odd.to_string(), "a notin (x,y),!b,c");
    }
}
