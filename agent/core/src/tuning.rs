//! What annotations of pods and policies change about a workload, beside its rules.
//!
//! Owns: their names, their values, and which of several counts. Must not know: objects, endpoints' flags.

use crate::{
    dns::lifetime::Lifetime,
    labels::Labels,
    policy::Policy,
    problem::{Problem, Read},
};

/// Where all of them begin.
pub const ANNOTATIONS: &str = "egret.dev/";
/// `true`: nothing is held back, everything is judged and counted.
pub const AUDIT: &str = "egret.dev/audit";
/// `true`: denials answer at once instead of in silence; `false`: silence.
pub const REJECT: &str = "egret.dev/reject";
/// Shortest lifetime of a learned address, in seconds.
pub const TTL_FLOOR: &str = "egret.dev/ttl-floor";
/// Longest lifetime before grace, in seconds.
pub const TTL_CAP: &str = "egret.dev/ttl-cap";
/// Seconds that a learned address outlives its TTL.
pub const GRACE: &str = "egret.dev/grace";

/// Annotations that say where a pod of a plain host is to be found.
pub const PLACES: [&str; 3] = ["egret.dev/netns", "egret.dev/interface", "egret.dev/cgroup"];

/// Lifetimes, as far as an object says something about them, in seconds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Lifetimes {
    floor: Option<u32>,
    cap: Option<u32>,
    grace: Option<u32>,
}

/// What a pod says about itself. `None`: as the node has it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Tuning {
    /// [`AUDIT`].
    pub audit: Option<bool>,
    /// [`REJECT`].
    pub reject: Option<bool>,
    /// Lifetimes of what it learns.
    pub lifetimes: Lifetimes,
}

impl Tuning {
    /// Reads the annotations of a pod. What cannot be read counts as not said, and is told.
    pub(crate) fn read(annotations: &Labels) -> (Self, Vec<Problem>) {
        let mut problems = Vec::new();
        let tuning = Self {
            audit: keep(boolean(annotations, AUDIT), &mut problems),
            reject: keep(boolean(annotations, REJECT), &mut problems),
            lifetimes: keep(Lifetimes::read(annotations).map(Some), &mut problems).unwrap_or_default(),
        };
        let known = [AUDIT, REJECT, TTL_FLOOR, TTL_CAP, GRACE];
        let unknown = |key: &&String| {
            let key = key.as_str();
            key.starts_with(ANNOTATIONS) && !known.contains(&key) && !PLACES.contains(&key)
        };
        problems
            .extend(annotations.keys().filter(unknown).map(|key| wrong(key, "is no annotation of Egret")));
        (tuning, problems)
    }

    /// [`Tuning::read`] for whoever does not tell.
    #[must_use]
    pub fn of(annotations: &Labels) -> Self {
        Self::read(annotations).0
    }
}

impl Lifetimes {
    /// Reads them.
    pub(crate) fn read(annotations: &Labels) -> Read<Self> {
        let lifetimes = Self {
            floor: seconds(annotations, TTL_FLOOR)?,
            cap: seconds(annotations, TTL_CAP)?,
            grace: seconds(annotations, GRACE)?,
        };
        match (lifetimes.floor, lifetimes.cap) {
            (Some(floor), Some(cap)) if floor > cap => Err(wrong(TTL_FLOOR, "is above egret.dev/ttl-cap")),
            _ => Ok(lifetimes),
        }
    }

    /// From a command line. `None`: the floor is above the cap.
    #[must_use]
    pub fn new(floor: Option<u32>, cap: Option<u32>, grace: Option<u32>) -> Option<Self> {
        let node = Lifetime::default();
        let fits = floor.unwrap_or(node.floor()) <= cap.unwrap_or(node.cap());
        fits.then_some(Self { floor, cap, grace })
    }

    /// Of two policies about one workload, the longer lifetime counts, as the rule that allows does.
    #[must_use]
    pub fn union(self, other: Self) -> Self {
        // `None` is the least.
        Self {
            floor: self.floor.max(other.floor),
            cap: self.cap.max(other.cap),
            grace: self.grace.max(other.grace),
        }
    }

