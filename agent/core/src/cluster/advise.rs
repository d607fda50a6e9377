//! What is enforced as written and probably not meant.
//!
//! Owns: warnings that need the whole cluster: names that nobody can resolve (CASES R-A04, in `dns`), selectors that mean
//! only host-network pods (K-A09), how deep a `*` goes (N-A01), objects that are not there, policies of equal priority.
//! Must not know: how anything is enforced.

mod dns;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use super::{Cluster, Key, Resolved, addresses::Owners, profiles::place};
use crate::{
    identity::Profile,
    labels::Labels,
    names::{Kind, Name, Pattern},
    policy::{Diagnostic, Peers, Policies, Policy, Rule, Severity, Standing, Subject, Tier},
};

/// Live pods by their labels.
type ByLabels<'a> = BTreeMap<&'a Labels, Alike<'a>>;

/// Live pods with the same labels.
#[derive(Debug, Clone, Copy)]
struct Alike<'a> {
    /// One of them.
    pod: &'a Key,
    profile: &'a Arc<Profile>,
    /// All of them are on their nodes' network.
    all_host: bool,
}

impl Cluster {
    /// Warnings about the policies in force; `resolved` is what follows from the same objects.
    #[must_use]
    pub fn advise(&self, resolved: &Resolved) -> Vec<Diagnostic> {
        let pods = self.by_labels();
        // Whose an address is matters only to services by labels that belong to no identity, none of which is DNS.
        let (addresses, of_nodes) = Default::default();
        let grounded = self.grounded(&Owners::new(&addresses, &of_nodes));
        let all = || self.policies.values().flatten();
        let about = |alike: &Alike<'_>| self.profiles.policies(alike.profile, alike.all_host, all());
        let lists: Vec<(&Key, Policies)> = pods.values().map(|alike| (alike.pod, about(alike))).collect();
        let policies: Vec<&Policy> = all().map(|p| &**grounded.get(p)).collect();
        let selecting = lists.iter().map(|(pod, list)| {
            let list: Vec<&Policy> = list.iter().map(|p| &**grounded.get(p)).collect();
            (*pod, list)
        });
        let mut out = dns::names_without(&policies, selecting, &self.dns_servers(resolved));
        for policy in self.policies.values().flatten() {
            out.extend(only_host_network(policy, &pods));
            out.extend(shallow_patterns(policy));
            out.extend(about_nodes(policy));
            out.extend(self.missing_objects(policy));
        }
        out.extend(equal_priorities(&policies));
        out.sort();
        out.dedup();
        out
    }

    fn by_labels(&self) -> ByLabels<'_> {
        let mut alike: BTreeMap<usize, Alike<'_>> = BTreeMap::new();
        for (pod, stored) in self.pods.iter().filter(|(_, s)| s.is_live()) {
            let first = Alike { pod, profile: &stored.profile, all_host: true };
            let found = alike.entry(place(&stored.profile)).or_insert(first);
            found.all_host &= stored.pod.host_network;
        }
        let mut pods = ByLabels::new();
        for one in alike.into_values() {
            // Pods that differ in their ports alone.
            let found = pods.entry(&one.profile.labels).or_insert(one);
            *found =
                Alike { pod: found.pod.min(one.pod), all_host: found.all_host && one.all_host, ..*found };
        }
        pods
    }

    /// Rules that name what is not there (yet): they mean nobody for now.
    fn missing_objects(&self, policy: &Policy) -> Vec<Diagnostic> {
        let mut out = Vec::new();
        for rule in policy.rules() {
            let Peers::Objects(references) = &rule.peers else { continue };
            for reference in references.iter().filter(|r| !self.exists(r)) {
                let message =
                    format!("there is no {reference}: the rule means nobody by it until there is one");
                out.push(warning(policy, &rule.path, message));
            }
        }
        out
    }
}

