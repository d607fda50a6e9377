//! Nothing grows for ever: what is forgotten, and when.
//!
//! Sets, rules and policies are forgotten as they go ([`State::update`]). A name class may stand in the kernel's grants for
//! as long as those live, which only the kernel knows.

use std::collections::BTreeSet;

use egret_common::{grant::GrantTime, ids::ClassId};

use super::State;
use crate::{compile::Cache, desired::MapOp};

/// How much is remembered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Sizes {
    /// Name classes with a number.
    pub classes: usize,
    /// Sets, rules, policies, and classes of pods' addresses with a number.
    pub numbers: [usize; 4],
    /// Sets, lists of policies, policies and selectors that are kept from one change to the next.
    pub kept: [usize; 4],
}

impl State {
    /// Forgets answers that ended before `before`.
    pub fn forget(&mut self, before: GrantTime) {
        self.caches.values_mut().for_each(|cache| cache.forget(before));
    }

    /// Forgets name classes that nothing speaks of, once they are many. `granted` is asked only then: the classes in the
    /// kernel's grants. Gives the steps that take their rules away.
    pub fn forget_classes(&mut self, granted: impl FnOnce() -> BTreeSet<ClassId>) -> Vec<MapOp> {
        let mut used = self.classes_in_tables();
        if !self.book.names().is_crowded(used.len()) {
            return Vec::new();
        }
        let index = &self.compiled.index;
        let told = self.caches.values().flat_map(|cache| cache.iter().map(|(name, ..)| name));
        let told = told.collect::<BTreeSet<_>>().into_iter().map(|name| index.classify(name));
        used.extend(index.slow_keys().chain(told).filter_map(|key| self.book.names().get(&key)));
        used.extend(granted());
        let gone = self.book.names_mut().retain(|class| used.contains(&class));
        match self.cache.as_ref().map(|cache| cache.remove_names(&self.compiled.desired, &gone)) {
            Some(delta) => self.take(delta),
            None => Vec::new(),
        }
    }

    /// How much is remembered, what workloads were told apart.
    #[must_use]
    pub fn sizes(&self) -> Sizes {
        let kept = self.cache.as_ref().map(Cache::sizes).unwrap_or_default();
        Sizes { classes: self.book.names().len(), numbers: self.book.sizes(), kept }
    }

    /// The classes by which the kernel learns names.
    fn classes_in_tables(&self) -> BTreeSet<ClassId> {
        let desired = &self.compiled.desired;
        let suffixes = desired.name_suffix.values().flat_map(|suffix| [suffix.one, suffix.more]);
        desired.name_exact.values().copied().chain(suffixes).collect()
    }
}
