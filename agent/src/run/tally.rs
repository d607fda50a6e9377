//! Destinations over the whole run. The kernel's table forgets what was not used for longest when it is full; the agent
//! looks often enough to remember most of that.

use std::collections::BTreeMap;

use egret_common::maps::{Destination, DestinationKey};

/// Destinations that are remembered.
const MOST: usize = 65_536;

/// One destination.
#[derive(Debug)]
struct Entry {
    /// When it was seen first; an entry that the kernel made anew says a later time.
    first: u64,
    /// What entries counted that the kernel has forgotten.
    count: u64,
    held: u32,
    /// The entry as it was seen last.
    last: Destination,
}

/// What was seen so far.
#[derive(Debug, Default)]
pub(super) struct Tally {
    seen: BTreeMap<DestinationKey, Entry>,
}

impl Tally {
    /// Takes what the kernel's table holds now.
    pub(super) fn add(&mut self, table: Vec<(DestinationKey, Destination)>) {
        for (key, now) in table {
            if let Some(entry) = self.seen.get_mut(&key) {
                if entry.last.first != now.first {
                    entry.count += entry.last.count;
                    entry.held = entry.held.saturating_add(entry.last.held);
                }
                entry.last = now;
            } else if self.seen.len() < MOST {
                self.seen.insert(key, Entry { first: now.first, count: 0, held: 0, last: now });
            }
        }
    }

    /// Everything, with its counts over the whole run.
    #[must_use]
    pub(super) fn all(&self) -> Vec<(DestinationKey, Destination)> {
        let whole = |entry: &Entry| Destination {
            count: entry.count + entry.last.count,
            held: entry.held.saturating_add(entry.last.held),
            first: entry.first,
            ..entry.last
        };
        self.seen.iter().map(|(key, entry)| (*key, whole(entry))).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::learn::fixture::destination;

    #[test]
    fn what_the_kernel_forgot_is_counted_on() {
        let mut tally = Tally::default();
        let (key, mut value) = destination("192.0.2.1", 443, None, 5, 0);
        value.count = 3;
        tally.add(vec![(key, value)]);
        value.count = 4;
        tally.add(vec![(key, value)]);
        tally.add(Vec::new());
        tally.add(vec![(key, Destination { first: 9, last: 9, count: 1, ..value })]);
        let all = tally.all();
        assert_eq!((all.len(), all[0].1.count, all[0].1.first, all[0].1.last), (1, 5, 5, 9));
    }
}
