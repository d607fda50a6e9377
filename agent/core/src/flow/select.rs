//! Which entries of a ring a request gets: the rules of Hubble's GetFlows.
//!
//! - `since` decides where to begin, else `first` (the oldest entry), else `number` matches are counted back from the
//!   newest one (those after `until` do not count).
//! - `number` also ends an answer that does not follow; 0 is no limit. `follow` with neither begins with what comes.
//! - Losses bypass filters and times and do not count.
//!
//! A ring is locked while entries are taken out of it, and filters may be slow: a few entries are taken at a time, and
//! judged without the ring.

use std::collections::VecDeque;

use thiserror::Error;

use super::{Entry, Filters, Flow, Lost, LostSource, Ring};

/// Entries that are taken at a time.
const SLICE: u64 = 32;

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
    /// What was taken is judged: [`Reader::take`] more.
    More,
    /// Nothing yet. It may be asked again once the ring has another end.
    Wait,
    /// Nothing more.
    End,
}

/// Somebody who reads a ring.
#[derive(Debug)]
pub struct Reader {
    query: Query,
    filters: Filters,
    /// Number of the entry that is taken next; while the beginning is looked for: of the one after that.
    at: u64,
    /// Matches counted back; `None`: the beginning is found.
    back: Option<u64>,
    taken: VecDeque<Entry>,
    /// There was nothing to take.
    dry: bool,
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
        let (at, back) = match query {
            Query { since: None, first: true, .. } => (ring.oldest(), None),
            Query { since: None, follow: true, number: 0, .. } => (ring.end(), None),
            _ => (ring.end(), Some(0)),
        };
        let taken = VecDeque::new();
        Ok(Self { query, filters, at, back, taken, dry: false, given: 0, ended: false })
    }

    /// Takes a few entries, if those from before are judged. A moment's work, whatever the filters are.
    pub fn take(&mut self, ring: &Ring) {
        if !self.taken.is_empty() {
            return;
        }
        if self.back.is_some() {
            let from = self.at.saturating_sub(SLICE).max(ring.oldest());
            self.taken.extend((from..self.at).rev().filter_map(|number| ring.get(number)).cloned());
            if !self.taken.is_empty() {
                return;
            }
            self.back = None;
        }
        if let Some(count) = ring.oldest().checked_sub(self.at).filter(|count| *count > 0) {
            self.at = ring.oldest();
            self.taken.push_back(Entry::Lost(Lost { source: LostSource::Ring, count, first: 0, last: 0 }));
        }
        let end = ring.end().min(self.at.saturating_add(SLICE));
        self.taken.extend((self.at..end).filter_map(|number| ring.get(number)).cloned());
        self.at = self.at.max(end);
        self.dry = self.taken.is_empty();
    }

    /// The next entry for this reader, out of what was taken.
    pub fn step(&mut self) -> Next {
        if self.back.is_some() {
            self.look_back();
            return Next::More;
        }
        if self.ended || self.is_full() {
            return self.end();
        }
        while let Some(entry) = self.taken.pop_front() {
            let Entry::Flow(flow) = &entry else { return Next::Entry(entry) };
            if self.query.until.is_some_and(|until| flow.time > until) {
                return self.end();
            }
            let early = self.query.since.is_some_and(|since| flow.time < since);
            if !early && self.filters.pass(flow) {
                self.given += 1;
                return Next::Entry(entry);
            }
        }
        match (std::mem::take(&mut self.dry), self.query.follow) {
            (false, _) => Next::More,
            (true, true) => Next::Wait,
            (true, false) => self.end(),
        }
    }

    fn end(&mut self) -> Next {
        self.ended = true;
        self.taken.clear();
        Next::End
    }

    /// Whether an answer that does not follow has all it may have.
    fn is_full(&self) -> bool {
        !self.query.follow && self.query.number > 0 && self.given >= self.query.number
    }

    /// Looks for the beginning in what was taken, the newest first.
    fn look_back(&mut self) {
        let Query { number, since, until, .. } = self.query;
        while let (Some(matches), Some(entry)) = (self.back, self.taken.pop_front()) {
            let flow = entry.flow();
            if flow.is_some_and(|flow| since.is_some_and(|since| flow.time < since)) {
                self.back = None;
                break;
            }
            self.at -= 1;
            let wanted =
                |flow: &Flow| until.is_none_or(|until| flow.time <= until) && self.filters.pass(flow);
            let matches = matches + u64::from(flow.is_some_and(|flow| wanted(flow)));
            let found = since.is_none() && number > 0 && matches == number;
            self.back = (!found).then_some(matches);
        }
        if self.back.is_none() {
            self.taken.clear();
        }
    }
}
