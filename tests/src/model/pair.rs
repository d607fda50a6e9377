//! The loaded programs and the model side by side: both get every packet, and must agree about everything.

use std::collections::{BTreeMap, HashMap};

use egret::datapath::{DnsRecord, Ring, Sizes};
use egret_common::{
    event::{ClockReading, DnsEvent, FlowEvent},
    grant::{self, GrantTime},
    ids::ClassId,
    maps::{FlowEntry, FlowKey, FlowValue, GrantKey, Grants, Traffic},
    net::{Addr, Direction},
};
use egret_core::desired::{Desired, MapOp, diff};

use super::{Counters, Model, Outcome};
use crate::arena::{Arena, ENDPOINT};

/// Kernel and model under one policy.
#[derive(Debug)]
pub struct Pair {
    /// The programs.
    pub arena: Arena,
    /// What they should do.
    pub model: Model,
    flow_ring: Ring<FlowEvent>,
    dns_ring: Ring<DnsRecord<'static>>,
    /// When the model's tables were last compared.
    settled: ClockReading,
}

impl Pair {
    /// Loads the programs with this content of the agent's maps.
    #[track_caller]
    pub fn new(desired: Desired, config_flags: u32, sizes: Sizes) -> Self {
        let mut arena = Arena::load(config_flags, sizes);
        let model = Model::new(Desired::default(), config_flags, arena.hz(), sizes.grants);
        let (flow_ring, dns_ring) = (arena.take_flow_ring(), arena.take_dns_ring());
        let settled = arena.clock().expect("the clock program runs");
        let mut pair = Self { arena, model, flow_ring, dns_ring, settled };
        pair.switch(desired);
        pair
    }

    /// Puts another content of the agent's maps in force, as the agent does.
    #[track_caller]
    pub fn switch(&mut self, desired: Desired) {
        let ops: Vec<MapOp> = diff(&self.model.desired, &desired);
        self.arena.apply(&ops).unwrap_or_else(|error| panic!("{error}"));
        self.model.desired = desired;
    }

    /// One packet through both; what they return and report must be the same.
    #[track_caller]
    pub fn packet(&mut self, direction: Direction, packet: &[u8]) -> Outcome {
        let program = match direction {
            Direction::Egress => "egret_egress",
            Direction::Ingress => "egret_ingress",
        };
        self.model.set_clock(self.arena.clock().expect("the clock program runs"));
        let want = self.model.packet(ENDPOINT, direction, packet);
        let value = self.arena.run(program, packet);
        let told = || format!("{direction:?} {packet:02x?}");
        self.meet_pending();
        if value != want.value && !self.pending_ran_out(value, want.value) {
            panic!("the kernel returns {value}, the model {want:?}: {}", told());
        }
        let mut flows = Vec::new();
        self.flow_ring.drain(|event| flows.push(event));
        let pairs = (flows.as_slice(), &want.flow);
        match pairs {
            ([], None) => {}
            ([kernel], Some(model)) if same_flow(kernel, model) => {}
            other => panic!("flow events differ: {other:?}: {}", told()),
        }
        let mut dns = Vec::new();
        self.dns_ring.drain(|record| dns.push((bare(record.event), record.payload.to_vec())));
        assert_eq!(dns, want.dns, "DNS events differ: {}", told());
        want
    }

    /// The kernel sets the end of an answer's half second a little later than the model; the model takes it over.
    #[track_caller]
    fn meet_pending(&mut self) {
        let now = self.arena.clock().expect("the clock program runs").jiffies;
        let half = u64::from(self.arena.hz()) / 2;
        let kernel = self.arena.endpoint_state(ENDPOINT).pending_until;
        let model = self.model.pending_until;
        assert!(
            (model..=model.max(now + half)).contains(&kernel),
            "an answer is awaited until {kernel}, not {model}"
        );
        self.model.pending_until = kernel;
    }

    /// The half second in which an answer is with the agent may end between the model's look at the clock and the
    /// kernel's: then silence becomes a refusal.
    fn pending_ran_out(&self, kernel: u32, model: u32) -> bool {
        let now = self.arena.clock().expect("the clock program runs").jiffies;
        (kernel, model) == (0, 2) && self.model.pending_until <= now
    }

    /// Compares all tables: flows, grants, every counter, the report's destinations, losses.
    #[track_caller]
    pub fn settle(&mut self) {
        let now = self.arena.clock().expect("the clock program runs");
        let since = self.settled;
        self.settled = now;
        self.compare_flows(since, now);
        self.compare_grants(grant::ticks(now.boot_ns) - grant::ticks(since.boot_ns));
        assert_eq!(self.kernel_counters(), self.model.counters, "counters");
        let destinations = self.arena.destinations().into_iter().map(|(key, value)| (key, value.count));
        assert_eq!(destinations.collect::<HashMap<_, _>>(), self.model.destinations, "destinations");
        let state = self.arena.endpoint_state(ENDPOINT);
        assert_eq!((state.map_full, state.forbidden), (self.model.map_full.1, self.model.forbidden));
        assert_eq!(self.arena.lost(), Default::default(), "nothing is lost");
    }

