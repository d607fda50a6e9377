//! What the programs must do, done on the host: the shared judgement over in-memory tables. Time is a field that
//! the test sets; nothing here asks the kernel.
//!
//! The parts that are not shared code (entry point, counters, DNS steps, report) are written here a second time,
//! from DESIGN 3 and the programs' documentation; [`Model::packet`] is `ebpf/src/cgroup.rs`, `dns` is
//! `ebpf/src/dns.rs`.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, HashMap, HashSet};
use std::rc::Rc;

use egret_common::{
    decide::Tables,
    event::{ClockReading, DnsEvent, FlowEvent},
    grant::{self, GrantTime},
    ids::{ClassId, EndpointId, SetId},
    judge::{self, FlowSlot, State, Work},
    maps::{
        Backends, CONFIG_EVENTS, DestinationKey, ENDPOINT_REJECT, ENDPOINT_REPORT, Endpoint, FLOW_DNS,
        FlowEntry, FlowKey, FlowValue, FragmentKey, FragmentPorts, GrantKey, Grants, QueryKey, RuleChunk,
        RuleKey, ServiceKey,
    },
    net::{Addr, Direction, proto},
    packet::{Bytes, Packet},
    verdict::{DropReason, Verdict},
};
use egret_core::desired::{Desired, View};

mod dns;
mod pair;
pub mod setup;
pub mod trial;

pub use pair::Pair;

/// What happened to one packet.
#[derive(Clone, Debug, Default)]
pub struct Outcome {
    /// The program's return value.
    pub value: u32,
    /// The record of `FLOW_EVENTS`; time and process are zero.
    pub flow: Option<FlowEvent>,
    /// The records of `DNS_EVENTS` with their payload; time and process are zero.
    pub dns: Vec<(DnsEvent, Vec<u8>)>,
}

/// Packets and bytes of one endpoint, direction and reason.
pub type Counters = BTreeMap<(EndpointId, u8, u8), (u64, u64)>;

/// All maps.
#[derive(Debug)]
pub struct Model {
    /// The agent's maps.
    pub desired: Desired,
    /// `CONFIG_*` bits.
    pub config_flags: u32,
    /// `GRANTS`.
    pub grants: BTreeMap<GrantKey, Grants>,
    /// Entries that `GRANTS` takes.
    pub grants_capacity: usize,
    /// `FLOWS`.
    pub flows: RefCell<HashMap<FlowKey, Rc<Cell<FlowEntry>>>>,
    /// `FRAGMENTS`.
    pub fragments: RefCell<HashMap<FragmentKey, FragmentPorts>>,
    /// `DNS_QUERIES`.
    pub queries: HashSet<QueryKey>,
    /// `COUNTERS`.
    pub counters: Counters,
    /// `DESTINATIONS`, counts only.
    pub destinations: HashMap<DestinationKey, u64>,
    /// `ENDPOINT_STATE`: jiffies until which an answer is with the agent.
    pub pending_until: u64,
    /// `ENDPOINT_STATE`: jiffies when `GRANTS` was full last, and how often.
    pub map_full: (u64, u64),
    /// `ENDPOINT_STATE`: addresses that no name may open.
    pub forbidden: u64,
    now: GrantTime,
    jiffies: u64,
    hz: u64,
}

impl Model {
    /// Empty tables under these policies.
    pub fn new(desired: Desired, config_flags: u32, hz: u32, grants_capacity: u32) -> Self {
        Self {
            desired,
            config_flags,
            grants: BTreeMap::new(),
            grants_capacity: grants_capacity as usize,
            flows: RefCell::default(),
            fragments: RefCell::default(),
            queries: HashSet::new(),
            counters: BTreeMap::new(),
            destinations: HashMap::new(),
            pending_until: 0,
            map_full: (0, 0),
            forbidden: 0,
            now: 0,
            jiffies: 0,
            hz: hz.into(),
        }
    }

