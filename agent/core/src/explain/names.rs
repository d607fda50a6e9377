//! The links that lead from a name to addresses: resolver, query, answer.

use std::net::SocketAddr;

use egret_common::{
    decide::{Tables, may_ask},
    grant::ticks,
    ids::ClassId,
    maps::{COOKIE_DNS, ENDPOINT_QUERY_FILTER},
    net::Direction,
};

use super::{
    Link, LinkState,
    case::{Case, Known, Local},
    judge::{self, Judged},
    past, words,
};
use crate::{
    compile::addr,
    dns::journal::LookUp,
    names::Name,
    policy::{DNS_PORT, Peers},
};

/// Resolvers that are looked at.
const RESOLVERS: usize = 4;

/// How look-ups of the workload fare.
#[derive(Debug, Clone)]
pub(super) enum Reach {
    /// It may reach one whose answers are learned.
    Good(SocketAddr),
    /// It may reach none of them.
    Denied(SocketAddr, Judged),
    /// It asks one whose answers are not learned.
    Untrusted(SocketAddr),
    /// None is known.
    Unknown,
}

/// Which resolver it uses, and whether that is allowed and learned from.
pub(super) fn resolver<T: Tables, K: Known>(case: &Case<'_, T, K>, local: &Local<'_>) -> (Link, Reach) {
    let last = case.journal.and_then(|journal| journal.last_query(local.id)).filter(|asked| !asked.refused);
    let mut evidence = Vec::new();
    if let Some(asked) = last {
        let when = words::ago(case.now.boot.saturating_sub(asked.time));
        evidence.push(format!("it last asked {} {when}", asked.resolver));
    }
    let foreign = past::untrusted_resolver(case, local, |judged| is_learned(case, judged));
    let newer = |(_, time): &(SocketAddr, u64)| {
        last.is_none_or(|asked| {
            *time > case.now.wall.saturating_sub(case.now.boot.saturating_sub(asked.time))
        })
    };
    let reach = match foreign.filter(newer) {
        Some((resolver, time)) => {
            let when = words::ago(case.now.wall.saturating_sub(time));
            evidence.push(format!("it asked {resolver} {when}"));
            evidence.push(format!("answers of {resolver} are not learned"));
            Reach::Untrusted(resolver)
        }
        None => reach(case, local, last.map(|asked| asked.resolver), &mut evidence),
    };
    let state = match reach {
        Reach::Good(_) => LinkState::Ok,
        Reach::Unknown => LinkState::Unknown,
        Reach::Denied(..) | Reach::Untrusted(_) => LinkState::Broken,
    };
    (Link { direction: Direction::Egress, name: "resolver", state, evidence }, reach)
}

fn reach<T: Tables, K: Known>(
    case: &Case<'_, T, K>,
    local: &Local<'_>,
    last: Option<SocketAddr>,
    evidence: &mut Vec<String>,
) -> Reach {
    let usual = usual(case, local, last);
    let mut denied: Option<(SocketAddr, Judged)> = None;
    for resolver in last.into_iter().chain(usual).take(RESOLVERS) {
        let judged = judge::dns(case, local, resolver);
        match judged.reason() {
            None if is_learned(case, &judged) => {
                evidence.extend(judge::lines(case, local, &judged));
                return Reach::Good(resolver);
            }
            // It asks this one, and not those that are listened to.
            None if Some(resolver) == last => {
                evidence.push(format!("answers of {resolver} are not learned"));
                return Reach::Untrusted(resolver);
            }
            None => {}
            Some(_) => {
                evidence.extend(judge::lines(case, local, &judged));
                denied.get_or_insert((resolver, judged));
            }
        }
    }
    match denied {
        Some((resolver, judged)) => Reach::Denied(resolver, judged),
        None => {
            evidence.push("no resolver is known whose answers are learned".into());
            Reach::Unknown
        }
    }
}

/// The resolvers whose answers are learned, those of the cluster alone if it has any: pods ask them, as a rule.
fn usual<T: Tables, K: Known>(
    case: &Case<'_, T, K>,
    local: &Local<'_>,
    last: Option<SocketAddr>,
) -> Vec<SocketAddr> {
    let all = case.state.world().resolvers.iter().copied().filter(|resolver| Some(*resolver) != last);
    // Nothing on a network of its own can ask the host's loopback.
    let all = all.filter(|resolver| !resolver.ip().is_loopback() || local.host_network);
    let of_cluster = |resolver: &SocketAddr| case.known.owner(resolver.ip()).is_of_cluster;
    let (mut cluster, others): (Vec<_>, Vec<_>) = all.partition(of_cluster);
    // Services first: their addresses are what resolv.conf holds.
    cluster.sort_by_key(|resolver| resolver.port() != DNS_PORT);
    if cluster.is_empty() { others } else { cluster }
}

/// Whether answers of this resolver are learned: it is trusted, or reached under a rule with `rules.dns`.
fn is_learned<T: Tables, K: Known>(case: &Case<'_, T, K>, judged: &Judged) -> bool {
    let trusted = case.tables.trusted_resolver(&addr(judged.ip), judged.port);
    trusted || judged.decision.cookie & COOKIE_DNS != 0
}

