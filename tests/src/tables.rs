//! The loaded programs of pods' interfaces as a way to read truth tables: the agent's `Learner` and `State` write the maps,
//! built packets go through `egret_from_pod` at the source and `egret_to_pod` at the destination.
//!
//! Flows need no clearing where every probe has a source port of its own. Time passes by making every grant older.

use std::net::IpAddr;

use egret::datapath::{DnsRecord, Ring, Sizes};
use egret::learn::{Effects, Learner, now};
use egret_common::{
    event::DnsEvent,
    grant::{self, GrantTime, TICK_SHIFT, ticks_of_secs},
    ids::EndpointId,
    maps::{CONFIG_SERVICES, CONFIG_SLOW_PATTERNS},
    net::Direction,
    verdict::DropReason,
};
use egret_core::{
    desired::{Desired, diff},
    eval::Verdict,
};
use egret_tables::{
    dns::{Asked, Exchange},
    maps::empty_state,
    node::Picture,
    run::{Side, Way},
};

use crate::arena::Arena;
use crate::packet::{Frame, L4, Packet, tcp};

/// Runs happen at the loopback device, which is the interface of one pod after the other.
const LOOPBACK: u32 = 1;
/// `TC_ACT_UNSPEC`, `TC_ACT_SHOT`, `TC_ACT_REDIRECT`.
const PASS: u32 = u32::MAX;
const DROP: u32 = 2;
const REDIRECT: u32 = 7;
/// Protocols whose flows a port or an identifier tells apart: ICMP, TCP, UDP, ICMPv6, SCTP.
const HAS_FLOWS: [u8; 5] = [1, 6, 17, 58, 132];
/// First source port of probes; none that a table uses.
const FIRST_PORT: u16 = 10_000;

/// The programs and their maps.
#[derive(Debug)]
pub struct Programs {
    arena: Arena,
    ring: Ring<DnsRecord<'static>>,
    learner: Learner,
    /// Whose interface the loopback device is.
    bound: EndpointId,
    next_port: u16,
    /// Every how many probes one is made: of those that some policy is about, and of the others.
    pub every: [usize; 2],
    /// Probes so far, those left out as well.
    seen: usize,
    /// By how much the table's clock is ahead of the kernel's.
    ahead: GrantTime,
}

impl Programs {
    /// Loads the programs.
    #[track_caller]
    pub fn load() -> Self {
        let sizes = Sizes { endpoints: 64, interfaces: 64, services: 2048, ..Sizes::run() };
        let mut arena = Arena::load_pods(CONFIG_SERVICES | CONFIG_SLOW_PATTERNS, sizes);
        let ring = arena.take_dns_ring();
        let learner = Learner::new(empty_state(), None);
        Self { arena, ring, learner, bound: 0, next_port: FIRST_PORT, every: [1; 2], seen: 0, ahead: 0 }
    }

    /// Empty maps, for the next table.
    #[track_caller]
    pub fn clear(&mut self) {
        let ops = diff(self.learner.state().desired(), &Desired::default());
        self.arena.apply(&ops).unwrap_or_else(|error| panic!("{error}"));
        for map in ["FLOWS", "GRANTS", "DNS_QUERIES"] {
            self.arena.clear(map);
        }
        self.learner = Learner::new(empty_state(), None);
        self.ahead = 0;
    }

    fn now(&self) -> GrantTime {
        now() + self.ahead
    }

    fn perform(&mut self, effects: &Effects) {
        self.arena.apply(&effects.ops).unwrap_or_else(|error| panic!("{error}"));
        for granted in &effects.grants {
            let expires = granted.expires.saturating_sub(self.ahead);
            let put = self.arena.grant(granted.key.endpoint, granted.key.addr, granted.class, expires);
            assert!(put.unwrap_or_else(|error| panic!("{error}")), "no room for {granted:?}");
        }
    }

    /// Does what the agent does with the records that wait.
    fn read_dns(&mut self) {
        let mut records = Vec::new();
        self.ring.drain(|record| records.push((record.event, record.payload.to_vec())));
        for (event, payload) in records {
            let time = event.time + (u64::from(self.ahead) << TICK_SHIFT);
            let effects = self.learner.see(&DnsEvent { time, ..event }, &payload);
            self.perform(&effects.unwrap_or_else(|error| panic!("{error}")));
        }
    }

