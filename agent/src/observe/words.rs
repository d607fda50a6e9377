//! Why something was denied, in words; and what kind of rule decided.

use egret_common::event::FlowEvent;
use egret_common::verdict::DropReason;
use egret_core::flow::{L4, Match, PolicyRef};
use egret_core::policy::{Peers, Rule};
use egret_core::ports::{PortSpec, Ports};

/// The reason's name, its sentence, and the facts.
pub(super) fn why(
    reason: DropReason,
    event: &FlowEvent,
    names: &[String],
    rule: Option<&(PolicyRef, &Rule)>,
) -> String {
    let mut text = format!("{}: {}", reason.name(), reason.explanation().trim());
    match (reason, rule) {
        (DropReason::NameExpired, _) => {
            text.push_str(&format!(" It expired {} s ago.", event.age));
        }
        (DropReason::DenyRule, Some((policy, rule))) => {
            text.push_str(&format!(" It is {} of {}.", rule.path, object(policy)));
        }
        _ => {}
    }
    if !names.is_empty() {
        text.push_str(&format!(" The address is known here as {}.", names.join(", ")));
    }
    text
}

/// The transport's name.
pub(super) fn transport(l4: L4) -> &'static str {
    match l4 {
        L4::Tcp { .. } => "TCP",
        L4::Udp(..) => "UDP",
        L4::Sctp(..) => "SCTP",
        L4::Icmpv4(..) => "ICMPv4",
        L4::Icmpv6(..) => "ICMPv6",
        L4::Other(_) => "Flow",
    }
}

fn object(policy: &PolicyRef) -> String {
    match policy.namespace.as_str() {
        "" => format!("{}/{}", policy.kind, policy.name),
        namespace => format!("{}/{namespace}/{}", policy.kind, policy.name),
    }
}

/// Whether policies decide this way; other reasons are about the packet.
pub(super) fn is_of_policy(reason: DropReason) -> bool {
    matches!(reason, DropReason::DenyRule) || is_default(reason)
}

/// Whether nothing allowed it, rather than something denied it.
pub(super) fn is_default(reason: DropReason) -> bool {
    matches!(
        reason,
        DropReason::NoRule
            | DropReason::NameUnresolved
            | DropReason::NameExpired
            | DropReason::NamePortMismatch
            | DropReason::ServiceBackendDenied
    )
}

/// What the rule is about; without a rule everything is allowed, or nothing is.
pub(super) fn matched(rule: Option<&Rule>, reason: Option<DropReason>) -> Match {
    let Some(rule) = rule else {
        return if reason.is_none() { Match::All } else { Match::None };
    };
    let anybody = rule.peers == Peers::Any;
    match (ports(&rule.ports), anybody) {
        (Width::All, true) => Match::All,
        (Width::All, false) => Match::L3Only,
        (Width::Protocol, true) => Match::ProtoOnly,
        (Width::Protocol, false) => Match::L3Proto,
        (Width::Some, true) => Match::L4Only,
        (Width::Some, false) => Match::L3L4,
    }
}

enum Width {
    All,
    Protocol,
    Some,
}

fn ports(ports: &Ports) -> Width {
    let Ports::Only(specs) = ports else { return Width::All };
    let whole = |spec: &PortSpec| match spec {
        PortSpec::Range(range) => (range.lo(), range.hi()) == (0, u16::MAX),
        PortSpec::Named(..) => false,
    };
    if specs.iter().all(whole) { Width::Protocol } else { Width::Some }
}
