//! The node's links, routes and address translation.

use super::{Pod, nft};
use crate::netns::{World, WorldBuilder};

/// Where the pod behind `kube-dns` listens: not at the Service's port (CASES R-A02).
pub(super) const DNS_PORT: u16 = 5353;

/// The namespaces and Services as objects.
pub(super) const SERVICES: &str = "\
apiVersion: v1
kind: Namespace
metadata: {name: shop, labels: {kubernetes.io/metadata.name: shop}}
---
apiVersion: v1
kind: Namespace
metadata: {name: kube-system, labels: {kubernetes.io/metadata.name: kube-system}}
---
apiVersion: v1
kind: Service
metadata: {name: kube-dns, namespace: kube-system, labels: {k8s-app: kube-dns}}
spec:
  clusterIPs: [10.96.0.10, \"2001:db8:96::10\"]
  selector: {k8s-app: kube-dns}
  ports:
  - {name: dns, port: 53, protocol: UDP, targetPort: 5353}
  - {name: dns-tcp, port: 53, protocol: TCP, targetPort: 5353}
---
apiVersion: v1
kind: Service
metadata: {name: api, namespace: shop}
spec:
  clusterIPs: [10.96.0.80, \"2001:db8:96::80\"]
  selector: {app: api}
  ports: [{port: 80, protocol: TCP, targetPort: 8080}]
";

const GATEWAYS: [&str; 2] = ["10.244.0.1", "2001:db8:244::1"];

/// The world without addresses being translated yet.
pub(super) fn world<'a>(pods: impl Iterator<Item = &'a Pod>) -> WorldBuilder {
    let mut world = WorldBuilder::new().ns("n").ns("w");
    for (key, value) in [
        ("net/ipv4/ip_forward", "1"),
        ("net/ipv6/conf/all/forwarding", "1"),
        // Pods reach each other through the node, though they are on one bridge.
        ("net/ipv4/conf/all/send_redirects", "0"),
        ("net/ipv4/conf/default/send_redirects", "0"),
    ] {
        world = world.sysctl("n", key, value);
    }
    world = world.ip("n", "link add br0 type bridge mcast_snooping 0 forward_delay 0");
    for (gateway, length) in GATEWAYS.iter().zip([24, 64]) {
        world = world.address("n", "br0", &format!("{gateway}/{length}"));
    }
    world = world.ip("n", "link set br0 up");
    for one in pods {
        world = pod(world, one);
    }
    outside(world)
}

fn pod(world: WorldBuilder, pod: &Pod) -> WorldBuilder {
    let (ns, veth) = (pod.ns, pod.interface());
    let mut world = world
        .ns(ns)
        .sysctl(ns, "net/ipv6/conf/all/accept_redirects", "0")
        .sysctl(ns, "net/ipv6/conf/default/accept_redirects", "0")
        .veth(("n", &veth), (ns, "eth0"))
        .ip("n", &format!("link set {veth} master br0"));
    for ((address, length), gateway) in pod.addresses.iter().zip([32, 128]).zip(GATEWAYS) {
        world = world
            .address(ns, "eth0", &format!("{address}/{length}"))
            .ip(ns, &format!("route add {gateway} dev eth0"))
            .ip(ns, &format!("route add default via {gateway}"));
    }
    world
}

/// The outer servers: every address of the documentation networks.
fn outside(world: WorldBuilder) -> WorldBuilder {
    let mut world = world
        .veth(("n", "vw"), ("w", "eth0"))
        .sysctl("w", "net/ipv6/ip_nonlocal_bind", "1")
        .address("n", "vw", "10.7.1.1/24")
        .address("n", "vw", "2001:db8:71::1/64")
        .address("w", "eth0", "10.7.1.2/24")
        .address("w", "eth0", "2001:db8:71::2/64")
        .ip("w", "route add default via 10.7.1.1")
        .ip("w", "route add default via 2001:db8:71::1");
    for net in ["192.0.2.0/24", "198.51.100.0/24", "203.0.113.0/24"] {
        world = world.anyip("w", net).ip("n", &format!("route add {net} via 10.7.1.2"));
    }
    let net = "2001:db8:a::/48";
    world.anyip("w", net).ip("n", &format!("route add {net} via 2001:db8:71::2"))
}

/// What kube-proxy does: each Service's address becomes its pod's.
pub(super) fn translate(world: &World) {
    let mut rules = String::new();
    for (family, dns, api, pods) in [
        ("ip", "10.96.0.10", "10.96.0.80", ["10.244.0.53", "10.244.0.12"]),
        ("ip6", "2001:db8:96::10", "2001:db8:96::80", ["[2001:db8:244::53]", "[2001:db8:244::12]"]),
    ] {
        let [resolver, server] = pods;
        rules += &format!(
            "add table {family} services\n\
             add chain {family} services pre {{ type nat hook prerouting priority dstnat ; }}\n\
             add rule {family} services pre {family} daddr {dns} meta l4proto {{ tcp, udp }} th dport 53 \
             dnat to {resolver}:{DNS_PORT}\n\
             add rule {family} services pre {family} daddr {api} tcp dport 80 dnat to {server}:8080\n"
        );
    }
    nft(&world.place("n"), &rules);
}
