//! A ring, an exporter and a file.

use std::fs;
use std::time::Instant;

use egret_core::flow::Ring;

use super::*;
use crate::flows::read::tests::full;

fn entry(uuid: u128) -> Entry {
    Entry::Flow(Arc::new(egret_core::flow::Flow { uuid, ..full() }))
}

fn options(to: &str) -> ExportOptions {
    ExportOptions {
        to: Destination::File(to.into()),
        max_size: 1 << 30,
        backups: 1,
        compress: false,
        allow: Vec::new(),
        deny: Vec::new(),
        fields: Vec::new(),
    }
}

/// Gives these flows to a ring of 7, then ends. How long that took, and how the export was.
fn run(options: ExportOptions, flows: u128) -> (Duration, Arc<Condition>) {
    let mut export = Export::start(options).expect("started");
    let condition = export.condition.clone();
    let store = Arc::new(Store::new(Ring::new(7).expect("a ring"), None));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().expect("one");
    let begun = Instant::now();
    runtime.block_on(async {
        let mut exporter = export.exporter(&store, "n1").expect("one");
        let (feed, queue) = mpsc::channel(1);
        let feeding = async {
            for uuid in 1..=flows {
                feed.send(entry(uuid)).await.expect("taken");
                tokio::task::yield_now().await;
            }
            drop(feed);
        };
        tokio::select! {
            ((), ()) = async { tokio::join!(store.fill(queue), feeding) } => {}
            () = exporter.run() => panic!("it ended"),
        }
        exporter.finish().await;
    });
    let took = begun.elapsed();
    drop(export);
    (took, condition)
}

#[test]
fn every_flow_becomes_a_line() {
    let path = std::env::temp_dir().join(format!("egret-export-{}-lines.json", std::process::id()));
    let only = FlowFilter { uuid: (2..=5).map(|n: u128| uuid(n)).collect(), ..Default::default() };
    let but = FlowFilter { uuid: vec![uuid(4)], ..Default::default() };
    let options =
        ExportOptions { allow: vec![only], deny: vec![but], ..options(&path.display().to_string()) };
    let (_, condition) = run(options, 6);
    let text = fs::read_to_string(&path).expect("written");
    fs::remove_file(&path).expect("removed");
    let read = text.lines().map(|line| json::read_response(line).expect("JSON"));
    let ids: Vec<String> = read
        .map(|answer| match answer.response_types {
            Some(super::super::proto::observer::get_flows_response::ResponseTypes::Flow(flow)) => flow.uuid,
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(ids, [uuid(2), uuid(3), uuid(5)]);
    assert_eq!((condition.lost(), condition.trouble()), (0, None));
}

fn uuid(n: u128) -> String {
    egret_core::flow::Flow { uuid: n, ..full() }.uuid_text()
}

#[test]
fn a_full_disk_is_counted_and_told() {
    // A file in a folder that there is not has the same way through the code, and needs no disk.
    let (_, condition) = run(options("/nowhere/flows.json"), 5);
    assert_eq!(condition.lost(), 5);
    assert!(
        condition.trouble().is_some_and(|t| t.contains("/nowhere/flows.json") && t.contains("No such file"))
    );
}

#[test]
fn options_are_checked() {
    let good = options("/x");
    assert_eq!(good.check(), Ok(()));
    let bad = FlowFilter { source_ip: vec!["x".into()], ..Default::default() };
    assert!(ExportOptions { deny: vec![bad], ..good.clone() }.check().is_err());
    assert!(ExportOptions { fields: vec!["nothing".into()], ..good }.check().is_err());
}

/// Ends an export of a full ring. What the disk took, which takes a batch when `disk` lets it; and how the export was.
fn end(disk: impl Fn() -> bool + Send + 'static) -> (u64, Arc<Condition>) {
    const FLOWS: u64 = 511;
    let (lines, mut queue) = mpsc::channel::<Batch>(1);
    let (ended_now, ended) = done::channel();
    let condition = Arc::new(Condition::default());
    let (written, settling) = (Arc::new(std::sync::atomic::AtomicU64::new(0)), condition.clone());
    let writing = written.clone();
    thread::spawn(move || {
        while disk()
            && let Some(batch) = queue.blocking_recv()
        {
            settling.settle(batch.lines);
            writing.fetch_add(batch.lines, std::sync::atomic::Ordering::Relaxed);
        }
        let _ = ended_now.send(());
        // It hangs.
        thread::sleep(Duration::from_secs(10));
        drop(queue);
    });
    let store = Arc::new(Store::new(Ring::new(4095).expect("a ring"), None));
    let mut export =
        Export { options: options("/x"), lines: Some(lines), ended, condition: condition.clone() };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().expect("one");
    runtime.block_on(async {
        let mut exporter = export.exporter(&store, "n1").expect("one");
        let (feed, queue) = mpsc::channel(4095);
        (1..=FLOWS).for_each(|n| feed.try_send(entry(n.into())).expect("room"));
        drop(feed);
        store.fill(queue).await;
        exporter.finish().await;
    });
    drop(export);
    (written.load(std::sync::atomic::Ordering::Relaxed), condition)
}

#[test]
fn the_end_is_exported_or_counted() {
    let slow = || {
        thread::sleep(Duration::from_millis(2));
        true
    };
    let (written, condition) = end(slow);
    assert_eq!((written, condition.lost()), (511, 0));
    let begun = Instant::now();
    let (written, condition) = end(|| false);
    assert_eq!((written, condition.lost()), (0, 511), "nothing is taken");
    assert!(begun.elapsed() < Duration::from_secs(5));
}
