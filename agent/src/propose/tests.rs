//! Options, files and what is said; flows themselves are tested in the core.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use egret_common::verdict::Verdict;
use egret_core::flow::{Entry, Flow, L4, Lost, LostSource, ServiceRef, Side};
use egret_core::propose::Choice;

use super::*;
use crate::api;
use crate::cli::{Command, parse_from};
use crate::flows::read::tests::full;
use crate::observe::{json, message};

fn args(line: &str) -> Result<LearnArgs, u8> {
    let args = ["egret", "learn"].into_iter().chain(line.split_whitespace());
    match parse_from(args)?.command {
        Command::Learn(args) => Ok(*args),
        other => panic!("{other:?}"),
    }
}

/// The code with which a line ends; its files are in `dir`.
fn run(dir: &Path, line: &str) -> u8 {
    let line = line.replace('@', &format!("{}/", dir.display()));
    args(&line).map_or_else(|code| code, |args| learn(&args).unwrap_or_else(|refusal| refusal.code))
}

fn line(entry: &Entry) -> String {
    json::response(&message::response(entry, "n1", None)) + "\n"
}

/// A connection of `shop/web` to a Service.
fn flow(change: impl FnOnce(&mut Flow)) -> String {
    let mut flow =
        Flow { verdict: Verdict::Forwarded, reason: None, why: None, is_reply: Some(false), ..full() };
    flow.source.labels = ["k8s:app=web", "k8s:io.kubernetes.pod.namespace=shop"].map(str::to_owned).into();
    flow.destination = Side {
        ip: Some([10, 96, 0, 80].into()),
        service: Some(ServiceRef { namespace: "shop".into(), name: "api".into() }),
        ..Side::default()
    };
    flow.l4 = L4::Tcp { ports: (40_000, 80), flags: 2 };
    change(&mut flow);
    line(&Entry::Flow(Arc::new(flow)))
}

fn services() -> Vec<api::Service> {
    let labels = ["k8s:app=api", "k8s:io.kubernetes.pod.namespace=shop"].map(str::to_owned).to_vec();
    let backends = vec![api::Backend { ip: [10, 244, 0, 12].into(), port: 8080, labels }];
    vec![api::Service { vip: [10, 96, 0, 80].into(), port: 80, proto: "tcp".into(), backends }]
}

fn folder(name: &str) -> PathBuf {
    let dir = std::env::temp_dir().join(format!("egret-learn-{}-{name}", std::process::id()));
    fs::create_dir_all(&dir).expect("a folder");
    dir
}

#[test]
fn usage_errors_leave_with_64() {
    let dir = folder("usage");
    for bad in [
        "",
        "--pod web",
        "--pod /web",
        "-l app=web",
        "-n shop -l app",
        "-n shop -l app=a\u{1b}",
        "-n shop --pod shop/web",
        "--workload shop/web",
        "-A --wildcard 1",
        "-A --last 0",
        "-A --last 1 --since 1m",
        "-A --since yesterday --input-file @none",
        "-A --for 0s",
        "-A --for x",
        "-A --for 1s --input-file @none",
        "-A --cluster-domain -x",
        "-A --server nowhere",
        "--check @none --output @x",
        "-A --name Web",
        "-A --name -web",
    ] {
        assert_eq!(run(&dir, bad), exit::USAGE, "{bad}");
    }
    let names = |line: &str| choose::choice(&args(line).expect(line)).expect(line);
    let labels = [("app".to_owned(), "web".to_owned()), ("tier".to_owned(), "a".to_owned())].into();
    let namespace = || "shop".to_owned();
    let want = Choice::Labels { namespace: namespace(), labels };
    assert_eq!(names("-n shop -l app=web,tier==a"), want);
    let wanted = choose::filters(&want);
    assert_eq!(wanted.len(), 2);
    assert_eq!(
        (&*wanted[0].source_pod, &*wanted[0].source_label),
        (&["shop/".to_owned()][..], &["app=web,tier=a".to_owned()][..])
    );
    assert_eq!(names("--check x"), Choice::All);
    assert!(choose::filters(&Choice::All).is_empty());
    let workload = Choice::Workload { namespace: namespace(), kind: "Deployment".into(), name: "web".into() };
    assert_eq!(names("--workload shop/Deployment/web"), workload);
    fs::remove_dir_all(dir).expect("removed");
}

