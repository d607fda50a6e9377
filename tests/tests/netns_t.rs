//! T: lifetimes of learned addresses. Small settings, so that time passes in seconds. Every case once for a command under
//! `egret run` and once for a pod behind an interface.

use std::net::{IpAddr, Ipv6Addr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use egret_tests::dnsd::{Dnsd, Zone};
use egret_tests::held::{Held, Holder, Terms};
use egret_tests::lab::{Lab, RESOLVER};
use egret_tests::packet::Rng;
use egret_tests::servers::Proto;
use egret_tests::wait::{pass, soak};

const SECOND: Duration = Duration::from_secs(1);

fn t_a01(holder: Holder) {
    let Some(lab) = Lab::start() else { return };
    lab.zone.add("broker.example", 2, &["192.0.2.30"]);
    let terms = Terms::name("broker.example", &["443/TCP"]).lifetimes(1, 0);
    let mut probe = Held::start(&lab, holder, &terms);
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
    probe.refused("192.0.2.30:443");
    assert_eq!(lab.queries().count("broker.example"), 2, "no further look-ups");
    probe.finish(&["NameExpired"]);
}

#[test]
fn t_a01_a_long_connection_crosses_expiry() {
    t_a01(Holder::Run);
}

#[test]
fn t_a01_a_long_connection_of_a_pod_crosses_expiry() {
    t_a01(Holder::Pod);
}

fn t_a02(holder: Holder) {
    let Some(lab) = Lab::start() else { return };
    lab.zone.rotate("jvm.example", 2, &[&["192.0.2.41"], &["192.0.2.42"], &["192.0.2.43"], &["192.0.2.44"]]);
    let mut probe = Held::start(&lab, holder, &Terms::name("jvm.example", &["443/TCP"]).lifetimes(1, 0));
    assert_eq!(probe.resolve_family("jvm.example", 4).first(), "192.0.2.41");
    let first = probe.tcp("192.0.2.41:443").allowed();
    probe.close(first);
    pass(3 * SECOND);
    assert_eq!(probe.resolve_family("jvm.example", 4).first(), "192.0.2.42");
    probe.tcp("192.0.2.42:443").allowed();
    probe.refused("192.0.2.41:443");
    probe.finish(&["NameExpired"]);
}

#[test]
fn t_a02_without_grace_an_old_address_closes_for_a_pod() {
    t_a02(Holder::Pod);
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

fn t_a02_grace(holder: Holder) {
    let Some(lab) = Lab::start() else { return };
    lab.zone.rotate("jvm.example", 1, &[&["192.0.2.41"], &["192.0.2.42"]]);
    let mut probe = Held::start(&lab, holder, &Terms::name("jvm.example", &["443/TCP"]).lifetimes(1, 5));
    assert_eq!(probe.resolve_family("jvm.example", 4).first(), "192.0.2.41");
    pass(3 * SECOND);
    let cached = probe.tcp("192.0.2.41:443").allowed();
    probe.close(cached);
    pass(8 * SECOND);
    probe.refused("192.0.2.41:443");
    probe.finish(&["NameExpired"]);
}

#[test]
fn t_a02_grace_keeps_an_old_address_open_and_ends() {
    t_a02_grace(Holder::Run);
}

#[test]
fn t_a02_grace_keeps_an_old_address_of_a_pod_open_and_ends() {
    t_a02_grace(Holder::Pod);
}

fn t_a03(holder: Holder) {
    let Some(lab) = Lab::start() else { return };
    let seed = AtomicU64::new(1);
    lab.zone.choose("objects.example", 2, move |_| {
        let mut rng = Rng::new(seed.fetch_add(1, Ordering::Relaxed));
        (0..8).map(|_| Ipv6Addr::new(0x2001, 0xdb8, 0xa, 0, 0, 0, 1, rng.below(4096) as u16).into()).collect()
    });
    let mut probe = Held::start(&lab, holder, &Terms::name("objects.example", &["443/TCP"]).lifetimes(1, 0));
    probe.is_held();
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
            early = resident(probe.egret().pid());
        }
    }
    let late = resident(probe.egret().pid());
    eprintln!("{rounds} rounds, egret's memory after 60 and at the end: {early}, {late} KiB");
    assert!(rounds < 120 || late < early + 4096, "egret grows: {early} KiB, {late} KiB");
    // Nothing but the control.
    probe.finish(&["NameUnresolved"]);
}

#[test]
fn t_a03_many_random_addresses_never_cut_a_connection() {
    t_a03(Holder::Run);
}

#[test]
fn t_a03_many_random_addresses_never_cut_a_connection_of_a_pod() {
    t_a03(Holder::Pod);
}