    /// What the program at the pod's interface does with a packet.
    fn run(&mut self, endpoint: EndpointId, direction: Direction, packet: &Packet) -> u32 {
        if self.bound != endpoint {
            self.arena.bind_interface(LOOPBACK, Some(endpoint)).expect("bound");
            self.bound = endpoint;
        }
        let program = match direction {
            Direction::Egress => "egret_from_pod",
            Direction::Ingress => "egret_to_pod",
        };
        let frame = packet.frame(Frame::Ethernet);
        self.arena.test_run(program, &frame, 1).unwrap_or_else(|error| panic!("{error}: {packet:?}")).value
    }

    fn port(&mut self) -> u16 {
        self.next_port = self.next_port.checked_add(1).unwrap_or(FIRST_PORT);
        self.next_port
    }
}

/// A packet that begins a flow.
fn first_packet(source: IpAddr, target: IpAddr, own_port: u16, proto: u8, port: u16) -> Packet {
    let l4 = match proto {
        6 => L4::Tcp(own_port, port, tcp::SYN, Vec::new()),
        17 => L4::Udp(own_port, port, Vec::new()),
        132 => L4::Sctp(own_port, port, 1),
        1 | 58 => {
            let [kind, code] = port.to_be_bytes();
            L4::Icmp(kind, code, [own_port.to_be_bytes(), [0, 1]].concat())
        }
        other => L4::Other(other, vec![0; 8]),
    };
    Packet::between(source, target, l4)
}

impl Way for Programs {
    fn update(&mut self, (world, specs, wiring): Picture) {
        let now = self.now();
        let (ops, grants) = self
            .learner
            .state_mut()
            .update(world, specs, wiring, now)
            .unwrap_or_else(|error| panic!("{error}"));
        self.perform(&Effects { ops, grants });
    }

    fn wait(&mut self, seconds: u32) {
        let ticks = ticks_of_secs(seconds);
        if ticks == 0 {
            return;
        }
        self.ahead += ticks;
        for (key, mut grants) in self.arena.grants() {
            for slot in grants.slots.iter_mut().filter(|slot| **slot != 0) {
                *slot = grant::pack(grant::class(*slot), grant::expires(*slot).saturating_sub(ticks));
            }
            self.arena.put_grants(&key, &grants);
        }
    }

    fn judge(&mut self, side: &Side) -> Verdict {
        let port = self.port();
        let hop = side.hop;
        let (source, target) = match hop.direction {
            Direction::Egress => (side.own, hop.remote),
            Direction::Ingress => (hop.remote, side.own),
        };
        let packet = first_packet(source, target, port, hop.proto, hop.port);
        if !HAS_FLOWS.contains(&hop.proto) {
            self.arena.clear("FLOWS");
        }
        match self.run(side.endpoint, hop.direction, &packet) {
            PASS => Verdict::Allow,
            DROP => Verdict::Deny(DropReason::NoRule),
            other => panic!("{packet:?} returns {other}"),
        }
    }

    fn ask(&mut self, side: &Side, exchange: &Exchange) -> Asked {
        let (port, server) = (self.port(), side.hop.remote);
        let query = L4::Udp(port, side.hop.port, exchange.query(port));
        let query = Packet::between(side.own, server, query);
        match self.run(side.endpoint, Direction::Egress, &query) {
            PASS => {}
            DROP => return Asked::Dropped,
            REDIRECT => return Asked::Refused,
            other => panic!("{exchange:?} returns {other}"),
        }
        self.read_dns();
        let answer = L4::Udp(side.hop.port, port, exchange.response(port));
        let value = self.run(side.endpoint, Direction::Ingress, &Packet::between(server, side.own, answer));
        assert_eq!(value, PASS, "{exchange:?}: the answer is held back");
        self.read_dns();
        Asked::Answered
    }

    fn takes(&mut self, ruled: bool) -> bool {
        self.seen += 1;
        self.seen.is_multiple_of(self.every[usize::from(!ruled)])
    }

    fn tells_why(&self) -> bool {
        false
    }
}
