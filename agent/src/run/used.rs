//! `--write-policy`: what CMD used, as a CiliumNetworkPolicy that passes the same run.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};

use egret_common::maps::{Destination, DestinationKey};
use egret_common::net::{Direction, proto};
use egret_core::names::Name;
use egret_core::policy::write::{Use, UsedPeer, write};
use egret_core::ports::Proto;

use crate::learn::{Learner, ip, socket};

/// What stays open whatever a policy says.
#[derive(Debug)]
pub(super) struct AlwaysOpen<'a> {
    /// This host's addresses.
    pub(super) host: &'a BTreeMap<IpAddr, u32>,
    /// The trusted resolvers.
    pub(super) resolvers: &'a BTreeSet<SocketAddr>,
}

/// The policy's text. In audit mode what would have been denied counts as used.
#[must_use]
pub(super) fn policy(
    destinations: &[(DestinationKey, Destination)],
    learner: &Learner,
    open: &AlwaysOpen<'_>,
    search: &[Name],
    audit: bool,
) -> String {
    let mut uses = BTreeSet::new();
    for (key, value) in destinations.iter().filter(|(key, _)| audit || key.reason == 0) {
        if key.direction == Direction::Ingress as u32 || key.proto == proto::DNS_QUERY || open.covers(key) {
            continue;
        }
        if let Some(proto) = Proto::from_number(key.proto) {
            let peers = peers(key, value, learner);
            uses.extend(peers.into_iter().map(|peer| Use { peer, proto, port: key.port }));
        }
    }
    let mut asked: BTreeSet<Name> = learner.allowed().clone();
    if audit {
        asked.extend(learner.refused_names().cloned());
    }
    write("egret-run", &uses, &without_searches(&asked, search))
}

impl AlwaysOpen<'_> {
    fn covers(&self, key: &DestinationKey) -> bool {
        let address = ip(key.remote);
        let resolver = self.resolvers.contains(&socket(key.remote, key.port));
        address.is_loopback()
            || self.host.contains_key(&address)
            || (resolver && matches!(key.proto, proto::UDP | proto::TCP))
    }
}

/// By the names that CMD had for the address; by the address if it went there before it was told any.
fn peers(key: &DestinationKey, value: &Destination, learner: &Learner) -> Vec<UsedPeer> {
    let address = ip(key.remote);
    let told: Vec<(Name, u64)> = learner
        .told()
        .names(address)
        .filter(|(_, time)| *time <= value.last)
        .filter_map(|(name, time)| Some((Name::parse(name).ok()?, time)))
        .collect();
    let direct = told.iter().all(|(_, time)| *time > value.first);
    let names = told.into_iter().map(|(name, _)| UsedPeer::Name(name));
    names.chain(direct.then_some(UsedPeer::Address(address))).collect()
}

/// Look-ups of a name with a search domain appended come with the name itself.
fn without_searches(asked: &BTreeSet<Name>, search: &[Name]) -> BTreeSet<Name> {
    let searched = |name: &Name| {
        let bare = search.iter().filter_map(|domain| Name::parse(name.prefix_above(domain)?).ok());
        bare.into_iter().any(|bare| asked.contains(&bare))
    };
    asked.iter().filter(|name| !searched(name)).cloned().collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::learn::fixture::{destination, exchange, learner};
    use egret_common::verdict::DropReason;
    use egret_core::policy::cilium;

    #[test]
    fn s_a02_what_was_used_is_written_by_name_or_address() {
        let mut l = learner(&["api.example"], &[]);
        exchange(&mut l, "api.example", [192, 0, 2, 10], 5, None);
        exchange(&mut l, "bad.example", [192, 0, 2, 99], 5, Some(7));
        let counts = [
            destination("192.0.2.10", 8080, None, 6, 0),
            destination("192.0.2.99", 443, Some(DropReason::NameUnresolved), 6, 0),
            destination("192.0.2.77", 80, None, 6, 0),
            destination("127.0.0.1", 5432, None, 6, 0),
            destination("10.7.0.2", 5432, None, 6, 0),
        ];
        let host = BTreeMap::from([("10.7.0.2".parse().expect("valid"), 1)]);
        let resolvers = BTreeSet::new();
        let open = AlwaysOpen { host: &host, resolvers: &resolvers };
        let text = policy(&counts, &l, &open, &[], false);
        assert!(cilium::parse(&text).diagnostics.is_empty(), "{text}");
        for (part, there) in [
            ("api.example", true),
            ("192.0.2.77/32", true),
            ("bad.example", false),
            ("5432", false),
            ("192.0.2.10", false),
        ] {
            assert_eq!(text.contains(part), there, "{part}: {text}");
        }
        let learned = policy(&counts, &l, &open, &[], true);
        assert!(learned.contains("bad.example") && !learned.contains("192.0.2.99"), "{learned}");
    }
}
