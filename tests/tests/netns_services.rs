//! R-A01, R-A02: pods reach Services and the cluster's DNS through virtual addresses that the node translates.

use std::time::Duration;

use egret_tests::cluster::{API_POD, API_VIP, Cluster, names_of_web};
use egret_tests::dnsd::{Dnsd, Zone, raw, raw::rtype};
use egret_tests::probe::Session;
use egret_tests::wait;

/// An agent under these policies.
fn started(policies: &[(&str, &str)]) -> Option<(Cluster, Session)> {
    let mut cluster = Cluster::new()?;
    for (file, text) in policies {
        cluster.agent.put(file, text);
    }
    cluster.agent.start();
    for pod in ["shop/web", "shop/api", "kube-system/dns"] {
        cluster.agent.expect_ready(pod);
    }
    let session = Session::start(&cluster.place("web"));
    Some((cluster, session))
}

fn to_api(port: u16) -> String {
    format!(
        "apiVersion: networking.k8s.io/v1\nkind: NetworkPolicy\nmetadata: {{name: web, namespace: shop}}\nspec:\n  \
         podSelector: {{matchLabels: {{app: web}}}}\n  policyTypes: [Egress]\n  \
         egress: [{{to: [{{podSelector: {{matchLabels: {{app: api}}}}}}], ports: [{{port: {port}}}]}}]\n"
    )
}

#[test]
fn r_a01_a_service_is_as_open_as_the_pods_behind_it() {
    let Some((cluster, mut session)) = started(&[("web.yaml", &to_api(8080))]) else { return };
    let vips = [format!("{API_VIP}:80"), "[2001:db8:96::80]:80".into()];
    for vip in &vips {
        let conn = session.tcp(vip).allowed();
        assert!(session.echo(conn, "through the VIP"), "{vip}");
    }
    session.tcp(API_POD).allowed();
    // The port of the Service is none of the pod's.
    cluster.agent.apply("web.yaml", &to_api(80));
    for vip in &vips {
        session.tcp(vip).denied();
    }
    session.tcp(API_POD).denied();
    let drops = cluster.agent.drops("shop/web");
    assert!(drops.contains_key("ServiceBackendDenied") && drops.contains_key("NoRule"), "{drops:?}");
    // A pod that nobody isolates needs nothing.
    cluster.agent.withdraw("web.yaml");
    for vip in &vips {
        session.tcp(vip).allowed();
    }
}

#[test]
fn r_a02_the_resolver_behind_a_service_is_asked_and_believed() {
    let policy = names_of_web(&["*.fresh.example"]);
    let Some((cluster, mut session)) = started(&[("web.yaml", &policy)]) else { return };
    let resolvers = ["10.96.0.10:53", "[2001:db8:96::10]:53", "10.244.0.53:5353", "[2001:db8:244::53]:5353"];
    for (n, resolver) in resolvers.iter().enumerate() {
        for (tcp, last) in [(false, 10 + n), (true, 20 + n)] {
            let (name, address) = (format!("n{last}.fresh.example"), format!("192.0.2.{last}"));
            cluster.zone.add(&name, 60, &[&address]);
            session.tcp(&format!("{address}:80")).denied();
            let query = [raw::query(last as u16, &name, rtype::A)];
            let what = format!("{name} by {resolver}, tcp: {tcp}");
            assert_eq!(session.dns(resolver, tcp, &query, 1).0.len(), 1, "{what}: {}", cluster.agent.said());
            // What comes over TCP, the agent learns: a retry of the SYN finds it.
            assert!(session.tcp_patient(&format!("{address}:80")).result.is_ok(), "{what}");
        }
        let other = [raw::query(7, "other.example", rtype::A)];
        let (answers, _) = session.dns(resolver, false, &other, 1);
        assert_eq!(answers.first().map(|answer| answer[3] & 15), Some(5), "{resolver}: REFUSED");
    }
    assert_eq!(cluster.queries().count("other.example"), 0);
}

#[test]
fn w_a18_another_resolver_that_a_pod_may_reach_teaches_nothing() {
    let open = "apiVersion: cilium.io/v2\nkind: CiliumNetworkPolicy\nmetadata: {name: own, namespace: shop}\nspec:\n  \
        endpointSelector: {matchLabels: {app: web}}\n  egress: [{toCIDR: [192.0.2.53/32]}]\n";
    let policy = names_of_web(&["vendor.example"]);
    let Some((cluster, mut session)) = started(&[("web.yaml", &policy), ("own.yaml", open)]) else { return };
    let zone = Zone::new();
    zone.add("vendor.example", 60, &["192.0.2.66"]);
    let listen = "192.0.2.53:53".parse().expect("an address");
    let _own = Dnsd::start(cluster.world.ns("w"), &[listen], zone.handler());
    let query = [raw::query(1, "vendor.example", rtype::A)];
    assert_eq!(session.dns("192.0.2.53:53", false, &query, 1).0.len(), 1, "it may be asked");
    session.tcp("192.0.2.66:80").denied();
    session.resolve("vendor.example").first();
    session.tcp("192.0.2.10:80").allowed();
    let known = || {
        let cache = cluster.agent.json(&["fqdn", "cache", "list"]).to_string();
        cache.contains("192.0.2.10").then_some(cache)
    };
    let cache = wait::until(wait::patient(Duration::from_secs(5)), known).expect("it is told");
    assert!(!cache.contains("192.0.2.66"), "{cache}");
}
