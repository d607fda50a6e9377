//! A pod behind a veth, the programs at its host's side: against no filter, and against nftables with conntrack and the
//! same 10,000 addresses.

use std::collections::BTreeSet;
use std::net::Ipv4Addr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use egret::datapath::{Ring, Sizes, tc::Method};
use egret_common::{
    event::FlowEvent,
    maps::{CONFIG_EVENTS, ENDPOINT_POD},
    net::Addr,
};
use egret_core::desired::{Entry, MapOp};
use egret_tests::arena::{Arena, ENDPOINT};
use egret_tests::netns::World;
use egret_tests::residue;

use super::super::{setup, table::Table};
use super::baseline::{ADDRESSES, Nftables, address};
use super::server::{self, Server};
use super::talk::Client;
use super::turns::{self, RATES, device_of, place, server_of};
use super::{client, shown};

/// Without a filter, nftables, Egret without and with somebody who reads its events.
const MODES: [&str; 4] = ["bare", "other", "egret", "events"];

/// What the design wants for each of [`RATES`]: without a consumer, and with one.
const WANTED: [(f64, Option<f64>); 3] = [(0.95, None), (0.94, Some(0.93)), (0.92, None)];

const NAME: &str = "server.bench.example";
/// How often the agent looks at the ring.
const TIMER: Duration = Duration::from_millis(10);

pub(crate) fn run() -> Table {
    residue::ensure_bpffs();
    let world = turns::world(&MODES);
    let _server = Server::start(world.ns("w"));
    let _nftables = Nftables::load(&place(&world, &MODES, 1), &server_of(1));
    let quiet = Pod::new(&world, 2, 0);
    let mut loud = Pod::new(&world, 3, CONFIG_EVENTS);
    let reader = Reader::start(loud.arena.take_flow_ring());
    let start = |mode| {
        let command = client::command(&server_of(mode), "127.0.0.1:53");
        Client::start(&place(&world, &MODES, mode), &command)
    };
    let mut clients: Vec<Client> = (0..MODES.len()).map(start).collect();
    let head = ["workload", "no filter", "nftables, set of 10,000", "egret", "egret, events read", "wanted"];
    let mut table = Table::new("sockets over a veth, egret at TC on the host's side of a pod's veth", head);
    for ((line, order), (quiet, loud)) in RATES.into_iter().zip(WANTED) {
        let rates = turns::rates(&mut clients, order);
        let mut wanted = verdict(rates[2].1, quiet);
        if let Some(loud) = loud {
            wanted = format!("{wanted}, events {}", verdict(rates[3].1, loud));
        }
        let [bare, other, egret, events] = [0, 1, 2, 3].map(|mode| shown(&rates, mode));
        table.row([line.into(), bare, other, egret, events, wanted]);
    }
    drop(clients);
    let (read, lost) = (reader.end(), loud.arena.lost().flow_events);
    table.note(format!("nftables filters in the pod's namespace; {read} events were read, {lost} lost"));
    drop(quiet);
    table
}

fn verdict(share: f64, wanted: f64) -> String {
    format!("{wanted:.2} {}", if share >= wanted { "met" } else { "under" })
}

/// Programs at the host's side of a mode's veth, with a policy by name and 10,000 addresses that the name was seen with.
struct Pod {
    arena: Arena,
}

impl Pod {
    fn new(world: &World, mode: usize, config: u32) -> Self {
        let mut arena = Arena::load_with(config, Sizes::node(), u32::MAX, true);
        let allow = [format!("{NAME}:{}", server::PORTS), format!("{NAME}:{}/udp", server::UDP)];
        let state = setup::apply(&mut arena, &allow, ENDPOINT_POD);
        let own = Addr::from_v4([10, 9, mode as u8, 1]);
        arena.apply(&[MapOp::Put(Entry::Address(own, ENDPOINT))]).expect("a written address");
        let server: Ipv4Addr = server_of(mode).parse().expect("an address");
        let others: BTreeSet<Ipv4Addr> = (0..ADDRESSES - 1).map(address).collect();
        for address in others.into_iter().chain([server]) {
            setup::grant(&arena, &state, NAME, address);
        }
        let mut pod = Self { arena };
        pod.attach(world, mode);
        pod
    }

    fn attach(&mut self, world: &World, mode: usize) {
        let (arena, device) = (&mut self.arena, device_of(mode));
        world.ns("w").run(|| {
            let ifindex = nix::net::if_::if_nametoindex(device.as_str()).expect("the veth");
            arena.bind_interface(ifindex, Some(ENDPOINT)).expect("bound");
            arena.attach_interface(ifindex, Method::of_kernel()).expect("attached");
        });
    }
}

/// Reads events as the agent does; ends when told.
struct Reader {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<usize>,
}

impl Reader {
    fn start(mut ring: Ring<FlowEvent>) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let ended = stop.clone();
        let thread = thread::spawn(move || {
            let mut count = 0;
            while !ended.load(Ordering::Relaxed) {
                count += ring.drain(|_| ());
                thread::sleep(TIMER);
            }
            count
        });
        Self { stop, thread }
    }

    fn end(self) -> usize {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.join().expect("the reader")
    }
}
