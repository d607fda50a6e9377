//! What the objects of a cluster mean to a [`super::State`]: its world, its wiring, and what pods need of the programs.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::{IpAddr, SocketAddr},
};

use egret_common::{
    ids::EndpointId,
    maps::{BACKENDS, Backend, Backends, ENDPOINT_QUERY_FILTER, ENDPOINT_SERVICES, ServiceKey},
    net::Direction,
};

use super::Wiring;
use crate::{
    cluster::{Resolved, ServiceEntry},
    compile::{NamesAsk, World, addr},
    policy::{Effect, Policy},
};

impl World {
    /// What all pods share. `trusted`: resolvers that the cluster does not name.
    #[must_use]
    pub fn of_cluster(resolved: &Resolved, trusted: &BTreeSet<SocketAddr>) -> Self {
        Self {
            search: Vec::new(),
            resolvers: resolved.resolvers.union(trusted).copied().collect(),
            identities: resolved.world_identities.clone(),
            peers: resolved.peers.clone(),
            names_ask: NamesAsk::No,
            seen_names: BTreeSet::new(),
        }
    }
}

impl Wiring {
    /// The Services, and whose the addresses of this node's pods are.
    #[must_use]
    pub fn of_cluster(resolved: &Resolved, owned: impl IntoIterator<Item = (IpAddr, EndpointId)>) -> Self {
        Self {
            addresses: owned.into_iter().map(|(ip, id)| (addr(ip), id)).collect(),
            services: resolved.services.iter().map(service).collect::<BTreeMap<_, _>>(),
        }
    }
}

/// The `ENDPOINT_*` bits that a pod's policies ask for.
#[must_use]
pub fn flags_of_policies(resolved: &Resolved, policies: &[Policy]) -> u32 {
    let filters = policies.iter().flat_map(Policy::rules).any(|rule| rule.dns.is_some());
    // Where nothing can be denied, a Service that the map cannot hold must not be denied either.
    let denies = |policy: &Policy| {
        let mut rules = policy.rules().iter();
        policy.isolates().egress
            || rules.any(|rule| rule.direction == Direction::Egress && rule.effect == Effect::Deny)
    };
    let judged = !resolved.services.is_empty() && policies.iter().any(denies);
    (if filters { ENDPOINT_QUERY_FILTER } else { 0 }) | (if judged { ENDPOINT_SERVICES } else { 0 })
}

/// More backends than fit are none: nobody may pass.
fn service(entry: &ServiceEntry) -> (ServiceKey, Backends) {
    let key =
        ServiceKey { addr: addr(entry.vip), port: entry.port.into(), proto: entry.proto.number().into() };
    let mut backends = Backends::default();
    if entry.backends.len() <= BACKENDS {
        for (slot, (ip, port)) in backends.slots.iter_mut().zip(&entry.backends) {
            *slot = Backend { addr: addr(*ip), port: (*port).into(), pad: 0 };
        }
        backends.count = entry.backends.len() as u32;
    }
    (key, backends)
}
