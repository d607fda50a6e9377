//! Events that the kernel's rate limit held back: they are in the counters and not in the ring, so that whoever observes
//! must be told.
//!
//! Owns which counters are worth reading: those whose events came lately. Must not know the maps.

use std::collections::BTreeMap;

use egret_common::event::FlowEvent;
use egret_common::ids::EndpointId;
use egret_common::net::Direction;
use egret_common::verdict::DropReason;

/// The limit's window ends within a second of the last event: rounds, of a second each, for which its counter is read.
const ROUNDS: u32 = 3;

/// Endpoint, direction and reason.
type Key = (EndpointId, Direction, u8);

/// What was held back so far.
#[derive(Debug, Default)]
pub(super) struct Withheld {
    /// With the rounds that are left.
    lately: BTreeMap<Key, u32>,
    /// What the counters said last.
    read: BTreeMap<Key, u64>,
    /// The counters are those of an earlier agent: what they say first is its business.
    adopted: bool,
    total: u64,
}

impl Withheld {
    pub(super) fn new(adopted: bool) -> Self {
        Self { adopted, ..Self::default() }
    }

    /// An event came.
    pub(super) fn note(&mut self, event: &FlowEvent) {
        // A refused query is shown by itself, which has no limit.
        if event.reason != 0 && event.reason != DropReason::QueryRefused as u8 {
            let ingress = event.direction == Direction::Ingress as u8;
            let direction = if ingress { Direction::Ingress } else { Direction::Egress };
            self.lately.insert((event.endpoint, direction, event.reason), ROUNDS);
        }
    }

    /// A round: all that was held back since the beginning. `ask` reads a counter.
    pub(super) fn round(&mut self, ask: impl Fn(EndpointId, Direction, u8) -> u64) -> u64 {
        for (key, rounds) in &mut self.lately {
            let now = ask(key.0, key.1, key.2);
            let first = if self.adopted { now } else { 0 };
            let before = self.read.insert(*key, now).unwrap_or(first);
            // Less than before: the number is another endpoint's now.
            self.total += if now < before { now } else { now - before };
            *rounds -= 1;
        }
        self.lately.retain(|_, rounds| *rounds > 0);
        self.total
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use egret_common::net::Addr;
    use std::cell::Cell;

    fn event(endpoint: EndpointId, reason: u8) -> FlowEvent {
        FlowEvent {
            time: 0,
            local: Addr::default(),
            remote: Addr::default(),
            endpoint,
            set: 0,
            class: 0,
            cookie: 0,
            age: 0,
            pid: 0,
            len: 0,
            local_port: 0,
            remote_port: 0,
            proto: 6,
            direction: Direction::Egress as u8,
            verdict: 2,
            reason,
            tcp_flags: 0,
            comm: [0; 16],
        }
    }

    #[test]
    fn what_the_limit_holds_back_is_added_up() {
        let asked = Cell::new(0);
        let at = |count: u64| {
            let asked = &asked;
            move |endpoint: EndpointId, direction: Direction, reason: u8| {
                asked.set(asked.get() + 1);
                assert_eq!((endpoint, direction, reason), (7, Direction::Egress, 1));
                count
            }
        };
        let mut withheld = Withheld::new(false);
        assert_eq!(withheld.round(at(9)), 0, "no event, no question");
        withheld.note(&event(7, 0));
        withheld.note(&event(7, DropReason::QueryRefused as u8));
        withheld.note(&event(7, 1));
        assert_eq!([withheld.round(at(5)), withheld.round(at(8)), withheld.round(at(8))], [5, 8, 8]);
        assert_eq!((withheld.round(at(99)), asked.get()), (8, 3), "long after the last event");
        withheld.note(&event(7, 1));
        assert_eq!(withheld.round(at(10)), 10);
        assert_eq!(withheld.round(at(4)), 14, "another endpoint's counter");
        let mut adopted = Withheld::new(true);
        adopted.note(&event(7, 1));
        assert_eq!([adopted.round(at(50)), adopted.round(at(53))], [0, 3]);
    }
}
