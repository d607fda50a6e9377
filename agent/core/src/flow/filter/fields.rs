//! Fields about the flow as a whole.

use egret_common::verdict::Verdict;

use super::{FilterError, FlowFilter, Matcher, any_of, label::Selector, read, text};
use crate::flow::{Flow, Kind, L4};

pub(super) fn add(filter: &FlowFilter, tests: &mut Matcher) -> Result<(), FilterError> {
    numbers(filter, tests);
    packet(filter, tests)?;
    place(filter, tests)?;
    http(filter, tests)?;

    let names = read("dns_query", &filter.dns_query, text::regex)?;
    any_of(tests, names, |pattern, flow| flow.dns.as_ref().is_some_and(|dns| pattern.is_match(&dns.query)));
    if let Some(expression) = filter.cel_expression.first() {
        return Err(FilterError::new("cel_expression", expression, "expressions in CEL are not supported"));
    }
    Ok(())
}

fn numbers(filter: &FlowFilter, tests: &mut Matcher) {
    any_of(tests, filter.verdict.clone(), |verdict, flow| flow.verdict as i32 == *verdict);
    any_of(tests, filter.drop_reason_desc.clone(), |reason, flow| {
        flow.verdict == Verdict::Dropped && i64::from(flow.hubble_reason()) == i64::from(*reason)
    });
    any_of(tests, filter.event_type.clone(), |wanted, flow| {
        let (kind, sub) = flow.event_type();
        (wanted.kind == 0 || wanted.kind == kind) && wanted.sub.is_none_or(|wanted| wanted == sub)
    });
    any_of(tests, filter.traffic_direction.clone(), |direction, flow| flow.traffic_direction() == *direction);
    // A dropped packet has no connection: it counts as no reply.
    any_of(tests, filter.reply.clone(), |reply, flow| match flow.is_reply {
        Some(is) => is == *reply,
        None => flow.verdict == Verdict::Dropped && !*reply,
    });
    any_of(tests, filter.ip_version.clone(), |version, flow| flow.ip_version() == *version);
    // Nothing is encrypted between nodes.
    any_of(tests, filter.encrypted.clone(), |encrypted, _| !*encrypted);
}

fn packet(filter: &FlowFilter, tests: &mut Matcher) -> Result<(), FilterError> {
    let protocols = read("protocol", &filter.protocol, Protocol::parse)?;
    any_of(tests, protocols, |protocol, flow| protocol.matches(flow));
    any_of(
        tests,
        filter.tcp_flags.clone(),
        |wanted, flow| matches!(flow.l4, L4::Tcp { flags, .. } if flags & wanted == *wanted),
    );
    // Egret sees packets as the pod sends them.
    let translated = read("source_ip_xlated", &filter.source_ip_xlated, text::net)?;
    any_of(tests, translated, |_, _| false);
    // No packet carries these.
    any_of(tests, filter.trace_id.clone(), |_, _| false);
    any_of(tests, filter.ip_trace_id.clone(), |id, _| *id == 0);
    any_of(tests, filter.uuid.clone(), |uuid, flow| *uuid == flow.uuid_text());
    Ok(())
}

fn place(filter: &FlowFilter, tests: &mut Matcher) -> Result<(), FilterError> {
    let nodes = read("node_name", &filter.node_name, text::node)?;
    any_of(tests, nodes, |pattern, flow| pattern.is_match(&flow.node.name));
    let selectors = read("node_labels", &filter.node_labels, Selector::parse)?;
    any_of(tests, selectors, |selector, flow| selector.matches(&flow.node.labels));
    any_of(tests, filter.interface.clone(), |wanted, flow| {
        flow.interface.as_ref().is_some_and(|there| {
            (wanted.index == 0 || wanted.index == there.index)
                && (wanted.name.is_empty() || wanted.name == there.name)
        })
    });
    Ok(())
}

/// Egret reads no HTTP, so that no flow matches; what makes no sense is still refused.
fn http(filter: &FlowFilter, tests: &mut Matcher) -> Result<(), FilterError> {
    any_of(tests, read("http_status_code", &filter.http_status_code, text::http_status)?, |_, _| false);
    any_of(tests, read("http_path", &filter.http_path, text::regex)?, |_, _| false);
    any_of(tests, read("http_url", &filter.http_url, text::regex)?, |_, _| false);
    any_of(tests, filter.http_method.clone(), |_, _| false);
    any_of(tests, filter.http_header.clone(), |_, _| false);
    Ok(())
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