/// Resident memory of a process in KiB.
fn resident(pid: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).expect("a process");
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("its memory");
    line.trim().trim_end_matches(" kB").trim().parse().expect("a number")
}

fn t_a04(holder: Holder) {
    let Some(lab) = Lab::start() else { return };
    lab.zone.add("ok.example", 60, &["198.51.100.5"]).add("bad.example", 60, &["198.51.100.5"]);
    let mut probe = Held::start(&lab, holder, &Terms::name("ok.example", &["443/TCP"]));
    probe.resolve("bad.example").failed();
    probe.refused("198.51.100.5:443");
    assert_eq!(lab.hits().count(Proto::Tcp, "198.51.100.5:443"), 0);
    assert_eq!(lab.queries().count("bad.example"), 0);
    probe.resolve("ok.example").first();
    probe.tcp("198.51.100.5:443").allowed();
    probe.finish(&["NameUnresolved", "QueryRefused"]);
}

#[test]
fn t_a04_two_names_share_an_address() {
    t_a04(Holder::Run);
}

#[test]
fn t_a04_two_names_share_an_address_for_a_pod() {
    t_a04(Holder::Pod);
}

/// Gives a fresh address to each query.
fn fresh_addresses(zone: &Zone) {
    let next = AtomicU64::new(1);
    zone.choose("race.example", 60, move |_| {
        let n = next.fetch_add(1, Ordering::Relaxed);
        vec![IpAddr::from(Ipv6Addr::from(0x2001_0db8_000a_0000_0000_0000_0000_0000_u128 | u128::from(n)))]
    });
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
    // On loopback: nothing is faster.
    let zone = Zone::new();
    fresh_addresses(&zone);
    let listen = "127.0.0.53:53".parse().expect("an address");
    let _resolver = Dnsd::start(lab.world.ns("c"), &[listen], zone.handler());
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

#[test]
fn t_a05_the_first_packet_of_a_pod_never_comes_too_early() {
    let Some(lab) = Lab::exclusive() else { return };
    fresh_addresses(&lab.zone);
    let _busy = Busy::start();
    let mut probe = Held::start(&lab, Holder::Pod, &Terms::name("race.example", &["443/TCP"]));
    probe.is_held();
    let first = probe.cycle(RESOLVER, "race.example", 443, 4_000);
    // Who answers the look-up is not asked whether anybody listens to the records.
    probe.agent().expect("a pod").end(nix::sys::signal::Signal::SIGKILL);
    let second = probe.cycle(RESOLVER, "race.example", 443, 4_000);
    eprintln!("4,000 cycles with an agent: {first:?}, without: {second:?}");
    for cycled in [first, second] {
        assert!(cycled.failed.is_empty() && cycled.unresolved == 0, "{cycled:?}");
        assert!(cycled.slowest_connect < 500_000, "{cycled:?}");
    }
    probe.agent().expect("a pod").start();
    probe.finish(&["NameUnresolved"]);
}

#[test]
fn t_a06_an_edit_takes_one_name_of_a_pod_and_leaves_the_others() {
    let Some(lab) = Lab::start() else { return };
    let addresses = ["192.0.2.61", "192.0.2.62", "192.0.2.63"];
    for (name, address) in ["a.example", "b.example", "c.example"].iter().zip(addresses) {
        lab.zone.add(name, 60, &[address]);
    }
    let two = Terms::name("b.example", &["443/TCP"]).and("c.example", &["443/TCP"]);
    let mut probe = Held::start(&lab, Holder::Pod, &two.clone().and("a.example", &["443/TCP"]));
    let open = ["a.example", "b.example", "c.example"].map(|name| {
        let address = probe.resolve(name).first();
        probe.tcp(&format!("{address}:443")).allowed()
    });
    let asked = lab.queries().count_by(|_| true);
    probe.edit(&two);
    probe.refused("192.0.2.61:443");
    for (address, conn) in addresses.iter().zip(open).skip(1) {
        assert!(probe.echo(conn, "open ones go on"), "{address}");
        probe.tcp(&format!("{address}:443")).allowed();
    }
    assert!(!probe.echo(open[0], "a policy change is about open ones too (DESIGN 3.2)"));
    // The same policy as another object: nothing that was learned is lost.
    let agent = probe.agent().expect("a pod");
    agent.put("again.yaml", &two.policy().replace("name: test", "name: again"));
    agent.withdraw("policy.yaml");
    for address in &addresses[1..] {
        probe.tcp(&format!("{address}:443")).allowed();
    }
    probe.refused("192.0.2.61:443");
    assert_eq!(lab.queries().count_by(|_| true), asked, "without a look-up");
}
