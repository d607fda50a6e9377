//! How long answers to DNS queries take: queries that were seen, until their answers are.
//!
//! Owns: which query an answer belongs to. Bounded in number and in time, since workloads decide what is asked: a query
//! that had to make room has no latency, and nothing else changes.

use std::collections::hash_map::RandomState;
use std::collections::{HashMap, VecDeque};
use std::hash::BuildHasher;
use std::time::Duration;

use egret_common::event::DnsEvent;
use egret_common::ids::EndpointId;
use egret_common::net::Addr;
use egret_common::verdict::Verdict;
use egret_core::flow::{Dns, Flow};

use crate::metrics::Histogram;

/// Queries that are remembered, about a MiB.
const MOST: usize = 8_192;
/// Nanoseconds for which a query is remembered: resolvers' clients wait for 5 s, twice.
const LIFE: u64 = 15_000_000_000;

/// What a query and its answer have in common.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Key {
    endpoint: EndpointId,
    client: (Addr, u16),
    resolver: (Addr, u16),
    proto: u8,
    id: u16,
    /// Hash of name and type.
    question: u64,
}

/// Queries without an answer.
#[derive(Debug, Default)]
pub(super) struct Queries {
    /// When each was sent last.
    open: HashMap<Key, u64>,
    /// The same in their order, those that were answered among them: what must go is in front.
    order: VecDeque<(Key, u64)>,
    /// Nobody who asks shall know which names have one hash.
    hasher: RandomState,
    latency: Histogram,
}

impl Queries {
    /// Notes a query; tells an answer how long it took.
    pub(super) fn pair(&mut self, event: &DnsEvent, message: &[u8], flow: &mut Flow) {
        let passed = flow.verdict != Verdict::Dropped;
        let Some(dns) = &mut flow.dns else { return };
        let Some(key) = self.key(event, message, dns) else { return };
        if dns.response {
            dns.latency = self.answered(&key, event.time);
        } else if passed {
            // What never left has no answer but the program's own.
            self.asked(key, event.time);
        }
    }

    /// Of all answers so far.
    pub(super) fn latency(&self) -> Histogram {
        self.latency
    }

    fn key(&self, event: &DnsEvent, message: &[u8], dns: &Dns) -> Option<Key> {
        Some(Key {
            endpoint: event.endpoint,
            client: (event.local, event.local_port),
            resolver: (event.remote, event.remote_port),
            proto: event.proto,
            id: u16::from_be_bytes(*message.first_chunk()?),
            question: self.hasher.hash_one((&dns.query, &dns.qtypes)),
        })
    }

    fn asked(&mut self, key: Key, time: u64) {
        let is_old = |at: u64| at.saturating_add(LIFE) < time;
        while let Some((oldest, at)) = self.order.front().copied()
            && (self.order.len() >= MOST || is_old(at))
        {
            self.order.pop_front();
            // It may have been sent again since.
            if self.open.get(&oldest) == Some(&at) {
                self.open.remove(&oldest);
            }
        }
        self.open.insert(key, time);
        self.order.push_back((key, time));
    }

