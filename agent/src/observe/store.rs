//! The ring, shared between the queue's end and those who ask. Held for moments only, on one thread.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use egret_core::flow::{Entry, Filters, Next, Query, QueryError, Reader, Ring, Tally};
use tokio::sync::{mpsc, watch};

use super::now;

/// Flows that are put into the ring before those who wait are woken.
const BATCH: usize = 256;

/// Ring and counts.
#[derive(Debug)]
pub(super) struct Store {
    inner: Mutex<Inner>,
    /// Number of the entry that comes next.
    end: watch::Sender<u64>,
    begun: u64,
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
    pub(super) fn new(ring: Ring) -> Self {
        let inner = Inner { ring, tally: Tally::default() };
        Self { inner: Mutex::new(inner), end: watch::Sender::new(0), begun: now() }
    }

    /// Takes what comes until nobody can send any more.
    pub(super) async fn fill(&self, mut queue: mpsc::Receiver<Entry>) {
        let mut batch = Vec::with_capacity(BATCH);
        while queue.recv_many(&mut batch, BATCH).await > 0 {
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
            self.end.mark_unchanged();
            let next = self.reader.next(&self.store.lock().ring);
            match next {
                Next::Entry(entry) => return Some(entry),
                Next::End => return None,
                Next::Wait => self.end.changed().await.ok()?,
            }
        }
    }

    /// The next entry, if it is there.
    pub(super) fn ready(&mut self) -> Option<Entry> {
        match self.reader.next(&self.store.lock().ring) {
            Next::Entry(entry) => Some(entry),
            Next::End | Next::Wait => None,
        }
    }

    /// Waits until something was put into the ring since [`Reading::ready`] had nothing. False: nothing will be.
    pub(super) async fn wait(&mut self) -> bool {
        self.end.changed().await.is_ok()
    }
}

#[cfg(test)]
mod tests;
