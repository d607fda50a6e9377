//! Rules that name nodes, services and groups of networks: what they mean, read from the text (the oracle) and from the
//! compiled maps, while the objects come, change and go.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
};

use egret_common::{
    decide::{Question, decision_of},
    ids::identity,
    net::Direction,
};
use egret_core::{
    compile::{Book, EndpointSpec, NamesAsk, World, addr, compile},
    desired::View,
    dns::lifetime::Lifetime,
    eval::{Backed, Objects, Situation, Verdict, eval},
    labels::Labels,
    policy::{Peers, Policy},
};

use super::Lab;

const CLIENT: &str = "Pod x: {labels: {app: x}} | {spec: {nodeName: n1}, status: {podIP: 10.1.0.1}}";
const NODES: [&str; 3] = [
    "Node n1: {labels: {role: worker}} | {status: {addresses: [{type: InternalIP, address: 192.0.2.1}]}}",
    "Node n2: {labels: {role: cp, zone: a}} | {status: {addresses: [{type: InternalIP, address: 192.0.2.2}, {type: ExternalIP, address: '2001:db8::2'}]}}",
    "Node n3: {labels: {role: cp, zone: b}} | {status: {addresses: [{type: InternalIP, address: 192.0.2.3}]}}",
];
/// Everything that is tried; pods, nodes, the world.
const ADDRESSES: [&str; 12] = [
    "10.1.0.2",
    "10.1.0.3",
    "10.1.0.4",
    "192.0.2.1",
    "192.0.2.2",
    "192.0.2.3",
    "2001:db8::2",
    "198.51.100.1",
    "198.51.100.2",
    "203.0.113.9",
    "64:ff9b::c633:6401",
    "10.9.9.9",
];

fn labels(pairs: &[(&str, &str)]) -> Labels {
    pairs.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect()
}

fn ips(texts: &[&str]) -> BTreeSet<IpAddr> {
    texts.iter().map(|t| t.parse().unwrap()).collect()
}

/// The nodes above, for the oracle.
fn nodes() -> Objects {
    let nodes = vec![
        (labels(&[("role", "worker")]), ips(&["192.0.2.1"])),
        (labels(&[("role", "cp"), ("zone", "a")]), ips(&["192.0.2.2", "2001:db8::2"])),
        (labels(&[("role", "cp"), ("zone", "b")]), ips(&["192.0.2.3"])),
    ];
    Objects { nodes, ..Objects::default() }
}

/// The addresses that the client may reach at 80/tcp: text and maps agree on each.
fn reached(lab: &mut Lab, objects: &Objects) -> Vec<&'static str> {
    let raw: Vec<Policy> = lab.cluster.policies().flat_map(|(_, p)| p).map(|p| (**p).clone()).collect();
    let resolved = lab.resolve();
    let client = resolved.local.iter().find(|p| p.key.name == "x").expect("the client");
    assert!(client.policies.rules().all(|r| !matches!(r.peers, Peers::Objects(_))));
    let world = World {
        cluster_domain: None,
        search: Vec::new(),
        resolvers: BTreeSet::new(),
        identities: resolved.world_identities.clone(),
        peers: resolved.peers.clone(),
        names_ask: NamesAsk::No,
        seen_names: BTreeSet::new(),
    };
    let spec = EndpointSpec {
        id: 1,
        identity: client.identity,
        flags: 0,
        lifetime: Lifetime::default(),
        ports: client.profile.ports.clone(),
        policies: client.policies.clone(),
    };
    let compiled = compile(&world, &[spec], &mut Book::default()).unwrap();
    let view = View { desired: &compiled.desired, grants: &BTreeMap::new(), now: 1 };
    let (direction, proto, port) = (Direction::Egress, 6, 80);
    let mut out = Vec::new();
    for text in ADDRESSES {
        let remote: IpAddr = text.parse().unwrap();
        let question = Question { remote: addr(remote), direction, proto, port };
        let decision = decision_of(&view, &compiled.desired.endpoints[&1], &question);
        let by_maps = decision.reason().map_or(Verdict::Allow, Verdict::Deny);
        let identity = resolved.world_identities.get(&remote).copied().unwrap_or(identity::WORLD);
        let s = Situation {
            direction,
            remote,
            identity,
            pod: resolved.peers.get(&identity).map(|pod| &**pod),
            own_ports: &client.profile.ports,
            names: &[],
            proto,
            port,
            objects,
        };
        assert_eq!(by_maps, eval(&raw, &s), "{text}");
        if by_maps == Verdict::Allow {
            out.push(text);
        }
    }
    out
}