#[test]
fn a_file_is_learned_from_and_replayed() {
    let dir = folder("file");
    let lost = Lost { source: LostSource::Kernel, count: 5, first: 1, last: 2 };
    let text = [
        flow(|_| ()),
        "{\"agent_event\":{\"type\":\"AGENT_STARTED\"}}\n".into(),
        line(&Entry::Lost(lost)),
        "{\"flow\":{\"verdict\":\"FORWARDED\",\"event_type\":{\"type\":4}}}\n".into(),
        "not JSON\n".into(),
    ];
    let mut record = record::Record::create(&dir.join("services")).expect("created");
    record.services(&services()).expect("written");
    record.end().expect("written");
    let known = fs::read_to_string(dir.join("services")).expect("written");
    fs::write(dir.join("flows"), text.concat() + &known).expect("written");
    assert_eq!(run(&dir, "--pod shop/web --input-file @flows --output @policy.yaml"), 0);
    let policy = fs::read_to_string(dir.join("policy.yaml")).expect("written");
    let head =
        "# Learned from flows: 1, of them by audit only: 0\n# 5 flows were lost: the policy may lack rules\n";
    assert!(policy.starts_with(head), "{policy}");
    assert!(policy.contains("\"k8s:app\": api") && policy.contains("port: \"8080\""), "{policy}");
    assert_eq!(run(&dir, "--check @policy.yaml --input-file @flows"), 0);
    // Without what is behind the Service nothing can be opened, and so nothing passes.
    fs::write(dir.join("alone"), flow(|_| ())).expect("written");
    assert_eq!(run(&dir, "--pod shop/web --input-file @alone --output @closed.yaml"), 0);
    let closed = fs::read_to_string(dir.join("closed.yaml")).expect("written");
    assert!(
        closed.contains("# Not written: what is behind Service shop/api") && closed.contains("- {}"),
        "{closed}"
    );
    assert_eq!(run(&dir, "--check @closed.yaml --input-file @flows"), exit::WOULD_DENY);
    fs::remove_dir_all(dir).expect("removed");
}

#[test]
fn what_is_wrong_has_its_code() {
    let dir = folder("codes");
    fs::write(dir.join("flows"), flow(|_| ())).expect("written");
    fs::write(dir.join("odd"), "x\n").expect("written");
    fs::write(dir.join("policy"), "kind: Pod\n").expect("written");
    for (line, code) in [
        ("-A --input-file @none", exit::NO_INPUT),
        ("-A --input-file @odd", exit::DATA_ERROR),
        ("-A --input-file @flows --since 2099-01-01", exit::UNAVAILABLE),
        ("--pod shop/other --input-file @flows", exit::UNAVAILABLE),
        ("-n other --input-file @flows", exit::UNAVAILABLE),
        ("--workload shop/Job/web --input-file @flows", exit::UNAVAILABLE),
        ("--workload shop/Deployment/web --input-file @flows --output @ok", 0),
        ("-A --input-file @flows --output @none/x", exit::CANNOT_CREATE),
        ("-A --server unix://@none/x --record @none/x", exit::CANNOT_CREATE),
        ("-A --server unix:@none", exit::UNAVAILABLE),
        ("--check @none --input-file @flows", exit::NO_INPUT),
        ("--check @policy --input-file @flows", exit::DATA_ERROR),
    ] {
        assert_eq!(run(&dir, line), code, "{line}");
    }
    fs::remove_dir_all(dir).expect("removed");
}
