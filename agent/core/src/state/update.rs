//! The world changes: other pods, other addresses, other policies.

use std::collections::BTreeMap;

use egret_common::{
    grant::GrantTime,
    ids::EndpointId,
    maps::{Backends, ServiceKey},
    net::Addr,
};

use super::{Grant, State};
use crate::{
    compile::{CompileError, EndpointSpec, World},
    desired::{Desired, MapOp},
    dns::cache::Cache,
};

/// What goes into the maps as it is: nothing is compiled from it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Wiring {
    /// Owners of the addresses of this node's pods.
    pub addresses: BTreeMap<Addr, EndpointId>,
    /// Services with their backends.
    pub services: BTreeMap<ServiceKey, Backends>,
}

impl Wiring {
    pub(super) fn enter(&self, desired: &mut Desired) {
        desired.addresses.clone_from(&self.addresses);
        desired.services.clone_from(&self.services);
    }
}

impl State {
    /// Puts another world and other endpoints in force. Names that were seen stay known. The steps and grants are those
    /// of [`State::replace`]; what a workload that is gone was told is forgotten.
    ///
    /// # Errors
    /// [`CompileError`]; then everything stays as it was.
    pub fn update(
        &mut self,
        world: World,
        endpoints: Vec<EndpointSpec>,
        wiring: Wiring,
        now: GrantTime,
    ) -> Result<(Vec<MapOp>, Vec<Grant>), CompileError> {
        let seen_names = self.world.seen_names.clone();
        let old = std::mem::replace(&mut self.world, World { seen_names, ..world });
        let old_wiring = std::mem::replace(&mut self.wiring, wiring);
        let gone: Vec<EndpointId> =
            self.caches.keys().filter(|id| !endpoints.iter().any(|e| e.id == **id)).copied().collect();
        match self.replace(endpoints, now) {
            Ok((ops, mut grants)) => {
                gone.iter().for_each(|id| drop(self.caches.remove(id)));
                grants.retain(|g| !gone.contains(&g.key.endpoint));
                Ok((ops, grants))
            }
            Err(error) => {
                self.world = old;
                self.wiring = old_wiring;
                Err(error)
            }
        }
    }

    /// The workloads with their policies.
    #[must_use]
    pub fn endpoints(&self) -> &[EndpointSpec] {
        &self.endpoints
    }

    /// What every workload was told.
    pub fn caches(&self) -> impl Iterator<Item = (EndpointId, &Cache)> {
        self.caches.iter().map(|(id, cache)| (*id, cache))
    }
}
