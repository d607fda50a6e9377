//! S: one command or CI job.

use std::time::Duration;

use hickory_proto::op::ResponseCode;
use nix::sys::signal::Signal;

use egret_tests::dnsd::raw::{self, rtype};
use egret_tests::egret::{Egret, Run};
use egret_tests::exec::Cmd;
use egret_tests::lab::{Lab, RESOLVER};
use egret_tests::probe::is_refusal;
use egret_tests::servers::{Proto, Servers};
use egret_tests::traffic::curl;

#[test]
fn s_a01_a_listed_name_that_does_not_resolve_stops_nothing() {
    let Some(lab) = Lab::start() else { return };
    lab.zone.rcode("broken.example.com", ResponseCode::ServFail);
    let mut egret = lab.egret().allow("broken.example.com");
    for n in 0..9 {
        lab.zone.add(&format!("n{n}.example.com"), 60, &[&format!("192.0.2.{}", 100 + n)]);
        egret = egret.allow(&format!("n{n}.example.com"));
    }
    let mut probe = egret.session();
    probe.resolve("broken.example.com").failed();
    probe.tcp("192.0.2.100:443").refused();
    for n in 0..9 {
        probe.resolve(&format!("n{n}.example.com")).first();
        probe.tcp(&format!("192.0.2.{}:443", 100 + n)).allowed();
    }
    probe.tcp("192.0.2.99:443").refused();
}

#[test]
fn s_a02_an_empty_list_is_nothing_but_loopback() {
    let Some(lab) = Lab::start() else { return };
    let _local = Servers::start(lab.world.ns("c"), &[5432], &[]);
    let mut probe = lab.egret().session();
    probe.tcp("127.0.0.1:5432").allowed();
    probe.tcp("192.0.2.10:443").refused();
    probe.tcp("[2001:db8:a::10]:443").refused();
    assert!(is_refusal(probe.udp("192.0.2.10:443").errno));
    probe.resolve("api.example.com").failed();
    assert!(lab.queries().all().is_empty() && lab.hits().all().is_empty());
    assert_eq!(probe.finish().report.reason("tcp", "192.0.2.10:443"), "NoRule");
}

/// The same attempts in both modes: how many succeed, and what is reported.
fn attempts(egret: &Egret) -> (Vec<bool>, Run) {
    let mut probe = egret.session();
    let query = |id, name| [raw::query(id, name, rtype::A)];
    probe.resolve_family("api.example.com", 4).first();
    let done = vec![
        probe.tcp("192.0.2.10:443").result.is_ok(),
        probe.tcp("192.0.2.10:22").result.is_ok(),
        probe.tcp("192.0.2.99:443").result.is_ok(),
        probe.tcp("[2001:db8:a::99]:443").result.is_ok(),
        probe.udp("192.0.2.10:443").echoed,
        probe.connect("192.0.2.98:443", true, None, 0).result.is_ok(),
        probe.ping("192.0.2.10") == 0,
        probe.dns(RESOLVER, false, &query(1, "other.example.com"), 1).0.len() == 1,
        probe.dns(RESOLVER, true, &query(2, "third.example.com"), 1).0.len() == 1,
    ];
    (done, probe.finish())
}

#[test]
fn s_a02_audit_blocks_nothing_and_reports_the_same() {
    let Some(lab) = Lab::start() else { return };
    let egret = lab.egret().allow("api.example.com:443");
    let (audited, audit) = attempts(&egret.clone().audit());
    let (enforced, enforce) = attempts(&egret);
    assert_eq!(audited, [true; 9]);
    assert_eq!(enforced, [true, false, false, false, false, false, false, false, false]);
    assert_eq!(audit.report.targets(), enforce.report.targets());
    assert_eq!(audit.report.row_of_name("third.example.com").reason, "QueryRefused");
}

#[test]
fn s_a02_a_written_policy_passes_the_same_run() {
    let Some(lab) = Lab::start() else { return };
    let path = lab.world.dir().join("learned.yaml");
    let path = path.to_str().expect("a path");
    let script = Cmd::sh("curl -sS http://api.example.com:8080/ && curl -sS http://192.0.2.77:80/");
    let learn = lab.egret().audit().args(&["--write-policy", path]).run(&script);
    learn.outcome.expect_success();
    let enforced = lab.egret().args(&["--policy", path]).run(&script);
    enforced.outcome.expect_success();
    enforced.report.nothing_denied();
    assert!(!lab.egret().args(&["--policy", path]).run(&curl("http://other.example.com/")).outcome.success());
}

#[test]
fn s_a03_every_descendant_is_held() {
    let Some(lab) = Lab::start() else { return };
    let get = "curl -sS -m 3 --noproxy '*' http://192.0.2.99/";
    for line in [
        format!("env -i {get}"),
        format!("setsid -w {get}"),
        format!("(({get}) & wait) & wait"),
        format!("setsid sh -c '({get}) & sleep 0.5' & sleep 1"),
        format!("setpriv --reuid=65534 --regid=65534 --clear-groups {get}"),
        format!("nohup {get} & wait"),
        format!("http_proxy= {get}"),
    ] {
        let run = lab.egret().allow("api.example.com").run(&Cmd::sh(&line));
        assert!(!run.outcome.stdout.contains("reached"), "{line}: {:?}", run.outcome);
        assert_eq!(run.report.row("tcp", "192.0.2.99:80").process, "curl", "{line}");
    }
    assert!(lab.hits().all().is_empty());
    assert!(lab.bare().run(&Cmd::sh(get)).stdout.contains("reached"), "negative control");
}

