//! A replay of flows, and the reading of the text, agree about what policies would do. (Flows tell no named ports and no
//! names that have expired.)

use std::collections::BTreeSet;

use egret_common::{
    ids::identity,
    net::{Direction, proto},
};
use egret_core::{
    eval::{KnownName, Objects, Situation, Verdict, eval, mentioned},
    flow::{Flow, Kind, L4, Side},
    identity::{Identity, NamedPorts},
    names::Name,
    policy::{Policy, Rule},
    ports::{PortSpec, Ports},
    propose::{Choice, Collected, Options, Services, replay},
};
use proptest::prelude::*;

use crate::support::{Probe, any_policies, any_probe, identities, pods};

/// The flow that the probe's packet would have been.
fn flow(probe: &Probe, number: u32, pod: Option<&Identity>) -> Flow {
    let own = Side { namespace: "x".into(), labels: ["k8s:own=1".to_owned()].into(), ..Side::default() };
    let reserved = match number {
        identity::HOST => "reserved:host",
        identity::REMOTE_NODE => "reserved:remote-node",
        identity::KUBE_APISERVER => "reserved:kube-apiserver",
        _ => "reserved:world",
    };
    let of_pod =
        |pod: &Identity| pod.labels.iter().map(|(key, value)| format!("k8s:{key}={value}")).collect();
    let labels: Vec<String> = pod.map_or_else(|| vec![reserved.to_owned()], of_pod);
    let names =
        probe.names.iter().filter(|known| !known.expired).map(|known| known.name.to_string()).collect();
    let other = Side { ip: Some(probe.remote), labels: labels.into(), names, ..Side::default() };
    let (source, destination) = match probe.direction {
        Direction::Egress => (own, other),
        Direction::Ingress => (other, own),
    };
    let [kind, code] = probe.port.to_be_bytes();
    let l4 = match probe.proto {
        proto::TCP => L4::Tcp { ports: (1, probe.port), flags: 2 },
        proto::UDP => L4::Udp(1, probe.port),
        proto::SCTP => L4::Sctp(1, probe.port),
        proto::ICMP => L4::Icmpv4(kind, code),
        _ => L4::Icmpv6(kind, code),
    };
    let flow = Flow::new(Kind::Verdict, 1, probe.direction, (source, destination), l4);
    Flow { is_reply: Some(false), ..flow }
}

fn by_text(policies: &[Policy], probe: &Probe, number: u32, pod: Option<&Identity>) -> Verdict {
    let of_world = number == identity::WORLD;
    let told =
        probe.names.iter().filter(|known| of_world && !known.expired && mentioned(policies, &known.name));
    let names: Vec<KnownName> = told.cloned().collect();
    let s = Situation {
        direction: probe.direction,
        remote: probe.remote,
        identity: number,
        pod,
        own_ports: &NamedPorts::new(),
        names: &names,
        proto: probe.proto,
        port: probe.port,
        objects: Objects::NONE,
    };
    eval(policies, &s)
}

fn without_named_ports(policy: &Policy) -> Policy {
    let numbers = |rule: &Rule| match &rule.ports {
        Ports::All => rule.clone(),
        Ports::Only(specs) => {
            let specs = specs.iter().filter(|spec| matches!(spec, PortSpec::Range(_))).cloned().collect();
            Rule { ports: Ports::Only(specs), ..rule.clone() }
        }
    };
    policy.with_rules(policy.rules().iter().map(numbers).collect())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn a_replay_says_what_the_text_says(policies in any_policies(), probes in proptest::collection::vec(any_probe(), 20)) {
        let policies: Vec<Policy> = policies.iter().map(without_named_ports).collect();
        let (owners, pods, cluster_domain) = (identities(), pods(), Name::parse("cluster.local").unwrap());
        let options = Options { name: None, wildcard: None, ingress: true, addresses: true, cluster_domain };
        for probe in probes.iter().filter(|probe| probe.proto != 47) {
            let number = owners.get(&probe.remote.to_canonical()).copied().unwrap_or(identity::WORLD);
            // A node may always begin with its own pods.
            if probe.direction == Direction::Ingress && number == identity::HOST {
                continue;
            }
            let pod = pods.get(&number).map(|pod| Identity { ports: NamedPorts::new(), ..(**pod).clone() });
            let mut collected = Collected::new(Choice::All, false);
            prop_assert!(collected.see(&flow(probe, number, pod.as_ref())));
            let replayed = replay(&policies, &collected, &Services::default(), &options).unwrap();
            let reasons: BTreeSet<_> = replayed.denied.iter().map(|denied| denied.reason).collect();
            let want = match by_text(&policies, probe, number, pod.as_ref()) {
                Verdict::Allow => BTreeSet::new(),
                Verdict::Deny(reason) => [reason].into(),
            };
            prop_assert_eq!(reasons, want, "{:?}", probe);
        }
    }
}
