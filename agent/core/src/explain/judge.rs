//! The verdict about one address, and its words.

use std::net::IpAddr;

use egret_common::{
    decide::{Decision, Question, Tables, decision_of, set_of},
    ids::is_name_class,
    judge::opens_host,
    maps::{BACKENDS, ENDPOINT_POD, ENDPOINT_SERVICES, ServiceKey},
    net::{Direction, proto},
    verdict::DropReason,
};

use super::{
    case::{Case, Known, Local},
    words,
};
use crate::{compile::addr, policy::Tier};

/// A verdict.
#[derive(Debug, Clone)]
pub(super) struct Judged {
    pub(super) ip: IpAddr,
    pub(super) port: u16,
    pub(super) proto: u8,
    pub(super) decision: Decision,
    /// It passes whatever policies say, and why.
    pub(super) exempt: Option<&'static str>,
    /// What is behind the Service that has the address.
    pub(super) backends: Vec<Judged>,
}

impl Judged {
    pub(super) fn reason(&self) -> Option<DropReason> {
        self.decision.reason().filter(|_| self.exempt.is_none())
    }
}

/// Asks the tables.
pub(super) fn judge<T: Tables, K: Known>(
    case: &Case<'_, T, K>,
    local: &Local<'_>,
    direction: Direction,
    ip: IpAddr,
) -> Judged {
    judge_at(case, local, direction, (ip, case.proto, case.port))
}

/// The same for another port.
pub(super) fn judge_at<T: Tables, K: Known>(
    case: &Case<'_, T, K>,
    local: &Local<'_>,
    direction: Direction,
    (ip, proto, port): (IpAddr, u8, u16),
) -> Judged {
    let remote = addr(ip);
    let decision = decision_of(case.tables, &local.endpoint, &Question { remote, direction, proto, port });
    let exempt = exempt(case, local, direction, ip);
    let mut judged = Judged { ip, port, proto, decision, exempt, backends: Vec::new() };
    if direction == Direction::Egress && local.endpoint.flags & ENDPOINT_SERVICES != 0 {
        let key = ServiceKey { addr: remote, port: port.into(), proto: proto.into() };
        let backends = case.tables.service(&key).copied().unwrap_or_default();
        let each = backends.slots.iter().take((backends.count as usize).min(BACKENDS));
        judged.backends = each
            .map(|backend| {
                let ip = IpAddr::from(backend.addr.octets()).to_canonical();
                judge_at(case, local, direction, (ip, proto, backend.port as u16))
            })
            .collect();
    }
    judged
}

/// What passes before any policy is asked (DESIGN 3.3, 1).
fn exempt<T: Tables, K: Known>(
    case: &Case<'_, T, K>,
    local: &Local<'_>,
    direction: Direction,
    ip: IpAddr,
) -> Option<&'static str> {
    let flags = local.endpoint.flags;
    if flags & ENDPOINT_POD != 0 && case.tables.owns(local.id, &addr(ip)) {
        return Some("it is the workload's own address");
    }
    if ip.is_loopback() {
        return Some("loopback never leaves the workload");
    }
    // Neighbour discovery (RFC 4861) and router advertisements.
    if case.proto == proto::ICMPV6 && (133..=137).contains(&(case.port >> 8)) {
        return Some("neighbour discovery is not judged");
    }
    let host = opens_host(case.tables, &local.endpoint, &addr(ip), direction);
    host.then_some("a node may reach its own pods (probes)")
}

/// The verdict as lines of evidence.
pub(super) fn lines<T: Tables, K: Known>(
    case: &Case<'_, T, K>,
    local: &Local<'_>,
    judged: &Judged,
) -> Vec<String> {
    let owner = case.known.owner(judged.ip).name;
    let at = format!("{} port {}", judged.ip, words::port(judged.proto, judged.port));
    let verdict = match (judged.exempt, judged.reason()) {
        (Some(why), _) => format!("allowed: {why}"),
        (None, Some(reason)) => format!("denied: {}{}", reason.name(), detail(case, local, judged, reason)),
        (None, None) => format!("allowed{}", allowed_by(case, local, judged)),
    };
    let mut lines = vec![format!("{at} ({owner}): {verdict}")];
    let behind = judged.backends.iter().flat_map(|backend| lines_of_backend(case, local, backend));
    lines.extend(behind);
    lines
}

