//! Pods come and go: what stays in the maps, and what a change costs.

use egret_core::desired::{Desired, diff};

use crate::cluster::{Cluster, Judge, Numbers};

const POLICIES: &str = "apiVersion: cilium.io/v2
kind: CiliumClusterwideNetworkPolicy
metadata: {name: all}
spec:
  endpointSelector: {matchLabels: {pod: a}}
  egress:
  - toEndpoints: [{matchLabels: {role: new}}]
  - toCIDR: [10.0.0.0/8]
---
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {name: block, namespace: x}
spec:
  podSelector: {matchLabels: {pod: b}}
  egress: [{to: [{ipBlock: {cidr: 10.0.0.0/8}}]}]
  policyTypes: [Egress]
";

fn grid() -> Cluster {
    let mut cluster = Cluster::grid();
    cluster.apply(POLICIES);
    cluster
}

fn steps(old: &Desired, new: &Desired) -> Vec<String> {
    diff(old, new).iter().map(ToString::to_string).collect()
}

/// A pod that appears adds entries about itself; the rule sets of the others keep their numbers, so open connections
/// are not judged again.
#[test]
fn k_a08_a_new_pod_changes_only_what_is_said_of_it() {
    let mut numbers = Numbers::default();
    let mut cluster = grid();
    let before = Judge::new(&cluster, &mut numbers);
    cluster.add_pod("y", "new", &["10.1.2.9".parse().unwrap()], &[("role", "new")], Default::default());
    let after = Judge::new(&cluster, &mut numbers);
    let (old, new) = (&before.compiled.desired, &after.compiled.desired);
    for (id, endpoint) in &old.endpoints {
        assert_eq!(new.endpoints.get(id), Some(endpoint));
    }
    let ops = steps(old, new);
    assert!(ops.iter().all(|op| op.starts_with('+')), "{ops:#?}");
    // Its identity, its endpoint, its rule in the sets of a, and its place in their CIDR: once each, since x/a, y/a
    // and z/a share their sets.
    let maps: Vec<&str> = ops.iter().filter_map(|op| op.split_whitespace().nth(1)).collect();
    assert_eq!(maps, ["RULES", "CIDR_CLASSES", "IDENTITIES", "ENDPOINTS"], "{ops:#?}");
    // And back again.
    cluster.pods.pop();
    let back = Judge::new(&cluster, &mut numbers);
    assert_eq!(steps(old, &back.compiled.desired), Vec::<String>::new());
}

/// A NetworkPolicy's ipBlock means pods as it means every other address: no entry per pod.
#[test]
fn k_a10_an_ip_block_costs_nothing_per_pod() {
    let judge = Judge::new(&grid(), &mut Numbers::default());
    let desired = &judge.compiled.desired;
    let egress = |index: u32| desired.endpoints[&index].egress_set;
    let entries = |set: u32| desired.cidrs.keys().filter(|p| p.key.set == set).count();
    // x/b under the NetworkPolicy: the block alone. x/a under toCIDR: the network, and nine pods in it.
    assert_eq!((entries(egress(2)), entries(egress(1))), (1, 10));
    assert_eq!(egress(1), egress(4), "x/a and y/a share their set");
}

/// Class numbers keep their meaning while pods come and go: nothing is replaced, only put and deleted.
#[test]
fn k_a10_classes_of_pods_in_cidrs_are_not_renumbered() {
    let mut numbers = Numbers::default();
    let mut cluster = grid();
    cluster.apply(
        "apiVersion: networking.k8s.io/v1\nkind: NetworkPolicy\nmetadata: {name: some, namespace: x}\nspec:\n  \
         podSelector: {matchLabels: {pod: a}}\n  policyTypes: [Egress]\n  \
         egress: [{to: [{ipBlock: {cidr: 10.1.2.0/24}}], ports: [{port: serve-80-tcp}]}]\n",
    );
    let before = Judge::new(&cluster, &mut numbers);
    let mut fewer = cluster.clone();
    fewer.pods.retain(|p| p.key() != "x/b" && p.key() != "y/b");
    let after = Judge::new(&fewer, &mut numbers);
    let (old, new) = (&before.compiled.desired, &after.compiled.desired);
    for (key, class) in &new.cidrs {
        assert_eq!(old.cidrs.get(key), Some(class), "{key:?}");
    }
    for (key, chunk) in &new.rules {
        assert_eq!(old.rules.get(key), Some(chunk), "{key:?}");
    }
}

/// Three thousand pods of three hundred kinds, a hundred and one policies, and every pod an endpoint of this node.
#[test]
fn thousands_of_pods_compile_in_moments() {
    let mut cluster = Cluster::default();
    for ns in 0..20 {
        let namespace = format!("n{ns}");
        cluster.add_namespace(&namespace, &[("team", ["red", "blue"][ns % 2])]);
        for pod in 0..150 {
            let ip = format!("10.{}.{ns}.{pod}", pod % 15).parse().unwrap();
            let app = format!("app{}", pod % 15);
            cluster.add_pod(&namespace, &format!("p{pod}"), &[ip], &[("app", &app)], Default::default());
        }
        for app in 0..5 {
            cluster.apply(&format!(
                "apiVersion: networking.k8s.io/v1\nkind: NetworkPolicy\nmetadata: {{name: p{app}, namespace: {namespace}}}\n\
                 spec:\n  podSelector: {{matchLabels: {{app: app{app}}}}}\n  ingress:\n  \
                 - from: [{{namespaceSelector: {{matchLabels: {{team: red}}}}}}, {{podSelector: {{}}}}]\n    \
                 ports: [{{port: 80}}]\n"
            ));
        }
    }
    cluster.apply(
        "apiVersion: cilium.io/v2\nkind: CiliumClusterwideNetworkPolicy\nmetadata: {name: out}\nspec:\n  \
         endpointSelector: {matchLabels: {app: app0}}\n  egress: [{toCIDR: [0.0.0.0/0]}, {toEntities: [cluster]}]\n",
    );
    let judge = Judge::new(&cluster, &mut Numbers::default());
    let desired = &judge.compiled.desired;
    assert_eq!(desired.endpoints.len(), 3000);
    let sets = |set: fn(&egret_common::maps::Endpoint) -> u32| -> usize {
        desired.endpoints.values().map(set).collect::<std::collections::BTreeSet<_>>().len()
    };
    // Replicas share: a set for every selected kind and the open one.
    assert_eq!((sets(|e| e.ingress_set), sets(|e| e.egress_set)), (101, 2));
    // toCIDR does not mean pods, and all of them lie in it: that is the price, once per set.
    assert_eq!(desired.cidrs.len(), 3001);
}
