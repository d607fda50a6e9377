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
    let closed =
        wait::until(wait::patient(SOON), || session.tcp("192.0.2.11:80").result.is_err().then_some(()));
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
    let map = Map::HashMap(MapData::from_pin(pinned(cluster, "GRANTS")).expect("opened"));
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

fn pinned(cluster: &Cluster, map: &str) -> std::path::PathBuf {
    let versions = std::fs::read_dir(cluster.agent.pins()).expect("pins").filter_map(Result::ok);
    versions.map(|version| version.path().join(map)).find(|path| path.exists()).expect("a pin")
}

#[test]
fn maps_that_are_not_as_they_shall_be_are_a_broken_link() {
    let Some((cluster, mut session)) = started(&[], &names_of_web(&["vendor.example"])) else { return };
    session.resolve("vendor.example").first();
    session.tcp("192.0.2.10:80").allowed();
    let explain =
        |from: &str, to: &str| cluster.agent.json(&["policy", "explain", "--from", from, "--to", to]);
    let told = explain("web", "192.0.2.10:80");
    assert_eq!(told["cause"]["code"], "rule-allows", "{told:#}");
    // Somebody else writes to the maps: addresses of the world become pods'.
    let pin = pinned(&cluster, "IDENTITIES");
    let mut map: HashMap<_, Addr, u32> =
        HashMap::try_from(Map::HashMap(MapData::from_pin(pin).expect("opened"))).expect("the table");
    map.insert(Addr::from_v4([192, 0, 2, 10]), 4242, 0).expect("written");
    let told = explain("shop/web", "192.0.2.10:80");
    assert_eq!(told["cause"]["code"], "maps-differ", "{told:#}");
    assert!(
        told["links"].to_string().contains("IDENTITIES") && told.to_string().contains("4242"),
        "{told:#}"
    );
}

#[test]
fn ends_that_nobody_knows_are_named() {
    let Some((cluster, _)) = started(&[], &names_of_web(&["vendor.example"])) else { return };
    let ask = |from: &str, to: &str, more: &[&str]| {
        cluster.agent.ask(&[&["policy", "explain", "--from", from, "--to", to], more].concat())
    };
    for (from, to, code, said) in [
        ("shop/nobody", "a.example", 65, "--from: there is no pod shop/nobody"),
        ("shop/web", "a.example:http", 64, "\"http\" is no port"),
        ("/system.slice/none", "a.example", 65, "no endpoint is held at the cgroup"),
        ("999", "a.example", 65, "no endpoint 999"),
        ("192.0.2.1", "192.0.2.2", 65, "neither 192.0.2.1 nor 192.0.2.2 is a workload of n1"),
    ] {
        let told = ask(from, to, &[]);
        assert!(told.code == Some(code) && told.stderr.contains(said), "{from} {to}: {told:#?}");
    }
    // The world asks, and a pod answers.
    let told = cluster.agent.json(&["policy", "explain", "--from", "192.0.2.1", "--to", "shop/api:8080"]);
    assert_eq!(
        (told["verdict"].as_str(), &told["links"][0]["direction"]),
        (Some("allowed"), &"ingress".into())
    );
    assert_eq!(ask("shop/web", "192.0.2.1", &["--exit-code"]).code, Some(1));
    assert_eq!(ask("shop/web", "192.0.2.1", &[]).code, Some(0));
    assert_eq!(ask("shop/job", "192.0.2.1", &["--exit-code"]).code, Some(0));
}

