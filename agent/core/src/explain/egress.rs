//! The chain of what a workload sends.

use std::{collections::BTreeSet, net::IpAddr};

use egret_common::{decide::Tables, maps::ENDPOINT_AUDIT, net::Direction, verdict::DropReason};

use super::{
    Cause, Finding, Link, LinkState, Outcome, advice,
    case::{Case, Held, Known, Local, Target},
    judge::{self, Judged},
    names::{self, Reach},
    past, words,
};
use crate::{dns::journal::LookUp, names::Name};

/// Addresses that are judged.
const ADDRESSES: usize = 16;

/// Looks at every link; the finding is what becomes of the connection.
pub(super) fn walk<T: Tables, K: Known>(
    case: &Case<'_, T, K>,
    local: &Local<'_>,
    to: &Target,
    from: &Target,
    links: &mut Vec<Link>,
) -> Finding {
    let egress = Direction::Egress;
    links.push(managed(local, egress));
    links.push(selected(local, egress));
    let mut remotes: BTreeSet<IpAddr> = to.addresses.iter().map(|ip| ip.to_canonical()).collect();
    if let Some(name) = &to.name {
        remotes.extend(names::usable(case, local, name).into_iter().filter(|ip| from.sends_to(*ip)));
    }
    let finding = match &to.name {
        _ if local.spared => advice::spared(local),
        Some(name) => by_name(case, local, name, &remotes, links),
        None => by_address(case, local, &remotes, links),
    };
    links.extend(past::link(case, local, egress, &remotes));
    let finding = past::changed_labels(case, local, egress, &remotes)
        .filter(|_| matches!(finding.cause, Cause::NoRule | Cause::NoPolicy))
        .map_or_else(|| finding.clone(), |change| advice::relabelled(finding.clone(), change));
    standing(local, finding)
}

/// What the verdict is worth where nothing enforces it.
pub(super) fn standing(local: &Local<'_>, finding: Finding) -> Finding {
    match &local.held {
        Held::Not(why) => advice::unmanaged(local, why),
        _ if finding.outcome == Outcome::Denied && local.endpoint.flags & ENDPOINT_AUDIT != 0 => {
            Finding { outcome: Outcome::Audited, ..finding }
        }
        _ => finding,
    }
}

/// Whether somebody enforces anything on the workload.
pub(super) fn managed(local: &Local<'_>, direction: Direction) -> Link {
    let (state, mut evidence) = match &local.held {
        Held::Ready(at) => {
            (LinkState::Ok, vec![format!("{} is held at {at} as endpoint {}", local.name, local.id)])
        }
        Held::Not(why) => (LinkState::Broken, vec![format!("{} is not held: {why}", local.name)]),
        Held::Assumed => (LinkState::Unknown, vec![format!("{}, as the files have it", local.name)]),
    };
    if local.spared {
        evidence.push("the agent itself runs in it: no policy is enforced on it".into());
    }
    if local.endpoint.flags & ENDPOINT_AUDIT != 0 {
        evidence.push("audit mode: what is denied passes, and is shown".into());
    }
    if local.host_network {
        evidence.push("it is on its node's network, and held by its cgroup".into());
    }
    Link { direction, name: "endpoint", state, evidence }
}

/// The policies that select it. There is no wrong number of them.
pub(super) fn selected(local: &Local<'_>, direction: Direction) -> Link {
    let mut evidence: Vec<String> = local
        .policies
        .each()
        .filter(|policy| {
            policy.isolates().of(direction) || policy.rules().iter().any(|r| r.direction == direction)
        })
        .map(|policy| match policy.isolates().of(direction) {
            true => format!("{} denies what nothing allows", policy.origin()),
            false => format!("{} selects it", policy.origin()),
        })
        .collect();
    if evidence.is_empty() {
        let labels = words::labels(&local.labels);
        evidence.push(format!("no policy for {} selects it; its labels: {labels}", direction.name()));
    }
    Link { direction, name: "policies", state: LinkState::Ok, evidence }
}

