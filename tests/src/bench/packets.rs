//! Nanoseconds per packet on the paths of DESIGN 8, each beside its floor.
//!
//! A flow is met, its floor right after it, then the next flow: noise hits both. Each packet is repeated, so code and
//! entries are warm, as in a busy kernel. A flow is new only once; a SYN that comes again starts anew, though, and
//! replaces the entry at the price of a new one. The last line has single runs on flows that were never there: code
//! and entries are cold from the system call in between, for the floor as well.

use std::net::Ipv4Addr;

use egret_tests::packet::tcp::{ACK, SYN};

use super::floor::Floor;
use super::setup::{self, FLOWS, FlowTable, tcp_in, tcp_out};
use super::stats::median;
use super::table::{Budget, Table};
use egret_tests::arena::Arena;

pub(super) const NAME: &str = "api.bench.example";
const REPEAT: u32 = 64;
const ROUNDS: u16 = 5;
/// Local ports: of known flows, of new flows of Egret and of the floor.
const KNOWN: u16 = 10_000;
const NEW: u16 = 20_000;
const NEW_FLOOR: u16 = 30_000;

/// Address that the name has been seen with.
pub(super) fn granted(flow: u16) -> Ipv4Addr {
    Ipv4Addr::new(198, 18, 0, flow as u8)
}

/// Address without a name.
pub(super) fn foreign(flow: u16) -> Ipv4Addr {
    Ipv4Addr::new(198, 19, 0, flow as u8)
}

struct Bench {
    arena: Arena,
    floor: Floor,
    flows: FlowTable,
}

pub(super) fn run() -> Table {
    let (arena, state) = setup::arena(0, &[format!("{NAME}:443")], 0);
    for flow in 0..=255 {
        setup::grant(&arena, &state, NAME, granted(flow));
    }
    let (floor, flows) = (Floor::load(&arena), FlowTable::open(&arena));
    let mut bench = Bench { arena, floor, flows };
    bench.open_known();
    let mut table = Table::of_ns("packets: 4,096 flows, kernel programs of egret run against their floors");
    bench.empty(&mut table);
    let established = Budget { ns: 170, times: Some(2.0) };
    let forward = |flow: u16| tcp_out(KNOWN + flow, granted(flow), 443, ACK);
    bench.hot(
        &mut table,
        ("established, forward", "egret_egress", "floor_established"),
        1,
        established,
        forward,
    );
    let reply = |flow: u16| tcp_in(KNOWN + flow, granted(flow), 443, ACK);
    bench.hot(&mut table, ("established, reply", "egret_ingress", "floor_reply"), 1, established, reply);
    let denied = Budget { ns: 230, times: Some(1.4) };
    let foreign = |flow: u16| tcp_out(KNOWN + flow, foreign(flow), 443, SYN);
    bench.hot(&mut table, ("new flow denied, no event", "egret_egress", "floor_denied"), 2, denied, foreign);
    let new = Budget { ns: 560, times: Some(1.5) };
    let again = |flow: u16| tcp_out(KNOWN + flow, granted(flow), 443, SYN);
    let line = "new flow allowed by a name (entry replaced)";
    bench.hot(&mut table, (line, "egret_egress", "floor_new"), 1, new, again);
    bench.fresh(&mut table);
    table.note(format!(
        "floors: established = headers + flow look-up; denied = endpoint + flow + one rule; new = endpoint + flow + grant and its \
         clock + one rule + LRU insert. {} flows were known.",
        bench.flows.len()
    ));
    table
}

impl Bench {
    /// Opens and answers the known flows.
    fn open_known(&self) {
        for flow in 0..FLOWS {
            let syn = tcp_out(KNOWN + flow, granted(flow), 443, SYN);
            let (value, _) = setup::run(&self.arena, "egret_egress", &syn, 1);
            assert_eq!(value, 1, "flow {flow} is not let through");
            let answer = tcp_in(KNOWN + flow, granted(flow), 443, SYN | ACK);
            setup::run(&self.arena, "egret_ingress", &answer, 1);
        }
    }

    fn empty(&self, table: &mut Table) {
        let frame = tcp_out(KNOWN, granted(0), 443, ACK);
        let times = |name: &str, repeat: u32| {
            let all: Vec<u64> = (0..FLOWS).map(|_| self.floor.run(name, &frame, repeat).1).collect();
            median(&all)
        };
        table.ns("(floor: empty program)", times("floor_empty", REPEAT), None, None);
        table.ns("(floor: empty program, single runs)", times("floor_empty", 1), None, None);
        table.ns("(floor: one look-up, the endpoint)", times("floor_one", REPEAT), None, None);
    }

    /// A path whose packets may be repeated. `names`: line, program, floor program; `returns`: what Egret must say.
    fn hot(
        &self,
        table: &mut Table,
        names: (&str, &'static str, &str),
        returns: u32,
        budget: Budget,
        frame: impl Fn(u16) -> Vec<u8>,
    ) {
        let (mut ours, mut floors) = (Vec::new(), Vec::new());
        for _ in 0..ROUNDS {
            for flow in 0..FLOWS {
                let frame = frame(flow);
                let (value, ns) = setup::run(&self.arena, names.1, &frame, REPEAT);
                assert_eq!(value, returns, "{}: flow {flow}", names.0);
                ours.push(ns);
                floors.push(self.floor.run(names.2, &frame, REPEAT).1);
            }
        }
        table.ns(names.0, median(&ours), Some(median(&floors)), Some(budget));
    }

    /// New flows that a learned name allows: each run makes an entry.
    fn fresh(&mut self, table: &mut Table) {
        let (mut ours, mut floors) = (Vec::new(), Vec::new());
        for _ in 0..ROUNDS {
            let before = self.flows.len();
            for flow in 0..FLOWS {
                let frame = tcp_out(NEW + flow, granted(flow), 443, SYN);
                let (value, ns) = setup::run(&self.arena, "egret_egress", &frame, 1);
                assert_eq!(value, 1, "flow {flow} is not let through");
                ours.push(ns);
                let frame = tcp_out(NEW_FLOOR + flow, granted(flow), 443, SYN);
                let (value, ns) = self.floor.run("floor_new", &frame, 1);
                assert_eq!(value, 1, "the floor does not let flow {flow} through");
                floors.push(ns);
            }
            let made = self.flows.len() - before;
            assert!(made > 8000, "of 8,192 new flows {made} made an entry");
            self.flows.forget(NEW..NEW + FLOWS);
            self.flows.forget(NEW_FLOOR..NEW_FLOOR + FLOWS);
        }
        table.ns("new flow, entry made (single runs, cold)", median(&ours), Some(median(&floors)), None);
    }
}