const PODS: &str = "\
apiVersion: v1
kind: Pod
metadata: {name: web, namespace: shop, labels: {app: web}}
status: {podIPs: [{ip: 10.0.0.1}]}
---
apiVersion: v1
kind: Pod
metadata: {name: api, namespace: shop, labels: {app: api}}
spec: {nodeName: far}
status: {podIPs: [{ip: 10.0.0.2}, {ip: \"fd00::2\"}]}
---
apiVersion: v1
kind: Pod
metadata: {name: job, namespace: shop, labels: {app: job}}
spec: {nodeName: near}
status: {podIPs: [{ip: 10.0.0.3}]}
---
apiVersion: v1
kind: Pod
metadata: {name: free, namespace: shop, labels: {app: free}}
status: {podIPs: [{ip: 10.0.0.4}]}
---
apiVersion: v1
kind: Pod
metadata: {name: pending, namespace: shop, labels: {app: free}}
---
apiVersion: v1
kind: Node
metadata: {name: far}
status: {addresses: [{type: InternalIP, address: 10.0.9.9}]}
---
apiVersion: v1
kind: Node
metadata: {name: near}
status: {addresses: [{type: InternalIP, address: 10.0.9.8}]}
---
apiVersion: v1
kind: Service
metadata: {name: api-svc, namespace: shop}
spec: {clusterIP: 10.96.0.20, selector: {app: api}, ports: [{port: 80, protocol: TCP, targetPort: 8080}]}
---
apiVersion: v1
kind: Service
metadata: {name: headless, namespace: shop}
spec: {clusterIP: None, selector: {app: api}, ports: [{port: 8080, protocol: TCP}]}
---
apiVersion: v1
kind: Pod
metadata: {name: dns, namespace: kube-system, labels: {k8s-app: kube-dns}}
spec: {nodeName: far}
status: {podIPs: [{ip: 10.0.0.53}]}
---
apiVersion: v1
kind: Service
metadata: {name: kube-dns, namespace: kube-system, labels: {k8s-app: kube-dns}}
spec:
  clusterIP: 10.96.0.10
  selector: {k8s-app: kube-dns}
  ports: [{name: dns, port: 53, protocol: UDP, targetPort: 5353}]
";

#[test]
fn files_are_explained_without_an_agent() {
    let place = egret_tests::netns::WorldBuilder::new().ns("h").build();
    let (policies, pods) = (place.dir().join("policies"), place.dir().join("pods.yaml"));
    std::fs::create_dir_all(policies.join("below")).expect("made");
    let names = names_of_web(&["vendor.example", "*.parts.example"]);
    std::fs::write(policies.join("below/web.yaml"), &names).expect("written");
    let ingress = "  ingress:\n  - fromEndpoints: [{matchLabels: {app: job}}]\n";
    std::fs::write(policies.join("api.yml"), policy("api", ingress)).expect("written");
    std::fs::write(policies.join("README.md"), "not YAML: [").expect("written");
    // As a ConfigMap is mounted: what is hidden is not read.
    std::fs::create_dir_all(policies.join("..data")).expect("made");
    std::fs::write(policies.join("..data/web.yaml"), "not YAML: [").expect("written");
    std::fs::write(&pods, PODS).expect("written");
    let between = |from: &str, to: &str, more: &[&str]| {
        let (binary, policies) =
            (egret_tests::egret::binary().display().to_string(), policies.display().to_string());
        let pods = pods.display().to_string();
        let fixed = [&binary, "policy", "explain", "--policies", &policies, "--pods", &pods, "--from", from];
        place.place("h").run(&egret_tests::exec::Cmd::new([&fixed[..], &["--to", to], more].concat()))
    };
    let explain = |to: &str, more: &[&str]| between("shop/web", to, more);
    for (to, verdict, cause, said) in [
        ("vendor.example:80", "allowed", "rule-allows", "spec.egress[1].toPorts[0]"),
        ("a.parts.example:80", "allowed", "rule-allows", "once a trusted resolver has answered"),
        ("vendor.example", "denied", "wrong-port", "80/tcp"),
        ("other.example:80", "denied", "query-refused", "other.example"),
        ("192.0.2.1:80", "denied", "never-asked", "192.0.2.1"),
        ("shop/api:8080", "denied", "no-rule", "egress of shop/web to pod shop/api"),
        ("kube-dns.kube-system.svc.cluster.local:53/udp", "denied", "query-refused", "kube-dns"),
        ("10.96.0.10:53/udp", "allowed", "rule-allows", "its backend 10.0.0.53 port 5353/udp"),
    ] {
        let told = explain(to, &["-o", "json"]);
        let json: serde_json::Value =
            serde_json::from_str(&told.stdout).unwrap_or_else(|error| panic!("{to}: {error}: {told:#?}"));
        assert_eq!(
            (&json["verdict"], &json["cause"]["code"]),
            (&verdict.into(), &cause.into()),
            "{to}: {json:#}"
        );
        assert!(json.to_string().contains(said), "{to}: {json:#}");
    }
    for (from, to, verdict, cause, said) in [
        // What is behind a Service has to let it in as well, whatever it is called.
        ("shop/job", "10.96.0.20:80", "allowed", "rule-allows", "spec.ingress[0]"),
        ("shop/free", "10.96.0.20:80", "denied", "no-rule", "ingress of shop/api from pod shop/free"),
        ("shop/free", "api-svc:80", "denied", "no-rule", "api-svc.shop.svc.cluster.local"),
        ("shop/free", "api-svc.shop:80", "denied", "no-rule", "ingress of shop/api"),
        ("shop/job", "headless.shop.svc.cluster.local:8080", "allowed", "rule-allows", "spec.ingress[0]"),
        ("shop/free", "headless:8080", "denied", "no-rule", "ingress of shop/api"),
        // Nobody sends from one family to the other.
        ("shop/free", "[fd00::2]:8080", "unknown", "other-node", "family"),
        ("shop/free", "shop/pending:80", "unknown", "other-node", "has none yet"),
        // A node reaches its own pods, no other node's, and a pod itself.
        ("10.0.9.9", "shop/api:8080", "allowed", "exempt", "probes"),
        ("10.0.9.8", "shop/api:8080", "denied", "no-rule", "another node"),
        ("shop/api", "shop/api:9", "allowed", "exempt", "own address"),
        ("shop/web", "127.0.0.1:80", "allowed", "exempt", "loopback"),
    ] {
        let told = between(from, to, &["-o", "json"]);
        let json: serde_json::Value =
            serde_json::from_str(&told.stdout).unwrap_or_else(|error| panic!("{to}: {error}: {told:#?}"));
        let got = (&json["verdict"], &json["cause"]["code"]);
        assert_eq!(got, (&verdict.into(), &cause.into()), "{from} {to}: {json:#}");
        assert!(json.to_string().contains(said), "{from} {to}: {json:#}");
    }
    let text = explain("vendor.example:80", &[]);
    assert!(text.success() && text.stdout.contains("Verdict   allowed"), "{text:#?}");
    // What is bad is told; the rest is explained.
    std::fs::write(policies.join("bad.yaml"), policy("web", "  egres: []\n")).expect("written");
    let bad = explain("vendor.example:80", &[]);
    assert!(
        bad.code == Some(65) && bad.stderr.contains("spec.egres") && bad.stdout.contains("allowed"),
        "{bad:#?}"
    );
    std::fs::remove_dir_all(&policies).expect("removed");
    assert_eq!(explain("vendor.example:80", &[]).code, Some(66));
}
