//! Flows out of messages: the way back from what [`crate::observe`] sends.
//!
//! A flow of another event type or verdict than Egret has is no [`Flow`]; nothing else is refused, since a server may leave
//! out what it likes.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use egret_common::net::Direction;
use egret_common::verdict::{DropReason, Verdict};
use egret_core::flow::{
    Dns, Flow, Interface, Kind, L4, Match, NodeInfo, PolicyRef, ServiceRef, Side, TCP_NS, Workload,
};
use prost_types::Timestamp;
use thiserror::Error;

use crate::observe::proto::flow as wire;

/// What a flow of Egret never is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum ReadError {
    /// Another event type, such as that of a capture.
    #[error("an event of type {0}")]
    Type(i32),
    /// Another verdict.
    #[error("a verdict with number {0}")]
    Verdict(i32),
}

/// The flow that a message is about.
///
/// # Errors
/// [`ReadError`].
pub fn flow(f: &wire::Flow) -> Result<Flow, ReadError> {
    let verdict = verdict(f.verdict)?;
    // What is not said of a packet from a pod is most likely about one that leaves it.
    let direction = if f.traffic_direction == 1 { Direction::Ingress } else { Direction::Egress };
    let [allowed_by, denied_by] = match direction {
        Direction::Egress => [&f.egress_allowed_by, &f.egress_denied_by],
        Direction::Ingress => [&f.ingress_allowed_by, &f.ingress_denied_by],
    };
    let kind = kind(f)?;
    Ok(Flow {
        time: f.time.as_ref().map_or(0, nanoseconds),
        uuid: uuid(&f.uuid),
        kind,
        verdict,
        reason: reason(f).or_else(|| nearest(f, verdict)),
        direction,
        source: side(f, f.source.as_ref(), |ip| &ip.source, &f.source_names, f.source_service.as_ref()),
        destination: side(
            f,
            f.destination.as_ref(),
            |ip| &ip.destination,
            &f.destination_names,
            f.destination_service.as_ref(),
        ),
        l4: l4(f),
        dns: dns(f),
        is_reply: f.is_reply,
        matched: (kind == Kind::Verdict).then(|| matched(f.policy_match_type)),
        allowed_by: policies(allowed_by),
        denied_by: policies(denied_by),
        why: f.policy_log.first().cloned(),
        summary: f.summary.clone(),
        interface: f.interface.as_ref().map(|i| Interface { index: i.index, name: i.name.clone() }),
        node: Arc::new(NodeInfo { name: f.node_name.clone(), labels: f.node_labels.clone() }),
    })
}

/// Nanoseconds since 1970; nothing was seen before.
#[must_use]
pub fn nanoseconds(time: &Timestamp) -> u64 {
    let seconds = u64::try_from(time.seconds).unwrap_or_default();
    seconds.saturating_mul(1_000_000_000).saturating_add(u64::try_from(time.nanos).unwrap_or_default())
}

/// Egret's own reason by the name that stands before the sentence, or else at the end of the line; no other server says it.
/// What was let through has none, whatever name a pod has put into its line.
#[must_use]
pub fn reason(f: &wire::Flow) -> Option<DropReason> {
    if ![wire::Verdict::Dropped as i32, wire::Verdict::Audit as i32].contains(&f.verdict) {
        return None;
    }
    let named = |name: &str| DropReason::ALL.iter().copied().find(|reason| reason.name() == name);
    let first = f.policy_log.first().and_then(|text| named(text.split_once(':')?.0));
    first.or_else(|| {
        let (_, last) = f.summary.rsplit_once("; ")?;
        named(last).or_else(|| named(last.strip_suffix(" s ago")?.split_once(' ')?.0))
    })
}

/// Of a drop that does not say it: the first of Egret's reasons with the number of Hubble's.
fn nearest(f: &wire::Flow, verdict: Verdict) -> Option<DropReason> {
    let number = u32::try_from(f.drop_reason_desc).ok().filter(|_| verdict == Verdict::Dropped)?;
    DropReason::ALL.iter().copied().find(|reason| reason.hubble() == number)
}

fn verdict(number: i32) -> Result<Verdict, ReadError> {
    match number {
        1 => Ok(Verdict::Forwarded),
        2 => Ok(Verdict::Dropped),
        4 => Ok(Verdict::Audited),
        number => Err(ReadError::Verdict(number)),
    }
}

