//! Services and their backends.

use std::{collections::BTreeMap, net::IpAddr};

use egret_common::{ids::identity, net::Direction};
use egret_core::{
    cluster::{Body, Change, Key, Kind, Object},
    eval::{Objects, Situation, Verdict, eval},
    identity::NamedPorts,
    policy::Policy,
};
use proptest::{collection::vec, prelude::*, sample::select};

use super::Lab;

fn pod(name: &str, app: &str, ip: &str, ports: &str) -> String {
    format!(
        "Pod x/{name}: {{labels: {{app: {app}, svc: s}}}} | {{spec: {{containers: [{{ports: [{ports}]}}]}}, status: {{podIP: {ip}}}}}"
    )
}

const SERVICE: &str =
    "Service x/s: {spec: {clusterIP: 10.96.0.7, selector: {svc: s}, ports: [{port: 80, targetPort: web}]}}";

#[test]
fn k_a04_a_named_port_is_each_pods_own() {
    let mut lab = Lab::new(&[
        SERVICE,
        &pod("p1", "a", "10.0.0.1", "{name: web, containerPort: 80}"),
        &pod("p2", "a", "10.0.0.2", "{name: web, containerPort: 8080}"),
        &pod("p3", "a", "10.0.0.3", "{name: web, containerPort: 53, protocol: UDP}"),
        &pod("p4", "a", "10.0.0.4", ""),
    ]);
    assert_eq!(lab.services(), ["10.96.0.7:80/tcp -> 10.0.0.1:80 10.0.0.2:8080"]);
    let resolved = lab.resolve();
    let numbers: Vec<u32> =
        ["10.0.0.1", "10.0.0.2"].map(|ip| resolved.world_identities[&ip.parse().unwrap()]).into();
    assert_ne!(numbers[0], numbers[1], "same labels, other ports: another identity");
    let ports = |n: u32| resolved.peers[&n].ports.values().copied().collect::<Vec<_>>();
    assert_eq!((ports(numbers[0]), ports(numbers[1])), (vec![80], vec![8080]));
}

#[test]
fn replicas_are_one_backend() {
    let mut lab = Lab::new(&[SERVICE]);
    for n in 1..=100 {
        lab.put(&pod(&format!("p{n:03}"), "a", &format!("10.0.0.{n}"), "{name: web, containerPort: 80}"));
    }
    assert_eq!(lab.services(), ["10.96.0.7:80/tcp -> 10.0.0.1:80"]);
}

#[test]
fn k_a12_a_pod_of_this_node_stands_for_no_other_pod() {
    let web = "{name: web, containerPort: 80}";
    let on = |node: &str, name: &str, ip: &str| {
        pod(name, "a", ip, web).replace("{spec: {", &format!("{{spec: {{nodeName: {node}, "))
    };
    let mut lab = Lab::new(&[SERVICE, &on("n1", "p1", "10.0.0.1")]);
    assert_eq!(lab.services(), ["10.96.0.7:80/tcp -> 10.0.0.1:80"]);
    lab.put(&on("n1", "p2", "10.0.0.2"));
    lab.put(&on("n1", "p3", "10.0.0.3"));
    assert_eq!(lab.services(), ["10.96.0.7:80/tcp -> 10.0.0.1:80 10.0.0.2:80"]);
    lab.put(&on("n2", "p4", "10.0.0.4"));
    lab.put(&on("n2", "p5", "10.0.0.5"));
    assert_eq!(lab.services(), ["10.96.0.7:80/tcp -> 10.0.0.4:80"]);
    lab.put(&on("n1", "p0", "10.0.0.0"));
    assert_eq!(lab.services(), ["10.96.0.7:80/tcp -> 10.0.0.4:80"]);
}

