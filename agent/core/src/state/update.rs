//! The world changes: other pods, other addresses, other policies.

use egret_common::{grant::GrantTime, ids::EndpointId};

use super::{Grant, State};
use crate::{
    compile::{CompileError, EndpointSpec, World},
    desired::MapOp,
    dns::cache::Cache,
};

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
        now: GrantTime,
    ) -> Result<(Vec<MapOp>, Vec<Grant>), CompileError> {
        let seen_names = self.world.seen_names.clone();
        let old = std::mem::replace(&mut self.world, World { seen_names, ..world });
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
