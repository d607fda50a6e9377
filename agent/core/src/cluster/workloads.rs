//! The workloads of all pods, each once: a deployment has many pods, and each of its names would be kept for each of them.
//!
//! Owns: which there are. Must not know: pods.

use std::{collections::BTreeMap, sync::Arc};

use crate::flow::Workload;

/// Each with the number of its pods.
#[derive(Debug, Clone, Default)]
pub(super) struct Workloads(BTreeMap<Arc<Workload>, usize>);

impl Workloads {
    /// A pod belongs to it now; gives the one copy.
    pub(super) fn enter(&mut self, workload: Arc<Workload>) -> Arc<Workload> {
        let shared = self.0.get_key_value(&workload).map_or(workload, |(shared, _)| shared.clone());
        *self.0.entry(shared.clone()).or_default() += 1;
        shared
    }

    /// A pod belongs to it no more.
    pub(super) fn leave(&mut self, workload: Option<&Arc<Workload>>) {
        let Some(workload) = workload else { return };
        let Some(pods) = self.0.get_mut(workload) else { return };
        *pods -= 1;
        if *pods == 0 {
            self.0.remove(workload);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::{Body, Change, Cluster, Key, Kind, Object, Pod};

    fn pod(name: &str, workload: &str, label: &str) -> Change {
        let workload = Arc::new(Workload { name: workload.into(), kind: "Deployment".into() });
        let labels = [("app".to_owned(), label.to_owned())].into();
        let pod = Pod { workload: Some(workload), labels, ..Pod::default() };
        let key = Key::new(Kind::Pod, "shop", name);
        Change::Put(Box::new(Object { key, body: Body::Pod(pod) }))
    }

    #[test]
    fn pods_of_one_workload_share_it_and_the_last_one_takes_it_along() {
        let mut cluster = Cluster::default();
        let key = |name| Key::new(Kind::Pod, "shop", name);
        for (name, workload) in [("a", "web"), ("b", "web"), ("c", "api")] {
            cluster.apply(pod(name, workload, "x"));
        }
        let [a, b] = ["a", "b"].map(|name| cluster.workload(&key(name)).expect("one").clone());
        assert!(Arc::ptr_eq(&a, &b) && a.name == "web");
        assert_eq!(cluster.workload(&key("c")).map(|w| w.name.as_str()), Some("api"));
        // Another version of the same pod, one of another workload, and one that says nothing new.
        assert!(cluster.apply(pod("a", "web", "y")) && cluster.apply(pod("b", "api", "x")));
        assert!(!cluster.apply(pod("a", "web", "y")));
        assert_eq!(cluster.workloads.0.values().copied().collect::<Vec<_>>(), [2, 1]);
        for name in ["a", "b", "c", "c"] {
            cluster.apply(Change::Delete(key(name)));
        }
        assert!(cluster.workloads.0.is_empty());
    }
}
