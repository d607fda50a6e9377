//! The maps as they would have been at the time of one flow.

use egret_common::{
    decide::Tables,
    grant::GrantTime,
    ids::{ClassId, EndpointId, SetId},
    maps::{Backends, Grants, RuleChunk, RuleKey, ServiceKey},
    net::Addr,
};

use crate::desired::View;

/// The tables, with the peer of one flow as it was then.
pub(super) struct AtThatTime<'a> {
    pub(super) view: View<'a>,
    pub(super) remote: Addr,
    pub(super) identity: Option<u32>,
}

impl Tables for AtThatTime<'_> {
    fn rules(&self, key: &RuleKey) -> Option<&RuleChunk> {
        self.view.rules(key)
    }

    fn cidr_class(&self, set: SetId, addr: &Addr) -> Option<ClassId> {
        self.view.cidr_class(set, addr)
    }

    fn identity(&self, addr: &Addr) -> Option<u32> {
        if *addr == self.remote { self.identity } else { self.view.identity(addr) }
    }

    fn grants(&self, endpoint: EndpointId, addr: &Addr) -> Option<&Grants> {
        self.view.grants(endpoint, addr)
    }

    fn grant_now(&self) -> GrantTime {
        self.view.grant_now()
    }

    fn trusted_resolver(&self, addr: &Addr, port: u16) -> bool {
        self.view.trusted_resolver(addr, port)
    }

    fn service(&self, key: &ServiceKey) -> Option<&Backends> {
        self.view.service(key)
    }

    fn owns(&self, endpoint: EndpointId, addr: &Addr) -> bool {
        self.view.owns(endpoint, addr)
    }

    fn grants_overflowed(&self, _: EndpointId) -> bool {
        false
    }
}
