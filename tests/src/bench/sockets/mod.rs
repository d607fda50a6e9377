//! Real sockets over a veth: round trips, connections and datagrams per second, and the latency of DNS queries,
//! with no filter, with nftables or dnsmasq, and under `egret run`.
//!
//! Each mode has a namespace and a client of its own that wait for their turn. Turns are short and many, so that
//! noise hits all modes; ratios are medians over turns side by side.

mod baseline;
mod client;
mod server;
mod talk;

use std::net::SocketAddr;
use std::process::ExitCode;

use egret_tests::dnsd::{Dnsd, Zone};
use egret_tests::egret::Egret;
use egret_tests::netns::{World, WorldBuilder};
use egret_tests::residue;

use super::stats::{median, quantile};
use super::table::Table;
use baseline::{DNSMASQ, Dnsmasq, Nftables};
use server::Server;
use talk::Client;

/// Without a filter, with the other tool, under Egret: the namespaces' names.
const MODES: [&str; 3] = ["bare", "other", "egret"];
const TURNS: usize = 30;

/// Line, what the client is told, what the design wants of Egret.
const RATES: [(&str, &str, f64); 3] =
    [("TCP_RR per s", "rr", 0.95), ("TCP_CRR per s", "crr", 0.94), ("UDP packets per s", "udp", 0.92)];

/// What the client programs run: see [`client`].
pub(super) fn worker(args: &[String]) -> ExitCode {
    client::main(args)
}

/// The server's address in a mode's network.
fn server_of(mode: usize) -> String {
    format!("10.9.{mode}.2")
}

pub(super) fn run() -> Table {
    residue::ensure_bpffs();
    let world = world();
    let zone = Zone::new();
    for number in 0..client::DNS_NAMES {
        zone.add(&client::dns_name(number), 300, &["10.9.9.9"]);
    }
    for (mode, name) in MODES.iter().enumerate() {
        zone.add(&format!("{name}.bench.example"), 300, &[&server_of(mode)]);
    }
    let listen: Vec<SocketAddr> =
        (0..3).map(|mode| format!("{}:53", server_of(mode)).parse().expect("an address")).collect();
    let _dnsd = Dnsd::start(world.ns("w"), &listen, zone.handler());
    let _server = Server::start(world.ns("w"));
    let _nftables = Nftables::load(&place(&world, 1), &server_of(1));
    let dnsmasq = Dnsmasq::start(world.ns("other"), &place(&world, 1), &server_of(1));
    let mut clients: Vec<Client> = (0..3).map(|mode| client(&world, mode)).collect();
    let head = ["workload", "no filter", "nftables, set of 10,000", "egret run", "wanted", "verdict"];
    let mut table = Table::new("sockets over a veth, client and server on a CPU each", head);
    for rate in RATES {
        rates(&mut clients, rate, &mut table);
    }
    latencies(&mut clients, &dnsmasq, &mut table);
    table
}

/// A veth for each mode between its namespace and `w`.
fn world() -> World {
    let mut world = WorldBuilder::new().ns("w");
    for (mode, name) in MODES.iter().enumerate() {
        let device = format!("v{mode}");
        world = world
            .ns(name)
            .veth((name, "eth0"), ("w", &device))
            .address(name, "eth0", &format!("10.9.{mode}.1/24"))
            .address("w", &device, &format!("{}/24", server_of(mode)))
            .sysctl(name, "net/ipv4/ip_local_port_range", "10000 65000")
            .sysctl(name, "net/ipv4/tcp_tw_reuse", "1");
    }
    world.build()
}

fn place(world: &World, mode: usize) -> egret_tests::exec::Place {
    world.place(MODES[mode]).resolv_conf(&format!("nameserver {}\n", server_of(mode)))
}

/// The client of a mode, ready.
fn client(world: &World, mode: usize) -> Client {
    let resolver = if mode == 1 { DNSMASQ.to_string() } else { format!("{}:53", server_of(mode)) };
    let name = format!("{}.bench.example", MODES[mode]);
    let command = client::command(&name, &resolver);
    let place = place(world, mode);
    if mode != 2 {
        return Client::start(&place, &command);
    }
    let egret = Egret::at(place.clone(), world)
        .allow("*.bench.example")
        .allow(&format!("{name}:{}", server::PORTS))
        .allow(&format!("{name}:{}/udp", server::UDP));
    Client::start(&place, &egret.command(&command))
}

/// Each mode comes first, second and last equally often: what one leaves behind (full queues, warm caches, a machine
/// that slows down) meets all.
fn order_of(round: usize) -> impl Iterator<Item = usize> {
    (0..MODES.len()).map(move |place| (place + round) % MODES.len())
}

fn rates(clients: &mut [Client], (line, order, wanted): (&str, &str, f64), table: &mut Table) {
    let mut values: [Vec<u64>; 3] = Default::default();
    let mut ratios: [Vec<u64>; 3] = Default::default();
    for round in 0..TURNS {
        let mut turn = [0; MODES.len()];
        for mode in order_of(round) {
            turn[mode] = clients[mode].ask(order)[0];
        }
        for (mode, value) in turn.iter().enumerate() {
            values[mode].push(*value);
            ratios[mode].push(value * 1000 / turn[0].max(1));
        }
    }
    let ratio = |mode: usize| median(&ratios[mode]) as f64 / 1e3;
    let show = |mode: usize| format!("{} = {:.2}", median(&values[mode]), ratio(mode));
    let verdict = if ratio(2) >= wanted { "met" } else { "under" };
    let bare = median(&values[0]).to_string();
    table.row([line.into(), bare, show(1), show(2), format!("{wanted:.2}"), verdict.into()]);
}

/// p50 and p99 of DNS queries, and what dnsmasq spends on one.
fn latencies(clients: &mut [Client], dnsmasq: &Dnsmasq, table: &mut Table) {
    let mut times: [Vec<u64>; 3] = Default::default();
    let before = dnsmasq.nanoseconds();
    for round in 0..TURNS {
        for mode in order_of(round) {
            times[mode].extend(clients[mode].ask("dns"));
        }
    }
    let spent = (dnsmasq.nanoseconds() - before) as f64 / times[1].len().max(1) as f64;
    let show = |mode: usize| {
        let [p50, p99] = [0.5, 0.99].map(|share| quantile(&times[mode], share) as f64 / 1e3);
        format!("{p50:.0} / {p99:.0}")
    };
    let excess = median(&times[2]) as i64 - median(&times[0]) as i64;
    table.row([
        "DNS p50 / p99, µs, at 2,000 per s".into(),
        show(0),
        format!("{} (dnsmasq nftset)", show(1)),
        show(2),
        "p50 + 5".into(),
        if excess <= 5000 { "met" } else { "over" }.into(),
    ]);
    table.note(format!(
        "dnsmasq with nftset spends {:.1} µs of CPU on a query, in its own process; egret's kernel path: see DNS above",
        spent / 1e3
    ));
}
