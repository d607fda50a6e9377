//! Values of options that the API has numbers for.

use egret_common::verdict::DropReason;

use crate::observe::proto::flow::{
    DropReason as HubbleReason, EventTypeFilter, IpVersion, TcpFlags, TrafficDirection, Verdict, Workload,
};

/// Reserved identities, in the order of their numbers from 0 on.
pub(in crate::flows) const RESERVED: [&str; 11] = [
    "unknown",
    "host",
    "world",
    "unmanaged",
    "health",
    "init",
    "remote-node",
    "kube-apiserver",
    "ingress",
    "world-ipv4",
    "world-ipv6",
];

/// Event types by the names that options have for them.
const TYPES: [(&str, i32); 6] =
    [("drop", 1), ("capture", 3), ("trace", 4), ("policy-verdict", 5), ("trace-sock", 7), ("l7", 129)];

/// What a trace saw, in the order of its numbers from 0 on.
pub(in crate::flows) const TRACES: [&str; 14] = [
    "to-endpoint",
    "to-proxy",
    "to-host",
    "to-stack",
    "to-overlay",
    "from-endpoint",
    "from-proxy",
    "from-host",
    "from-stack",
    "from-overlay",
    "from-network",
    "to-network",
    "from-crypto",
    "to-crypto",
];

pub(super) fn reason(text: &str) -> Result<DropReason, String> {
    DropReason::ALL.iter().copied().find(|reason| reason.name().eq_ignore_ascii_case(text)).ok_or_else(|| {
        let names: Vec<&str> = DropReason::ALL.iter().map(|reason| reason.name()).collect();
        format!("--reason {text:?} is no reason; there are {}", names.join(", "))
    })
}

pub(super) fn identity(text: &str) -> Result<u32, String> {
    let number = RESERVED.iter().position(|name| *name == text).and_then(|number| u32::try_from(number).ok());
    number.or_else(|| text.parse().ok()).ok_or_else(|| format!("write a number, or {}", RESERVED.join(", ")))
}

pub(super) fn workload(text: &str) -> Result<Workload, String> {
    let (kind, name) = text.split_once('/').unwrap_or(("", text));
    if (kind.is_empty() && name.is_empty()) || name.contains('/') {
        return Err("write NAME, KIND/NAME or KIND/".to_owned());
    }
    Ok(Workload { name: name.to_owned(), kind: kind.to_owned() })
}

pub(super) fn verdict(text: &str) -> Result<i32, String> {
    let known = Verdict::from_str_name(&text.to_ascii_uppercase()).filter(|v| *v != Verdict::Unknown);
    known
        .map(Into::into)
        .ok_or_else(|| "write FORWARDED, DROPPED, ERROR, AUDIT, REDIRECTED, TRACED or TRANSLATED".to_owned())
}

pub(super) fn drop_reason(text: &str) -> Result<i32, String> {
    let known = HubbleReason::from_str_name(&text.to_ascii_uppercase());
    known.filter(|reason| *reason != HubbleReason::Unknown).map(Into::into).ok_or_else(|| {
        let all = (1..=i32::from(u8::MAX)).filter_map(|number| HubbleReason::try_from(number).ok());
        let names: Vec<&str> = all.map(|reason| reason.as_str_name()).collect();
        format!("there are {}", names.join(", "))
    })
}

pub(super) fn event_type(text: &str) -> Result<EventTypeFilter, String> {
    let (kind, sub) = text.split_once(':').map_or((text, None), |(kind, sub)| (kind, Some(sub)));
    let named = TYPES.iter().find(|(name, _)| *name == kind).map(|(_, number)| *number);
    let number = named.or_else(|| kind.parse().ok().filter(|number| (1..=255).contains(number)));
    let number = number.ok_or_else(|| {
        let names: Vec<&str> = TYPES.iter().map(|(name, _)| *name).collect();
        format!("write {} or a number up to 255", names.join(", "))
    })?;
    let Some(sub) = sub else { return Ok(EventTypeFilter { r#type: number, ..Default::default() }) };
    let trace = TRACES.iter().position(|name| *name == sub).filter(|_| number == 4);
    let trace = trace.and_then(|number| i32::try_from(number).ok());
    let sub = trace.or_else(|| sub.parse().ok().filter(|number| (0..=255).contains(number)));
    let sub =
        sub.ok_or("after the colon: a number up to 255, or of a trace what it saw, such as to-stack")?;
    Ok(EventTypeFilter { r#type: number, match_sub_type: true, sub_type: sub })
}

pub(super) fn direction(text: &str) -> Result<i32, String> {
    match text.to_ascii_lowercase().as_str() {
        "ingress" => Ok(TrafficDirection::Ingress.into()),
        "egress" => Ok(TrafficDirection::Egress.into()),
        _ => Err("write ingress or egress".to_owned()),
    }
}

pub(super) fn ip_version(text: &str) -> Result<i32, String> {
    match text.to_ascii_lowercase().as_str() {
        "4" | "v4" | "ipv4" => Ok(IpVersion::IPv4.into()),
        "6" | "v6" | "ipv6" => Ok(IpVersion::IPv6.into()),
        _ => Err("write 4 or 6".to_owned()),
    }
}

pub(super) fn tcp_flags(text: &str) -> Result<TcpFlags, String> {
    let mut flags = TcpFlags::default();
    for name in text.split(',') {
        let flag = match name.trim().to_ascii_uppercase().as_str() {
            "FIN" => &mut flags.fin,
            "SYN" => &mut flags.syn,
            "RST" => &mut flags.rst,
            "PSH" => &mut flags.psh,
            "ACK" => &mut flags.ack,
            "URG" => &mut flags.urg,
            "ECE" => &mut flags.ece,
            "CWR" => &mut flags.cwr,
            "NS" => &mut flags.ns,
            _ => return Err("write FIN, SYN, RST, PSH, ACK, URG, ECE, CWR or NS".to_owned()),
        };
        *flag = true;
    }
    Ok(flags)
}
