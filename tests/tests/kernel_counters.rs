//! Sums over all endpoints, read from another thread: exact at every moment, whatever becomes of the endpoints.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::time::Duration;

use egret::datapath::{CounterRow, Grants, Reader, Sizes, Totals};
use egret_common::maps::{Endpoint, GRANT_SLOTS};
use egret_common::net::Direction;
use egret_common::verdict::FORWARDED;
use egret_core::compile::addr;
use egret_core::desired::{Desired, diff};
use egret_tests::arena::Arena;
use egret_tests::packet::Packet;
use egret_tests::wait;

/// Below, at and behind what one system call reads; the last one is the highest that an endpoint can have.
const IDS: [u32; 4] = [1, 31, 40, 298];
const SIZES: Sizes = Sizes { endpoints: 300, ..Sizes::run() };
/// Sums that are read while endpoints count and go.
const READS: u64 = 50;
/// Counts do not move for so long.
const LIMIT: Duration = Duration::from_secs(5);
/// IPv4, UDP, payload.
const BYTES: u64 = 20 + 8 + 4;

fn load() -> Arena {
    let mut arena = Arena::load(0, SIZES);
    let endpoints = IDS.map(|id| (id, Endpoint { id, ..Endpoint::default() }));
    let desired = Desired { endpoints: BTreeMap::from(endpoints), ..Desired::default() };
    arena.apply(&diff(&Desired::default(), &desired)).expect("written");
    arena
}

/// One packet of this endpoint passes.
fn count(arena: &mut Arena, id: u32) {
    let home = arena.cgroup().to_owned();
    arena.bind_cgroup(&home, id).expect("bound");
    let packet = Packet::udp(("10.0.0.1", 4000), ("192.0.2.1", 4000), b"ping").build();
    assert_eq!(arena.run("egret_egress", &packet), 1);
}

/// The sums. Where counts moved all the time there are none, and whoever reads them asks again, as the page does.
fn totals(reader: &mut Reader) -> Totals {
    let read = || reader.totals().expect("read");
    wait::until(wait::patient(LIMIT), read).expect("between two moves")
}

fn row(packets: u64) -> CounterRow {
    let (direction, bytes) = (Direction::Egress, packets * BYTES);
    CounterRow { direction, reason: FORWARDED, packets, bytes, events_suppressed: 0 }
}

#[test]
fn sums_are_exact_while_endpoints_count_and_go() {
    let mut arena = load();
    assert_eq!(SIZES.gone(), Some(299));
    // What an earlier agent left: a reader that begins knows of no endpoint.
    IDS.iter().for_each(|id| count(&mut arena, *id));
    let mut reader = arena.reader().expect("opened");
    assert_eq!(totals(&mut reader).rows, [row(4)]);
    let (sent, reads) = (AtomicU64::new(4), AtomicU64::new(0));
    std::thread::scope(|scope| {
        let watcher = scope.spawn(|| {
            while reads.fetch_add(1, SeqCst) < READS {
                let least = sent.load(SeqCst);
                let seen = totals(&mut reader).rows;
                // One may have been counted and not been told of yet.
                let most = sent.load(SeqCst) + 1;
                let fits = |packets| (least..=most).contains(&packets) && seen == [row(packets)];
                assert!(seen.first().is_some_and(|first| fits(first.packets)), "{least}..{most}: {seen:?}");
            }
        });
        for id in IDS.into_iter().cycle() {
            count(&mut arena, id);
            // A read takes milliseconds: most of them fit between two moves, and some do not.
            if sent.fetch_add(1, SeqCst) % 512 == 0 {
                arena.purge(&|gone| IDS.contains(&gone), &IDS);
            }
            if watcher.is_finished() {
                break;
            }
        }
        watcher.join().expect("no sum was wrong");
    });
    arena.purge(&|gone| IDS.contains(&gone), &IDS);
    let sent = sent.into_inner();
    assert!(sent > 2 * READS, "{sent} while {READS} were read");
    assert_eq!(totals(&mut reader).rows, [row(sent)]);
    assert!(IDS.iter().all(|id| arena.counters(*id).is_empty()), "new owners begin with nothing");
    assert_eq!(arena.counters(299), [row(sent)]);
    // The next reader, of the next agent.
    assert_eq!(totals(&mut arena.reader().expect("opened")).rows, [row(sent)]);
}

#[test]
fn grants_are_counted_and_what_found_no_room_stays_counted() {
    let mut arena = load();
    let mut reader = arena.reader().expect("opened");
    let address = addr("192.0.2.7".parse().expect("an address"));
    let slots = GRANT_SLOTS as u32;
    for class in 1..=slots {
        assert!(arena.grant(40, address, class, 1_000 + class).expect("asked"), "there is room");
    }
    assert!(arena.grant(31, address, 1, u32::MAX).expect("asked"), "another endpoint");
    assert_eq!(reader.grants(1_004), Grants { live: 5, expired: 4 });
    // In the kernel's own time those of 40 are over or live; far in the future none of them has room for a ninth.
    for class in 1..=slots {
        arena.grant(40, address, class, u32::MAX - class).expect("asked");
    }
    assert!(!arena.grant(40, address, 99, u32::MAX).expect("asked"), "there is none");
    assert_eq!((totals(&mut reader).no_room, reader.grants(1_004)), (1, Grants { live: 9, expired: 0 }));
    arena.purge(&|id| id == 40, &[40]);
    assert_eq!((totals(&mut reader).no_room, reader.grants(1_004)), (1, Grants { live: 1, expired: 0 }));
    assert_eq!(arena.endpoint_state(40).map_full, 0);
    let fill = reader.fill();
    let grants = fill.iter().find(|map| map.name == "GRANTS").expect("among them");
    assert_eq!((grants.entries, grants.capacity), (1, SIZES.grants as usize));
    assert_eq!(fill, arena.fill());
}
