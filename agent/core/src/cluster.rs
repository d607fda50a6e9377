//! The cluster as this node knows it: objects in, and who owns which address out.
//!
//! ```text
//!  files ──read──> Contents ──Source─┬─> [Change] ──Cluster::apply──> objects ──resolve──> Resolved ──> compile
//!  API ──Document──> Contents ──Feed──┘                                  └──advise──> warnings
//! ```
//! Owns: the objects in force and what follows from them: identities of addresses, services with their backends, the
//! pods of this node with their policies. Must not know: where objects come from, map entries, interfaces.
//!
//! - An address has one owner. A node's address is the node's, whatever pod uses it; a pod at its end owns nothing.
//! - What [`Cluster::resolve`] says follows from the objects in force alone, except that of two pods with one address
//!   and no creation time the one that came later wins.

mod addresses;
mod advise;
mod asked;
mod document;
mod feed;
mod ground;
mod object;
mod profiles;
mod read;
mod resolve;
mod services;
mod source;
mod workloads;

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
    sync::Arc,
};

pub use document::Document;
pub use feed::{Feed, News};
pub use object::{
    Body, CidrGroup, EndpointSlice, Key, Kind, Node, Object, Phase, Pod, Service, ServicePort, TargetPort,
};
pub use read::{Contents, read};
pub use resolve::{ApiServer, LocalPod, Resolved};
pub use services::ServiceEntry;
pub use source::Source;

use addresses::{Addresses, Claim};
use asked::Asked;
use ground::Meant;
use profiles::Profiles;
use services::Backends;
use workloads::Workloads;

use crate::{
    flow::{ServiceRef, Workload},
    identity::{Profile, labels_with},
    labels::Labels,
    policy::Policy,
};

/// What happens to an object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Change {
    /// It is new, or says something else now.
    Put(Box<Object>),
    /// It is gone.
    Delete(Key),
}

/// The objects in force.
#[derive(Debug, Clone, Default)]
pub struct Cluster {
    pods: BTreeMap<Key, Stored>,
    namespaces: BTreeMap<String, Labels>,
    services: BTreeMap<Key, Service>,
    slices: BTreeMap<Key, EndpointSlice>,
    nodes: BTreeMap<String, Node>,
    policies: BTreeMap<Key, Vec<Arc<Policy>>>,
    asked: Asked,
    groups: BTreeMap<String, CidrGroup>,
    profiles: Profiles,
    workloads: Workloads,
    addresses: Addresses,
    /// The pods of each node; `None`: bound to no node.
    by_node: BTreeMap<Option<String>, BTreeSet<Key>>,
    backends: Backends,
    meant: Meant,
    own_addresses: BTreeSet<IpAddr>,
    arrivals: u64,
}

/// A pod with what follows from it and its namespace.
#[derive(Debug, Clone)]
struct Stored {
    pod: Pod,
    profile: Arc<Profile>,
    /// Which pods came before it.
    arrival: u64,
}

impl Stored {
    /// A pod at its end owns no address (CASES K-A07).
    fn is_live(&self) -> bool {
        self.pod.phase == Phase::Live
    }

    /// A host-network pod has no address of its own (K-A09).
    fn has_own_network(&self) -> bool {
        self.is_live() && !self.pod.host_network
    }
}

impl Cluster {
    /// Takes a change in; says whether anything is different now.
    pub fn apply(&mut self, change: Change) -> bool {
        match change {
            Change::Put(object) => self.put(object.key, object.body),
            Change::Delete(key) => self.delete(&key),
        }
    }

    /// Addresses of this node that its Node object does not list, such as those of a CNI's bridge (K-A06).
    pub fn set_own_addresses(&mut self, addresses: impl IntoIterator<Item = IpAddr>) {
        self.own_addresses = addresses.into_iter().map(|ip| ip.to_canonical()).collect();
    }

    /// The policy objects.
    pub fn policies(&self) -> impl Iterator<Item = (&Key, &[Arc<Policy>])> {
        self.policies.iter().map(|(key, policies)| (key, policies.as_slice()))
    }

    /// The pod that has the address, unless it is a node's as well.
    #[must_use]
    pub fn pod_at(&self, address: IpAddr) -> Option<&Key> {
        self.addresses.owner(address)
    }

    /// Whether there is such a pod, at its end or not.
    #[must_use]
    pub fn has_pod(&self, pod: &Key) -> bool {
        self.pods.contains_key(pod)
    }

    /// What controls a pod, if anything does.
    #[must_use]
    pub fn workload(&self, pod: &Key) -> Option<&Arc<Workload>> {
        self.pods.get(pod)?.pod.workload.as_ref()
    }

    /// The Service of each virtual address; of several, the first by namespace and name.
    #[must_use]
    pub fn vips(&self) -> BTreeMap<IpAddr, ServiceRef> {
        let mut all = BTreeMap::new();
        for (key, service) in &self.services {
            for vip in &service.vips {
                let named = || ServiceRef { namespace: key.namespace.clone(), name: key.name.clone() };
                all.entry(*vip).or_insert_with(named);
            }
        }
        all
    }

