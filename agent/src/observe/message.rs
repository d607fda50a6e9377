//! Flows as messages.

use std::net::IpAddr;

use egret_common::net::Direction;
use egret_common::verdict::Verdict;
use egret_core::flow::{CLUSTER, Dns, Entry, Flow, Kind, L4, Lost, PolicyRef, ServiceRef, Side, TCP_NS};
use prost_types::Timestamp;

use super::events::{AgentEvent, EndpointRef};
use super::mask::Mask;
use super::proto::flow as wire;
use super::proto::flow::agent_event::Notification;
use super::proto::observer::get_flows_response::ResponseTypes;
use super::proto::observer::{GetAgentEventsResponse, GetFlowsResponse};

/// Where a DNS message was seen: no proxy is in its way.
const OBSERVED: &str = "kernel";

/// An answer of GetFlows.
pub(crate) fn response(entry: &Entry, node: &str, mask: Option<&Mask>) -> GetFlowsResponse {
    let (time, response) = match entry {
        Entry::Flow(seen) => {
            let flow = flow(seen);
            let flow = mask.map_or_else(|| flow.clone(), |mask| mask.apply(&flow));
            (Some(timestamp(seen.time)), ResponseTypes::Flow(Box::new(flow)))
        }
        Entry::Lost(lost) => (moment(lost.last), ResponseTypes::LostEvents(losses(lost))),
    };
    GetFlowsResponse { response_types: Some(response), node_name: node.to_owned(), time }
}

