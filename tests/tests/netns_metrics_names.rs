//! Metrics of look-ups and answers: what a pod asks is counted once, by what became of it.

use std::time::Duration;

use egret_tests::agent::Agent;
use egret_tests::lab::Lab;
use egret_tests::policy::POD_C as POD;
use egret_tests::scrape::{Page, Scraper};
use egret_tests::{traffic, wait};

const LIMIT: Duration = Duration::from_secs(20);
const ADDRESS: &str = "127.0.0.1:9964";
const RESOLVER: &str = "10.7.0.53";

const POLICY: &str = "\
apiVersion: cilium.io/v2
kind: CiliumNetworkPolicy
metadata: {name: c, namespace: shop}
spec:
  endpointSelector: {matchLabels: {app: c}}
  egress:
  - toCIDR: [10.7.0.53/32]
    toPorts: [{ports: [{port: \"53\", protocol: ANY}], rules: {dns: [{matchPattern: \"*.example.com\"}]}}]
  - toFQDNs: [{matchName: open.example.com}, {matchName: loop.example.com}]
    toPorts: [{ports: [{port: \"443\", protocol: TCP}]}]
";

/// Family, label, values with their counts.
type Want = (&'static str, &'static str, &'static [(&'static str, f64)]);

/// What follows from the look-ups of the test.
const WANT: [Want; 6] = [
    ("egret_dns_queries_total", "verdict", &[("forwarded", 5.0), ("refused", 2.0)]),
    ("egret_dns_answers_total", "rcode", &[("NOERROR", 4.0), ("NXDOMAIN", 1.0), ("REFUSED", 0.0)]),
    ("egret_dns_ignored_answers_total", "cause", &[("unasked", 0.0), ("malformed", 0.0)]),
    (
        "egret_learned_answers_total",
        "outcome",
        &[("kernel", 1.0), ("agent", 0.0), ("barred", 1.0), ("nothing", 3.0)],
    ),
    ("egret_refused_grants_total", "cause", &[("forbidden", 1.0), ("no-room", 0.0)]),
    ("egret_grants", "state", &[("live", 2.0), ("expired", 0.0)]),
];

fn differs(page: &Page) -> Vec<String> {
    let mut differs = Vec::new();
    for (name, label, values) in WANT {
        for (value, want) in values {
            let seen = page.value(name, &[(label, value)]);
            if seen != *want {
                differs.push(format!("{name}{{{label}={value}}} is {seen}, not {want}"));
            }
        }
    }
    differs
}

#[test]
fn look_ups_are_counted_by_what_became_of_them() {
    let Some(lab) = Lab::start() else { return };
    lab.zone
        .add("open.example.com", 600, &["192.0.2.10", "192.0.2.11"])
        .add("loop.example.com", 600, &["127.0.0.1"])
        .add("closed.example.com", 600, &["192.0.2.12"])
        .add("evil.example.org", 600, &["192.0.2.66"]);
    let args = ["--trusted-resolver", RESOLVER, "--metrics", ADDRESS];
    let mut agent = Agent::new(&lab.world, "r").args(&args);
    agent.put("c.yaml", POD);
    agent.put("policy.yaml", POLICY);
    agent.start();
    agent.expect_ready("shop/c");
    let mut scraper = Scraper::new(&lab.world, "r", ADDRESS);
    assert_eq!(scraper.scrape().value("egret_grants", &[("state", "live")]), 0.0);
    for (name, kind) in [
        ("open.example.com", "A"),
        ("loop.example.com", "A"),
        ("closed.example.com", "A"),
        ("closed.example.com", "A"),
        ("missing.example.com", "A"),
        ("evil.example.org", "A"),
        ("evil.example.org", "AAAA"),
    ] {
        lab.world.place("c").run(&traffic::dig(RESOLVER, name, &["+tries=1", "+noedns", "-t", kind]));
    }
    let mut seen = Vec::new();
    let right = wait::until(wait::patient(LIMIT), || {
        seen = differs(&scraper.scrape());
        seen.is_empty().then_some(())
    });
    assert!(right.is_some(), "{seen:#?}: {:#}", agent.json(&["endpoint", "list"]));
}
