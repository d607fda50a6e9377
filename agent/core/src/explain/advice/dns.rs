//! Causes and remedies about look-ups: what keeps a name from becoming an address, and what it would open.

use std::net::SocketAddr;

use egret_common::{decide::Tables, verdict::DropReason};

use super::{deny_rule, denying, nothing_here};
use crate::{
    dns::journal::Answered,
    explain::{
        Cause, Finding, assumed as verdicts,
        case::{Case, Known, Local},
        judge::{self, Judged},
        names, words,
    },
    names::Name,
};

/// No resolver may be reached.
pub(in crate::explain) fn dns_denied<T: Tables, K: Known>(
    case: &Case<'_, T, K>,
    local: &Local<'_>,
    resolver: SocketAddr,
    judged: &Judged,
) -> Finding {
    let reason = judged.reason().unwrap_or(DropReason::NoRule);
    // What has to be allowed is what is behind a Service.
    let end = judged.backends.iter().find(|backend| backend.reason().is_some()).unwrap_or(judged);
    if end.reason() == Some(DropReason::DenyRule) {
        let at = format!("{} port {}", end.ip, words::port(end.proto, end.port));
        let found = deny_rule(case, local, end, &at);
        let sentence = format!("{} may not ask its resolver {resolver}: {}", local.name, found.sentence);
        return Finding { sentence, ..found };
    }
    let owner = case.known.owner(end.ip);
    let labels =
        if owner.labels.is_empty() { String::new() } else { format!(" ({})", words::labels(&owner.labels)) };
    let name = if owner.is_of_cluster { owner.name } else { end.ip.to_string() };
    Finding::denied(
        reason,
        Cause::DnsForgotten,
        format!(
            "{} may not ask its resolver {resolver}: {}; so it is never told an address",
            local.name,
            reason.name()
        ),
        format!("add an egress rule to {name}{labels} at port {} (UDP and TCP) with `rules.dns`", end.port),
    )
}

/// Look-ups go where nobody listens.
pub(in crate::explain) fn untrusted(local: &Local<'_>, what: &str, resolver: SocketAddr) -> Finding {
    Finding::denied(
        DropReason::NameUnresolved,
        Cause::UntrustedResolver,
        format!("{} asks {resolver}, whose answers are not learned; so {what} is not opened to it", local.name),
        "let it use the cluster's resolver, or trust this one: `--trusted-resolver`, or a rule to it with `rules.dns`".into(),
    )
}

/// `rules.dns` does not list the name.
pub(in crate::explain) fn query_refused(local: &Local<'_>, name: &Name) -> Finding {
    Finding::denied(
        DropReason::QueryRefused,
        Cause::QueryRefused,
        format!("{} may not ask for {name}: no `rules.dns` of its policies lists it", local.name),
        format!("add `matchName: {name}` to `rules.dns` of the rule for the resolver, and to `toFQDNs`"),
    )
}

/// Nobody asked.
pub(in crate::explain) fn never_asked(local: &Local<'_>, name: &Name) -> Finding {
    Finding::denied(
        DropReason::NameUnresolved,
        Cause::NeverAsked,
        format!("{} was not seen to ask for {name}, so no address is open to it", local.name),
        "let the client look up the name through the cluster's resolver: names from a hosts file, a proxy or DNS over HTTPS \
         open nothing"
            .into(),
    )
}

/// Nobody answered.
pub(in crate::explain) fn no_answer(local: &Local<'_>, name: &Name, resolver: SocketAddr) -> Finding {
    Finding::denied(
        DropReason::NameUnresolved,
        Cause::NoAnswer,
        format!("{} asked {resolver} for {name}, and no answer was seen", local.name),
        "look at the resolver: is it running, and can its answers come back?".into(),
    )
}

/// The resolver says no.
pub(in crate::explain) fn answer_error(local: &Local<'_>, name: &Name, answered: Answered) -> Finding {
    let code = words::rcode(answered.rcode);
    Finding::denied(
        DropReason::NameUnresolved,
        Cause::AnswerError,
        format!("{} answered {} for {name} with {code}", answered.resolver, local.name),
        "look at the zone, or the resolver: Egret did not make this answer".into(),
    )
}

/// The answer opens nothing.
pub(in crate::explain) fn no_good_address(local: &Local<'_>, name: &Name, answered: Answered) -> Finding {
    let (cause, what) = match answered.addresses {
        0 => (Cause::AnswerError, "no address".to_owned()),
        n => (Cause::ForbiddenAddress, format!("{}, which no name may open", words::addresses(n))),
    };
    Finding::denied(
        if cause == Cause::AnswerError { DropReason::NameUnresolved } else { DropReason::ForbiddenAnswerAddress },
        cause,
        format!("{} told {} for {name}: {what}", answered.resolver, local.name),
        "loopback, link-local, multicast and the cluster's own addresses are never opened by a name from outside: allow \
         those by `toCIDR` or by labels"
            .into(),
    )
}

/// Whether any address of the world is open at this port, so that no name is needed.
pub(in crate::explain) fn nameless<T: Tables, K: Known>(
    case: &Case<'_, T, K>,
    local: &Local<'_>,
    name: &Name,
) -> Option<Finding> {
    let decision = verdicts::verdict(case.tables, &local.endpoint, 0, (case.proto, case.port));
    let by = judge::rule(case, local, decision.cookie).filter(|_| decision.reason().is_none())?;
    let port = words::port(case.proto, case.port);
    let sentence = format!("whatever address {name} has in the world, port {port} is allowed by {by}");
    Some(Finding::allowed(Cause::RuleAllows, sentence, nothing_here()))
}

/// Nothing was told for the name so far: what would become of it once a resolver has answered.
pub(in crate::explain) fn assumed<T: Tables, K: Known>(
    case: &Case<'_, T, K>,
    local: &Local<'_>,
    name: &Name,
) -> Finding {
    let openings = names::openings(local, name);
    let port = words::port(case.proto, case.port);
    let class = names::class_of(case, name);
    let decision = verdicts::verdict(case.tables, &local.endpoint, class, (case.proto, case.port));
    let Some(reason) = decision.reason() else {
        let by = judge::rule(case, local, decision.cookie).unwrap_or_else(|| words::list(&openings));
        return Finding::allowed(
            Cause::RuleAllows,
            format!("{name} at port {port} is allowed by {by} once a trusted resolver has answered"),
            nothing_here(),
        );
    };
    match reason {
        DropReason::DenyRule => {
            let rule = judge::rule(case, local, decision.cookie).unwrap_or_else(|| "a deny rule".to_owned());
            let (force, remedy) = denying(case, local, decision.cookie);
            let sentence = format!("{name} at port {port} is denied by {rule}, {force}");
            let remedy = format!("take the peer or the port out of {rule}{remedy}");
            Finding::denied(reason, Cause::DenyRule, sentence, remedy)
        }
        _ if openings.is_empty() => Finding::denied(
            reason,
            Cause::NoRule,
            format!("no rule of {} opens {name}", local.name),
            format!("add `matchName: {name}` to `toFQDNs` with port {port} in `toPorts`"),
        ),
        _ => Finding::denied(
            DropReason::NamePortMismatch,
            Cause::WrongPort,
            format!("{name} is open at other ports only: {}", words::list(&openings)),
            format!("add port {port} to that rule's `toPorts`, or let the client use a port of it"),
        ),
    }
}
