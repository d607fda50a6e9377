//! L-A01 at full size: an agent that is ended and started again under look-ups and open connections.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use egret_tests::cluster::{Cluster, names_of_web};
use egret_tests::exec::Place;
use egret_tests::probe::{Conn, Reply, Request, Session};
use egret_tests::wait;
use nix::sys::signal::Signal;

/// Names that nobody has looked up before.
const NAMES: usize = 4000;
const CONNECTIONS: usize = 200;
/// Look-ups per second.
const RATE: u32 = 50;
/// Allowed, and denied.
const OPEN: &str = "192.0.2.10:80";
const CLOSED: &str = "203.0.113.99:9999";

/// Look-ups of new names at a steady rate, each followed by a connect.
struct Lookups {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<Counts>,
}

#[derive(Debug, Default)]
struct Counts {
    done: u32,
    failed: Vec<String>,
    slowest: Duration,
}

impl Lookups {
    fn start(place: Place) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let signal = stop.clone();
        let thread = thread::spawn(move || {
            let (mut session, mut counts) = (Session::start(&place), Counts::default());
            let start = Instant::now();
            while !signal.load(Ordering::Relaxed) {
                counts.one(&mut session);
                let next = start + Duration::from_secs(1) / RATE * counts.done;
                wait::pass(next.saturating_duration_since(Instant::now()));
            }
            counts
        });
        Self { stop, thread }
    }

    fn end(self) -> Counts {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.join().expect("no panic")
    }
}

impl Counts {
    fn one(&mut self, session: &mut Session) {
        let name = format!("n{}.fresh.example", self.done);
        self.done += 1;
        let answer = session.resolve(&name);
        self.slowest = self.slowest.max(answer.elapsed);
        let Some(address) = answer.addresses.first() else {
            return self.failed.push(format!("{name}: {}", answer.error));
        };
        match session.tcp(&format!("{address}:80")).result {
            Ok(conn) => session.close(conn),
            Err(errno) => self.failed.push(format!("{name} {address}: errno {errno}")),
        }
    }
}

/// A pod's traffic: connections that stay, and what must not pass.
struct Traffic {
    session: Session,
    kept: Vec<Conn>,
    denied: u64,
}

impl Traffic {
    fn start(cluster: &Cluster) -> Self {
        let mut session = Session::start(&cluster.place("web"));
        session.resolve("vendor.example").first();
        let kept = (0..CONNECTIONS).map(|_| session.tcp(OPEN).allowed()).collect();
        Self { session, kept, denied: 0 }
    }

    /// Each connection carries a line; one datagram and one SYN do not pass.
    fn round(&mut self, what: &str) {
        for conn in &self.kept {
            assert!(self.session.echo(*conn, what), "{conn:?} was cut {what}");
        }
        let datagram = self.session.udp(CLOSED);
        assert!(!datagram.echoed, "denied, but passed {what}");
        // Given up before the SYN is sent again.
        let to = CLOSED.replace("9999", "80").parse().expect("an address");
        let connect = Request::Tcp { to, mapped: false, fast_open: None, port: 0, timeout: 500 };
        let reply = self.session.ask(&connect, Duration::from_secs(5));
        assert!(matches!(reply, Reply::Failed { .. }), "denied, but passed {what}");
        self.denied += 2;
    }
}

/// Ends the agent under load, leaves the pods alone for `gap`, and starts the next one.
fn restart(signal: Signal, gap: Duration) {
    let Some(mut cluster) = Cluster::new() else { return };
    for n in 0..NAMES {
        cluster.zone.add(&format!("n{n}.fresh.example"), 60, &[&format!("198.51.100.{}", n % 250)]);
    }
    cluster.agent.put("web.yaml", &names_of_web(&["*.fresh.example", "vendor.example"]));
    cluster.agent.start();
    for pod in ["web", "api", "job", "dns"] {
        cluster.agent.expect_ready(&cluster.pod(pod).full_name());
    }
    let mut traffic = Traffic::start(&cluster);
    traffic.round("before");
    let before: u64 = cluster.agent.drops("shop/web").values().sum();
    assert!(
        before >= traffic.denied,
        "the control is not counted: {}",
        cluster.agent.json(&["endpoint", "list"])
    );
    traffic.denied = 0;
    let lookups = Lookups::start(cluster.place("web"));
    wait::pass(Duration::from_secs(1));
    cluster.agent.end(signal);
    let end = Instant::now() + gap;
    while Instant::now() < end {
        traffic.round("without an agent");
    }
    cluster.agent.start();
    traffic.round("with the next agent");
    let counts = lookups.end();
    traffic.round("after it all");
    assert_eq!(cluster.agent.json(&["status"])["adopted"], true);
    let status = cluster.agent.json(&["status"]);
    eprintln!("{counts:?}, {} denied, lost: {}", traffic.denied, status["lost"]);
    assert!(counts.failed.is_empty(), "{counts:?}");
    let least = gap.as_secs() as u32 * RATE / if std::env::var_os("EGRET_VM").is_some() { 20 } else { 2 };
    assert!(counts.done >= least, "no load: {counts:?}");
    let after: u64 = cluster.agent.drops("shop/web").values().sum();
    let drops = cluster.agent.drops("shop/web");
    assert_eq!(after - before, traffic.denied, "dropped besides what is denied: {drops:?}");
}

#[test]
fn l_a01_a_killed_agent_is_not_missed_for_twenty_seconds() {
    restart(Signal::SIGKILL, Duration::from_secs(20));
}

#[test]
fn l_a01_an_agent_that_is_stopped_is_not_missed_either() {
    restart(Signal::SIGTERM, Duration::from_secs(4));
}

#[test]
fn l_a01_t_a01_smoke_what_has_expired_meanwhile_closes_no_open_connection() {
    let Some(cluster) = Cluster::new() else { return };
    let mut cluster = cluster.agent_args(&["--ttl-floor", "1", "--grace", "0", "--keep-in-use", "false"]);
    cluster.zone.set("vendor.example", 1, &["192.0.2.10"]);
    cluster.agent.put("web.yaml", &names_of_web(&["vendor.example"]));
    cluster.agent.start();
    cluster.agent.expect_ready("shop/web");
    let mut session = Session::start(&cluster.place("web"));
    session.resolve("vendor.example").first();
    let conn = session.tcp(OPEN).allowed();
    let expired = || session.tcp(OPEN).result.is_err().then_some(());
    assert!(wait::until(wait::patient(Duration::from_secs(10)), expired).is_some(), "the name ends");
    assert!(session.echo(conn, "after its end"));
    // Another rule set each time: what is open is judged again, and its name still stands in the policy.
    cluster.agent.apply("web.yaml", &names_of_web(&["vendor.example", "other.example"]));
    assert!(session.echo(conn, "under an edited policy"));
    cluster.agent.end(Signal::SIGKILL);
    cluster.agent.start();
    assert!(session.echo(conn, "with the next agent"));
    session.tcp(OPEN).denied();
    assert!(cluster.agent.drops("shop/web").contains_key("NameExpired"));
    cluster.agent.apply("web.yaml", &names_of_web(&["other.example"]));
    assert!(!session.echo(conn, "no rule names it any more"));
}
