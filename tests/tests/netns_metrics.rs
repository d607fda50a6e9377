//! Metrics of a real agent: what it serves equals what the kernel counts and what the other commands say, to the packet,
//! over the end of pods and of agents; and nobody who asks can hold it up.

use std::collections::BTreeMap;
use std::net::{TcpListener, UdpSocket};
use std::path::Path;
use std::time::{Duration, Instant};

use egret_tests::agent::Agent;
use egret_tests::apiserver::ApiServer;
use egret_tests::netns::{World, WorldBuilder};
use egret_tests::scrape::{Page, Scraper};
use egret_tests::wait;
use nix::sys::signal::Signal;

const ADDRESS: &str = "127.0.0.1:9964";
const LIMIT: Duration = Duration::from_secs(20);
/// What the kernel counts: it does not end with an agent.
const LASTING: [&str; 6] = [
    "egret_drops_total",
    "egret_dropped_bytes_total",
    "egret_forwards_total",
    "egret_forwarded_bytes_total",
    "egret_refused_grants_total",
    "egret_lost_records_total",
];

fn pod(name: &str, n: u8) -> String {
    format!(
        "apiVersion: v1\nkind: Pod\nmetadata:\n  name: {name}\n  namespace: shop\n  uid: uid-{name}\n  \
         labels: {{app: {name}}}\n  annotations: {{egret.dev/interface: v{name}}}\nspec: {{nodeName: n1}}\n\
         status: {{phase: Running, podIPs: [{{ip: 10.8.{n}.2}}]}}\n"
    )
}

const DENY: &str = "\
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {name: deny, namespace: shop}
spec: {podSelector: {matchLabels: {app: a}}, policyTypes: [Egress]}
";

/// Packets and bytes by direction and reason.
type Sums = BTreeMap<(String, String), (u64, u64)>;

/// Two pods, one of them isolated; IPv4 only, so that nothing is sent but what the test sends.
struct Scene {
    agent: Agent,
    scraper: Scraper,
    world: World,
}

impl Scene {
    fn new() -> Self {
        let world = WorldBuilder::node().build();
        let off = ("net/ipv6/conf/all/disable_ipv6".to_owned(), "1".to_owned());
        ["h", "a", "b"].iter().for_each(|ns| world.ns(ns).sysctl(std::slice::from_ref(&off)));
        Self::of(world)
    }

    fn of(world: World) -> Self {
        let agent = Agent::new(&world, "h").args(&["--metrics", ADDRESS]);
        let scraper = Scraper::new(&world, "h", ADDRESS);
        Self { agent, scraper, world }
    }

    fn start(&mut self) {
        self.agent.put("a.yaml", &pod("a", 1));
        self.agent.put("b.yaml", &pod("b", 2));
        self.agent.put("deny.yaml", DENY);
        self.agent.start();
        self.agent.expect_ready("shop/a");
        self.agent.expect_ready("shop/b");
    }

    /// What the other commands say that the kernel has counted, for endpoints that are there.
    fn counted(&self) -> Sums {
        let mut sums = Sums::new();
        let all = self.agent.json(&["endpoint", "list"]);
        for row in all.as_array().into_iter().flatten().filter_map(|e| e["counters"].as_array()).flatten() {
            let text = |key: &str| row[key].as_str().expect("text").to_owned();
            let sum: &mut (u64, u64) = sums.entry((text("direction"), text("reason"))).or_default();
            sum.0 += row["packets"].as_u64().expect("a number");
            sum.1 += row["bytes"].as_u64().expect("a number");
        }
        sums
    }

    /// Waits until the page says this of all that was counted, and gives the page.
    #[track_caller]
    fn expect(&mut self, want: &Sums, why: &str) -> Page {
        let mut seen = Sums::new();
        let page = wait::until(wait::patient(LIMIT), || {
            let page = self.scraper.scrape();
            seen = sums(&page);
            (seen == *want).then_some(page)
        });
        page.unwrap_or_else(|| panic!("{why}: {seen:?} instead of {want:?}"))
    }

