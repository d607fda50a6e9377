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

#[test]
fn what_goes_to_a_proxy_has_passed() {
    let dir = folder("proxy");
    let line = flow(|_| ());
    assert!(line.contains("\"verdict\":\"FORWARDED\""), "{line}");
    fs::write(dir.join("flows"), line.replace("\"FORWARDED\"", "\"REDIRECTED\"") + &known())
        .expect("written");
    assert_eq!(run(&dir, "--pod shop/web --input-file @flows --output @policy.yaml"), 0);
    let policy = fs::read_to_string(dir.join("policy.yaml")).expect("written");
    assert!(policy.contains("flows: 1,") && policy.contains("port: \"8080\""), "{policy}");
    assert_eq!(run(&dir, "--check @policy.yaml --input-file @flows"), 0);
    // The packet that is sent there is no verdict.
    let trace = line.replace("\"FORWARDED\"", "\"REDIRECTED\"").replace("\"type\":5", "\"type\":4");
    fs::write(dir.join("trace"), trace).expect("written");
    assert_eq!(run(&dir, "--pod shop/web --input-file @trace"), exit::UNAVAILABLE);
    fs::remove_dir_all(dir).expect("removed");
}

/// The lines about Services of a record.
fn known() -> String {
    let dir = folder("known");
    let path = dir.join(format!("{:?}", std::thread::current().id()));
    let mut record = record::Record::create(&path).expect("created");
    record.services(&services()).expect("written");
    record.end().expect("written");
    fs::read_to_string(path).expect("written")
}

#[test]
fn flows_that_say_little_have_their_code() {
    let dir = folder("little");
    let short = |f: &mut Flow| {
        f.source.namespace = "shop".into();
        f.source.labels = ["k8s:app=web".to_owned()].into();
    };
    fs::write(dir.join("short"), flow(short) + &known()).expect("written");
    fs::write(dir.join("bare"), flow(|f| f.source.labels = [].into())).expect("written");
    let own = ["k8s:io.kubernetes.pod.namespace=shop", "k8s:io.cilium.k8s.policy.serviceaccount=default"];
    fs::write(dir.join("unnamed"), flow(|f| f.source.labels = own.map(str::to_owned).into()))
        .expect("written");
    assert_eq!(run(&dir, "--pod shop/web --input-file @short --output @policy.yaml"), 0);
    assert_eq!(run(&dir, "--check @policy.yaml --input-file @short"), 0);
    for (line, part) in [
        ("--check @policy.yaml --input-file @bare", "the flows carry no labels"),
        ("-A --input-file @bare", "the flows carry no labels"),
        ("-A --input-file @unnamed", "shop/web has no label of its own: label it first"),
    ] {
        let refusal =
            learn(&args(&line.replace('@', &format!("{}/", dir.display()))).expect(line)).expect_err(line);
        assert_eq!(refusal.code, exit::DATA_ERROR, "{line}");
        assert!(refusal.cause.contains(part), "{line}: {}", refusal.cause);
    }
    fs::remove_dir_all(dir).expect("removed");
}

#[test]
fn a_record_is_its_owners_alone() {
    use std::os::unix::fs::{PermissionsExt, symlink};
    let dir = folder("owner");
    let path = |name: &str| dir.join(name);
    fs::write(path("there"), "old").expect("written");
    fs::set_permissions(path("there"), fs::Permissions::from_mode(0o644)).expect("set");
    symlink(path("there"), path("link")).expect("a link");
    let made = std::process::Command::new("mkfifo").arg(path("pipe")).status().expect("mkfifo");
    assert!(made.success());
    for bad in ["link", "pipe", ".", "none/x"] {
        assert_eq!(record::Record::create(&path(bad)).expect_err(bad).code, exit::CANNOT_CREATE, "{bad}");
    }
    assert_eq!(fs::read_to_string(path("there")).expect("there"), "old");
    fs::hard_link(path("there"), path("second")).expect("a second name");
    record::Record::create(&path("there")).expect_err("a second name");
    fs::remove_file(path("second")).expect("removed");
    record::Record::create(&path("there")).expect("its own file").end().expect("written");
    let there = fs::metadata(path("there")).expect("there");
    assert_eq!((there.permissions().mode() & 0o777, there.len()), (0o600, 0));
    fs::remove_dir_all(dir).expect("removed");
}

#[test]
fn many_services_are_recorded_and_read_again() {
    let dir = folder("many");
    let one = services().remove(0);
    let many: Vec<api::Service> = (1..=20_000).map(|port| api::Service { port, ..one.clone() }).collect();
    let huge = api::Service { backends: vec![one.backends[0].clone(); 20_000], ..one };
    let mut record = record::Record::create(&dir.join("record")).expect("created");
    record.services(&[&many[..], &[huge], &many[..1]].concat()).expect("written");
    record.end().expect("written");
    let text = fs::read_to_string(dir.join("record")).expect("written");
    assert!(text.lines().count() > 4 && text.lines().all(|line| line.len() <= (512 << 10) + 64));
    let input = std::io::Cursor::new("{\"agent_event\":{}}\n".repeat(40) + &text);
    let mut input = crate::flows::Input::whole(Box::new(input)).expect("all");
    let mut recorded = record::Recorded::default();
    while let Some(line) = input.next_line().expect("read") {
        let crate::flows::Line::Other(text) = line else { panic!("no flow") };
        recorded.take(&text);
    }
    assert_eq!(input.complaint(), None);
    assert_eq!(recorded.end(), [&many[..], &many[..1]].concat());
    let mut recorded = record::Recorded::default();
    let known = known().trim_end().to_owned();
    let line = known.clone() + &" ".repeat((1 << 20) - known.len());
    (0..80).for_each(|_| recorded.take(&line));
    assert_eq!(recorded.end().len(), 64, "there is a bound");
    fs::remove_dir_all(dir).expect("removed");
}