fn by_address<T: Tables, K: Known>(
    case: &Case<'_, T, K>,
    local: &Local<'_>,
    remotes: &BTreeSet<IpAddr>,
    links: &mut Vec<Link>,
) -> Finding {
    let judged = rules(case, local, Direction::Egress, remotes, links);
    let Some(first) = judged.iter().find(|judged| judged.reason().is_some()).or(judged.first()) else {
        return advice::no_address();
    };
    if first.reason() == Some(DropReason::NameUnresolved) {
        let (link, reach) = names::resolver(case, local);
        links.push(link);
        let known: Vec<String> =
            case.state.names_of(local.id, first.ip).map(|(name, _)| name.to_string()).collect();
        return advice::unresolved(case, local, first, &known, &reach);
    }
    advice::of(case, local, Direction::Egress, first, None)
}

fn by_name<T: Tables, K: Known>(
    case: &Case<'_, T, K>,
    local: &Local<'_>,
    name: &Name,
    remotes: &BTreeSet<IpAddr>,
    links: &mut Vec<Link>,
) -> Finding {
    if !judge::may_deny(local, Direction::Egress) {
        return advice::open(local, Direction::Egress);
    }
    let (link, reach) = names::resolver(case, local);
    links.push(link);
    let (link, may_ask, seen) = names::query(case, local, name, &reach);
    links.push(link);
    links.push(names::answer(case, local, name, seen));
    let judged = match remotes.is_empty() {
        true => Vec::new(),
        false => rules(case, local, Direction::Egress, remotes, links),
    };
    let worst = judged.iter().find(|judged| judged.reason().is_some()).or(judged.first());
    let of = |judged: &Judged| advice::of(case, local, Direction::Egress, judged, Some(name));
    let now = case.tables.grant_now();
    // What it has is good, whatever becomes of the next look-up.
    let live = names::told(case, local, name).any(|(_, expires)| expires > now);
    if let Some(judged) = worst.filter(|_| live) {
        return of(judged);
    }
    unreached(case, local, name, (&reach, may_ask, seen), worst)
        .unwrap_or_else(|| worst.map_or_else(|| advice::assumed(case, local, name), of))
}

/// What keeps the workload from getting an address for the name.
fn unreached<T: Tables, K: Known>(
    case: &Case<'_, T, K>,
    local: &Local<'_>,
    name: &Name,
    (reach, may_ask, seen): (&Reach, bool, Option<LookUp>),
    worst: Option<&Judged>,
) -> Option<Finding> {
    if let Reach::Denied(resolver, judged) = reach {
        return Some(advice::dns_denied(case, local, *resolver, judged));
    }
    if !may_ask {
        return Some(advice::query_refused(local, name));
    }
    // Where every address of the world is open, nobody has to be told one.
    if let Some(open) = advice::nameless(case, local, name).filter(|_| worst.is_none()) {
        return Some(open);
    }
    let passes = worst.is_some_and(|judged| judged.reason().is_none());
    match reach {
        Reach::Untrusted(resolver) if !passes => {
            return Some(advice::untrusted(local, name.as_str(), *resolver));
        }
        _ if worst.is_some() || case.journal.is_none() => return None,
        _ => {}
    }
    let Some(asked) = seen.and_then(|seen| seen.asked) else {
        return Some(advice::never_asked(local, name));
    };
    match seen.and_then(|seen| seen.answered()).filter(|answered| answered.time >= asked.time) {
        None => Some(advice::no_answer(local, name, asked.resolver)),
        Some(answered) if answered.rcode != 0 => Some(advice::answer_error(local, name, answered)),
        Some(answered) => Some(advice::no_good_address(local, name, answered)),
    }
}

/// Judges every address, and tells which rule decides.
pub(super) fn rules<T: Tables, K: Known>(
    case: &Case<'_, T, K>,
    local: &Local<'_>,
    direction: Direction,
    remotes: &BTreeSet<IpAddr>,
    links: &mut Vec<Link>,
) -> Vec<Judged> {
    let judged: Vec<Judged> =
        remotes.iter().take(ADDRESSES).map(|ip| judge::judge(case, local, direction, *ip)).collect();
    let broken = judged.iter().any(|judged| judged.reason().is_some());
    let state = match judged.is_empty() {
        true => LinkState::Unknown,
        false if broken => LinkState::Broken,
        false => LinkState::Ok,
    };
    let mut evidence: Vec<String> =
        judged.iter().flat_map(|judged| judge::lines(case, local, judged)).collect();
    if remotes.len() > ADDRESSES {
        evidence.push(format!("{} more addresses were not judged", remotes.len() - ADDRESSES));
    }
    if remotes.is_empty() {
        evidence.push("there is no address to judge".into());
    }
    links.push(Link { direction, name: "rules", state, evidence });
    judged
}
