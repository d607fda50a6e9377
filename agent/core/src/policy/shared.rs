//! A list of policies that many pods share.

use std::{ops::Deref, sync::Arc};

use super::{Policy, Rule};

/// The policies that are about a workload, in any order. A copy is the same list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Policies(Arc<[Arc<Policy>]>);

impl Policies {
    /// Each of them.
    pub fn each(&self) -> impl Iterator<Item = &Policy> {
        self.iter().map(|policy| &**policy)
    }

    /// The rules of all of them.
    pub fn rules(&self) -> impl Iterator<Item = &Rule> {
        self.each().flat_map(Policy::rules)
    }

    /// Where the list is: as long as there is a copy of it, no other list is there.
    pub(crate) fn place(&self) -> usize {
        self.0.as_ptr().addr()
    }
}

impl Default for Policies {
    fn default() -> Self {
        Self::from_iter([])
    }
}

impl Deref for Policies {
    type Target = [Arc<Policy>];

    fn deref(&self) -> &[Arc<Policy>] {
        &self.0
    }
}

impl FromIterator<Arc<Policy>> for Policies {
    fn from_iter<I: IntoIterator<Item = Arc<Policy>>>(policies: I) -> Self {
        Self(policies.into_iter().collect())
    }
}

impl From<Vec<Policy>> for Policies {
    fn from(policies: Vec<Policy>) -> Self {
        policies.into_iter().map(Arc::new).collect()
    }
}
