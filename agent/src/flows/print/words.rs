//! The words of a line, as `hubble` has them.

use std::net::Ipv6Addr;

use crate::flows::filters::{RESERVED, TRACES};
use crate::observe::proto::flow::layer4::Protocol;
use crate::observe::proto::flow::layer7::Record;
use crate::observe::proto::flow::{
    AuthType, DropReason, Flow, L7FlowType, Policy, Service, SocketTranslationPoint, TrafficDirection,
    Verdict,
};
use crate::tell::plain;

/// The type of an event about the first packet of a connection.
const VERDICT: i32 = 5;

/// Sender and receiver with their ports: pods, else Services, else the names of the address, else the address. Harmless.
pub(super) fn hosts(flow: &Flow, names: bool) -> [String; 2] {
    let Some(ip) = &flow.ip else {
        let ethernet = flow.ethernet.clone().unwrap_or_default();
        return [plain(&ethernet.source), plain(&ethernet.destination)];
    };
    let (from, to) = ports(flow);
    let end = |end: &Option<crate::observe::proto::flow::Endpoint>,
               service: &Option<Service>,
               known: &[String]| {
        let pod = end.as_ref().map(|end| (end.namespace.as_str(), end.pod_name.as_str()));
        let service = service.as_ref().map(|service| (service.namespace.as_str(), service.name.as_str()));
        // The namespace of a Service goes before that of the pod.
        let namespace = service.or(pod).map_or("", |(namespace, _)| namespace);
        let named = [pod, service].into_iter().flatten().map(|(_, name)| name).find(|name| !name.is_empty());
        match named {
            _ if !names => None,
            Some(name) if namespace.is_empty() => Some(name.to_owned()),
            Some(name) => Some(format!("{namespace}/{name}")),
            None => (!known.is_empty()).then(|| known.join(",")),
        }
    };
    let source = end(&flow.source, &flow.source_service, &flow.source_names);
    let destination = end(&flow.destination, &flow.destination_service, &flow.destination_names);
    [join(source, &ip.source, from), join(destination, &ip.destination, to)]
}

fn join(name: Option<String>, address: &str, port: u32) -> String {
    let is_v6 = name.is_none() && address.parse::<Ipv6Addr>().is_ok();
    let host = plain(name.as_deref().unwrap_or(address));
    match port {
        0 => host,
        _ if is_v6 => format!("[{host}]:{port}"),
        _ => format!("{host}:{port}"),
    }
}

fn ports(flow: &Flow) -> (u32, u32) {
    match flow.l4.as_ref().and_then(|l4| l4.protocol.as_ref()) {
        Some(Protocol::Tcp(tcp)) => (tcp.source_port, tcp.destination_port),
        Some(Protocol::Udp(udp)) => (udp.source_port, udp.destination_port),
        Some(Protocol::Sctp(sctp)) => (sctp.source_port, sctp.destination_port),
        Some(Protocol::IcmPv4(_) | Protocol::IcmPv6(_)) | None => (0, 0),
    }
}

/// Reserved ones by name.
pub(super) fn identity(number: u32) -> String {
    let reserved = usize::try_from(number).ok().and_then(|number| RESERVED.get(number));
    reserved.map_or_else(|| format!("(ID:{number})"), |name| format!("({name})"))
}

/// What the event is about.
pub(super) fn kind(flow: &Flow) -> String {
    if let Some(l7) = &flow.l7 {
        let kind = match l7.r#type() {
            L7FlowType::Request => "request",
            L7FlowType::Response => "response",
            L7FlowType::Sample => "sample",
            L7FlowType::UnknownL7Type => "unknown",
        };
        return match &l7.record {
            Some(Record::Dns(dns)) => format!("dns-{kind} {}", dns.observation_source),
            Some(Record::Http(_)) => format!("http-{kind}"),
            None => format!("l7-{kind}"),
        };
    }
    let event = flow.event_type.unwrap_or_default();
    match event.r#type {
        1 => drop_words(event.sub_type),
        4 => {
            let name = usize::try_from(event.sub_type).ok().and_then(|number| TRACES.get(number));
            (*name.unwrap_or(&"UNKNOWN")).to_owned()
        }
        VERDICT => {
            let direction = TrafficDirection::try_from(flow.traffic_direction).unwrap_or_default();
            format!("policy-verdict:{} {}", matched(flow.policy_match_type), direction.as_str_name())
        }
        7 => sock(flow.sock_xlate_point()).to_owned(),
        _ => "UNKNOWN".to_owned(),
    }
}

