//! The pods of the cluster as rules see them: which identities a selector means, and whose an address is.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
};

use egret_common::ids::identity::FIRST_DYNAMIC;

use super::{EndpointSpec, World};
use crate::{
    identity::{Identity, NamedPorts},
    labels::Selector,
    policy::{Peers, Policy},
};

/// All identities of pods, with every selector of the policies already asked.
#[derive(Debug)]
pub(super) struct Roster<'a> {
    identities: &'a BTreeMap<u32, Identity>,
    meant: BTreeMap<&'a Selector, Vec<u32>>,
    /// Addresses of pods.
    pub(super) addresses: BTreeMap<IpAddr, u32>,
}

impl<'a> Roster<'a> {
    pub(super) fn new(world: &'a World, endpoints: &'a [EndpointSpec]) -> Self {
        let mut meant = BTreeMap::new();
        for rule in endpoints.iter().flat_map(|e| &e.policies).flat_map(Policy::rules) {
            let Peers::Pods(selectors) = &rule.peers else { continue };
            for selector in selectors {
                meant.entry(selector).or_insert_with(|| {
                    let matching = world.peers.values().filter(|i| selector.matches(&i.labels));
                    matching.map(|i| i.number).collect()
                });
            }
        }
        let pods = world.identities.iter().filter(|(_, number)| **number >= FIRST_DYNAMIC);
        let addresses = pods.map(|(ip, number)| (ip.to_canonical(), *number)).collect();
        Self { identities: &world.peers, meant, addresses }
    }

    /// The identities that one of these selectors matches.
    pub(super) fn meant_by(&self, selectors: &[Selector]) -> BTreeSet<u32> {
        selectors.iter().filter_map(|s| self.meant.get(s)).flatten().copied().collect()
    }

    /// Every identity.
    pub(super) fn everyone(&self) -> BTreeSet<u32> {
        self.identities.keys().copied().collect()
    }

    /// The named ports of an identity.
    pub(super) fn ports(&self, number: u32) -> Option<&'a NamedPorts> {
        self.identities.get(&number).map(|i| &i.ports)
    }
}
