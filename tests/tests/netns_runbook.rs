//! Incidents, and what `egret policy explain` says about them: the pages of `docs/runbook.md`.

use std::net::SocketAddr;
use std::time::Duration;

use aya::maps::{HashMap, Map, MapData};
use egret_common::grant;
use egret_common::maps::{GrantKey, Grants};
use egret_common::net::Addr;
use egret_tests::cluster::{API_POD, Cluster, names_of_web};
use egret_tests::dnsd::Dnsd;
use egret_tests::dnsd::raw::{self, rtype};
use egret_tests::probe::Session;
use egret_tests::runbook::explain;
use egret_tests::wait;
use nix::sys::signal::Signal;

const SOON: Duration = Duration::from_secs(5);

fn started(args: &[&str], policy: &str) -> Option<(Cluster, Session)> {
    let mut cluster = Cluster::new()?.agent_args(args);
    cluster.agent.put("policy.yaml", policy);
    cluster.agent.start();
    for pod in ["shop/web", "shop/api", "shop/job", "kube-system/dns"] {
        cluster.agent.expect_ready(pod);
    }
    let session = Session::start(&cluster.place("web"));
    Some((cluster, session))
}

/// A policy for the pods `app` of the namespace `shop`.
fn policy(app: &str, spec: &str) -> String {
    format!(
        "apiVersion: cilium.io/v2\nkind: CiliumNetworkPolicy\nmetadata: {{name: {app}, namespace: shop}}\nspec:\n  \
         endpointSelector: {{matchLabels: {{app: {app}}}}}\n{spec}"
    )
}

/// Waits until what the explanation rests on has been read from the kernel.
#[track_caller]
fn expect(cluster: &Cluster, incident: &str, ends: (&str, &str), cause: &str) {
    let (from, to) = ends;
    let mut last = serde_json::Value::Null;
    let told = wait::until(wait::patient(SOON), || {
        last = cluster.agent.json(&["policy", "explain", "--from", from, "--to", to]);
        (last["cause"]["code"] == cause).then_some(())
    });
    assert!(told.is_some(), "{last:#}");
    explain(&cluster.agent, incident, ends, cause);
}

#[test]
fn r_a04_dns_was_forgotten() {
    let names = "  egress:\n  - toFQDNs: [{matchName: vendor.example}]\n    \
        toPorts: [{ports: [{port: \"80\", protocol: TCP}]}]\n";
    let Some((cluster, mut session)) = started(&[], &policy("web", names)) else { return };
    session.resolve("vendor.example").failed();
    expect(&cluster, "DNS was forgotten", ("shop/web", "vendor.example:80"), "dns-forgotten");
}

#[test]
fn names_that_were_not_told() {
    let names = names_of_web(&["vendor.example", "short.example"]).replace(
        "  - toFQDNs",
        "  - toCIDR: [192.0.2.53/32]\n    toPorts: [{ports: [{port: \"53\", protocol: UDP}]}]\n  - toFQDNs",
    );
    let Some((cluster, mut session)) =
        started(&["--ttl-floor", "1", "--grace", "0", "--keep-in-use", "false"], &names)
    else {
        return;
    };
    // Never asked.
    session.tcp("192.0.2.10:80").denied();
    expect(&cluster, "The name was never asked", ("shop/web", "vendor.example:80"), "never-asked");
    expect(&cluster, "The name was never asked", ("shop/web", "192.0.2.10:80"), "never-asked");
    // Asked where nobody listens.
    let foreign: SocketAddr = "192.0.2.53:53".parse().expect("an address");
    let _other = Dnsd::start(cluster.world.ns("w"), &[foreign], cluster.zone.handler());
    let query = raw::query(7, "vendor.example", rtype::A);
    assert_eq!(session.dns("192.0.2.53:53", false, &[query], 1).0.len(), 1, "it answers");
    session.tcp("192.0.2.10:80").denied();
    expect(
        &cluster,
        "The answer came from an untrusted resolver",
        ("shop/web", "vendor.example:80"),
        "untrusted-resolver",
    );
    // Expired under a client that goes on with the address.
    cluster.zone.add("short.example", 1, &["192.0.2.11"]);
    session.resolve("short.example").first();
    session.tcp("192.0.2.11:80").allowed();
    let closed = wait::until(wait::patient(SOON), || {
        std::thread::sleep(Duration::from_millis(500));
        session.tcp("192.0.2.11:80").result.is_err().then_some(())
    });
    assert!(closed.is_some(), "it expires");
    expect(
        &cluster,
        "The answer expired under a client that keeps it",
        ("shop/web", "192.0.2.11:80"),
        "expired",
    );
}

