//! Fields about the flow as a whole.

use egret_common::verdict::Verdict;

use super::{FilterError, FlowFilter, Tests, label::Selector, text};
use crate::flow::{Flow, Kind, L4};

pub(super) fn add(filter: &FlowFilter, tests: &mut Tests<'_>) -> Result<(), FilterError> {
    numbers(filter, tests)?;
    packet(filter, tests)?;
    place(filter, tests)?;
    http(filter, tests)?;

    tests.any_regex("dns_query", &filter.dns_query, text::word, |pattern, flow| {
        flow.dns.as_ref().is_some_and(|dns| pattern.is_match(&dns.query))
    })?;
    if let Some(expression) = filter.cel_expression.first() {
        return Err(FilterError::new("cel_expression", expression, "expressions in CEL are not supported"));
    }
    Ok(())
}

fn numbers(filter: &FlowFilter, tests: &mut Tests<'_>) -> Result<(), FilterError> {
    tests.any_of("verdict", &filter.verdict, |verdict, flow| flow.verdict as i32 == *verdict)?;
    tests.any_of("drop_reason_desc", &filter.drop_reason_desc, |reason, flow| {
        flow.verdict == Verdict::Dropped && i64::from(flow.hubble_reason()) == i64::from(*reason)
    })?;
    tests.any_of("event_type", &filter.event_type, |wanted, flow| {
        let (kind, sub) = flow.event_type();
        (wanted.kind == 0 || wanted.kind == kind) && wanted.sub.is_none_or(|wanted| wanted == sub)
    })?;
    tests.any_of("traffic_direction", &filter.traffic_direction, |direction, flow| {
        flow.traffic_direction() == *direction
    })?;
    // A dropped packet has no connection: it counts as no reply.
    tests.any_of("reply", &filter.reply, |reply, flow| match flow.is_reply {
        Some(is) => is == *reply,
        None => flow.verdict == Verdict::Dropped && !*reply,
    })?;
    tests.any_of("ip_version", &filter.ip_version, |version, flow| flow.ip_version() == *version)?;
    // Nothing is encrypted between nodes.
    tests.any_of("encrypted", &filter.encrypted, |encrypted, _| !*encrypted)
}

fn packet(filter: &FlowFilter, tests: &mut Tests<'_>) -> Result<(), FilterError> {
    tests.any_read("protocol", &filter.protocol, Protocol::parse, |protocol, flow| protocol.matches(flow))?;
    tests.any_of(
        "tcp_flags",
        &filter.tcp_flags,
        |wanted, flow| matches!(flow.l4, L4::Tcp { flags, .. } if flags & wanted == *wanted),
    )?;
    // Egret sees packets as the pod sends them.
    tests.any_read("source_ip_xlated", &filter.source_ip_xlated, text::net, |_, _| false)?;
    // No packet carries these.
    tests.any_read("trace_id", &filter.trace_id, text::word, |_, _| false)?;
    tests.any_of("ip_trace_id", &filter.ip_trace_id, |id, _| *id == 0)?;
    tests.any_read("uuid", &filter.uuid, text::word, |uuid, flow| *uuid == flow.uuid_text())
}

fn place(filter: &FlowFilter, tests: &mut Tests<'_>) -> Result<(), FilterError> {
    tests.any_regex("node_name", &filter.node_name, text::node, |pattern, flow| {
        pattern.is_match(&flow.node.name)
    })?;
    tests.any_read("node_labels", &filter.node_labels, Selector::parse, |selector, flow| {
        selector.matches(&flow.node.labels)
    })?;
    tests.any_of("interface", &filter.interface, |wanted, flow| {
        flow.interface.as_ref().is_some_and(|there| {
            (wanted.index == 0 || wanted.index == there.index)
                && (wanted.name.is_empty() || wanted.name == there.name)
        })
    })
}

/// Egret reads no HTTP, so that no flow matches; what makes no sense is still refused.
fn http(filter: &FlowFilter, tests: &mut Tests<'_>) -> Result<(), FilterError> {
    tests.any_read("http_status_code", &filter.http_status_code, text::http_status, |(), _| false)?;
    tests.any_regex("http_path", &filter.http_path, text::word, |_, _| false)?;
    tests.any_regex("http_url", &filter.http_url, text::word, |_, _| false)?;
    tests.any_read("http_method", &filter.http_method, text::word, |_, _| false)?;
    tests.any_of("http_header", &filter.http_header, |_, _| false)
}

/// What `protocol` may say.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Protocol {
    Icmp,
    Icmpv4,
    Icmpv6,
    Tcp,
    Udp,
    Sctp,
    Number(u8),
    Dns,
    /// Never seen here.
    Unread,
}

impl Protocol {
    fn parse(text: &str) -> Result<Self, String> {
        Ok(match text.to_ascii_lowercase().as_str() {
            "icmp" => Self::Icmp,
            "icmpv4" => Self::Icmpv4,
            "icmpv6" => Self::Icmpv6,
            "tcp" => Self::Tcp,
            "udp" => Self::Udp,
            "sctp" => Self::Sctp,
            "vrrp" => Self::Number(112),
            "igmp" => Self::Number(2),
            "dns" => Self::Dns,
            "http" | "kafka" => Self::Unread,
            _ => return Err("unknown protocol".into()),
        })
    }

    fn matches(self, flow: &Flow) -> bool {
        match (self, flow.l4) {
            (Self::Icmp, l4) => matches!(l4, L4::Icmpv4(..) | L4::Icmpv6(..)),
            (Self::Icmpv4, L4::Icmpv4(..))
            | (Self::Icmpv6, L4::Icmpv6(..))
            | (Self::Tcp, L4::Tcp { .. })
            | (Self::Udp, L4::Udp(..))
            | (Self::Sctp, L4::Sctp(..)) => true,
            (Self::Number(wanted), L4::Other(number)) => wanted == number,
            (Self::Dns, _) => flow.kind == Kind::L7 && flow.dns.is_some(),
            _ => false,
        }
    }
}
