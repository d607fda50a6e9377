//! Clients that take turns: each mode comes first and last equally often, since what one leaves behind (full queues, warm
//! caches, a machine that slows down) must meet all. Ratios are medians over turns side by side.

use egret_tests::exec::Place;
use egret_tests::netns::{World, WorldBuilder};

use super::super::stats::median;
use super::talk::Client;

const TURNS: usize = 30;

/// Line, and what the client is told.
pub(super) const RATES: [(&str, &str); 3] =
    [("TCP_RR per s", "rr"), ("TCP_CRR per s", "crr"), ("UDP packets per s", "udp")];

/// The server's address in a mode's network.
pub(super) fn server_of(mode: usize) -> String {
    format!("10.9.{mode}.2")
}

/// The server's end of a mode's network.
pub(super) fn device_of(mode: usize) -> String {
    format!("v{mode}")
}

/// A namespace for each mode, and a veth between it and the server's, `w`.
pub(super) fn world(modes: &[&str]) -> World {
    let mut world = WorldBuilder::new().ns("w");
    for (mode, name) in modes.iter().enumerate() {
        let device = device_of(mode);
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

/// Where a mode's client runs.
pub(super) fn place(world: &World, modes: &[&str], mode: usize) -> Place {
    world.place(modes[mode]).resolv_conf(&format!("nameserver {}\n", server_of(mode)))
}

/// Gives every client the order again and again; what each answered, and its turns as shares of the first client's.
pub(super) fn take(clients: &mut [Client], order: &str, mut seen: impl FnMut(usize, Vec<u64>)) {
    for round in 0..TURNS {
        for turn in 0..clients.len() {
            let mode = (turn + round) % clients.len();
            seen(mode, clients[mode].ask(order));
        }
    }
}

/// Median and share of the first client's, of each client.
pub(super) fn rates(clients: &mut [Client], order: &str) -> Vec<(u64, f64)> {
    let mut values = vec![Vec::new(); clients.len()];
    take(clients, order, |mode, answer| values[mode].push(answer[0]));
    let share = |of: &[u64]| {
        let shares = of.iter().zip(&values[0]).map(|(own, bare)| own * 1000 / (*bare).max(1));
        median(&shares.collect::<Vec<_>>()) as f64 / 1e3
    };
    values.iter().map(|of| (median(of), share(of))).collect()
}