fn lines_of_backend<T: Tables, K: Known>(
    case: &Case<'_, T, K>,
    local: &Local<'_>,
    backend: &Judged,
) -> Vec<String> {
    lines(case, local, backend).into_iter().map(|line| format!("its backend {line}")).collect()
}

fn allowed_by<T: Tables, K: Known>(case: &Case<'_, T, K>, local: &Local<'_>, judged: &Judged) -> String {
    if !judged.backends.is_empty() {
        return ": all of its backends are".into();
    }
    let known = match is_name_class(judged.decision.class) {
        true => format!(", known to it as {}", words::list(&live_names(case, local, judged.ip))),
        false => String::new(),
    };
    match rule(case, local, judged.decision.cookie) {
        Some(rule) => format!(" by {rule}{known}"),
        None => ": nothing isolates this direction".into(),
    }
}

fn detail<T: Tables, K: Known>(
    case: &Case<'_, T, K>,
    local: &Local<'_>,
    judged: &Judged,
    reason: DropReason,
) -> String {
    match reason {
        DropReason::DenyRule => {
            rule(case, local, judged.decision.cookie).map(|rule| format!(", by {rule}")).unwrap_or_default()
        }
        DropReason::NameExpired => format!(" {} ago", words::span(judged.decision.age.into())),
        _ => String::new(),
    }
}

/// The rule behind a cookie: its place, its object, and its tier where that is not the usual one.
pub(super) fn rule<T: Tables, K: Known>(
    case: &Case<'_, T, K>,
    local: &Local<'_>,
    cookie: u32,
) -> Option<String> {
    let (origin, rule) = case.state.rule(cookie).filter(|_| cookie != 0)?;
    let policy = local.policies.each().find(|policy| policy.origin() == origin);
    let tier = match policy.map(|policy| policy.standing()) {
        Some(standing) if standing.tier != Tier::Normal => {
            format!(" (tier {}, priority {})", standing.tier, standing.priority)
        }
        _ => String::new(),
    };
    Some(format!("{} of {origin}{tier}", rule.path))
}

/// The tier of the rule behind a cookie.
pub(super) fn tier<T: Tables, K: Known>(case: &Case<'_, T, K>, local: &Local<'_>, cookie: u32) -> Tier {
    let origin = case.state.rule(cookie).map(|(origin, _)| origin);
    let policy = local.policies.each().find(|policy| Some(policy.origin()) == origin);
    policy.map_or(Tier::Normal, |policy| policy.standing().tier)
}

/// The names that the workload knows an address by, and may still use.
pub(super) fn live_names<T: Tables, K: Known>(
    case: &Case<'_, T, K>,
    local: &Local<'_>,
    ip: IpAddr,
) -> Vec<String> {
    let now = case.tables.grant_now();
    let names = case.state.names_of(local.id, ip).filter(|(_, expires)| *expires > now);
    names.map(|(name, _)| name.to_string()).collect()
}

/// Whether the workload may send DNS queries to a resolver, as the packet's verdict says.
pub(super) fn dns<T: Tables, K: Known>(
    case: &Case<'_, T, K>,
    local: &Local<'_>,
    resolver: std::net::SocketAddr,
) -> Judged {
    judge_at(case, local, Direction::Egress, (resolver.ip(), proto::UDP, resolver.port()))
}

/// Whether the rules of a direction can deny anything.
pub(super) fn may_deny(local: &Local<'_>, direction: Direction) -> bool {
    set_of(&local.endpoint, direction).1 != 0
}