#[test]
fn k_a10_replicas_that_a_policy_tells_apart_are_not_one() {
    let web = "{name: web, containerPort: 80}";
    let cilium = "CiliumNetworkPolicy x/p: {spec: {egress: [{toCIDRSet: [{cidr: 10.0.0.0/8, except: [10.0.1.4/32]}]}]}}";
    let mut lab = Lab::new(&[
        SERVICE,
        &pod("p1", "a", "10.0.0.1", web),
        &pod("p2", "a", "10.0.0.2", web),
        &pod("p3", "a", "10.0.1.3", web),
        &pod("p4", "a", "10.0.1.4", web),
        cilium,
    ]);
    assert_eq!(lab.services(), ["10.96.0.7:80/tcp -> 10.0.0.1:80"], "toCIDR does not mean pods");
    lab.put(
        "NetworkPolicy x/p: {spec: {podSelector: {}, policyTypes: [Egress], egress: \
         [{to: [{ipBlock: {cidr: 10.0.0.0/8, except: [10.0.1.4/32]}}]}]}}",
    );
    assert_eq!(lab.services(), ["10.96.0.7:80/tcp -> 10.0.0.1:80 10.0.1.4:80"], "ipBlock does");
}

#[test]
fn what_does_not_fit_is_denied_and_told() {
    let mut lab = Lab::new(&[SERVICE]);
    for n in 1..=9 {
        assert_eq!(lab.notes(), [] as [&str; 0]);
        lab.put(&pod(
            &format!("p{n}"),
            &format!("a{n}"),
            &format!("10.0.0.{n}"),
            "{name: web, containerPort: 80}",
        ));
        let backends = lab.resolve().services[0].backends.len();
        assert_eq!(backends, if n <= 8 { n } else { 0 });
    }
    assert_eq!(lab.services(), ["10.96.0.7:80/tcp ->"]);
    assert!(
        lab.notes()[0]
            .starts_with("warning: Service/x/s: port 80/tcp leads to more than 8 kinds of backends")
    );
    lab.delete("Pod x/p4");
    assert_eq!((lab.resolve().services[0].backends.len(), lab.notes().len()), (8, 0));
}

#[test]
fn no_backend_no_way() {
    let mut lab = Lab::new(&[SERVICE, "Service x/bare: {spec: {clusterIP: 10.96.0.8, ports: [{port: 1}]}}"]);
    assert_eq!(lab.services(), ["10.96.0.7:80/tcp ->", "10.96.0.8:1/tcp ->"]);
    // Neither a pod of another namespace nor one at its end nor one whose address is somebody else's now.
    lab.put("Pod y/p: {labels: {svc: s}} | {spec: {containers: [{ports: [{name: web, containerPort: 80}]}]}, status: {podIP: 10.0.0.1}}");
    lab.put(
        &pod("done", "a", "10.0.0.2", "{name: web, containerPort: 80}")
            .replace("status: {", "status: {phase: Failed, "),
    );
    lab.put(&pod("late", "a", "10.0.0.3", "{name: web, containerPort: 80}"));
    lab.put("Pod y/new: {status: {podIP: 10.0.0.3}}");
    assert_eq!(lab.services(), ["10.96.0.7:80/tcp ->", "10.96.0.8:1/tcp ->"]);
}

#[test]
fn endpoint_slices_count_before_the_selector() {
    let slice = |name: &str, rest: &str| {
        format!("EndpointSlice x/{name}: {{labels: {{kubernetes.io/service-name: s}}}} | {{{rest}}}")
    };
    let mut lab = Lab::new(&[
        "Service x/s: {spec: {clusterIPs: [10.96.0.7, 'fd00:96::7'], selector: {svc: s}, ports: [{name: a, port: 80}, {name: b, port: 81}]}}",
        &pod("p1", "a", "10.0.0.1", ""),
        &slice(
            "s-1",
            "endpoints: [{addresses: [10.0.0.2]}], ports: [{name: a, port: 8080}, {name: b, port: 8081, protocol: UDP}]",
        ),
        &slice(
            "s-2",
            "endpoints: [{addresses: [10.0.0.3]}, {addresses: [198.51.100.4]}], ports: [{name: a, port: 9090}]",
        ),
        &slice(
            "s-6",
            "addressType: IPv6, endpoints: [{addresses: ['fd00::1']}], ports: [{name: a, port: 8080}]",
        ),
        &slice(
            "s-7",
            "addressType: FQDN, endpoints: [{addresses: [a.example]}], ports: [{name: a, port: 8080}]",
        ),
    ]);
    assert_eq!(
        lab.services(),
        [
            "10.96.0.7:80/tcp -> 10.0.0.2:8080 10.0.0.3:9090 198.51.100.4:9090",
            "10.96.0.7:81/tcp ->",
            "[fd00:96::7]:80/tcp -> [fd00::1]:8080",
            "[fd00:96::7]:81/tcp ->",
        ]
    );
    for name in ["s-1", "s-2", "s-6", "s-7"] {
        lab.delete(&format!("EndpointSlice x/{name}"));
    }
    assert_eq!(lab.services()[0], "10.96.0.7:80/tcp -> 10.0.0.1:80");
}

