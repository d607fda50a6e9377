//! `--write-policy`: what CMD used, as a CiliumNetworkPolicy that passes the same run.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};

use egret_common::maps::{Destination, DestinationKey};
use egret_common::net::{Direction, proto};
use egret_core::names::Name;
use egret_core::policy::write::{Use, UsedPeer, write};
use egret_core::ports::Proto;

use super::learn::{Learner, ip, socket};

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
