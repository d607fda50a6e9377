//! The loop's end of the queue. Nothing here waits.

use std::sync::Arc;

use egret_common::event::{DnsEvent, FlowEvent};
use egret_core::flow::{Entry, Flow, Lost, LostSource, NodeInfo, Passed};
use egret_core::labels::Labels;
use tokio::sync::mpsc::Sender;

use super::events::{AgentEvent, Dated};
use super::export::Condition;
use super::join::{self, Common};
use super::known::Known;
use super::latency::Queries;
use super::store::Store;
use super::verdicts::Verdicts;
use super::{clock, dns, now};
use crate::metrics::Histogram;

/// At most one event per source and second tells of losses.
const PAUSE: u64 = 1_000_000_000;

/// Takes records.
#[derive(Debug)]
pub struct Feeder {
    queue: Sender<Entry>,
    store: Arc<Store>,
    node: Arc<NodeInfo>,
    /// Id of the next flow.
    next: u128,
    queries: Queries,
    verdicts: Verdicts,
    missed: Missed,
    kernel: Missed,
    /// What the kernel has counted so far, once it was asked.
    counted: Option<u64>,
    /// How the export is, if there is one.
    export: Option<Arc<Condition>>,
    events: Sender<Dated>,
    /// Events of the agent that there was no room for.
    missed_events: u64,
}

impl Feeder {
    pub(super) fn new(
        queue: Sender<Entry>,
        store: Arc<Store>,
        node: Arc<NodeInfo>,
        export: Option<Arc<Condition>>,
        events: Sender<Dated>,
    ) -> Self {
        let next = u128::from(fastrand::u64(..)) << 64 | u128::from(fastrand::u64(..));
        let missed = |source| Missed { source, count: 0, first: 0, last: 0, told: 0 };
        let (missed, kernel) = (missed(LostSource::Queue), missed(LostSource::Kernel));
        let (queries, verdicts) = (Queries::default(), Verdicts::default());
        Self {
            queue,
            store,
            node,
            next,
            queries,
            verdicts,
            missed,
            kernel,
            counted: None,
            export,
            events,
            missed_events: 0,
        }
    }

    /// Records about packets.
    pub fn events(&mut self, events: &[FlowEvent], known: &impl Known) {
        if events.is_empty() {
            return;
        }
        let common = self.common();
        for event in events {
            join::flows(event, known, &common).into_iter().for_each(|flow| self.flow(flow));
        }
    }

    /// Connections that are over, and what has passed; `missed`: others, which were too many.
    pub fn ends(&mut self, ends: &[(FlowEvent, Passed)], missed: u64, known: &impl Known) {
        let common = self.common();
        for (event, passed) in ends {
            self.flow(join::end(event, passed, known, &common));
        }
        self.missed.add(missed, now());
    }

    /// DNS messages.
    pub fn messages(&mut self, messages: &[(DnsEvent, Vec<u8>)], known: &impl Known) {
        if messages.is_empty() {
            return;
        }
        let common = self.common();
        for (event, message) in messages {
            let Some(mut flow) = dns::flow(event, message, known, &common) else { continue };
            let trusted = known.trusts(event.remote, event.remote_port);
            self.queries.pair(event, message, trusted, &mut flow);
            self.flow(flow);
        }
    }

    /// The flows that are remembered and wanted, the newest first.
    pub fn history(&self, wanted: impl Fn(&Flow) -> bool) -> Vec<Arc<Flow>> {
        self.store.newest(wanted)
    }

    /// How long answers of trusted resolvers took.
    #[must_use]
    pub fn latency(&self) -> Histogram {
        self.queries.latency()
    }

    /// How often each policy decided, but for those that are gone.
    pub fn verdicts(&mut self, is_there: impl Fn(&str) -> bool) -> &Verdicts {
        self.verdicts.retain(is_there);
        &self.verdicts
    }