#[test]
fn headless_services_have_no_entry() {
    let mut lab = Lab::new(&[&SERVICE.replace("10.96.0.7", "None"), &pod("p1", "a", "10.0.0.1", "")]);
    assert_eq!(lab.services(), [] as [&str; 0]);
    assert_eq!(lab.owner("10.0.0.1"), "a");
}

#[test]
fn k_a09_a_host_network_backend_is_the_node() {
    let mut lab = Lab::new(&[
        "Node n1: {status: {addresses: [{type: InternalIP, address: 192.0.2.1}]}}",
        "Node n2: {status: {addresses: [{type: InternalIP, address: 192.0.2.2}]}}",
        "Node n3: {status: {addresses: [{type: InternalIP, address: 192.0.2.3}]}}",
        "Service x/s: {spec: {clusterIP: 10.96.0.7, selector: {svc: s}, ports: [{port: 9100}]}}",
    ]);
    for n in 1..=3 {
        lab.put(&format!(
            "Pod x/p{n}: {{labels: {{svc: s}}}} | {{spec: {{nodeName: n{n}, hostNetwork: true}}, status: {{podIP: 192.0.2.{n}}}}}"
        ));
    }
    assert_eq!(lab.services(), ["10.96.0.7:9100/tcp -> 192.0.2.1:9100 192.0.2.2:9100"]);
}

#[test]
fn two_services_at_one_address_are_both_meant() {
    let mut lab = Lab::new(&[
        "Service x/s: {spec: {externalIPs: [192.0.2.7], selector: {app: a}, ports: [{port: 80}]}}",
        "Service x/t: {spec: {externalIPs: [192.0.2.7], selector: {app: b}, ports: [{port: 80}]}}",
        &pod("p1", "a", "10.0.0.1", ""),
        &pod("p2", "b", "10.0.0.2", ""),
    ]);
    assert_eq!(lab.services(), ["192.0.2.7:80/tcp -> 10.0.0.1:80 10.0.0.2:80"]);
}

const DNS: &str = "Service kube-system/kube-dns: {spec: {clusterIP: 10.96.0.10, selector: {k8s-app: dns}, ports: \
    [{name: dns, port: 53, protocol: UDP, targetPort: 53}, {name: dns-tcp, port: 53, targetPort: 53}, {name: metrics, port: 9153}]}}";
const DNS_POD: &str = "Pod kube-system/dns-1: {labels: {k8s-app: dns}} | {status: {podIP: 10.244.3.4}}";

fn resolvers(lab: &mut Lab) -> Vec<String> {
    lab.resolve().resolvers.iter().map(ToString::to_string).collect()
}

#[test]
fn r_a01_the_dns_service_is_judged_by_its_pods() {
    let mut lab = Lab::new(&[DNS, DNS_POD]);
    assert!(lab.services().contains(&"10.96.0.10:53/udp -> 10.244.3.4:53".to_owned()));
    assert_eq!(resolvers(&mut lab), ["10.96.0.10:53", "10.244.3.4:53"]);
    // Another Service on port 53 is nobody to learn from.
    lab.put("Service x/kube-dns: {spec: {clusterIP: 10.96.0.66, ports: [{port: 53, protocol: UDP}]}}");
    assert_eq!(resolvers(&mut lab).len(), 2);
}

