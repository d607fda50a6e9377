//! Pods come and go: what stays in the maps, and what a change costs.

use egret_core::{
    desired::{Desired, diff},
    state::State,
};
use egret_tables::{
    maps::empty_state,
    node::Node,
    scene::Scene,
    table::{Object, PodRow, WorldRow},
};

const POLICIES: [&str; 2] = [
    "{ccnp: all, endpointSelector: {matchLabels: {pod: a}}, egress: [{toEndpoints: [{matchLabels: {role: new}}]}, \
     {toCIDR: [10.0.0.0/8]}]}",
    "{np: x/block, podSelector: {matchLabels: {pod: b}}, policyTypes: [Egress], \
     egress: [{to: [{ipBlock: {cidr: 10.0.0.0/8}}]}]}",
];

/// A cluster, and the agent that looks at it.
struct Lab {
    scene: Scene,
    node: Node,
    state: State,
}

impl Lab {
    fn new(scene: Scene) -> Self {
        Self { scene, node: Node::default(), state: empty_state() }
    }

    fn grid() -> Self {
        let mut lab = Self::new(Scene::new(&WorldRow::default()));
        POLICIES.iter().for_each(|policy| lab.apply(policy));
        lab
    }

    fn apply(&mut self, spec: &str) {
        self.scene.apply(&serde_yaml_ng::from_str::<Object>(spec).unwrap());
    }

    fn add_pod(&mut self, row: &str) {
        self.scene.add_pod(&serde_yaml_ng::from_str::<PodRow>(row).unwrap());
    }

    fn desired(&mut self) -> Desired {
        let (world, specs, wiring) = self.node.look(&self.scene);
        self.state.update(world, specs, wiring, 1).unwrap();
        self.state.desired().clone()
    }
}

fn steps(old: &Desired, new: &Desired) -> Vec<String> {
    diff(old, new).iter().map(ToString::to_string).collect()
}

/// A pod that appears adds entries about itself; the rule sets of the others keep their numbers, so open connections
/// are not judged again.
#[test]
fn k_a08_a_new_pod_changes_only_what_is_said_of_it() {
    let mut lab = Lab::grid();
    let old = lab.desired();
    lab.add_pod("{namespace: y, name: new, labels: {role: new}, ips: [10.1.2.9]}");
    let new = lab.desired();
    for (id, endpoint) in &old.endpoints {
        assert_eq!(new.endpoints.get(id), Some(endpoint));
    }
    let ops = steps(&old, &new);
    assert!(ops.iter().all(|op| op.starts_with('+')), "{ops:#?}");
    // Its identity, its endpoint, its rule in the sets of a, and its place in their CIDR: once each, since x/a, y/a
    // and z/a share their sets.
    let maps: Vec<&str> = ops.iter().filter_map(|op| op.split_whitespace().nth(1)).collect();
    assert_eq!(maps, ["RULES", "CIDR_CLASSES", "IDENTITIES", "ADDRESSES", "ENDPOINTS"], "{ops:#?}");
    // And back again.
    lab.scene.pods.pop();
    assert_eq!(steps(&old, &lab.desired()), Vec::<String>::new());
}

/// A NetworkPolicy's ipBlock means pods as it means every other address: no entry per pod.
#[test]
fn k_a10_an_ip_block_costs_nothing_per_pod() {
    let mut lab = Lab::grid();
    let desired = lab.desired();
    let egress = |pod: &str| desired.endpoints[&lab.node.id(pod).unwrap()].egress_set;
    let entries = |set: u32| desired.cidrs.keys().filter(|p| p.key.set == set).count();
    // x/b under the NetworkPolicy: the block alone. x/a under toCIDR: the network, and nine pods in it.
    assert_eq!((entries(egress("x/b")), entries(egress("x/a"))), (1, 10));
    assert_eq!(egress("x/a"), egress("y/a"), "x/a and y/a share their set");
}

/// Class numbers keep their meaning while pods come and go: nothing is replaced, only put and deleted.
#[test]
fn k_a10_classes_of_pods_in_cidrs_are_not_renumbered() {
    let mut lab = Lab::grid();
    lab.apply(
        "{np: x/some, podSelector: {matchLabels: {pod: a}}, policyTypes: [Egress], \
         egress: [{to: [{ipBlock: {cidr: 10.1.2.0/24}}], ports: [{port: serve-80-tcp}]}]}",
    );
    let old = lab.desired();
    lab.scene.pods.retain(|p| p.key() != "x/b" && p.key() != "y/b");
    let new = lab.desired();
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
    let mut lab = Lab::new(Scene::default());
    for ns in 0..20 {
        let team = ["red", "blue"][ns % 2];
        lab.scene.namespaces.insert(format!("n{ns}"), [("team".to_owned(), team.to_owned())].into());
        for pod in 0..150 {
            let (subnet, app) = (pod % 15, pod % 15);
            lab.add_pod(&format!(
                "{{namespace: n{ns}, name: p{pod}, labels: {{app: app{app}}}, ips: [10.{subnet}.{ns}.{pod}]}}"
            ));
        }
        for app in 0..5 {
            lab.apply(&format!(
                "{{np: n{ns}/p{app}, podSelector: {{matchLabels: {{app: app{app}}}}}, ingress: \
                 [{{from: [{{namespaceSelector: {{matchLabels: {{team: red}}}}}}, {{podSelector: {{}}}}], ports: [{{port: 80}}]}}]}}"
            ));
        }
    }
    lab.apply(
        "{ccnp: out, endpointSelector: {matchLabels: {app: app0}}, egress: [{toCIDR: [0.0.0.0/0]}, {toEntities: [cluster]}]}",
    );
    let desired = lab.desired();
    assert_eq!(desired.endpoints.len(), 3000);
    let sets = |set: fn(&egret_common::maps::Endpoint) -> u32| -> usize {
        desired.endpoints.values().map(set).collect::<std::collections::BTreeSet<_>>().len()
    };
    // Replicas share: a set for every selected kind and the open one.
    assert_eq!((sets(|e| e.ingress_set), sets(|e| e.egress_set)), (101, 2));
    // toCIDR does not mean pods, and all of them lie in it: that is the price, once per set.
    assert_eq!(desired.cidrs.len(), 3001);
}
