//! What `egret run` promises about the command itself: held whatever happens to Egret, no way round for root,
//! nothing left behind, refusal to start unprotected.

use std::time::Duration;

use nix::sys::signal::Signal;

use egret_tests::dnsd::raw::{self, rtype};
use egret_tests::egret;
use egret_tests::exec::Cmd;
use egret_tests::lab::{Lab, RESOLVER};
use egret_tests::probe::is_refusal;
use egret_tests::residue::Residue;
use egret_tests::traffic::{curl, python};
use egret_tests::wait::until_true;

const SOON: Duration = Duration::from_secs(5);

#[test]
fn run_smoke_killing_egret_never_frees_the_child_and_the_next_run_cleans_up() {
    let Some(lab) = Lab::exclusive() else { return };
    let before = Residue::snapshot();
    let mut probe = lab.egret().allow("api.example.com:443").session();
    probe.tcp("192.0.2.99:443").refused();
    probe.process().kill_alone();
    assert!(probe.process().ends_within(SOON));
    probe.tcp("192.0.2.99:443").refused();
    probe.tcp("192.0.2.10:443").refused();
    assert_eq!(probe.resolve_family("api.example.com", 4).first(), "192.0.2.10");
    probe.tcp("192.0.2.10:443").allowed();
    probe.resolve("other.example.com").failed();
    assert!(!Residue::snapshot().new_since(&before).is_empty(), "enforcement is pinned");
    drop(probe);
    lab.egret().allow("api.example.com").run(&curl("http://api.example.com/")).outcome.expect_success();
    before.assert_clean(SOON);
}

#[test]
fn run_smoke_leaves_nothing_behind() {
    let Some(lab) = Lab::exclusive() else { return };
    let before = Residue::snapshot();
    lab.egret().allow("api.example.com").run(&curl("http://api.example.com/")).outcome.expect_success();
    before.assert_clean(Duration::from_secs(2));
    assert_eq!(lab.egret().run(&Cmd::sh("setsid sleep 100 & exit 3")).outcome.code, Some(3));
    before.assert_clean(Duration::from_secs(2));
    lab.egret().allow("a..b").run(&Cmd::sh("true"));
    before.assert_clean(Duration::ZERO);
}

#[test]
fn run_takes_from_root_what_would_lead_round_it() {
    let Some(lab) = Lab::start() else { return };
    let mut probe = lab.egret().allow("api.example.com").session();
    let (packet, raw) = (libc::AF_PACKET, libc::SOCK_RAW);
    assert_ne!(probe.open(packet, raw, i32::from(0x0300u16)), 0, "AF_PACKET");
    assert_ne!(probe.open(libc::AF_INET, raw, libc::IPPROTO_ICMP), 0, "raw ICMP");
    assert_ne!(probe.open(libc::AF_INET6, raw, libc::IPPROTO_RAW), 0, "raw IPv6");
    let (_, status, _) = probe.exec(&Cmd::sh("grep -E 'CapEff|CapBnd|NoNewPrivs' /proc/self/status"));
    let caps = status.lines().filter_map(|line| line.strip_prefix("CapEff:"));
    let caps = caps.map(|hex| u64::from_str_radix(hex.trim(), 16).expect("hex")).next().expect("CapEff");
    for (name, bit) in [
        ("NET_ADMIN", 12),
        ("NET_RAW", 13),
        ("SYS_MODULE", 16),
        ("SYS_PTRACE", 19),
        ("SYS_ADMIN", 21),
        ("BPF", 39),
    ] {
        assert_eq!(caps >> bit & 1, 0, "{name} is left: {status}");
    }
    assert!(status.contains("NoNewPrivs:\t1"), "{status}");
    let root = egret_tests::residue::cgroup2().expect("cgroup v2");
    for line in [
        format!("echo $$ > {}/cgroup.procs", root.display()),
        "unshare -n true".into(),
        "nsenter -t 1 -n true".into(),
        "mount -t tmpfs none /mnt".into(),
        "bpftool prog list".into(),
        "ls /sys/fs/bpf/egret/*".into(),
    ] {
        assert_ne!(probe.exec(&Cmd::sh(&line)).0, 0, "{line}");
    }
    probe.tcp("192.0.2.99:443").refused();
}

#[test]
fn run_closes_sockets_from_outside() {
    let Some(lab) = Lab::start() else { return };
    let program = |keep: &str| {
        format!(
            "import os, socket\ns = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)\n\
             s.connect(('192.0.2.99', 9999))\nos.dup2(s.fileno(), 9)\nos.set_inheritable(9, True)\n\
             os.execv({egret:?}, ['egret', 'run', {keep} '--', 'sh', '-c', 'echo leaked >&9; ls /proc/self/fd'])",
            egret = egret::binary()
        )
    };
    let closed = lab.bare().run(&python(&program("")));
    assert!(!closed.stdout.split_whitespace().any(|fd| fd == "9"), "{closed:?}");
    assert!(lab.hits().all().is_empty());
    let kept = lab.bare().run(&python(&program("'--keep-fd', '9',")));
    assert!(kept.stdout.split_whitespace().any(|fd| fd == "9"), "{kept:?}");
    assert!(kept.stderr.contains('9'), "a warning: {kept:?}");
}

