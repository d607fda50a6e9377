//! The world changes: other pods, other addresses, other policies.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
};

use egret_common::{
    grant::GrantTime,
    ids::{ClassId, EndpointId},
    maps::{Backends, ServiceKey},
    net::Addr,
};

use super::{Grant, State, grant, opens};
use crate::{
    compile::{Cache, ClassKey, CompileError, Compiled, EndpointSpec, NameIndex, Step, World},
    desired::{Delta, Desired, MapOp, changes},
    dns::cache,
    names::Name,
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
    /// Puts another world and other endpoints in force. Names that were seen stay known. Grants: for the names that
    /// workloads know and that belong to another class now (CASES T-A06). What a workload that is gone was told is
    /// forgotten.
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
        let world = World { seen_names: std::mem::take(&mut self.world.seen_names), ..world };
        let stepped = self.step(&world, &endpoints).and_then(|mut step| {
            let moved = self.moved(&world, &mut step, now)?;
            Ok((step, moved))
        });
        let (mut step, mut moved) = match stepped {
            Ok(stepped) => stepped,
            Err(error) => {
                self.world.seen_names = world.seen_names;
                self.cache = None;
                return Err(error);
            }
        };
        step.delta.addresses = changes(&self.compiled.desired.addresses, &wiring.addresses);
        step.delta.services = changes(&self.compiled.desired.services, &wiring.services);
        let ops = self.take(step.delta);
        self.compiled.index = step.index.unwrap_or_else(|| std::mem::take(&mut self.compiled.index));
        (self.world, self.endpoints, self.wiring) = (world, endpoints, wiring);
        let there: BTreeSet<EndpointId> = self.endpoints.iter().map(|spec| spec.id).collect();
        self.caches.retain(|id, _| there.contains(id));
        moved.retain(|g| there.contains(&g.key.endpoint) && opens(&self.compiled.desired, g.class));
        Ok((ops, moved))
    }

    /// Puts other policies in force, as [`State::update`].
    ///
    /// # Errors
    /// [`CompileError`]; then the old policies stay in force.
    pub fn replace(
        &mut self,
        endpoints: Vec<EndpointSpec>,
        now: GrantTime,
    ) -> Result<(Vec<MapOp>, Vec<Grant>), CompileError> {
        self.update(self.world.clone(), endpoints, self.wiring.clone(), now)
    }

    /// Other addresses have an identity now, such as those of this host.
    ///
    /// # Errors
    /// [`CompileError`]; then everything stays as it was.
    pub fn set_identities(&mut self, identities: BTreeMap<IpAddr, u32>) -> Result<Vec<MapOp>, CompileError> {
        let world = World { identities, ..self.world.clone() };
        // Only other policies move a name.
        self.update(world, self.endpoints.clone(), self.wiring.clone(), 0).map(|(ops, _)| ops)
    }

    /// The workloads with their policies.
    #[must_use]
    pub fn endpoints(&self) -> &[EndpointSpec] {
        &self.endpoints
    }

    /// What every workload was told.
    pub fn caches(&self) -> impl Iterator<Item = (EndpointId, &cache::Cache)> {
        self.caches.iter().map(|(id, cache)| (*id, cache))
    }

    fn step(&mut self, world: &World, endpoints: &[EndpointSpec]) -> Result<Step, CompileError> {
        let old = &self.compiled.desired;
        if let Some(cache) = &mut self.cache {
            return cache.step(old, Some(&self.world), world, endpoints, &mut self.book);
        }
        let (cache, compiled) = Cache::whole(world, endpoints, &mut self.book)?;
        let Compiled { desired, index } = compiled;
        self.cache = Some(cache);
        Ok(Step { delta: Delta::between(old, &desired), index: Some(index) })
    }

    /// The names that workloads know and that belong to another class now, with that class.
    fn moved(&mut self, world: &World, step: &mut Step, now: GrantTime) -> Result<Vec<Grant>, CompileError> {
        let Some(index) = &step.index else { return Ok(Vec::new()) };
        let mut classes: BTreeMap<&Name, Option<ClassId>> = BTreeMap::new();
        let mut grants = Vec::new();
        for (endpoint, cache) in &self.caches {
            let alive = cache.iter().filter(|(.., expires)| *expires > now);
            for (name, address, expires) in alive.filter(|(name, ip, _)| world.may_open(name, *ip)) {
                let class = *classes.entry(name).or_insert_with(|| {
                    let key = moved(name, &self.compiled.index, index)?;
                    Some(self.book.class_id(key))
                });
                grants.extend(class.map(|class| grant(*endpoint, address, class, expires)));
            }
        }
        if let Some(cache) = &self.cache {
            let rules = cache.rules_of_new_names(&self.compiled.desired, &mut self.book)?.rules;
            step.delta.rules.extend(rules);
        }
        Ok(grants)
    }
}

fn moved(name: &Name, old: &NameIndex, new: &NameIndex) -> Option<ClassKey> {
    let key = new.classify(name);
    (key != old.classify(name)).then_some(key)
}
