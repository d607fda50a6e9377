//! Which needs were seen, and how often.
//!
//! Owns: whose flows count, and the bound on them. Must not know: policies.

use std::collections::{BTreeMap, BTreeSet};

use egret_common::{net::Direction, verdict::Verdict};

use super::{
    Act, ProposeError, Seen, Subject,
    asked::Asked,
    peers::standing,
    seen::{may_count, passed},
};
use crate::{
    flow::{Flow, Side, Workload},
    labels::Labels,
    names::Name,
    policy::write::sanitised,
};

/// Different needs at most.
const MAX_NEEDS: usize = 16_384;
/// Pods without labels of their own that are remembered by name, of each namespace and service account.
const MAX_PODS: usize = 16;

/// The workloads that are meant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Choice {
    /// Every one.
    All,
    /// One pod.
    Pod {
        /// Its namespace.
        namespace: String,
        /// Its name.
        name: String,
    },
    /// The pods of a Deployment or the like, as far as flows name it.
    Workload {
        /// Its namespace.
        namespace: String,
        /// Its kind.
        kind: String,
        /// Its name.
        name: String,
    },
    /// Those of a namespace with these labels; without labels, each kind by itself.
    Labels {
        /// The namespace.
        namespace: String,
        /// The labels.
        labels: Labels,
    },
}

impl Choice {
    fn means(&self, side: &Side, subject: &Subject) -> bool {
        match self {
            Self::All => true,
            Self::Pod { namespace, name } => side.namespace == *namespace && side.pod == *name,
            Self::Workload { namespace, kind, name } => {
                let is = |workload: &Workload| workload.kind == *kind && workload.name == *name;
                subject.namespace == *namespace && side.workloads.iter().any(is)
            }
            Self::Labels { namespace, labels } => {
                let has = |(key, value): (&String, &String)| subject.labels.get(key) == Some(value);
                subject.namespace == *namespace && labels.iter().all(has)
            }
        }
    }

    /// The same of an end without labels: as far as it says who it is.
    fn may_mean(&self, side: &Side) -> bool {
        match self {
            Self::Labels { namespace, .. } => side.namespace == *namespace,
            _ => self.means(side, &Subject { namespace: side.namespace.clone(), labels: Labels::new() }),
        }
    }
}

/// Something that a workload does.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Need {
    /// What was seen.
    pub seen: Seen,
    /// The name by which the workload came to the address; `None`: it was told none, or which of several is not known.
    pub name: Option<Name>,
}

/// How often.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Tally {
    /// In all.
    pub count: u64,
    /// Only since nothing was enforced.
    pub audited: u64,
}

/// Needs of workloads.
#[derive(Debug, Clone)]
pub struct Collected {
    choice: Choice,
    /// What was dropped counts as well.
    dropped: bool,
    needs: BTreeMap<Need, Tally>,
    asked: Asked,
    /// Names of pods that no selector tells from others.
    pods: BTreeMap<Subject, BTreeSet<String>>,
    /// Flows of ends without any label.
    unlabelled: u64,
    /// Something had no room.
    full: bool,
    lost: u64,
}

impl Collected {
    /// Nothing yet. `dropped`: what was dropped counts as well.
    #[must_use]
    pub fn new(choice: Choice, dropped: bool) -> Self {
        Self {
            choice,
            dropped,
            needs: BTreeMap::new(),
            asked: Asked::default(),
            pods: BTreeMap::new(),
            unlabelled: 0,
            full: false,
            lost: 0,
        }
    }

    /// Counts a flow; whether it counts.
    pub fn see(&mut self, flow: &Flow) -> bool {
        let counts = passed(flow) || self.dropped && flow.verdict == Verdict::Dropped;
        if !counts {
            return false;
        }
        if flow.dns.as_ref().is_some_and(|dns| dns.response) {
            return self.hear(flow);
        }
        let Some(seen) = Seen::of(flow) else {
            let side = own(flow);
            let bare = may_count(flow) && side.labels.is_empty() && self.choice.may_mean(side);
            self.unlabelled = self.unlabelled.saturating_add(bare.into());
            return false;
        };
        if !self.choice.means(own(flow), &seen.subject) {
            return false;
        }
        self.count(seen, flow);
        true
    }

    fn count(&mut self, seen: Seen, flow: &Flow) {
        if let Act::Ask(.., name) = &seen.act {
            self.asked.ask(name, &seen.subject, flow.time);
        }
        let name = self.asked.name(&seen, flow.time);
        let need = Need { seen, name };
        if self.needs.len() >= MAX_NEEDS && !self.needs.contains_key(&need) {
            self.full = true;
            return;
        }
        if standing(&need.seen.subject.labels).is_empty() {
            let pods = self.pods.entry(need.seen.subject.clone()).or_default();
            if pods.len() < MAX_PODS {
                pods.insert(sanitised(&own(flow).pod));
            }
        }
        let tally = self.needs.entry(need).or_default();
        tally.count += 1;
        tally.audited += u64::from(flow.verdict == Verdict::Audited);
    }

    /// An answer goes to who asked; it is no need.
    fn hear(&mut self, flow: &Flow) -> bool {
        let Some((dns, subject)) = flow.dns.as_ref().zip(Subject::of(&flow.destination)) else {
            return false;
        };
        self.choice.means(&flow.destination, &subject) && self.asked.tell(dns, &subject, flow.time)
    }

    /// Flows of the chosen workloads, or of whom is not known, that carry no labels: nothing is made of them.
    #[must_use]
    pub fn unlabelled(&self) -> u64 {
        self.unlabelled
    }

    /// Why there is nothing to be said.
    #[must_use]
    pub fn nothing(&self) -> ProposeError {
        if self.unlabelled > 0 { ProposeError::NoLabels } else { ProposeError::Nothing }
    }

    /// Names of pods that no selector tells from others, as far as there was room.
    pub(super) fn pods(&self, subject: &Subject) -> impl Iterator<Item = String> {
        let names = self.pods.get(subject).into_iter().flatten();
        names.map(|name| sanitised(&format!("{}/{name}", subject.namespace)))
    }

    /// Flows that nobody will see.
    pub fn lose(&mut self, count: u64) {
        self.lost = self.lost.saturating_add(count);
    }

    /// The workloads that are meant.
    #[must_use]
    pub fn choice(&self) -> &Choice {
        &self.choice
    }

    /// How many those were.
    #[must_use]
    pub fn lost(&self) -> u64 {
        self.lost
    }

    /// What was seen, in order.
    ///
    /// # Errors
    /// [`ProposeError::TooMany`]; a part of it would be a wrong answer.
    pub fn needs(&self) -> Result<&BTreeMap<Need, Tally>, ProposeError> {
        match self.full {
            true => {
                Err(ProposeError::TooMany { what: "different connections and look-ups", limit: MAX_NEEDS })
            }
            false => Ok(&self.needs),
        }
    }
}

/// The end that the flow is about.
fn own(flow: &Flow) -> &Side {
    match flow.direction {
        Direction::Egress => &flow.source,
        Direction::Ingress => &flow.destination,
    }
}
