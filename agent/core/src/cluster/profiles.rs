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
    /// Of the pods, those with a network of their own.
    with_network: usize,
    /// Unknown until it is asked for, and again when one of them changes.
    policies: OnceCell<Policies>,
    /// The same for pods on their nodes' network.
    on_host: OnceCell<Policies>,
}

impl Profiles {
    /// A pod has this profile now.
    pub(super) fn enter(&mut self, profile: Profile, with_network: bool) -> Arc<Profile> {
        let profile = match self.all.get(&profile) {
            Some(profile) => profile.clone(),
            None => {
                let profile = Arc::new(profile);
                self.all.insert(profile.clone());
                profile
            }
        };
        let known = self.known.entry(place(&profile)).or_default();
        known.pods += 1;
        known.with_network += usize::from(with_network);
        profile
    }

    /// A pod has it no more.
    pub(super) fn leave(&mut self, profile: &Arc<Profile>, with_network: bool) {
        let Some(known) = self.known.get_mut(&place(profile)) else { return };
        known.pods -= 1;
        known.with_network -= usize::from(with_network);
        if known.pods == 0 {
            self.known.remove(&place(profile));
            self.all.remove(profile);
        }
    }

    /// All of them, sorted by labels.
    pub(super) fn iter(&self) -> impl Iterator<Item = &Arc<Profile>> {
        self.all.iter()
    }

    /// Whether some pod with this profile has a network of its own.
    pub(super) fn has_network(&self, place: usize) -> bool {
        self.known.get(&place).is_some_and(|known| known.with_network > 0)
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.all.len()
    }

    /// The policies out of `all` that are about pods with this profile.
    pub(super) fn policies<'a>(
        &self,
        profile: &Arc<Profile>,
        host_network: bool,
        all: impl Iterator<Item = &'a Arc<Policy>>,
    ) -> Policies {
        let selects = |policy: &&Arc<Policy>| policy.selects_pod(&profile.labels, host_network);
        let select = || all.filter(selects).cloned().collect();
        match self.known.get(&place(profile)) {
            Some(known) if host_network => known.on_host.get_or_init(select).clone(),
            Some(known) => known.policies.get_or_init(select).clone(),
            None => select(),
        }
    }

    /// These policies are there no more, or are there now.
    pub(super) fn policies_changed<'a>(&mut self, policies: impl Iterator<Item = &'a Arc<Policy>> + Clone) {
        for profile in &self.all {
            if policies.clone().any(|policy| policy.selects(&profile.labels))
                && let Some(known) = self.known.get_mut(&place(profile))
            {
                known.policies.take();
                known.on_host.take();
            }
        }
    }
}

/// Where a profile is: no other one is there while somebody has it.
pub(super) fn place(profile: &Arc<Profile>) -> usize {
    Arc::as_ptr(profile).addr()
}
