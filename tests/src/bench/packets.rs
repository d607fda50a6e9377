//! Nanoseconds per packet on the paths of DESIGN 8, each beside its floor.
//!
//! A flow is met, its floor right after it, then the next flow: noise hits both. Each packet is repeated, so code and
//! entries are warm, as in a busy kernel. A flow is new only once; a SYN that comes again starts anew, though, and
//! replaces the entry at the price of a new one. The last line has single runs on flows that were never there: code
//! and entries are cold from the system call in between, for the floor as well.

use std::net::Ipv4Addr;

use egret_tests::packet::tcp::{ACK, SYN};

use super::floor::Floor;
use super::setup::{self, FLOWS, FlowTable, Hook, tcp_in, tcp_out};
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
    hook: Hook,
    arena: Arena,
    floor: Floor,
    flows: FlowTable,
}

/// A path: its line, the packet's direction, its floor, whether it passes.
type Path = (&'static str, bool, &'static str, bool);

/// At a cgroup.
pub(super) fn run() -> Table {
    at(Hook::Cgroup, "packets: 4,096 flows, programs at a cgroup against their floors")
}

/// At a pod's interface.
pub(super) fn run_tc() -> Table {
    at(Hook::Tc, "packets: 4,096 flows, programs at a pod's interface (TC) against their floors")
}

fn at(hook: Hook, title: &str) -> Table {
    let (arena, state) = hook.arena(0, u32::MAX, &[format!("{NAME}:443")]);
    for flow in 0..=255 {
        setup::grant(&arena, &state, NAME, granted(flow));
    }
    let (floor, flows) = (Floor::load(&arena), FlowTable::open(&arena));
    let mut bench = Bench { hook, arena, floor, flows };
    bench.open_known();
    let mut table = Table::of_ns(title);
    bench.empty(&mut table);
    let established = Budget { ns: 170, times: Some(2.0) };
    let forward = |flow: u16| tcp_out(KNOWN + flow, granted(flow), 443, ACK);
    bench.hot(&mut table, ("established, forward", true, "established", true), established, forward);
    let reply = |flow: u16| tcp_in(KNOWN + flow, granted(flow), 443, ACK);
    bench.hot(&mut table, ("established, reply", false, "reply", true), established, reply);
    let denied = Budget { ns: 230, times: Some(1.4) };
    let foreign = |flow: u16| tcp_out(KNOWN + flow, foreign(flow), 443, SYN);
    bench.hot(&mut table, ("new flow denied, no event", true, "denied", false), denied, foreign);
    let new = Budget { ns: 560, times: Some(1.5) };
    let again = |flow: u16| tcp_out(KNOWN + flow, granted(flow), 443, SYN);
    bench.hot(&mut table, ("new flow allowed by a name (entry replaced)", true, "new", true), new, again);
    bench.fresh(&mut table);
    table.note(format!(
        "floors: established = headers + flow look-up; denied = endpoint + flow + one rule; new = endpoint + flow + grant and its \
         clock + one rule + LRU insert. {} flows were known.",
        bench.flows.len()
    ));
    table
}

impl Bench {
    fn ours(&self, out: bool, frame: &[u8], repeat: u32) -> (u32, u64) {
        setup::run(&self.arena, self.hook.program(out), frame, repeat)
    }

    fn floor(&self, path: &str, frame: &[u8], repeat: u32) -> (u32, u64) {
        self.floor.run(&self.hook.floor(path), frame, repeat)
    }

    /// Opens and answers the known flows.
    fn open_known(&self) {
        for flow in 0..FLOWS {
            let syn = tcp_out(KNOWN + flow, granted(flow), 443, SYN);
            let (value, _) = self.ours(true, &syn, 1);
            assert_eq!(value, self.hook.pass(), "flow {flow} is not let through");
            let answer = tcp_in(KNOWN + flow, granted(flow), 443, SYN | ACK);
            self.ours(false, &answer, 1);
        }
    }

    fn empty(&self, table: &mut Table) {
        let frame = tcp_out(KNOWN, granted(0), 443, ACK);
        let times = |path: &str, repeat: u32| {
            let all: Vec<u64> = (0..FLOWS).map(|_| self.floor(path, &frame, repeat).1).collect();
            median(&all)
        };
        table.ns("(floor: empty program)", times("empty", REPEAT), None, None);
        table.ns("(floor: empty program, single runs)", times("empty", 1), None, None);
        table.ns("(floor: one look-up, the endpoint)", times("one", REPEAT), None, None);
    }

    /// A path whose packets may be repeated.
    fn hot(
        &self,
        table: &mut Table,
        (line, out, floor, passes): Path,
        budget: Budget,
        frame: impl Fn(u16) -> Vec<u8>,
    ) {
        let (mut ours, mut floors) = (Vec::new(), Vec::new());
        let returns = if passes { self.hook.pass() } else { self.hook.drop() };
        for _ in 0..ROUNDS {
            for flow in 0..FLOWS {
                let frame = frame(flow);
                let (value, ns) = self.ours(out, &frame, REPEAT);
                assert_eq!(value, returns, "{line}: flow {flow}");
                ours.push(ns);
                floors.push(self.floor(floor, &frame, REPEAT).1);
            }
        }
        table.ns(line, median(&ours), Some(median(&floors)), Some(budget));
    }

    /// New flows that a learned name allows: each run makes an entry.
    fn fresh(&mut self, table: &mut Table) {
        let (mut ours, mut floors) = (Vec::new(), Vec::new());
        for _ in 0..ROUNDS {
            let before = self.flows.len();
            for flow in 0..FLOWS {
                let frame = tcp_out(NEW + flow, granted(flow), 443, SYN);
                let (value, ns) = self.ours(true, &frame, 1);
                assert_eq!(value, self.hook.pass(), "flow {flow} is not let through");
                ours.push(ns);
                let frame = tcp_out(NEW_FLOOR + flow, granted(flow), 443, SYN);
                let (value, ns) = self.floor("new", &frame, 1);
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
