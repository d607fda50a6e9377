//! The rows of a report, from the kernel's exact counts and from what DNS has taught.

use std::collections::BTreeMap;
use std::net::IpAddr;

use egret_common::maps::{Destination, DestinationKey};
use egret_common::net::{Direction, proto};
use egret_common::verdict::DropReason;
use egret_core::names::Name;
use egret_core::ports::Proto;
use serde::Serialize;

use super::explain;
use crate::learn::{Learner, ip};

/// What was denied (in audit mode: would have been), with everything that is known about it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Row {
    /// The name that CMD asked for, or the name under which it knows the address; null if there is none.
    pub name: Option<String>,
    /// Every name that CMD was told this address under.
    pub names: Vec<String>,
    /// The peer; for a refused query the resolver.
    pub address: Option<IpAddr>,
    /// Destination port; ICMP: type * 256 + code.
    pub port: u16,
    /// `tcp`, `udp`, `icmp`, `icmpv6`, `sctp`, `dns` for a refused query, or the IP protocol's number.
    pub protocol: String,
    /// `egress` or `ingress`.
    pub direction: &'static str,
    /// Name of the process that made the socket; empty if unknown.
    pub process: String,
    /// Its process id, seen from the host; of several, the first.
    pub pid: Option<u32>,
    /// How often.
    pub count: u64,
    /// Name of the reason; see `explanation`.
    pub reason: &'static str,
    /// The reason in a sentence.
    pub explanation: String,
    /// Arguments of `egret run` that would open it; null where no rule could.
    pub suggestion: Option<String>,
    /// Audit mode, a query that would have been refused: what CMD went on to with the answer. Enforcing, it would never
    /// have come to that, so these have no rows of their own.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub then: Vec<Then>,
}

/// What followed a query.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Then {
    /// The peer.
    pub address: IpAddr,
    /// Destination port; ICMP: type * 256 + code.
    pub port: u16,
    /// As in [`Row`].
    pub protocol: String,
}

