//! The chain of what a workload receives.

use std::{collections::BTreeSet, net::IpAddr};

use egret_common::{decide::Tables, net::Direction};

use super::{
    Cause, Finding, Link, advice,
    case::{Case, Known, Local, Target},
    egress::{managed, rules, selected, standing},
    past,
};

/// Looks at every link; the finding is what becomes of the connection.
pub(super) fn walk<T: Tables, K: Known>(
    case: &Case<'_, T, K>,
    local: &Local<'_>,
    from: &Target,
    links: &mut Vec<Link>,
) -> Finding {
    let ingress = Direction::Ingress;
    links.push(managed(local, ingress));
    links.push(selected(local, ingress));
    let remotes: BTreeSet<IpAddr> = from.addresses.iter().map(|ip| ip.to_canonical()).collect();
    let judged = rules(case, local, ingress, &remotes, links);
    let finding = match judged.iter().find(|judged| judged.reason().is_some()).or(judged.first()) {
        _ if local.spared => advice::spared(local),
        Some(judged) => advice::of(case, local, ingress, judged, None),
        None => advice::no_address(),
    };
    links.extend(past::link(case, local, ingress, &remotes));
    let finding = past::changed_labels(case, local, ingress, &remotes)
        .filter(|_| matches!(finding.cause, Cause::NoRule | Cause::NoPolicy))
        .map_or_else(|| finding.clone(), |change| advice::relabelled(finding.clone(), change));
    standing(local, finding)
}
