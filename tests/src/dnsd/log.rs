//! Every query that reached a resolver.

use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

use super::{Query, Transport};

/// The queries that a server received, in order. Clones show the same list.
#[derive(Clone, Debug, Default)]
pub struct QueryLog(Arc<(Mutex<Vec<Query>>, Condvar)>);

impl QueryLog {
    pub(super) fn push(&self, query: Query) {
        self.0.0.lock().expect("query log").push(query);
        self.0.1.notify_all();
    }

    /// All queries so far.
    pub fn all(&self) -> Vec<Query> {
        self.0.0.lock().expect("query log").clone()
    }

    /// Forgets what came so far.
    pub fn clear(&self) {
        self.0.0.lock().expect("query log").clear();
    }

    /// How many queries asked for `name` (any case, any type).
    pub fn count(&self, name: &str) -> usize {
        self.count_by(|query| query.name_lower() == name.to_ascii_lowercase())
    }

    /// How many queries `pick` takes.
    pub fn count_by(&self, pick: impl Fn(&Query) -> bool) -> usize {
        self.all().iter().filter(|query| pick(query)).count()
    }

    /// How many queries came over TCP, and over how many connections.
    pub fn tcp(&self) -> (usize, usize) {
        let all = self.all();
        let mut connections: Vec<u64> =
            all.iter().filter(|q| q.transport == Transport::Tcp).map(|q| q.connection).collect();
        let queries = connections.len();
        connections.dedup();
        (queries, connections.len())
    }

    /// Waits for a query that `pick` takes; `None` when `limit` passes first.
    pub fn wait_for(&self, limit: Duration, pick: impl Fn(&Query) -> bool) -> Option<Query> {
        let end = Instant::now() + limit;
        let mut list = self.0.0.lock().expect("query log");
        loop {
            if let Some(found) = list.iter().find(|query| pick(query)) {
                return Some(found.clone());
            }
            let left = end.checked_duration_since(Instant::now())?;
            list = self.0.1.wait_timeout(list, left).expect("query log").0;
        }
    }

    /// Panics if any query mentions `part` in its name, or holds it anywhere in its bytes.
    pub fn assert_silent_about(&self, part: &str) {
        let wanted = part.to_ascii_lowercase();
        let told: Vec<String> = self
            .all()
            .iter()
            .filter(|query| query.name_lower().contains(&wanted) || holds(&query.bytes, wanted.as_bytes()))
            .map(Query::name)
            .collect();
        assert!(told.is_empty(), "the resolver was asked about {part}: {told:?}");
    }
}

fn holds(bytes: &[u8], part: &[u8]) -> bool {
    bytes.to_ascii_lowercase().windows(part.len().max(1)).any(|window| window == part)
}
