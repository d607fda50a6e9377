//! Whatever was seen: the policy lets it pass, by the kernel's decision and by the text, and no rule of it is idle.

use std::collections::BTreeSet;

use egret_common::ids::identity;
use proptest::{collection::vec, prelude::*, sample::select};

use super::*;
use crate::{
    compile::NamesAsk,
    eval::{KnownName, Objects, Situation, Verdict as Answer, eval, eval_query},
    identity::{Identity, NamedPorts},
    policy::Policy,
};

const NAMES: &[&str] = &["a.example", "b.example", "c.b.example", "on", "1e3.example", "x.svc.cluster.local"];

fn other_end() -> impl Strategy<Value = Side> {
    prop_oneof![
        (1u8..5).prop_map(|n| world(&format!("192.0.2.{n}"), &[])),
        (0..NAMES.len()).prop_map(|n| world(&format!("198.51.100.{n}"), &[NAMES[n]])),
        select(&["app=a", "app=b", "tier=x"][..]).prop_map(|label| labelled("shop", "p", &[label])),
        select(&["app=a", "job-name=j-1"][..]).prop_map(|label| labelled(
            "other",
            "p",
            &[label, "pod-template-hash=1"]
        )),
        select(&["host", "remote-node", "kube-apiserver"][..]).prop_map(reserved),
    ]
}

fn any_flow() -> impl Strategy<Value = Flow> {
    let l4 = prop_oneof![
        select(&[80, 443, 8080][..]).prop_map(tcp),
        select(&[443, 8125][..]).prop_map(|port| L4::Udp(1, port)),
        Just(L4::Icmpv4(8, 0)),
        Just(L4::Icmpv6(128, 0)),
        Just(L4::Sctp(1, 9)),
    ];
    let plain = (other_end(), l4, any::<bool>()).prop_map(|(other, l4, egress)| match egress {
        true => flow(web(), other, l4),
        false => Flow { direction: Direction::Ingress, ..flow(other, web(), l4) },
    });
    let asked = select(NAMES).prop_map(|name| ask(kube_dns(), name));
    let service = select(&[("api", "10.96.0.80", 80), ("kubernetes", "10.96.0.1", 443)][..])
        .prop_map(|(name, ip, port)| connect(vip("x", name, ip), port));
    prop_oneof![4 => plain, 2 => asked, 1 => service]
}

/// The flow by the text of the policies, read slowly; of a Service what is behind it.
fn by_text(policies: &[Policy], need: &Need) -> bool {
    let (proto, port) = match &need.seen.act {
        Act::Ask(proto, port, name) => {
            let search = ["shop.svc.cluster.local", "svc.cluster.local", "cluster.local"];
            let search = search.map(|name| Name::parse(name).unwrap());
            if !eval_query(policies, name, *port, &search, NamesAsk::No) {
                return false;
            }
            (*proto, *port)
        }
        Act::Connect(proto, port) => (*proto, *port),
        Act::Odd(_) => return false,
    };
    let one = |peer: &Peer, port| situation(policies, need, peer, proto, port);
    match &need.seen.peer {
        Peer::Service { ip, .. } => {
            services().at(*ip, proto, port).is_some_and(|list| list.iter().all(|b| one(&b.peer, b.port)))
        }
        peer => one(peer, port),
    }
}

fn situation(policies: &[Policy], need: &Need, peer: &Peer, proto: Proto, port: u16) -> bool {
    let (pod, number, names) = match peer {
        Peer::Pod(labels, _) => {
            let pod = Identity { number: 400, labels: labels.clone(), ports: NamedPorts::new() };
            (Some(pod), 400, BTreeSet::new())
        }
        Peer::Entity(node, _) => (None, node.number(), BTreeSet::new()),
        Peer::World { names, .. } => (None, identity::WORLD, names.clone()),
        Peer::Service { .. } | Peer::Unknown(_) => return false,
    };
    let names: Vec<KnownName> = names.into_iter().map(|name| KnownName { name, expired: false }).collect();
    let s = Situation {
        direction: need.seen.direction,
        remote: peer.address().unwrap_or([10, 244, 0, 77].into()),
        identity: number,
        pod: pod.as_ref(),
        own_ports: &NamedPorts::new(),
        names: &names,
        proto: proto.number(),
        port,
        objects: Objects::NONE,
    };
    eval(policies, &s) == Answer::Allow
}

fn is_probe(need: &Need) -> bool {
    need.seen.direction == Direction::Ingress && matches!(need.seen.peer, Peer::Entity(Node::Host, _))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    #[test]
    fn what_was_seen_passes_and_no_rule_is_idle(flows in vec(any_flow(), 1..14)) {
        let collected = collected(&flows);
        let proposal = propose(&collected, &services(), &Options { ingress: true, ..options() }).unwrap();
        prop_assert_eq!(&proposal.notes, &[] as &[String; 0], "{}", proposal.text);
        for need in collected.needs().unwrap().keys().filter(|need| !is_probe(need)) {
            prop_assert!(by_text(&proposal.policies, need), "{:?}: {}", need, proposal.text);
        }
        let asked = flows.iter().any(|flow| flow.dns.is_some());
        let [policy] = &proposal.policies[..] else { panic!("{}", proposal.text) };
        for left_out in policy.rules().iter().filter(|rule| asked || rule.dns.is_none()) {
            let rules = policy.rules().iter().filter(|rule| *rule != left_out).cloned().collect();
            let without = [policy.with_rules(rules)];
            let replayed = replay(&without, &collected, &services(), &Options { ingress: true, ..options() }).unwrap();
            let nobody = left_out.peers == crate::policy::Peers::Nobody;
            prop_assert!(nobody || !replayed.denied.is_empty(), "{} is idle: {}", left_out.path, proposal.text);
        }
    }

    #[test]
    fn what_was_not_seen_does_not_pass(flows in vec(any_flow(), 1..8), others in vec(any_flow(), 1..20)) {
        let seen = collected(&flows);
        let proposal = propose(&seen, &services(), &Options { ingress: true, ..options() }).unwrap();
        let other = collected(&others);
        let denied = replay(&proposal.policies, &other, &services(), &Options { ingress: true, ..options() }).unwrap();
        let key = |need: &Need| (need.seen.direction, need.seen.peer.clone(), need.seen.act.clone());
        let known: BTreeSet<_> = seen.needs().unwrap().keys().map(key).collect();
        let passed: u64 = other.needs().unwrap().iter().filter(|(need, _)| known.contains(&key(need)) || is_probe(need) || is_implied(need, &seen)).map(|(_, tally)| tally.count).sum();
        prop_assert_eq!(denied.passed, passed, "{}", proposal.text);
    }
}

/// The same under another address: codes of ICMP, names that came with a connection, pods that differ in passing labels.
fn is_implied(need: &Need, seen: &Collected) -> bool {
    let Act::Ask(.., name) = &need.seen.act else { return false };
    seen.needs()
        .unwrap()
        .keys()
        .any(|known| known.seen.direction == Direction::Egress && known.name.as_ref() == Some(name))
}
