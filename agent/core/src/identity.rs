//! Identities: what a pod is to a policy, as labels and as a number.
//!
//! Owns: the labels that make an identity, and the numbers of this node. Must not know: addresses, policies, maps. A
//! number stands for one set of labels and named ports; it is given to another one only long after.

mod filter;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use egret_common::ids::{CLASS_NAMES_SUMMARY, identity};

pub use filter::is_relevant;

use crate::{
    labels::{CLUSTER, Labels, NAMESPACE_LABELS, POD_NAMESPACE, SERVICE_ACCOUNT},
    numbering::Numbering,
    ports::Proto,
};

/// Label that every namespace has (the API server sees to it): its name.
const METADATA_NAME: &str = "kubernetes.io/metadata.name";

/// The name that Cilium gives to a cluster of its own.
const CLUSTER_NAME: &str = "default";
/// Nobody may write these keys on a pod: they would make it somebody else.
const NOT_FOR_PODS: [&str; 2] = ["io.cilium.k8s.", POD_NAMESPACE];
/// A pod for which no number is left: no selector means it (Cilium's `unmanaged`).
pub(crate) const UNMANAGED: u32 = 3;

/// The ports of a pod that have a name.
pub type NamedPorts = BTreeMap<(String, Proto), u16>;

/// The identity labels of a pod: its own ones as far as they count, and what its namespace and service account add.
#[must_use]
pub fn labels_of_pod(own: &Labels, namespace: &str, of_namespace: &Labels, service_account: &str) -> Labels {
    labels_with(own, namespace, of_namespace, service_account, |_| false)
}

/// [`labels_of_pod`] where further keys count.
pub(crate) fn labels_with(
    own: &Labels,
    namespace: &str,
    of_namespace: &Labels,
    service_account: &str,
    counts: impl Fn(&str) -> bool,
) -> Labels {
    let own = own.iter().filter(|(k, _)| !NOT_FOR_PODS.iter().any(|p| k.starts_with(p)));
    let mut labels: Labels = own.map(|(k, v)| (k.clone(), v.clone())).collect();
    let mut add = |key: String, value: &str| labels.insert(key, value.to_owned());
    for (key, value) in of_namespace {
        add(format!("{NAMESPACE_LABELS}{key}"), value);
    }
    add(format!("{NAMESPACE_LABELS}{METADATA_NAME}"), namespace);
    add(POD_NAMESPACE.to_owned(), namespace);
    add(SERVICE_ACCOUNT.to_owned(), service_account);
    add(CLUSTER.to_owned(), CLUSTER_NAME);
    labels.retain(|key, _| is_relevant(key) || counts(key));
    labels
}

/// What makes two pods the same to every policy.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Profile {
    /// Identity labels.
    pub labels: Labels,
    /// Named ports: a rule that uses one means another port for another profile.
    pub ports: NamedPorts,
}

/// A profile with its number.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Identity {
    /// From 256 up; holds on this node only.
    pub number: u32,
    /// Identity labels.
    pub labels: Labels,
    /// Named ports.
    pub ports: NamedPorts,
}

/// The numbers of profiles. A number stands for its profile while a pod has it, and long after.
#[derive(Debug, Clone)]
pub struct IdentityBook {
    numbers: Numbering<Profile>,
    /// Identities by where their profiles are, which are held so that no other one can be there.
    places: BTreeMap<usize, (Arc<Profile>, Arc<Identity>)>,
}

impl Default for IdentityBook {
    fn default() -> Self {
        let numbers = Numbering::new(identity::FIRST_DYNAMIC, CLASS_NAMES_SUMMARY - 1);
        Self { numbers, places: BTreeMap::new() }
    }
}

impl IdentityBook {
    /// The profile's number, new if need be. If there are 16 million profiles every further one gets Cilium's `unmanaged`
    /// (3), which no selector means.
    pub fn number(&mut self, profile: &Profile) -> u32 {
        let known = self.numbers.get(profile);
        known.or_else(|| self.numbers.number(profile.clone())).unwrap_or(UNMANAGED)
    }

