//! How long answers to DNS queries take: queries that were seen, until their answers are.
//!
//! Owns: which query an answer belongs to. Bounded in number and in time, since workloads decide what is asked: a query
//! that had to make room has no latency, and nothing else changes. A workload that asks much makes room of its own. The sum
//! is of trusted resolvers only: whoever writes policies may add a resolver, as late as he likes, to those that are asked.

use std::collections::hash_map::{Entry, RandomState};
use std::collections::{BTreeMap, HashMap};
use std::hash::BuildHasher;
use std::time::Duration;

use egret_common::event::DnsEvent;
use egret_common::ids::EndpointId;
use egret_common::net::Addr;
use egret_common::verdict::Verdict;
use egret_core::flow::{Dns, Flow};

use crate::metrics::Histogram;

/// Queries that are remembered, about two MiB.
const MOST: usize = 8_192;
/// Those of one endpoint.
const EACH: usize = MOST / 16;
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
    open: HashMap<Key, Asked>,
    /// The same by endpoint, in the order in which they were sent last. No endpoint without any.
    order: HashMap<EndpointId, BTreeMap<u64, Key>>,
    /// Of the next one.
    turn: u64,
    /// Nobody who asks shall know which names have one hash.
    hasher: RandomState,
    latency: Histogram,
}

#[derive(Debug, Clone, Copy)]
struct Asked {
    /// When it was sent last.
    time: u64,
    /// Its place among the others.
    turn: u64,
}

impl Queries {
    /// Notes a query; tells an answer how long it took. `trusted`: the resolver is, whoever asks it.
    pub(super) fn pair(&mut self, event: &DnsEvent, message: &[u8], trusted: bool, flow: &mut Flow) {
        let passed = flow.verdict != Verdict::Dropped;
        let Some(dns) = &mut flow.dns else { return };
        let Some(key) = self.key(event, message, dns) else { return };
        if dns.response {
            dns.latency = self.answered(&key, event.time);
            dns.latency.filter(|_| trusted).into_iter().for_each(|took| self.latency.observe(took));
        } else if passed {
            // What never left has no answer but the program's own.
            self.asked(key, event.time);
        }
    }

    /// Of all answers of trusted resolvers so far.
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
        // It may have been sent before.
        self.forget(&key);
        self.make_room(key.endpoint, time);
        let turn = self.turn;
        self.turn += 1;
        self.open.insert(key, Asked { time, turn });
        self.order.entry(key.endpoint).or_default().insert(turn, key);
    }

    /// For one more of this endpoint. If there are too many of all, whoever has the most makes room.
    fn make_room(&mut self, endpoint: EndpointId, time: u64) {
        while let Some((oldest, asked)) = self.oldest(endpoint)
            && (self.order[&endpoint].len() >= EACH || asked.time.saturating_add(LIFE) < time)
        {
            self.forget(&oldest);
        }
        if self.open.len() >= MOST
            && let Some((most, _)) = self.order.iter().max_by_key(|(_, own)| own.len())
            && let Some((oldest, _)) = self.oldest(*most)
        {
            self.forget(&oldest);
        }
    }

    fn oldest(&self, endpoint: EndpointId) -> Option<(Key, Asked)> {
        let (_, key) = self.order.get(&endpoint)?.first_key_value()?;
        Some((*key, *self.open.get(key)?))
    }

    fn forget(&mut self, key: &Key) {
        let Some(asked) = self.open.remove(key) else { return };
        if let Entry::Occupied(mut own) = self.order.entry(key.endpoint) {
            own.get_mut().remove(&asked.turn);
            if own.get().is_empty() {
                own.remove();
            }
        }
    }

    fn answered(&mut self, key: &Key, time: u64) -> Option<Duration> {
        let asked = self.open.get(key)?.time;
        let took = time.checked_sub(asked).filter(|took| *took <= LIFE)?;
        self.forget(key);
        Some(Duration::from_nanos(took))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use egret_common::event::DNS_REFUSED;
    use egret_common::net::{Direction, proto};

    use super::*;
    use crate::learn::fixture::{ENDPOINT, answer, event, query};
    use crate::observe::dns;
    use crate::observe::join::{Common, tests::Nobody};

    const MS: u64 = 1_000_000;

    /// What was said of a message.
    fn see(queries: &mut Queries, event: DnsEvent, message: &[u8]) -> Option<Duration> {
        let common = Common { node: Arc::default(), clock: 0 };
        let mut flow = dns::flow(&event, message, &Nobody, &common).expect("a message");
        queries.pair(&event, message, true, &mut flow);
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

    /// So many of one endpoint.
    fn flood(queries: &mut Queries, endpoint: EndpointId, count: usize, time: u64) {
        for n in 0..count {
            let event = DnsEvent { endpoint, ..event(Direction::Egress, proto::UDP, time + n as u64) };
            see(queries, event, &query(n as u16, "a.example"));
        }
    }

    fn counts(queries: &Queries) -> (usize, usize) {
        (queries.open.len(), queries.order.values().map(BTreeMap::len).sum())
    }

    #[test]
    fn neither_many_nor_old_ones_are_remembered() {
        let mut q = Queries::default();
        flood(&mut q, ENDPOINT, EACH + 10, 100);
        assert_eq!(counts(&q), (EACH, EACH));
        assert_eq!(told(&mut q, 9, "a.example", 100 * MS), None, "made room");
        assert!(told(&mut q, 10, "a.example", 100 * MS).is_some());
        // Asked again it is as young as the last time.
        ask(&mut q, 11, "a.example", LIFE);
        ask(&mut q, 1, "b.example", LIFE + 1000 * MS);
        assert_eq!(counts(&q), (2, 2));
        assert_eq!(told(&mut q, 11, "a.example", 2 * LIFE), Some(LIFE));
        assert_eq!(told(&mut q, 1, "b.example", 2 * LIFE + 1001 * MS), None, "too late");
    }

    #[test]
    fn who_asks_much_makes_room_of_his_own() {
        let mut q = Queries::default();
        ask(&mut q, 1, "b.example", 100);
        flood(&mut q, 2, MOST + EACH, 200);
        assert_eq!(counts(&q), (EACH + 1, EACH + 1));
        // As many as there may be of all.
        (3..18).for_each(|endpoint| flood(&mut q, endpoint, EACH, 200));
        assert_eq!(counts(&q), (MOST, MOST));
        ask(&mut q, 2, "b.example", 300);
        assert_eq!((counts(&q), q.order[&ENDPOINT].len()), ((MOST, MOST), 2));
        assert_eq!(told(&mut q, 1, "b.example", 400), Some(300));
        assert_eq!(told(&mut q, 2, "b.example", 400), Some(100));
        // Nothing is left of whoever has no open query.
        assert!(!q.order.contains_key(&ENDPOINT));
    }

    #[test]
    fn only_trusted_resolvers_are_summed_up() {
        let mut q = Queries::default();
        let common = Common { node: Arc::default(), clock: 0 };
        for (id, trusted) in [(1, false), (2, true)] {
            ask(&mut q, id, "a.example", 100);
            let (event, message) = (event(Direction::Ingress, proto::UDP, 105), answer(id, "a.example", &[]));
            let mut flow = dns::flow(&event, &message, &Nobody, &common).expect("a message");
            q.pair(&event, &message, trusted, &mut flow);
            assert_eq!(flow.dns.expect("one").latency, Some(Duration::from_nanos(5)));
            assert_eq!(q.latency().count(), u64::from(trusted));
        }
    }
}
