//! Which labels make an identity: Cilium's default list (`pkg/labelsfilter`, POLICY-APIS 3). Others count where a policy
//! asks for them, which [`crate::cluster`] sees to.
//!
//! Owns: the list and its rule of precedence. Must not know: pods, namespaces, numbers.

use crate::labels::{CLUSTER, NAMESPACE_LABELS, POD_NAMESPACE, SERVICE_ACCOUNT};

/// A key that begins with one of these counts, unless a longer part of it is excluded.
const INCLUDED: [&str; 5] = [POD_NAMESPACE, NAMESPACE_LABELS, "app.kubernetes.io", CLUSTER, SERVICE_ACCOUNT];

/// A key that begins with one of these does not count: it differs from pod to pod, or is nobody's intention.
const EXCLUDED: [&str; 13] = [
    "io.kubernetes",
    "kubernetes.io",
    "statefulset.kubernetes.io/pod-name",
    "apps.kubernetes.io/pod-index",
    "batch.kubernetes.io/job-completion-index",
    "batch.kubernetes.io/controller-uid",
    "k8s.io",
    "pod-template-generation",
    "pod-template-hash",
    "controller-revision-hash",
    "controller-uid",
    "etcd_node",
    "topology.kubernetes.io",
];

/// Does not count wherever it stands in the key.
const BETA: &str = "beta.kubernetes.io";
/// A key that begins so is excluded with its whole length.
const ANNOTATION: &str = "annotation";

/// Whether a label with this key is part of the identity: it is not excluded, or the longest inclusion covers more of
/// the key than the shortest exclusion.
#[must_use]
pub fn is_relevant(key: &str) -> bool {
    match excluded(key) {
        None => true,
        Some(excluded) => included(key).is_some_and(|included| included > excluded),
    }
}

/// Length of the longest inclusion.
fn included(key: &str) -> Option<usize> {
    INCLUDED.iter().filter(|p| key.starts_with(**p)).map(|p| p.len()).max()
}

/// Length of the shortest exclusion.
fn excluded(key: &str) -> Option<usize> {
    let plain = EXCLUDED.iter().filter(|p| key.starts_with(**p)).map(|p| p.len());
    let beta = key.rfind(BETA).map(|at| at + BETA.len());
    let annotation = key.starts_with(ANNOTATION).then_some(key.len());
    plain.chain(beta).chain(annotation).min()
}

#[cfg(test)]
mod tests {
    use super::is_relevant;

    fn check(key: &str, want: bool) {
        assert_eq!(is_relevant(key), want, "{key}");
    }

    #[test]
    fn what_people_select_by_counts() {
        for key in [
            "app",
            "role",
            "k8s-app",
            "app.kubernetes.io/name",
            "app.kubernetes.io",
            "example.com/team",
            "io.kubernetes.pod.namespace",
            "io.cilium.k8s.policy.cluster",
            "io.cilium.k8s.policy.serviceaccount",
            "io.cilium.k8s.namespace.labels.kubernetes.io/metadata.name",
            "io.cilium.k8s.namespace.labels.topology.kubernetes.io/zone",
            "io.cilium.k8s.namespace.labels.pod-template-hash",
            "ioXkubernetes",
            "job-name",
            "batch.kubernetes.io/job-name",
            "statefulset.kubernetes.io/other",
            "",
        ] {
            check(key, true);
        }
    }

    #[test]
    fn what_differs_from_pod_to_pod_does_not() {
        for key in [
            "pod-template-hash",
            "pod-template-generation",
            "controller-revision-hash",
            "controller-uid",
            "batch.kubernetes.io/controller-uid",
            "batch.kubernetes.io/job-completion-index",
            "statefulset.kubernetes.io/pod-name",
            "apps.kubernetes.io/pod-index",
            "io.kubernetes.pod.name",
            "kubernetes.io/os",
            "beta.kubernetes.io/arch",
            "failure-domain.beta.kubernetes.io/zone",
            "topology.kubernetes.io/zone",
            "k8s.io/x",
            "annotation.example",
            "etcd_node",
            // As in Cilium: the exclusion is found behind the inclusion and covers more.
            "io.cilium.k8s.namespace.labels.beta.kubernetes.io/os",
        ] {
            check(key, false);
        }
    }
}
