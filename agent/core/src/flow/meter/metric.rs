//! Which flows a metric counts, and by which labels of its own.

use egret_common::net::Direction;
use egret_common::verdict::Verdict;

use crate::flow::summary::{icmpv4, icmpv6, rcode};
use crate::flow::{Dns, Flow, Kind, L4};

/// Hubble's number of "no rule allowed it".
const POLICY_DENIED: u32 = 133;
/// Identity of the node itself.
const HOST: u32 = egret_common::ids::identity::HOST;
const WORLD: &str = "reserved:world";
/// TCP flags of a first packet.
const SYN: u16 = 0x02;
const ACK: u16 = 0x10;
const RST: u16 = 0x04;
const FIN: u16 = 0x01;

/// A metric with its options.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Metric {
    Dns { query: bool, ignore_aaaa: bool },
    Drop,
    Flow,
    ToWorld { any_drop: bool, port: bool, syn_only: bool },
    Tcp,
    Ports,
    Policy,
    Icmp,
}

/// Name, meaning, and labels of its own.
pub(super) type Described = (&'static str, &'static str, Vec<&'static str>);
/// Takes which of the metric's families counts, and the values of its labels.
type Add<'a> = &'a mut dyn FnMut(usize, &[&str]);

impl Metric {
    /// What users call them.
    pub(super) const KEYS: [&str; 8] =
        ["dns", "drop", "flow", "flows-to-world", "tcp", "port-distribution", "policy", "icmp"];

    pub(super) fn of(key: &str) -> Option<Self> {
        Some(match key {
            "dns" => Self::Dns { query: false, ignore_aaaa: false },
            "drop" => Self::Drop,
            "flow" => Self::Flow,
            "flows-to-world" => Self::ToWorld { any_drop: false, port: false, syn_only: false },
            "tcp" => Self::Tcp,
            "port-distribution" => Self::Ports,
            "policy" => Self::Policy,
            "icmp" => Self::Icmp,
            _ => return None,
        })
    }

    /// Sets an option, whose name is in lower case; says whether there is one.
    pub(super) fn set(&mut self, option: &str) -> bool {
        let place = match (self, option) {
            (Self::Dns { query, .. }, "query") => query,
            (Self::Dns { ignore_aaaa, .. }, "ignoreaaaa") => ignore_aaaa,
            (Self::ToWorld { any_drop, .. }, "any-drop") => any_drop,
            (Self::ToWorld { port, .. }, "port") => port,
            (Self::ToWorld { syn_only, .. }, "syn-only") => syn_only,
            _ => return false,
        };
        *place = true;
        true
    }

    pub(super) fn families(&self) -> Vec<Described> {
        match self {
            Self::Dns { query, .. } => dns_families(*query),
            Self::Drop => {
                vec![("drop", "Packets and look-ups that were dropped", vec!["reason", "protocol"])]
            }
            Self::Flow => {
                let labels = vec!["protocol", "type", "subtype", "verdict"];
                vec![("flows_processed", "Flows", labels)]
            }
            Self::ToWorld { port, .. } => {
                let labels = ["protocol", "verdict"].into_iter().chain(port.then_some("port")).collect();
                vec![("flows_to_world", "Flows to reserved:world", labels)]
            }
            Self::Tcp => {
                let help = "TCP flags of first packets that were let through";
                vec![("tcp_flags", help, vec!["flag", "family"])]
            }
            Self::Ports => {
                let help = "Flows that were let through, by destination port";
                vec![("port_distribution", help, vec!["protocol", "port"])]
            }
            Self::Policy => {
                vec![("policy_verdicts", "Verdicts of policies", vec!["direction", "match", "action"])]
            }
            Self::Icmp => vec![("icmp", "ICMP messages", vec!["family", "type"])],
        }
    }

    /// Says by which labels the flow counts, if it does.
    pub(super) fn rows(&self, flow: &Flow, add: Add<'_>) {
        match self {
            Self::Dns { query, ignore_aaaa } => dns(flow, *query, *ignore_aaaa, add),
            Self::Drop => drop(flow, add),
            Self::Flow => {
                let (kind, sub) = kind(flow);
                add(0, &[protocol(flow), kind, sub, verdict(flow.verdict)]);
            }
            Self::ToWorld { any_drop, port, syn_only } => to_world(flow, *any_drop, *port, *syn_only, add),
            Self::Tcp => tcp(flow, add),
            Self::Ports => ports(flow, add),
            Self::Policy => policy(flow, add),
            Self::Icmp => icmp(flow, add),
        }
    }
}

fn dns_families(query: bool) -> Vec<Described> {
    let with = |labels: &[&'static str]| labels.iter().copied().chain(query.then_some("query")).collect();
    let counts = ["rcode", "qtypes", "ips_returned"];
    vec![
        ("dns_queries", "DNS queries", with(&counts)),
        ("dns_responses", "DNS responses", with(&counts)),
        ("dns_response_types", "Types of the records of DNS responses", with(&["type", "qtypes"])),
    ]
}

fn dns(flow: &Flow, query: bool, ignore_aaaa: bool, add: Add<'_>) {
    let Some(dns) = &flow.dns else { return };
    if ignore_aaaa && dns.qtypes == ["AAAA"] {
        return;
    }
    let (types, ips) = (dns.qtypes.join(","), dns.ips.len().to_string());
    let mut with = |family, labels: &[&str]| match query {
        true => add(family, &[labels, &[&dns.query]].concat()),
        false => add(family, labels),
    };
    if flow.verdict == Verdict::Dropped {
        with(0, &["Policy denied", &types, &ips]);
    } else if dns.response {
        with(1, &[&response_code(dns), &types, &ips]);
        dns.rrtypes.iter().for_each(|kind| with(2, &[kind, &types]));
    } else {
        with(0, &["", &types, &ips]);
    }
}

fn response_code(dns: &Dns) -> String {
    if dns.rcode == 0 { "No Error".to_owned() } else { rcode(dns.rcode) }
}

/// Each packet once: the verdict about it is another flow.
fn drop(flow: &Flow, add: Add<'_>) {
    if flow.verdict == Verdict::Dropped && matches!(flow.kind, Kind::Drop | Kind::L7) {
        add(0, &[reason(flow.hubble_reason()), protocol(flow)]);
    }
}

/// The name in Hubble's enumeration, of the reasons that Egret has.
fn reason(number: u32) -> &'static str {
    match number {
        132 => "INVALID_SOURCE_IP",
        POLICY_DENIED => "POLICY_DENIED",
        134 => "INVALID_PACKET_DROPPED",
        135 => "CT_TRUNCATED_OR_INVALID_HEADER",
        142 => "UNKNOWN_L4_PROTOCOL",
        155 => "CT_MAP_INSERTION_FAILED",
        156 => "INVALID_IPV6_EXTENSION_HEADER",
        175 => "FIRST_LOGICAL_DATAGRAM_FRAGMENT_NOT_FOUND",
        181 => "POLICY_DENY",
        203 => "DROP_EP_NOT_READY",
        _ => "DROP_REASON_UNKNOWN",
    }
}

fn to_world(flow: &Flow, any_drop: bool, port: bool, syn_only: bool, add: Add<'_>) {
    let dropped = flow.verdict == Verdict::Dropped;
    let is_reply = flow.is_reply == Some(true);
    let begins = matches!(flow.l4, L4::Tcp { flags, .. } if flags & SYN != 0);
    if flow.kind == Kind::End
        || !flow.destination.labels.iter().any(|label| label == WORLD)
        || (dropped && !any_drop && flow.hubble_reason() != POLICY_DENIED)
        || (!dropped && is_reply)
        || (syn_only && (is_reply || !begins))
    {
        return;
    }
    let number = flow.l4.ports().map(|(_, port)| port.to_string()).unwrap_or_default();
    let labels = [protocol(flow), verdict(flow.verdict), &number];
    add(0, if port { &labels } else { &labels[..2] });
}

fn tcp(flow: &Flow, add: Add<'_>) {
    let L4::Tcp { flags, .. } = flow.l4 else { return };
    if flow.verdict != Verdict::Forwarded || flow.kind == Kind::End {
        return;
    }
    let family = if flow.ip_version() == 2 { "IPv6" } else { "IPv4" };
    let syn = if flags & ACK != 0 { "SYN-ACK" } else { "SYN" };
    for (bit, name) in [(FIN, "FIN"), (SYN, syn), (RST, "RST")] {
        if flags & bit != 0 {
            add(0, &[name, family]);
        }
    }
}

fn ports(flow: &Flow, add: Add<'_>) {
    if flow.verdict == Verdict::Forwarded && flow.is_reply == Some(false) && flow.kind != Kind::End {
        let port = flow.l4.ports().map_or(0, |(_, port)| port).to_string();
        add(0, &[transport(flow.l4), &port]);
    }
}

fn policy(flow: &Flow, add: Add<'_>) {
    let action = match flow.verdict {
        Verdict::Forwarded => "forwarded",
        Verdict::Dropped => "dropped",
        Verdict::Audited => "audit",
    };
    match flow.kind {
        Kind::Drop | Kind::End => {}
        Kind::L7 => add(0, &[flow.direction.name(), "l7/dns", action]),
        // The node may always reach its pods.
        Kind::Verdict if flow.source.identity == HOST => {}
        Kind::Verdict => {
            let matched = flow.matched.map_or("none", |matched| matched.name()).to_ascii_lowercase();
            add(0, &[flow.direction.name(), &matched, action]);
        }
    }
}

fn icmp(flow: &Flow, add: Add<'_>) {
    match flow.l4 {
        _ if flow.kind == Kind::End => {}
        L4::Icmpv4(kind, _) => add(0, &["IPv4", &icmpv4(kind)]),
        L4::Icmpv6(kind, _) => add(0, &["IPv6", &icmpv6(kind)]),
        _ => {}
    }
}

fn protocol(flow: &Flow) -> &'static str {
    if flow.dns.is_some() { "DNS" } else { transport(flow.l4) }
}