/// An answer of GetAgentEvents.
pub(super) fn event(time: u64, event: &AgentEvent, node: &str) -> GetAgentEventsResponse {
    use wire::AgentEventType as Type;
    let (kind, notification) = match event {
        AgentEvent::Started => {
            let started = wire::TimeNotification { time: Some(timestamp(time)) };
            (Type::AgentStarted, Notification::AgentStart(started))
        }
        AgentEvent::PolicyUpdated(of, rules) => (Type::PolicyUpdated, policy(of, *rules)),
        AgentEvent::PolicyDeleted(of) => (Type::PolicyDeleted, policy(of, 0)),
        AgentEvent::EndpointCreated(of) => (Type::EndpointCreated, update(of)),
        AgentEvent::EndpointDeleted(of) => (Type::EndpointDeleted, update(of)),
        AgentEvent::Regenerated(of, Ok(())) => (Type::EndpointRegenerateSuccess, regenerated(of, "")),
        AgentEvent::Regenerated(of, Err(error)) => (Type::EndpointRegenerateFailure, regenerated(of, error)),
    };
    let event = wire::AgentEvent { r#type: kind.into(), notification: Some(notification) };
    GetAgentEventsResponse {
        agent_event: Some(event),
        node_name: node.to_owned(),
        time: Some(timestamp(time)),
    }
}

fn policy(of: &PolicyRef, rules: usize) -> Notification {
    let (labels, rule_count) = (derived_from(of), i64::try_from(rules).unwrap_or_default());
    let update = wire::PolicyUpdateNotification { labels, revision: of.revision, rule_count };
    Notification::PolicyUpdate(update)
}

fn update(of: &EndpointRef) -> Notification {
    Notification::EndpointUpdate(wire::EndpointUpdateNotification {
        id: of.id.into(),
        labels: of.labels.clone(),
        error: String::new(),
        pod_name: of.pod.clone(),
        namespace: of.namespace.clone(),
    })
}

fn regenerated(of: &EndpointRef, error: &str) -> Notification {
    let (labels, error) = (of.labels.clone(), error.to_owned());
    Notification::EndpointRegenerate(wire::EndpointRegenNotification { id: of.id.into(), labels, error })
}

/// The labels by which Cilium's events name an object.
fn derived_from(of: &PolicyRef) -> Vec<String> {
    [("derived-from", &of.kind), ("name", &of.name), ("namespace", &of.namespace)]
        .into_iter()
        .filter(|(_, value)| !value.is_empty())
        .map(|(key, value)| format!("k8s:io.cilium.k8s.policy.{key}={value}"))
        .collect()
}

pub(super) fn timestamp(time: u64) -> Timestamp {
    let (seconds, nanos) = (time / 1_000_000_000, time % 1_000_000_000);
    Timestamp { seconds: seconds as i64, nanos: nanos as i32 }
}

fn moment(time: u64) -> Option<Timestamp> {
    (time != 0).then(|| timestamp(time))
}

fn losses(lost: &Lost) -> wire::LostEvent {
    wire::LostEvent {
        source: lost.source as i32,
        num_events_lost: lost.count,
        cpu: None,
        first: moment(lost.first),
        last: moment(lost.last),
    }
}

pub(crate) fn flow(f: &Flow) -> wire::Flow {
    let (r#type, sub_type) = f.event_type();
    let kind = if f.kind == Kind::L7 { wire::FlowType::L7 } else { wire::FlowType::L3L4 };
    let mut message = wire::Flow {
        time: Some(timestamp(f.time)),
        verdict: verdict(f.verdict).into(),
        drop_reason: f.hubble_reason(),
        // The enumeration has every number that a reason can have (see the test of `json`).
        drop_reason_desc: i32::try_from(f.hubble_reason()).unwrap_or_default(),
        ip: Some(ip(f)),
        l4: Some(wire::Layer4 { protocol: l4(f.l4) }),
        source: Some(endpoint(&f.source)),
        destination: Some(endpoint(&f.destination)),
        r#type: kind.into(),
        node_name: f.node.name.clone(),
        source_names: f.source.names.clone(),
        destination_names: f.destination.names.clone(),
        l7: f.dns.as_ref().map(l7),
        reply: f.is_reply.unwrap_or_default(),
        event_type: Some(wire::CiliumEventType { r#type, sub_type }),
        source_service: f.source.service.as_ref().map(service),
        destination_service: f.destination.service.as_ref().map(service),
        traffic_direction: f.traffic_direction(),
        policy_match_type: f.matched.map_or(0, |matched| matched as u32),
        is_reply: f.is_reply,
        interface: f
            .interface
            .as_ref()
            .map(|i| wire::NetworkInterface { index: i.index, name: i.name.clone() }),
        uuid: f.uuid_text(),
        node_labels: f.node.labels.clone(),
        emitter: Some(wire::Emitter { name: "egret".into(), version: env!("CARGO_PKG_VERSION").into() }),
        policy_log: f.why.iter().cloned().collect(),
        summary: f.summary.clone(),
        ..wire::Flow::default()
    };
    if f.kind == Kind::End {
        message.set_trace_observation_point(match f.direction {
            Direction::Egress => wire::TraceObservationPoint::ToStack,
            Direction::Ingress => wire::TraceObservationPoint::ToEndpoint,
        });
    }
    let (allowed, denied) = (policies(&f.allowed_by), policies(&f.denied_by));
    match f.direction {
        Direction::Egress => (message.egress_allowed_by, message.egress_denied_by) = (allowed, denied),
        Direction::Ingress => (message.ingress_allowed_by, message.ingress_denied_by) = (allowed, denied),
    }
    message
}

fn verdict(verdict: Verdict) -> wire::Verdict {
    match verdict {
        Verdict::Forwarded => wire::Verdict::Forwarded,
        Verdict::Dropped => wire::Verdict::Dropped,
        Verdict::Audited => wire::Verdict::Audit,
    }
}

fn ip(f: &Flow) -> wire::Ip {
    let text = |side: &Side| side.ip.as_ref().map(IpAddr::to_string).unwrap_or_default();
    wire::Ip {
        source: text(&f.source),
        destination: text(&f.destination),
        ip_version: f.ip_version(),
        ..wire::Ip::default()
    }
}

fn endpoint(side: &Side) -> wire::Endpoint {
    let workloads = side.workloads.iter();
    wire::Endpoint {
        id: side.id,
        identity: side.identity,
        namespace: side.namespace.clone(),
        labels: side.labels.to_vec(),
        pod_name: side.pod.clone(),
        workloads: workloads.map(|w| wire::Workload { name: w.name.clone(), kind: w.kind.clone() }).collect(),
        cluster_name: if side.pod.is_empty() { String::new() } else { CLUSTER.to_owned() },
    }
}

fn service(service: &ServiceRef) -> wire::Service {
    wire::Service { name: service.name.clone(), namespace: service.namespace.clone() }
}

fn policies(list: &[PolicyRef]) -> Vec<wire::Policy> {
    let one = |policy: &PolicyRef| wire::Policy {
        name: policy.name.clone(),
        namespace: policy.namespace.clone(),
        labels: Vec::new(),
        revision: policy.revision,
        kind: policy.kind.clone(),
    };
    list.iter().map(one).collect()
}

/// None of a protocol for which there is no message.
fn l4(l4: L4) -> Option<wire::layer4::Protocol> {
    use wire::layer4::Protocol;
    let icmp = |kind: u8, code: u8| wire::Icmp { r#type: kind.into(), code: code.into() };
    Some(match l4 {
        L4::Tcp { ports: (source, destination), flags } => Protocol::Tcp(wire::Tcp {
            source_port: source.into(),
            destination_port: destination.into(),
            flags: (flags != 0).then(|| tcp_flags(flags)),
        }),
        L4::Udp(source, destination) => {
            Protocol::Udp(wire::Udp { source_port: source.into(), destination_port: destination.into() })
        }
        L4::Sctp(source, destination) => {
            Protocol::Sctp(wire::Sctp { source_port: source.into(), destination_port: destination.into() })
        }
        L4::Icmpv4(kind, code) => Protocol::IcmPv4(icmp(kind, code)),
        L4::Icmpv6(kind, code) => Protocol::IcmPv6(icmp(kind, code)),
        L4::Other(_) => return None,
    })
}

fn tcp_flags(flags: u16) -> wire::TcpFlags {
    let set = |bit| flags & bit != 0;
    wire::TcpFlags {
        fin: set(0x01),
        syn: set(0x02),
        rst: set(0x04),
        psh: set(0x08),
        ack: set(0x10),
        urg: set(0x20),
        ece: set(0x40),
        cwr: set(0x80),
        ns: set(TCP_NS),
    }
}

fn l7(dns: &Dns) -> wire::Layer7 {
    let kind = if dns.response { wire::L7FlowType::Response } else { wire::L7FlowType::Request };
    let record = wire::Dns {
        query: dns.query.clone(),
        ips: dns.ips.iter().map(IpAddr::to_string).collect(),
        ttl: dns.ttl,
        cnames: dns.cnames.clone(),
        observation_source: OBSERVED.into(),
        rcode: dns.rcode.into(),
        qtypes: dns.qtypes.clone(),
        rrtypes: dns.rrtypes.clone(),
    };
    let latency = dns.latency.map_or(0, |latency| u64::try_from(latency.as_nanos()).unwrap_or(u64::MAX));
    wire::Layer7 { r#type: kind.into(), latency_ns: latency, record: Some(wire::layer7::Record::Dns(record)) }
}