    fn send(&self, from: &str, to: &str, count: usize) {
        let socket = self.world.ns(from).run(|| UdpSocket::bind("0.0.0.0:0")).expect("bound");
        for _ in 0..count {
            socket.send_to(b"0123456789", to).expect("sent");
        }
    }
}

/// As [`Scene::counted`], of a page.
fn sums(page: &Page) -> Sums {
    let mut sums = Sums::new();
    let mut add = |name: &str, bytes: bool| {
        for (labels, value) in page.named(name) {
            let reason = labels.get("reason").map_or("Forwarded", String::as_str);
            let sum = sums.entry((labels["direction"].clone(), reason.to_owned())).or_insert((0, 0));
            *if bytes { &mut sum.1 } else { &mut sum.0 } += value as u64;
        }
    };
    for (packets, bytes) in [(LASTING[0], LASTING[1]), (LASTING[2], LASTING[3])] {
        add(packets, false);
        add(bytes, true);
    }
    sums.retain(|_, sum| *sum != (0, 0));
    sums
}

fn key(direction: &str, reason: &str) -> (String, String) {
    (direction.to_owned(), reason.to_owned())
}

#[test]
fn the_page_equals_the_kernels_counters_to_the_packet_over_every_end() {
    let mut scene = Scene::new();
    scene.start();
    let _receiver = scene.world.ns("a").run(|| UdpSocket::bind("10.8.1.2:7000")).expect("bound");
    let before = scene.counted();
    scene.send("a", "10.8.2.2:9999", 100);
    scene.send("b", "10.8.1.2:7000", 50);
    let counted = scene.counted();
    let grown = |direction, reason| {
        let of = |sums: &Sums| sums.get(&key(direction, reason)).copied().unwrap_or_default();
        (of(&counted).0 - of(&before).0, of(&counted).1 - of(&before).1)
    };
    // 20 bytes of IPv4, 8 of UDP, 10 of ours.
    assert_eq!(grown("egress", "NoRule"), (100, 3_800), "{before:?}, {counted:?}");
    assert_eq!(grown("egress", "Forwarded"), (50, 1_900));
    assert_eq!(grown("ingress", "Forwarded"), (50, 1_900));
    let page = scene.expect(&counted, "all endpoints are there");
    assert_eq!(page.value("egret_endpoints", &[("state", "ready")]), 2.0);
    assert_eq!(page.value("egret_endpoints", &[("state", "waiting")]), 0.0);
    assert_eq!((page.value("egret_policies", &[]), page.value("egret_bad_objects", &[])), (1.0, 0.0));
    assert_eq!((page.value("egret_ready", &[]), page.value("egret_adopted", &[])), (1.0, 0.0));
    assert_eq!(page.value("egret_identities", &[]), 2.0);

    scene.agent.withdraw("a.yaml");
    scene.expect(&counted, "a pod that is gone has been counted");
    scene.agent.apply("a.yaml", &pod("a", 1));
    scene.agent.expect_ready("shop/a");
    assert_eq!(scene.counted().get(&key("egress", "NoRule")), None, "a new pod begins with nothing");
    scene.send("a", "10.8.2.2:9999", 7);
    let mut all = counted.clone();
    let drops = all.get_mut(&key("egress", "NoRule")).expect("counted");
    *drops = (drops.0 + 7, drops.1 + 7 * 38);
    scene.expect(&all, "the new one counts on");
    // These the loop hands on once a second.
    let changed = || {
        let page = scene.scraper.scrape();
        let changes = page.value("egret_changes_total", &[]) >= 3.0;
        (changes && page.value("egret_apply_duration_seconds_count", &[]) >= 2.0).then_some(page)
    };
    let first = wait::until(wait::patient(LIMIT), changed).expect("changes are counted");
    let changed = first.value("egret_last_change_timestamp_seconds", &[]);
    assert!(changed > first.value("egret_start_timestamp_seconds", &[]));

    scene.agent.end(Signal::SIGKILL);
    scene.send("a", "10.8.2.2:9999", 5);
    let drops = all.get_mut(&key("egress", "NoRule")).expect("counted");
    *drops = (drops.0 + 5, drops.1 + 5 * 38);
    scene.scraper.restarted(&LASTING);
    scene.agent.start();
    let page = scene.expect(&all, "the next agent goes on, with what was counted while there was none");
    assert_eq!(page.value("egret_adopted", &[]), 1.0);
    let began = |page: &Page| page.value("egret_start_timestamp_seconds", &[]);
    assert!(began(&page) > began(&first), "another process");
}

