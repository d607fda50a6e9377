//! Three accounts of one run, which must agree to the packet: the kernel's counters, metrics, and flows with the losses that
//! were told.

use std::collections::BTreeMap;
use std::net::{SocketAddr, UdpSocket};
use std::time::Duration;

use egret::observe::proto::flow::{EventTypeFilter, Flow, FlowFilter, TrafficDirection, Verdict};
use egret_tests::agent::Agent;
use egret_tests::hubble::Hubble;
use egret_tests::netns::{World, WorldBuilder};
use egret_tests::scrape::{Page, Scraper};
use egret_tests::{residue, wait};
use nix::sys::signal::Signal;

const ADDRESS: &str = "127.0.0.1:9964";
const LIMIT: Duration = Duration::from_secs(10);

/// The pod `a` may send to `b` at 7000 and 7003; 7001 is denied by a rule, 7002 is open for a name alone. `b` lets in what
/// comes to 7000.
const OBJECTS: &str = "\
apiVersion: v1
kind: Pod
metadata: {name: a, namespace: shop, uid: uid-a, labels: {app: a}, annotations: {egret.dev/interface: va}}
spec: {nodeName: n1}
status: {phase: Running, podIPs: [{ip: 10.8.1.2}]}
---
apiVersion: v1
kind: Pod
metadata: {name: b, namespace: shop, uid: uid-b, labels: {app: b}, annotations: {egret.dev/interface: vb}}
spec: {nodeName: n1}
status: {phase: Running, podIPs: [{ip: 10.8.2.2}]}
---
apiVersion: cilium.io/v2
kind: CiliumNetworkPolicy
metadata: {name: of-a, namespace: shop}
spec:
  endpointSelector: {matchLabels: {app: a}}
  egress:
  - toEndpoints: [{matchLabels: {app: b}}]
    toPorts: [{ports: [{port: \"7000\", protocol: UDP}, {port: \"7001\", protocol: UDP}, {port: \"7003\", protocol: UDP}]}]
  - toFQDNs: [{matchName: api.example}]
    toPorts: [{ports: [{port: \"7002\", protocol: UDP}]}]
  egressDeny:
  - toEndpoints: [{matchLabels: {app: b}}]
    toPorts: [{ports: [{port: \"7001\", protocol: UDP}]}]
---
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {name: of-b, namespace: shop}
spec:
  podSelector: {matchLabels: {app: b}}
  policyTypes: [Ingress]
  ingress: [{ports: [{port: 7000, protocol: UDP}]}]
";

/// From, to, sockets, packets of each socket.
type Step = (&'static str, &'static str, usize, usize);

/// 10,000 packets. Each socket's first packet begins a connection.
const SCRIPT: [Step; 6] = [
    ("a", "10.8.2.2:7000", 10, 300),
    ("a", "10.8.2.2:7001", 2, 1_000),
    ("a", "192.0.2.1:7002", 2, 750),
    ("a", "10.8.2.2:7004", 2, 750),
    ("a", "10.8.2.2:7003", 3, 500),
    // By an address that is not the pod's.
    ("10.8.2.77", "10.8.1.2:9", 1, 500),
];

/// Packets by pod, direction and reason.
const WANT: [(&str, &str, &str, u64); 8] = [
    ("shop/a", "egress", "Forwarded", 4_500),
    ("shop/a", "egress", "DenyRule", 2_000),
    ("shop/a", "egress", "NameUnresolved", 1_500),
    ("shop/a", "egress", "NoRule", 1_500),
    ("shop/b", "egress", "InvalidSource", 500),
    ("shop/b", "ingress", "Forwarded", 3_000),
    ("shop/b", "ingress", "NoRule", 1_500),
    ("shop/a", "ingress", "Forwarded", 0),
];

type Sums = BTreeMap<(String, String, String), u64>;

struct Scene {
    agent: Agent,
    hubble: Hubble,
    scraper: Scraper,
    world: World,
}

impl Scene {
    fn start() -> Self {
        let world = WorldBuilder::node()
            .ip("b", "addr add 10.8.2.77/32 dev eth0")
            // Where nothing comes back from.
            .ip("h", "route add blackhole 198.18.0.0/16")
            .build();
        // Nothing is sent but what the test sends.
        let off = ("net/ipv6/conf/all/disable_ipv6".to_owned(), "1".to_owned());
        ["h", "a", "b"].iter().for_each(|ns| world.ns(ns).sysctl(std::slice::from_ref(&off)));
        let args = ["--metrics", ADDRESS, "--hubble-metrics", "drop flow", "--flow-buffer", "65535"];
        let mut agent = Agent::new(&world, "h").args(&args);
        agent.put("objects.yaml", OBJECTS);
        agent.start();
        for pod in ["shop/a", "shop/b"] {
            agent.expect_ready(pod);
        }
        let hubble = Hubble::connect(&agent.hubble_socket());
        let scraper = Scraper::new(&world, "h", ADDRESS);
        Self { agent, hubble, scraper, world }
    }

    fn play(&self) {
        for (from, to, sockets, packets) in SCRIPT {
            let (ns, address) = if from == "a" { ("a", "10.8.1.2") } else { ("b", from) };
            for _ in 0..sockets {
                let socket = self.world.ns(ns).run(|| UdpSocket::bind((address, 0))).expect("bound");
                for _ in 0..packets {
                    socket.send_to(b"0123456789", to).expect("sent");
                }
            }
        }
    }

    /// The kernel's counters: of all endpoints, which each of them tells as well.
    fn counted(&self) -> Sums {
        let all = self.agent.json(&["endpoint", "list"]);
        let mut sums = Sums::new();
        for endpoint in all.as_array().expect("a list") {
            let text = |value: &serde_json::Value| value.as_str().expect("text").to_owned();
            let (pod, id) = (text(&endpoint["pod"]), endpoint["id"].to_string());
            let one = self.agent.json(&["endpoint", "get", &id]);
            assert_eq!(one["counters"], endpoint["counters"]);
            for row in endpoint["counters"].as_array().expect("a list") {
                let key = (pod.clone(), text(&row["direction"]), text(&row["reason"]));
                sums.insert(key, row["packets"].as_u64().expect("a number"));
            }
        }
        sums
    }

    fn flows(&self, kind: i32, verdict: Verdict) -> Vec<Flow> {
        self.hubble.matching(FlowFilter {
            event_type: vec![EventTypeFilter { r#type: kind, ..Default::default() }],
            verdict: vec![verdict as i32],
            ..FlowFilter::default()
        })
    }
}

/// Flows by pod, direction and reason.
fn shown(flows: &[Flow]) -> Sums {
    let mut sums = Sums::new();
    for flow in flows {
        let ingress = flow.traffic_direction == TrafficDirection::Ingress as i32;
        let (side, direction) =
            if ingress { (&flow.destination, "ingress") } else { (&flow.source, "egress") };
        let pod = side.as_ref().map(|s| format!("{}/{}", s.namespace, s.pod_name)).expect("an end");
        let reason = flow.summary.split_once("; ").map_or("Forwarded", |(_, reason)| reason);
        *sums.entry((pod, direction.to_owned(), reason.to_owned())).or_default() += 1;
    }
    sums
}

/// A metric's packets by direction and reason, over all pods.
fn of_page(page: &Page) -> Sums {
    let mut sums = Sums::new();
    for name in ["egret_drops_total", "egret_forwards_total"] {
        for (labels, value) in page.named(name).into_iter().filter(|(_, value)| *value > 0.0) {
            let reason = labels.get("reason").map_or("Forwarded", String::as_str);
            *sums.entry((String::new(), labels["direction"].clone(), reason.to_owned())).or_default() +=
                value as u64;
        }
    }
    sums
}

fn drops(sums: &Sums) -> u64 {
    sums.iter().filter(|((.., reason), _)| reason != "Forwarded").map(|(_, count)| count).sum()
}

#[test]
fn counters_metrics_and_flows_with_losses_agree_to_the_packet() {
    residue::ensure_bpffs();
    let mut scene = Scene::start();
    let before = scene.counted();
    assert_eq!(before.values().sum::<u64>(), 0, "{before:?}");
    let receiver = scene.world.ns("b").run(|| UdpSocket::bind("10.8.2.2:7000")).expect("bound");
    scene.play();
    drop(receiver);
    assert_eq!(SCRIPT.iter().map(|(.., sockets, packets)| sockets * packets).sum::<usize>(), 10_000);
    let counted = scene.counted();
    for (pod, direction, reason, want) in WANT {
        let key = (pod.to_owned(), direction.to_owned(), reason.to_owned());
        assert_eq!(counted.get(&key).copied().unwrap_or_default(), want, "{key:?}: {counted:?}");
    }
    let all: u64 = WANT.iter().map(|(.., want)| want).sum();
    assert_eq!(counted.values().sum::<u64>(), all, "{counted:?}");
    let page = expect_page(&mut scene, &counted);
    let dropped = expect_drops(&scene, &counted);
    expect_verdicts(&scene, &page, &dropped);
}

/// Waits until the page says the same, by direction and reason; Hubble's drops and losses add up to it too.
fn expect_page(scene: &mut Scene, counted: &Sums) -> Page {
    let mut by_reason = Sums::new();
    for ((_, direction, reason), count) in counted {
        *by_reason.entry((String::new(), direction.clone(), reason.clone())).or_default() += count;
    }
    let agrees = |page: &Page| {
        let sum = |name| page.named(name).values().sum::<f64>();
        let told = sum("hubble_drop_total") + sum("hubble_lost_events_total");
        of_page(page) == by_reason && told == drops(counted) as f64
    };
    let mut last = Page::default();
    let page = wait::until(wait::patient(LIMIT), || {
        last = scene.scraper.scrape();
        agrees(&last).then(|| last.clone())
    });
    let page = page.unwrap_or_else(|| panic!("{by_reason:?}: {:#?}", last.series));
    // What was lost is what the rate limit held back, and nothing else.
    assert_eq!(page.named("egret_lost_records_total").values().sum::<f64>(), 0.0);
    page
}

/// Each drop is a flow, or was told to be lost: there are many in a second.
fn expect_drops(scene: &Scene, counted: &Sums) -> Vec<Flow> {
    let (dropped, lost) = (scene.flows(1, Verdict::Dropped), scene.hubble.lost());
    assert_eq!(dropped.len() as u64 + lost, drops(counted));
    assert!(dropped.len() >= 500 && lost > 0, "{} {lost}", dropped.len());
    let by_flows = shown(&dropped);
    let denied: Vec<_> = counted.iter().filter(|((.., reason), _)| reason != "Forwarded").collect();
    for (key, count) in &denied {
        let flows = by_flows.get(key).copied().unwrap_or_default();
        assert!(flows > 0 && flows <= **count, "{key:?}: {flows} of {count}");
    }
    assert_eq!(by_flows.len(), denied.len());
    dropped
}

/// Of connections that were let through, each is one flow at each end; every drop by a policy is a verdict as well.
fn expect_verdicts(scene: &Scene, page: &Page, dropped: &[Flow]) {
    let key = |pod: &str, direction: &str| (pod.to_owned(), direction.to_owned(), "Forwarded".to_owned());
    let allowed = shown(&scene.flows(5, Verdict::Forwarded));
    assert_eq!(allowed, [(key("shop/a", "egress"), 13), (key("shop/b", "ingress"), 10)].into());
    let verdicts = |verdict| {
        let labels = [("protocol", "UDP"), ("type", "PolicyVerdict"), ("subtype", ""), ("verdict", verdict)];
        page.value("hubble_flows_processed_total", &labels) as usize
    };
    let judged = dropped.iter().filter(|flow| !flow.summary.ends_with("InvalidSource")).count();
    assert_eq!((verdicts("FORWARDED"), verdicts("DROPPED")), (23, judged));
}

#[test]
fn a_stopped_agent_holds_nobody_up_and_counts_what_it_missed() {
    const FLOWS: u64 = 30_000;
    residue::ensure_bpffs();
    let scene = Scene::start();
    let socket = scene.world.ns("b").run(|| UdpSocket::bind("10.8.2.2:0")).expect("bound");
    scene.agent.process().signal(Signal::SIGSTOP);
    for n in 0..FLOWS {
        let to = SocketAddr::from(([198, 18, (n >> 8) as u8, n as u8], 9));
        socket.send_to(b"x", to).expect("sent");
    }
    scene.agent.process().signal(Signal::SIGCONT);
    // Every packet has passed while nobody read; each is a flow, or was told to be lost.
    let key = ("shop/b".to_owned(), "egress".to_owned(), "Forwarded".to_owned());
    assert_eq!(scene.counted().get(&key), Some(&FLOWS));
    let mut last = (0, 0);
    let agree = wait::until(wait::patient(LIMIT), || {
        last = (scene.flows(5, Verdict::Forwarded).len() as u64, scene.hubble.lost());
        (last.0 + last.1 == FLOWS).then_some(())
    });
    assert!(agree.is_some() && last.0 > 0 && last.1 > 0, "shown and lost: {last:?}");
}
