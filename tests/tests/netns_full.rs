//! L-A03: the table of learned addresses of a node fills up with what one pod was told, and empties again.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use egret_tests::cluster::{API_POD, Cluster, names_of_web};
use egret_tests::dnsd::raw::{self, rtype};
use egret_tests::probe::Session;
use egret_tests::wait;

/// Entries of the table on a node.
const ROOM: u64 = 65_536;
/// Addresses per answer.
const EACH: u32 = 60;
/// Names that rotate; a name keeps 1,024 addresses.
const NAMES: usize = 70;
/// Seconds that an address lives.
const TTL: u32 = 40;
const SOON: Duration = Duration::from_secs(90);

/// Each answer has addresses that no answer had before, of 198.18.0.0/15 (RFC 2544).
fn rotate(cluster: &Cluster) {
    let next = std::sync::Arc::new(AtomicU32::new(u32::from(Ipv4Addr::new(198, 18, 0, 0))));
    for n in 0..NAMES {
        let next = next.clone();
        cluster.zone.choose(&format!("n{n}.pool.example"), TTL, move |_| {
            let first = next.fetch_add(EACH, Ordering::Relaxed);
            (first..first + EACH).map(|bits| IpAddr::from(Ipv4Addr::from(bits))).collect()
        });
    }
}

/// Asks for the names until there is no room for more.
fn fill(cluster: &Cluster, session: &mut Session) {
    let full = || cluster.agent.ask(&["status"]).stdout.contains("learned addresses had no room");
    for round in 0..400 {
        let names = (0..10).map(|i| (round * 10 + i) % NAMES);
        let asked: Vec<_> =
            names.map(|n| raw::query(n as u16, &format!("n{n}.pool.example"), rtype::A)).collect();
        assert_eq!(session.dns("10.96.0.10:53", false, &asked, 10).0.len(), 10, "look-ups work");
        // Asking also waits until the agent has read what was answered.
        if round % 10 == 9 && full() {
            return;
        }
    }
    panic!("{} of {ROOM}, and nothing is told", entries(cluster));
}

fn entries(cluster: &Cluster) -> u64 {
    let status = cluster.agent.json(&["status"]);
    let maps = status["maps"].as_array().expect("a list").iter();
    maps.filter(|map| map["name"] == "GRANTS").filter_map(|map| map["entries"].as_u64()).sum()
}

#[test]
fn l_a03_a_full_table_closes_nothing_that_is_open_and_empties_by_itself() {
    if std::env::var_os("EGRET_SOAK").is_none() {
        eprintln!("skipped: fills a table of 65,000 for a minute; `cargo xtask soak` runs it");
        return;
    }
    let Some(cluster) = Cluster::new() else { return };
    let mut cluster = cluster.agent_args(&["--ttl-floor", "1", "--grace", "0"]);
    rotate(&cluster);
    cluster.zone.add("late.example", 60, &["192.0.2.77"]);
    cluster.agent.put("web.yaml", &names_of_web(&["*.pool.example", "vendor.example", "late.example"]));
    let to_api = "apiVersion: networking.k8s.io/v1\nkind: NetworkPolicy\nmetadata: {name: job, namespace: shop}\nspec:\n  \
        podSelector: {matchLabels: {app: job}}\n  policyTypes: [Egress]\n  \
        egress: [{to: [{podSelector: {matchLabels: {app: api}}}]}]\n";
    cluster.agent.put("job.yaml", to_api);
    cluster.agent.start();
    for pod in ["shop/web", "shop/job", "shop/api"] {
        cluster.agent.expect_ready(pod);
    }
    let mut session = Session::start(&cluster.place("web"));
    session.resolve("vendor.example").first();
    let open = session.tcp("192.0.2.10:80").allowed();
    fill(&cluster, &mut session);
    // Full, and alive: a new name has no room, and that is told. Everything else goes on.
    session.resolve("late.example").first();
    session.tcp("192.0.2.77:80").denied();
    assert!(session.echo(open, "while it is full"));
    session.tcp("192.0.2.10:80").allowed();
    let drops = cluster.agent.drops("shop/web");
    assert!(drops.contains_key("MapFull"), "{drops:?}");
    Session::start(&cluster.place("job")).tcp(API_POD).allowed();
    cluster.recreate("job", "web2");
    let again = || cluster.agent.json(&["endpoint", "list"]).to_string().contains("uid-web2").then_some(());
    assert!(wait::until(wait::patient(SOON), again).is_some(), "new pods can start");
    cluster.agent.expect_ready("shop/job");
    Session::start(&cluster.place("job")).tcp(API_POD).allowed();
    // What is over goes, though nobody asks.
    let emptied = || (entries(&cluster) < 1000).then_some(());
    assert!(wait::until(wait::patient(SOON), emptied).is_some(), "{} stay", entries(&cluster));
    session.resolve("late.example").first();
    session.tcp("192.0.2.77:80").allowed();
}