#[test]
fn bad_objects_and_room_are_told_as_the_status_tells_them() {
    let mut scene = Scene::new();
    scene.start();
    scene.agent.put("bad.yaml", &DENY.replace("name: deny", "name: bad").replace("Egress", "Sideways"));
    scene.agent.put("lost.yaml", &pod("lost", 9));
    let page = wait::until(wait::patient(LIMIT), || {
        let page = scene.scraper.scrape();
        let bad = page.value("egret_bad_objects", &[]) == 1.0;
        (bad && page.value("egret_endpoints", &[("state", "waiting")]) == 1.0).then_some(page)
    });
    let page = page.unwrap_or_else(|| panic!("{:#}", scene.agent.json(&["status"])));
    assert_eq!(page.value("egret_policies", &[]), 1.0, "the bad one was never in force");
    let maps = scene.agent.json(&["status"])["maps"].clone();
    let maps = maps.as_array().expect("a list");
    let of_status = |key: &str| {
        let row = |map: &serde_json::Value| {
            let name = map["name"].as_str().expect("text").to_owned();
            (BTreeMap::from([("map".to_owned(), name)]), map[key].as_f64().expect("a number"))
        };
        maps.iter().map(row).collect::<BTreeMap<_, _>>()
    };
    let (entries, capacities) = (of_status("entries"), of_status("capacity"));
    assert!(maps.len() > 8 && entries.values().any(|n| *n > 0.0), "{maps:?}");
    // Whole maps are not walked for each page.
    let same = wait::until(wait::patient(LIMIT), || {
        let page = scene.scraper.scrape();
        let of_page =
            |name| page.named(name).into_iter().map(|(l, n)| (l.clone(), n)).collect::<BTreeMap<_, _>>();
        let same =
            of_page("egret_map_entries") == entries && of_page("egret_map_capacity_entries") == capacities;
        same.then_some(())
    });
    assert!(same.is_some(), "{maps:?}: {:?}", scene.scraper.scrape().named("egret_map_entries"));
}

#[test]
fn an_agent_without_its_api_server_lives_and_is_not_ready() {
    let world = WorldBuilder::node().build();
    let listener = world.ns("h").run(|| TcpListener::bind("127.0.0.1:0")).expect("bound");
    let api = ApiServer::on(listener);
    api.apply("{apiVersion: v1, kind: Namespace, metadata: {name: shop}}");
    api.apply(&pod("a", 1));
    api.set_refusing(true);
    let mut scene = Scene::of(world);
    scene.agent = scene.agent.of(&api);
    scene.agent.begin();
    let status = |path: &str| scene.scraper.ask("GET", path).status;
    assert_eq!((status("/readyz"), status("/livez")), (503, 200));
    let page = scene.scraper.scrape();
    assert_eq!((page.value("egret_ready", &[]), page.value("egret_source_synced", &[])), (0.0, 0.0));
    api.set_refusing(false);
    scene.agent.expect_probe("ready", true);
    let status = |path: &str| scene.scraper.ask("GET", path).status;
    assert_eq!((status("/readyz"), status("/livez")), (200, 200));
    assert_eq!(scene.scraper.scrape().value("egret_source_trouble", &[]), 0.0);
    api.set_refusing(true);
    let trouble = wait::until(wait::patient(LIMIT), || {
        (scene.scraper.scrape().value("egret_source_trouble", &[]) == 1.0).then_some(())
    });
    assert!(trouble.is_some(), "{:#}", scene.agent.json(&["status"]));
    assert_eq!(scene.scraper.ask("GET", "/readyz").status, 200, "what was told stays in force");
}