fn kind(f: &wire::Flow) -> Result<Kind, ReadError> {
    let number = f.event_type.as_ref().map_or(0, |event| event.r#type);
    match number {
        _ if f.l7.is_some() => Ok(Kind::L7),
        1 => Ok(Kind::Drop),
        // Others than these are of packets that Egret does not show.
        4 if f
            .event_type
            .is_some_and(|event| event.sub_type == if f.traffic_direction == 1 { 0 } else { 3 }) =>
        {
            Ok(Kind::End)
        }
        5 => Ok(Kind::Verdict),
        129 => Ok(Kind::L7),
        number => Err(ReadError::Type(number)),
    }
}

/// Zero for a text that is none: an id that no flow has.
fn uuid(text: &str) -> u128 {
    u128::from_str_radix(&text.replace('-', ""), 16).unwrap_or_default()
}

fn side(
    f: &wire::Flow,
    end: Option<&wire::Endpoint>,
    address: impl Fn(&wire::Ip) -> &String,
    names: &[String],
    service: Option<&wire::Service>,
) -> Side {
    let end = end.cloned().unwrap_or_default();
    let service = service.map(|s| ServiceRef { namespace: s.namespace.clone(), name: s.name.clone() });
    Side {
        ip: f.ip.as_ref().and_then(|ip| address(ip).parse().ok()),
        id: end.id,
        identity: end.identity,
        namespace: end.namespace,
        pod: end.pod_name,
        labels: end.labels.into(),
        workloads: end.workloads.into_iter().map(|w| Workload { name: w.name, kind: w.kind }).collect(),
        names: names.to_vec(),
        service,
    }
}

fn l4(f: &wire::Flow) -> L4 {
    use wire::layer4::Protocol;
    let port = |port: u32| u16::try_from(port).unwrap_or_default();
    let byte = |number: u32| u8::try_from(number).unwrap_or_default();
    match f.l4.as_ref().and_then(|l4| l4.protocol.as_ref()) {
        Some(Protocol::Tcp(tcp)) => L4::Tcp {
            ports: (port(tcp.source_port), port(tcp.destination_port)),
            flags: tcp.flags.as_ref().map_or(0, tcp_flags),
        },
        Some(Protocol::Udp(udp)) => L4::Udp(port(udp.source_port), port(udp.destination_port)),
        Some(Protocol::Sctp(sctp)) => L4::Sctp(port(sctp.source_port), port(sctp.destination_port)),
        Some(Protocol::IcmPv4(icmp)) => L4::Icmpv4(byte(icmp.r#type), byte(icmp.code)),
        Some(Protocol::IcmPv6(icmp)) => L4::Icmpv6(byte(icmp.r#type), byte(icmp.code)),
        // There is no message for them: the line alone has the number.
        None => {
            let number = f.summary.strip_prefix("IP protocol ").and_then(|rest| rest.split(';').next());
            L4::Other(number.and_then(|number| number.parse().ok()).unwrap_or_default())
        }
    }
}

/// Flags as they stand in the header, and [`TCP_NS`].
#[must_use]
pub fn tcp_flags(f: &wire::TcpFlags) -> u16 {
    let bits = [
        (f.fin, 0x01),
        (f.syn, 0x02),
        (f.rst, 0x04),
        (f.psh, 0x08),
        (f.ack, 0x10),
        (f.urg, 0x20),
        (f.ece, 0x40),
        (f.cwr, 0x80),
        (f.ns, TCP_NS),
    ];
    bits.into_iter().filter(|(set, _)| *set).fold(0, |flags, (_, bit)| flags | bit)
}

fn dns(f: &wire::Flow) -> Option<Dns> {
    let l7 = f.l7.as_ref()?;
    let Some(wire::layer7::Record::Dns(dns)) = &l7.record else { return None };
    Some(Dns {
        response: l7.r#type == wire::L7FlowType::Response as i32,
        query: dns.query.clone(),
        qtypes: dns.qtypes.clone(),
        ips: dns.ips.iter().filter_map(|ip| ip.parse::<IpAddr>().ok()).collect(),
        ttl: dns.ttl,
        cnames: dns.cnames.clone(),
        rcode: u16::try_from(dns.rcode).unwrap_or_default(),
        rrtypes: dns.rrtypes.clone(),
        latency: (l7.latency_ns != 0).then(|| Duration::from_nanos(l7.latency_ns)),
    })
}

fn matched(number: u32) -> Match {
    match number {
        1 => Match::L3Only,
        2 => Match::L3L4,
        3 => Match::L4Only,
        4 => Match::All,
        5 => Match::L3Proto,
        6 => Match::ProtoOnly,
        _ => Match::None,
    }
}

fn policies(list: &[wire::Policy]) -> Vec<PolicyRef> {
    let one = |policy: &wire::Policy| PolicyRef {
        kind: policy.kind.clone(),
        namespace: policy.namespace.clone(),
        name: policy.name.clone(),
        revision: policy.revision,
    };
    list.iter().map(one).collect()
}

#[cfg(test)]
pub(crate) mod tests;
