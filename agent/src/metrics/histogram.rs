//! A histogram that belongs to one task and is copied to whoever shows it: no lock, no atomic.

use std::time::Duration;

/// Upper bounds in seconds.
pub(super) const BOUNDS: [f64; 12] =
    [0.000_1, 0.000_25, 0.000_5, 0.001, 0.002_5, 0.005, 0.01, 0.025, 0.05, 0.1, 0.5, 2.5];

/// Durations.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Histogram {
    /// Per bound, and above all of them.
    counts: [u64; BOUNDS.len() + 1],
    sum: f64,
}

impl Histogram {
    /// Counts one.
    pub fn observe(&mut self, took: Duration) {
        let took = took.as_secs_f64();
        let bucket = BOUNDS.iter().position(|bound| took <= *bound).unwrap_or(BOUNDS.len());
        self.counts[bucket] += 1;
        self.sum += took;
    }

    /// Seconds in all.
    #[must_use]
    pub fn sum(&self) -> f64 {
        self.sum
    }

    /// How many were counted.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// Upper bound and what is between it and the one before; the last bound is [`f64::MAX`].
    pub(super) fn buckets(&self) -> Vec<(f64, u64)> {
        BOUNDS.into_iter().chain([f64::MAX]).zip(self.counts).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_as_long_as_a_bound_belongs_to_it() {
        let mut histogram = Histogram::default();
        for millis in [1, 1, 2, 3_000] {
            histogram.observe(Duration::from_millis(millis));
        }
        assert_eq!((histogram.count(), histogram.sum()), (4, 3.004));
        let counted: Vec<(f64, u64)> = histogram.buckets().into_iter().filter(|(_, n)| *n > 0).collect();
        assert_eq!(counted, [(0.001, 2), (0.002_5, 1), (f64::MAX, 1)]);
    }
}
