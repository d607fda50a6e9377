//! Writing grants beside the learner: the longest lifetime stays, a sweep undoes nothing that is live, and a full
//! table is a named, counted denial. One test for all cases, since loading the programs takes seconds.

use std::sync::atomic::{AtomicBool, Ordering};

use egret::datapath::Sizes;
use egret_common::{
    grant,
    ids::CLASS_NAME_BASE,
    maps::{CONFIG_EVENTS, GRANT_SLOTS, GrantKey},
    net::{Addr, Direction},
    verdict::DropReason,
};
use egret_tests::arena::{Arena, ENDPOINT};
use egret_tests::dnsd::raw::{self, rtype};
use egret_tests::model::{
    Pair,
    setup::{Setup, class_of},
};
use egret_tests::packet::{Packet, tcp};

const LOCAL: (&str, u16) = ("10.0.0.1", 40_000);
const RESOLVER: (&str, u16) = ("10.7.0.53", 53);

/// Entries of `GRANTS` here.
const ROOM: u32 = 256;
/// Name and steps.
type Case = (&'static str, fn(&mut Pair));

/// The cases, each from an empty table.
const CASES: [Case; 5] = [
    ("the longest lifetime", the_longest_lifetime_stays_whoever_comes_last),
    ("a sweep", a_sweep_removes_what_is_over_and_nothing_else),
    ("races", grants_and_sweeps_race_with_the_learner),
    ("L-A03", l_a03_a_full_table_is_counted_and_named_and_harms_nobody_else),
    ("eight names", an_address_takes_eight_names_and_counts_the_ninth),
];

#[test]
fn l_a03_grants_come_go_and_find_no_room() {
    let state = Setup::named("run").state();
    let mut pair = Pair::new(state.desired().clone(), CONFIG_EVENTS, Sizes { grants: ROOM, ..Sizes::run() });
    for (name, case) in CASES {
        eprintln!("{name}");
        case(&mut pair);
        pair.arena.clear("GRANTS");
    }
}

fn v4(last: u8) -> Addr {
    Addr::from_v4([192, 0, 2, last])
}

/// The kernel learns these addresses under api.example.
fn learn(arena: &Arena, id: u16, addresses: &[String]) {
    let question = Packet::udp(LOCAL, RESOLVER, &raw::query(id, "api.example", rtype::A));
    assert_eq!(arena.run("egret_egress", &question.build()), 1);
    let mut message = raw::Message::new(id, raw::ANSWER).question("api.example", rtype::A);
    for address in addresses {
        message = message.address(raw::QNAME, 60, address);
    }
    assert_eq!(arena.run("egret_ingress", &Packet::udp(RESOLVER, LOCAL, &message.finish()).build()), 1);
}

fn ticks_now(arena: &Arena) -> u32 {
    grant::ticks(arena.clock().expect("read").boot_ns)
}

fn the_longest_lifetime_stays_whoever_comes_last(pair: &mut Pair) {
    let arena = &pair.arena;
    let class = class_of(&Setup::named("run").state(), "api.example");
    let now = ticks_now(arena);
    assert!(arena.grant(ENDPOINT, v4(1), class, now + 5000).expect("runs"));
    assert!(arena.grant(ENDPOINT, v4(1), class, now + 100).expect("runs"), "a shorter one is no error");
    assert!(arena.grant(ENDPOINT, v4(1), class, now + 6000).expect("runs"));
    let key = GrantKey { addr: v4(1), endpoint: ENDPOINT, pad: 0 };
    let grants = arena.grants();
    assert_eq!((grants.len(), grants[0].0), (1, key));
    let mut slots = [0; GRANT_SLOTS];
    slots[0] = grant::pack(class, now + 6000);
    assert_eq!(grants[0].1.slots, slots);
}

fn an_address_takes_eight_names_and_counts_the_ninth(pair: &mut Pair) {
    let arena = &pair.arena;
    let (now, full) = (ticks_now(arena), arena.endpoint_state(ENDPOINT).map_full);
    for class in 1..=GRANT_SLOTS as u32 {
        assert!(arena.grant(ENDPOINT, v4(1), CLASS_NAME_BASE + class, now + 5000).expect("runs"));
    }
    assert!(!arena.grant(ENDPOINT, v4(1), CLASS_NAME_BASE + 99, now + 5000).expect("runs"));
    assert_eq!(arena.endpoint_state(ENDPOINT).map_full, full + 1);
    assert!(
        arena.grant(ENDPOINT, v4(2), CLASS_NAME_BASE + 99, now + 5000).expect("runs"),
        "others are unaffected"
    );
}

fn a_sweep_removes_what_is_over_and_nothing_else(pair: &mut Pair) {
    let arena = &pair.arena;
    let (class, now) = (CLASS_NAME_BASE + 1, ticks_now(arena));
    for n in 0..100 {
        let ends = if n % 2 == 0 { now - 100 } else { now + 1000 };
        assert!(arena.grant(ENDPOINT, v4(n), class, ends).expect("runs"));
    }
    // Over under one name, live under another.
    assert!(arena.grant(ENDPOINT, v4(0), class + 1, now + 1000).expect("runs"));
    assert_eq!(arena.sweep(now - 200), 0, "not over for long enough");
    assert_eq!(arena.sweep(now - 50), 49);
    assert_eq!(arena.grants().len(), 51);
    assert_eq!(arena.sweep(now - 50), 0);
}

/// The agent prolongs and sweeps while answers arrive, on both CPUs: a lifetime never shrinks, nothing live goes.
fn grants_and_sweeps_race_with_the_learner(pair: &mut Pair) {
    let arena = &pair.arena;
    let class = class_of(&Setup::named("run").state(), "api.example");
    let (done, far) = (AtomicBool::new(false), ticks_now(arena) + 100_000);
    let full = arena.endpoint_state(ENDPOINT).map_full;
    let addresses: Vec<String> = (1..=40).map(|n| format!("192.0.2.{n}")).collect();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for round in 0..300 {
                learn(arena, round, &addresses);
            }
            done.store(true, Ordering::Release);
        });
        scope.spawn(|| {
            for n in 1..=40 {
                assert!(arena.grant(ENDPOINT, v4(n), class, far).expect("runs"));
            }
            let mut ended = 1u8;
            while !done.load(Ordering::Acquire) {
                // Entries that are over come and go beside the live ones.
                ended = if ended == 255 { 100 } else { (ended + 1).max(100) };
                assert!(arena.grant(ENDPOINT, v4(ended), class, 1).expect("runs"));
                arena.sweep(ticks_now(arena).saturating_sub(10));
            }
        });
    });
    let live: Vec<_> =
        arena.grants().into_iter().filter(|(key, _)| key.addr < v4(0) || is_low(key.addr)).collect();
    assert_eq!(live.len(), 40, "{live:?}");
    for (key, grants) in live {
        let ends =
            grants.slots.iter().filter(|s| grant::class(**s) == class).map(|s| grant::expires(*s)).max();
        assert_eq!(ends, Some(far), "{key:?}: {grants:x?}");
        assert_eq!(grants.slots.iter().filter(|slot| **slot != 0).count(), 1, "one slot per name");
    }
    assert_eq!(arena.endpoint_state(ENDPOINT).map_full, full);
}