/// Which of two policies of one priority is asked first, the API leaves open.
fn equal_priorities(policies: &[&Policy]) -> Vec<Diagnostic> {
    let mut places: BTreeMap<Standing, Vec<&Policy>> = BTreeMap::new();
    for policy in policies.iter().filter(|p| p.standing().tier != Tier::Normal) {
        places.entry(policy.standing()).or_default().push(policy);
    }
    let mut out = Vec::new();
    for (standing, mut sharing) in places {
        sharing.sort_by_key(|p| p.origin());
        for pair in sharing.windows(2) {
            let message = format!(
                "has the priority {} of {} in the same tier: that one is asked first, by its name",
                standing.priority,
                pair[0].origin()
            );
            out.push(warning(pair[1], "spec.priority", message));
        }
    }
    out
}

/// A policy for nodes: nothing holds what runs on them outside of pods.
fn about_nodes(policy: &Policy) -> Option<Diagnostic> {
    let nodes = matches!(policy.subject(), Subject::Nodes(_));
    let message = "is about nodes, which nothing holds to policies yet: it enforces nothing";
    nodes.then(|| warning(policy, "", message.to_owned()))
}

/// Selectors, of the subject and of peers, that match pods and only such as have no address of their own.
fn only_host_network(policy: &Policy, pods: &ByLabels<'_>) -> Vec<Diagnostic> {
    let mut out = Vec::new();
    if let Some(pod) = only_host(pods, |labels| policy.selects(labels)) {
        let consequence = match policy.standing().tier {
            Tier::Normal => {
                "they are enforced by their cgroup, and no other policy can mean them by their labels"
            }
            Tier::Admin | Tier::Baseline => "a ClusterNetworkPolicy is never about those",
        };
        let message = format!("selects only pods on their nodes' network, such as {pod}: {consequence}");
        out.push(warning(policy, "", message));
    }
    for rule in policy.rules() {
        let Peers::Pods(selectors) = &rule.peers else { continue };
        for selector in selectors {
            if let Some(pod) = only_host(pods, |labels| selector.matches(labels)) {
                let message = format!(
                    "`{selector}` means only pods on their nodes' network, such as {pod}: their address is the node's, \
                     which no label opens or denies"
                );
                out.push(warning(policy, &rule.path, message));
            }
        }
    }
    out
}

fn only_host<'a>(pods: &ByLabels<'a>, selects: impl Fn(&Labels) -> bool) -> Option<&'a Key> {
    // Few pods are on their nodes' network: if none of them is meant, the others need not be asked.
    let mut on_host = pods.iter().filter(|(_, alike)| alike.all_host);
    let (_, example) = on_host.find(|(labels, _)| selects(labels))?;
    let mut others = pods.iter().filter(|(_, alike)| !alike.all_host);
    (!others.any(|(labels, _)| selects(labels))).then_some(example.pod)
}

/// `*.x` of a CiliumNetworkPolicy is one label deep, which surprises whoever comes from elsewhere.
fn shallow_patterns(policy: &Policy) -> Vec<Diagnostic> {
    if !policy.origin().kind.starts_with("Cilium") {
        return Vec::new();
    }
    let patterns = |rule: &Rule| -> Vec<Pattern> {
        let named = match &rule.peers {
            Peers::Names(named) => named.as_slice(),
            _ => &[],
        };
        named.iter().chain(rule.dns.iter().flatten()).cloned().collect()
    };
    let all: BTreeSet<Pattern> = policy.rules().iter().flat_map(patterns).collect();
    let deep = |suffix: &Name| all.iter().any(|p| matches!(p.kind(), Kind::DeepSuffix(n) if n == suffix));
    let mut told = BTreeSet::new();
    let mut out = Vec::new();
    for rule in policy.rules() {
        for pattern in patterns(rule) {
            if let Kind::OneLabelSuffix(suffix) = pattern.kind()
                && !deep(suffix)
                && told.insert(pattern.clone())
            {
                let message = format!(
                    "`{pattern}` means names with one label more than `{suffix}`, such as a.{suffix}; for a.b.{suffix} write \
                     `**.{suffix}`"
                );
                out.push(warning(policy, &rule.path, message));
            }
        }
    }
    out
}

fn warning(policy: &Policy, path: &str, message: String) -> Diagnostic {
    Diagnostic {
        severity: Severity::Warning,
        object: policy.origin().to_string(),
        path: path.to_owned(),
        message,
    }
}