fn transport(l4: L4) -> &'static str {
    match l4 {
        L4::Tcp { .. } => "TCP",
        L4::Udp(..) => "UDP",
        L4::Sctp(..) => "SCTP",
        L4::Icmpv4(..) => "ICMPv4",
        L4::Icmpv6(..) => "ICMPv6",
        L4::Other(_) => "Unknown L4",
    }
}

fn kind(flow: &Flow) -> (&'static str, &'static str) {
    match flow.kind {
        Kind::Drop => ("Drop", ""),
        Kind::End if flow.direction == Direction::Egress => ("Trace", "to-stack"),
        Kind::End => ("Trace", "to-endpoint"),
        Kind::Verdict => ("PolicyVerdict", ""),
        Kind::L7 => ("L7", "DNS"),
    }
}

/// The name in Hubble's enumeration.
fn verdict(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Forwarded => "FORWARDED",
        Verdict::Dropped => "DROPPED",
        Verdict::Audited => "AUDIT",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use egret_common::verdict::DropReason;

    #[test]
    fn every_reason_has_a_name() {
        let unnamed = DropReason::ALL.iter().filter(|r| reason(r.hubble()) == "DROP_REASON_UNKNOWN");
        assert_eq!(unnamed.count(), 0);
    }

    #[test]
    fn every_key_is_a_metric() {
        assert!(Metric::KEYS.iter().all(|key| Metric::of(key).is_some()));
    }
}
