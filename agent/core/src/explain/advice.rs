//! Causes and remedies, a sentence each.

mod dns;

use egret_common::{
    decide::Tables,
    grant::{GrantTime, secs_of_ticks},
    ids::is_name_class,
    net::Direction,
    verdict::DropReason,
};

pub(super) use dns::{
    answer_error, assumed, dns_denied, nameless, never_asked, no_answer, no_good_address, query_refused,
    untrusted,
};

use super::{
    Cause, Finding, Outcome,
    case::{Case, Known, Local},
    judge::{self, Judged},
    names::{self, Reach},
    words,
};
use crate::{names::Name, policy::Tier};

/// What a verdict about an address comes to; `name`: under which it is asked about.
pub(super) fn of<T: Tables, K: Known>(
    case: &Case<'_, T, K>,
    local: &Local<'_>,
    direction: Direction,
    judged: &Judged,
    name: Option<&Name>,
) -> Finding {
    let at = format!("{} port {}", judged.ip, words::port(judged.proto, judged.port));
    if let Some(why) = judged.exempt {
        return Finding::allowed(
            Cause::Exempt,
            format!("{at} passes: {why}"),
            "nothing has to be done".into(),
        );
    }
    let Some(reason) = judged.reason() else { return allowed(case, local, direction, judged, name) };
    match reason {
        DropReason::DenyRule => deny_rule(case, local, judged, &at),
        DropReason::NameExpired => expired(case, local, judged, &at),
        DropReason::NamePortMismatch => wrong_port(case, local, judged, &at),
        DropReason::ServiceBackendDenied => backend(case, judged, &at),
        DropReason::MapFull => Finding::denied(
            reason,
            Cause::MapFull,
            format!("the kernel's table of learned addresses had no room for what {} was told", local.name),
            room(),
        ),
        DropReason::ForbiddenAnswerAddress => Finding::denied(
            reason,
            Cause::ForbiddenAddress,
            format!("no name may open {} (loopback, link-local, multicast), whatever DNS says", judged.ip),
            "if it is meant, allow the address itself by `toCIDR`".into(),
        ),
        DropReason::NameUnresolved => other_name(case, local, judged, name),
        _ => no_rule(case, local, direction, judged, name),
    }
}

fn allowed<T: Tables, K: Known>(
    case: &Case<'_, T, K>,
    local: &Local<'_>,
    direction: Direction,
    judged: &Judged,
    name: Option<&Name>,
) -> Finding {
    let at = format!("{} port {}", judged.ip, words::port(judged.proto, judged.port));
    let names = judge::live_names(case, local, judged.ip);
    let by_name = is_name_class(judged.decision.class);
    if let Some(name) = name.filter(|name| by_name && names::openings(local, name).is_empty()) {
        let others: Vec<&String> = names.iter().filter(|other| *other != name.as_str()).collect();
        return Finding::allowed(
            Cause::SharedAddress,
            format!(
                "no rule opens {name}, but its address {} is open as {}",
                judged.ip,
                words::list(&others)
            ),
            "addresses are judged, not what is sent to them: names that share one share its verdict".into(),
        );
    }
    match judge::rule(case, local, judged.decision.cookie) {
        Some(rule) => {
            Finding::allowed(Cause::RuleAllows, format!("{at} is allowed by {rule}"), nothing_here())
        }
        None if !judged.backends.is_empty() => {
            Finding::allowed(Cause::RuleAllows, format!("every backend of {at} is allowed"), nothing_here())
        }
        None => open(local, direction),
    }
}

fn nothing_here() -> String {
    "if the connection fails all the same, the other side, its node or the network refuses it".into()
}

/// Nothing holds the workload back.
pub(super) fn open(local: &Local<'_>, direction: Direction) -> Finding {
    let word = direction.name();
    Finding::allowed(
        Cause::NoPolicy,
        format!("no policy isolates {word} of {}: everything passes", local.name),
        format!(
            "if it should be held back, write a policy for {word} that selects its labels: {}",
            words::labels(&local.labels)
        ),
    )
}

fn deny_rule<T: Tables, K: Known>(
    case: &Case<'_, T, K>,
    local: &Local<'_>,
    judged: &Judged,
    at: &str,
) -> Finding {
    let rule = judge::rule(case, local, judged.decision.cookie).unwrap_or_else(|| "a deny rule".into());
    let (force, remedy) = denying(case, local, judged.decision.cookie);
    Finding::denied(
        DropReason::DenyRule,
        Cause::DenyRule,
        format!("{at} is denied by {rule}, {force}"),
        format!("take the peer or the port out of {rule}{remedy}"),
    )
}