fn pod(name: &str, namespace: &str, ip: &str, labels: &str) -> String {
    format!(
        "Pod {namespace}/{name}: {{labels: {{{labels}}}}} | {{spec: {{nodeName: n2}}, status: {{podIP: {ip}}}}}"
    )
}

fn egress(rules: &str) -> String {
    format!("CiliumNetworkPolicy x: {{spec: {{{rules}}}}}")
}

#[test]
fn nodes_are_their_addresses() {
    let mut lab = Lab::new(&[CLIENT]);
    NODES.iter().for_each(|n| lab.put(n));
    let mut check = |rules: &str, want: &[&str]| {
        lab.put(&egress(rules));
        assert_eq!(reached(&mut lab, &nodes()), want, "{rules}");
    };
    check("egress: [{toNodes: [{matchLabels: {role: cp}}]}]", &["192.0.2.2", "192.0.2.3", "2001:db8::2"]);
    check(
        "egress: [{toNodes: [{matchLabels: {zone: b}}, {matchLabels: {role: worker}}]}]",
        &["192.0.2.1", "192.0.2.3"],
    );
    check("egress: [{toNodes: [{}]}]", &["192.0.2.1", "192.0.2.2", "192.0.2.3", "2001:db8::2"]);
    check("egress: [{toNodes: [{matchLabels: {role: none}}]}]", &[]);
    check(
        "egress: [{toEntities: [remote-node]}], egressDeny: [{toNodes: [{matchLabels: {zone: a}}]}]",
        &["192.0.2.3"],
    );
    check("egress: [{toNodes: [{}], toPorts: [{ports: [{port: '81'}]}]}]", &[]);
}

#[test]
fn nodes_of_a_cluster_network_policy() {
    let mut lab = Lab::new(&[CLIENT]);
    NODES.iter().for_each(|n| lab.put(n));
    lab.put(
        "ClusterNetworkPolicy p: {spec: {tier: Admin, priority: 75, subject: {namespaces: {}}, egress: [\
         {action: Accept, to: [{nodes: {matchLabels: {role: cp}}}], protocols: [{tcp: {destinationPort: {number: 80}}}]}, \
         {action: Deny, to: [{nodes: {}}, {networks: [0.0.0.0/0]}]}]}}",
    );
    // The world behind NAT64 is denied with the IPv4 network.
    assert_eq!(reached(&mut lab, &nodes()), ["192.0.2.2", "192.0.2.3", "2001:db8::2"]);
    // A node that changes its labels is meant no more, and the set of rules is another one.
    let before = lab.local("x").unwrap().policies;
    lab.put(&NODES[1].replace("role: cp", "role: worker"));
    let mut objects = nodes();
    objects.nodes[1].0.insert("role".to_owned(), "worker".to_owned());
    assert_eq!(reached(&mut lab, &objects), ["192.0.2.3"]);
    assert_ne!(lab.local("x").unwrap().policies, before);
}

#[test]
fn a_host_network_pod_is_no_subject_of_a_cluster_network_policy() {
    let mut lab =
        Lab::new(&[CLIENT, "Pod h: {labels: {app: x}} | {spec: {nodeName: n1, hostNetwork: true}}"]);
    lab.put(
        "ClusterNetworkPolicy p: {spec: {tier: Admin, priority: 0, subject: {namespaces: {}}, egress: [\
         {action: Deny, to: [{namespaces: {}}]}]}}",
    );
    lab.put("CiliumNetworkPolicy x: {spec: {egress: [{}]}}");
    assert_eq!(lab.local("x").unwrap().policies.len(), 2);
    assert_eq!(lab.local("h").unwrap().policies.len(), 1);
    let policies: Vec<Policy> = lab.cluster.policies().flat_map(|(_, p)| p).map(|p| (**p).clone()).collect();
    let selected: Vec<usize> = policies.iter().map(|p| lab.cluster.selected(p).count()).collect();
    assert_eq!(selected.iter().sum::<usize>(), 3, "two by the one, the one pod by the other");
}

fn service_objects(namespace: &str, labels_of: Labels, selector: Labels, endpoints: &[&str]) -> Objects {
    let service = Backed {
        namespace: namespace.to_owned(),
        name: "db".to_owned(),
        labels: labels_of,
        selector,
        endpoints: ips(endpoints),
    };
    Objects { services: vec![service], ..Objects::default() }
}

