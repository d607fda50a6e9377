//! What a real agent tells about flows beyond the flows themselves: how long look-ups take, which workloads the ends belong
//! to, how often each policy decided, and what Hubble's metrics count.

use std::collections::BTreeMap;
use std::time::Duration;

use egret::observe::proto::flow::layer7::Record;
use egret::observe::proto::flow::{Endpoint, EventTypeFilter, Flow, FlowFilter, Verdict, Workload};
use egret_tests::cluster::{API_POD, Cluster, DNS_VIP, names_of_web};
use egret_tests::dnsd::raw::{self, rtype};
use egret_tests::dnsd::{Dnsd, Zone};
use egret_tests::hubble::Hubble;
use egret_tests::probe::{Session, UdpMode};
use egret_tests::scrape::{Page, Scraper};
use egret_tests::wait;

const ADDRESS: &str = "127.0.0.1:9964";
const LIMIT: Duration = Duration::from_secs(10);

/// A cluster in which `web` may look up vendor.example, and reach it at port 80.
struct Scene {
    cluster: Cluster,
    hubble: Hubble,
    scraper: Scraper,
}

impl Scene {
    fn new(args: &[&str], prepare: impl FnOnce(&mut Cluster)) -> Option<Self> {
        let mut cluster = Cluster::new()?.agent_args(&["--metrics", ADDRESS]).agent_args(args);
        cluster.agent.put("names.yaml", &names_of_web(&["vendor.example"]));
        prepare(&mut cluster);
        cluster.agent.start();
        for pod in ["shop/web", "shop/api", "shop/job", "kube-system/dns"] {
            cluster.agent.expect_ready(pod);
        }
        let hubble = Hubble::connect(&cluster.agent.hubble_socket());
        let scraper = Scraper::new(&cluster.world, "n", ADDRESS);
        Some(Self { cluster, hubble, scraper })
    }

    fn session(&self, pod: &str) -> Session {
        Session::start(&self.cluster.place(pod))
    }

    /// Waits for a page on which this is so.
    #[track_caller]
    fn page(&mut self, is_so: impl Fn(&Page) -> bool) -> Page {
        let mut last = Page::default();
        let found = wait::until(wait::patient(LIMIT), || {
            last = self.scraper.scrape();
            is_so(&last).then(|| last.clone())
        });
        found.unwrap_or_else(|| panic!("{:#?}", last.series))
    }
}

fn is_dns(flow: &Flow, reply: bool) -> bool {
    flow.is_reply == Some(reply)
        && matches!(flow.l7.as_ref().map(|l7| &l7.record), Some(Some(Record::Dns(_))))
}

#[test]
fn an_answer_tells_how_long_it_took() {
    const PAUSE: Duration = Duration::from_millis(150);
    let Some(mut scene) = Scene::new(&[], |cluster| {
        cluster.zone.delay(PAUSE);
    }) else {
        return;
    };
    let mut web = scene.session("web");
    web.resolve("vendor.example").first();
    web.resolve("evil.example").failed();
    // The answer of one look-up at least, with its addresses or without any.
    let all = FlowFilter { protocol: vec!["dns".into()], ..FlowFilter::default() };
    let answer =
        FlowFilter { reply: vec![true], source_service: vec!["kube-system/kube-dns".into()], ..all.clone() };
    scene.hubble.expect(answer.clone());
    let page = scene.page(|page| page.value("egret_dns_latency_seconds_count", &[]) >= 1.0);
    let took = |flow: &Flow| Duration::from_nanos(flow.l7.as_ref().map_or(0, |l7| l7.latency_ns));
    let flows = scene.hubble.matching(all);
    let answers: Vec<Duration> = flows.iter().filter(|flow| is_dns(flow, true)).map(took).collect();
    assert!(answers.iter().all(|took| (PAUSE..LIMIT).contains(took)), "{answers:?}");
    assert!(
        flows.iter().filter(|flow| is_dns(flow, false)).all(|flow| took(flow).is_zero()),
        "queries have none"
    );
    let (count, sum) = (
        page.value("egret_dns_latency_seconds_count", &[]),
        page.value("egret_dns_latency_seconds_sum", &[]),
    );
    assert!(count >= 1.0 && count as usize <= answers.len(), "{count}, {answers:?}");
    assert!(sum >= count * PAUSE.as_secs_f64(), "{sum}");
    assert_eq!(page.value("egret_dns_latency_seconds_bucket", &[("le", "0.1")]), 0.0);
}

