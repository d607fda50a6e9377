//! Labels that are part of no identity by themselves, because they differ from pod to pod, and that some policy in force
//! selects pods by. The APIs know no such exception: where a policy asks for a label, it counts.
//!
//! Owns: which keys are asked for. Must not know: pods.

use std::collections::BTreeMap;

use crate::{
    identity::is_relevant,
    labels::Requirement,
    policy::{Peers, Policy, Subject},
};

/// The keys, each with how often it is asked for.
#[derive(Debug, Clone, Default)]
pub(super) struct Asked(BTreeMap<String, usize>);

impl Asked {
    pub(super) fn contains(&self, key: &str) -> bool {
        self.0.contains_key(key)
    }

    /// An object says something else now; says whether other keys are asked for.
    pub(super) fn replace<'a>(
        &mut self,
        old: impl Iterator<Item = &'a Policy>,
        new: impl Iterator<Item = &'a Policy>,
    ) -> bool {
        let before = self.0.len();
        let mut changed = false;
        for key in new.flat_map(keys) {
            *self.0.entry(key.to_owned()).or_default() += 1;
        }
        changed |= self.0.len() != before;
        for key in old.flat_map(keys) {
            if let Some(count) = self.0.get_mut(key) {
                *count -= 1;
            }
        }
        let with_ended = self.0.len();
        self.0.retain(|_, count| *count > 0);
        changed | (self.0.len() != with_ended)
    }
}

fn keys(policy: &Policy) -> impl Iterator<Item = &str> {
    let subject = match policy.subject() {
        Subject::Pods(selector) => Some(selector),
        Subject::Nodes(_) | Subject::This => None,
    };
    let peers = policy.rules().iter().flat_map(|rule| match &rule.peers {
        Peers::Pods(selectors) => selectors.as_slice(),
        _ => &[],
    });
    let requirements = subject.into_iter().chain(peers).flat_map(|selector| selector.requirements());
    requirements.map(Requirement::key).filter(|key| !is_relevant(key))
}