#[test]
fn a_service_with_selector_is_its_pods() {
    let mut lab = Lab::new(&[CLIENT]);
    lab.put(&pod("db-1", "shop", "10.1.0.2", "app: db"));
    lab.put(&pod("db-2", "shop", "10.1.0.3", "app: db, more: yes"));
    lab.put(&pod("db-1", "other", "10.1.0.4", "app: db"));
    let service = |namespace: &str, selector: &str| {
        format!(
            "Service {namespace}/db: {{labels: {{tier: data}}}} | {{spec: {{clusterIP: 10.96.0.1, selector: {selector}, ports: [{{port: 5432}}]}}}}"
        )
    };
    let of = |namespace: &str, selector: &[(&str, &str)]| {
        service_objects(namespace, labels(&[("tier", "data")]), labels(selector), &[])
    };
    let rule = "egress: [{toServices: [{k8sService: {serviceName: db, namespace: shop}}]}]";
    lab.put(&egress(rule));
    // Not there yet: nobody. Then it comes.
    assert_eq!(reached(&mut lab, Objects::NONE), [] as [&str; 0]);
    lab.put(&service("shop", "{app: db}"));
    assert_eq!(reached(&mut lab, &of("shop", &[("app", "db")])), ["10.1.0.2", "10.1.0.3"]);
    // A pod more is no other policy.
    let before = lab.local("x").unwrap().policies;
    lab.delete("Pod shop/db-2");
    assert_eq!(reached(&mut lab, &of("shop", &[("app", "db")])), ["10.1.0.2"]);
    assert_eq!(lab.local("x").unwrap().policies, before);
    lab.delete("Service shop/db");
    assert_eq!(reached(&mut lab, Objects::NONE), [] as [&str; 0]);
    // By labels, in any namespace, and in the deny list.
    lab.put(&service("other", "{app: db}"));
    lab.put(&egress(
        "egress: [{toServices: [{k8sServiceSelector: {selector: {matchLabels: {tier: data}}}}]}]",
    ));
    assert_eq!(reached(&mut lab, &of("other", &[("app", "db")])), ["10.1.0.4"]);
    lab.put(&egress(
        "egress: [{toEntities: [cluster]}], egressDeny: [{toServices: [{k8sService: {serviceName: db}}]}]",
    ));
    assert_eq!(reached(&mut lab, &of("other", &[("app", "db")])), ["10.1.0.2"]);
}

#[test]
fn a_selector_by_labels_of_no_identity_is_the_pods_addresses() {
    let mut lab = Lab::new(&[CLIENT]);
    lab.put(&pod("db-0", "shop", "10.1.0.2", "app: db, statefulset.kubernetes.io/pod-name: db-0"));
    lab.put(&pod("db-1", "shop", "10.1.0.3", "app: db, statefulset.kubernetes.io/pod-name: db-1"));
    lab.put(
        "Service shop/db: {spec: {clusterIP: None, selector: {statefulset.kubernetes.io/pod-name: db-1}}}",
    );
    lab.put(&egress("egress: [{toServices: [{k8sService: {serviceName: db, namespace: shop}}]}]"));
    let resolved = lab.resolve();
    let rules = resolved.local[0].policies[0].rules();
    let Peers::Cidrs(nets) = &rules[0].peers else { panic!("{rules:?}") };
    assert_eq!(
        nets.iter().map(|n| (n.net.to_string(), n.pods)).collect::<Vec<_>>(),
        [("10.1.0.3/32".to_owned(), true)]
    );
}

