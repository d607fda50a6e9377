//! The ring, shared between the queue's end and those who ask.
//!
//! It is held for moments only: who reads takes a few entries, and looks at them without it. The agent's loop never waits
//! for it.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};
use std::thread;
use std::time::Duration;

use egret_core::flow::{Entry, Filters, Flow, Next, Query, QueryError, Reader, Ring, Tally};
use tokio::sync::{mpsc, watch};
use tokio::task::yield_now;

use super::{Meters, now};

/// Flows that are put into the ring before those who wait are woken.
const BATCH: usize = 256;
/// Entries that are looked at together.
const SLICE: u64 = 256;
/// How often a loop that must not wait looks whether the ring is free.
const TRIES: u32 = 20;
/// And after how long again.
const AGAIN: Duration = Duration::from_micros(100);

/// Ring and counts.
#[derive(Debug)]
pub(super) struct Store {
    inner: Mutex<Inner>,
    /// Number of the entry that comes next.
    end: watch::Sender<u64>,
    begun: u64,
    /// What is counted of all that comes; `None`: nothing.
    meters: Option<Meters>,
}

#[derive(Debug)]
struct Inner {
    ring: Ring,
    tally: Tally,
}

/// How full it is.
#[derive(Debug, Clone, Copy)]
pub(super) struct Fill {
    pub(super) flows: u64,
    pub(super) most: u64,
    pub(super) seen: u64,
    /// Flows per second.
    pub(super) rate: f64,
    pub(super) uptime: u64,
}

impl Store {
    pub(super) fn new(ring: Ring, meters: Option<Meters>) -> Self {
        let inner = Inner { ring, tally: Tally::default() };
        Self { inner: Mutex::new(inner), end: watch::Sender::new(0), begun: now(), meters }
    }

    /// Takes what comes until nobody can send any more.
    pub(super) async fn fill(&self, mut queue: mpsc::Receiver<Entry>) {
        let mut batch = Vec::with_capacity(BATCH);
        while queue.recv_many(&mut batch, BATCH).await > 0 {
            self.meters.iter().for_each(|meters| meters.see(&batch));
            let now = now();
            let mut inner = self.lock();
            for entry in batch.drain(..) {
                if let Some(flow) = entry.flow() {
                    inner.tally.count(flow, now);
                }
                inner.ring.push(entry);
            }
            let end = inner.ring.end();
            drop(inner);
            self.end.send_replace(end);
        }
    }

    pub(super) fn status(&self) -> Fill {
        let now = now();
        let inner = self.lock();
        Fill {
            flows: inner.ring.len() as u64,
            most: inner.ring.capacity() as u64,
            seen: inner.tally.seen(),
            rate: inner.tally.rate(self.begun, now),
            uptime: now.saturating_sub(self.begun),
        }
    }

    pub(super) fn namespaces(&self) -> BTreeSet<String> {
        self.lock().tally.namespaces(now())
    }

    /// Flows that are wanted, the newest first. Looks at all of them: for an answer to somebody. While others hold the ring, it
    /// waits two milliseconds at most, and has what it found until then.
    pub(super) fn newest(&self, wanted: impl Fn(&Flow) -> bool) -> Vec<Arc<Flow>> {
        let (mut found, mut before, mut tries) = (Vec::new(), u64::MAX, TRIES);
        while let Some(slice) = self.slice(&mut before, &mut tries)
            && !slice.is_empty()
        {
            found.extend(slice.iter().filter_map(Entry::flow).filter(|flow| wanted(flow)).cloned());
        }
        found
    }

    /// Some entries before this number, the newest first; `None`: the ring is not free.
    fn slice(&self, before: &mut u64, tries: &mut u32) -> Option<Vec<Entry>> {
        let inner = loop {
            match self.inner.try_lock() {
                Ok(inner) => break inner,
                Err(TryLockError::Poisoned(inner)) => break inner.into_inner(),
                Err(TryLockError::WouldBlock) => {
                    *tries = tries.checked_sub(1)?;
                    thread::sleep(AGAIN);
                }
            }
        };
        let end = inner.ring.end().min(*before);
        *before = end.saturating_sub(SLICE).max(inner.ring.oldest());
        Some((*before..end).rev().filter_map(|number| inner.ring.get(number)).cloned().collect())
    }

    pub(super) fn read(self: &Arc<Self>, query: Query, filters: Filters) -> Result<Reading, QueryError> {
        let end = self.end.subscribe();
        let reader = Reader::new(&self.lock().ring, query, filters)?;
        Ok(Reading { store: self.clone(), reader, end })
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        // Nothing between lock and unlock leaves it half done.
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Somebody who reads.
#[derive(Debug)]
pub(super) struct Reading {
    store: Arc<Store>,
    reader: Reader,
    end: watch::Receiver<u64>,
}

impl Reading {
    /// The next entry, waiting for it if the query follows.
    pub(super) async fn next(&mut self) -> Option<Entry> {
        loop {
            match self.reader.step() {
                Next::Entry(entry) => return Some(entry),
                Next::End => return None,
                Next::Wait => self.end.changed().await.ok()?,
                Next::More => {
                    // Whoever else is served comes in between, whatever the filters take.
                    yield_now().await;
                    self.take();
                }
            }
        }
    }

    /// The next entry, if it is there.
    pub(super) fn ready(&mut self) -> Option<Entry> {
        loop {
            match self.reader.step() {
                Next::Entry(entry) => return Some(entry),
                Next::End | Next::Wait => return None,
                Next::More => self.take(),
            }
        }
    }

    fn take(&mut self) {
        // What comes after this wakes.
        self.end.mark_unchanged();
        self.reader.take(&self.store.lock().ring);
    }

    /// Waits until something was put into the ring since [`Reading::ready`] had nothing. False: nothing will be.
    pub(super) async fn wait(&mut self) -> bool {
        self.end.changed().await.is_ok()
    }
}

#[cfg(test)]
mod tests;
