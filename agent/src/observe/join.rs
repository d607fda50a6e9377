//! From a record about a packet to flows.

use std::net::IpAddr;
use std::sync::Arc;

use egret_common::event::FlowEvent;
use egret_common::ids::{identity, is_name_class};
use egret_common::net::{Addr, Direction, proto};
use egret_common::verdict::{DropReason, Verdict};
use egret_core::flow::{Flow, Kind, L4, NodeInfo, Passed, Side, summary};

use super::known::{Known, Local};
use super::words;
use crate::learn::ip;

/// What all flows of a batch have in common.
#[derive(Debug, Clone)]
pub(super) struct Common {
    pub(super) node: Arc<NodeInfo>,
    /// See [`super::clock`].
    pub(super) clock: u64,
}

/// What is shown of an event: the verdict, and a drop beside it.
pub(super) fn flows(event: &FlowEvent, known: &impl Known, common: &Common) -> Vec<Flow> {
    let reason = DropReason::from_u8(event.reason);
    if reason == Some(DropReason::QueryRefused) {
        // The query itself is shown, with its name.
        return Vec::new();
    }
    let verdict = verdict(event.verdict);
    let mut flow = base(event, known, common);
    (flow.verdict, flow.reason) = (verdict, reason);
    flow.is_reply = (verdict != Verdict::Dropped).then_some(false);
    let rule = known.rule(event.cookie).filter(|_| event.cookie != 0);
    flow.matched = Some(words::matched(rule.as_ref().map(|(_, rule)| *rule), reason));
    let remote = remote(&flow, event);
    flow.why = reason.map(|reason| words::why(reason, event, &remote.names, rule.as_ref()));
    match reason {
        None => flow.allowed_by = rule.map(|(policy, _)| policy).into_iter().collect(),
        Some(reason) if words::is_default(reason) => {
            flow.denied_by = known.isolating(event.endpoint, flow.direction);
        }
        Some(DropReason::DenyRule) => {
            flow.denied_by = rule.map(|(policy, _)| policy).into_iter().collect();
        }
        Some(_) => {}
    }
    flow.summary = summary(&flow, Some(event.age));
    let dropped = (verdict == Verdict::Dropped).then(|| drop(&flow));
    let judged = reason.is_none_or(words::is_of_policy) || verdict == Verdict::Audited;
    judged.then_some(flow).into_iter().chain(dropped).collect()
}

/// What is shown of a connection that is over.
pub(super) fn end(event: &FlowEvent, passed: &Passed, known: &impl Known, common: &Common) -> Flow {
    let mut flow = base(event, known, common);
    (flow.kind, flow.verdict, flow.is_reply) = (Kind::End, verdict(event.verdict), Some(false));
    flow.reason = DropReason::from_u8(event.reason);
    flow.why = Some(passed.to_string());
    flow.summary = format!("{} ended: {passed}", words::transport(flow.l4));
    flow
}

/// The same as an event about the packet.
fn drop(flow: &Flow) -> Flow {
    Flow { kind: Kind::Drop, matched: None, denied_by: Vec::new(), ..flow.clone() }
}

fn verdict(number: u8) -> Verdict {
    match number {
        2 => Verdict::Dropped,
        4 => Verdict::Audited,
        _ => Verdict::Forwarded,
    }
}

/// Both ends and the header.
fn base(event: &FlowEvent, known: &impl Known, common: &Common) -> Flow {
    let direction = direction(event.direction);
    let local = known.endpoint(event.endpoint).unwrap_or_default();
    let mut remote = other(known, event.endpoint, event.remote);
    if remote.identity == identity::WORLD && is_name_class(event.class) {
        remote.identity = event.class;
        let names = known.patterns(event.class).into_iter().map(|pattern| format!("fqdn:{pattern}"));
        remote.labels = names.chain(["reserved:world".to_owned()]).collect();
    }
    let interface = local.interface.clone();
    let here = own(local, event.local, ip(event.remote));
    let ends = match direction {
        Direction::Egress => (here, remote),
        Direction::Ingress => (remote, here),
    };
    let time = event.time.saturating_add(common.clock);
    let flow = Flow::new(Kind::Verdict, time, direction, ends, l4(event, direction));
    Flow { interface, node: common.node.clone(), ..flow }
}

fn direction(number: u8) -> Direction {
    if number == Direction::Ingress as u8 { Direction::Ingress } else { Direction::Egress }
}

fn remote<'a>(flow: &'a Flow, event: &FlowEvent) -> &'a Side {
    match direction(event.direction) {
        Direction::Egress => &flow.destination,
        Direction::Ingress => &flow.source,
    }
}

/// The endpoint's own end. At the connect hooks its address is not known yet; if it has one of the family, that is it.
pub(super) fn own(local: Local, address: Addr, remote: IpAddr) -> Side {
    let known = (address != Addr::default()).then(|| ip(address));
    let likely = || local.ips.iter().copied().find(|ip| ip.is_ipv4() == remote.is_ipv4());
    Side { ip: known.or_else(likely), ..local.side }
}

/// The other end, with the names that the endpoint knows it by.
pub(super) fn other(known: &impl Known, endpoint: u32, address: Addr) -> Side {
    let address = ip(address);
    Side { ip: Some(address), names: known.names(endpoint, address), ..known.owner(address) }
}

fn l4(event: &FlowEvent, direction: Direction) -> L4 {
    let ports = match direction {
        Direction::Egress => (event.local_port, event.remote_port),
        Direction::Ingress => (event.remote_port, event.local_port),
    };
    let [kind, code] = ports.1.to_be_bytes();
    match event.proto {
        proto::TCP => L4::Tcp { ports, flags: event.tcp_flags as u16 },
        proto::UDP => L4::Udp(ports.0, ports.1),
        proto::SCTP => L4::Sctp(ports.0, ports.1),
        proto::ICMP => L4::Icmpv4(kind, code),
        proto::ICMPV6 => L4::Icmpv6(kind, code),
        number => L4::Other(number),
    }
}

#[cfg(test)]
pub(super) mod tests;
