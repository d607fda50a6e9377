//! Hubble's metrics, shared between the thread that counts, the one that shows them, and the loop that knows which pods
//! there are.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};

use egret_core::flow::{Entry, Meter, MeterConfig};

use super::now;

/// A handle. Held for moments only: as long as it takes to write a page.
#[derive(Debug, Clone)]
pub struct Meters(Arc<Mutex<Meter>>);

impl Meters {
    /// Begins with nothing counted.
    #[must_use]
    pub fn new(config: &MeterConfig) -> Self {
        Self(Arc::new(Mutex::new(Meter::new(config))))
    }

    /// Counts what comes out of the queue.
    pub(super) fn see(&self, entries: &[Entry]) {
        let mut meter = self.lock();
        for entry in entries {
            match entry {
                Entry::Flow(flow) => meter.count(flow),
                Entry::Lost(lost) => meter.count_lost(lost),
            }
        }
    }

    /// Forgets what names pods (namespace, name) that are gone for a minute. Waits for nobody: if somebody counts or reads
    /// just now, the next time will do.
    pub fn forget(&self, is_there: impl Fn(&str, &str) -> bool) {
        match self.0.try_lock() {
            Ok(mut meter) => meter.forget(now(), is_there),
            Err(TryLockError::Poisoned(meter)) => meter.into_inner().forget(now(), is_there),
            Err(TryLockError::WouldBlock) => {}
        }
    }

    /// Reads the counts.
    pub fn read<T>(&self, read: impl FnOnce(&Meter) -> T) -> T {
        read(&self.lock())
    }

    fn lock(&self) -> MutexGuard<'_, Meter> {
        // A count may be missing then, and no more.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
