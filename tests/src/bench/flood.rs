//! A flood of denied packets while a consumer drains the ring, against the same without events.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use egret::datapath::Ring;
use egret_common::event::FlowEvent;
use egret_common::maps::{CONFIG_EVENTS, ENDPOINT_REJECT, ENDPOINT_REPORT};
use egret_tests::arena::Arena;
use egret_tests::packet::tcp::SYN;

use super::packets::{NAME, foreign};
use super::setup::{self, FLOWS, Hook, tcp_out};
use super::stats::median;
use super::table::{Budget, Table};

const REPEAT: u32 = 256;
const ROUNDS: u16 = 2;
/// How often `egret run` and the agent look at the ring.
const TIMER: Duration = Duration::from_millis(10);
/// Drop events per second, reason and CPU that `egret run` asks for.
const EVENTS_PER_SECOND: u32 = 100;

/// At a cgroup.
pub(super) fn run() -> Table {
    at(Hook::Cgroup, "flood of denied packets at a cgroup: consumer attached, on a timer of 10 ms")
}

/// At a pod's interface.
pub(super) fn run_tc() -> Table {
    at(Hook::Tc, "flood of denied packets at a pod's interface: consumer attached, on a timer of 10 ms")
}

fn at(hook: Hook, title: &str) -> Table {
    let allow = [format!("{NAME}:443")];
    let (mut quiet, state) = hook.arena(0, u32::MAX, &allow);
    let (mut limited, _) = hook.arena(CONFIG_EVENTS, EVENTS_PER_SECOND, &allow);
    let (mut every, _) = hook.arena(CONFIG_EVENTS, u32::MAX, &allow);
    let mut table = Table::of_ns(title);
    let ring = limited.take_flow_ring();
    let ([plain, within], _) = with_consumer(ring, || measure(hook, [&quiet, &limited]));
    let budget = Budget { ns: plain * 13 / 10, times: Some(1.3) };
    table.ns("(floor: denied, no event)", plain, None, None);
    table.ns("denied, events within the rate limit", within, Some(plain), Some(budget));
    let ring = every.take_flow_ring();
    let ([plain, all], read) = with_consumer(ring, || measure(hook, [&quiet, &every]));
    table.ns("denied, every packet an event", all, Some(plain), None);
    if hook == Hook::Cgroup {
        let [plain, _] = measure(hook, [&quiet, &limited]);
        setup::set_flags(&mut quiet, &state, ENDPOINT_REPORT | ENDPOINT_REJECT);
        let [report, _] = measure(hook, [&quiet, &limited]);
        table.ns("denied, no event, counted for the report", report, Some(plain), None);
    }
    let lost = every.lost().flow_events;
    table.note(format!("where every packet is an event, {read} were read and {lost} counted as lost"));
    table
}

/// Does `act` while a thread drains the ring; also says how many records it read.
fn with_consumer<T>(mut ring: Ring<FlowEvent>, act: impl FnOnce() -> T) -> (T, usize) {
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        let consumer = scope.spawn(|| {
            let mut count = 0;
            while !stop.load(Ordering::Relaxed) {
                count += ring.drain(|_| ());
                thread::sleep(TIMER);
            }
            count + ring.drain(|_| ())
        });
        let result = act();
        stop.store(true, Ordering::Relaxed);
        (result, consumer.join().expect("the consumer"))
    })
}

/// Medians of the two, met in turn.
fn measure(hook: Hook, arenas: [&Arena; 2]) -> [u64; 2] {
    let mut times: [Vec<u64>; 2] = Default::default();
    for _ in 0..ROUNDS {
        for flow in 0..FLOWS / 4 {
            let frame = tcp_out(10_000 + flow, foreign(flow), 443, SYN);
            for (arena, times) in arenas.iter().zip(&mut times) {
                times.push(setup::run(arena, hook.program(true), &frame, REPEAT).1);
            }
        }
    }
    times.map(|times| median(&times))
}