    /// A pod's object.
    #[must_use]
    pub fn pod(&self, namespace: &str, name: &str) -> Option<&Pod> {
        self.pods.get(&Key::new(Kind::Pod, namespace, name)).map(|stored| &stored.pod)
    }

    /// Every pod of this name, whatever its namespace.
    pub fn pods_named<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a Key> {
        self.pods.keys().filter(move |key| key.name == name)
    }

    /// Live pods on the network of the node that has this address.
    pub fn host_pods_at(&self, address: IpAddr) -> impl Iterator<Item = &Key> {
        let there = move |stored: &Stored| {
            stored.is_live() && stored.pod.host_network && stored.pod.ips.contains(&address)
        };
        self.pods.iter().filter(move |(_, stored)| there(stored)).map(|(key, _)| key)
    }

    /// The addresses that the name of a Service stands for: its own, or if it has none those behind it. `None`: there is no such
    /// Service.
    #[must_use]
    pub fn addresses_of_service(&self, namespace: &str, name: &str) -> Option<BTreeSet<IpAddr>> {
        let key = Key::new(Kind::Service, namespace, name);
        let service = self.services.get(&key)?;
        if !service.vips.is_empty() {
            return Some(service.vips.clone());
        }
        let listed: BTreeSet<IpAddr> =
            self.slices_of(&key).flat_map(|slice| slice.addresses.iter().copied()).collect();
        let selected = |(of, stored): &(&Key, &Stored)| {
            let has = |(key, value): (&String, &String)| stored.pod.labels.get(key) == Some(value);
            of.namespace == namespace && stored.is_live() && service.selector.iter().all(has)
        };
        if !listed.is_empty() || service.selector.is_empty() {
            return Some(listed);
        }
        Some(
            self.pods
                .iter()
                .filter(selected)
                .flat_map(|(_, stored)| stored.pod.ips.iter().copied())
                .collect(),
        )
    }

    /// Takes all pods for pods of this node: for questions about files, where nobody asks which node it is.
    pub fn bind_all(&mut self, node: &str) {
        let pods: Vec<(Key, Pod)> = self.pods.iter().map(|(key, s)| (key.clone(), s.pod.clone())).collect();
        for (key, pod) in pods {
            self.put(key, Body::Pod(Pod { node: Some(node.to_owned()), ..pod }));
        }
    }

    /// A node's object.
    #[must_use]
    pub fn node(&self, name: &str) -> Option<&Node> {
        self.nodes.get(name)
    }

