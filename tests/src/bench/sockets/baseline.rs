//! What people use today, from Debian: nftables with conntrack and a set of addresses, dnsmasq that fills the set.

use std::fmt::Write;
use std::net::{Ipv4Addr, UdpSocket};
use std::time::Duration;

use egret_tests::dnsd::raw;
use egret_tests::exec::{Cmd, Place, Running};
use egret_tests::netns::Ns;
use egret_tests::wait;

/// Where dnsmasq listens.
pub(super) const DNSMASQ: &str = "127.0.0.1:5353";

/// How many addresses are open.
pub(super) const ADDRESSES: u32 = 10_000;

/// One of them, but for the server's.
pub(super) fn address(number: u32) -> Ipv4Addr {
    Ipv4Addr::from_bits(0xc612_0000 + number)
}

/// A loaded table; goes when dropped.
pub(super) struct Nftables {
    place: Place,
}

impl Nftables {
    /// Established flows, and new ones to a set of 10,000 addresses with `server` in it.
    pub(super) fn load(place: &Place, server: &str) -> Self {
        let mut text = String::from("table inet bench {\n set names { type ipv4_addr; elements = { ");
        for number in 0..ADDRESSES - 1 {
            let _ = write!(text, "{}, ", address(number));
        }
        let _ = write!(
            text,
            "{server} }}; }}\n\
             chain out {{ type filter hook output priority 0; policy drop;\n\
             ct state established,related accept\n oif lo accept\n ip daddr @names accept\n }}\n\
             chain in {{ type filter hook input priority 0; policy drop;\n\
             ct state established,related accept\n iif lo accept\n }}\n}}\n"
        );
        place.run(&Cmd::new(["nft", "-f", "-"]).stdin(text)).expect_success();
        Self { place: place.clone() }
    }
}

impl Drop for Nftables {
    fn drop(&mut self) {
        self.place.run(&Cmd::new(["nft", "delete", "table", "inet", "bench"]));
    }
}

/// A forwarding dnsmasq that writes each answer into the set of [`Nftables`]; ends when dropped.
pub(super) struct Dnsmasq {
    process: Running,
}

impl Dnsmasq {
    /// In `place`, asking `upstream`; without a cache, as every query of a filter must reach the set.
    pub(super) fn start(ns: &Ns, place: &Place, upstream: &str) -> Self {
        let (address, port) = DNSMASQ.split_once(':').expect("address:port");
        let process = place.spawn(&Cmd::new([
            "dnsmasq",
            "--keep-in-foreground",
            "--conf-file=/dev/null",
            "--no-resolv",
            "--no-hosts",
            "--cache-size=0",
            "--bind-interfaces",
            "--user=root",
            "--pid-file=",
            &format!("--listen-address={address}"),
            &format!("--port={port}"),
            &format!("--server={upstream}"),
            "--nftset=/bench.example/4#inet#bench#names",
        ]));
        let started = Self { process };
        started.wait_until_it_answers(ns);
        started
    }

    /// CPU time of the process so far.
    pub(super) fn nanoseconds(&self) -> u64 {
        let path = format!("/proc/{}/schedstat", self.process.pid());
        let text = std::fs::read_to_string(path).unwrap_or_default();
        text.split_whitespace().next().and_then(|first| first.parse().ok()).unwrap_or(0)
    }

    fn wait_until_it_answers(&self, ns: &Ns) {
        let socket = ns.run(|| UdpSocket::bind("127.0.0.1:0")).expect("a socket");
        socket.set_read_timeout(Some(Duration::from_millis(100))).expect("a timeout");
        let query = raw::query(1, "n0.bench.example", raw::rtype::A);
        let answered = wait::until(Duration::from_secs(5), || {
            socket.send_to(&query, DNSMASQ).ok()?;
            socket.recv(&mut [0; 512]).ok()
        });
        assert!(answered.is_some(), "dnsmasq does not answer: {}", self.process.stderr_so_far());
    }
}
