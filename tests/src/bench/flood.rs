//! A flood of denied packets while a consumer drains the ring, against the same without events.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use egret_common::maps::{CONFIG_EVENTS, ENDPOINT_REJECT, ENDPOINT_REPORT};
use egret_tests::arena::Arena;
use egret_tests::packet::tcp::SYN;

use super::packets::{NAME, foreign};
use super::setup::{self, FLOWS, tcp_out};
use super::stats::median;
use super::table::{Budget, Table};

const REPEAT: u32 = 256;
const ROUNDS: u16 = 2;
/// How often `egret run` and the agent look at the ring.
const TIMER: Duration = Duration::from_millis(10);
/// Drop events per second, reason and CPU that `egret run` asks for.
const EVENTS_PER_SECOND: u32 = 100;

pub(super) fn run() -> Table {
    let allow = [format!("{NAME}:443")];
    let (mut quiet, state) = setup::arena(0, &allow, 0);
    let mut limited = Arena::load_limited(CONFIG_EVENTS, egret::datapath::Sizes::node(), EVENTS_PER_SECOND);
    setup::apply(&mut limited, &allow, 0);
    let (mut every, _) = setup::arena(CONFIG_EVENTS, &allow, 0);
    let (stop, seen) = (AtomicBool::new(false), AtomicUsize::new(0));
    let mut rings = [limited.take_flow_ring(), every.take_flow_ring()];
    let mut table = Table::of_ns("flood of denied packets: consumer attached, on a timer of 10 ms");
    thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                let count: usize = rings.iter_mut().map(|ring| ring.drain(|_| ())).sum();
                seen.fetch_add(count, Ordering::Relaxed);
                thread::sleep(TIMER);
            }
        });
        let [plain, within, all] = measure([&quiet, &limited, &every]);
        stop.store(true, Ordering::Relaxed);
        let budget = Budget { ns: plain * 13 / 10, times: Some(1.3) };
        table.ns("(denied, no event)", plain, None, None);
        table.ns("denied, events within the rate limit", within, Some(plain), Some(budget));
        table.ns("denied, every packet an event", all, Some(plain), None);
    });
    setup::set_flags(&mut quiet, &state, ENDPOINT_REPORT | ENDPOINT_REJECT);
    let [report, _, _] = measure([&quiet, &limited, &every]);
    let plain = "denied, counted in the report of egret run";
    table.ns(plain, report, None, None);
    let lost = every.lost();
    table.note(format!("the floor of this table is its first line; events read: {seen:?}, lost: {lost:?}"));
    table
}

/// Medians of the three, met in turn.
fn measure(arenas: [&Arena; 3]) -> [u64; 3] {
    let mut times: [Vec<u64>; 3] = Default::default();
    for _ in 0..ROUNDS {
        for flow in 0..FLOWS / 4 {
            let frame = tcp_out(10_000 + flow, foreign(flow), 443, SYN);
            for (arena, times) in arenas.iter().zip(&mut times) {
                times.push(setup::run(arena, "egret_egress", &frame, REPEAT).1);
            }
        }
    }
    times.map(|times| median(&times))
}