    /// Sets both clocks.
    pub fn set_clock(&mut self, reading: ClockReading) {
        self.now = grant::ticks(reading.boot_ns);
        self.jiffies = reading.jiffies;
    }

    /// Forgets flows, fragments and questions.
    pub fn forget_flows(&mut self) {
        self.flows.get_mut().clear();
        self.fragments.get_mut().clear();
        self.queries.clear();
    }

    /// A packet of the endpoint, from its network header on.
    pub fn packet(&mut self, id: EndpointId, direction: Direction, packet: &[u8]) -> Outcome {
        let Some(endpoint) = self.desired.endpoints.get(&id).copied() else {
            self.count(0, direction, DropReason::UnknownEndpoint as u8, 0);
            return Outcome::default();
        };
        let packet = Slice(packet);
        let mut work = Work::new(&endpoint, direction);
        let mut outcome = Outcome::default();
        judge::judge(&packet, &*self, &endpoint, &mut work);
        let mut question = 0;
        if work.judgement.flow_flags & u32::from(FLOW_DNS) != 0 {
            question = self.inspect(&packet, &endpoint, &mut work, &mut outcome);
        }
        self.account(&packet, &endpoint, &work, question, &mut outcome);
        outcome.value = match (work.judgement.verdict(), direction) {
            (Verdict::Dropped, Direction::Egress) if self.silent(&endpoint, &work) => 2,
            (Verdict::Dropped, _) => 0,
            _ => 1,
        };
        outcome
    }

    fn silent(&self, endpoint: &Endpoint, work: &Work) -> bool {
        let refused_query = work.judgement.reason() == Some(DropReason::QueryRefused);
        endpoint.flags & ENDPOINT_REJECT == 0 || (!refused_query && self.pending_until > self.jiffies)
    }

    fn count(&mut self, endpoint: EndpointId, direction: Direction, reason: u8, bytes: u32) {
        let (packets, sum) = self.counters.entry((endpoint, direction as u8, reason)).or_default();
        *packets += 1;
        *sum += u64::from(bytes);
    }

    fn account(
        &mut self,
        packet: &Slice<'_>,
        endpoint: &Endpoint,
        work: &Work,
        question: u64,
        out: &mut Outcome,
    ) {
        let judgement = &work.judgement;
        let reason = judgement.decision.reason as u8;
        self.count(endpoint.id, work.direction, reason, packet.len());
        if judgement.fresh == 0 {
            return;
        }
        if self.config_flags & CONFIG_EVENTS != 0 {
            out.flow = Some(flow_event(endpoint, work, reason, packet.len()));
        }
        if endpoint.flags & ENDPOINT_REPORT != 0 {
            let refused = judgement.reason() == Some(DropReason::QueryRefused);
            let egress = work.direction == Direction::Egress;
            let key = DestinationKey {
                remote: if egress { work.parsed.dst } else { work.parsed.src },
                endpoint: endpoint.id,
                port: work.parsed.dport,
                proto: if refused { proto::DNS_QUERY } else { work.parsed.proto },
                reason,
                pid: 0,
                direction: work.direction as u32,
                name: if refused { question } else { 0 },
            };
            *self.destinations.entry(key).or_default() += 1;
        }
    }
}

fn flow_event(endpoint: &Endpoint, work: &Work, reason: u8, len: u32) -> FlowEvent {
    let (parsed, judgement) = (&work.parsed, &work.judgement);
    let egress = work.direction == Direction::Egress;
    let turn = |a, b| if egress { (a, b) } else { (b, a) };
    let (local, remote) = if egress { (parsed.src, parsed.dst) } else { (parsed.dst, parsed.src) };
    let (local_port, remote_port) = turn(parsed.sport, parsed.dport);
    FlowEvent {
        time: 0,
        local,
        remote,
        endpoint: endpoint.id,
        set: if egress { endpoint.egress_set } else { endpoint.ingress_set },
        class: judgement.decision.class,
        cookie: judgement.decision.cookie,
        age: judgement.decision.age,
        pid: 0,
        len,
        local_port,
        remote_port,
        proto: parsed.proto,
        direction: work.direction as u8,
        verdict: judgement.verdict as u8,
        reason,
        tcp_flags: parsed.tcp_flags.into(),
        comm: [0; 16],
    }
}

