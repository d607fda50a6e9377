//! Who asked for which name, of whom, and what came of it: for explanations.
//!
//! Owns: the last look-up of each name by each workload, the newest of all workloads together. Must not know: policies,
//! nor what the answers opened; an entry here opens nothing.

use std::{
    collections::{BTreeMap, HashMap},
    net::SocketAddr,
};

use egret_common::ids::EndpointId;

use crate::names::Name;

/// Look-ups that are remembered at most, of all workloads.
pub const MOST: usize = 65_536;

/// A query.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Asked {
    /// Boot time in nanoseconds.
    pub time: u64,
    /// Who was asked.
    pub resolver: SocketAddr,
    /// It did not get there; in audit mode: it would not have.
    pub refused: bool,
}

/// An answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Answered {
    /// Boot time in nanoseconds.
    pub time: u64,
    /// Who answered.
    pub resolver: SocketAddr,
    /// Response code (RFC 1035 4.1.1).
    pub rcode: u16,
    /// Addresses in it, whether a name may open them or not.
    pub addresses: usize,
}

/// The last query for a name and the last answers, as far as there were any.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct LookUp {
    /// The query.
    pub asked: Option<Asked>,
    /// To questions for AAAA.
    v6: Option<Answered>,
    /// To all others.
    v4: Option<Answered>,
}

impl LookUp {
    /// The last answer, with the addresses of both families.
    #[must_use]
    pub fn answered(&self) -> Option<Answered> {
        let (newest, other) = match (self.v4, self.v6) {
            (Some(a), Some(b)) if a.time < b.time => (b, Some(a)),
            (a, b) => (a.or(b)?, a.and(b)),
        };
        let Some(other) = other else { return Some(newest) };
        // No address of one family is no news if there is one of the other.
        let rcode = if newest.addresses == 0 && other.addresses > 0 { other.rcode } else { newest.rcode };
        Some(Answered { rcode, addresses: newest.addresses + other.addresses, ..newest })
    }
}

/// AAAA (RFC 3596).
const AAAA: u16 = 28;

#[derive(Debug, Clone)]
struct Slot {
    look_up: LookUp,
    /// Its place in `order`.
    turn: u64,
}

/// The journal. When it is full the look-up that nothing was heard of for longest makes room.
#[derive(Debug, Clone)]
pub struct Journal {
    most: usize,
    entries: HashMap<(EndpointId, Name), Slot>,
    order: BTreeMap<u64, (EndpointId, Name)>,
    next: u64,
    /// The last query of each workload, whatever the name.
    last: BTreeMap<EndpointId, Asked>,
}

impl Default for Journal {
    fn default() -> Self {
        Self::new(MOST)
    }
}

impl Journal {
    /// For so many look-ups.
    #[must_use]
    pub fn new(most: usize) -> Self {
        let (entries, order, last) = (HashMap::new(), BTreeMap::new(), BTreeMap::new());
        Self { most, entries, order, next: 0, last }
    }

    /// A workload asks.
    pub fn ask(&mut self, endpoint: EndpointId, name: &Name, asked: Asked) {
        self.last.insert(endpoint, asked);
        self.entry(endpoint, name).asked = Some(asked);
    }

    /// A workload is answered a question for records of this type.
    pub fn answer(&mut self, endpoint: EndpointId, name: &Name, qtype: u16, answered: Answered) {
        let entry = self.entry(endpoint, name);
        match qtype {
            AAAA => entry.v6 = Some(answered),
            _ => entry.v4 = Some(answered),
        }
    }

    /// The last look-up of this name by this workload.
    #[must_use]
    pub fn look_up(&self, endpoint: EndpointId, name: &Name) -> Option<LookUp> {
        self.entries.get(&(endpoint, name.clone())).map(|slot| slot.look_up)
    }

    /// The last query of a workload.
    #[must_use]
    pub fn last_query(&self, endpoint: EndpointId) -> Option<Asked> {
        self.last.get(&endpoint).copied()
    }

    /// These workloads are gone; others get their numbers.
    pub fn forget(&mut self, endpoints: &[EndpointId]) {
        self.last.retain(|id, _| !endpoints.contains(id));
        let order = &mut self.order;
        self.entries.retain(|(id, _), slot| {
            let stays = !endpoints.contains(id);
            if !stays {
                order.remove(&slot.turn);
            }
            stays
        });
    }

    /// Look-ups that are remembered.
    #[must_use]
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether nobody has asked yet.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    fn entry(&mut self, endpoint: EndpointId, name: &Name) -> &mut LookUp {
        let key = (endpoint, name.clone());
        let turn = self.next;
        self.next += 1;
        match self.entries.get(&key) {
            Some(slot) => drop(self.order.remove(&slot.turn)),
            None if self.entries.len() >= self.most => {
                if let Some((_, oldest)) = self.order.pop_first() {
                    self.entries.remove(&oldest);
                }
            }
            None => {}
        }
        self.order.insert(turn, key.clone());
        let slot = self.entries.entry(key).or_insert(Slot { look_up: LookUp::default(), turn });
        slot.turn = turn;
        &mut slot.look_up
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(text: &str) -> Name {
        Name::parse(text).expect("a name")
    }

    fn asked(time: u64) -> Asked {
        Asked { time, resolver: ([192, 0, 2, 53], 53).into(), refused: false }
    }

    fn answered(time: u64, addresses: usize) -> Answered {
        Answered { time, resolver: ([192, 0, 2, 53], 53).into(), rcode: 0, addresses }
    }

    #[test]
    fn the_newest_stay() {
        let mut journal = Journal::new(2);
        for (endpoint, text, time) in [(1, "a.example", 1), (1, "b.example", 2), (1, "a.example", 3)] {
            journal.ask(endpoint, &name(text), asked(time));
        }
        journal.ask(2, &name("c.example"), asked(4));
        let times = |text: &str| journal.look_up(1, &name(text)).and_then(|l| l.asked).map(|a| a.time);
        assert_eq!((times("a.example"), times("b.example")), (Some(3), None));
        assert_eq!((journal.len(), journal.order.len()), (2, 2));
        journal.forget(&[1]);
        assert_eq!((journal.len(), journal.order.len()), (1, 1));
        assert_eq!((journal.last_query(1), journal.last_query(2)), (None, Some(asked(4))));
    }

    #[test]
    fn no_address_of_one_family_is_no_news() {
        let mut journal = Journal::default();
        let of = |journal: &Journal| journal.look_up(1, &name("a")).and_then(|l| l.answered());
        journal.ask(1, &name("a"), asked(1));
        assert_eq!(of(&journal), None);
        journal.answer(1, &name("a"), 1, answered(2, 1));
        journal.answer(1, &name("a"), AAAA, Answered { rcode: 2, ..answered(3, 0) });
        assert_eq!(of(&journal), Some(answered(3, 1)));
        journal.answer(1, &name("a"), 1, answered(5, 0));
        assert_eq!(of(&journal), Some(answered(5, 0)));
        journal.answer(1, &name("a"), AAAA, answered(6, 2));
        assert_eq!(of(&journal), Some(answered(6, 2)));
    }
}
