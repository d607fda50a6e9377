//! What it costs that flows are told: new flows of a pod as fast as one sender can begin them, with an agent that makes flows
//! of their events, with the same agent stopped, and without events.
//!
//! ```text
//!  sender (CPU 0) ──a new flow per packet──> veth, programs of the agent ──> nowhere
//!                                                └──events──> agent (CPU 1): ring, joined, counted, kept
//! ```
//! Each mode has a pod of its own; they take turns. The agent's pod is held as any other; the one without events by the same
//! programs, loaded here. Beyond figures this asserts that an agent that does not move holds nobody up, and that every event
//! is a flow or counted as lost.

use std::net::UdpSocket;
use std::time::{Duration, Instant};

use egret::datapath::{Sizes, tc::Method};
use egret::observe::proto::observer::ServerStatusRequest;
use egret_common::maps::{CONFIG_SERVICES, CONFIG_SLOW_PATTERNS, ENDPOINT_POD};
use egret_common::net::Addr;
use egret_core::desired::{Entry, MapOp};
use egret_tests::agent::Agent;
use egret_tests::arena::{Arena, ENDPOINT};
use egret_tests::hubble::Hubble;
use egret_tests::netns::{World, WorldBuilder};
use egret_tests::residue;
use egret_tests::scrape::Scraper;
use nix::sys::signal::Signal;

use super::process::{Process, pin};
use super::setup;
use super::stats::median;
use super::table::Table;

/// How long a turn is, and how many each mode has.
const TURN: Duration = Duration::from_millis(500);
const TURNS: usize = 12;
/// Flows per second, and for how long.
const RATE: u64 = 50_000;
const SPAN: Duration = Duration::from_secs(10);
/// What the design allows: so much longer for a packet, or so much of the rate.
const MORE: f64 = 1.1;
const SHARE: f64 = 0.9;
/// Less than this of the rate with the agent at work, and the stopped agent holds somebody up.
const HELD_UP: f64 = 0.7;
const METRICS: &str = "127.0.0.1:9964";
/// Where nothing comes back from.
const NOWHERE: [u8; 2] = [198, 18];

