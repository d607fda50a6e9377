//! What happened to the agent itself: the newest events, for GetAgentEvents.
//!
//! Owns: which of them a request gets, by the rules of GetFlows without filters. Must not know: how the agent finds out.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use egret_core::flow::{PolicyRef, Query, QueryError};
use tokio::sync::{mpsc, watch};

/// Events that are kept.
const MOST: usize = 1023;
/// Events that are taken at once.
const BATCH: usize = 64;

/// Something that happened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AgentEvent {
    /// It began.
    Started,
    /// An object is in force as it is now, with so many rules.
    PolicyUpdated(PolicyRef, usize),
    /// An object is not in force any more.
    PolicyDeleted(PolicyRef),
    /// A pod is known.
    EndpointCreated(EndpointRef),
    /// A pod is gone.
    EndpointDeleted(EndpointRef),
    /// What holds for a pod was put in force, or could not be.
    Regenerated(EndpointRef, Result<(), String>),
}

/// An endpoint.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct EndpointRef {
    /// Its number.
    pub id: u32,
    /// Namespace of the pod.
    pub namespace: String,
    /// Name of the pod.
    pub pod: String,
    /// Identity labels with their source.
    pub labels: Vec<String>,
}

/// An event with its time, in nanoseconds since 1970.
pub(super) type Dated = (u64, AgentEvent);

/// The newest ones.
#[derive(Debug)]
pub(super) struct Events {
    inner: Mutex<Inner>,
    /// Number of the one that comes next.
    end: watch::Sender<u64>,
}

#[derive(Debug, Default)]
struct Inner {
    events: VecDeque<Dated>,
    /// Number of the oldest one.
    first: u64,
}

impl Events {
    pub(super) fn new() -> Arc<Self> {
        Arc::new(Self { inner: Mutex::default(), end: watch::Sender::new(0) })
    }

    /// Takes what comes until nobody can send any more.
    pub(super) async fn fill(&self, mut queue: mpsc::Receiver<Dated>) {
        let mut batch = Vec::with_capacity(BATCH);
        while queue.recv_many(&mut batch, BATCH).await > 0 {
            let mut inner = self.lock();
            for event in batch.drain(..) {
                if inner.events.len() == MOST {
                    inner.events.pop_front();
                    inner.first += 1;
                }
                inner.events.push_back(event);
            }
            let end = inner.end();
            drop(inner);
            self.end.send_replace(end);
        }
    }

    /// Begins where the query says.
    pub(super) fn read(self: &Arc<Self>, query: Query) -> Result<EventReader, QueryError> {
        if query.first && query.follow {
            return Err(QueryError);
        }
        let end = self.end.subscribe();
        let at = self.lock().begin(&query);
        Ok(EventReader { events: self.clone(), query, at, given: 0, end })
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        // Nothing between lock and unlock leaves it half done.
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Inner {
    fn end(&self) -> u64 {
        self.first + self.events.len() as u64
    }

    fn get(&self, number: u64) -> Option<&Dated> {
        self.events.get(usize::try_from(number.checked_sub(self.first)?).ok()?)
    }

    fn begin(&self, query: &Query) -> u64 {
        if let Some(since) = query.since {
            let early = self.events.iter().take_while(|(time, _)| *time < since).count();
            return self.first + early as u64;
        }
        if query.first {
            return self.first;
        }
        if query.number == 0 {
            return if query.follow { self.end() } else { self.first };
        }
        let late = |(time, _): &&Dated| query.until.is_some_and(|until| *time > until);
        let late = self.events.iter().rev().take_while(late).count() as u64;
        (self.end() - late).saturating_sub(query.number).max(self.first)
    }
}

/// Somebody who reads.
#[derive(Debug)]
pub(super) struct EventReader {
    events: Arc<Events>,
    query: Query,
    at: u64,
    given: u64,
    end: watch::Receiver<u64>,
}

impl EventReader {
    /// The next one, waiting for it if the query follows. What was forgotten meanwhile is passed over.
    pub(super) async fn next(&mut self) -> Option<Dated> {
        loop {
            self.end.mark_unchanged();
            let full = !self.query.follow && self.query.number > 0 && self.given >= self.query.number;
            let next = {
                let inner = self.events.lock();
                self.at = self.at.max(inner.first);
                inner.get(self.at).cloned()
            };
            match next {
                _ if full => return None,
                Some((time, _)) if self.query.until.is_some_and(|until| time > until) => return None,
                Some(event) => {
                    (self.at, self.given) = (self.at + 1, self.given + 1);
                    return Some(event);
                }
                None if !self.query.follow => return None,
                None => self.end.changed().await.ok()?,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The numbers of the events that a query gets from these, whose times are their numbers.
    fn numbers(count: u64, query: Query) -> Vec<u64> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().expect("one");
        runtime.block_on(async {
            let events = Events::new();
            let (feed, queue) = mpsc::channel(usize::try_from(count).expect("few"));
            for number in 1..=count {
                feed.try_send((number, AgentEvent::Started)).expect("room");
            }
            drop(feed);
            events.fill(queue).await;
            let mut reader = events.read(query).expect("valid");
            let mut numbers = Vec::new();
            while let Ok(Some((time, _))) =
                tokio::time::timeout(std::time::Duration::ZERO, reader.next()).await
            {
                numbers.push(time);
            }
            numbers
        })
    }

    #[test]
    fn a_request_gets_what_it_asks_for() {
        let d = Query::default();
        for (query, want) in [
            (d, &[1, 2, 3, 4, 5][..]),
            (Query { number: 2, ..d }, &[4, 5]),
            (Query { number: 9, ..d }, &[1, 2, 3, 4, 5]),
            (Query { number: 2, first: true, ..d }, &[1, 2]),
            (Query { since: Some(4), ..d }, &[4, 5]),
            (Query { since: Some(2), number: 1, ..d }, &[2]),
            (Query { until: Some(2), ..d }, &[1, 2]),
            (Query { until: Some(3), number: 2, ..d }, &[2, 3]),
            (Query { since: Some(9), ..d }, &[]),
        ] {
            assert_eq!(numbers(5, query), want, "{query:?}");
        }
        assert!(Events::new().read(Query { first: true, follow: true, ..d }).is_err());
        let many = numbers(MOST as u64 + 7, d);
        assert_eq!((many.len(), many[0]), (MOST, 8), "the oldest are forgotten");
    }

    #[test]
    fn who_follows_waits_for_what_comes() {
        let runtime = tokio::runtime::Builder::new_current_thread().build().expect("one");
        runtime.block_on(async {
            let events = Events::new();
            let (feed, queue) = mpsc::channel(4);
            let follow = Query { follow: true, ..Query::default() };
            let mut reader = events.read(follow).expect("valid");
            let mut last = events.read(Query { number: 1, ..follow }).expect("valid");
            let feeding = async {
                for number in 1..=3 {
                    feed.send((number, AgentEvent::Started)).await.expect("taken");
                }
            };
            let reading = async {
                for number in 1..=3 {
                    assert_eq!(reader.next().await.map(|(time, _)| time), Some(number));
                    assert_eq!(last.next().await.map(|(time, _)| time), Some(number));
                }
            };
            tokio::select! {
                ((), ()) = async { tokio::join!(feeding, reading) } => {}
                () = events.fill(queue) => panic!("the feeder is there"),
            }
        });
    }
}
