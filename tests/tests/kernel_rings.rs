//! The ring buffers: what wakes a waiting reader and what does not, and what becomes of records that do not fit. Two
//! tests for all cases, since loading the programs takes seconds.

use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use egret::datapath::{DnsRecord, Ring, Sizes};
use egret_common::{
    event::{DNS_ASKED, DNS_LEARNED, DNS_SLOW, FlowEvent},
    maps::{CONFIG_EVENTS, CONFIG_SLOW_PATTERNS},
    verdict::DropReason,
};
use egret_core::desired::{Desired, diff};
use egret_tests::arena::{Arena, ENDPOINT};
use egret_tests::dnsd::raw::{self, rtype};
use egret_tests::model::setup::Setup;
use egret_tests::packet::{Packet, tcp};
use egret_tests::wait;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

const RESOLVER: (&str, u16) = ("10.7.0.53", 53);
const LOCAL: (&str, u16) = ("10.0.0.1", 40_000);

/// Programs under the policy of a run, and the readers' ends.
struct Bench {
    arena: Arena,
    dns: Ring<DnsRecord<'static>>,
    flows: Ring<FlowEvent>,
}

impl Bench {
    fn new(config_flags: u32, events_per_second: u32) -> Self {
        // Rings of one page, to be filled quickly.
        let sizes = Sizes { flow_ring: 4096, dns_ring: 4096, ..Sizes::run() };
        let mut arena = Arena::load_limited(config_flags | CONFIG_EVENTS, sizes, events_per_second);
        let state = Setup::named("run").state();
        arena.apply(&diff(&Desired::default(), state.desired())).expect("applied");
        let (dns, flows) = (arena.take_dns_ring(), arena.take_flow_ring());
        Self { arena, dns, flows }
    }
}

#[test]
fn urgent_records_wake_informing_ones_do_not_and_lost_ones_are_counted() {
    let mut bench = Bench::new(0, u32::MAX);
    only_what_waits_for_the_agent_wakes_it(&mut bench);
    an_urgent_record_wakes_past_unread_ones(&mut bench);
    what_does_not_fit_is_counted_and_changes_no_verdict(&mut bench);
}

#[test]
fn queries_for_slow_patterns_wake_and_floods_are_limited() {
    let mut bench = Bench::new(CONFIG_SLOW_PATTERNS, 10);
    a_query_for_a_slow_pattern_wakes_the_agent_before_the_answer(&mut bench);
    events_of_a_flood_are_limited_and_its_counters_exact(&mut bench);
}

/// Whether somebody who waits for the ring would be woken now.
fn awake(ring: &impl AsFd) -> bool {
    let mut fds = [PollFd::new(ring.as_fd(), PollFlags::POLLIN)];
    poll(&mut fds, PollTimeout::ZERO).expect("poll") == 1
}

/// How long a waiter waits.
const PATIENCE: Duration = Duration::from_secs(1);

/// Waits in another thread while `act` happens; true if it was woken before its time was over.
fn wakes(ring: &(impl AsFd + Sync), act: impl FnOnce()) -> bool {
    std::thread::scope(|scope| {
        let (ready, go) = std::sync::mpsc::channel();
        let waiter = scope.spawn(move || {
            let mut fds = [PollFd::new(ring.as_fd(), PollFlags::POLLIN)];
            ready.send(()).expect("heard");
            // Poll looks before it sleeps and once more when its time is over: only the time tells a wake-up.
            let start = Instant::now();
            let limit = PollTimeout::try_from(PATIENCE).expect("a short time");
            poll(&mut fds, limit).expect("poll") == 1 && start.elapsed() < PATIENCE
        });
        go.recv().expect("the waiter starts");
        asleep();
        act();
        waiter.join().expect("no panic")
    })
}

/// Waits until a thread of this process sleeps in poll.
fn asleep() {
    let calls = [libc::SYS_ppoll, libc::SYS_poll].map(|number| number.to_string());
    let sleeping = || {
        let tasks = std::fs::read_dir("/proc/self/task").expect("own threads");
        tasks.flatten().any(|task| {
            let call = std::fs::read_to_string(task.path().join("syscall")).unwrap_or_default();
            call.split(' ').next().is_some_and(|number| calls.iter().any(|c| c == number))
        })
    };
    let found = wait::until(Duration::from_secs(2), || sleeping().then_some(()));
    assert!(found.is_some(), "the waiter does not sleep");
}

fn query(arena: &Arena, id: u16, name: &str) -> u32 {
    let packet = Packet::udp(LOCAL, RESOLVER, &raw::query(id, name, rtype::A));
    arena.run("egret_egress", &packet.build())
}

fn answer(arena: &Arena, message: &[u8]) -> u32 {
    arena.run("egret_ingress", &Packet::udp(RESOLVER, LOCAL, message).build())
}

fn plain(id: u16, name: &str) -> Vec<u8> {
    raw::Message::new(id, raw::ANSWER).question(name, rtype::A).address(raw::QNAME, 60, "192.0.2.77").finish()
}

/// A TXT record among the answers: the kernel proves nothing.
fn slow(id: u16, name: &str) -> Vec<u8> {
    let message = raw::Message::new(id, raw::ANSWER).question(name, rtype::A);
    message.record(raw::QNAME, rtype::TXT, 60, b"\x01x").address(raw::QNAME, 60, "192.0.2.78").finish()
}

