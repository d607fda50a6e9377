//! Warnings about policies that are enforced as written.

use super::Lab;

const DNS: &str = "Service kube-system/kube-dns: {spec: {clusterIP: 10.96.0.10, selector: {k8s-app: dns}, ports: \
    [{port: 53, protocol: UDP, targetPort: 5353}]}}";
const DNS_POD: &str = "Pod kube-system/dns-1: {labels: {k8s-app: dns}} | {status: {podIP: 10.244.3.4}}";
const NAMES: &str = "{toFQDNs: [{matchName: api.example.com}]}";

fn policy(name: &str, egress: &str) -> String {
    format!("CiliumNetworkPolicy {name}: {{spec: {{egress: [{egress}]}}}}")
}

fn advice(objects: &[&str]) -> Vec<String> {
    let mut lab = Lab::default();
    for object in objects {
        let (path, text) = super::full(object);
        for change in lab.source.update(&path, &text) {
            lab.cluster.apply(change);
        }
    }
    let resolved = lab.resolve();
    lab.cluster.advise(&resolved).iter().map(ToString::to_string).collect()
}

#[test]
fn r_a04_names_without_dns() {
    let pod = "Pod x: {labels: {app: x}} | {spec: {nodeName: n1}}";
    let head = "warning: CiliumNetworkPolicy/default/x: spec.egress[0]: names without a rule that lets DNS through: ";
    let none = "no rule allows the cluster's DNS over UDP";
    let check = |objects: &[&str], want: &str| {
        let want = if want.is_empty() { Vec::new() } else { vec![format!("{head}{want}")] };
        assert_eq!(advice(&[&[pod, DNS, DNS_POD], objects].concat()), want, "{objects:?}");
    };
    let of_pod = format!("Pod/default/x cannot resolve them: {none}");
    check(&[&policy("x", NAMES)], &of_pod);
    // Another policy of the same pod may let DNS through; one of another pod does not help.
    let dns = "{toEntities: [cluster], toPorts: [{ports: [{port: '5353', protocol: UDP}]}]}";
    check(&[&policy("x", NAMES), &policy("all", dns)], "");
    check(&[&policy("x", NAMES), &policy("y", dns)], &of_pod);
    // The way to the DNS pods may be opened by label, for the right pods and protocol.
    let to = |labels: &str, proto: &str| {
        let peers = format!("toEndpoints: [{{matchLabels: {{{labels}}}}}]");
        policy("all", &format!("{{{peers}, toPorts: [{{ports: [{{port: '5353', protocol: {proto}}}]}}]}}"))
    };
    let dns_pods = "'k8s:io.kubernetes.pod.namespace': kube-system, k8s-app: dns";
    check(&[&policy("x", NAMES), &to(dns_pods, "UDP")], "");
    check(&[&policy("x", NAMES), &to(dns_pods, "TCP")], &of_pod);
    check(&[&policy("x", NAMES), &to("k8s-app: dns", "UDP")], &of_pod);
    // By address only where the address means pods as well (K-A10).
    let by_address = |net: &str| {
        format!(
            "NetworkPolicy x: {{spec: {{podSelector: {{}}, policyTypes: [Egress], egress: \
             [{{to: [{{ipBlock: {{cidr: {net}}}}}], ports: [{{port: 5353, protocol: UDP}}]}}]}}}}"
        )
    };
    check(&[&policy("x", NAMES), &by_address("10.244.0.0/16")], "");
    check(&[&policy("x", NAMES), &by_address("10.245.0.0/16")], &of_pod);
    let cidr = "{toCIDR: [10.244.0.0/16], toPorts: [{ports: [{port: '5353', protocol: UDP}]}]}";
    check(&[&policy("x", NAMES), &policy("all", cidr)], &of_pod);
    // Egress that is not isolated lets DNS through by itself.
    let open = policy("x", NAMES).replace("egress:", "enableDefaultDeny: {egress: false}, egress:");
    check(&[&open], "");
}

