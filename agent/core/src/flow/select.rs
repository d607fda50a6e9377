//! Which entries of a ring a request gets: the rules of Hubble's GetFlows.
//!
//! - `since` decides where to begin, else `first` (the oldest entry), else `number` matches are counted back from the
//!   newest one (those after `until` do not count).
//! - `number` also ends an answer that does not follow; 0 is no limit. `follow` with neither begins with what comes.
//! - Losses bypass filters and times and do not count.

use thiserror::Error;

use super::{Entry, Filters, Lost, LostSource, Ring};

/// What is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Query {
    /// How many flows; 0: see the module.
    pub number: u64,
    /// The oldest ones rather than the newest.
    pub first: bool,
    /// Go on with what comes.
    pub follow: bool,
    /// Nothing before this time, in nanoseconds since 1970.
    pub since: Option<u64>,
    /// Nothing after this time.
    pub until: Option<u64>,
}

/// A query that means nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error("first cannot be combined with follow")]
pub struct QueryError;

/// What comes next for a reader.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Next {
    /// This entry.
    Entry(Entry),
    /// Nothing yet.
    Wait,
    /// Nothing more.
    End,
}

/// Somebody who reads a ring.
#[derive(Debug)]
pub struct Reader {
    query: Query,
    filters: Filters,
    at: u64,
    given: u64,
    ended: bool,
}

impl Reader {
    /// Begins where the query says.
    ///
    /// # Errors
    /// [`QueryError`].
    pub fn new(ring: &Ring, query: Query, filters: Filters) -> Result<Self, QueryError> {
        if query.first && query.follow {
            return Err(QueryError);
        }
        let at = begin(ring, &query, &filters);
        Ok(Self { query, filters, at, given: 0, ended: false })
    }

    /// The next entry for this reader. It may be asked again after [`Next::Wait`], once the ring has another end.
    pub fn next(&mut self, ring: &Ring) -> Next {
        if self.ended {
            return Next::End;
        }
        if let Some(count) = ring.oldest().checked_sub(self.at).filter(|count| *count > 0) {
            self.at = ring.oldest();
            let lost = Lost { source: LostSource::Ring, count, first: 0, last: 0 };
            return Next::Entry(Entry::Lost(lost));
        }
        while !self.is_full()
            && let Some(entry) = ring.get(self.at)
        {
            self.at += 1;
            let Entry::Flow(flow) = entry else { return Next::Entry(entry.clone()) };
            if self.query.until.is_some_and(|until| flow.time > until) {
                self.ended = true;
                return Next::End;
            }
            let early = self.query.since.is_some_and(|since| flow.time < since);
            if !early && self.filters.pass(flow) {
                self.given += 1;
                return Next::Entry(entry.clone());
            }
        }
        self.ended = !self.query.follow;
        if self.ended { Next::End } else { Next::Wait }
    }

    /// Whether an answer that does not follow has all it may have.
    fn is_full(&self) -> bool {
        !self.query.follow && self.query.number > 0 && self.given >= self.query.number
    }
}

fn begin(ring: &Ring, query: &Query, filters: &Filters) -> u64 {
    if query.since.is_none() {
        if query.first {
            return ring.oldest();
        }
        if query.follow && query.number == 0 {
            return ring.end();
        }
    }
    let mut matches = 0;
    let mut at = ring.end();
    while at > ring.oldest() {
        let flow = ring.get(at - 1).and_then(Entry::flow);
        if let Some(flow) = flow {
            if query.since.is_some_and(|since| flow.time < since) {
                break;
            }
            let late = query.until.is_some_and(|until| flow.time > until);
            matches += u64::from(!late && filters.pass(flow));
        }
        at -= 1;
        if query.since.is_none() && query.number > 0 && matches == query.number {
            break;
        }
    }
    at
}