/// Rows that differ in none of these are one.
type Key = (Option<String>, Option<IpAddr>, u16, String, String, &'static str);

/// All rows, in the order of their first occurrence.
#[must_use]
pub fn build(
    destinations: &[(DestinationKey, Destination)],
    learner: &Learner,
    search: &[Name],
    audit: bool,
) -> Vec<Row> {
    let denied = destinations.iter().filter(|(key, _)| key.reason != 0);
    let mut denied: Vec<_> =
        denied.filter_map(|(key, value)| without_held(key, value, destinations)).collect();
    denied.sort_by_key(|(key, value)| (value.first, *key));
    let mut rows: Vec<Row> = Vec::new();
    let mut places: BTreeMap<Key, usize> = BTreeMap::new();
    let mut followed: Vec<(String, Then)> = Vec::new();
    for (key, value) in &denied {
        if let Some(name) = audit.then(|| only_refused(key, value, learner)).flatten() {
            followed.push((name, then(key)));
            continue;
        }
        let row = row(key, value, learner);
        let same =
            (row.name.clone(), row.address, row.port, row.protocol.clone(), row.process.clone(), row.reason);
        match places.get(&same) {
            Some(place) => rows[*place].count += row.count,
            None => {
                places.insert(same, rows.len());
                rows.push(row);
            }
        }
    }
    for (name, then) in followed {
        attach(&mut rows, &name, then);
    }
    fold_searches(&mut rows, search);
    explain::suggest_all(&mut rows);
    rows
}

/// A packet that was held back while an answer was on its way is no denial if TCP's next try went through.
fn without_held(
    key: &DestinationKey,
    value: &Destination,
    all: &[(DestinationKey, Destination)],
) -> Option<(DestinationKey, Destination)> {
    let through = DestinationKey { reason: 0, ..*key };
    let went = value.held != 0 && all.iter().any(|(k, v)| *k == through && v.last >= value.first);
    let held = if went { u64::from(value.held) } else { 0 };
    let left = Destination { count: value.count.saturating_sub(held), ..*value };
    (left.count > 0).then_some((*key, left))
}

fn row(key: &DestinationKey, value: &Destination, learner: &Learner) -> Row {
    let reason = DropReason::from_u8(key.reason);
    let address = ip(key.remote);
    let names: Vec<String> = match reason {
        Some(DropReason::QueryRefused) => {
            learner.refused(key.name).map(|r| r.text.clone()).into_iter().collect()
        }
        _ => learner.told().names(address).map(|(name, _)| name.to_owned()).collect(),
    };
    let name = explain::name(key, value, learner).or_else(|| names.first().cloned());
    Row {
        explanation: explain::text(key, value, &names, learner),
        name,
        names,
        address: Some(address),
        port: key.port,
        protocol: protocol(key.proto),
        direction: side(key).name(),
        process: process(&value.comm),
        pid: (key.pid != 0).then_some(key.pid),
        count: value.count,
        reason: reason.map_or("Unknown", DropReason::name),
        suggestion: None,
        then: Vec::new(),
    }
}

/// The refused name that CMD must have this address from: before it went there it was told no other name for it.
fn only_refused(key: &DestinationKey, value: &Destination, learner: &Learner) -> Option<String> {
    if key.reason == DropReason::QueryRefused as u8 || side(key) == Direction::Ingress {
        return None;
    }
    let told = learner.told().names(ip(key.remote)).filter(|(_, time)| *time <= value.first);
    let names: Vec<(&str, u64)> = told.collect();
    let all = names.iter().all(|(name, _)| learner.is_refused(name));
    let last = names.iter().max_by_key(|(_, time)| *time).filter(|_| all);
    last.map(|(name, _)| (*name).to_owned())
}

fn then(key: &DestinationKey) -> Then {
    Then { address: ip(key.remote), port: key.port, protocol: protocol(key.proto) }
}

fn attach(rows: &mut [Row], name: &str, then: Then) {
    let refused = DropReason::QueryRefused.name();
    for row in rows.iter_mut().filter(|r| r.reason == refused && r.name.as_deref() == Some(name)) {
        if !row.then.contains(&then) {
            row.then.push(then.clone());
        }
    }
}

/// A client with search domains asks for one name in several forms. They are one row, under the name that was meant.
fn fold_searches(rows: &mut Vec<Row>, search: &[Name]) {
    let mut at = 0;
    while at < rows.len() {
        let bare = search.iter().find_map(|domain| meant(rows, at, domain));
        let Some(bare) = bare else {
            at += 1;
            continue;
        };
        let row = rows.remove(at);
        let bare = if bare > at { bare - 1 } else { bare };
        if let Some(kept) = rows.get_mut(bare) {
            kept.count += row.count;
            kept.then.extend(row.then);
        }
    }
}

/// The row of the name that the row at `at` is about with `domain` appended.
fn meant(rows: &[Row], at: usize, domain: &Name) -> Option<usize> {
    let row = rows.get(at)?;
    let text = row.name.as_deref()?.strip_suffix(domain.as_str())?.strip_suffix('.')?;
    let refused = DropReason::QueryRefused.name();
    let same = |r: &Row| r.reason == refused && r.process == row.process && r.name.as_deref() == Some(text);
    if row.reason == refused { rows.iter().position(same) } else { None }
}

fn side(key: &DestinationKey) -> Direction {
    if key.direction == Direction::Ingress as u32 { Direction::Ingress } else { Direction::Egress }
}

/// The protocol's name in lower case, or its number.
#[must_use]
pub fn protocol(number: u8) -> String {
    match Proto::from_number(number) {
        Some(proto) => proto.to_string(),
        None if number == proto::DNS_QUERY => "dns".into(),
        None => number.to_string(),
    }
}

/// The kernel's 16 bytes as text.
#[must_use]
pub fn process(comm: &[u8; 16]) -> String {
    let end = comm.iter().position(|b| *b == 0).unwrap_or(comm.len());
    String::from_utf8_lossy(&comm[..end]).into_owned()
}

#[cfg(test)]
mod tests;