const OBJECTS: &str = "\
apiVersion: v1
kind: Pod
metadata: {name: loud, namespace: shop, uid: loud, labels: {app: loud}, annotations: {egret.dev/interface: vloud}}
spec: {nodeName: n1}
status: {phase: Running, podIPs: [{ip: 10.8.1.2}]}
---
apiVersion: cilium.io/v2
kind: CiliumNetworkPolicy
metadata: {name: out, namespace: shop}
spec:
  endpointSelector: {matchLabels: {app: loud}}
  egress:
  - toCIDR: [198.18.0.0/16]
    toPorts: [{ports: [{port: \"1000\", endPort: 65535, protocol: UDP}]}]
";

/// A pod's socket, and how many flows it has begun.
struct Sender {
    socket: UdpSocket,
    begun: u64,
}

impl Sender {
    fn new(world: &World, pod: &str) -> Self {
        let socket = world.ns(pod).run(|| UdpSocket::bind("0.0.0.0:0")).expect("bound");
        Self { socket, begun: 0 }
    }

    /// Begins another flow.
    fn begin(&mut self) {
        let n = self.begun;
        let [a, b] = NOWHERE;
        let to = ([a, b, (n >> 8) as u8, n as u8], 1_000 + (n >> 16) as u16);
        self.socket.send_to(b"x", std::net::SocketAddr::from(to)).expect("sent");
        self.begun += 1;
    }

    /// Flows per second of a turn.
    fn turn(&mut self) -> u64 {
        let (begin, before) = (Instant::now(), self.begun);
        while begin.elapsed() < TURN {
            (0..64).for_each(|_| self.begin());
        }
        ((self.begun - before) as f64 / begin.elapsed().as_secs_f64()) as u64
    }

    /// At [`RATE`], a millisecond at a time; gives the rate that was reached, and the median of what a packet took.
    fn paced(&mut self, span: Duration) -> (f64, u64) {
        let (begin, before, mut times) = (Instant::now(), self.begun, Vec::new());
        while begin.elapsed() < span {
            let due = (begin.elapsed().as_millis() as u64 + 1) * RATE / 1000;
            let (burst, from) = (Instant::now(), self.begun);
            while self.begun - before < due {
                self.begin();
            }
            if self.begun > from {
                times.push(burst.elapsed().as_nanos() as u64 / (self.begun - from));
            }
            std::thread::sleep(Duration::from_micros(200));
        }
        ((self.begun - before) as f64 / begin.elapsed().as_secs_f64(), median(&times))
    }
}

/// A node between two pods.
fn world() -> World {
    let mut world = WorldBuilder::new().ns("h").ip("h", "route add blackhole 198.18.0.0/16").sysctl(
        "h",
        "net/ipv4/ip_forward",
        "1",
    );
    for (pod, n) in [("loud", 1), ("quiet", 2)] {
        world = world
            .ns(pod)
            .sysctl(pod, "net/ipv6/conf/all/disable_ipv6", "1")
            .veth(("h", &format!("v{pod}")), (pod, "eth0"))
            .address("h", &format!("v{pod}"), &format!("10.8.{n}.1/24"))
            .address(pod, "eth0", &format!("10.8.{n}.2/24"))
            .ip(pod, &format!("route add default via 10.8.{n}.1"));
    }
    world.build()
}

/// The programs at the quiet pod's interface, without events.
fn quiet(world: &World) -> Arena {
    let mut arena = Arena::load_with(CONFIG_SERVICES | CONFIG_SLOW_PATTERNS, Sizes::node(), u32::MAX, true);
    setup::apply(&mut arena, &["198.18.0.0/16:1000-65535/udp".to_owned()], ENDPOINT_POD);
    arena.apply(&[MapOp::Put(Entry::Address(Addr::from_v4([10, 8, 2, 2]), ENDPOINT))]).expect("written");
    world.ns("h").run(|| {
        let ifindex = nix::net::if_::if_nametoindex("vquiet").expect("the veth");
        arena.bind_interface(ifindex, Some(ENDPOINT)).expect("bound");
        arena.attach_interface(ifindex, Method::of_kernel()).expect("attached");
    });
    arena
}

/// An agent, and how it is seen.
struct Watched {
    agent: Agent,
    hubble: Hubble,
    scraper: Scraper,
}

/// Events so far: made into flows, lost on the way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Seen {
    flows: u64,
    lost: u64,
}

impl Watched {
    fn start(world: &World) -> Self {
        let args = ["--metrics", METRICS, "--hubble-metrics", "flow drop", "--flow-buffer", "65535"];
        let mut agent = Agent::new(world, "h").args(&args);
        agent.put("objects.yaml", OBJECTS);
        agent.start();
        agent.expect_ready("shop/loud");
        let hubble = Hubble::connect(&agent.hubble_socket());
        let scraper = Scraper::new(world, "h", METRICS);
        let watched = Self { agent, hubble, scraper };
        watched.process().pin(1);
        watched
    }

    fn process(&self) -> Process {
        Process(self.agent.process().pid())
    }

    fn seen(&mut self) -> Seen {
        let status =
            self.hubble.ask(|mut client| async move { client.server_status(ServerStatusRequest {}).await });
        let page = self.scraper.scrape();
        let lost = ["egret_lost_records_total", "hubble_lost_events_total"];
        let [kernel, told] = lost.map(|name| page.named(name));
        let queue = told.iter().filter(|(labels, _)| labels["source"] == "observer_events_queue");
        let lost = kernel.values().chain(queue.map(|(_, count)| count)).sum::<f64>();
        Seen { flows: status.seen_flows, lost: lost as u64 }
    }

    /// Waits until all of these events are accounted for, and says how.
    fn settled(&mut self, events: u64) -> Seen {
        let begin = Instant::now();
        loop {
            let seen = self.seen();
            if seen.flows + seen.lost == events {
                return seen;
            }
            assert!(begin.elapsed() < Duration::from_secs(20), "{seen:?} of {events} events");
            std::thread::sleep(Duration::from_millis(100));
        }
    }
}

pub(super) fn run() -> Table {
    residue::ensure_bpffs();
    let world = world();
    let arena = quiet(&world);
    let mut watched = Watched::start(&world);
    pin(0, 0);
    let mut senders = [Sender::new(&world, "quiet"), Sender::new(&world, "loud")];
    let head = ["one new flow per packet", "per s", "ns", "of no events", "wanted", "verdict"];
    let mut table =
        Table::new("being observed: new flows of a pod, one sender, the agent on the other CPU", head);
    steady(&mut watched, &mut senders, &mut table);
    flat_out(&mut watched, &mut senders, &mut table);
    watched.agent.end(Signal::SIGTERM);
    drop(arena);
    table
}

/// At a rate that is sustained: what a packet takes, what the agent costs, and what it loses.
fn steady(watched: &mut Watched, senders: &mut [Sender; 2], table: &mut Table) {
    let process = watched.process();
    let (before, begun, cpu) = (watched.seen(), senders[1].begun, process.cpu());
    let (mut rates, mut times): ([Vec<u64>; 2], [Vec<u64>; 2]) = Default::default();
    for turn in 0..2 * SPAN.as_secs() as usize {
        // Each comes first as often as the other.
        let mode = (turn + turn / 2) % 2;
        let (rate, ns) = senders[mode].paced(Duration::from_secs(1));
        rates[mode].push(rate as u64);
        times[mode].push(ns);
    }
    let seen = watched.settled(senders[1].begun);
    let spent = (process.cpu() - cpu).as_secs_f64();
    let (flows, lost) = (seen.flows - before.flows, seen.lost - before.lost);
    assert_eq!(flows + lost, senders[1].begun - begun);
    let more: Vec<u64> = times[1].iter().zip(&times[0]).map(|(on, off)| on * 1000 / (*off).max(1)).collect();
    let more = median(&more) as f64 / 1e3;
    for (line, mode) in [("at a rate: no events", 0), ("at a rate: events, agent at work", 1)] {
        let [rate, ns] = [&rates[mode], &times[mode]].map(|of| median(of).to_string());
        let judged = [format!("{more:.2} in ns"), format!("{MORE:.2}"), word(more < MORE).into()];
        let [share, wanted, verdict] =
            if mode == 1 { judged } else { ["1.00".into(), "-".into(), "-".into()] };
        table.row([line.into(), rate, ns, share, wanted, verdict]);
    }
    table.note(format!(
        "{RATE} new flows per s were asked for, for {} s: {flows} shown, {lost} counted as lost",
        SPAN.as_secs()
    ));
    table.note(format!(
        "the agent meanwhile: {spent:.1} s of CPU = {:.2} cores = {:.1} µs per flow; {} MiB resident, {} MiB at most",
        spent / SPAN.as_secs_f64(),
        spent * 1e6 / (flows.max(1) as f64),
        process.memory("VmRSS:"),
        process.memory("VmHWM:"),
    ));
}

/// As fast as one sender can, with the agent at work, and stopped.
fn flat_out(watched: &mut Watched, senders: &mut [Sender; 2], table: &mut Table) {
    let before = watched.seen();
    let rates = turns(watched, senders);
    for (line, mode) in
        ["flat out: no events", "flat out: events, agent at work", "flat out: events, agent stopped"]
            .into_iter()
            .zip(0..)
    {
        table.row(row(line, &rates, mode));
    }
    let [_, at_work, stopped] = rates.each_ref().map(|rates| median(rates));
    assert!(stopped as f64 >= HELD_UP * at_work as f64, "a stopped agent holds its pods up: {rates:?}");
    let all = watched.settled(senders[1].begun);
    let (flows, lost) = (all.flows - before.flows, all.lost - before.lost);
    assert!(lost > 0, "a stopped agent has lost nothing: {all:?}");
    let all = flows + lost;
    table.note(format!("of {all} events flat out {flows} were shown and {lost} counted as lost"));
    table.note("flat out the agent takes the other CPU whole; stopped, the ring is full and an event no more than a count");
}

/// Each mode in turn.
fn turns(watched: &mut Watched, senders: &mut [Sender; 2]) -> [Vec<u64>; 3] {
    let mut rates: [Vec<u64>; 3] = Default::default();
    for round in 0..TURNS {
        for turn in 0..rates.len() {
            let mode = (turn + round) % rates.len();
            // What the turn before has left is done with.
            watched.settled(senders[1].begun);
            if mode == 2 {
                watched.agent.process().signal(Signal::SIGSTOP);
            }
            rates[mode].push(senders[mode.min(1)].turn());
            watched.agent.process().signal(Signal::SIGCONT);
        }
    }
    rates
}

/// A line about a mode, as a share of the first one. The design speaks of a rate, and of an agent that does not move.
fn row(line: &str, rates: &[Vec<u64>; 3], mode: usize) -> [String; 6] {
    let shares: Vec<u64> =
        rates[mode].iter().zip(&rates[0]).map(|(own, off)| own * 1000 / (*off).max(1)).collect();
    let (rate, share) = (median(&rates[mode]), median(&shares) as f64 / 1e3);
    let (wanted, verdict) =
        if mode == 2 { (format!("{SHARE:.2}"), word(share > SHARE)) } else { ("-".into(), "-") };
    let ns = 1_000_000_000 / rate.max(1);
    [line.into(), rate.to_string(), ns.to_string(), format!("{share:.2}"), wanted, verdict.into()]
}

fn word(good: bool) -> &'static str {
    if good { "met" } else { "over" }
}