    #[track_caller]
    fn compare_flows(&mut self, since: ClockReading, now: ClockReading) {
        let kernel: HashMap<FlowKey, FlowEntry> = self.arena.flow_entries().into_iter().collect();
        let mut model = self.model.flows.borrow_mut();
        assert_eq!(kernel.len(), model.len(), "number of flows");
        for (key, entry) in kernel {
            let value = entry.value;
            let slot = model.get_mut(&key).unwrap_or_else(|| panic!("{key:?} is no flow of the model's"));
            let known = slot.get();
            let traffic = Traffic { began: known.traffic.began, ..entry.traffic };
            let value = FlowValue { last_seen: known.value.last_seen, ..value };
            assert_eq!(FlowEntry { value, traffic }, known, "{key:?}");
            let value = entry.value;
            let renewed = (since.jiffies..=now.jiffies).contains(&value.last_seen);
            assert!(
                renewed || value.last_seen == known.value.last_seen,
                "{key:?}: {value:?} is of another time"
            );
            slot.set(entry);
        }
    }

    /// Times may differ by what passed meanwhile; the model then takes the kernel's.
    #[track_caller]
    fn compare_grants(&mut self, passed: GrantTime) {
        let kernel: BTreeMap<GrantKey, Grants> = self.arena.grants().into_iter().collect();
        let keys = |grants: &BTreeMap<GrantKey, Grants>| grants.keys().copied().collect::<Vec<_>>();
        assert_eq!(keys(&kernel), keys(&self.model.grants), "granted addresses");
        for (key, grants) in &kernel {
            for (slot, wanted) in grants.slots.iter().zip(self.model.grants[key].slots) {
                let late = grant::expires(*slot).wrapping_sub(grant::expires(wanted));
                let same = grant::class(*slot) == grant::class(wanted) && late <= passed + 1;
                assert!(same, "{key:?}: the kernel has {grants:x?}, the model {:x?}", self.model.grants[key]);
            }
        }
        self.model.grants = kernel;
    }

    fn kernel_counters(&self) -> Counters {
        let mut counters = Counters::new();
        for endpoint in 0..=ENDPOINT {
            for row in self.arena.counters(endpoint) {
                assert_eq!(row.events_suppressed, 0, "no rate limit");
                counters.insert((endpoint, row.direction as u8, row.reason), (row.packets, row.bytes));
            }
        }
        counters
    }

    /// Takes the kernel's grants, counters and losses into the model: after steps that only the kernel took.
    pub fn catch_up(&mut self) {
        self.model.grants = self.arena.grants().into_iter().collect();
        self.model.counters = self.kernel_counters();
        let state = self.arena.endpoint_state(ENDPOINT);
        self.model.map_full = (state.map_full_at, state.map_full);
        self.model.forbidden = state.forbidden;
        for map in ["FLOWS", "FRAGMENTS", "DNS_QUERIES", "DESTINATIONS"] {
            self.arena.clear(map);
        }
        self.model.forget_flows();
        self.model.destinations.clear();
        self.flow_ring.drain(|_| {});
        self.dns_ring.drain(|_| {});
    }

    /// Grants in both, as the agent does. False: no room.
    #[track_caller]
    pub fn grant(&mut self, addr: Addr, class: ClassId, expires: GrantTime) -> bool {
        self.model.set_clock(self.arena.clock().expect("the clock program runs"));
        let wanted = self.model.put_grant(ENDPOINT, addr, class, expires);
        let granted =
            self.arena.grant(ENDPOINT, addr, class, expires).unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(granted, wanted, "{addr:?} {class:#x}");
        granted
    }

    /// Writes a flow into both.
    pub fn put_flow(&mut self, key: FlowKey, value: FlowValue) {
        self.arena.put_flow(&key, &value);
        self.model
            .flows
            .get_mut()
            .insert(key, std::rc::Rc::new(FlowEntry { value, ..FlowEntry::default() }.into()));
    }

    /// Now, in ticks of grants.
    pub fn now(&self) -> GrantTime {
        grant::ticks(self.arena.clock().expect("the clock program runs").boot_ns)
    }

    /// Compares all tables, and empties those that programs write.
    #[track_caller]
    pub fn settle_and_clear(&mut self) {
        self.settle();
        for map in ["FLOWS", "FRAGMENTS", "DNS_QUERIES", "DESTINATIONS", "GRANTS"] {
            self.arena.clear(map);
        }
        self.model.forget_flows();
        self.model.destinations.clear();
        self.model.grants.clear();
    }
}

/// Ages are in seconds and may differ by the one that just ended.
fn same_flow(kernel: &FlowEvent, model: &FlowEvent) -> bool {
    let timeless = FlowEvent { time: 0, pid: 0, comm: [0; 16], age: model.age, ..*kernel };
    timeless == *model && kernel.age.wrapping_sub(model.age) <= 1
}

fn bare(event: DnsEvent) -> DnsEvent {
    DnsEvent { time: 0, pid: 0, comm: [0; 16], ..event }
}
