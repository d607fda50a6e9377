//! What the kernel's maps say, not older than whoever asks may expect, and not read more often than is good.

use std::time::{Duration, Instant};

use egret_common::grant::ticks;

use crate::datapath::{Grants, Lost, MapFill, Reader, Totals};
use crate::host;

/// Counters are read again when they are older.
const COUNTERS: Duration = Duration::from_secs(1);
/// The same of what takes a walk over whole maps: tens of milliseconds when they are full.
const FILL: Duration = Duration::from_secs(10);

/// What was read. `None`: it cannot be read.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Readings {
    /// Counters.
    pub(super) totals: Option<Totals>,
    /// Records that did not fit.
    pub(super) lost: Lost,
    /// Maps.
    pub(super) fill: Vec<MapFill>,
    /// Grants.
    pub(super) grants: Grants,
}

/// The kernel, with what it said last.
#[derive(Debug)]
pub(super) struct Kernel {
    reader: Reader,
    said: Readings,
    counted: Option<Instant>,
    filled: Option<Instant>,
}

impl Kernel {
    pub(super) fn new(reader: Reader) -> Self {
        Self { reader, said: Readings::default(), counted: None, filled: None }
    }

    /// What it says.
    pub(super) fn read(&mut self) -> &Readings {
        let now = Instant::now();
        if is_due(self.counted, COUNTERS, now) {
            self.counted = Some(now);
            // Counts that move from one endpoint to another all the time: the last sums are true as well, only older.
            if let Ok(Some(totals)) = self.reader.totals() {
                self.said.totals = Some(totals);
            }
            self.said.lost = self.reader.lost();
        }
        if is_due(self.filled, FILL, now) {
            self.filled = Some(now);
            self.said.fill = self.reader.fill();
            self.said.grants = self.reader.grants(ticks(host::boot_ns()));
        }
        &self.said
    }
}

fn is_due(last: Option<Instant>, most: Duration, now: Instant) -> bool {
    last.is_none_or(|last| now.duration_since(last) >= most)
}
