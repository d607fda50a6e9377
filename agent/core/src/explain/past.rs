//! What the last flows say.

use std::{collections::BTreeSet, net::IpAddr, net::SocketAddr, sync::Arc};

use egret_common::{decide::Tables, net::Direction, verdict::Verdict};

use super::{
    Link, LinkState,
    case::{Case, Known, Local},
    judge::{self, Judged},
    words,
};
use crate::flow::{Flow, Kind, Side};
use crate::policy::DNS_PORT;

/// Flows that are shown.
const SHOWN: usize = 5;

/// The flows between the workload and these addresses, the newest first; DNS messages are the journal's.
pub(super) fn between<'a, T: Tables, K: Known>(
    case: &Case<'a, T, K>,
    local: &Local<'_>,
    direction: Direction,
    remotes: &BTreeSet<IpAddr>,
) -> Vec<&'a Arc<Flow>> {
    let concerns = |flow: &&Arc<Flow>| {
        let (own, remote) = ends(flow, direction);
        flow.direction == direction
            && flow.kind != Kind::L7
            && own.id == local.id
            && remote.ip.is_some_and(|ip| remotes.contains(&ip.to_canonical()))
    };
    case.flows.unwrap_or_default().iter().filter(concerns).collect()
}

/// The workload's end, and the other.
fn ends(flow: &Flow, direction: Direction) -> (&Side, &Side) {
    match direction {
        Direction::Egress => (&flow.source, &flow.destination),
        Direction::Ingress => (&flow.destination, &flow.source),
    }
}

/// The last flows and the counters; nothing where nobody was looking.
pub(super) fn link<T: Tables, K: Known>(
    case: &Case<'_, T, K>,
    local: &Local<'_>,
    direction: Direction,
    remotes: &BTreeSet<IpAddr>,
) -> Option<Link> {
    case.flows?;
    let flows = between(case, local, direction, remotes);
    let mut evidence = lines(&flows, direction, case.now.wall);
    if flows.is_empty() {
        evidence.push("none is remembered".into());
    }
    let dropped = local.counters.iter().filter(|(of, reason, _)| *of == direction && reason.is_some());
    let dropped: Vec<String> = dropped
        .filter_map(|(_, reason, packets)| Some(format!("{} {packets}", reason.as_ref()?.name())))
        .collect();
    if !dropped.is_empty() {
        evidence.push(format!(
            "dropped {} of this workload so far: {}",
            direction.name(),
            dropped.join(", ")
        ));
    }
    let state = match flows.first().map(|flow| flow.verdict) {
        None => LinkState::Unknown,
        Some(Verdict::Dropped) => LinkState::Broken,
        Some(_) => LinkState::Ok,
    };
    Some(Link { direction, name: "flows", state, evidence })
}

/// What happened, the newest first; what happened several times stands once.
fn lines(flows: &[&Arc<Flow>], direction: Direction, now: u64) -> Vec<String> {
    let mut told: Vec<((&str, String), u64, usize)> = Vec::new();
    // A packet that was dropped is there twice, as a verdict and as a drop.
    let judged = flows.iter().any(|flow| flow.kind == Kind::Verdict);
    for flow in flows.iter().filter(|flow| !judged || flow.kind == Kind::Verdict) {
        let text = line(flow, direction);
        match told.iter_mut().find(|(known, ..)| *known == text) {
            Some((.., times)) => *times += 1,
            None => told.push((text, flow.time, 1)),
        }
    }
    let line = |((verdict, what), time, times): ((&str, String), u64, usize)| {
        let times = if times > 1 { format!("{times} times") } else { "once".to_owned() };
        format!("{verdict} {times}, {}: {what}", words::ago(now.saturating_sub(time)))
    };
    told.into_iter().take(SHOWN).map(line).collect()
}

/// What was done with what.
fn line(flow: &Flow, direction: Direction) -> (&'static str, String) {
    let (_, remote) = ends(flow, direction);
    let verdict = match flow.verdict {
        Verdict::Forwarded => "passed",
        Verdict::Dropped => "dropped",
        Verdict::Audited => "passed (audit)",
    };
    let port = flow.l4.ports().map(|(_, to)| format!(" port {to}")).unwrap_or_default();
    let ip = remote.ip.map_or_else(|| "?".to_owned(), |ip| ip.to_string());
    let reason = flow.reason.map(|reason| format!(" ({})", reason.name())).unwrap_or_default();
    (verdict, format!("{ip}{port}{reason}"))
}

/// The last resolver that it asked by a packet that passed, and whose answers are not learned, with the time.
pub(super) fn untrusted_resolver<T: Tables, K: Known>(
    case: &Case<'_, T, K>,
    local: &Local<'_>,
    is_learned: impl Fn(&Judged) -> bool,
) -> Option<(SocketAddr, u64)> {
    let asked = |flow: &&Arc<Flow>| {
        flow.kind == Kind::Verdict && flow.source.id == local.id && flow.verdict != Verdict::Dropped
    };
    let to = |flow: &Arc<Flow>| {
        let (_, port) = flow.l4.ports().filter(|(_, port)| *port == DNS_PORT)?;
        Some((SocketAddr::new(flow.destination.ip?.to_canonical(), port), flow.time))
    };
    let last = case.flows.unwrap_or_default().iter().filter(asked).find_map(to)?;
    let judged = judge::dns(case, local, last.0);
    (judged.reason().is_none() && !is_learned(&judged)).then_some(last)
}

/// What is different now from when the newest of these flows passed: the workload's labels, or those of the other side.
pub(super) fn changed_labels<T: Tables, K: Known>(
    case: &Case<'_, T, K>,
    local: &Local<'_>,
    direction: Direction,
    remotes: &BTreeSet<IpAddr>,
) -> Option<String> {
    let flows = between(case, local, direction, remotes);
    let passed = flows.iter().find(|flow| {
        let port = flow.l4.ports().map(|(_, port)| port);
        flow.verdict == Verdict::Forwarded && port.is_none_or(|port| port == case.port)
    })?;
    let (own, remote) = ends(passed, direction);
    let when = words::ago(case.now.wall.saturating_sub(passed.time));
    if let Some(change) = change(&own.labels, &local.labels) {
        return Some(format!("labels of {} have changed since it passed {when}: {change}", local.name));
    }
    let owner = case.known.owner(remote.ip?);
    let pod = |labels: &[String]| labels.iter().any(|label| label.starts_with("k8s:"));
    let change =
        change(&remote.labels, &owner.labels).filter(|_| pod(&remote.labels) && pod(&owner.labels))?;
    Some(format!("labels of {} have changed since it passed {when}: {change}", owner.name))
}

fn change(before: &[String], now: &[String]) -> Option<String> {
    let only = |these: &[String], those: &[String]| -> Vec<String> {
        these.iter().filter(|label| !those.contains(label)).cloned().collect()
    };
    let (gone, new) = (only(before, now), only(now, before));
    let any = !gone.is_empty() || !new.is_empty();
    any.then(|| format!("{} before, {} now", words::list(&gone), words::list(&new)))
}
