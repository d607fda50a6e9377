//! The newest events, each with a number that no other one has.
//!
//! Owns: what is forgotten when there is no room, so that a reader can tell. Must not know: readers.

use std::{collections::VecDeque, sync::Arc};

use thiserror::Error;

use super::Flow;

/// Events of a ring at most.
const MOST: usize = 65_535;

/// Where events were lost. The numbers are Hubble's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum LostSource {
    /// Between the kernel and the agent.
    Kernel = 1,
    /// Inside the agent.
    Queue = 2,
    /// A reader was too slow for the ring.
    Ring = 3,
}

/// Events that nobody will see.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Lost {
    /// Where.
    pub source: LostSource,
    /// How many.
    pub count: u64,
    /// When that was first noticed, in nanoseconds since 1970; 0: not known.
    pub first: u64,
    /// When last.
    pub last: u64,
}

/// What a ring holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Entry {
    /// A flow.
    Flow(Arc<Flow>),
    /// Losses before the entries that follow.
    Lost(Lost),
}

impl Entry {
    /// The flow.
    #[must_use]
    pub fn flow(&self) -> Option<&Arc<Flow>> {
        match self {
            Self::Flow(flow) => Some(flow),
            Self::Lost(_) => None,
        }
    }
}

/// A size that a ring cannot have.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error("a ring of {0} flows: the number must be 2^n-1, from 1 to 65535")]
pub struct RingError(pub usize);

/// The newest events.
#[derive(Debug, Clone)]
pub struct Ring {
    entries: VecDeque<Entry>,
    capacity: usize,
    /// Number of the oldest one.
    first: u64,
}

impl Ring {
    /// Room for `capacity` events, which must be 2^n-1.
    ///
    /// # Errors
    /// [`RingError`].
    pub fn new(capacity: usize) -> Result<Self, RingError> {
        if capacity == 0 || capacity > MOST || !(capacity + 1).is_power_of_two() {
            return Err(RingError(capacity));
        }
        Ok(Self { entries: VecDeque::new(), capacity, first: 0 })
    }

    /// Adds the newest one; the oldest makes room.
    pub fn push(&mut self, entry: Entry) {
        if self.entries.len() == self.capacity {
            self.entries.pop_front();
            self.first += 1;
        }
        self.entries.push_back(entry);
    }

    /// The entry with this number, if it is still there, or there already.
    #[must_use]
    pub fn get(&self, number: u64) -> Option<&Entry> {
        let at = number.checked_sub(self.first)?;
        self.entries.get(usize::try_from(at).ok()?)
    }

    /// Number of the oldest entry.
    #[must_use]
    pub fn oldest(&self) -> u64 {
        self.first
    }

    /// Number of the entry that comes next.
    #[must_use]
    pub fn end(&self) -> u64 {
        self.first + self.entries.len() as u64
    }

    /// Entries that fit.
    #[must_use]
    pub fn capacity(&self) -> usize {
        self.capacity
    }

    /// Entries that are there.
    #[must_use]
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether nothing is there.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }
}
