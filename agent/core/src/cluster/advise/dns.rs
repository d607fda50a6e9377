//! Name rules of pods that no rule lets ask for names (CASES R-A04).
//!
//! Owns: whether the pods' own policies let DNS through to the cluster's servers. Must not know: how DNS is learned.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::{IpAddr, SocketAddr},
};

use egret_common::net::Direction;

use super::{
    super::{Cluster, Key, Resolved},
    warning,
};
use crate::{
    identity::{Identity, NamedPorts},
    policy::{CidrPeer, DNS_PORT, Diagnostic, Effect, Entity, Peers, Policy, Rule, Tier, in_order},
    ports::Proto,
};

/// One server of the cluster's DNS.
#[derive(Debug)]
pub(super) struct Server<'a> {
    at: SocketAddr,
    /// The pod that it is.
    pod: Option<&'a Identity>,
}

impl Cluster {
    /// The servers themselves: VIPs are judged by what is behind them.
    pub(super) fn dns_servers<'a>(&self, resolved: &'a Resolved) -> Vec<Server<'a>> {
        let vips: BTreeSet<IpAddr> = self.services.values().flat_map(|s| &s.vips).copied().collect();
        let servers = resolved.resolvers.iter().filter(|r| !vips.contains(&r.ip()));
        let server = |at: &SocketAddr| {
            let number = resolved.world_identities.get(&at.ip());
            Server { at: *at, pod: number.and_then(|n| resolved.peers.get(n)).map(|identity| &**identity) }
        };
        servers.map(server).collect()
    }
}

/// `selecting`: pods, one of each kind, with the policies that are about them.
pub(super) fn names_without<'a>(
    policies: &[&'a Policy],
    selecting: impl Iterator<Item = (&'a Key, Vec<&'a Policy>)>,
    servers: &[Server<'_>],
) -> Vec<Diagnostic> {
    let mut found: BTreeMap<(&Policy, &str), String> = BTreeMap::new();
    let mut selecting_any: BTreeSet<*const Policy> = BTreeSet::new();
    for (pod, selecting) in selecting {
        selecting_any.extend(selecting.iter().map(|policy| std::ptr::from_ref(*policy)));
        for (policy, path, why) in unresolvable(&selecting, servers) {
            found.entry((policy, path)).or_insert_with(|| format!("{pod} cannot resolve them: {why}"));
        }
    }
    // A policy that is about nobody yet is judged alone.
    for policy in policies.iter().filter(|p| !selecting_any.contains(&std::ptr::from_ref(**p))) {
        for (policy, path, why) in unresolvable(&[policy], servers) {
            found.insert((policy, path), why);
        }
    }
    let tell = |((policy, path), why): ((&Policy, &str), String)| {
        warning(policy, path, format!("names without a rule that lets DNS through: {why}"))
    };
    found.into_iter().map(tell).collect()
}

/// The first name rule of each policy, if nothing lets DNS through; and why.
fn unresolvable<'a>(policies: &[&'a Policy], servers: &[Server<'_>]) -> Vec<(&'a Policy, &'a str, String)> {
    let named = |p: &&'a Policy| {
        let rule = p.rules().iter().find(|r| matches!(r.peers, Peers::Names(_)))?;
        Some((*p, rule.path.as_str()))
    };
    let named: Vec<_> = policies.iter().filter_map(named).collect();
    if named.is_empty() || lets_dns_through(policies, servers) {
        return Vec::new();
    }
    let rules = || policies.iter().flat_map(|p| p.rules()).filter(|r| r.effect == Effect::Allow);
    let wrong_port = |r: &Rule| servers.iter().find(|s| reaches(r, s) && opens(r, s, DNS_PORT));
    let why = match rules().find_map(|r| wrong_port(r).map(|s| (r, s.at.port()))) {
        Some((rule, port)) => {
            format!("{} opens port {DNS_PORT}, and the DNS pods listen on {port}", rule.path)
        }
        None => "no rule allows the cluster's DNS over UDP".to_owned(),
    };
    named.into_iter().map(|(policy, path)| (policy, path, why.clone())).collect()
}

/// Where nothing is known of the cluster's DNS, any way out to port 53 may be it.
fn lets_dns_through(policies: &[&Policy], servers: &[Server<'_>]) -> bool {
    let somewhere = |r: &Rule| match r.effect {
        Effect::Allow => r.opens_dns_to_somebody(),
        Effect::Deny | Effect::Pass => means_everybody(r) && r.ports.covers(Proto::Udp.number(), DNS_PORT),
    };
    if servers.is_empty() {
        return passes(policies, somewhere);
    }
    servers.iter().any(|s| passes(policies, |r| reaches(r, s) && opens(r, s, s.at.port())))
}

/// Whether the policies let through what some of their rules match. Denials of the Normal tier are not looked at: they
/// are seldom about DNS, and always on purpose.
fn passes(policies: &[&Policy], matches: impl Fn(&Rule) -> bool) -> bool {
    let matches = |r: &Rule| r.direction == Direction::Egress && matches(r);
    let first = |tier| {
        let mut rules = in_order(policies.iter().copied()).into_iter();
        rules.find(|(of, _, r)| *of == tier && matches(r)).map(|(.., r)| r.effect)
    };
    match first(Tier::Admin) {
        Some(Effect::Allow) => return true,
        Some(Effect::Deny) => return false,
        Some(Effect::Pass) | None => {}
    }
    let normal = || policies.iter().filter(|p| p.standing().tier == Tier::Normal);
    let allows = |r: &Rule| r.effect == Effect::Allow && matches(r);
    if normal().flat_map(|p| p.rules()).any(allows) {
        return true;
    }
    !normal().any(|p| p.isolates().egress) && first(Tier::Baseline) != Some(Effect::Deny)
}

/// Whether there is surely no DNS server that the rule does not mean.
fn means_everybody(rule: &Rule) -> bool {
    match &rule.peers {
        Peers::Any => true,
        Peers::Cidrs(nets) => nets.iter().any(|n| n.pods && n.except.is_empty() && n.net.prefix_len() == 0),
        _ => false,
    }
}

fn opens(rule: &Rule, server: &Server<'_>, port: u16) -> bool {
    let unnamed = NamedPorts::new();
    rule.ports.covers_at(Proto::Udp.number(), port, server.pod.map_or(&unnamed, |pod| &pod.ports))
}

/// Whether the rule may mean the server.
fn reaches(rule: &Rule, server: &Server<'_>) -> bool {
    let ip = server.at.ip();
    let holds = |peer: &CidrPeer| {
        let meant = server.pod.is_none() || peer.pods;
        meant && peer.net.contains(&ip) && !peer.except.iter().any(|n| n.contains(&ip))
    };
    rule.direction == Direction::Egress
        && match &rule.peers {
            Peers::Any | Peers::Resolvers => true,
            Peers::Names(_) | Peers::Nobody | Peers::Objects(_) => false,
            Peers::Entities(entities) => entities.iter().any(|e| *e != Entity::None),
            Peers::Cidrs(peers) => peers.iter().any(holds),
            Peers::Pods(selectors) => {
                server.pod.is_some_and(|pod| selectors.iter().any(|s| s.matches(&pod.labels)))
            }
        }
}
