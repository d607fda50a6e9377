//! Everything the agent knows, and what follows from what happens: events in, map steps and grants out.
//!
//! Owns: policies in force, their compiled form, and what each workload was told. One task owns a `State`; nothing in
//! it waits, locks or reads a clock. Must not know: how maps are written, how events arrive.

mod forget;
mod lesson;
mod saved;
mod update;

use std::{collections::BTreeMap, net::IpAddr};

use egret_common::{
    grant::GrantTime,
    ids::{ClassId, EndpointId},
    maps::{GrantKey, RuleKey},
    net::proto,
};

pub use forget::Sizes;
pub use lesson::{KernelDid, Lesson};
pub use saved::{Saved, SavedClass, SavedRole, SavedTold};
pub use update::Wiring;

use crate::{
    compile::{self, Book, CompileError, Compiled, EndpointSpec, Role, World, addr},
    desired::{Delta, Desired, Entry, MapOp},
    dns::{
        cache::{Cache, Limits},
        lifetime::keep_in_use,
    },
    names::{Name, Pattern},
    policy::{Origin, Rule},
};

/// Names of slow patterns that get an entry of their own in `NAME_EXACT`; beyond that the agent grants by itself.
const MAX_SEEN_NAMES: usize = 8_192;

/// Opens `key` for a name class until `expires`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Grant {
    /// Workload and address.
    pub key: GrantKey,
    /// The name's class.
    pub class: ClassId,
    /// Boot time in ticks.
    pub expires: GrantTime,
}

/// The agent's state.
#[derive(Debug, Clone)]
pub struct State {
    world: World,
    endpoints: Vec<EndpointSpec>,
    book: Book,
    compiled: Compiled,
    /// `None`: a step has failed, which may have left classes without rules; the next one begins from nothing.
    cache: Option<compile::Cache>,
    wiring: Wiring,
    caches: BTreeMap<EndpointId, Cache>,
    limits: Limits,
}

impl State {
    /// Compiles the policies. The maps are expected to be empty: [`crate::desired::diff`] from `Desired::default()`
    /// fills them.
    ///
    /// # Errors
    /// [`CompileError`].
    pub fn new(world: World, endpoints: Vec<EndpointSpec>, limits: Limits) -> Result<Self, CompileError> {
        Self::begin(world, endpoints, Wiring::default(), limits, Book::default())
    }

    fn begin(
        world: World,
        endpoints: Vec<EndpointSpec>,
        wiring: Wiring,
        limits: Limits,
        mut book: Book,
    ) -> Result<Self, CompileError> {
        let (cache, mut compiled) = compile::Cache::whole(&world, &endpoints, &mut book)?;
        wiring.enter(&mut compiled.desired);
        let (cache, caches) = (Some(cache), BTreeMap::new());
        Ok(Self { world, endpoints, book, compiled, cache, wiring, caches, limits })
    }

    /// What the maps shall hold.
    #[must_use]
    pub fn desired(&self) -> &Desired {
        &self.compiled.desired
    }

    /// What all endpoints share.
    #[must_use]
    pub fn world(&self) -> &World {
        &self.world
    }

    /// The numbers that were given.
    #[must_use]
    pub fn book(&self) -> &Book {
        &self.book
    }

    /// `CONFIG_*` bits that the programs need.
    #[must_use]
    pub fn config_flags(&self) -> u32 {
        self.compiled.config_flags()
    }

    /// The rule behind a cookie.
    #[must_use]
    pub fn rule(&self, cookie: u32) -> Option<(&Origin, &Rule)> {
        self.book.rule(cookie)
    }

    /// The patterns behind a name class.
    pub fn patterns(&self, class: ClassId) -> impl Iterator<Item = &Pattern> {
        let members = self.book.class(class).into_iter().flatten();
        members.filter(|member| member.role != Role::Cluster).map(|member| &member.pattern)
    }

    /// The class of a name; 0: no policy speaks of it, or no name of its class was seen yet.
    #[must_use]
    pub fn class(&self, name: &Name) -> ClassId {
        self.book.names().get(&self.compiled.index.classify(name)).unwrap_or(0)
    }

    /// What a workload was told so far.
    #[must_use]
    pub fn cache(&self, endpoint: EndpointId) -> Option<&Cache> {
        self.caches.get(&endpoint)
    }

    /// Every name that a workload knows an address under, allowed or not, with its expiry.
    pub fn names_of(
        &self,
        endpoint: EndpointId,
        address: IpAddr,
    ) -> impl Iterator<Item = (&Name, GrantTime)> {
        self.caches.get(&endpoint).into_iter().flat_map(move |cache| cache.names_of(address))
    }