    /// The profile's identity, new if need be. Costs little if it was asked for before.
    pub fn identity(&mut self, profile: &Arc<Profile>) -> Arc<Identity> {
        let place = Arc::as_ptr(profile).addr();
        if let Some((_, identity)) = self.places.get(&place) {
            return identity.clone();
        }
        let number = self.numbers.number(profile.clone()).unwrap_or(UNMANAGED);
        let (labels, ports) = (profile.labels.clone(), profile.ports.clone());
        let identity = Arc::new(Identity { number, labels, ports });
        self.places.insert(place, (profile.clone(), identity.clone()));
        identity
    }

    /// Gives a profile the number that it had in another process. False: one of them is taken.
    pub fn restore(&mut self, number: u32, profile: Profile) -> bool {
        self.numbers.restore(number, profile)
    }

    /// Every profile that has a number.
    pub fn iter(&self) -> impl Iterator<Item = (u32, &Profile)> {
        self.numbers.iter().map(|(number, profile)| (number, &**profile))
    }

    /// Forgets profiles, once there are many that no pod has. `used`: those that pods have, by where they are.
    pub(crate) fn forget(&mut self, used: &BTreeSet<usize>) {
        self.places.retain(|place, _| used.contains(place));
        if self.numbers.is_crowded(used.len()) {
            let live: BTreeSet<u32> = self.places.values().map(|(_, identity)| identity.number).collect();
            self.numbers.retain(|number, _| live.contains(&number));
        }
    }

    /// How many profiles have numbers.
    #[must_use]
    pub fn len(&self) -> usize {
        self.numbers.len()
    }

    /// Whether no profile has a number yet.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(pairs: &[(&str, &str)]) -> Labels {
        pairs.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect()
    }

    #[test]
    fn labels_come_from_pod_namespace_and_account() {
        let own = labels(&[("app", "web"), ("pod-template-hash", "abc")]);
        assert_eq!(
            labels_of_pod(&own, "shop", &labels(&[("team", "red")]), "web"),
            labels(&[
                ("app", "web"),
                ("io.cilium.k8s.namespace.labels.kubernetes.io/metadata.name", "shop"),
                ("io.cilium.k8s.namespace.labels.team", "red"),
                ("io.cilium.k8s.policy.cluster", "default"),
                ("io.cilium.k8s.policy.serviceaccount", "web"),
                ("io.kubernetes.pod.namespace", "shop"),
            ])
        );
    }

    #[test]
    fn a_pod_cannot_say_that_it_is_elsewhere() {
        let own = labels(&[
            ("io.kubernetes.pod.namespace", "kube-system"),
            ("io.cilium.k8s.namespace.labels.team", "red"),
            ("io.cilium.k8s.namespace.labels.kubernetes.io/metadata.name", "kube-system"),
            ("io.cilium.k8s.policy.serviceaccount", "admin"),
            ("io.cilium.k8s.policy.cluster", "other"),
        ]);
        assert_eq!(
            labels_of_pod(&own, "shop", &Labels::new(), "web"),
            labels_of_pod(&Labels::new(), "shop", &Labels::new(), "web")
        );
        // Nor can a namespace say that it has another name.
        let renamed = labels(&[("kubernetes.io/metadata.name", "kube-system")]);
        assert_eq!(
            labels_of_pod(&own, "shop", &renamed, "web"),
            labels_of_pod(&own, "shop", &Labels::new(), "web")
        );
    }

    #[test]
    fn same_profile_same_number() {
        let mut book = IdentityBook::default();
        let a = Profile { labels: labels(&[("app", "a")]), ports: NamedPorts::new() };
        let b = Profile { labels: labels(&[("app", "b")]), ports: NamedPorts::new() };
        let named = Profile { ports: [(("web".to_owned(), Proto::Tcp), 80)].into(), ..a.clone() };
        assert_eq!([&a, &b, &named, &a].map(|p| book.number(p)), [256, 257, 258, 256]);
        let identity = Identity { number: 258, labels: named.labels.clone(), ports: named.ports.clone() };
        assert_eq!(*book.identity(&Arc::new(named)), identity);
        assert_eq!(book.len(), 3);
    }
}
