//! The endpoints of this node: which pod has which number, and where it is held.
//!
//! Owns the numbers. Must not know how a pod is found or held. Pure.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use egret_common::ids::EndpointId;

use super::objects::Local;
use crate::place::{Spot, Wish};

/// Where an endpoint is held.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Held {
    /// The place.
    pub(super) spot: Spot,
    /// Of a cgroup its id, which outlives the directory.
    pub(super) cgroup: Option<u64>,
    /// Of an interface, the pod's cgroup.
    pub(super) home: Option<PathBuf>,
    /// The programs are there, and know whose it is.
    pub(super) attached: bool,
}

/// An endpoint.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Entry {
    /// Its number.
    pub(super) id: EndpointId,
    /// Its pod.
    pub(super) pod: Local,
    /// Where it is held, or why it is not yet.
    pub(super) held: Result<Held, String>,
    /// Its own cgroup, once it is known to the programs above all pods.
    pub(super) home: Option<u64>,
}

/// A number and a place that are free now: first let go of the place, then forget the number.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Gone {
    /// The number; `None`: the pod is only somewhere else now.
    pub(super) id: Option<EndpointId>,
    /// The place.
    pub(super) held: Option<Held>,
    /// Its cgroup.
    pub(super) home: Option<u64>,
}

/// The endpoints.
#[derive(Debug, Default)]
pub(super) struct Registry {
    entries: BTreeMap<String, Entry>,
    /// Numbers that an earlier process gave: by name and uid.
    earlier: BTreeMap<(String, String), EndpointId>,
    most: u32,
    /// Pods without a number.
    crowded_out: Vec<String>,
}

impl Registry {
    /// With room for numbers below `most`; pods that an earlier process knew keep their numbers.
    pub(super) fn new(most: u32, earlier: BTreeMap<(String, String), EndpointId>) -> Self {
        Self { most, earlier, ..Self::default() }
    }

    /// The pods are these now. What is gone is returned; its numbers are given away at the next update at the earliest.
    pub(super) fn update(&mut self, pods: &[Local]) -> Vec<Gone> {
        let mut old = std::mem::take(&mut self.entries);
        let mut gone = Vec::new();
        let mut fresh = Vec::new();
        for pod in pods {
            match old.remove(&pod.name) {
                Some(mut entry) if entry.pod.uid == pod.uid => {
                    if Wish::of(&entry.pod.annotations) != Wish::of(&pod.annotations)
                        && let Ok(held) = std::mem::replace(&mut entry.held, Err(MOVED.into()))
                    {
                        gone.push(Gone { id: None, held: Some(held), home: entry.home.take() });
                    }
                    entry.pod = pod.clone();
                    self.entries.insert(pod.name.clone(), entry);
                }
                other => {
                    // The name is another pod's now (CASES L-A02).
                    gone.extend(other.map(Gone::from));
                    fresh.push(pod);
                }
            }
        }
        gone.extend(old.into_values().map(Gone::from));
        let taken = gone.iter().filter_map(|g| g.id).chain(self.entries.values().map(|e| e.id)).collect();
        self.number(fresh, taken);
        gone
    }

    fn number(&mut self, fresh: Vec<&Local>, mut taken: BTreeSet<EndpointId>) {
        self.crowded_out.clear();
        let known = |pod: &&Local| self.earlier.get(&(pod.name.clone(), pod.uid.clone())).copied();
        let (again, new): (Vec<_>, Vec<_>) =
            fresh.into_iter().map(|p| (p, known(&p))).partition(|p| p.1.is_some());
        for (pod, id) in again.into_iter().chain(new) {
            let wanted = id.filter(|id| !taken.contains(id) && *id < self.most);
            let id = wanted.or_else(|| (1..self.most).find(|id| !taken.contains(id)));
            let Some(id) = id else {
                self.crowded_out.push(pod.name.clone());
                continue;
            };
            taken.insert(id);
            let entry = Entry { id, pod: pod.clone(), held: Err("not looked for yet".into()), home: None };
            self.entries.insert(pod.name.clone(), entry);
        }
        // Who did not come back by now is gone; his number may be somebody else's.
        self.earlier.clear();
    }

    /// All of them.
    pub(super) fn iter(&self) -> impl Iterator<Item = &Entry> {
        self.entries.values()
    }

    /// All of them, to note where they are held.
    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = &mut Entry> {
        self.entries.values_mut()
    }