/// What a deny rule outweighs, and what else can be done about it: what stands in the Baseline tier only counts where no policy
/// before it says anything.
fn denying<T: Tables, K: Known>(
    case: &Case<'_, T, K>,
    local: &Local<'_>,
    cookie: u32,
) -> (&'static str, &'static str) {
    match judge::tier(case, local, cookie) {
        Tier::Baseline => (
            "since no policy of a tier before it decides",
            ", or allow it in a NetworkPolicy or CiliumNetworkPolicy",
        ),
        Tier::Admin | Tier::Normal => ("whatever else allows it", ""),
    }
}

fn expired<T: Tables, K: Known>(
    case: &Case<'_, T, K>,
    local: &Local<'_>,
    judged: &Judged,
    at: &str,
) -> Finding {
    let names: Vec<String> =
        case.state.names_of(local.id, judged.ip).map(|(name, _)| name.to_string()).collect();
    let known = if names.is_empty() { "an allowed name".to_owned() } else { words::list(&names) };
    let age = words::span(judged.decision.age.into());
    Finding::denied(
        DropReason::NameExpired,
        Cause::Expired,
        format!(
            "{} was told {at} as {known}, but that expired {age} ago and it was not told again",
            local.name
        ),
        again(local),
    )
}

fn again(local: &Local<'_>) -> String {
    format!(
        "let the client look up the name again before it connects (a JVM: networkaddress.cache.ttl), or give its cache more \
         time: the annotation egret.dev/grace of the pod or the policy, now {} s",
        local.endpoint.grace
    )
}

fn room() -> String {
    "see `egret status` for how full GRANTS is, and `egret fqdn cache list` for who fills it; shorter lifetimes (--ttl-cap, \
     --grace, or their annotations) make room"
        .into()
}

fn wrong_port<T: Tables, K: Known>(
    case: &Case<'_, T, K>,
    local: &Local<'_>,
    judged: &Judged,
    at: &str,
) -> Finding {
    let names = judge::live_names(case, local, judged.ip);
    let openings: Vec<String> = names
        .iter()
        .filter_map(|name| Name::parse(name).ok())
        .flat_map(|name| names::openings(local, &name))
        .collect();
    if openings.is_empty() {
        return Finding::denied(
            DropReason::NamePortMismatch,
            Cause::OtherName,
            format!("{} was told {} as {}, which no rule opens", local.name, judged.ip, words::list(&names)),
            "add the name to `toFQDNs`, with this port in `toPorts`".into(),
        );
    }
    Finding::denied(
        DropReason::NamePortMismatch,
        Cause::WrongPort,
        format!(
            "{at} is {}, which is open at other ports only: {}",
            words::list(&names),
            words::list(&openings)
        ),
        format!(
            "add port {} to that rule's `toPorts`, or let the client use a port of it",
            words::port(judged.proto, judged.port)
        ),
    )
}

fn backend<T: Tables, K: Known>(case: &Case<'_, T, K>, judged: &Judged, at: &str) -> Finding {
    let denied = judged.backends.iter().find(|backend| backend.reason().is_some());
    let sentence = match denied {
        Some(backend) => {
            let reason = backend.reason().map_or("denied", DropReason::name);
            let owner = case.known.owner(backend.ip).name;
            let to = format!("{} port {}", backend.ip, words::port(backend.proto, backend.port));
            format!("{at} is a Service, and its backend {to} ({owner}) is denied: {reason}")
        }
        None => format!("{at} is a Service without a backend that can be judged"),
    };
    Finding::denied(
        DropReason::ServiceBackendDenied,
        Cause::ServiceBackend,
        sentence,
        "allow the pods behind the Service, with their own port (`targetPort`): a Service's address is never opened by itself".into(),
    )
}

fn no_rule<T: Tables, K: Known>(
    case: &Case<'_, T, K>,
    local: &Local<'_>,
    direction: Direction,
    judged: &Judged,
    name: Option<&Name>,
) -> Finding {
    let owner = case.known.owner(judged.ip);
    let port = words::port(judged.proto, judged.port);
    let reason = judged.reason().unwrap_or(DropReason::NoRule);
    if !owner.host_pods.is_empty() {
        return Finding::denied(
            reason,
            Cause::HostNetwork,
            format!(
                "{} is the address of a node, whose network {} uses: it has the node's identity, and no rule allows that at port {port}",
                judged.ip,
                words::list(&owner.host_pods),
            ),
            "selectors of pods never mean pods on the host's network: allow the entity `host` or `remote-node`, or the node's \
             address in an `ipBlock`"
                .into(),
        );
    }
    let isolating = words::list(&local.isolating(direction));
    let peer = name.map_or_else(|| owner.name.clone(), ToString::to_string);
    let (to, field) = match direction {
        Direction::Egress => ("to", "egress"),
        Direction::Ingress => ("from", "ingress"),
    };
    Finding::denied(
        reason,
        Cause::NoRule,
        format!(
            "no rule allows {field} of {} {to} {peer} ({}) at port {port}, and {isolating} denies the rest",
            local.name, judged.ip
        ),
        format!(
            "add a rule for {peer} at port {port} to `{field}`; labels there: {}",
            words::labels(&owner.labels)
        ),
    )
}