#[test]
fn r_a04_a_policy_about_nobody_yet() {
    let found = advice(&[DNS, DNS_POD, &policy("x", NAMES)]);
    assert!(found[0].ends_with("lets DNS through: no rule allows the cluster's DNS over UDP"), "{found:?}");
}

#[test]
fn r_a02_the_rule_names_the_services_port() {
    let dns = "{toEntities: [cluster], toPorts: [{ports: [{port: '53', protocol: UDP}]}]}";
    let found = advice(&[DNS, DNS_POD, &policy("x", &format!("{NAMES}, {dns}"))]);
    let want = "spec.egress[1].toPorts[0] opens port 53, and the DNS pods listen on 5353";
    assert!(found[0].ends_with(want), "{found:?}");
    // Where nothing is known of the cluster's DNS, port 53 is it.
    assert_eq!(advice(&[&policy("x", &format!("{NAMES}, {dns}"))]), [] as [&str; 0]);
}

#[test]
fn k_a09_only_host_network() {
    let pod = |name: &str, host: bool| {
        format!("Pod {name}: {{labels: {{app: x}}}} | {{spec: {{nodeName: n1, hostNetwork: {host}}}}}")
    };
    let world = policy("x", "{toEntities: [world]}");
    let found = advice(&[&pod("a", true), &pod("b", true), &world]);
    assert!(
        found[0].contains("selects only pods on their nodes' network, such as Pod/default/a"),
        "{found:?}"
    );
    assert_eq!(advice(&[&pod("a", true), &pod("b", false), &world]), [] as [&str; 0]);
    assert_eq!(advice(&[&world]), [] as [&str; 0]);
    // As a peer.
    let to = policy("y", "{toEndpoints: [{matchLabels: {app: x}}]}");
    let found = advice(&[&pod("a", true), &pod("b", true), &to]);
    let want = "spec.egress[0]: `app=x,io.kubernetes.pod.namespace=default` means only pods on their nodes' network, such as Pod/default/a";
    assert!(found[0].contains(want), "{found:?}");
    assert_eq!(advice(&[&pod("a", true), &pod("b", false), &to]), [] as [&str; 0]);
}

