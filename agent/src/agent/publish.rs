//! What the loop publishes for metrics: once a second, from what it knows anyway. Reads no map.

use std::time::{Duration, SystemTime};

use super::keeper::Keeper;
use crate::metrics::{Endpoints, Histogram, Objects, Publisher, Snapshot};

/// What is noted between two snapshots.
#[derive(Debug, Default)]
pub(super) struct Recorder {
    /// `None`: nobody wants to know.
    to: Option<Publisher>,
    /// What follows from the objects; `None`: they have changed since it was counted.
    objects: Option<Objects>,
    changed: Option<SystemTime>,
    kept: u64,
    compile: Histogram,
    apply: Histogram,
}

impl Recorder {
    /// For whoever listens there.
    pub(super) fn new(to: Option<Publisher>) -> Self {
        Self { to, ..Self::default() }
    }

    /// The objects were compiled anew, whatever came of it.
    pub(super) fn compiled(&mut self, took: Duration) {
        self.objects = None;
        self.compile.observe(took);
    }

    /// A change was put in force.
    pub(super) fn applied(&mut self, took: Duration) {
        self.apply.observe(took);
        self.changed();
    }

    /// Something else is in force now.
    pub(super) fn changed(&mut self) {
        self.changed = Some(SystemTime::now());
    }

    /// Grants were prolonged since they are in use.
    pub(super) fn kept(&mut self, grants: usize) {
        self.kept += grants as u64;
    }
}

impl Keeper {
    /// Tells what there is to tell now.
    pub(super) fn publish(&mut self) {
        if self.recorder.to.is_none() {
            return;
        }
        let objects = self.recorder.objects.unwrap_or_else(|| self.count_objects());
        self.recorder.objects = Some(objects);
        let snapshot = Snapshot {
            endpoints: self.count_endpoints(),
            objects,
            changes: self.revision,
            changed: self.recorder.changed.unwrap_or(self.setting.started),
            source_trouble: self.trouble.is_some(),
            compile_failed: self.refused.is_some(),
            maps_incomplete: self.incomplete.is_some(),
            dns: self.learner.counts(),
            kept: self.recorder.kept,
            unexported: self.observer.not_exported().unwrap_or_default(),
            compile: self.recorder.compile,
            apply: self.recorder.apply,
        };
        self.recorder.to.iter().for_each(|to| to.publish(snapshot.clone()));
    }

    fn count_objects(&self) -> Objects {
        Objects {
            identities: self.objects.labels(&self.picture).count() as u64,
            policies: self.objects.policies().count() as u64,
            bad: self.objects.bad() as u64,
        }
    }

    fn count_endpoints(&self) -> Endpoints {
        let mut counts =
            Endpoints { crowded_out: self.registry.crowded_out().len() as u64, ..Endpoints::default() };
        for entry in self.registry.iter() {
            *match &entry.held {
                Ok(held) if held.attached => &mut counts.ready,
                Ok(_) => &mut counts.not_ready,
                Err(_) => &mut counts.waiting,
            } += 1;
        }
        counts
    }
}