/// The address is known to the workload under names that no rule opens.
fn other_name<T: Tables, K: Known>(
    case: &Case<'_, T, K>,
    local: &Local<'_>,
    judged: &Judged,
    name: Option<&Name>,
) -> Finding {
    let now = case.tables.grant_now();
    let known: Vec<(&Name, GrantTime)> = case.state.names_of(local.id, judged.ip).collect();
    let opened = known.iter().filter(|(name, _)| !names::openings(local, name).is_empty());
    // Its rule stands: what is missing is the kernel's entry.
    if let Some((name, expires)) = opened.max_by_key(|(_, expires)| *expires) {
        return unlearned(local, judged, name, (*expires, now));
    }
    let names: Vec<String> = known.iter().map(|(name, _)| name.to_string()).collect();
    let wanted = name.map_or_else(|| words::list(&names), ToString::to_string);
    Finding::denied(
        DropReason::NameUnresolved,
        Cause::OtherName,
        format!("{} was told {} as {wanted}, which no rule opens", local.name, judged.ip),
        format!("if {wanted} is meant, add it to `toFQDNs` (and to `rules.dns`)"),
    )
}

/// The workload was told the address under a name that a rule opens, and the kernel's table has no entry of it (any more).
fn unlearned(
    local: &Local<'_>,
    judged: &Judged,
    name: &Name,
    (expires, now): (GrantTime, GrantTime),
) -> Finding {
    let (ip, workload) = (judged.ip, &local.name);
    if expires <= now {
        let age = words::span(secs_of_ticks(now - expires).into());
        return Finding::denied(
            DropReason::NameUnresolved,
            Cause::Expired,
            format!(
                "{workload} was told {ip} as {name}, but that expired {age} ago and it was not told again"
            ),
            again(local),
        );
    }
    Finding::denied(
        DropReason::NameUnresolved,
        Cause::MapFull,
        format!(
            "{workload} was told {ip} as {name}, but the kernel's table of learned addresses has no entry of it"
        ),
        room(),
    )
}

/// The address is known to the workload under no allowed name.
pub(super) fn unresolved<T: Tables, K: Known>(
    case: &Case<'_, T, K>,
    local: &Local<'_>,
    judged: &Judged,
    known: &[String],
    reach: &Reach,
) -> Finding {
    match reach {
        _ if !known.is_empty() => other_name(case, local, judged, None),
        Reach::Denied(resolver, judged) => dns_denied(case, local, *resolver, judged),
        Reach::Untrusted(resolver) => untrusted(local, &judged.ip.to_string(), *resolver),
        Reach::Good(_) | Reach::Unknown => Finding::denied(
            DropReason::NameUnresolved,
            Cause::NeverAsked,
            format!("{} was never told {} under an allowed name by a resolver that is listened to", local.name, judged.ip),
            "let the client connect by the name, and look it up through the cluster's resolver (not from a hosts file, by \
             DNS over HTTPS, or from a cache that is older than the pod)"
                .into(),
        ),
    }
}

/// Nothing enforces anything.
pub(super) fn unmanaged(local: &Local<'_>, why: &str) -> Finding {
    Finding::unknown(
        Cause::Unmanaged,
        format!("{} is not held by the agent: {why}; its policies are not enforced on it", local.name),
        "see `egret endpoint list`; where the pod is, its annotations egret.dev/interface, egret.dev/netns or \
         egret.dev/cgroup may say"
            .into(),
    )
}

/// The agent's own pod.
pub(super) fn spared(local: &Local<'_>) -> Finding {
    Finding::allowed(
        Cause::AgentItself,
        format!("the agent itself runs in {}: nothing is enforced on it", local.name),
        "nothing has to be done".into(),
    )
}

/// Nothing to judge.
pub(super) fn no_address() -> Finding {
    Finding::unknown(
        Cause::OtherNode,
        "the other side has no address that this one could use: it has none yet, or has ended, or is of another family".into(),
        "give an address instead, or ask the agent of its node".into(),
    )
}

/// It passed before, with other labels.
pub(super) fn relabelled(finding: Finding, change: String) -> Finding {
    let remedy = match finding.outcome {
        Outcome::Allowed => "change the labels back, or write a policy that selects the new ones".to_owned(),
        _ => format!("change the labels back, or the policies' selectors; else: {}", finding.remedy),
    };
    Finding {
        cause: Cause::LabelChanged,
        sentence: format!("{change}; {}", finding.sentence),
        remedy,
        ..finding
    }
}