    /// The node's labels, as far as they are known.
    pub fn label(&mut self, labels: Option<&Labels>) {
        let labels = labels.into_iter().flatten().map(|(key, value)| format!("{key}={value}"));
        if !labels.clone().eq(self.node.labels.iter().cloned()) {
            self.node = Arc::new(NodeInfo { name: self.node.name.clone(), labels: labels.collect() });
        }
    }

    /// Tells of losses, if there were any: `kernel` is all that the kernel has counted since its programs were loaded.
    pub fn losses(&mut self, kernel: u64) {
        let now = now();
        let before = self.counted.replace(kernel).unwrap_or(kernel);
        self.kernel.add(kernel.saturating_sub(before), now);
        for missed in [&mut self.kernel, &mut self.missed] {
            missed.tell(&self.queue, now);
        }
    }

    /// Something happened to the agent.
    pub fn happened(&mut self, event: AgentEvent) {
        self.missed_events += u64::from(self.events.try_send((now(), event)).is_err());
    }

    /// Events of the agent that there was no room for.
    #[must_use]
    pub fn missed_events(&self) -> u64 {
        self.missed_events
    }

    /// What keeps flows from being exported now.
    #[must_use]
    pub fn trouble(&self) -> Option<String> {
        self.export.as_ref()?.trouble()
    }

    /// Lines that were to be exported and are lost; `None`: nothing is exported.
    #[must_use]
    pub fn not_exported(&self) -> Option<u64> {
        Some(self.export.as_ref()?.lost())
    }

    fn common(&self) -> Common {
        Common { node: self.node.clone(), clock: clock() }
    }

    fn flow(&mut self, mut flow: Flow) {
        self.verdicts.count(&flow);
        flow.uuid = self.next;
        self.next = self.next.wrapping_add(1);
        let time = flow.time;
        if self.queue.try_send(Entry::Flow(Arc::new(flow))).is_err() {
            self.missed.add(1, time);
        }
    }
}

/// Losses that were not told yet.
#[derive(Debug)]
struct Missed {
    source: LostSource,
    count: u64,
    first: u64,
    last: u64,
    told: u64,
}

impl Missed {
    fn add(&mut self, count: u64, now: u64) {
        if count == 0 {
            return;
        }
        if self.count == 0 {
            self.first = now;
        }
        self.count += count;
        self.last = now;
    }

    fn tell(&mut self, queue: &Sender<Entry>, now: u64) {
        if self.count == 0 || now.saturating_sub(self.told) < PAUSE {
            return;
        }
        let lost = Lost { source: self.source, count: self.count, first: self.first, last: self.last };
        // No room for this either: the next time.
        if queue.try_send(Entry::Lost(lost)).is_ok() {
            (self.count, self.told) = (0, now);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn store() -> Arc<Store> {
        Arc::new(Store::new(egret_core::flow::Ring::new(1).expect("a size"), None))
    }

    #[test]
    fn a_full_queue_is_counted_and_never_waited_for() {
        let (queue, mut entries) = tokio::sync::mpsc::channel(2);
        let mut feeder = Feeder::new(queue, store(), Arc::default(), None, tokio::sync::mpsc::channel(1).0);
        feeder.losses(5);
        assert!(entries.try_recv().is_err(), "what was lost before is nobody's loss");
        let event = join::tests::event();
        let events = [event; 7];
        feeder.events(&events, &join::tests::Nobody);
        assert!(matches!(entries.try_recv(), Ok(Entry::Flow(_))));
        feeder.losses(9);
        // One place was free: for the kernel's losses, the others wait.
        let mut told = || match entries.try_recv() {
            Ok(Entry::Lost(lost)) => Some((lost.source, lost.count)),
            Ok(Entry::Flow(_)) => Some((LostSource::Ring, 0)),
            Err(_) => None,
        };
        assert_eq!(told(), Some((LostSource::Ring, 0)));
        assert_eq!(told(), Some((LostSource::Kernel, 4)));
        feeder.losses(9);
        let (source, count) = told().expect("the queue's own");
        // Allowed events make one flow each.
        assert_eq!((source, count), (LostSource::Queue, 5));
        assert_eq!(told(), None);
    }
}
