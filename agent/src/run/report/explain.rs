//! Why a row was denied, in a sentence, and which argument would open it.

use egret_common::maps::{Destination, DestinationKey};
use egret_common::verdict::DropReason;
use egret_core::allow::AllowRule;
use egret_core::names::Name;
use egret_core::ports::Proto;

use super::rows::{Row, Then};
use crate::learn::{Learner, ip};

/// The name that a row is about: of a refused query its own; else the one whose rules came closest, or the one that
/// CMD was told last.
pub(super) fn name(key: &DestinationKey, value: &Destination, learner: &Learner) -> Option<String> {
    if key.reason == DropReason::QueryRefused as u8 {
        return learner.refused(key.name).map(|r| r.text.clone());
    }
    let named = |text: &str| {
        let name = Name::from_dns(text).ok();
        name.is_some_and(|name| learner.state().patterns(value.class).any(|p| p.matches(&name)))
    };
    let told = learner.told().names(ip(key.remote));
    let best = told.max_by_key(|(text, time)| (named(text), *time <= value.last, *time));
    best.map(|(text, _)| text.to_owned())
}

/// The sentence.
pub(super) fn text(key: &DestinationKey, value: &Destination, names: &[String], learner: &Learner) -> String {
    let Some(reason) = DropReason::from_u8(key.reason) else {
        return format!("Reason {} of a newer kernel program.", key.reason);
    };
    let general = reason.explanation().trim();
    match reason {
        DropReason::NameExpired => {
            let names = names.join(", ");
            format!("{general} It expired {} s ago ({names}); ask for the name again.", value.age)
        }
        DropReason::DenyRule => match learner.state().rule(value.cookie) {
            Some((origin, rule)) => format!("{general} It is {} of {origin}.", rule.path),
            None => general.to_owned(),
        },
        DropReason::NameUnresolved | DropReason::NoRule if !names.is_empty() => {
            format!("{general} It is known here only as {}.", names.join(", "))
        }
        DropReason::NameUnresolved | DropReason::NoRule => match learner.told().unlinked(ip(key.remote)) {
            Some(answer) => format!("{general} It stood in the answer for {answer}."),
            None => general.to_owned(),
        },
        _ => general.to_owned(),
    }
}

/// Fills in the suggestions, once all rows are whole.
pub(super) fn suggest_all(rows: &mut [Row]) {
    for row in rows {
        row.suggestion = suggest(row);
    }
}

fn suggest(row: &Row) -> Option<String> {
    if row.direction == "ingress" {
        return None;
    }
    let rules = match row.reason {
        "QueryRefused" => query_rules(row)?,
        "NoRule" | "NameUnresolved" | "NameExpired" | "NamePortMismatch" => vec![destination_rule(row)?],
        _ => return None,
    };
    let arguments: Vec<String> = rules.into_iter().map(|rule| format!("--allow {rule}")).collect();
    Some(arguments.join(" "))
}

/// For a refused name: the name, on the ports that it was then used on (audit), else on the usual ones.
fn query_rules(row: &Row) -> Option<Vec<String>> {
    let name = row.name.as_deref()?;
    AllowRule::parse(name).ok()?;
    let mut rules: Vec<String> = row.then.iter().filter_map(|then| named_rule(name, then)).collect();
    rules.sort();
    rules.dedup();
    Some(if rules.is_empty() { vec![name.to_owned()] } else { rules })
}

fn named_rule(name: &str, then: &Then) -> Option<String> {
    let proto = proto(&then.protocol)?;
    Some(shorten(&AllowRule::suggest(Some(&Name::parse(name).ok()?), then.address, proto, then.port)))
}

fn destination_rule(row: &Row) -> Option<String> {
    let address = row.address?;
    let name = row.name.as_deref().and_then(|n| Name::parse(n).ok());
    match proto(&row.protocol) {
        Some(proto) => Some(shorten(&AllowRule::suggest(name.as_ref(), address, proto, row.port))),
        // A protocol without a name: everything, or nothing.
        None => Some(shorten(&AllowRule::suggest(name.as_ref(), address, Proto::Icmp, 0))),
    }
}

fn proto(text: &str) -> Option<Proto> {
    [Proto::Tcp, Proto::Udp, Proto::Sctp, Proto::Icmp, Proto::Icmpv6]
        .into_iter()
        .find(|p| p.to_string() == text)
}

/// TCP goes without saying.
fn shorten(rule: &AllowRule) -> String {
    let text = rule.to_string();
    text.strip_suffix("/tcp").map_or(text.clone(), str::to_owned)
}
