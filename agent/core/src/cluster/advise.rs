//! What is enforced as written and probably not meant.
//!
//! Owns: warnings that need the whole cluster: names that nobody can resolve (CASES R-A04), selectors that mean only
//! host-network pods (K-A09), how deep a `*` goes (N-A01). Must not know: how anything is enforced.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::{IpAddr, SocketAddr},
};

use egret_common::net::Direction;

use super::{Cluster, Key, Resolved};
use crate::{
    identity::{Identity, NamedPorts},
    labels::Labels,
    names::{Kind, Name, Pattern},
    policy::{CidrPeer, DNS_PORT, Diagnostic, Effect, Entity, Peers, Policy, Rule, Severity},
    ports::Proto,
};

/// One server of the cluster's DNS.
#[derive(Debug)]
struct Server<'a> {
    at: SocketAddr,
    /// The pod that it is.
    pod: Option<&'a Identity>,
}

/// Live pods by their labels: one of them, and whether all of them are on their nodes' network.
type ByLabels<'a> = BTreeMap<&'a Labels, (&'a Key, bool)>;

impl Cluster {
    /// Warnings about the policies in force; `resolved` is what follows from the same objects.
    #[must_use]
    pub fn advise(&self, resolved: &Resolved) -> Vec<Diagnostic> {
        let mut pods = ByLabels::new();
        for (key, stored) in self.pods.iter().filter(|(_, s)| s.is_live()) {
            let (_, all_host) = pods.entry(&stored.profile.labels).or_insert((key, true));
            *all_host &= stored.pod.host_network;
        }
        let mut out = self.names_without_dns(&pods, &self.servers(resolved));
        for policy in self.policies.values().flatten() {
            out.extend(only_host_network(policy, &pods));
            out.extend(shallow_patterns(policy));
        }
        out.sort();
        out.dedup();
        out
    }

    /// Name rules of pods that no rule lets ask for names.
    fn names_without_dns(&self, pods: &ByLabels<'_>, servers: &[Server<'_>]) -> Vec<Diagnostic> {
        let mut found: BTreeMap<(&Policy, &str), String> = BTreeMap::new();
        let mut selecting_any: BTreeSet<&Policy> = BTreeSet::new();
        for (labels, (pod, _)) in pods {
            let all = self.policies.values().flatten();
            let selecting: Vec<&Policy> = all.filter(|p| p.selects(labels)).collect();
            selecting_any.extend(&selecting);
            for (policy, path, why) in unresolvable(&selecting, servers) {
                found.entry((policy, path)).or_insert_with(|| format!("{pod} cannot resolve them: {why}"));
            }
        }
        // A policy that is about nobody yet is judged alone.
        for policy in self.policies.values().flatten().filter(|p| !selecting_any.contains(p)) {
            for (policy, path, why) in unresolvable(&[policy], servers) {
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
            Server { at: *at, pod: number.and_then(|n| resolved.peers.get(n)) }
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
    let mut selected = pods.iter().filter(|(labels, _)| selects(labels)).map(|(_, found)| found).peekable();
    let (example, _) = *selected.peek()?;
    selected.all(|(_, all_host)| *all_host).then_some(example)
}

/// The first name rule of each policy, if egress is isolated and nothing lets DNS through; and why.
fn unresolvable<'a>(policies: &[&'a Policy], servers: &[Server<'_>]) -> Vec<(&'a Policy, &'a str, String)> {
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
    let named = |p: &&'a Policy| {
        let rule = p.rules().iter().find(|r| matches!(r.peers, Peers::Names(_)))?;
        Some((*p, rule.path.as_str(), why.clone()))
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
