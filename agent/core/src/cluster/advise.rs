//! What is enforced as written and probably not meant.
//!
//! Owns: warnings that need the whole cluster: names that nobody can resolve (CASES R-A04), selectors that mean only
//! host-network pods (K-A09), how deep a `*` goes (N-A01). Must not know: how anything is enforced.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::{IpAddr, SocketAddr},
    sync::Arc,
};

use egret_common::net::Direction;

use super::{Cluster, Key, Resolved, profiles::place};
use crate::{
    identity::{Identity, NamedPorts, Profile},
    labels::Labels,
    names::{Kind, Name, Pattern},
    policy::{CidrPeer, DNS_PORT, Diagnostic, Effect, Entity, Peers, Policies, Policy, Rule, Severity},
    ports::Proto,
};

/// One server of the cluster's DNS.
#[derive(Debug)]
struct Server<'a> {
    at: SocketAddr,
    /// The pod that it is.
    pod: Option<&'a Identity>,
}

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
        let mut out = self.names_without_dns(&pods, &self.servers(resolved));
        for policy in self.policies.values().flatten() {
            out.extend(only_host_network(policy, &pods));
            out.extend(shallow_patterns(policy));
        }
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
            *found = Alike { pod: found.pod.min(one.pod), all_host: found.all_host && one.all_host, ..*found };
        }
        pods
    }

    /// Name rules of pods that no rule lets ask for names.
    fn names_without_dns(&self, pods: &ByLabels<'_>, servers: &[Server<'_>]) -> Vec<Diagnostic> {
        let mut found: BTreeMap<(&Policy, &str), String> = BTreeMap::new();
        let mut selecting_any: BTreeSet<usize> = BTreeSet::new();
        let all = || self.policies.values().flatten();
        let lists: Vec<(&Key, Policies)> =
            pods.values().map(|p| (p.pod, self.profiles.policies(p.profile, all()))).collect();
        for (pod, selecting) in &lists {
            selecting_any.extend(selecting.iter().map(|policy| Arc::as_ptr(policy).addr()));
            for (policy, path, why) in unresolvable(selecting, servers) {
                found.entry((policy, path)).or_insert_with(|| format!("{pod} cannot resolve them: {why}"));
            }
        }
        // A policy that is about nobody yet is judged alone.
        for policy in all().filter(|p| !selecting_any.contains(&Arc::as_ptr(p).addr())) {
            for (policy, path, why) in unresolvable(std::slice::from_ref(policy), servers) {
                found.insert((policy, path), why);
            }
        }
        let tell = |((policy, path), why): ((&Policy, &str), String)| {
            warning(policy, path, format!("names without a rule that lets DNS through: {why}"))
        };
        found.into_iter().map(tell).collect()
    }

    /// The servers themselves: VIPs are judged by what is behind them.
    fn servers<'a>(&self, resolved: &'a Resolved) -> Vec<Server<'a>> {
        let vips: BTreeSet<IpAddr> = self.services.values().flat_map(|s| &s.vips).copied().collect();
        let servers = resolved.resolvers.iter().filter(|r| !vips.contains(&r.ip()));
        let server = |at: &SocketAddr| {
            let number = resolved.world_identities.get(&at.ip());
            Server { at: *at, pod: number.and_then(|n| resolved.peers.get(n)).map(|identity| &**identity) }
        };
        servers.map(server).collect()
    }
}

/// Selectors, of the subject and of peers, that match pods and only such as have no address of their own.
fn only_host_network(policy: &Policy, pods: &ByLabels<'_>) -> Vec<Diagnostic> {
    let mut out = Vec::new();
    if let Some(pod) = only_host(pods, |labels| policy.selects(labels)) {
        let message = format!(
            "selects only pods on their nodes' network, such as {pod}: they are enforced by their cgroup, and no other \
             policy can mean them by their labels"
        );
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

/// The first name rule of each policy, if egress is isolated and nothing lets DNS through; and why.
fn unresolvable<'a>(
    policies: &'a [Arc<Policy>],
    servers: &[Server<'_>],
) -> Vec<(&'a Policy, &'a str, String)> {
    let rules = || policies.iter().flat_map(|p| p.rules());
    let isolated = policies.iter().any(|p| p.isolates().egress);
    if !isolated || rules().any(|r| lets_dns_through(r, servers)) {
        return Vec::new();
    }
    let wrong_port = |r: &Rule| servers.iter().find(|s| reaches(r, s) && opens(r, s, DNS_PORT));
    let why = match rules().find_map(|r| wrong_port(r).map(|s| (r, s.at.port()))) {
        Some((rule, port)) => {
            format!("{} opens port {DNS_PORT}, and the DNS pods listen on {port}", rule.path)
        }
        None => "no rule allows the cluster's DNS over UDP".to_owned(),
    };
    let named = |p: &'a Arc<Policy>| {
        let rule = p.rules().iter().find(|r| matches!(r.peers, Peers::Names(_)))?;
        Some((&**p, rule.path.as_str(), why.clone()))
    };
    policies.iter().filter_map(named).collect()
}

/// Where nothing is known of the cluster's DNS, any way out to port 53 may be it.
fn lets_dns_through(rule: &Rule, servers: &[Server<'_>]) -> bool {
    if servers.is_empty() {
        return rule.opens_dns_to_somebody();
    }
    servers.iter().any(|s| reaches(rule, s) && opens(rule, s, s.at.port()))
}

fn opens(rule: &Rule, server: &Server<'_>, port: u16) -> bool {
    let unnamed = NamedPorts::new();
    rule.ports.covers_at(Proto::Udp.number(), port, server.pod.map_or(&unnamed, |pod| &pod.ports))
}

/// Whether the rule allows and may mean the server.
fn reaches(rule: &Rule, server: &Server<'_>) -> bool {
    let ip = server.at.ip();
    let holds = |peer: &CidrPeer| {
        let meant = server.pod.is_none() || peer.pods;
        meant && peer.net.contains(&ip) && !peer.except.iter().any(|n| n.contains(&ip))
    };
    let allows = rule.direction == Direction::Egress && rule.effect == Effect::Allow;
    allows
        && match &rule.peers {
            Peers::Any | Peers::Resolvers => true,
            Peers::Names(_) | Peers::Nobody => false,
            Peers::Entities(entities) => entities.iter().any(|e| *e != Entity::None),
            Peers::Cidrs(peers) => peers.iter().any(holds),
            Peers::Pods(selectors) => {
                server.pod.is_some_and(|pod| selectors.iter().any(|s| s.matches(&pod.labels)))
            }
        }
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
