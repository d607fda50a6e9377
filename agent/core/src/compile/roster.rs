//! The pods of the cluster as rules see them: which identities a selector means, and whose an address is.
//!
//! Kept from one compilation to the next, and told what has changed.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
    sync::Arc,
};

use egret_common::ids::identity::FIRST_DYNAMIC;
use ipnet::IpNet;

use crate::{
    identity::{Identity, NamedPorts},
    labels::Selector,
};

/// So many selectors that no rule has any more are remembered, beside as many as rules have.
const SPARE: usize = 256;

/// All identities of pods, with every selector that was asked.
#[derive(Debug, Clone, Default)]
pub(super) struct Roster {
    identities: BTreeMap<u32, Arc<Identity>>,
    meant: BTreeMap<Selector, BTreeSet<u32>>,
    /// Addresses of pods.
    addresses: BTreeMap<IpAddr, u32>,
    /// How many selectors were in use when they were counted last.
    in_use: usize,
}

impl Roster {
    /// The identity is this one now, or nobody's any more.
    pub(super) fn put(&mut self, number: u32, identity: Option<&Arc<Identity>>) {
        for (selector, meant) in &mut self.meant {
            match identity.is_some_and(|identity| selector.matches(&identity.labels)) {
                true => meant.insert(number),
                false => meant.remove(&number),
            };
        }
        match identity {
            Some(identity) => drop(self.identities.insert(number, identity.clone())),
            None => drop(self.identities.remove(&number)),
        }
    }

    /// The address is this identity's now, or nobody's any more. Only pods are remembered.
    pub(super) fn put_address(&mut self, address: IpAddr, number: Option<u32>) {
        match number.filter(|number| *number >= FIRST_DYNAMIC) {
            Some(number) => drop(self.addresses.insert(address, number)),
            None => drop(self.addresses.remove(&address)),
        }
    }

    /// Sees to it that these selectors are known.
    pub(super) fn learn<'a>(&mut self, selectors: impl Iterator<Item = &'a Selector>) {
        for selector in selectors {
            if !self.meant.contains_key(selector) {
                let matching = self.identities.values().filter(|i| selector.matches(&i.labels));
                self.meant.insert(selector.clone(), matching.map(|i| i.number).collect());
            }
        }
    }

    /// Forgets selectors that are not in use, once they are many.
    pub(super) fn forget<'a>(&mut self, in_use: impl Iterator<Item = &'a Selector>) {
        if self.meant.len() <= 2 * self.in_use + SPARE {
            return;
        }
        let in_use: BTreeSet<&Selector> = in_use.collect();
        self.meant.retain(|selector, _| in_use.contains(selector));
        self.in_use = self.meant.len();
    }

    /// The identities that one of these selectors matches. They must have been learned.
    pub(super) fn meant_by(&self, selectors: &[Selector]) -> BTreeSet<u32> {
        selectors.iter().filter_map(|s| self.meant.get(s)).flatten().copied().collect()
    }

    /// Every identity.
    pub(super) fn everyone(&self) -> BTreeSet<u32> {
        self.identities.keys().copied().collect()
    }

    /// The identity with this number.
    pub(super) fn identity(&self, number: u32) -> Option<&Identity> {
        self.identities.get(&number).map(|identity| &**identity)
    }

    /// The named ports of an identity.
    pub(super) fn ports(&self, number: u32) -> Option<&NamedPorts> {
        self.identity(number).map(|identity| &identity.ports)
    }

    /// Whose the address is, if it is a pod's.
    pub(super) fn owner(&self, address: IpAddr) -> Option<u32> {
        self.addresses.get(&address).copied()
    }

    /// The addresses of pods in a network.
    pub(super) fn addresses_in(&self, net: IpNet) -> impl Iterator<Item = (IpAddr, u32)> {
        self.addresses.range(net.network()..=net.broadcast()).map(|(ip, number)| (*ip, *number))
    }

    /// The addresses of these identities.
    pub(super) fn addresses_of(&self, numbers: &BTreeSet<u32>) -> impl Iterator<Item = IpAddr> {
        self.addresses.iter().filter(|(_, number)| numbers.contains(number)).map(|(ip, _)| *ip)
    }

    /// How many selectors are remembered.
    pub(super) fn size(&self) -> usize {
        self.meant.len()
    }
}