#[test]
fn r_a02_both_ports_are_known() {
    let other = DNS.replace("targetPort: 53", "targetPort: 5353");
    let mut lab = Lab::new(&[&other, DNS_POD]);
    assert!(lab.services().contains(&"10.96.0.10:53/udp -> 10.244.3.4:5353".to_owned()));
    assert_eq!(resolvers(&mut lab), ["10.96.0.10:53", "10.244.3.4:5353"]);
    let renamed = other.replace("kube-dns:", "rke2-dns: {labels: {k8s-app: kube-dns}} |");
    let mut lab = Lab::new(&[&renamed, DNS_POD]);
    assert_eq!(resolvers(&mut lab), ["10.96.0.10:53", "10.244.3.4:5353"]);
}

/// Addresses on different sides of the networks that [`crate::support::any_policies`] writes.
const BACKENDS: [&str; 8] = [
    "10.0.0.0",
    "10.1.0.1",
    "10.1.0.2",
    "10.1.2.3",
    "10.1.2.4",
    "10.255.255.255",
    "192.0.2.1",
    "198.51.100.1",
];

/// For each address: nobody, somebody of the world, or a pod (its `app`, the number of its port `web`).
fn any_backend() -> impl Strategy<Value = Option<Option<(u8, u16)>>> {
    let pod = (0..2u8, select(&[80u16, 443][..]));
    prop::option::of(prop::option::weighted(0.8, pod))
}

/// Services with the pods, and with the world behind an EndpointSlice.
fn lab_of(backends: &[Option<Option<(u8, u16)>>]) -> (Lab, Vec<(IpAddr, u16)>) {
    let mut lab = Lab::new(&[SERVICE]);
    let mut all = Vec::new();
    let mut ports: BTreeMap<u16, Vec<&str>> = BTreeMap::new();
    for (n, (ip, backend)) in BACKENDS.iter().zip(backends).enumerate() {
        let Some(backend) = backend else { continue };
        let port = backend.map_or(80, |(_, port)| port);
        if let Some((app, port)) = backend {
            lab.put(&pod(
                &format!("p{n}"),
                &format!("a{app}"),
                ip,
                &format!("{{name: web, containerPort: {port}}}"),
            ));
        }
        ports.entry(port).or_default().push(ip);
        all.push((ip.parse().unwrap(), port));
    }
    for (port, ips) in ports {
        let ips = ips.join(", ");
        lab.put(&format!(
            "EndpointSlice x/s-{port}: {{labels: {{kubernetes.io/service-name: s}}}} | \
             {{endpoints: [{{addresses: [{ips}]}}], ports: [{{port: {port}}}]}}"
        ));
    }
    (lab, all)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    /// Whatever the policies say, the few backends of the entry are allowed exactly if all that there are are allowed.
    #[test]
    fn r_a01_the_few_stand_for_all(backends in vec(any_backend(), BACKENDS.len()), policies in crate::support::any_policies()) {
        let (mut lab, all) = lab_of(&backends);
        for policy in &policies {
            let key = Key::new(Kind::CiliumNetworkPolicy, "x", &policy.origin().name);
            lab.cluster.apply(Change::Put(Box::new(Object { key, body: Body::Policies(vec![policy.clone()]) })));
        }
        let policies: Vec<Policy> = lab.cluster.policies().flat_map(|(_, p)| p).map(|p| (**p).clone()).collect();
        let resolved = lab.resolve();
        let few = &resolved.services[0].backends;
        prop_assert!(few.iter().all(|b| all.contains(b)));
        prop_assert_eq!(few.is_empty(), all.is_empty());
        let allowed = |(remote, port): &(IpAddr, u16)| {
            let identity = resolved.world_identities.get(remote).copied().unwrap_or(identity::WORLD);
            let pod = resolved.peers.get(&identity).map(|pod| &**pod);
            let s = Situation { direction: Direction::Egress, remote: *remote, identity, pod, own_ports: &NamedPorts::new(), names: &[], proto: 6, port: *port, objects: Objects::NONE };
            eval(&policies, &s) == Verdict::Allow
        };
        prop_assert_eq!(few.iter().all(allowed), all.iter().all(allowed));
    }
}