/// A packet as bytes.
pub struct Slice<'a>(pub &'a [u8]);

impl Packet for Slice<'_> {
    fn len(&self) -> u32 {
        self.0.len() as u32
    }

    fn read<const N: usize, R>(&self, offset: u32, with: impl FnOnce(&Bytes<N>) -> R) -> Option<R> {
        let offset = offset as usize;
        let bytes = self.0.get(offset..offset + N)?.try_into().ok()?;
        Some(with(&Bytes(bytes)))
    }
}

impl Model {
    fn view(&self) -> View<'_> {
        View { desired: &self.desired, grants: &self.grants, now: self.now }
    }
}

impl Tables for Model {
    fn rules(&self, key: &RuleKey) -> Option<&RuleChunk> {
        self.desired.rules.get(key).map(|chunk| &**chunk)
    }

    fn cidr_class(&self, set: SetId, addr: &Addr) -> Option<ClassId> {
        self.view().cidr_class(set, addr)
    }

    fn identity(&self, addr: &Addr) -> Option<u32> {
        self.view().identity(addr)
    }

    fn grants(&self, endpoint: EndpointId, addr: &Addr) -> Option<&Grants> {
        self.grants.get(&GrantKey { addr: *addr, endpoint, pad: 0 })
    }

    fn grant_now(&self) -> GrantTime {
        self.now
    }

    fn trusted_resolver(&self, addr: &Addr, port: u16) -> bool {
        self.view().trusted_resolver(addr, port)
    }

    fn owns(&self, endpoint: EndpointId, addr: &Addr) -> bool {
        self.desired.addresses.get(addr) == Some(&endpoint)
    }

    fn service(&self, key: &ServiceKey) -> Option<&Backends> {
        self.desired.services.get(key)
    }

    fn grants_overflowed(&self, _: EndpointId) -> bool {
        self.map_full.0 != 0 && self.jiffies.saturating_sub(self.map_full.0) < 60 * self.hz
    }
}

/// An entry of the flow table.
#[derive(Debug)]
pub struct Slot(Rc<Cell<FlowEntry>>);

impl FlowSlot for Slot {
    fn read(&self) -> FlowValue {
        self.0.get().value
    }

    fn write(&self, value: &FlowValue) {
        self.0.set(FlowEntry { value: *value, ..self.0.get() });
    }

    fn count(&self, forward: bool, bytes: u32) {
        let mut entry = self.0.get();
        let traffic = &mut entry.traffic;
        let (total, packets) = match forward {
            true => (&mut traffic.sent, &mut traffic.packets_sent),
            false => (&mut traffic.received, &mut traffic.packets_received),
        };
        *total += u64::from(bytes);
        *packets += 1;
        self.0.set(entry);
    }
}

impl State for Model {
    type Flow = Slot;

    fn flow(&self, key: &FlowKey) -> Option<Slot> {
        self.flows.borrow().get(key).cloned().map(Slot)
    }

    fn insert_flow(&self, key: &FlowKey, entry: &FlowEntry) -> bool {
        self.flows.borrow_mut().insert(*key, Rc::new(Cell::new(*entry)));
        true
    }

    fn fragment(&self, key: &FragmentKey) -> Option<FragmentPorts> {
        self.fragments.borrow().get(key).copied()
    }

    fn insert_fragment(&self, key: &FragmentKey, ports: &FragmentPorts) {
        self.fragments.borrow_mut().insert(*key, *ports);
    }

    fn jiffies(&self) -> u64 {
        self.jiffies
    }

    fn hz(&self) -> u64 {
        self.hz
    }
}
