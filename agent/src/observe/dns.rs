//! From a DNS message to a flow.

use std::net::IpAddr;

use egret_common::event::{DNS_REFUSED, DnsEvent};
use egret_common::net::{Direction, proto};
use egret_common::verdict::{DropReason, Verdict};
use egret_core::dns::parse::{Answer, Question, parse_answer, parse_query};
use egret_core::flow::{Dns, Flow, Kind, L4, summary};

use super::join::{Common, other, own};
use super::known::Known;
use crate::learn::ip;

/// What is shown of a message; nothing of one that cannot be read.
pub(super) fn flow(event: &DnsEvent, message: &[u8], known: &impl Known, common: &Common) -> Option<Flow> {
    let asks = event.direction == Direction::Egress as u8;
    let dns = match asks {
        true => query(&parse_query(message).ok()?.question),
        false => answer(&parse_answer(message).ok()?),
    };
    let local = known.endpoint(event.endpoint).unwrap_or_default();
    let (audit, interface) = (local.audit, local.interface.clone());
    let refused = event.flags & DNS_REFUSED != 0;
    let verdict = match (refused, audit) {
        (false, _) => Verdict::Forwarded,
        (true, false) => Verdict::Dropped,
        (true, true) => Verdict::Audited,
    };
    let here = own(local, event.local, ip(event.remote));
    let there = other(known, event.endpoint, event.remote);
    let ports = (event.local_port, event.remote_port);
    let (source, destination, ports) =
        if asks { (here, there, ports) } else { (there, here, (ports.1, ports.0)) };
    let reason = refused.then_some(DropReason::QueryRefused);
    let l4 = match event.proto {
        proto::TCP => L4::Tcp { ports, flags: 0 },
        _ => L4::Udp(ports.0, ports.1),
    };
    let time = event.time.saturating_add(common.clock);
    // The direction is that of the connection, whose answer this is.
    let mut flow = Flow {
        verdict,
        reason,
        dns: Some(dns),
        is_reply: Some(!asks),
        why: reason.map(|reason| format!("{}: {}", reason.name(), reason.explanation().trim())),
        interface,
        node: common.node.clone(),
        ..Flow::new(Kind::L7, time, Direction::Egress, (source, destination), l4)
    };
    if refused {
        flow.denied_by = known.isolating(event.endpoint, Direction::Egress);
    }
    flow.summary = summary(&flow, None);
    Some(flow)
}

fn query(question: &Question) -> Dns {
    Dns { query: dotted(&question.text), qtypes: vec![kind(question.qtype)], ..Dns::default() }
}

fn answer(answer: &Answer) -> Dns {
    let learned = || answer.addresses.iter().chain(&answer.hints);
    let mut types: Vec<String> = Vec::new();
    if !answer.aliases.is_empty() {
        types.push("CNAME".into());
    }
    for (name, there) in [
        ("A", answer.addresses.iter().any(|a| a.address.is_ipv4())),
        ("AAAA", answer.addresses.iter().any(|a| a.address.is_ipv6())),
        ("HTTPS", !answer.hints.is_empty()),
    ] {
        types.extend(there.then(|| name.to_owned()));
    }
    Dns {
        response: true,
        ips: learned().map(|learned| learned.address).collect::<Vec<IpAddr>>(),
        ttl: learned().map(|learned| learned.ttl).min().unwrap_or_default(),
        cnames: answer.aliases.iter().map(|alias| dotted(alias)).collect(),
        rcode: answer.rcode,
        rrtypes: types,
        ..query(&answer.question)
    }
}

fn dotted(name: &str) -> String {
    if name.ends_with('.') { name.to_owned() } else { format!("{name}.") }
}

/// The type's name (IANA).
fn kind(number: u16) -> String {
    let name = match number {
        1 => "A",
        2 => "NS",
        5 => "CNAME",
        6 => "SOA",
        12 => "PTR",
        15 => "MX",
        16 => "TXT",
        28 => "AAAA",
        33 => "SRV",
        35 => "NAPTR",
        43 => "DS",
        48 => "DNSKEY",
        64 => "SVCB",
        65 => "HTTPS",
        255 => "ANY",
        257 => "CAA",
        _ => return format!("TYPE{number}"),
    };
    name.to_owned()
}

#[cfg(test)]
mod tests;