#[test]
fn s_a04_loopback_and_own_addresses_are_open() {
    let Some(lab) = Lab::start() else { return };
    let local = Servers::start(lab.world.ns("c"), &[5432], &[5433]);
    let egret = lab.egret().place(|place| place.hosts("127.0.0.1 localhost\n127.0.0.7 postgres\n"));
    let mut probe = egret.allow("api.example.com").session();
    probe.held();
    for target in ["127.0.0.1:5432", "[::1]:5432", "127.9.8.7:5432", "10.7.0.2:5432"] {
        probe.tcp(target).allowed();
        assert!(local.hits().wait_for(Duration::from_secs(2), Proto::Tcp, target), "{target}");
    }
    assert_eq!(probe.resolve("postgres").first(), "127.0.0.7");
    assert!(probe.udp("127.0.0.1:5433").echoed && probe.udp("[::1]:5433").echoed);
    probe.finish().report.nothing_denied();
}

#[test]
fn s_a05_a_hidden_second_host_is_named_with_its_remedy() {
    let Some(lab) = Lab::start() else { return };
    lab.zone.add("git.example", 60, &["192.0.2.81"]).add("assets.cdn.example", 60, &["192.0.2.82"]);
    let script = Cmd::sh("curl -sS http://git.example/ && curl -sS -m 3 http://assets.cdn.example/");
    let blocked = lab.egret().allow("git.example:80").run(&script);
    assert!(!blocked.outcome.success());
    assert_eq!(lab.hits().count(Proto::Tcp, "192.0.2.82:80"), 0);
    let row = blocked.report.row_of_name("assets.cdn.example");
    assert_eq!((row.process.as_str(), row.reason.as_str()), ("curl", "QueryRefused"), "{row:?}");
    assert!(row.suggestion.contains("assets.cdn.example"), "{row:?}");
    let audited = lab.egret().allow("git.example:80").audit().run(&script);
    audited.outcome.expect_success();
    // The same row; what CMD did with the answer stands inside it and sharpens the remedy.
    let row = audited.report.row_of_name("assets.cdn.example");
    assert_eq!((row.process.as_str(), row.reason.as_str()), ("curl", "QueryRefused"), "{row:?}");
    assert_eq!(row.suggestion, "--allow assets.cdn.example:80");
    assert_eq!(row.then, ["tcp 192.0.2.82:80"]);
    let opened = lab.egret().args(&row.suggestion.split_whitespace().collect::<Vec<_>>());
    let opened = opened.allow("git.example:80").run(&script);
    opened.outcome.expect_success();
}

#[test]
fn s_a06_a_port_opens_that_port_only() {
    let Some(lab) = Lab::start() else { return };
    let open = |allow: &str| {
        let mut probe = lab.egret().allow(allow).session();
        probe.resolve_family("api.example.com", 4).first();
        let tcp = [443, 80, 22].map(|port| probe.tcp(&format!("192.0.2.10:{port}")).result.is_ok());
        let udp = probe.udp("192.0.2.10:443").echoed;
        let run = probe.finish();
        assert!(run.outcome.stderr.contains("api.example.com"), "{allow}: printed at start");
        (tcp, udp)
    };
    assert_eq!(open("api.example.com"), ([true, true, false], false));
    assert_eq!(open("api.example.com:443"), ([true, false, false], false));
    assert_eq!(open("api.example.com:443/udp"), ([false, false, false], true));
    assert_eq!(open("api.example.com:22"), ([false, false, true], false));
    assert_eq!(open("api.example.com:*").0, [true, true, true]);
}

#[test]
fn s_a07_exit_codes_and_the_report_when_killed() {
    let Some(lab) = Lab::start() else { return };
    let egret = lab.egret().allow("api.example.com");
    let deny = "curl -sS -m 3 http://192.0.2.99/";
    assert_eq!(egret.run(&Cmd::sh("exit 7")).outcome.code, Some(7));
    assert_eq!(egret.run(&Cmd::sh("kill -TERM $$")).outcome.code, Some(128 + 15));
    assert_eq!(egret.run(&Cmd::new(["/nonexistent/program"])).outcome.code, Some(127));
    let tolerant = Cmd::sh(&format!("{deny}; true"));
    assert_eq!(egret.run(&tolerant).outcome.code, Some(0));
    assert_eq!(egret.clone().args(&["--fail-on-deny"]).run(&tolerant).outcome.code, Some(86));
    assert_eq!(egret.clone().args(&["--fail-on-deny=9"]).run(&tolerant).outcome.code, Some(9));
    assert_eq!(egret.clone().args(&["--fail-on-deny=9"]).run(&Cmd::sh("true")).outcome.code, Some(0));
    let mut job = egret.job(&Cmd::sh(&format!("{deny}; echo ready; exec sleep 60")));
    egret_tests::wait::until_true("the command is ready", Duration::from_secs(10), || {
        job.process().stdout_so_far().contains("ready")
    });
    job.signal(Signal::SIGTERM);
    let run = job.wait(Duration::from_secs(15));
    assert_eq!((run.outcome.code, run.outcome.timed_out), (Some(128 + 15), false), "{:?}", run.outcome);
    assert_eq!(run.report.row("tcp", "192.0.2.99:80").process, "curl");
}
