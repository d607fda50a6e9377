//! What a ring's status says about the flows that went through it.

use std::collections::{BTreeMap, BTreeSet};

use super::Flow;

/// Nanoseconds.
const SECOND: u64 = 1_000_000_000;
/// Seconds over which the rate is taken.
const MINUTE: u64 = 60;
/// Seconds for which a namespace is remembered without a flow.
const HOUR: u64 = 3600;
/// Namespaces that are remembered.
const NAMESPACES: usize = 16_384;

/// Counts.
#[derive(Debug, Clone, Default)]
pub struct Tally {
    seen: u64,
    /// Flows by second.
    seconds: BTreeMap<u64, u64>,
    namespaces: BTreeMap<String, u64>,
}

impl Tally {
    /// A flow was seen at `now` (nanoseconds since 1970).
    pub fn count(&mut self, flow: &Flow, now: u64) {
        self.seen += 1;
        let second = now / SECOND;
        match self.seconds.get_mut(&second) {
            Some(count) => *count += 1,
            None => {
                self.seconds.insert(second, 1);
                self.seconds = self.seconds.split_off(&second.saturating_sub(MINUTE));
            }
        }
        for namespace in [&flow.source.namespace, &flow.destination.namespace] {
            if let Some(last) = self.namespaces.get_mut(namespace) {
                *last = second;
            } else if !namespace.is_empty() && self.namespaces.len() < NAMESPACES {
                self.namespaces.insert(namespace.clone(), second);
            }
        }
    }

    /// Flows in all.
    #[must_use]
    pub fn seen(&self) -> u64 {
        self.seen
    }

    /// Flows per second over the last whole minute, or since `begin` if that is less.
    #[must_use]
    pub fn rate(&self, begin: u64, now: u64) -> f64 {
        let (begin, now) = (begin / SECOND, now / SECOND);
        let from = now.saturating_sub(MINUTE).max(begin);
        let count: u64 = self.seconds.range(from..now).map(|(_, count)| count).sum();
        if now > from { count as f64 / (now - from) as f64 } else { 0.0 }
    }

    /// Namespaces with a flow within the last hour, sorted; older ones are forgotten.
    pub fn namespaces(&mut self, now: u64) -> BTreeSet<String> {
        let oldest = (now / SECOND).saturating_sub(HOUR);
        self.namespaces.retain(|_, last| *last >= oldest);
        self.namespaces.keys().cloned().collect()
    }
}
