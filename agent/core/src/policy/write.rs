//! Writes a CiliumNetworkPolicy from what a workload used, for `egret run --write-policy`.
//!
//! Owns: the text and its order, which depend on the uses alone. Must not know: how uses are observed.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Write,
    net::IpAddr,
};

use super::DNS_PORT;
use crate::{
    names::{Name, Pattern},
    net::host_net,
    ports::Proto,
};

/// What an API entry holds at most.
const MAX_ENTRIES: usize = 40;

/// Whom the workload talked to.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum UsedPeer {
    /// An address that was learned for this name.
    Name(Name),
    /// An address without a name.
    Address(IpAddr),
}

/// One destination of a workload.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Use {
    /// The other side.
    pub peer: UsedPeer,
    /// Protocol.
    pub proto: Proto,
    /// Destination port; ICMP: type << 8 | code.
    pub port: u16,
}

type PortSet = BTreeSet<(Proto, u16)>;

/// A policy that opens exactly `uses`, and the questions for their names and for the names in `asked`. `name` becomes
/// the object's name. What the language cannot say stands in a comment.
#[must_use]
pub fn write(name: &str, uses: &BTreeSet<Use>, asked: &BTreeSet<Name>) -> String {
    let mut by_name: BTreeMap<&Name, PortSet> = BTreeMap::new();
    let mut by_address: BTreeMap<IpAddr, PortSet> = BTreeMap::new();
    for u in uses {
        let ports = match &u.peer {
            UsedPeer::Name(name) => by_name.entry(name).or_default(),
            UsedPeer::Address(ip) => by_address.entry(ip.to_canonical()).or_default(),
        };
        ports.insert((u.proto, u.port));
    }
    let writable = |name: &&Name| Pattern::match_name(name.as_str()).is_ok();
    let names: BTreeSet<&Name> = by_name.keys().copied().chain(asked).collect();
    let mut out = head(name);
    for name in names.iter().filter(|n| !writable(n)) {
        let _ = writeln!(out, "  # not written, since no policy can name it: {name}");
    }
    out.push_str("  egress:\n");
    let names: Vec<&Name> = names.into_iter().filter(writable).collect();
    by_name.retain(|name, _| writable(name));
    dns_rule(&mut out, &names);
    let fqdns = by_name.into_iter().map(|(name, ports)| (format!("matchName: \"{name}\""), ports));
    peer_rules(&mut out, "toFQDNs", fqdns);
    let cidrs = by_address.into_iter().map(|(ip, ports)| (format!("\"{}\"", host_net(ip)), ports));
    peer_rules(&mut out, "toCIDR", cidrs);
    if out.ends_with("egress:\n") {
        out.push_str("  - {}\n");
    }
    out
}

fn head(name: &str) -> String {
    format!(
        "apiVersion: cilium.io/v2\nkind: CiliumNetworkPolicy\nmetadata:\n  name: {name}\nspec:\n  \
         description: \"Written by egret from what was used\"\n  endpointSelector: {{}}\n"
    )
}

fn dns_rule(out: &mut String, names: &[&Name]) {
    if names.is_empty() {
        return;
    }
    out.push_str(concat!(
        "  - toEndpoints:\n",
        "    - matchLabels:\n",
        "        \"k8s:io.kubernetes.pod.namespace\": kube-system\n",
        "        \"k8s:k8s-app\": kube-dns\n",
        "    toPorts:\n",
        "    - ports:\n",
    ));
    for protocol in ["UDP", "TCP"] {
        let _ = writeln!(out, "      - port: \"{DNS_PORT}\"\n        protocol: {protocol}");
    }
    out.push_str("      rules:\n        dns:\n");
    for name in names {
        let _ = writeln!(out, "        - matchName: \"{name}\"");
    }
}

/// One rule per set of ports, with all peers that used exactly that set. ICMP stands in a rule of its own.
fn peer_rules(out: &mut String, field: &str, peers: impl Iterator<Item = (String, PortSet)>) {
    let mut groups: BTreeMap<PortSet, Vec<String>> = BTreeMap::new();
    for (peer, ports) in peers {
        let (icmp, ported): (PortSet, PortSet) = ports.into_iter().partition(|(p, _)| is_icmp(*p));
        for set in [ported, icmp].into_iter().filter(|s| !s.is_empty()) {
            groups.entry(set).or_default().push(peer.clone());
        }
    }
    let mut rules: Vec<(Vec<String>, PortSet)> =
        groups.into_iter().map(|(ports, peers)| (peers, ports)).collect();
    rules.sort();
    for (peers, ports) in rules {
        let _ = writeln!(out, "  - {field}:");
        for peer in peers {
            let _ = writeln!(out, "    - {peer}");
        }
        let ports: Vec<_> = ports.into_iter().collect();
        if ports.iter().any(|(p, _)| is_icmp(*p)) {
            icmp_fields(out, &ports);
        } else {
            port_blocks(out, &ports);
        }
    }
}

fn port_blocks(out: &mut String, ports: &[(Proto, u16)]) {
    out.push_str("    toPorts:\n");
    for block in ports.chunks(MAX_ENTRIES) {
        out.push_str("    - ports:\n");
        for (proto, port) in block {
            let protocol = proto.to_string().to_uppercase();
            let _ = writeln!(out, "      - port: \"{port}\"\n        protocol: {protocol}");
        }
    }
}

fn icmp_fields(out: &mut String, ports: &[(Proto, u16)]) {
    let types: BTreeSet<(&str, u16)> =
        ports.iter().map(|(p, port)| (if *p == Proto::Icmp { "IPv4" } else { "IPv6" }, port >> 8)).collect();
    let types: Vec<_> = types.into_iter().collect();
    out.push_str("    icmps:\n");
    for block in types.chunks(MAX_ENTRIES) {
        out.push_str("    - fields:\n");
        for (family, number) in block {
            let _ = writeln!(out, "      - family: {family}\n        type: {number}");
        }
    }
}

fn is_icmp(proto: Proto) -> bool {
    matches!(proto, Proto::Icmp | Proto::Icmpv6)
}

#[cfg(test)]
mod tests;
