//! What is enforced as written and probably not meant.
//!
//! Owns: warnings that need the whole cluster: names that nobody can resolve (CASES R-A04), selectors that mean only
//! host-network pods (K-A09), how deep a `*` goes (N-A01). Must not know: how anything is enforced.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::{IpAddr, SocketAddr},
};

use egret_common::net::Direction;

use super::{Cluster, Key, Selects};
use crate::{
    labels::Labels,
    names::{Kind, Name, Pattern},
    policy::{CidrPeer, DNS_PORT, Diagnostic, Effect, Entity, Peers, Policy, Rule, Severity},
    ports::Proto,
};

impl Cluster {
    /// Warnings about the policies in force. `resolvers` as in [`super::Resolved`]; empty if nothing is known of them.
    #[must_use]
    pub fn advise(&self, resolvers: &BTreeSet<SocketAddr>, selects: Selects<'_>) -> Vec<Diagnostic> {
        let mut out = self.names_without_dns(resolvers, selects);
        for policy in self.policies.values().flatten() {
            out.extend(self.only_host_network(policy, selects));
            out.extend(shallow_patterns(policy));
        }
        out.sort();
        out.dedup();
        out
    }

    /// Name rules of pods that no rule lets ask for names.
    fn names_without_dns(&self, resolvers: &BTreeSet<SocketAddr>, selects: Selects<'_>) -> Vec<Diagnostic> {
        let servers = self.servers(resolvers);
        let live = self.pods.iter().filter(|(_, s)| s.is_live());
        let examples: BTreeMap<&Labels, &Key> = live.map(|(key, s)| (&s.profile.labels, key)).collect();
        let mut found: BTreeMap<(&Policy, &str), String> = BTreeMap::new();
        let mut selecting_any: BTreeSet<&Policy> = BTreeSet::new();
        for (labels, pod) in examples {
            let all = self.policies.values().flatten();
            let selecting: Vec<&Policy> = all.filter(|p| selects(p, labels)).collect();
            selecting_any.extend(&selecting);
            for (policy, path, why) in unresolvable(&selecting, &servers) {
                found.entry((policy, path)).or_insert_with(|| format!("{pod} cannot resolve them: {why}"));
            }
        }
        // A policy that is about nobody yet is judged alone.
        for policy in self.policies.values().flatten().filter(|p| !selecting_any.contains(p)) {
            for (policy, path, why) in unresolvable(&[policy], &servers) {
                found.insert((policy, path), why);
            }
        }
        let tell = |((policy, path), why): ((&Policy, &str), String)| {
            warning(policy, path, format!("names without a rule that lets DNS through: {why}"))
        };
        found.into_iter().map(tell).collect()
    }

    /// The servers themselves: VIPs are judged by what is behind them.
    fn servers(&self, resolvers: &BTreeSet<SocketAddr>) -> BTreeSet<SocketAddr> {
        let vips: BTreeSet<IpAddr> = self.services.values().flat_map(|s| &s.vips).copied().collect();
        resolvers.iter().filter(|r| !vips.contains(&r.ip())).copied().collect()
    }

    fn only_host_network(&self, policy: &Policy, selects: Selects<'_>) -> Option<Diagnostic> {
        let mut selected = self.selected(policy, selects).peekable();
        let (example, _) = selected.peek()?;
        let example = example.to_string();
        selected.all(|(_, pod)| pod.host_network).then(|| {
            let message = format!(
                "selects only pods on their nodes' network, such as {example}: they are enforced by cgroup, and other \
                 policies cannot mean them by their labels"
            );
            warning(policy, "", message)
        })
    }
}

/// The first name rule of each policy, if egress is isolated and nothing lets DNS through; and why.
fn unresolvable<'a>(
    policies: &[&'a Policy],
    servers: &BTreeSet<SocketAddr>,
) -> Vec<(&'a Policy, &'a str, String)> {
    let rules = || policies.iter().flat_map(|p| p.rules());
    let isolated = policies.iter().any(|p| p.isolates().egress);
    if !isolated || rules().any(|r| reaches(r, servers) && opens_port(r, servers)) {
        return Vec::new();
    }
    let why = match rules().find(|r| reaches(r, servers) && r.ports.covers(Proto::Udp.number(), DNS_PORT)) {
        Some(rule) => {
            let ports: BTreeSet<String> = servers.iter().map(|s| s.port().to_string()).collect();
            let ports: Vec<String> = ports.into_iter().collect();
            format!("{} opens port 53, and the DNS pods listen on {}", rule.path, ports.join(", "))
        }
        None => "no rule allows the cluster's DNS over UDP".to_owned(),
    };
    let named = |p: &&'a Policy| {
        let rule = p.rules().iter().find(|r| matches!(r.peers, Peers::Names(_)))?;
        Some((*p, rule.path.as_str(), why.clone()))
    };
    policies.iter().filter_map(named).collect()
}

fn opens_port(rule: &Rule, servers: &BTreeSet<SocketAddr>) -> bool {
    let covers = |port| rule.ports.covers(Proto::Udp.number(), port);
    if servers.is_empty() { covers(DNS_PORT) } else { servers.iter().any(|s| covers(s.port())) }
}

/// Whether the rule may mean a DNS server; where nothing is known of them, it is given the benefit of the doubt.
fn reaches(rule: &Rule, servers: &BTreeSet<SocketAddr>) -> bool {
    if rule.direction != Direction::Egress || rule.effect != Effect::Allow {
        return false;
    }
    let holds =
        |peer: &CidrPeer, ip: IpAddr| peer.net.contains(&ip) && !peer.except.iter().any(|n| n.contains(&ip));
    match &rule.peers {
        Peers::Names(_) | Peers::Nobody => false,
        Peers::Entities(entities) => entities.iter().any(|e| *e != Entity::None),
        Peers::Cidrs(peers) if !servers.is_empty() => {
            peers.iter().any(|peer| servers.iter().any(|s| holds(peer, s.ip())))
        }
        _ => true,
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
