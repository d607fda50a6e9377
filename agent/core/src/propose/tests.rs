//! Flows in, policies out: the text, that it opens what was seen and nothing else, and that nothing in a flow gets out of its
//! place.

mod property;
mod whose;

use std::net::IpAddr;

use egret_common::{
    net::Direction,
    verdict::{DropReason, Verdict},
};

use super::*;
use crate::{
    flow::{Dns, Flow, Kind, L4, ServiceRef, Side},
    labels::Labels,
    names::Name,
    ports::Proto,
};

const SECOND: u64 = 1_000_000_000;

fn labelled(namespace: &str, pod: &str, labels: &[&str]) -> Side {
    let own = labels.iter().map(|label| format!("k8s:{label}"));
    let added = [
        format!("k8s:io.kubernetes.pod.namespace={namespace}"),
        "k8s:io.cilium.k8s.policy.serviceaccount=default".into(),
        "k8s:io.cilium.k8s.policy.cluster=default".into(),
        format!("k8s:io.cilium.k8s.namespace.labels.kubernetes.io/metadata.name={namespace}"),
    ];
    Side {
        ip: Some([10, 244, 0, 9].into()),
        id: 7,
        identity: 300,
        namespace: namespace.into(),
        pod: pod.into(),
        labels: own.chain(added).collect(),
        ..Side::default()
    }
}

fn web() -> Side {
    labelled("shop", "web-5d4-x2", &["app=web", "pod-template-hash=5d4", "app.kubernetes.io/version=1.2"])
}

fn world(ip: &str, names: &[&str]) -> Side {
    let names = names.iter().map(|name| (*name).to_owned()).collect();
    Side {
        ip: ip.parse().ok(),
        identity: 2,
        labels: ["reserved:world".into()].into(),
        names,
        ..Side::default()
    }
}

fn reserved(name: &str) -> Side {
    Side { ip: Some([10, 0, 0, 1].into()), labels: [format!("reserved:{name}")].into(), ..Side::default() }
}

fn vip(namespace: &str, name: &str, ip: &str) -> Side {
    let service = Some(ServiceRef { namespace: namespace.into(), name: name.into() });
    Side { ip: ip.parse().ok(), service, ..Side::default() }
}

fn flow(source: Side, destination: Side, l4: L4) -> Flow {
    let flow = Flow::new(Kind::Verdict, 100 * SECOND, Direction::Egress, (source, destination), l4);
    Flow { is_reply: Some(false), ..flow }
}

fn tcp(port: u16) -> L4 {
    L4::Tcp { ports: (40_000, port), flags: 2 }
}

fn connect(destination: Side, port: u16) -> Flow {
    flow(web(), destination, tcp(port))
}

fn ask(resolver: Side, name: &str) -> Flow {
    let dns = Dns { query: format!("{name}."), qtypes: vec!["A".into()], ..Dns::default() };
    Flow { kind: Kind::L7, dns: Some(dns), ..flow(web(), resolver, L4::Udp(40_000, 53)) }
}

fn audited(reason: DropReason, flow: Flow) -> Flow {
    Flow { verdict: Verdict::Audited, reason: Some(reason), ..flow }
}

fn dropped(flow: Flow) -> Flow {
    Flow { verdict: Verdict::Dropped, reason: Some(DropReason::NoRule), is_reply: None, ..flow }
}

fn kube_dns() -> Side {
    vip("kube-system", "kube-dns", "10.96.0.10")
}

fn services() -> Services {
    let mut services = Services::default();
    let behind = |side: Side, ip: &str, port| Backend { peer: peer(&side), ip: ip.parse().unwrap(), port };
    let dns = || vec![behind(labelled("kube-system", "dns", &["k8s-app=kube-dns"]), "10.244.0.53", 5353)];
    for proto in [Proto::Udp, Proto::Tcp] {
        services.insert("10.96.0.10".parse().unwrap(), proto, 53, dns());
    }
    let api = vec![behind(labelled("shop", "api", &["app=api"]), "10.244.0.12", 8080)];
    services.insert("10.96.0.80".parse().unwrap(), Proto::Tcp, 80, api);
    let kubernetes = vec![behind(reserved("kube-apiserver"), "10.0.0.7", 6443)];
    services.insert("10.96.0.1".parse().unwrap(), Proto::Tcp, 443, kubernetes);
    services
}