    /// A workload asks for a name: if only the full matcher knows its class, the kernel's table gets an entry, so
    /// that it is there when the answer arrives.
    ///
    /// # Errors
    /// [`CompileError`].
    pub fn see_query(&mut self, name: &Name) -> Result<Vec<MapOp>, CompileError> {
        let known = self.world.seen_names.contains(name) || self.world.seen_names.len() >= MAX_SEEN_NAMES;
        if known || !self.compiled.index.is_slow(name) {
            return Ok(Vec::new());
        }
        // Names that no pattern matches get one as well, so that they are refused the next time, but they must not
        // take the room of the others.
        let matched = self.compiled.index.matches_slow(name);
        if !matched && self.world.seen_names.len() >= MAX_SEEN_NAMES / 2 {
            return Ok(Vec::new());
        }
        let (class, mut ops) = self.class_of(name)?;
        self.world.seen_names.insert(name.clone());
        self.compiled.desired.name_exact.insert(name.clone(), class);
        ops.push(MapOp::Put(Entry::NameExact(name.clone(), class)));
        Ok(ops)
    }

    /// Whether a grant of this workload ends so soon that [`State::keep_in_use`] would extend it if it is in use.
    #[must_use]
    pub fn has_ending(&self, endpoint: EndpointId, now: GrantTime) -> bool {
        let Some(spec) = self.endpoints.iter().find(|e| e.id == endpoint) else { return false };
        let mut known = self.caches.get(&endpoint).into_iter().flat_map(Cache::iter);
        known.any(|(.., expires)| keep_in_use(&spec.lifetime, expires, true, now).is_some())
    }

    /// Extends grants of addresses that a workload has open connections to, shortly before they end
    /// (`keep-in-use`).
    pub fn keep_in_use(
        &mut self,
        endpoint: EndpointId,
        in_use: impl Fn(IpAddr) -> bool,
        now: GrantTime,
    ) -> Vec<Grant> {
        let Some(lifetime) = self.endpoints.iter().find(|e| e.id == endpoint).map(|e| e.lifetime) else {
            return Vec::new();
        };
        let Some(cache) = self.caches.get_mut(&endpoint) else { return Vec::new() };
        let ending: Vec<(Name, IpAddr, GrantTime)> = cache
            .iter()
            .filter_map(|(name, ip, expires)| {
                Some((name.clone(), ip, keep_in_use(&lifetime, expires, in_use(ip), now)?))
            })
            .collect();
        let mut grants = Vec::new();
        for (name, address, expires) in ending {
            cache.learn(&name, address, expires, now);
            let class = self.book.class_id(self.compiled.index.classify(&name));
            if opens(&self.compiled.desired, class) {
                grants.push(grant(endpoint, address, class, expires));
            }
        }
        grants
    }

    /// The class of a name, and the steps that give it its rules if no name of this class was seen before.
    fn class_of(&mut self, name: &Name) -> Result<(ClassId, Vec<MapOp>), CompileError> {
        let class = self.book.class_id(self.compiled.index.classify(name));
        let ops = self.add_rules()?;
        Ok((class, ops))
    }

    /// Rules for classes that came up after compiling.
    fn add_rules(&mut self) -> Result<Vec<MapOp>, CompileError> {
        let old = &self.compiled.desired;
        let delta = match &self.cache {
            Some(cache) => cache.rules_of_new_names(old, &mut self.book)?,
            None => {
                let (cache, mut compiled) =
                    compile::Cache::whole(&self.world, &self.endpoints, &mut self.book)?;
                self.wiring.enter(&mut compiled.desired);
                self.cache = Some(cache);
                Delta::between(old, &compiled.desired)
            }
        };
        Ok(self.take(delta))
    }

    /// Puts a difference in force; gives the steps.
    fn take(&mut self, delta: Delta) -> Vec<MapOp> {
        let ops = delta.steps(&self.compiled.desired);
        delta.enter(&mut self.compiled.desired);
        ops
    }
}

fn grant(endpoint: EndpointId, address: IpAddr, class: ClassId, expires: GrantTime) -> Grant {
    Grant { key: GrantKey { addr: addr(address), endpoint, pad: 0 }, class, expires }
}

/// Whether some set has a rule for the class that is more than the right to ask.
fn opens(desired: &Desired, class: ClassId) -> bool {
    let sets = desired.endpoints.values().map(|e| e.egress_set);
    class != 0 && sets.into_iter().any(|set| opens_in(desired, set, class))
}

fn opens_in(desired: &Desired, set: u32, class: ClassId) -> bool {
    desired.rules.get(&RuleKey { set, class, chunk: 0 }).is_some_and(|chunk| {
        chunk.rules.iter().take(chunk.count as usize).any(|r| r.proto != proto::DNS_QUERY)
    })
}

#[cfg(test)]
mod tests;