    /// The pods that a policy is about, those at their end left out.
    pub fn selected<'a>(&'a self, policy: &'a Policy) -> impl Iterator<Item = (&'a Key, &'a Pod)> {
        let live = self.pods.iter().filter(|(_, s)| s.is_live());
        let selected = live.filter(|(_, s)| policy.selects_pod(&s.profile.labels, s.pod.host_network));
        selected.map(|(key, s)| (key, &s.pod))
    }

    fn put(&mut self, key: Key, body: Body) -> bool {
        match body {
            Body::Pod(pod) => self.put_pod(key, pod),
            Body::Namespace(labels) => {
                let name = key.name;
                replace(&mut self.namespaces, name.clone(), labels) && self.namespace_changed(&name)
            }
            Body::Service(service) => {
                self.backends.forget(&key.namespace);
                replace(&mut self.services, key, service)
            }
            Body::EndpointSlice(slice) => {
                self.backends.forget(&key.namespace);
                replace(&mut self.slices, key, slice)
            }
            Body::Node(node) => replace(&mut self.nodes, key.name, node),
            Body::Policies(policies) => self.put_policies(key, policies),
            Body::CidrGroup(group) => replace(&mut self.groups, key.name, group),
        }
    }

    fn delete(&mut self, key: &Key) -> bool {
        match key.kind {
            Kind::Pod => match self.pods.remove(key) {
                Some(stored) => {
                    self.leave(key, &stored);
                    self.workloads.leave(stored.pod.workload.as_ref());
                    true
                }
                None => false,
            },
            Kind::Namespace => {
                self.namespaces.remove(&key.name).is_some() && self.namespace_changed(&key.name)
            }
            Kind::Service => {
                self.backends.forget(&key.namespace);
                self.services.remove(key).is_some()
            }
            Kind::EndpointSlice => {
                self.backends.forget(&key.namespace);
                self.slices.remove(key).is_some()
            }
            Kind::Node => self.nodes.remove(&key.name).is_some(),
            Kind::CiliumCidrGroup => self.groups.remove(&key.name).is_some(),
            _ => {
                let Some(old) = self.policies.remove(key) else { return false };
                self.policies_changed(&old, &[]);
                true
            }
        }
    }

    fn put_policies(&mut self, key: Key, policies: Vec<Policy>) -> bool {
        let before = self.policies.get(&key);
        if before.is_some_and(|before| before.iter().map(|policy| &**policy).eq(&policies)) {
            return false;
        }
        let policies: Vec<Arc<Policy>> = policies.into_iter().map(Arc::new).collect();
        let before = self.policies.insert(key, policies.clone()).unwrap_or_default();
        self.policies_changed(&before, &policies);
        true
    }

    fn policies_changed(&mut self, old: &[Arc<Policy>], new: &[Arc<Policy>]) {
        if self.asked.replace(old.iter().map(|p| &**p), new.iter().map(|p| &**p)) {
            self.labels_changed(|_| true);
        }
        self.profiles.policies_changed(old.iter().chain(new));
    }

    fn put_pod(&mut self, key: Key, mut pod: Pod) -> bool {
        let before = self.pods.get(&key);
        if before.is_some_and(|s| s.pod == pod) {
            return false;
        }
        // One that gets another address, or comes back from its end, claims its address anew.
        let same =
            before.filter(|s| s.pod.uid == pod.uid && s.pod.ips == pod.ips && s.pod.phase == pod.phase);
        let arrival = same.map_or(self.arrivals + 1, |s| s.arrival);
        self.arrivals = self.arrivals.max(arrival);
        let profile = self.profile(&key.namespace, &pod);
        pod.workload = pod.workload.map(|workload| self.workloads.enter(workload));
        let stored = Stored { pod, profile, arrival };
        if let Some(before) = self.pods.remove(&key) {
            self.leave(&key, &before);
            self.workloads.leave(before.pod.workload.as_ref());
        }
        self.enter(&key, &stored);
        self.pods.insert(key, stored);
        true
    }

    /// Notes what a pod stands for, its profile apart.
    fn enter(&mut self, key: &Key, stored: &Stored) {
        self.by_node.entry(stored.pod.node.clone()).or_default().insert(key.clone());
        self.backends.forget(&key.namespace);
        if stored.has_own_network() {
            let claim = Claim::of(key, stored);
            stored.pod.ips.iter().for_each(|ip| self.addresses.claim(*ip, claim.clone()));
        }
    }

    fn leave(&mut self, key: &Key, stored: &Stored) {
        self.profiles.leave(&stored.profile, stored.has_own_network());
        self.backends.forget(&key.namespace);
        stored.pod.ips.iter().for_each(|ip| self.addresses.release(*ip, key));
        if let Some(pods) = self.by_node.get_mut(&stored.pod.node) {
            pods.remove(key);
            if pods.is_empty() {
                self.by_node.remove(&stored.pod.node);
            }
        }
    }

    /// The profile of a pod, which has it from now on.
    fn profile(&mut self, namespace: &str, pod: &Pod) -> Arc<Profile> {
        let none = Labels::new();
        let of_namespace = self.namespaces.get(namespace).unwrap_or(&none);
        let labels = labels_with(&pod.labels, namespace, of_namespace, &pod.service_account, |key| {
            self.asked.contains(key)
        });
        let with_network = pod.phase == Phase::Live && !pod.host_network;
        self.profiles.enter(Profile { labels, ports: pod.ports.clone() }, with_network)
    }

    /// The labels of a namespace are labels of its pods (K-A08). Always true: something has changed.
    fn namespace_changed(&mut self, namespace: &str) -> bool {
        self.labels_changed(|key| key.namespace == namespace)
    }

    /// What makes the labels of some pods is different now. Always true.
    fn labels_changed(&mut self, concerned: impl Fn(&Key) -> bool) -> bool {
        let mut pods = std::mem::take(&mut self.pods);
        for (key, stored) in pods.iter_mut().filter(|(key, _)| concerned(key)) {
            let profile = self.profile(&key.namespace, &stored.pod);
            if Arc::ptr_eq(&profile, &stored.profile) {
                self.profiles.leave(&profile, stored.has_own_network());
                continue;
            }
            self.leave(key, stored);
            stored.profile = profile;
            self.enter(key, stored);
        }
        self.pods = pods;
        true
    }
}

/// Inserts; says whether anything is different now.
fn replace<K: Ord, V: PartialEq>(map: &mut BTreeMap<K, V>, key: K, value: V) -> bool {
    if map.get(&key) == Some(&value) {
        return false;
    }
    map.insert(key, value);
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn k_a08_nothing_is_left_over() {
        let key = Key::new(Kind::Pod, "x", "p");
        let put = |app: &str| {
            let labels = Labels::from([("app".to_owned(), app.to_owned())]);
            Change::Put(Box::new(Object {
                key: key.clone(),
                body: Body::Pod(Pod { labels, ..Pod::default() }),
            }))
        };
        let mut cluster = Cluster::default();
        for app in ["a", "b", "a"] {
            assert!(cluster.apply(put(app)));
            assert!(!cluster.apply(put(app)));
            assert_eq!(cluster.profiles.len(), 1, "{app}");
        }
        let namespace =
            Object { key: Key::new(Kind::Namespace, "", "x"), body: Body::Namespace(Labels::new()) };
        assert!(cluster.apply(Change::Put(Box::new(namespace))));
        assert_eq!(cluster.profiles.len(), 1);
        assert!(cluster.apply(Change::Delete(key.clone())));
        assert_eq!((cluster.pods.len(), cluster.profiles.len()), (0, 0));
        assert!(!cluster.apply(Change::Delete(key)));
    }
}
