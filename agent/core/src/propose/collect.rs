//! Which needs were seen, and how often.
//!
//! Owns: whose flows count, the names that an address had when it was used, and the bound on it all. Must not know: policies.

use std::collections::{BTreeMap, BTreeSet};

use egret_common::{net::Direction, verdict::Verdict};

use super::{Act, Peer, ProposeError, Seen, Subject, seen::passed, who::is_forbidden};
use crate::{
    flow::{Flow, Side, Workload},
    labels::Labels,
    names::Name,
};

/// Different needs at most.
const MAX_NEEDS: usize = 16_384;
/// A look-up belongs to the connections that begin within this time, in nanoseconds.
const RECENT: u64 = 5_000_000_000;

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
}

/// Something that a workload does.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Need {
    /// What was seen.
    pub seen: Seen,
    /// The names by which the workload came to the address; none: it was told none.
    pub names: BTreeSet<Name>,
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
    /// When each name was asked for last.
    asked: BTreeMap<(Name, Subject), u64>,
    /// Something had no room.
    full: bool,
    lost: u64,
}

impl Collected {
    /// Nothing yet. `dropped`: what was dropped counts as well.
    #[must_use]
    pub fn new(choice: Choice, dropped: bool) -> Self {
        Self { choice, dropped, needs: BTreeMap::new(), asked: BTreeMap::new(), full: false, lost: 0 }
    }

    /// Counts a flow; whether it counts.
    pub fn see(&mut self, flow: &Flow) -> bool {
        let counts = passed(flow) || self.dropped && flow.verdict == Verdict::Dropped;
        if !counts {
            return false;
        }
        let Some(seen) = Seen::of(flow).filter(|seen| self.choice.means(own(flow, seen), &seen.subject))
        else {
            return false;
        };
        if let Act::Ask(.., name) = &seen.act {
            let key = (name.clone(), seen.subject.clone());
            if self.asked.len() < MAX_NEEDS || self.asked.contains_key(&key) {
                let time = self.asked.entry(key).or_default();
                *time = flow.time.max(*time);
            }
        }
        let names = self.names(&seen, flow.time);
        let need = Need { seen, names };
        if self.needs.len() >= MAX_NEEDS && !self.needs.contains_key(&need) {
            self.full = true;
            return true;
        }
        let tally = self.needs.entry(need).or_default();
        tally.count += 1;
        tally.audited += u64::from(flow.verdict != Verdict::Forwarded);
        true
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

    /// The names by which an address was used: those that were asked for just before, else the last one, else all that it has.
    fn names(&self, seen: &Seen, time: u64) -> BTreeSet<Name> {
        let Peer::World { ip, names } = &seen.peer else { return BTreeSet::new() };
        if is_forbidden(*ip) {
            return BTreeSet::new();
        }
        let times: Vec<(&Name, Option<u64>)> = names
            .iter()
            .map(|name| {
                let asked = self.asked.get(&(name.clone(), seen.subject.clone())).copied();
                (name, asked.filter(|asked| *asked <= time))
            })
            .collect();
        let last = times.iter().filter_map(|(_, asked)| *asked).max();
        let counts = |asked: Option<u64>| match last {
            Some(last) => asked.is_some_and(|at| at == last || time - at <= RECENT),
            None => true,
        };
        times.into_iter().filter(|(_, asked)| counts(*asked)).map(|(name, _)| name.clone()).collect()
    }
}

fn own<'a>(flow: &'a Flow, seen: &Seen) -> &'a Side {
    match seen.direction {
        Direction::Egress => &flow.source,
        Direction::Ingress => &flow.destination,
    }
}
