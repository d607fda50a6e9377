//! Real sockets over a veth: round trips, connections and datagrams per second, and the latency of DNS queries,
//! with no filter, with nftables or dnsmasq, and with Egret: around a command (`egret run`), or at a pod's interface.
//!
//! Each mode has a namespace and a client of its own that wait for their turn. Turns are short and many, so that
//! noise hits all modes.

mod baseline;
mod client;
mod pods;
mod server;
mod talk;
mod turns;

use std::net::SocketAddr;
use std::process::ExitCode;

use egret_tests::dnsd::{Dnsd, Zone};
use egret_tests::egret::Egret;
use egret_tests::netns::World;
use egret_tests::residue;

use super::stats::{median, quantile};
use super::table::Table;
use baseline::{DNSMASQ, Dnsmasq, Nftables};
use server::Server;
use talk::Client;
use turns::{RATES, place, server_of};

pub(super) use pods::run as run_tc;

/// Without a filter, with the other tool, under Egret: the namespaces' names.
const MODES: [&str; 3] = ["bare", "other", "egret"];

/// What the design wants of Egret, for each of [`RATES`].
const WANTED: [f64; 3] = [0.95, 0.94, 0.92];

/// What the client programs run: see [`client`].
pub(super) fn worker(args: &[String]) -> ExitCode {
    client::main(args)
}

pub(super) fn run() -> Table {
    residue::ensure_bpffs();
    let world = turns::world(&MODES);
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
    let _nftables = Nftables::load(&place(&world, &MODES, 1), &server_of(1));
    let dnsmasq = Dnsmasq::start(world.ns("other"), &place(&world, &MODES, 1), &server_of(1));
    let mut clients: Vec<Client> = (0..3).map(|mode| client(&world, mode)).collect();
    let head = ["workload", "no filter", "nftables, set of 10,000", "egret run", "wanted", "verdict"];
    let mut table = Table::new("sockets over a veth, client and server on a CPU each", head);
    for ((line, order), wanted) in RATES.into_iter().zip(WANTED) {
        let rates = turns::rates(&mut clients, order);
        let verdict = if rates[2].1 >= wanted { "met" } else { "under" };
        let [bare, other, egret] = [0, 1, 2].map(|mode| shown(&rates, mode));
        table.row([line.into(), bare, other, egret, format!("{wanted:.2}"), verdict.into()]);
    }
    latencies(&mut clients, &dnsmasq, &mut table);
    table
}

/// A mode's rate, with its share of the first one's.
fn shown(rates: &[(u64, f64)], mode: usize) -> String {
    let (rate, share) = rates[mode];
    if mode == 0 { rate.to_string() } else { format!("{rate} = {share:.2}") }
}

/// The client of a mode, ready.
fn client(world: &World, mode: usize) -> Client {
    let resolver = if mode == 1 { DNSMASQ.to_string() } else { format!("{}:53", server_of(mode)) };
    let name = format!("{}.bench.example", MODES[mode]);
    let command = client::command(&name, &resolver);
    let place = place(world, &MODES, mode);
    if mode != 2 {
        return Client::start(&place, &command);
    }
    let egret = Egret::at(place.clone(), world)
        .allow("*.bench.example")
        .allow(&format!("{name}:{}", server::PORTS))
        .allow(&format!("{name}:{}/udp", server::UDP));
    Client::start(&place, &egret.command(&command))
}

/// p50 and p99 of DNS queries, and what dnsmasq spends on one.
fn latencies(clients: &mut [Client], dnsmasq: &Dnsmasq, table: &mut Table) {
    let mut times: [Vec<u64>; 3] = Default::default();
    let before = dnsmasq.nanoseconds();
    turns::take(clients, "dns", |mode, answer| times[mode].extend(answer));
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