#[test]
fn t_a04_names_that_share_an_address_and_ports() {
    let names = names_of_web(&["vendor.example"]).replace(
        "- matchName: \"vendor.example\"\n  - toFQDNs",
        "- matchPattern: \"*.example\"\n  - toFQDNs",
    );
    assert!(names.contains("*.example"));
    let Some((cluster, mut session)) = started(&[], &names) else { return };
    cluster.zone.add("other.example", 60, &["192.0.2.10"]);
    // T-A04: the address is known under a name that no rule opens.
    session.resolve("other.example").first();
    session.tcp("192.0.2.10:80").denied();
    expect(&cluster, "Another name at the same address", ("shop/web", "other.example:80"), "other-name");
    session.resolve("vendor.example").first();
    session.tcp("192.0.2.10:80").allowed();
    let told = || {
        let told = cluster.agent.json(&["policy", "explain", "--from", "shop/web", "--to", "192.0.2.10:80"]);
        told.to_string().contains("known to it as other.example and vendor.example").then_some(())
    };
    assert!(wait::until(wait::patient(SOON), told).is_some(), "both names are named");
    explain(
        &cluster.agent,
        "Another name at the same address",
        ("shop/web", "other.example:80/tcp"),
        "shared-address",
    );
    // Another port than the rule's.
    session.tcp("192.0.2.10:443").denied();
    expect(&cluster, "The wrong port", ("shop/web", "vendor.example:443"), "wrong-port");
    // A deny rule wins over the name.
    let deny = "  egressDeny:\n  - toCIDR: [192.0.2.0/28]\n";
    cluster.agent.apply("deny.yaml", &policy("web", deny).replace("name: web", "name: no-vendors"));
    session.tcp("192.0.2.10:80").denied();
    expect(&cluster, "A deny rule wins", ("shop/web", "vendor.example:80"), "deny-rule");
}

#[test]
fn pods_that_are_not_what_a_selector_says() {
    let ingress = "  ingress:\n  - fromEndpoints: [{matchLabels: {app: job}}]\n    \
        toPorts: [{ports: [{port: \"8080\", protocol: TCP}]}]\n";
    let Some((mut cluster, mut session)) = started(&[], &policy("api", ingress)) else { return };
    // A label changes.
    let mut job = Session::start(&cluster.place("job"));
    job.tcp(API_POD).allowed();
    expect(&cluster, "A label has changed", ("shop/job", "shop/api:8080"), "rule-allows");
    let before = cluster.agent.revision();
    cluster.change("job", |pod| pod.label("app", "worker"));
    cluster.agent.expect_newer(before);
    job.tcp(API_POD).denied();
    expect(&cluster, "A label has changed", ("shop/job", "shop/api:8080/tcp"), "label-changed");
    // A pod on the host's network.
    let db = "apiVersion: v1\nkind: Pod\nmetadata: {name: db, namespace: shop, uid: uid-db, labels: {app: db}}\n\
        spec: {nodeName: n1, hostNetwork: true}\nstatus: {phase: Running, podIPs: [{ip: 10.244.0.1}]}\n";
    cluster.agent.put("pod-db.yaml", db);
    let egress = "  egress:\n  - toEndpoints: [{matchLabels: {app: db}}]\n";
    cluster.agent.apply("web.yaml", &policy("web", egress));
    session.tcp("10.244.0.1:5432").denied();
    expect(&cluster, "A pod on the host's network", ("shop/web", "shop/db:5432"), "host-network");
    // A pod that nobody finds.
    let ghost = "apiVersion: v1\nkind: Pod\nmetadata: {name: ghost, namespace: shop, uid: uid-ghost, labels: {app: web}}\n\
        spec: {nodeName: n1}\nstatus: {phase: Running, podIPs: [{ip: 10.244.0.99}]}\n";
    cluster.agent.put("pod-ghost.yaml", ghost);
    let known = || cluster.agent.json(&["endpoint", "list"]).to_string().contains("shop/ghost").then_some(());
    assert!(wait::until(wait::patient(SOON), known).is_some());
    expect(&cluster, "A pod that nobody holds", ("shop/ghost", "vendor.example:443"), "unmanaged");
}

#[test]
fn a_full_table_and_no_agent() {
    let Some((mut cluster, mut session)) = started(&[], &names_of_web(&["vendor.example"])) else { return };
    fill(&cluster);
    session.resolve("vendor.example").first();
    session.tcp("192.0.2.10:80").denied();
    expect(&cluster, "The table of learned addresses is full", ("shop/web", "vendor.example:80"), "map-full");
    cluster.agent.end(Signal::SIGKILL);
    let gone = cluster.agent.ask(&["policy", "explain", "--from", "shop/web", "--to", "vendor.example"]);
    assert_eq!(gone.code, Some(69), "{gone:#?}");
    explain(&cluster.agent, "No agent runs", ("shop/web", "vendor.example"), "agent-down");
}

/// Fills the table of learned addresses, for a workload that there is not.
fn fill(cluster: &Cluster) {
    let pin = std::fs::read_dir(cluster.agent.pins()).expect("pins").filter_map(Result::ok);
    let pin = pin.map(|version| version.path().join("GRANTS")).find(|path| path.exists()).expect("a pin");
    let map = Map::HashMap(MapData::from_pin(pin).expect("opened"));
    let mut map: HashMap<_, GrantKey, Grants> = HashMap::try_from(map).expect("the table");
    let mut value = Grants::default();
    value.slots[0] = grant::pack(1 << 24 | 1, u32::MAX);
    let filled = (0u32..1 << 17).find(|n| {
        let [a, b, c, d] = n.to_be_bytes();
        let key = GrantKey { addr: Addr::from_v4([198 | a, 18 + b, c, d]), endpoint: 4000, pad: 0 };
        map.insert(key, value, 0).is_err()
    });
    assert_eq!(filled, Some(65_536));
}
