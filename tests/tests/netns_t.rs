//! T: lifetimes of learned addresses. Small settings, so that time passes in seconds.

use std::net::{IpAddr, Ipv6Addr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use egret_tests::dnsd::{Dnsd, Zone};
use egret_tests::lab::Lab;
use egret_tests::packet::Rng;
use egret_tests::servers::Proto;
use egret_tests::wait::{pass, soak};

const SECOND: Duration = Duration::from_secs(1);

#[test]
fn t_a01_a_long_connection_crosses_expiry() {
    let Some(lab) = Lab::start() else { return };
    lab.zone.add("broker.example", 2, &["192.0.2.30"]);
    let mut probe = lab.egret().allow("broker.example").lifetimes(1, 0, 86400).session();
    probe.resolve("broker.example").first();
    let talking = probe.tcp("192.0.2.30:443").allowed();
    let silent = probe.tcp("192.0.2.30:443").allowed();
    for second in 0..6 {
        pass(SECOND);
        assert!(probe.echo(talking, &format!("second {second}")));
    }
    assert!(probe.echo(silent, "after a silence longer than the TTL"));
    probe.close(talking);
    probe.close(silent);
    pass(5 * SECOND);
    probe.tcp("192.0.2.30:443").refused();
    assert_eq!(probe.finish().report.reason("tcp", "192.0.2.30:443"), "NameExpired");
    assert_eq!(lab.queries().count("broker.example"), 2, "no further look-ups");
}

#[test]
fn t_a02_smoke_without_grace_an_old_address_closes() {
    let Some(lab) = Lab::start() else { return };
    lab.zone.rotate("jvm.example", 2, &[&["192.0.2.41"], &["192.0.2.42"], &["192.0.2.43"], &["192.0.2.44"]]);
    let mut probe = lab.egret().allow("jvm.example").lifetimes(1, 0, 86400).session();
    assert_eq!(probe.resolve_family("jvm.example", 4).first(), "192.0.2.41");
    let first = probe.tcp("192.0.2.41:443").allowed();
    probe.close(first);
    pass(3 * SECOND);
    assert_eq!(probe.resolve_family("jvm.example", 4).first(), "192.0.2.42");
    probe.tcp("192.0.2.42:443").allowed();
    probe.tcp("192.0.2.41:443").refused();
    let row = probe.finish().report.row("tcp", "192.0.2.41:443");
    assert_eq!((row.reason.as_str(), row.name.as_str()), ("NameExpired", "jvm.example"));
}

#[test]
fn t_a02_grace_keeps_an_old_address_open_and_ends() {
    let Some(lab) = Lab::start() else { return };
    lab.zone.rotate("jvm.example", 1, &[&["192.0.2.41"], &["192.0.2.42"]]);
    let mut probe = lab.egret().allow("jvm.example").lifetimes(1, 5, 86400).session();
    assert_eq!(probe.resolve_family("jvm.example", 4).first(), "192.0.2.41");
    pass(3 * SECOND);
    let cached = probe.tcp("192.0.2.41:443").allowed();
    probe.close(cached);
    pass(8 * SECOND);
    probe.tcp("192.0.2.41:443").refused();
    assert_eq!(probe.finish().report.reason("tcp", "192.0.2.41:443"), "NameExpired");
}

#[test]
fn t_a03_many_random_addresses_never_cut_a_connection() {
    let Some(lab) = Lab::start() else { return };
    let seed = AtomicU64::new(1);
    lab.zone.choose("objects.example", 2, move |_| {
        let mut rng = Rng::new(seed.fetch_add(1, Ordering::Relaxed));
        (0..8).map(|_| Ipv6Addr::new(0x2001, 0xdb8, 0xa, 0, 0, 0, 1, rng.below(4096) as u16).into()).collect()
    });
    let mut probe = lab.egret().allow("objects.example:443").lifetimes(1, 0, 86400).session();
    probe.held();
    let mut uploads = Vec::new();
    for _ in 0..100 {
        let address = probe.resolve_family("objects.example", 6).first();
        uploads.push(probe.tcp(&format!("[{address}]:443")).allowed());
    }
    // A second each; `cargo xtask soak` asks for more of them.
    let rounds = soak(4);
    let mut early = 0;
    for round in 0..rounds {
        pass(SECOND);
        for conn in &uploads {
            assert!(probe.echo(*conn, &format!("part {round}")), "{conn:?} was cut");
        }
        let address = probe.resolve_family("objects.example", 6).first();
        let conn = probe.tcp(&format!("[{address}]:443")).allowed();
        let oldest = std::mem::replace(&mut uploads[round % 100], conn);
        probe.close(oldest);
        if round == 60 {
            early = resident(probe.process().pid());
        }
    }
    let late = resident(probe.process().pid());
    eprintln!("{rounds} rounds, egret's memory after 60 and at the end: {early}, {late} KiB");
    assert!(rounds < 120 || late < early + 4096, "egret grows: {early} KiB, {late} KiB");
    probe.finish().report.nothing_denied();
}

/// Resident memory of a process in KiB.
fn resident(pid: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).expect("a process");
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("its memory");
    line.trim().trim_end_matches(" kB").trim().parse().expect("a number")
}

