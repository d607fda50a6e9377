//! The profiles of pods, each once, with the policies that select it.
//!
//! Owns: which profiles there are, and what was worked out for each. Must not know: pods, numbers.

use std::{
    cell::OnceCell,
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use crate::{
    identity::Profile,
    policy::{Policies, Policy},
};

/// See the module.
#[derive(Debug, Clone, Default)]
pub(super) struct Profiles {
    all: BTreeSet<Arc<Profile>>,
    /// By where the profile is.
    known: BTreeMap<usize, Known>,
}

#[derive(Debug, Clone, Default)]
struct Known {
    pods: usize,
    /// Unknown until it is asked for, and again when one of them changes.
    policies: OnceCell<Policies>,
}

impl Profiles {
    /// A pod has this profile now.
    pub(super) fn enter(&mut self, profile: Profile) -> Arc<Profile> {
        let profile = match self.all.get(&profile) {
            Some(profile) => profile.clone(),
            None => {
                let profile = Arc::new(profile);
                self.all.insert(profile.clone());
                profile
            }
        };
        self.known.entry(place(&profile)).or_default().pods += 1;
        profile
    }

    /// A pod has it no more.
    pub(super) fn leave(&mut self, profile: &Arc<Profile>) {
        let Some(known) = self.known.get_mut(&place(profile)) else { return };
        known.pods -= 1;
        if known.pods == 0 {
            self.known.remove(&place(profile));
            self.all.remove(profile);
        }
    }

    /// All of them, sorted by labels.
    pub(super) fn iter(&self) -> impl Iterator<Item = &Arc<Profile>> {
        self.all.iter()
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.all.len()
    }

    /// The policies out of `all` that select a profile of the list.
    pub(super) fn policies<'a>(
        &self,
        profile: &Arc<Profile>,
        all: impl Iterator<Item = &'a Arc<Policy>>,
    ) -> Policies {
        let select = || all.filter(|policy| policy.selects(&profile.labels)).cloned().collect();
        match self.known.get(&place(profile)) {
            Some(known) => known.policies.get_or_init(select).clone(),
            None => select(),
        }
    }

    /// These policies are there no more, or are there now.
    pub(super) fn policies_changed<'a>(&mut self, policies: impl Iterator<Item = &'a Arc<Policy>> + Clone) {
        for profile in &self.all {
            if policies.clone().any(|policy| policy.selects(&profile.labels)) {
                let known = self.known.get_mut(&place(profile));
                known.into_iter().for_each(|known| drop(known.policies.take()));
            }
        }
    }
}

/// Where a profile is: no other one is there while somebody has it.
pub(super) fn place(profile: &Arc<Profile>) -> usize {
    Arc::as_ptr(profile).addr()
}