fn is_low(addr: Addr) -> bool {
    (1..=40).contains(&(addr.v4_bits() & 0xff))
}

fn l_a03_a_full_table_is_counted_and_named_and_harms_nobody_else(pair: &mut Pair) {
    let class = class_of(&Setup::named("run").state(), "api.example");
    pair.catch_up();
    let full = pair.arena.endpoint_state(ENDPOINT).map_full;
    let now = pair.now();
    let syn = |to: &str| Packet::tcp(("10.0.0.1", 50_000), (to, 443), tcp::SYN).build();
    let denied = pair.packet(Direction::Egress, &syn("198.51.100.200"));
    assert_eq!(denied.flow.expect("an event").reason, DropReason::NameUnresolved as u8);
    for n in 0..=255u8 {
        assert!(pair.grant(Addr::from_v4([198, 51, 99, n]), class, now + 10_000), "{n}");
    }
    assert!(!pair.grant(Addr::from_v4([198, 51, 100, 200]), class, now + 10_000), "no room");
    assert_eq!(pair.arena.endpoint_state(ENDPOINT).map_full, full + 1);
    // The learner meets the same wall; its answer passes.
    learn_one(pair, "198.51.100.201");
    assert_eq!(pair.arena.endpoint_state(ENDPOINT).map_full, full + 2);
    let denied = pair.packet(Direction::Egress, &syn("198.51.100.201"));
    assert_eq!((denied.value, denied.flow.expect("an event").reason), (0, DropReason::MapFull as u8));
    let open = pair.packet(Direction::Egress, &syn("198.51.99.7"));
    assert_eq!(open.value, 1, "who has a grant keeps it");
    // Expired entries make room again.
    pair.settle();
    for n in 0..8u8 {
        let key = GrantKey { addr: Addr::from_v4([198, 51, 99, n]), endpoint: ENDPOINT, pad: 0 };
        assert!(pair.model.grants.contains_key(&key));
    }
    assert_eq!(pair.arena.sweep(now + 20_000), 256);
    pair.model.grants.clear();
    assert!(pair.grant(Addr::from_v4([198, 51, 100, 200]), class, now + 10_000));
    assert_eq!(pair.packet(Direction::Egress, &syn("198.51.100.200")).value, 1);
    pair.settle();
}

fn learn_one(pair: &mut Pair, address: &str) {
    let question = Packet::udp(LOCAL, RESOLVER, &raw::query(1, "api.example", rtype::A)).build();
    assert_eq!(pair.packet(Direction::Egress, &question).value, 1);
    let message = raw::Message::new(1, raw::ANSWER).question("api.example", rtype::A);
    let message = message.address(raw::QNAME, 60, address).finish();
    let outcome = pair.packet(Direction::Ingress, &Packet::udp(RESOLVER, LOCAL, &message).build());
    assert_eq!((outcome.value, outcome.dns[0].0.granted), (1, 0));
}