fn options() -> Options {
    Options { name: None, wildcard: None, ingress: false, addresses: true, cluster_domain: cluster_domain() }
}

fn cluster_domain() -> Name {
    Name::parse("cluster.local").unwrap()
}

fn collected(flows: &[Flow]) -> Collected {
    let mut collected = Collected::new(Choice::All, false);
    flows.iter().for_each(|flow| _ = collected.see(flow));
    collected
}

fn proposed(flows: &[Flow], options: &Options) -> Proposal {
    propose(&collected(flows), &services(), options).unwrap()
}

fn everything() -> Vec<Flow> {
    let ping = |kind| L4::Icmpv4(kind, 0);
    vec![
        ask(kube_dns(), "vendor.example.shop.svc.cluster.local"),
        ask(kube_dns(), "vendor.example"),
        audited(DropReason::QueryRefused, ask(kube_dns(), "api.shop.svc.cluster.local")),
        flow(web(), kube_dns(), L4::Udp(40_000, 53)),
        audited(DropReason::NameUnresolved, connect(world("192.0.2.10", &["vendor.example"]), 443)),
        connect(world("192.0.2.10", &["vendor.example"]), 443),
        connect(world("192.0.2.11", &["vendor.example"]), 8443),
        connect(world("192.0.2.77", &[]), 5432),
        connect(vip("shop", "api", "10.96.0.80"), 80),
        connect(vip("default", "kubernetes", "10.96.0.1"), 443),
        connect(labelled("db", "pg-0", &["app=pg", "apps.kubernetes.io/pod-index=0"]), 5432),
        connect(reserved("host"), 9100),
        flow(web(), world("192.0.2.10", &["vendor.example"]), ping(8)),
        dropped(connect(world("198.51.100.1", &[]), 22)),
        Flow { is_reply: Some(true), ..connect(world("198.51.100.2", &[]), 23) },
    ]
}

#[test]
fn a_policy_says_what_was_seen() {
    let proposal = proposed(&everything(), &options());
    insta::assert_snapshot!(proposal.text);
    assert_eq!(proposal.notes, [] as [&str; 0]);
    assert_eq!(proposal, proposed(&everything(), &options()), "the same flows, the same text");
    let mut turned = everything();
    turned.reverse();
    assert_eq!(proposal.text, proposed(&turned, &options()).text, "nor does their order matter");
}

#[test]
fn only_what_passed_counts_unless_asked_for() {
    let mut all = Collected::new(Choice::All, true);
    everything().iter().for_each(|flow| _ = all.see(flow));
    let text = propose(&all, &services(), &options()).unwrap().text;
    assert!(text.contains("198.51.100.1/32") && !text.contains("198.51.100.2"), "{text}");
    // What no policy could have opened is not asked of one.
    let spoofed = audited(DropReason::InvalidSource, connect(world("198.51.100.3", &[]), 24));
    assert!(!collected(&[]).see(&spoofed));
    assert_eq!(propose(&collected(&[spoofed]), &services(), &options()), Err(ProposeError::Nothing));
}