#[test]
fn run_refuses_to_start_unprotected() {
    let Some(lab) = Lab::start() else { return };
    let started = |cmd: &Cmd| {
        let outcome = lab.bare().run(cmd);
        assert!(!outcome.stdout.contains("started"), "{outcome:?}");
        assert!(outcome.stderr.contains("egret:"), "{outcome:?}");
        outcome.code
    };
    let binary = egret::binary().display().to_string();
    let run = |args: &str| Cmd::sh(&format!("{binary} run {args} -- echo started"));
    let nobody = "setpriv --reuid=65534 --regid=65534 --clear-groups";
    assert_eq!(started(&Cmd::sh(&format!("{nobody} {binary} run -- echo started"))), Some(77));
    assert_eq!(
        started(&Cmd::sh(&format!("capsh --drop=cap_net_admin -- -c '{binary} run -- echo started'"))),
        Some(77)
    );
    assert_eq!(started(&run("--allow 'a b'")), Some(65));
    assert_eq!(started(&run("--policy /nonexistent.yaml")), Some(66));
    assert_eq!(started(&run("--user nobody-of-that-name")), Some(67));
}

#[test]
fn run_forwards_signals_and_streams() {
    let Some(lab) = Lab::start() else { return };
    let script = "trap 'echo got usr1; exit 5' USR1; echo ready; while :; do sleep 0.05; done";
    let mut job = lab.egret().job(&Cmd::sh(script));
    until_true("ready", SOON, || job.process().stdout_so_far().contains("ready"));
    job.signal(Signal::SIGUSR1);
    let run = job.wait(SOON);
    assert_eq!((run.outcome.code, run.outcome.timed_out), (Some(5), false), "{:?}", run.outcome);
    assert!(run.outcome.stdout.contains("got usr1"));
    let piped = lab.egret().run(&Cmd::new(["cat"]).stdin("through\n"));
    assert_eq!(piped.outcome.stdout, "through\n");
}

#[test]
fn run_drop_mode_is_silent() {
    let Some(lab) = Lab::start() else { return };
    let mut probe = lab.egret().allow("api.example.com").args(&["--on-deny", "drop"]).session();
    assert_eq!(probe.tcp("192.0.2.99:443").result, Err(libc::ETIMEDOUT));
    let datagram = probe.udp("192.0.2.99:443");
    assert_eq!((datagram.errno, datagram.echoed), (0, false));
    assert!(lab.hits().all().is_empty());
    assert_eq!(probe.finish().report.reason("tcp", "192.0.2.99:443"), "NameUnresolved");
}

#[test]
fn run_trusts_a_further_resolver_only_when_told() {
    let Some(lab) = Lab::start() else { return };
    let query = [raw::query(1, "api.example.com", rtype::A)];
    let elsewhere = lab.egret().place(|place| place.resolv_conf("nameserver 127.0.0.9\n"));
    let elsewhere = elsewhere.allow("api.example.com");
    let mut closed = elsewhere.session();
    assert!(is_refusal(closed.dns(RESOLVER, false, &query, 1).1));
    let mut open = elsewhere.args(&["--trusted-resolver", "10.7.0.53"]).session();
    assert_eq!(open.dns(RESOLVER, false, &query, 1).0.len(), 1);
    open.tcp("192.0.2.10:443").allowed();
}

#[test]
fn run_as_another_user() {
    let Some(lab) = Lab::start() else { return };
    let run = lab.egret().allow("api.example.com").args(&["--user", "nobody"]);
    let ids =
        run.run(&Cmd::sh("id -u; curl -4 -sS http://api.example.com/; curl -sS -m 3 http://192.0.2.99/"));
    assert!(ids.outcome.stdout.starts_with("65534\nreached 192.0.2.10:80"), "{:?}", ids.outcome);
    assert_eq!(ids.report.row("tcp", "192.0.2.99:80").process, "curl");
}

#[test]
fn run_programs_of_four_kinds() {
    let Some(lab) = Lab::start() else { return };
    let egret = lab.egret().allow("api.example.com:80").allow("api.example.com:443");
    let script = "curl -sS http://api.example.com/ && getent ahosts api.example.com && \
                  dig +short @10.7.0.53 api.example.com && \
                  python3 -c 'import socket; socket.create_connection((\"api.example.com\", 443), 5)'";
    let run = egret.run(&Cmd::sh(script));
    run.outcome.expect_success();
    run.report.nothing_denied();
    assert!(run.outcome.stdout.lines().any(|line| line == "192.0.2.10"), "{:?}", run.outcome);
}
