//! How the export is, for whoever asks from another thread.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use crate::tell;

/// What the thread says about itself.
#[derive(Debug, Default)]
pub(in crate::observe) struct Condition {
    /// Lines that were not written.
    lost: AtomicU64,
    /// Lines that are still to be written.
    owed: AtomicU64,
    /// What is wrong now. Held for moments only.
    trouble: Mutex<Option<String>>,
}

impl Condition {
    /// Lines that were not written so far.
    pub(in crate::observe) fn lost(&self) -> u64 {
        self.lost.load(Ordering::Relaxed)
    }

    /// What is wrong now.
    pub(in crate::observe) fn trouble(&self) -> Option<String> {
        self.trouble.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Lines are to be written.
    pub(super) fn owe(&self, lines: u64) {
        self.owed.fetch_add(lines, Ordering::Relaxed);
    }

    /// Lines were written.
    pub(super) fn settle(&self, lines: u64) {
        // After it was given up nothing is owed.
        let less = |owed: u64| Some(owed.saturating_sub(lines));
        let _ = self.owed.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less);
    }

    /// Lines could not be written.
    pub(super) fn lose(&self, lines: u64) {
        self.settle(lines);
        self.lost.fetch_add(lines, Ordering::Relaxed);
    }

    /// What is still to be written will not be.
    pub(super) fn give_up(&self) {
        let left = self.owed.load(Ordering::Relaxed);
        if left > 0 {
            self.lose(left);
            tell::line(format_args!(
                "warning: the last {left} flows were not exported: the disk takes too long"
            ));
        }
    }

    /// What is wrong now; what is new is printed.
    pub(super) fn set(&self, trouble: Option<String>) {
        let before = {
            let mut now = self.trouble.lock().unwrap_or_else(PoisonError::into_inner);
            std::mem::replace(&mut *now, trouble.clone())
        };
        // Without the lock: whoever reads standard error may take its time.
        match trouble {
            _ if before == trouble => {}
            Some(trouble) => tell::line(format_args!("warning: {trouble}")),
            None => tell::line("flows are exported again"),
        }
    }
}