#[test]
fn a_service_without_selector_is_its_endpoints() {
    let mut lab = Lab::new(&[CLIENT]);
    lab.put(&pod("p", "shop", "10.1.0.2", "app: p"));
    lab.put("Service shop/db: {spec: {clusterIP: None, ports: [{port: 80}]}}");
    lab.put(&egress("egress: [{toServices: [{k8sService: {serviceName: db, namespace: shop}}]}]"));
    let none = service_objects("shop", Labels::new(), Labels::new(), &[]);
    assert_eq!(reached(&mut lab, &none), [] as [&str; 0]);
    let slice = |ips: &str| {
        format!(
            "EndpointSlice shop/db-1: {{labels: {{kubernetes.io/service-name: db}}}} | {{endpoints: [{{addresses: [{ips}]}}], ports: [{{port: 80}}]}}"
        )
    };
    let with = |endpoints: &[&str]| service_objects("shop", Labels::new(), Labels::new(), endpoints);
    // An endpoint that is a pod is not meant, as in Cilium.
    lab.put(&slice("198.51.100.1, 10.1.0.2"));
    assert_eq!(reached(&mut lab, &with(&["198.51.100.1", "10.1.0.2"])), ["198.51.100.1"]);
    let before = lab.local("x").unwrap().policies;
    lab.put(&slice("198.51.100.2"));
    assert_eq!(reached(&mut lab, &with(&["198.51.100.2"])), ["198.51.100.2"]);
    assert_ne!(
        lab.local("x").unwrap().policies,
        before,
        "other addresses, another rule: flows are judged again"
    );
    // A denied address is denied behind NAT64 as well.
    lab.put(&slice("198.51.100.1"));
    lab.put(&egress(
        "egress: [{toEntities: [world]}], egressDeny: [{toServices: [{k8sService: {serviceName: db}}]}]",
    ));
    let denied = ["198.51.100.1", "64:ff9b::c633:6401", "10.1.0.2"];
    let want: Vec<&str> = ADDRESSES.into_iter().filter(|a| !denied.contains(a)).collect();
    assert_eq!(reached(&mut lab, &with(&["198.51.100.1"])), want);
}

#[test]
fn groups_of_networks() {
    let mut lab = Lab::new(&[CLIENT]);
    lab.put(&pod("p", "shop", "10.1.0.2", "app: p"));
    let group = |name: &str, role: &str, nets: &str| {
        format!(
            "CiliumCIDRGroup {name}: {{labels: {{role: {role}}}}} | {{spec: {{externalCIDRs: [{nets}]}}}}"
        )
    };
    let objects = |groups: &[(&str, &str, &[&str])]| {
        let group = |(name, role, nets): &(&str, &str, &[&str])| {
            (
                (*name).to_owned(),
                labels(&[("role", *role)]),
                nets.iter().map(|n| n.parse().unwrap()).collect(),
            )
        };
        Objects { groups: groups.iter().map(group).collect(), ..Objects::default() }
    };
    lab.put(&egress("egress: [{toCIDRSet: [{cidrGroupRef: vpn}, {cidr: 203.0.113.0/24}]}]"));
    assert_eq!(reached(&mut lab, Objects::NONE), ["203.0.113.9"]);
    lab.put(&group("vpn", "a", "198.51.100.0/31, 10.0.0.0/8"));
    let vpn = objects(&[("vpn", "a", &["198.51.100.0/31", "10.0.0.0/8"])]);
    assert_eq!(reached(&mut lab, &vpn), ["10.1.0.3", "10.1.0.4", "198.51.100.1", "203.0.113.9", "10.9.9.9"]);
    lab.put(&group("vpn", "a", "198.51.100.2/32"));
    let vpn = objects(&[("vpn", "a", &["198.51.100.2/32"])]);
    assert_eq!(reached(&mut lab, &vpn), ["198.51.100.2", "203.0.113.9"]);
    // By label: two groups, of which one goes.
    lab.put(&group("office", "a", "203.0.113.0/24"));
    lab.put(&egress("egress: [{toCIDRSet: [{cidrGroupSelector: {matchLabels: {role: a}}}]}]"));
    let both = objects(&[("vpn", "a", &["198.51.100.2/32"]), ("office", "a", &["203.0.113.0/24"])]);
    assert_eq!(reached(&mut lab, &both), ["198.51.100.2", "203.0.113.9"]);
    lab.delete("CiliumCIDRGroup vpn");
    assert_eq!(reached(&mut lab, &objects(&[("office", "a", &["203.0.113.0/24"])])), ["203.0.113.9"]);
}

/// Nodes that a policy tells apart are not one kind of backend (R-A01).
#[test]
fn r_a01_backends_that_a_named_object_tells_apart() {
    let mut lab = Lab::new(&[CLIENT]);
    NODES.iter().for_each(|n| lab.put(n));
    lab.put("Service x/s: {spec: {clusterIP: 10.96.0.9, ports: [{port: 80}]}}");
    lab.put("EndpointSlice x/s-1: {labels: {kubernetes.io/service-name: s}} | {endpoints: [{addresses: [192.0.2.2, 192.0.2.3]}], ports: [{port: 80}]}");
    assert_eq!(lab.services(), ["10.96.0.9:80/tcp -> 192.0.2.2:80"]);
    lab.put(&egress("egress: [{toNodes: [{matchLabels: {zone: a}}]}]"));
    assert_eq!(lab.services(), ["10.96.0.9:80/tcp -> 192.0.2.3:80 192.0.2.2:80"]);
}
