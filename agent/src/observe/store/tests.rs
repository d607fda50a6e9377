//! The queue's end and readers on one runtime.

use std::time::Duration;

use egret_core::flow::{Lost, LostSource};
use tokio::time::timeout;

use super::*;
use crate::observe::join;

const SOON: Duration = Duration::from_secs(5);

fn entry(time: u64) -> Entry {
    let event = egret_common::event::FlowEvent { time, ..join::tests::event() };
    let common = join::Common { node: Arc::default(), clock: 0 };
    let flow = join::flows(&event, &join::tests::Nobody, &common).remove(0);
    Entry::Flow(Arc::new(flow))
}

/// Times; `-n` for n lost.
fn time(entry: Option<Entry>) -> Option<i64> {
    entry.map(|entry| match entry {
        Entry::Flow(flow) => flow.time as i64,
        Entry::Lost(lost) => -(lost.count as i64),
    })
}

#[tokio::test]
async fn a_follower_is_woken_and_told_what_it_missed() {
    let store = Arc::new(Store::new(Ring::new(3).expect("a size"), None));
    let (queue, entries) = mpsc::channel(64);
    let filled = store.clone();
    let work = async move {
        let follow = Query { follow: true, ..Query::default() };
        let mut reading = store.read(follow, Filters::default()).expect("valid");
        assert!(timeout(Duration::from_millis(50), reading.next()).await.is_err(), "nothing yet");
        queue.send(entry(1)).await.expect("room");
        let next = timeout(SOON, reading.next()).await.expect("woken");
        assert_eq!(time(next), Some(1));
        for n in 2..=8 {
            queue.send(entry(n)).await.expect("room");
        }
        let lost = Lost { source: LostSource::Kernel, count: 100, first: 0, last: 0 };
        queue.send(Entry::Lost(lost)).await.expect("room");
        // Until all are in the ring.
        let full = || store.status().seen == 8 && store.lock().ring.end() == 9;
        while !full() {
            tokio::task::yield_now().await;
        }
        let mut seen = Vec::new();
        for _ in 0..4 {
            seen.extend(time(timeout(SOON, reading.next()).await.expect("there")));
        }
        assert_eq!(seen, [-5, 7, 8, -100]);
        let fill = store.status();
        assert_eq!((fill.flows, fill.most, fill.seen), (3, 3, 8));
        let mut whole = store.read(Query::default(), Filters::default()).expect("valid");
        let mut rest = Vec::new();
        while let Some(entry) = whole.next().await {
            rest.extend(time(Some(entry)));
        }
        assert_eq!(rest, [7, 8, -100]);
        drop(queue);
    };
    let fill = filled.fill(entries);
    timeout(SOON, async { tokio::join!(fill, work) }).await.expect("in time");
}

/// A store with a flow at each of these times.
async fn full(times: std::ops::RangeInclusive<u64>) -> Arc<Store> {
    let store = Arc::new(Store::new(Ring::new(1023).expect("a size"), None));
    let (queue, entries) = mpsc::channel(1023);
    times.for_each(|time| queue.try_send(entry(time)).expect("room"));
    drop(queue);
    store.fill(entries).await;
    store
}

#[tokio::test]
async fn whoever_else_is_served_comes_in_between() {
    let store = full(1..=1000).await;
    for number in [0, 7] {
        // Neither the way back nor the way forward finds anything.
        let no = egret_core::flow::FlowFilter { verdict: vec![99], ..Default::default() };
        let filters = Filters::new(&[no], &[]).expect("valid");
        let mut reading = store.read(Query { number, ..Query::default() }, filters).expect("valid");
        let mut turns = 0;
        let others = async {
            loop {
                turns += 1;
                yield_now().await;
            }
        };
        let seen = async { reading.next().await };
        tokio::select! {
            biased;
            seen = seen => assert_eq!(seen, None),
            () = others => panic!("it goes on for ever"),
        }
        assert!(turns > 2 * 1000 / 64, "{turns}");
    }
}

#[tokio::test]
async fn the_newest_are_found_without_waiting() {
    let store = full(1..=1000).await;
    let times = |store: &Store| -> Vec<u64> {
        let found = store.newest(|flow| flow.time.is_multiple_of(2));
        found.iter().map(|flow| flow.time).collect()
    };
    let want: Vec<u64> = (1..=500).rev().map(|half| half * 2).collect();
    assert_eq!(times(&store), want);
    let held = store.lock();
    let asking = store.clone();
    let (found, asked) = std::sync::mpsc::channel();
    thread::spawn(move || found.send(asking.newest(|_| true)));
    assert_eq!(asked.recv_timeout(SOON), Ok(Vec::new()), "somebody else holds the ring");
    drop(held);
}