    fn answered(&mut self, key: &Key, time: u64) -> Option<Duration> {
        let asked = *self.open.get(key)?;
        let took = time.checked_sub(asked).filter(|took| *took <= LIFE)?;
        self.open.remove(key);
        let took = Duration::from_nanos(took);
        self.latency.observe(took);
        Some(took)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use egret_common::event::DNS_REFUSED;
    use egret_common::net::{Direction, proto};

    use super::*;
    use crate::learn::fixture::{answer, event, query};
    use crate::observe::dns;
    use crate::observe::join::{Common, tests::Nobody};

    const MS: u64 = 1_000_000;

    /// What was said of a message.
    fn see(queries: &mut Queries, event: DnsEvent, message: &[u8]) -> Option<Duration> {
        let common = Common { node: Arc::default(), clock: 0 };
        let mut flow = dns::flow(&event, message, &Nobody, &common).expect("a message");
        queries.pair(&event, message, &mut flow);
        flow.dns.expect("one").latency
    }

    fn ask(queries: &mut Queries, id: u16, name: &str, time: u64) {
        let event = event(Direction::Egress, proto::UDP, time);
        assert_eq!(see(queries, event, &query(id, name)), None, "a query has none");
    }

    fn told(queries: &mut Queries, id: u16, name: &str, time: u64) -> Option<u64> {
        let event = event(Direction::Ingress, proto::UDP, time);
        see(queries, event, &answer(id, name, &[[192, 0, 2, 1]])).map(|took| took.as_nanos() as u64)
    }

    #[test]
    fn an_answer_is_as_late_as_its_last_query() {
        let mut q = Queries::default();
        ask(&mut q, 1, "a.example", 100);
        ask(&mut q, 1, "b.example", 110);
        ask(&mut q, 2, "a.example", 120);
        assert_eq!(told(&mut q, 3, "a.example", 130), None, "nobody asked");
        assert_eq!(told(&mut q, 1, "a.example", 100 + 3 * MS), Some(3 * MS));
        assert_eq!(told(&mut q, 1, "a.example", 100 + 4 * MS), None, "once only");
        assert_eq!(told(&mut q, 1, "b.example", 111), Some(1));
        assert_eq!(told(&mut q, 2, "a.example", 119), None, "before it was asked");
        // Sent again.
        ask(&mut q, 2, "a.example", 200);
        assert_eq!(told(&mut q, 2, "a.example", 250), Some(50));
        assert_eq!((q.latency().count(), q.open.len()), (3, 0));
    }

    #[test]
    fn every_part_of_a_question_counts() {
        let ends: [fn(&mut DnsEvent); 6] = [
            |e| e.endpoint += 1,
            |e| e.local_port += 1,
            |e| e.remote_port += 1,
            |e| e.local = Addr::from_v4([10, 9, 9, 9]),
            |e| e.remote = Addr::from_v4([10, 9, 9, 9]),
            |e| e.proto = proto::TCP,
        ];
        for change in ends {
            let mut q = Queries::default();
            ask(&mut q, 1, "a.example", 100);
            let mut other = event(Direction::Ingress, proto::UDP, 200);
            change(&mut other);
            assert_eq!(see(&mut q, other, &answer(1, "a.example", &[])), None);
            assert_eq!(told(&mut q, 1, "a.example", 200), Some(100));
        }
        // Of another type.
        let mut q = Queries::default();
        let mut aaaa = query(1, "a.example");
        let at = aaaa.len() - 3;
        aaaa[at] = 28;
        see(&mut q, event(Direction::Egress, proto::UDP, 100), &aaaa);
        assert_eq!(told(&mut q, 1, "a.example", 200), None);
    }

    #[test]
    fn what_never_left_has_no_answer() {
        let mut q = Queries::default();
        let refused = DnsEvent { flags: DNS_REFUSED, ..event(Direction::Egress, proto::UDP, 100) };
        see(&mut q, refused, &query(1, "a.example"));
        assert_eq!(told(&mut q, 1, "a.example", 200), None);
    }

    #[test]
    fn neither_many_nor_old_ones_are_remembered() {
        let mut q = Queries::default();
        for n in 0..MOST as u64 + 10 {
            ask(&mut q, n as u16, "a.example", 100 + n);
        }
        assert_eq!((q.open.len(), q.order.len()), (MOST, MOST));
        assert_eq!(told(&mut q, 9, "a.example", 100 * MS), None, "made room");
        assert!(told(&mut q, 10, "a.example", 100 * MS).is_some());
        // Asked again it is as young as the last time.
        ask(&mut q, 11, "a.example", LIFE);
        ask(&mut q, 1, "b.example", LIFE + 1000 * MS);
        assert_eq!((q.open.len(), q.order.len()), (2, 2));
        assert_eq!(told(&mut q, 11, "a.example", 2 * LIFE), Some(LIFE));
        assert_eq!(told(&mut q, 1, "b.example", 2 * LIFE + 1001 * MS), None, "too late");
    }
}