#[test]
fn who_asks_badly_slowly_or_often_holds_nobody_up() {
    let mut scene = Scene::new();
    scene.start();
    for (method, path, status) in [
        ("GET", "/livez", 200),
        ("HEAD", "/metrics", 200),
        ("GET", "/metrics?all", 200),
        ("GET", "/", 404),
        ("GET", "/metrics/", 404),
        ("POST", "/metrics", 405),
        ("DELETE", "/livez", 405),
    ] {
        let reply = scene.scraper.ask(method, path);
        assert_eq!(
            (reply.status, method == "HEAD"),
            (status, reply.body.is_empty()),
            "{method} {path}: {reply:?}"
        );
    }
    for bad in ["nonsense\r\n\r\n", "GET /metrics SPDY/9\r\n\r\n"] {
        let reply = scene.scraper.exchange(bad.as_bytes());
        assert!(reply.is_empty() || reply.starts_with("HTTP/1.1 400"), "{reply}");
    }
    let long = format!("GET /metrics HTTP/1.1\r\nA: {}\r\n\r\n", "a".repeat(100_000));
    let reply = scene.scraper.exchange(long.as_bytes());
    assert!(reply.is_empty() || reply.starts_with("HTTP/1.1 431"), "{}", &reply[..reply.len().min(200)]);

    // More silent clients than are served at a time: they are put out, and whoever waits behind them is served.
    let silent: Vec<_> = (0..20).map(|_| scene.scraper.connect()).collect();
    let begin = Instant::now();
    assert_eq!(scene.agent.json(&["status"])["state"], "ok");
    assert!(begin.elapsed() < wait::patient(Duration::from_secs(2)), "the agent itself waits for nobody");
    scene.scraper.scrape();
    drop(silent);
    // One after the other, as fast as can be: the loop does the same as without.
    for _ in 0..200 {
        scene.scraper.scrape();
    }
    assert_eq!(scene.agent.json(&["status"])["state"], "ok");
}

#[test]
fn an_address_that_is_taken_is_refused_before_anything_is_loaded() {
    let scene = Scene::new();
    let _taken = scene.world.ns("h").run(|| TcpListener::bind(ADDRESS)).expect("bound");
    let outcome = scene.agent.run();
    assert_eq!(outcome.code, Some(71), "{outcome:#?}");
    assert!(outcome.stderr.contains("cannot serve metrics at 127.0.0.1:9964"), "{outcome:#?}");
    assert!(!scene.agent.pins().exists());
}

#[test]
fn every_metric_that_alerts_and_the_dashboard_name_is_served() {
    let mut scene = Scene::new();
    scene.start();
    let page = scene.scraper.scrape();
    let served: std::collections::BTreeSet<&str> =
        page.series.keys().map(|(name, _)| name.as_str()).collect();
    let deploy = Path::new(env!("CARGO_MANIFEST_DIR")).join("../deploy");
    for (file, least) in [("prometheus/alerts.yaml", 10), ("grafana/egret.json", 20)] {
        let text = std::fs::read_to_string(deploy.join(file)).expect("there");
        let named: std::collections::BTreeSet<&str> = text
            .split(|c: char| !c.is_ascii_alphanumeric() && c != '_')
            .filter(|word| word.starts_with("egret_"))
            .collect();
        let missing: Vec<_> = named.difference(&served).collect();
        assert!(missing.is_empty() && named.len() >= least, "{file}: {missing:?} of {named:?}");
    }
}