/// A resolver of somebody else's, which one policy lets be asked.
const FOREIGN: &str = "192.0.2.53:53";
const ASKS_FOREIGN: &str = "\
apiVersion: cilium.io/v2
kind: CiliumNetworkPolicy
metadata: {name: foreign, namespace: shop}
spec:
  endpointSelector: {matchLabels: {app: job}}
  egress:
  - toCIDR: [192.0.2.53/32]
    toPorts: [{ports: [{port: \"53\", protocol: ANY}], rules: {dns: [{matchPattern: \"*\"}]}}]
  - toFQDNs: [{matchName: vendor.example}]
";

#[test]
fn a_resolver_that_one_policy_adds_is_no_part_of_the_latency() {
    const PAUSE: Duration = Duration::from_millis(150);
    let foreign = Zone::new();
    foreign.add("vendor.example", 60, &["192.0.2.10"]).delay(PAUSE);
    let Some(mut scene) = Scene::new(&[], |cluster| cluster.agent.put("foreign.yaml", ASKS_FOREIGN)) else {
        return;
    };
    let listen = FOREIGN.parse().expect("an address");
    let _resolver = Dnsd::start(scene.cluster.world.ns("w"), &[listen], foreign.handler());
    let mut job = scene.session("job");
    let (answers, errno) = job.dns(FOREIGN, false, &[raw::query(7, "vendor.example", rtype::A)], 1);
    assert_eq!((answers.len(), errno), (1, 0));
    // It is believed as far as the policy says, and its answer says how late it was.
    job.tcp("192.0.2.10:80").allowed();
    let answer = FlowFilter { reply: vec![true], protocol: vec!["dns".into()], ..FlowFilter::default() };
    let flow = scene.hubble.expect(answer);
    assert!(flow.l7.as_ref().is_some_and(|l7| l7.latency_ns >= PAUSE.as_nanos() as u64), "{flow:#?}");
    scene.session("web").resolve("vendor.example").first();
    let page = scene.page(|page| page.value("egret_dns_latency_seconds_count", &[]) >= 1.0);
    assert!(page.value("egret_dns_latency_seconds_sum", &[]) < PAUSE.as_secs_f64(), "{:#?}", page.series);
}

/// `Kind/name`, as clients write it.
fn workload(text: &str) -> Workload {
    let (kind, name) = text.split_once('/').expect("Kind/name");
    Workload { name: name.into(), kind: kind.into() }
}

fn is_of(side: Option<&Endpoint>, text: &str) -> bool {
    side.is_some_and(|side| side.workloads == [workload(text)])
}

#[test]
fn flows_name_the_workloads_of_both_ends_and_are_found_by_them() {
    let scene = Scene::new(&[], |cluster| {
        cluster.change("web", |pod| {
            pod.label("pod-template-hash", "6b5f");
            pod.owner = Some(("ReplicaSet", "front-6b5f"));
        });
        cluster.change("api", |pod| pod.owner = Some(("StatefulSet", "api")));
        cluster.change("job", |pod| pod.owner = Some(("Job", "nightly-29012345")));
        // A pod of another node: nothing is held there, but it is known.
        cluster.agent.put("far.yaml", FAR);
    });
    let Some(scene) = scene else { return };
    let (mut web, mut job) = (scene.session("web"), scene.session("job"));
    web.resolve("vendor.example").first();
    web.tcp("192.0.2.10:80").allowed();
    web.tcp("192.0.2.10:443").denied();
    web.tcp("192.0.2.99:80").denied();
    job.tcp(API_POD).allowed();
    let source = |text: &str| FlowFilter { source_workload: vec![workload(text)], ..FlowFilter::default() };
    let destination =
        |text: &str| FlowFilter { destination_workload: vec![workload(text)], ..FlowFilter::default() };
    let both =
        FlowFilter { destination_workload: vec![workload("StatefulSet/api")], ..source("CronJob/nightly") };
    let found = scene.hubble.expect(both);
    assert!(
        is_of(found.source.as_ref(), "CronJob/nightly")
            && is_of(found.destination.as_ref(), "StatefulSet/api")
    );
    let far = scene.hubble.expect(destination("DaemonSet/far"));
    assert!(is_of(far.source.as_ref(), "Deployment/front"), "{far:#?}");
    // By the kind alone, or the name alone; each filter finds what it should, and nothing else.
    for text in ["Deployment/front", "Deployment/", "/front"] {
        let found = scene.hubble.matching(source(text));
        let right = |flow: &Flow| is_of(flow.source.as_ref(), "Deployment/front");
        assert!(!found.is_empty() && found.iter().all(right), "{text}: {found:#?}");
    }
    for nothing in ["ReplicaSet/front-6b5f", "Deployment/api", "Job/nightly-29012345"] {
        assert!(scene.hubble.matching(source(nothing)).is_empty(), "{nothing}");
    }
    // A policy for a workload, out of what it did.
    let server = format!("unix://{}", scene.cluster.agent.hubble_socket().display());
    let program = egret_tests::egret::binary().display().to_string();
    let learn = |workload: &str| {
        let args = [&program, "learn", "--workload", workload, "--server", &server];
        scene.cluster.node().run(&egret_tests::exec::Cmd::new(args))
    };
    let learned = learn("shop/Deployment/front");
    assert!(learned.success() && learned.stdout.contains("vendor.example"), "{learned:#?}");
    assert_eq!(learn("shop/Deployment/none").code, Some(69));
    // Whoever belongs to nothing has none.
    let dns = FlowFilter { source_pod: vec!["kube-system/dns".into()], ..FlowFilter::default() };
    assert!(
        scene.hubble.matching(dns).iter().all(|f| f.source.as_ref().is_some_and(|s| s.workloads.is_empty()))
    );
}

const FAR: &str = "\
apiVersion: v1
kind: Pod
metadata:
  name: far-x
  namespace: shop
  uid: uid-far
  labels: {app: far}
  ownerReferences: [{kind: DaemonSet, name: far, uid: d, controller: true}]
spec: {nodeName: n2}
status: {phase: Running, podIPs: [{ip: 192.0.2.99}]}
";

#[test]
fn verdicts_are_counted_by_policy_until_it_is_gone() {
    const VERDICTS: &str = "egret_policy_verdicts_total";
    let other_policy = names_of_web(&["other.example"]).replace("name: names,", "name: second,");
    let Some(mut scene) = Scene::new(&[], |cluster| cluster.agent.put("second.yaml", &other_policy)) else {
        return;
    };
    let mut web = scene.session("web");
    let count = |page: &Page, policy: &str, action: &str| {
        let labels = [("policy", policy), ("direction", "egress"), ("action", action)];
        let labels: BTreeMap<_, _> = labels.map(|(key, value)| (key.to_owned(), value.to_owned())).into();
        page.named(VERDICTS).get(&labels).copied().unwrap_or_default()
    };
    let [first, second] = ["names", "second"].map(|name| format!("CiliumNetworkPolicy/shop/{name}"));
    assert_eq!(count(&scene.page(|_| true), "other", "dropped"), 0.0);
    web.resolve("vendor.example").first();
    for _ in 0..5 {
        web.tcp("192.0.2.10:80").allowed();
    }
    // Both deny by default, and so both deny.
    let denied = ["192.0.2.77:80", "192.0.2.77:81", "192.0.2.77:82"];
    web.datagrams(UdpMode::SendMmsg, &denied, false, b"x");
    let page =
        scene.page(|page| count(page, &first, "forwarded") >= 5.0 && count(page, &second, "dropped") >= 3.0);
    let flows = scene.hubble.matching(FlowFilter {
        event_type: vec![EventTypeFilter { r#type: 5, ..Default::default() }],
        ..FlowFilter::default()
    });
    // To the packet: what flows say.
    for (policy, action) in
        [(&first, "forwarded"), (&first, "dropped"), (&second, "forwarded"), (&second, "dropped")]
    {
        let list = |flow: &Flow| match action {
            "forwarded" => flow.egress_allowed_by.clone(),
            _ => flow.egress_denied_by.clone(),
        };
        let named = |flow: &Flow| list(flow).iter().any(|p| policy.ends_with(&format!("/{}", p.name)));
        let want = flows.iter().filter(|flow| named(flow)).count();
        assert_eq!(count(&page, policy, action) as usize, want, "{policy} {action}");
    }
    assert_eq!(count(&page, &first, "audited"), 0.0);
    scene.cluster.agent.withdraw("second.yaml");
    let gone = wait::until(wait::patient(LIMIT), || {
        // Counters that are gone are no mistake here.
        scene.scraper.restarted(&[]);
        let page = scene.scraper.scrape();
        let left = page.named(VERDICTS).keys().all(|labels| labels["policy"] != second);
        (left && count(&page, &first, "dropped") >= 3.0).then_some(())
    });
    assert!(gone.is_some(), "{:#?}", scene.scraper.scrape().named(VERDICTS));
}

/// Series of a name with these labels among theirs, added up.
fn sum(page: &Page, name: &str, labels: &[(&str, &str)]) -> usize {
    let has = |of: &BTreeMap<String, String>| {
        labels.iter().all(|(key, value)| of.get(*key).is_some_and(|v| v == value))
    };
    page.named(name).into_iter().filter(|(of, _)| has(of)).map(|(_, value)| value as usize).sum()
}

#[test]
fn hubbles_metrics_say_what_flows_say() {
    const SERVER: &str = "127.0.0.1:9965";
    const METRICS: &str = "drop:sourceContext=pod dns:query flow:labelsContext=source_workload,traffic_direction \
                           flows-to-world:port;destinationContext=dns|ip tcp policy port-distribution icmp http";
    let args = ["--hubble-metrics", METRICS, "--hubble-metrics-server", SERVER];
    let scene = Scene::new(&args, |cluster| {
        cluster.change("web", |pod| pod.owner = Some(("StatefulSet", "front")));
    });
    let Some(mut scene) = scene else { return };
    assert!(
        scene.cluster.agent.said().contains("warning: --hubble-metrics http: "),
        "{}",
        scene.cluster.agent.said()
    );
    let own = scene.scraper.scrape();
    assert!(own.families.keys().all(|name| !name.starts_with("hubble_")), "they are at their own address");
    scene.scraper = Scraper::new(&scene.cluster.world, "n", SERVER);
    let mut web = scene.session("web");
    web.resolve("vendor.example").first();
    web.resolve("evil.example").failed();
    // What a pod asks for is a label's value: it must not end there, nor begin another line.
    let name = "a\"} 7\n# EOF\nb\\.example";
    web.dns(&format!("{DNS_VIP}:53"), false, &[raw::query(7, name, rtype::A)], 1);
    web.tcp("192.0.2.10:80").allowed();
    web.tcp("192.0.2.10:443").denied();
    web.datagrams(UdpMode::SendMmsg, &["192.0.2.77:9", "192.0.2.77:10"], false, b"x");
    // Until all that was sent is there, and both say the same.
    let mut last = (0, 0);
    let page = wait::until(wait::patient(LIMIT), || {
        let before = scene.hubble.matching(FlowFilter::default());
        let page = scene.scraper.scrape();
        last = (sum(&page, "hubble_flows_processed_total", &[]), before.len());
        let all = scene.hubble.matching(FlowFilter::default());
        let sent = sum(&page, "hubble_drop_total", &[("protocol", "UDP"), ("source", "shop/web")]) >= 2;
        (sent && before.len() == all.len() && last.0 == all.len()).then_some((page, all))
    });
    let (page, flows) = page.unwrap_or_else(|| panic!("counted and shown: {last:?}"));
    assert!(page.families.keys().all(|name| name.starts_with("hubble_")));
    expect_counts(&page, &flows);
    let bad = scene.cluster.agent.ask(&[
        "agent",
        "--source",
        "dir:/x",
        "--metrics",
        ADDRESS,
        "--hubble-metrics",
        "drop dns:qery",
    ]);
    assert_eq!(bad.code, Some(64), "{bad:#?}");
    assert!(bad.stderr.contains("\"qery\": no option of this metric"), "{bad:#?}");
}

/// Each metric against the flows that it should have counted.
fn expect_counts(page: &Page, flows: &[Flow]) {
    let check = |name: &str, labels: &[(&str, &str)], counts: &dyn Fn(&Flow) -> bool| {
        let want = flows.iter().filter(|flow| counts(flow)).count();
        assert_eq!(
            sum(page, &format!("hubble_{name}_total"), labels),
            want,
            "{name} {labels:?}: {:#?}",
            page.series
        );
        assert!(want > 0, "{name} {labels:?} tells nothing");
    };
    let of_type = |flow: &Flow, kind: i32| flow.event_type.is_some_and(|t| t.r#type == kind);
    let verdict = |flow: &Flow, verdict: Verdict| flow.verdict == verdict as i32;
    let of_web = |flow: &Flow| flow.source.as_ref().is_some_and(|s| s.pod_name == "web");
    check("drop", &[("source", "shop/web"), ("reason", "POLICY_DENIED")], &|f| {
        of_web(f) && verdict(f, Verdict::Dropped) && !of_type(f, 5)
    });
    check("flows_processed", &[("type", "L7"), ("source_workload", "front"), ("subtype", "DNS")], &|f| {
        of_type(f, 129) && of_web(f)
    });
    check(
        "flows_processed",
        &[("type", "PolicyVerdict"), ("traffic_direction", "ingress"), ("verdict", "FORWARDED")],
        &|f| of_type(f, 5) && f.traffic_direction == 1 && verdict(f, Verdict::Forwarded),
    );
    check("dns_queries", &[("query", "vendor.example.")], &|f| {
        is_dns(f, false) && f.summary.contains(" vendor.example. ")
    });
    // As DNS writes it: other bytes by their numbers, a backslash twice.
    check("dns_queries", &[("query", r#"a"}\0327\010#\032eof\010b\\.example."#)], &|f| {
        is_dns(f, false) && f.summary.contains("\"}")
    });
    check("dns_queries", &[("rcode", "Policy denied")], &|f| {
        is_dns(f, false) && verdict(f, Verdict::Dropped)
    });
    check(
        "dns_responses",
        &[("rcode", "No Error"), ("query", "vendor.example."), ("ips_returned", "1")],
        &|f| is_dns(f, true) && f.summary.contains("\"192.0.2.10\""),
    );
    check(
        "flows_to_world",
        &[("destination", "vendor.example"), ("port", "80"), ("verdict", "FORWARDED")],
        &|f| f.destination_names == ["vendor.example"] && verdict(f, Verdict::Forwarded),
    );
    check("tcp_flags", &[("flag", "SYN"), ("family", "IPv4")], &|f| {
        verdict(f, Verdict::Forwarded) && f.summary == "TCP Flags: SYN"
    });
    check("policy_verdicts", &[("match", "none"), ("action", "dropped")], &|f| {
        of_type(f, 5) && verdict(f, Verdict::Dropped)
    });
    check("port_distribution", &[("protocol", "TCP"), ("port", "80")], &|f| {
        f.summary == "TCP Flags: SYN" && verdict(f, Verdict::Forwarded)
    });
    assert_eq!(sum(page, "hubble_uncounted_flows_total", &[]), 0);
    assert_eq!(sum(page, "hubble_lost_events_total", &[]), 0);
}