    /// The one with this number.
    pub(super) fn get(&self, id: EndpointId) -> Option<&Entry> {
        self.entries.values().find(|entry| entry.id == id)
    }

    /// The one whose pod has this namespace and name.
    pub(super) fn named(&self, pod: &str) -> Option<&Entry> {
        self.entries.get(pod)
    }

    /// Who is held at this place.
    pub(super) fn at(&self, spot: &Spot) -> Option<&Entry> {
        self.entries.values().find(|entry| entry.held.as_ref().is_ok_and(|held| held.spot == *spot))
    }

    /// Pods that there was no number for: nothing holds them.
    pub(super) fn crowded_out(&self) -> &[String] {
        &self.crowded_out
    }

    /// What the next process must know.
    pub(super) fn numbers(&self) -> Vec<(String, String, EndpointId)> {
        self.entries.values().map(|e| (e.pod.name.clone(), e.pod.uid.clone(), e.id)).collect()
    }
}

const MOVED: &str = "its annotations have changed";

impl From<Entry> for Gone {
    fn from(entry: Entry) -> Self {
        Self { id: Some(entry.id), held: entry.held.ok(), home: entry.home }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pod(name: &str, uid: &str) -> Local {
        Local {
            name: name.into(),
            uid: uid.into(),
            host_network: false,
            ips: BTreeSet::new(),
            identity: 256,
            profile: Default::default(),
            annotations: BTreeMap::new(),
            workload: None,
            policies: Default::default(),
        }
    }

    fn numbers(registry: &Registry) -> Vec<(&str, u32)> {
        registry.iter().map(|e| (e.pod.name.as_str(), e.id)).collect()
    }

    fn hold(registry: &mut Registry, name: &str) -> Held {
        let held = Held {
            spot: Spot::Interface { ifindex: 7, name: "v7".into() },
            cgroup: None,
            home: None,
            attached: true,
        };
        let entry = registry.iter_mut().find(|e| e.pod.name == name).expect("there");
        entry.held = Ok(held.clone());
        held
    }

    #[test]
    fn a_number_is_given_away_only_after_it_was_forgotten() {
        let mut r = Registry::new(4, BTreeMap::new());
        assert!(r.update(&[pod("a", "1"), pod("b", "2")]).is_empty());
        assert_eq!(numbers(&r), [("a", 1), ("b", 2)]);
        let held = hold(&mut r, "a");
        // Recreated under the same name while its number is still in the maps.
        let gone = r.update(&[pod("a", "3"), pod("b", "2")]);
        assert_eq!(gone, [Gone { id: Some(1), held: Some(held), home: None }]);
        assert_eq!(numbers(&r), [("a", 3), ("b", 2)]);
        assert_eq!(r.update(&[pod("b", "2"), pod("c", "4")]), [Gone { id: Some(3), held: None, home: None }]);
        assert_eq!(numbers(&r), [("b", 2), ("c", 1)]);
        r.update(&[pod("b", "2"), pod("c", "4"), pod("d", "5"), pod("e", "6")]);
        assert_eq!((numbers(&r).len(), r.crowded_out()), (3, &["e".to_owned()][..]));
    }

    #[test]
    fn l_a01_pods_keep_their_numbers_over_a_restart() {
        let earlier =
            [(("b".into(), "2".into()), 1), (("a".into(), "1".into()), 3), (("x".into(), "9".into()), 2)];
        let mut r = Registry::new(8, earlier.into());
        r.update(&[pod("a", "1"), pod("b", "2"), pod("new", "4"), pod("x", "other")]);
        assert_eq!(numbers(&r), [("a", 3), ("b", 1), ("new", 2), ("x", 4)]);
    }

    #[test]
    fn a_pod_that_moves_is_looked_for_again() {
        let mut r = Registry::new(4, BTreeMap::new());
        r.update(&[pod("a", "1")]);
        let held = hold(&mut r, "a");
        assert_eq!(r.at(&held.spot).map(|e| e.id), Some(1));
        let mut moved = pod("a", "1");
        moved.annotations.insert("egret.dev/interface".into(), "v8".into());
        assert_eq!(r.update(&[moved]), [Gone { id: None, held: Some(held.clone()), home: None }]);
        assert!(r.at(&held.spot).is_none() && r.get(1).is_some_and(|e| e.held.is_err()));
    }
}