#[test]
fn t_a04_two_names_share_an_address() {
    let Some(lab) = Lab::start() else { return };
    lab.zone.add("ok.example", 60, &["198.51.100.5"]).add("bad.example", 60, &["198.51.100.5"]);
    let mut probe = lab.egret().allow("ok.example").session();
    probe.resolve("bad.example").failed();
    probe.tcp("198.51.100.5:443").refused();
    assert_eq!(lab.hits().count(Proto::Tcp, "198.51.100.5:443"), 0);
    probe.resolve("ok.example").first();
    probe.tcp("198.51.100.5:443").allowed();
    let report = probe.finish().report;
    assert_eq!(report.reason("tcp", "198.51.100.5:443"), "NameUnresolved");
    assert_eq!(report.row_of_name("bad.example").reason, "QueryRefused");
}

/// A resolver on loopback in `c` that gives a fresh address to each query.
fn fresh_addresses(lab: &Lab) -> Dnsd {
    let zone = Zone::new();
    let next = AtomicU64::new(1);
    zone.choose("race.example", 60, move |_| {
        let n = next.fetch_add(1, Ordering::Relaxed);
        vec![IpAddr::from(Ipv6Addr::from(0x2001_0db8_000a_0000_0000_0000_0000_0000_u128 | u128::from(n)))]
    });
    let listen = "127.0.0.53:53".parse().expect("an address");
    Dnsd::start(lab.world.ns("c"), &[listen], zone.handler())
}

/// Keeps one CPU busy until dropped.
struct Busy(Arc<AtomicBool>);

impl Busy {
    fn start() -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let signal = stop.clone();
        std::thread::spawn(move || while !signal.load(Ordering::Relaxed) {});
        Self(stop)
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[test]
fn t_a05_the_first_packet_never_comes_too_early() {
    let Some(lab) = Lab::exclusive() else { return };
    let _resolver = fresh_addresses(&lab);
    let _busy = Busy::start();
    let egret = lab.egret().place(|place| place.resolv_conf("nameserver 127.0.0.53\n"));
    let mut probe = egret.allow("race.example:443").session();
    probe.held();
    let cycled = probe.cycle("127.0.0.53:53", "race.example", 443, 10_000);
    eprintln!("10,000 cycles: {cycled:?}");
    assert!(cycled.failed.is_empty() && cycled.unresolved == 0, "{cycled:?}");
    // A grant that came late shows as a retry of the SYN, which takes at least 500 ms.
    assert!(cycled.slowest_connect < 500_000, "{cycled:?}");
    probe.finish().report.nothing_denied();
}