fn drop_words(number: i32) -> String {
    let words = match number {
        132 => "Invalid source ip",
        133 => "Policy denied",
        134 => "Invalid packet",
        135 => "CT: Truncated or invalid header",
        142 => "Unknown L4 protocol",
        155 => "CT: Map insertion failed",
        156 => "Invalid IPv6 extension header",
        175 => "First logical datagram fragment not found",
        181 => "Policy denied by denylist",
        203 => "Endpoint not ready",
        _ => {
            return DropReason::try_from(number)
                .map_or_else(|_| number.to_string(), |r| r.as_str_name().into());
        }
    };
    words.to_owned()
}

fn matched(number: u32) -> &'static str {
    match number {
        0 => "none",
        1 => "L3-Only",
        2 => "L3-L4",
        3 => "L4-Only",
        4 => "all",
        5 => "L3-Proto",
        6 => "Proto-Only",
        _ => "unknown",
    }
}

fn sock(point: SocketTranslationPoint) -> &'static str {
    match point {
        SocketTranslationPoint::SockXlatePointPreDirectionFwd => "pre-xlate-fwd",
        SocketTranslationPoint::SockXlatePointPostDirectionFwd => "post-xlate-fwd",
        SocketTranslationPoint::SockXlatePointPreDirectionRev => "pre-xlate-rev",
        SocketTranslationPoint::SockXlatePointPostDirectionRev => "post-xlate-rev",
        SocketTranslationPoint::SockXlatePointUnknown => "UNKNOWN",
    }
}

/// What became of it; of a first packet in the words of policies.
pub(super) fn verdict(flow: &Flow) -> &'static str {
    let verdict = Verdict::try_from(flow.verdict).unwrap_or_default();
    let judged = flow.l7.is_none() && flow.event_type.is_some_and(|event| event.r#type == VERDICT);
    match verdict {
        Verdict::Forwarded | Verdict::Redirected if judged => "ALLOWED",
        Verdict::Dropped | Verdict::Error if judged => "DENIED",
        Verdict::Audit if judged => "AUDITED",
        Verdict::Unknown => "VERDICT_UNKNOWN",
        _ => verdict.as_str_name(),
    }
}

/// ` BY name (kind), ..`; empty if nobody is named.
pub(super) fn policies(flow: &Flow) -> String {
    let lists =
        [&flow.egress_allowed_by, &flow.ingress_allowed_by, &flow.egress_denied_by, &flow.ingress_denied_by];
    let named = |policy: &&Policy| !policy.name.is_empty() && !policy.kind.is_empty();
    let named = lists.into_iter().flatten().filter(named);
    let texts: Vec<String> = named.map(|policy| format!("{} ({})", policy.name, policy.kind)).collect();
    if texts.is_empty() { String::new() } else { format!(" BY {}", texts.join(", ")) }
}

/// What is in the packet.
pub(super) fn summary(flow: &Flow) -> String {
    let trace = flow.ip_trace_id.as_ref().filter(|id| id.trace_id != 0);
    let trace = trace.map(|id| format!("IP Trace ID: {}; ", id.trace_id)).unwrap_or_default();
    let auth = match flow.auth_type() {
        AuthType::Disabled => String::new(),
        auth => format!("; Auth: {}", auth.as_str_name()),
    };
    format!("{trace}{}{auth}", flow.summary)
}