#[test]
fn n_a01_depth_of_a_star() {
    let open = "{toEntities: [all]}";
    let names = |patterns: &str| {
        let found = advice(&[&policy("x", &format!("{open}, {{toFQDNs: [{patterns}]}}"))]);
        found.iter().map(|d| d.split('`').nth(1).unwrap().to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(names("{matchPattern: '*.example.com'}"), ["*.example.com"]);
    assert_eq!(names("{matchPattern: '*.example.com'}, {matchPattern: '**.example.com'}"), [] as [&str; 0]);
    assert_eq!(
        names("{matchPattern: '**.example.com'}, {matchPattern: '*'}, {matchName: a.example}"),
        [] as [&str; 0]
    );
    assert_eq!(
        names("{matchPattern: '*.b.example'}, {matchPattern: '*.a.example'}"),
        ["*.a.example", "*.b.example"]
    );
}

#[test]
fn objects_that_are_not_there() {
    let open = "{toEntities: [all]}";
    let rules = "{toServices: [{k8sService: {serviceName: db, namespace: shop}}]}, {toCIDRSet: [{cidrGroupRef: vpn}]}, \
        {toNodes: [{matchLabels: {role: cp}}]}";
    let policy = policy("x", &format!("{open}, {rules}"));
    let told = |objects: &[&str]| {
        let found = advice(&[&[policy.as_str()], objects].concat());
        found.iter().map(|d| d.split("spec.").nth(1).unwrap().to_owned()).collect::<Vec<_>>()
    };
    let until = "the rule means nobody by it until there is one";
    assert_eq!(
        told(&[]),
        [
            format!("egress[1]: there is no Service db in namespace shop: {until}"),
            format!("egress[2]: there is no CiliumCIDRGroup vpn: {until}"),
            format!("egress[3]: there is no node with labels role=cp: {until}"),
        ]
    );
    let there = [
        "Service shop/db: {spec: {}}",
        "CiliumCIDRGroup vpn: {spec: {externalCIDRs: [10.0.0.0/8]}}",
        "Node n2: {labels: {role: cp}} | {status: {}}",
    ];
    assert_eq!(told(&there), [] as [&str; 0]);
    assert_eq!(told(&there[..2]).len(), 1);
}

fn tiered(name: &str, tier: &str, priority: u16, egress: &str) -> String {
    format!(
        "ClusterNetworkPolicy {name}: {{spec: {{tier: {tier}, priority: {priority}, subject: {{namespaces: {{}}}}, \
         egress: [{egress}]}}}}"
    )
}

#[test]
fn equal_priorities_name_both() {
    let a = tiered("a", "Admin", 5, "");
    assert_eq!(
        advice(&[&a, &tiered("b", "Admin", 5, ""), &tiered("c", "Admin", 5, "")]),
        [
            "warning: ClusterNetworkPolicy/b: spec.priority: has the priority 5 of ClusterNetworkPolicy/a in the same tier: \
             that one is asked first, by its name",
            "warning: ClusterNetworkPolicy/c: spec.priority: has the priority 5 of ClusterNetworkPolicy/b in the same tier: \
             that one is asked first, by its name",
        ]
    );
    assert_eq!(advice(&[&a, &tiered("b", "Baseline", 5, ""), &tiered("c", "Admin", 6, "")]), [] as [&str; 0]);
}

#[test]
fn r_a04_names_of_the_admin_tier() {
    let pod = "Pod x: {labels: {app: x}} | {spec: {nodeName: n1}}";
    let names = "{action: Accept, to: [{domainNames: [a.example]}]}";
    let deny = "{action: Deny, to: [{networks: [0.0.0.0/0, '::/0']}]}";
    let dns = "{action: Accept, to: [{pods: {podSelector: {matchLabels: {k8s-app: dns}}}}], \
        protocols: [{udp: {destinationPort: {number: 53}}}, {udp: {destinationPort: {number: 5353}}}]}";
    let check = |rules: &[&str], want: bool| {
        let policy = tiered("names", "Admin", 0, &rules.join(", "));
        for cluster in [&[pod, DNS, DNS_POD][..], &[]] {
            let found = advice(&[cluster, &[policy.as_str()]].concat());
            let told = found.iter().any(|d| {
                d.contains("spec.egress") && d.contains("names without a rule that lets DNS through")
            });
            assert_eq!(told, want, "{rules:?} {found:?}");
        }
    };
    check(&[names], false);
    check(&[names, deny], true);
    check(&[deny, dns, names], true);
    check(&[dns, names, deny], false);
    // What comes after Admin decides where Admin passes.
    let pass = "{action: Pass, to: [{networks: [0.0.0.0/0]}]}";
    check(&[names, pass, deny], false);
    let closed = "NetworkPolicy x: {spec: {podSelector: {}, policyTypes: [Egress]}}";
    let found = advice(&[pod, DNS, DNS_POD, closed, &tiered("names", "Admin", 0, &[names, pass].join(", "))]);
    assert!(found[0].contains("Pod/default/x cannot resolve them: no rule allows"), "{found:?}");
    let baseline = tiered("base", "Baseline", 0, deny);
    assert_eq!(advice(&[pod, DNS, DNS_POD, &baseline, &tiered("names", "Admin", 0, names)]).len(), 1);
}

#[test]
fn k_a09_only_host_network_of_a_cluster_network_policy() {
    let host = "Pod a: {labels: {app: x}} | {spec: {nodeName: n1, hostNetwork: true}}";
    let found = advice(&[host, &tiered("p", "Admin", 0, "")]);
    assert!(
        found[0].ends_with("such as Pod/default/a: a ClusterNetworkPolicy is never about those"),
        "{found:?}"
    );
}

#[test]
fn policies_for_nodes_are_told_to_enforce_nothing() {
    let object =
        "CiliumClusterwideNetworkPolicy nodes: {spec: {nodeSelector: {}, egress: [{toEntities: [world]}]}}";
    let want = "warning: CiliumClusterwideNetworkPolicy/nodes: is about nodes, which nothing holds to policies yet: it enforces nothing";
    assert_eq!(advice(&[object]), [want]);
}