fn only_what_waits_for_the_agent_wakes_it(bench: &mut Bench) {
    let Bench { arena, dns: ring, .. } = bench;
    assert!(!wakes(ring, || assert_eq!(query(arena, 1, "api.example"), 1)), "a query informs");
    assert!(awake(ring), "a reader by the clock sees it");
    assert_eq!(ring.drain(|_| {}), 1);
    assert!(!wakes(ring, || assert_eq!(answer(arena, &plain(1, "api.example")), 1)), "learned: informs");
    let mut flags = Vec::new();
    ring.drain(|record| flags.push(record.event.flags));
    assert!(
        matches!(flags[..], [f] if f & (DNS_ASKED | DNS_LEARNED) == DNS_ASKED | DNS_LEARNED),
        "{flags:x?}"
    );
    assert_eq!(arena.endpoint_state(ENDPOINT).pending_until, 0, "nothing waits for the agent");

    // An informational record lies unread in the ring: the urgent one behind it still wakes.
    query(arena, 2, "api.example");
    query(arena, 3, "api.example");
    assert_eq!(ring.drain(|_| {}), 2);
    let before = arena.clock().expect("read");
    assert!(wakes(ring, || assert_eq!(answer(arena, &slow(2, "api.example")), 1)), "the agent has to look");
    let until = before.jiffies + u64::from(arena.hz()) / 2;
    assert!(arena.endpoint_state(ENDPOINT).pending_until >= until, "connects wait for it");
    let mut seen = Vec::new();
    ring.drain(|record| seen.push((record.event.flags, record.payload.to_vec())));
    assert!(matches!(&seen[..], [(f, payload)] if f & DNS_SLOW != 0 && *payload == slow(2, "api.example")));
}

fn an_urgent_record_wakes_past_unread_ones(bench: &mut Bench) {
    let Bench { arena, dns: ring, .. } = bench;
    ring.drain(|_| {});
    query(arena, 9, "api.example");
    let (mut events, epoll) = ([nix::sys::epoll::EpollEvent::empty()], edge_triggered(ring));
    epoll.wait(&mut events, 0u16).expect("the edge that the query made, if any");
    query(arena, 10, "api.example");
    assert_eq!(epoll.wait(&mut events, 0u16).expect("asked"), 0, "information makes no edge");
    answer(arena, &slow(9, "api.example"));
    assert_eq!(epoll.wait(&mut events, 1000u16).expect("asked"), 1, "urgency does");
}

/// As tokio waits.
fn edge_triggered(ring: &impl AsFd) -> nix::sys::epoll::Epoll {
    use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags};
    let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC).expect("epoll");
    epoll.add(ring.as_fd(), EpollEvent::new(EpollFlags::EPOLLIN | EpollFlags::EPOLLET, 1)).expect("added");
    epoll
}

fn a_query_for_a_slow_pattern_wakes_the_agent_before_the_answer(bench: &mut Bench) {
    let Bench { arena, dns: ring, .. } = bench;
    assert!(wakes(ring, || assert_eq!(query(arena, 1, "api.example"), 1)));
    assert_eq!(ring.drain(|_| {}), 1);
}

fn what_does_not_fit_is_counted_and_changes_no_verdict(bench: &mut Bench) {
    let Bench { arena, dns, flows } = bench;
    dns.drain(|_| {});
    flows.drain(|_| {});
    arena.clear("FLOWS");
    arena.clear("GRANTS");
    let packets = |arena: &Arena| arena.counters(ENDPOINT).iter().map(|row| row.packets).sum::<u64>();
    let (before, mut sent) = (packets(arena), 0u16);
    while arena.lost().flow_events == 0 || arena.lost().dns_events == 0 {
        sent += 1;
        assert!(sent < 1000, "rings of a page are full by now: {:?}", arena.lost());
        assert_ne!(arena.run("egret_egress", &denied(sent)), 1);
        assert_eq!(query(arena, sent, "api.example"), 1);
    }
    // A full ring teaches as well as an empty one.
    query(arena, 2000, "api.example");
    assert_eq!(answer(arena, &plain(2000, "api.example")), 1);
    assert_eq!(arena.grants().len(), 1);
    let lost = arena.lost();
    let seen = (flows.drain(|_| {}) as u64, dns.drain(|_| {}) as u64);
    // Every denied packet and the one flow of the queries made a record; every DNS message, too.
    assert_eq!(seen.0 + lost.flow_events, u64::from(sent) + 1);
    assert_eq!(seen.1 + lost.dns_events, u64::from(sent) + 2);
    assert_eq!(packets(arena) - before, 2 * u64::from(sent) + 2, "counters are exact");
}

fn events_of_a_flood_are_limited_and_its_counters_exact(bench: &mut Bench) {
    let Bench { arena, flows, .. } = bench;
    flows.drain(|_| {});
    for port in 1..=500 {
        assert_ne!(arena.run("egret_egress", &denied(port)), 1);
    }
    let reason = DropReason::NameUnresolved as u8;
    let seen = flows.drain(|event| assert_eq!(event.reason, reason)) as u64;
    let row = arena.counters(ENDPOINT).into_iter().find(|row| row.reason == reason).expect("counted");
    assert_eq!((row.packets, row.events_suppressed + arena.lost().flow_events), (500, 500 - seen));
    // Ten per second and CPU; the run may last a few seconds and move between CPUs.
    assert!((10..250).contains(&seen), "{seen} events");
}

/// A connect from this port to an address that no name stands for.
fn denied(port: u16) -> Vec<u8> {
    Packet::tcp(("10.0.0.1", port), ("198.51.100.9", 443), tcp::SYN).build()
}