#[test]
fn kinds_of_workloads_have_policies_of_their_own() {
    let of = |app: &str| {
        let source = labelled("shop", "x", &[&format!("app={app}")]);
        flow(source, world("192.0.2.1", &[]), tcp(80))
    };
    let flows =
        [of("a"), of("b"), flow(labelled("other", "x", &["app=a"]), world("192.0.2.2", &[]), tcp(80))];
    let names = |options: &Options| -> Vec<String> {
        proposed(&flows, options).policies.iter().map(|p| p.origin().to_string()).collect()
    };
    let kind = |name: &str| format!("CiliumNetworkPolicy/{name}");
    assert_eq!(names(&options()), ["other/a-learned", "shop/a-learned", "shop/b-learned"].map(kind));
    let named = Options { name: Some("Egress!".into()), ..options() };
    assert_eq!(names(&named), ["other/egress--a", "shop/egress--a", "shop/egress--b"].map(kind));
    // Another instance of the same.
    let more = flow(labelled("shop", "x", &["app=a", "tier=b"]), world("192.0.2.1", &[]), tcp(80));
    let text = proposed(&[flows[0].clone(), more], &options()).text;
    assert!(text.contains("name: a-learned\n") && text.contains("name: a-learned-2\n"), "{text}");
    let chosen = |choice| {
        let mut collected = Collected::new(choice, false);
        flows.iter().filter(|flow| collected.see(flow)).count()
    };
    let shop = || "shop".to_owned();
    let a = Labels::from([("app".to_owned(), "a".to_owned())]);
    assert_eq!(chosen(Choice::Labels { namespace: shop(), labels: a }), 1);
    assert_eq!(chosen(Choice::Labels { namespace: shop(), labels: Labels::new() }), 2);
    assert_eq!(chosen(Choice::Pod { namespace: shop(), name: "x".into() }), 2);
    assert_eq!(chosen(Choice::Pod { namespace: shop(), name: "".into() }), 0);
}

#[test]
fn what_cannot_be_written_is_told() {
    let flows = [
        connect(vip("shop", "gone", "10.96.0.99"), 80),
        connect(reserved("health"), 4240),
        connect(Side::default(), 1),
        flow(web(), world("192.0.2.1", &[]), L4::Other(47)),
        ask(kube_dns(), "-odd.example"),
        ask(kube_dns(), "x\n- {}\u{1b}[2J.example"),
        connect(world("192.0.2.2", &["-odd.example"]), 443),
        connect(world("192.0.2.3", &[]), 443),
    ];
    let mut collected = collected(&flows);
    collected.lose(3);
    let proposal = propose(&collected, &services(), &Options { addresses: false, ..options() }).unwrap();
    insta::assert_snapshot!(proposal.text);
    assert!(proposal.notes.iter().any(|note| note.contains("shop/gone")), "{:?}", proposal.notes);
    assert!(proposal.notes.iter().all(|note| !note.contains(char::is_control)), "{:?}", proposal.notes);
}

#[test]
fn no_text_of_a_flow_leaves_its_place() {
    let evil = "x\n  egress: [{toEntities: [all]}]\u{1b}[31m";
    let mut other = labelled("db", evil, &["app=pg"]);
    other.labels = [format!("k8s:app={evil}"), format!("k8s:{evil}=1")].into();
    let flows = [
        connect(other, 5432),
        ask(vip(evil, evil, "10.96.0.10"), evil),
        connect(vip(evil, evil, "10.96.0.98"), 80),
    ];
    let proposal = proposed(&flows, &options());
    assert!(proposal.text.is_ascii() && !proposal.text.contains('\u{1b}'), "{}", proposal.text);
    assert!(
        proposal.policies[0].rules().is_empty() || !proposal.text.contains("\n  egress: ["),
        "{}",
        proposal.text
    );
    let subject = Flow {
        source: Side { namespace: evil.into(), labels: [format!("k8s:{evil}")].into(), ..web() },
        ..connect(reserved("host"), 1)
    };
    assert_eq!(propose(&collected(&[subject]), &services(), &options()), Err(ProposeError::Nothing));
}

#[test]
fn too_much_is_an_error() {
    let many = |count: usize, flow: &dyn Fn(usize) -> Flow| -> Result<Proposal, ProposeError> {
        let flows: Vec<Flow> = (0..count).map(flow).collect();
        propose(&collected(&flows), &services(), &options())
    };
    let limit = |result: Result<Proposal, ProposeError>| match result {
        Err(ProposeError::TooMany { limit, .. }) => limit,
        other => panic!("{other:?}"),
    };
    let name = |n| ask(kube_dns(), &format!("n{n}.example"));
    assert!(many(1000, &name).is_ok());
    assert_eq!(limit(many(1001, &name)), 1000);
    assert_eq!(limit(many(20_000, &name)), 16_384);
    let port = |n: usize| connect(world("192.0.2.1", &[]), 2 * n as u16 + 1);
    assert!(many(120, &port).is_ok());
    assert_eq!(limit(many(121, &port)), 120);
    let address = |n: usize| connect(world(&IpAddr::from((n as u32).to_be_bytes()).to_string(), &[]), 1);
    assert_eq!(limit(many(1001, &address)), 1000);
}

