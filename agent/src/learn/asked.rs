//! Questions that passed and have not been answered: only an answer to one of them is believed when the kernel could
//! not check that itself.

use std::collections::{HashMap, VecDeque};

use egret_common::event::DnsEvent;
use egret_common::net::Addr;
use egret_core::dns::parse::Question;

/// Questions that are remembered; the oldest makes room.
const MOST: usize = 4096;

/// A flow between a workload and a resolver.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct Flow {
    local: Addr,
    remote: Addr,
    ports: (u16, u16),
    endpoint: u32,
    proto: u8,
}

impl Flow {
    /// The flow of a record.
    #[must_use]
    pub(super) fn of(event: &DnsEvent) -> Self {
        let ports = (event.local_port, event.remote_port);
        Self { local: event.local, remote: event.remote, ports, endpoint: event.endpoint, proto: event.proto }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Key {
    flow: Flow,
    id: u16,
    qtype: u16,
    text: String,
}

impl Key {
    fn new(flow: Flow, id: u16, question: &Question) -> Self {
        Self { flow, id, qtype: question.qtype, text: question.text.clone() }
    }
}

/// The open questions.
#[derive(Debug, Default)]
pub(super) struct Asked {
    open: HashMap<Key, u32>,
    order: VecDeque<Key>,
}

impl Asked {
    /// A question passed.
    pub(super) fn put(&mut self, flow: Flow, id: u16, question: &Question) {
        let key = Key::new(flow, id, question);
        if self.order.len() >= MOST
            && let Some(oldest) = self.order.pop_front()
        {
            self.remove(&oldest);
        }
        *self.open.entry(key.clone()).or_default() += 1;
        self.order.push_back(key);
    }

    /// An answer came: whether its question was open. It is closed now.
    pub(super) fn close(&mut self, flow: Flow, id: u16, question: &Question) -> bool {
        self.remove(&Key::new(flow, id, question))
    }

    fn remove(&mut self, key: &Key) -> bool {
        match self.open.get_mut(key) {
            Some(1) => self.open.remove(key).is_some(),
            Some(count) => {
                *count -= 1;
                true
            }
            None => false,
        }
    }
}