/// Whether the name may be asked for, and when it was.
pub(super) fn query<T: Tables, K: Known>(
    case: &Case<'_, T, K>,
    local: &Local<'_>,
    name: &Name,
    reach: &Reach,
) -> (Link, bool, Option<LookUp>) {
    let port = match reach {
        Reach::Good(resolver) | Reach::Denied(resolver, _) | Reach::Untrusted(resolver) => resolver.port(),
        Reach::Unknown => DNS_PORT,
    };
    let filters = local.endpoint.flags & ENDPOINT_QUERY_FILTER != 0;
    let may = !filters || may_ask(case.tables, &local.endpoint, class_of(case, name), port);
    let mut evidence = Vec::new();
    match (filters, may) {
        (false, _) => evidence.push("every name may be asked for: no policy has `rules.dns`".into()),
        (true, true) => evidence.push(format!("`rules.dns` lets it ask for {name}")),
        (true, false) => {
            evidence.push(format!("no `rules.dns` lists {name}: the query does not leave the node"))
        }
    }
    let seen = case.journal.and_then(|journal| journal.look_up(local.id, name));
    let asked = seen.and_then(|seen| seen.asked);
    let state = match (may, asked, case.journal) {
        (false, ..) => LinkState::Broken,
        (true, Some(_), _) => LinkState::Ok,
        (true, None, None) => LinkState::Unknown,
        (true, None, Some(_)) if told(case, local, name).next().is_some() => LinkState::Ok,
        (true, None, Some(_)) => LinkState::Broken,
    };
    if let Some(asked) = asked {
        let when = words::ago(case.now.boot.saturating_sub(asked.time));
        let fate = if asked.refused { ", and was refused" } else { "" };
        evidence.push(format!("it asked {} for it {when}{fate}", asked.resolver));
    } else if case.journal.is_some() {
        evidence.push("it was not seen to ask for it".into());
    }
    (Link { direction: Direction::Egress, name: "query", state, evidence }, may, seen)
}

/// What it was told, and for how long that holds.
pub(super) fn answer<T: Tables, K: Known>(
    case: &Case<'_, T, K>,
    local: &Local<'_>,
    name: &Name,
    seen: Option<LookUp>,
) -> Link {
    let now = ticks(case.now.boot);
    let mut evidence = Vec::new();
    let answered = seen.and_then(|seen| seen.answered());
    if let Some(answered) = answered {
        evidence.push(format!(
            "{} answered {}: {}, {}",
            answered.resolver,
            words::ago(case.now.boot.saturating_sub(answered.time)),
            words::rcode(answered.rcode),
            words::addresses(answered.addresses),
        ));
    }
    let told: Vec<_> = told(case, local, name).collect();
    evidence.extend(told.iter().map(|(ip, expires)| format!("{ip}: {}", words::left(*expires, now))));
    let state = match (told.iter().any(|(_, expires)| *expires > now), answered, case.journal) {
        (true, ..) => LinkState::Ok,
        (false, None, None) => LinkState::Unknown,
        (false, ..) => LinkState::Broken,
    };
    if evidence.is_empty() {
        evidence.push("no answer was seen".into());
    }
    Link { direction: Direction::Egress, name: "answer", state, evidence }
}

/// Addresses that the workload was told for a name, with their end.
pub(super) fn told<'a, T: Tables, K: Known>(
    case: &Case<'a, T, K>,
    local: &Local<'_>,
    name: &Name,
) -> impl Iterator<Item = (std::net::IpAddr, egret_common::grant::GrantTime)> + use<'a, T, K> {
    case.state.cache(local.id).into_iter().flat_map({
        let name = name.clone();
        move |cache| cache.addresses_of(&name).collect::<Vec<_>>()
    })
}

/// The addresses of a name that count: those that hold, or if none does those that did.
pub(super) fn usable<T: Tables, K: Known>(
    case: &Case<'_, T, K>,
    local: &Local<'_>,
    name: &Name,
) -> Vec<std::net::IpAddr> {
    let now = case.tables.grant_now();
    let (live, over): (Vec<_>, Vec<_>) = told(case, local, name).partition(|(_, expires)| *expires > now);
    let count = if live.is_empty() { over } else { live };
    count.into_iter().map(|(ip, _)| ip).collect()
}

/// The class of a name; 0: no policy speaks of it.
pub(super) fn class_of<T: Tables, K: Known>(case: &Case<'_, T, K>, name: &Name) -> ClassId {
    case.state.class(name)
}

/// The places of the rules that open a name, with their ports.
pub(super) fn openings(local: &Local<'_>, name: &Name) -> Vec<String> {
    let opens = |peers: &Peers| match peers {
        Peers::Names(patterns) => patterns.iter().any(|pattern| pattern.matches(name)),
        _ => false,
    };
    let policies = local.policies.each();
    policies
        .flat_map(|policy| policy.rules().iter().map(move |rule| (policy, rule)))
        .filter(|(_, rule)| rule.direction == Direction::Egress && opens(&rule.peers))
        .map(|(policy, rule)| format!("{} of {} ({})", rule.path, policy.origin(), rule.ports))
        .collect()
}