#[test]
fn wildcards_only_when_asked() {
    let name = |n: u8| format!("host{n}.pool.example");
    let flows: Vec<Flow> = (0..5)
        .flat_map(|n| {
            let port = if n == 4 { 8443 } else { 443 };
            [ask(kube_dns(), &name(n)), connect(world(&format!("192.0.2.{n}"), &[&name(n)]), port)]
        })
        .collect();
    assert!(!proposed(&flows, &options()).text.contains('*'));
    let wild = proposed(&flows, &Options { wildcard: Some(3), ..options() });
    insta::assert_snapshot!(wild.text);
    assert_eq!(wild.notes, [""; 0]);
}

#[test]
fn ingress_only_when_asked() {
    let into = |source: Side, port| Flow { direction: Direction::Ingress, ..flow(source, web(), tcp(port)) };
    let flows = [
        into(labelled("shop", "front", &["app=front"]), 8080),
        into(labelled("mon", "prometheus", &["app=prometheus"]), 9090),
        into(world("192.0.2.200", &["liar.example"]), 8080),
        into(reserved("host"), 8081),
        connect(reserved("kube-apiserver"), 6443),
    ];
    assert!(!proposed(&flows, &options()).text.contains("ingress"));
    let proposal = proposed(&flows, &Options { ingress: true, ..options() });
    insta::assert_snapshot!(proposal.text);
    assert_eq!(proposal.notes, [""; 0]);
}

#[test]
fn a_replay_names_what_would_be_denied() {
    let policy = proposed(&everything(), &options()).policies;
    let more = [
        connect(world("192.0.2.10", &["vendor.example"]), 22),
        connect(world("203.0.113.5", &[]), 443),
        ask(kube_dns(), "evil.example"),
        connect(labelled("db", "x", &["app=other"]), 5432),
        // Another pod of the same kind is the same line.
        connect(Side { ip: Some([10, 244, 0, 10].into()), ..labelled("db", "y", &["app=other"]) }, 5432),
        flow(labelled("shop", "y", &["app=free"]), world("203.0.113.6", &[]), tcp(1)),
    ];
    let flows: Vec<Flow> = everything().into_iter().chain(more).collect();
    let replayed = replay(&policy, &collected(&flows), &services(), &options()).unwrap();
    let lines: Vec<String> = replayed.denied.iter().map(ToString::to_string).collect();
    insta::assert_snapshot!(lines.join("\n"));
    assert_eq!(replayed.passed, 14);
    assert_eq!(Vec::from_iter(&replayed.unselected), ["shop/app=free"]);
}

#[test]
fn networks_mean_pods_only_where_the_language_says_so() {
    let flows = [connect(labelled("db", "x", &["app=pg"]), 5432), connect(world("192.0.2.1", &[]), 5432)];
    let passed = |kind: &str, to: &str| {
        let text = format!("{kind}\nmetadata: {{name: n, namespace: shop}}\nspec: {to}\n");
        let loaded = crate::policy::parse(&text);
        assert_eq!(loaded.diagnostics, [], "{text}");
        replay(&loaded.policies, &collected(&flows), &services(), &options()).unwrap().passed
    };
    let cilium = "apiVersion: cilium.io/v2\nkind: CiliumNetworkPolicy";
    assert_eq!(passed(cilium, "{endpointSelector: {}, egress: [{toCIDR: [0.0.0.0/0]}]}"), 1);
    let upstream = "apiVersion: networking.k8s.io/v1\nkind: NetworkPolicy";
    let all = "{podSelector: {}, policyTypes: [Egress], egress: [{to: [{ipBlock: {cidr: 0.0.0.0/0}}]}]}";
    assert_eq!(passed(upstream, all), 2);
}
