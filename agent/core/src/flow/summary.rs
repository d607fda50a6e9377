//! The text in brackets at the end of a line of `hubble observe`: the client makes none of its own.

use std::net::IpAddr;

use egret_common::verdict::DropReason;

use super::{Dns, Flow, L4, TCP_NS};

/// Flags in the order in which Hubble prints them.
const FLAGS: [(u16, &str); 9] = [
    (0x02, "SYN"),
    (0x10, "ACK"),
    (0x04, "RST"),
    (0x01, "FIN"),
    (0x08, "PSH"),
    (0x20, "URG"),
    (0x40, "ECE"),
    (0x80, "CWR"),
    (TCP_NS, "NS"),
];

/// What is in the packet; of a denial also Egret's own reason, which is finer than Hubble's. `age`: seconds since the
/// name's lifetime ended, where that is the reason.
#[must_use]
pub fn summary(flow: &Flow, age: Option<u32>) -> String {
    let mut text = match &flow.dns {
        Some(dns) => dns_text(dns),
        None => packet(flow.l4),
    };
    if let Some(reason) = flow.reason {
        text.push_str("; ");
        text.push_str(reason.name());
        if let Some(age) = age.filter(|_| reason == DropReason::NameExpired) {
            text.push_str(&format!(" {age} s ago"));
        }
    }
    text
}

fn packet(l4: L4) -> String {
    match l4 {
        L4::Tcp { flags, .. } => {
            let set: Vec<&str> = FLAGS.iter().filter(|(bit, _)| flags & bit != 0).map(|(_, n)| *n).collect();
            format!("TCP Flags: {}", set.join(", "))
        }
        L4::Udp(..) => "UDP".into(),
        L4::Sctp(..) => "SCTP".into(),
        L4::Icmpv4(kind, _) => format!("ICMPv4 {}", icmpv4(kind)),
        L4::Icmpv6(kind, _) => format!("ICMPv6 {}", icmpv6(kind)),
        L4::Other(number) => format!("IP protocol {number}"),
    }
}

pub(super) fn icmpv4(kind: u8) -> String {
    let name = match kind {
        0 => "EchoReply",
        3 => "DestinationUnreachable",
        5 => "Redirect",
        8 => "EchoRequest",
        11 => "TimeExceeded",
        12 => "ParameterProblem",
        13 => "TimestampRequest",
        14 => "TimestampReply",
        _ => return format!("type {kind}"),
    };
    name.into()
}

pub(super) fn icmpv6(kind: u8) -> String {
    let name = match kind {
        1 => "DestinationUnreachable",
        2 => "PacketTooBig",
        3 => "TimeExceeded",
        4 => "ParameterProblem",
        128 => "EchoRequest",
        129 => "EchoReply",
        133 => "RouterSolicitation",
        134 => "RouterAdvertisement",
        135 => "NeighborSolicitation",
        136 => "NeighborAdvertisement",
        137 => "Redirect",
        _ => return format!("type {kind}"),
    };
    name.into()
}

fn dns_text(dns: &Dns) -> String {
    let asked = format!("{} {}", dns.query, dns.qtypes.join(","));
    if !dns.response {
        return format!("DNS Query {asked}");
    }
    let mut parts = vec!["DNS Answer".to_owned()];
    if dns.rcode != 0 {
        parts.push(format!("RCode: {}", rcode(dns.rcode)));
    } else if !dns.ips.is_empty() {
        let ips: Vec<String> = dns.ips.iter().map(IpAddr::to_string).collect();
        parts.push(format!("\"{}\"", ips.join(",")));
    }
    if !dns.cnames.is_empty() {
        parts.push(format!("CNAMEs: \"{}\"", dns.cnames.join(",")));
    }
    if dns.rcode == 0 && !dns.ips.is_empty() {
        parts.push(format!("TTL: {}", dns.ttl));
    }
    parts.push(format!("(Kernel {asked})"));
    parts.join(" ")
}

/// The words of the IANA registry.
pub(super) fn rcode(code: u16) -> String {
    let name = match code {
        1 => "Format Error",
        2 => "Server Failure",
        3 => "Non-Existent Domain",
        4 => "Not Implemented",
        5 => "Query Refused",
        6 => "Name Exists when it should not",
        9 => "Server Not Authoritative for zone",
        _ => return code.to_string(),
    };
    name.into()
}
