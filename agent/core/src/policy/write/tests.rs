//! The written text, and that reading it gives back exactly what was used.

use std::net::IpAddr;

use egret_common::net::Direction;
use proptest::{collection::btree_set, prelude::*, sample::select};

use super::*;
use crate::{
    compile::NamesAsk,
    eval::{KnownName, Objects, Situation, Verdict, eval, eval_query},
    policy::{Policy, cilium},
};

fn used(peer: &str, proto: Proto, port: u16) -> Use {
    let peer = match peer.parse::<IpAddr>() {
        Ok(ip) => UsedPeer::Address(ip),
        Err(_) => UsedPeer::Name(Name::from_dns(peer).unwrap()),
    };
    Use { peer, proto, port }
}

fn read(text: &str) -> Policy {
    let loaded = cilium::parse(text);
    assert_eq!(loaded.diagnostics, [], "{text}");
    loaded.policies.into_iter().next().unwrap()
}

#[test]
fn the_text_is_sorted_and_grouped() {
    let uses = BTreeSet::from([
        used("b.example", Proto::Tcp, 443),
        used("a.example", Proto::Tcp, 443),
        used("c.example", Proto::Udp, 443),
        used("192.0.2.7", Proto::Tcp, 5432),
        used("192.0.2.7", Proto::Icmp, 0x0800),
    ]);
    let asked = BTreeSet::from([Name::parse("only-asked.example").unwrap()]);
    let text = write("learned", &uses, &asked);
    insta::assert_snapshot!(text, @r#"
    apiVersion: cilium.io/v2
    kind: CiliumNetworkPolicy
    metadata:
      name: learned
    spec:
      description: "Written by egret from what was used"
      endpointSelector: {}
      egress:
      - toEndpoints:
        - matchLabels:
            "k8s:io.kubernetes.pod.namespace": kube-system
            "k8s:k8s-app": kube-dns
        toPorts:
        - ports:
          - port: "53"
            protocol: TCP
          - port: "53"
            protocol: UDP
          rules:
            dns:
            - matchName: "a.example"
            - matchName: "b.example"
            - matchName: "c.example"
            - matchName: "only-asked.example"
      - toFQDNs:
        - matchName: "a.example"
        - matchName: "b.example"
        toPorts:
        - ports:
          - port: "443"
            protocol: TCP
      - toFQDNs:
        - matchName: "c.example"
        toPorts:
        - ports:
          - port: "443"
            protocol: UDP
      - toCIDR:
        - "192.0.2.7/32"
        toPorts:
        - ports:
          - port: "5432"
            protocol: TCP
      - toCIDR:
        - "192.0.2.7/32"
        icmps:
        - fields:
          - family: IPv4
            type: 8
    "#);
    read(&text);
}

#[test]
fn s_a02_nothing_used_is_a_policy_that_opens_nothing() {
    let policy = read(&write("none", &BTreeSet::new(), &BTreeSet::new()));
    assert!(policy.isolates().egress && !policy.isolates().ingress);
    let s = Situation {
        direction: Direction::Egress,
        remote: "192.0.2.1".parse().unwrap(),
        identity: 2,
        pod: None,
        own_ports: &BTreeMap::new(),
        names: &[],
        proto: 6,
        port: 443,
        objects: Objects::NONE,
    };
    assert!(matches!(eval(&[policy], &s), Verdict::Deny(_)));
}

#[test]
fn a_name_that_no_policy_can_say_is_a_comment() {
    let text = write("odd", &BTreeSet::from([used("-x.example", Proto::Tcp, 443)]), &BTreeSet::new());
    assert!(text.contains("# not written, since no policy can name it: -x.example"), "{text}");
    read(&text);
}

#[test]
fn more_than_forty_ports_are_split() {
    let uses = (1..=100).map(|port| used("many.example", Proto::Tcp, port)).collect();
    assert_eq!(read(&write("many", &uses, &BTreeSet::new())).rules().len(), 1 + 3);
}

const PEERS: &[&str] = &["a.example", "b.example", "on", "1e3", "192.0.2.1", "192.0.2.2", "2001:db8::1"];

fn any_use() -> impl Strategy<Value = Use> {
    let proto = select(&[Proto::Tcp, Proto::Udp, Proto::Sctp, Proto::Icmp, Proto::Icmpv6][..]);
    (select(PEERS), proto, select(&[0x0100u16, 0x0200, 443, 8080][..])).prop_map(|(peer, proto, port)| {
        used(peer, proto, if matches!(proto, Proto::Icmp | Proto::Icmpv6) { port & 0xff00 } else { port })
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn what_was_used_is_what_is_opened(uses in btree_set(any_use(), 0..12), probes in proptest::collection::vec(any_use(), 16)) {
        let policy = [read(&write("learned", &uses, &BTreeSet::new()))];
        for probe in uses.iter().chain(&probes) {
            let (remote, names) = match &probe.peer {
                UsedPeer::Address(ip) => (*ip, vec![]),
                UsedPeer::Name(name) => ("198.51.100.1".parse().unwrap(), vec![KnownName { name: name.clone(), expired: false }]),
            };
            let own_ports = BTreeMap::new();
            let s = Situation { direction: Direction::Egress, remote, identity: 2, pod: None, own_ports: &own_ports, names: &names, proto: probe.proto.number(), port: probe.port, objects: Objects::NONE };
            prop_assert_eq!(eval(&policy, &s) == Verdict::Allow, uses.contains(probe), "{:?}", probe);
            if let UsedPeer::Name(name) = &probe.peer {
                let known = uses.iter().any(|u| u.peer == probe.peer);
                prop_assert_eq!(eval_query(&policy, name, 53, &[], NamesAsk::No), known);
            }
        }
    }
}
