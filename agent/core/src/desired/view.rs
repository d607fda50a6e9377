//! `Desired` behind the interface that `common::decide` reads: what the kernel would decide from these maps.

use std::collections::BTreeMap;

use egret_common::{
    decide::Tables,
    grant::GrantTime,
    ids::{ClassId, EndpointId, SetId},
    maps::{Backends, CidrKey, GrantKey, Grants, ResolverKey, RuleChunk, RuleKey, ServiceKey},
    net::Addr,
};

use super::{CidrPrefix, Desired};

/// The maps at one moment.
#[derive(Debug, Clone, Copy)]
pub struct View<'a> {
    /// The agent's maps.
    pub desired: &'a Desired,
    /// `GRANTS`.
    pub grants: &'a BTreeMap<GrantKey, Grants>,
    /// Boot time now, in ticks.
    pub now: GrantTime,
}

impl Tables for View<'_> {
    fn rules(&self, key: &RuleKey) -> Option<&RuleChunk> {
        self.desired.rules.get(key).map(|chunk| &**chunk)
    }

    fn cidr_class(&self, set: SetId, addr: &Addr) -> Option<ClassId> {
        let bits = u128::from_be_bytes(addr.octets());
        (0..=128u32).rev().find_map(|len| {
            let mask = u128::MAX.checked_shl(128 - len).unwrap_or(0);
            let addr = Addr::from_octets((bits & mask).to_be_bytes()).words();
            self.desired.cidrs.get(&CidrPrefix { bits: 32 + len, key: CidrKey { set, addr } }).copied()
        })
    }

    fn identity(&self, addr: &Addr) -> Option<u32> {
        self.desired.identities.get(addr).copied()
    }

    fn grants(&self, endpoint: EndpointId, addr: &Addr) -> Option<&Grants> {
        self.grants.get(&GrantKey { addr: *addr, endpoint, pad: 0 })
    }

    fn grant_now(&self) -> GrantTime {
        self.now
    }

    fn trusted_resolver(&self, addr: &Addr, port: u16) -> bool {
        self.desired.resolvers.contains(&ResolverKey { addr: *addr, port: port.into() })
    }

    fn service(&self, key: &ServiceKey) -> Option<&Backends> {
        self.desired.services.get(key)
    }

    fn owns(&self, endpoint: EndpointId, addr: &Addr) -> bool {
        self.desired.addresses.get(addr) == Some(&endpoint)
    }

    fn grants_overflowed(&self, _: EndpointId) -> bool {
        false
    }
}
