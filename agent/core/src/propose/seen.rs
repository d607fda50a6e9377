//! What a flow tells about the need of a workload.
//!
//! Owns: which flows count, and what was done. Must not know: other flows.

use std::collections::BTreeSet;

use egret_common::{
    net::Direction,
    verdict::{DropReason, Verdict},
};

use super::who::{Peer, Subject, peer};
use crate::{
    flow::{Flow, Kind, L4},
    names::Name,
    policy::write::sanitised,
    ports::Proto,
};

/// What was done with the peer.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Act {
    /// A connection, or a packet: protocol and destination port; ICMP: type << 8 | code.
    Connect(Proto, u16),
    /// A question: protocol, port of the resolver, name.
    Ask(Proto, u16, Name),
    /// Something that a policy cannot name: why.
    Odd(String),
}

/// One need of a workload. What differs most stands first: that is compared first.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Seen {
    /// What.
    pub act: Act,
    /// With whom.
    pub peer: Peer,
    /// Who begins.
    pub direction: Direction,
    /// Whose.
    pub subject: Subject,
}

impl Seen {
    /// What the flow shows; `None` of a flow that shows no need: answers, the packet beside a verdict, what is no pod's.
    #[must_use]
    pub fn of(flow: &Flow) -> Option<Self> {
        let (own, other) = match flow.direction {
            Direction::Egress => (&flow.source, &flow.destination),
            Direction::Ingress => (&flow.destination, &flow.source),
        };
        if !may_count(flow) {
            return None;
        }
        let subject = Subject::of(own)?;
        let act = match &flow.dns {
            Some(dns) if dns.response || flow.direction == Direction::Ingress => return None,
            Some(dns) => asked(&dns.query, flow.l4),
            None => connected(flow.l4),
        };
        let peer = match (peer(other), flow.direction) {
            // A name says where one goes, not who comes from there.
            (Peer::World { ip, .. }, Direction::Ingress) => Peer::World { ip, names: BTreeSet::new() },
            (peer, _) => peer,
        };
        Some(Self { subject, direction: flow.direction, peer, act })
    }
}

/// Whether the flow is the first of something: no answer, and not the packet beside a verdict.
#[must_use]
pub(super) fn may_count(flow: &Flow) -> bool {
    !matches!(flow.kind, Kind::Drop | Kind::End) && flow.is_reply != Some(true)
}

/// Whether the flow passed, or would have passed if nothing were enforced.
#[must_use]
pub(super) fn passed(flow: &Flow) -> bool {
    // What is wrong with the packet itself is no policy's matter, even if audit let it through.
    let mendable = flow.reason.is_none_or(is_of_policy);
    matches!(flow.verdict, Verdict::Forwarded | Verdict::Audited) && mendable
}

/// Whether another policy would change it.
fn is_of_policy(reason: DropReason) -> bool {
    matches!(
        reason,
        DropReason::NoRule
            | DropReason::DenyRule
            | DropReason::NameUnresolved
            | DropReason::NameExpired
            | DropReason::NamePortMismatch
            | DropReason::ServiceBackendDenied
            | DropReason::ForbiddenAnswerAddress
            | DropReason::QueryRefused
            | DropReason::MapFull
    )
}

fn asked(query: &str, l4: L4) -> Act {
    let Some((proto, port)) = ported(l4) else { return Act::Odd("a question by an odd protocol".into()) };
    match Name::from_dns(query) {
        Ok(name) => Act::Ask(proto, port, name),
        Err(why) => Act::Odd(sanitised(&format!("the question for {query}: {why}"))),
    }
}

fn connected(l4: L4) -> Act {
    let icmp = |kind, code| u16::from_be_bytes([kind, code]);
    match (l4, ported(l4)) {
        (_, Some((proto, port))) => Act::Connect(proto, port),
        (L4::Icmpv4(kind, code), _) => Act::Connect(Proto::Icmp, icmp(kind, code)),
        (L4::Icmpv6(kind, code), _) => Act::Connect(Proto::Icmpv6, icmp(kind, code)),
        (L4::Other(number), _) => Act::Odd(format!("IP protocol {number}")),
        _ => Act::Odd("an odd protocol".into()),
    }
}

fn ported(l4: L4) -> Option<(Proto, u16)> {
    match l4 {
        L4::Tcp { ports, .. } => Some((Proto::Tcp, ports.1)),
        L4::Udp(_, port) => Some((Proto::Udp, port)),
        L4::Sctp(_, port) => Some((Proto::Sctp, port)),
        L4::Icmpv4(..) | L4::Icmpv6(..) | L4::Other(_) => None,
    }
}