    /// What the policies about one workload say together.
    pub fn of_policies<'a>(policies: impl IntoIterator<Item = &'a Policy>) -> Self {
        policies.into_iter().map(Policy::lifetimes).fold(Self::default(), Self::union)
    }

    /// What holds where `more` says nothing.
    #[must_use]
    pub fn under(self, more: Self) -> Self {
        Self {
            floor: more.floor.or(self.floor),
            cap: more.cap.or(self.cap),
            grace: more.grace.or(self.grace),
        }
    }

    /// With what the node says about the rest. A cap below the floor gives way to it.
    #[must_use]
    pub fn or(self, node: Lifetime) -> Lifetime {
        let floor = self.floor.unwrap_or(node.floor());
        let cap = self.cap.unwrap_or(node.cap()).max(floor);
        Lifetime::new(floor, cap, self.grace.unwrap_or(node.grace())).unwrap_or(node)
    }
}

fn keep<T>(read: Read<Option<T>>, problems: &mut Vec<Problem>) -> Option<T> {
    read.unwrap_or_else(|problem| {
        problems.push(problem);
        None
    })
}

fn boolean(annotations: &Labels, key: &str) -> Read<Option<bool>> {
    match annotations.get(key).map(String::as_str) {
        None => Ok(None),
        Some("true") => Ok(Some(true)),
        Some("false") => Ok(Some(false)),
        Some(other) => Err(wrong(key, &format!("`{other}` is neither true nor false"))),
    }
}

fn seconds(annotations: &Labels, key: &str) -> Read<Option<u32>> {
    let Some(text) = annotations.get(key) else { return Ok(None) };
    let text = text.strip_suffix('s').unwrap_or(text);
    text.parse().map(Some).map_err(|_| wrong(key, &format!("`{text}` is no number of seconds")))
}

fn wrong(key: &str, message: &str) -> Problem {
    Problem::at(&format!("metadata.annotations[{key}]"), message)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(pairs: &[(&str, &str)]) -> Labels {
        pairs.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect()
    }

    #[test]
    fn what_cannot_be_read_is_told_and_counts_as_not_said() {
        for (pairs, path) in [
            (&[(AUDIT, "yes")][..], "metadata.annotations[egret.dev/audit]"),
            (&[(REJECT, "")], "metadata.annotations[egret.dev/reject]"),
            (&[(GRACE, "-1")], "metadata.annotations[egret.dev/grace]"),
            (&[(TTL_CAP, "1h")], "metadata.annotations[egret.dev/ttl-cap]"),
            (&[(TTL_FLOOR, "9"), (TTL_CAP, "8")], "metadata.annotations[egret.dev/ttl-floor]"),
            (&[("egret.dev/audti", "true")], "metadata.annotations[egret.dev/audti]"),
        ] {
            let (tuning, problems) = Tuning::read(&labels(pairs));
            let paths: Vec<&str> = problems.iter().map(|p| p.path.as_str()).collect();
            assert_eq!((paths, tuning), (vec![path], Tuning::default()), "{pairs:?}");
        }
        let good = [(AUDIT, "true"), (REJECT, "false"), (GRACE, "0s"), ("egret.dev/cgroup", "a")];
        let (tuning, problems) = Tuning::read(&labels(&good));
        assert_eq!((tuning.audit, tuning.reject, problems), (Some(true), Some(false), Vec::new()));
    }

    #[test]
    fn t_a02_the_pod_before_its_policies_before_the_node() {
        let node = Lifetime::default();
        let read = |pairs: &[(&str, &str)]| Lifetimes::read(&labels(pairs)).unwrap();
        let (short, long) = (read(&[(GRACE, "0")]), read(&[(GRACE, "60"), (TTL_CAP, "600")]));
        let policies = short.union(long);
        let check = |lifetimes: Lifetimes, want: [u32; 3]| {
            let got = lifetimes.or(node);
            assert_eq!([got.floor(), got.cap(), got.grace()], want);
        };
        check(Lifetimes::default(), [5, 86_400, 30]);
        check(short, [5, 86_400, 0]);
        check(policies, [5, 600, 60]);
        check(policies.under(read(&[(GRACE, "1")])), [5, 600, 1]);
        check(read(&[(TTL_CAP, "2")]), [5, 5, 30]);
        check(read(&[(TTL_FLOOR, "100000")]), [100_000, 100_000, 30]);
    }
}
