//! A Kubernetes node in miniature: pods in network namespaces of their own on a bridge, Services by DNAT in the node's
//! namespace, an agent there, the outer world behind it.
//!
//! ```text
//!        ┌ web, web2, api, job   pods of namespace shop        10.244.0.11, .21, .12, .13
//!   n ───┼ dns                   pod of kube-system, port 5353  10.244.0.53
//!  node  └ w                     outer servers                 192.0.2.0/24 ...
//!   Services: kube-dns 10.96.0.10:53 -> dns:5353, api 10.96.0.80:80 -> api:8080
//! ```
//! Knows objects as YAML and the agent by its command line; nothing of Egret's insides. The pods route everything through
//! the node, so that replies of a Service's backend find the way back through the DNAT.

mod net;
mod pod;

use std::collections::BTreeMap;
use std::net::SocketAddr;

use crate::agent::Agent;
use crate::dnsd::{Dnsd, QueryLog, Zone};
use crate::exec::{Cmd, Place};
use crate::netns::{self, World};
use crate::residue;
use crate::servers::{Capture, Hits, Servers};

pub use pod::Pod;

/// Address of the Service `kube-dns`.
pub const DNS_VIP: &str = "10.96.0.10";
/// Address of the Service `api`.
pub const API_VIP: &str = "10.96.0.80";
/// Its name.
pub const API_NAME: &str = "api.shop.svc.cluster.local";
/// The pod behind it, and the port there.
pub const API_POD: &str = "10.244.0.12:8080";

/// The node with everything on it.
#[derive(Debug)]
pub struct Cluster {
    /// The cluster's names and those of the world.
    pub zone: Zone,
    pods: BTreeMap<&'static str, Pod>,
    /// In the node's namespace; not started yet.
    pub agent: Agent,
    dnsd: Dnsd,
    outer: Servers,
    inner: Servers,
    /// The namespaces; last, so that the threads end first.
    pub world: World,
}

impl Cluster {
    /// With its pods and Services as objects in the agent's folder, and no policy. `None`, and why on stderr, where it
    /// cannot be made.
    pub fn new() -> Option<Self> {
        if let Some(reason) = netns::unavailable() {
            eprintln!("skipped: {reason}");
            return None;
        }
        residue::ensure_bpffs();
        let pods: BTreeMap<_, _> = pod::all().into_iter().map(|pod| (pod.name, pod)).collect();
        let world = net::world(pods.values()).build();
        net::translate(&world);
        let zone = Zone::new();
        zone.add(API_NAME, 30, &[API_VIP]).add("vendor.example", 60, &["192.0.2.10"]);
        let dns = pods["dns"].addresses.map(|address| SocketAddr::new(parse(address), net::DNS_PORT));
        let dnsd = Dnsd::start(world.ns("dns"), &dns, zone.handler());
        let outer = Servers::standard(world.ns("w"));
        let inner = Servers::start(world.ns("api"), &[8080, 9090], &[9999]);
        let agent = Agent::new(&world, "n");
        agent.put("cluster.yaml", net::SERVICES);
        let cluster = Self { zone, pods, agent, dnsd, outer, inner, world };
        for name in ["web", "api", "job", "dns"] {
            cluster.publish(name);
        }
        Some(cluster)
    }

    /// Changes what is known of the agent's command line before it starts.
    #[must_use]
    pub fn agent_args(mut self, args: &[&str]) -> Self {
        self.agent = self.agent.args(args);
        self
    }

    /// A pod as it is now.
    pub fn pod(&self, name: &str) -> &Pod {
        self.pods.get(name).unwrap_or_else(|| panic!("no pod {name}"))
    }

    /// Changes a pod's object, and writes it.
    pub fn change(&mut self, name: &str, change: impl FnOnce(&mut Pod)) {
        change(self.pods.get_mut(name).unwrap_or_else(|| panic!("no pod {name}")));
        self.publish(name);
    }

    /// Ends the pod `name`, with its interface, and makes another one of the same name in the namespace `ns` of one that
    /// has not been there yet.
    pub fn recreate(&mut self, name: &'static str, ns: &str) {
        let mut new = self.pods.remove(ns).unwrap_or_else(|| panic!("no pod {ns} in store"));
        let old = self.pods.remove(name).unwrap_or_else(|| panic!("no pod {name}"));
        (new.name, new.labels) = (name, old.labels.clone());
        self.world.ip("n", &format!("link del {}", old.interface()));
        self.pods.insert(name, new);
        self.publish(name);
    }

    /// Where programs of a pod run.
    pub fn place(&self, pod: &str) -> Place {
        let conf = format!("nameserver {DNS_VIP}\noptions timeout:2 attempts:2\n");
        self.world.place(self.pod(pod).ns).resolv_conf(&conf)
    }

    /// Where the agent runs.
    pub fn node(&self) -> Place {
        self.world.place("n")
    }

    /// What the resolver was asked.
    pub fn queries(&self) -> &QueryLog {
        self.dnsd.log()
    }

    /// Who reached the outer servers.
    pub fn hits(&self) -> &Hits {
        self.outer.hits()
    }

    /// Who reached the servers in the pod `api`.
    pub fn pod_hits(&self) -> &Hits {
        self.inner.hits()
    }

    /// Packets that arrive at the outer servers from now on.
    pub fn capture(&self) -> Capture {
        Capture::start(self.world.ns("w"))
    }

    fn publish(&self, name: &str) {
        let pod = self.pod(name);
        self.agent.put(&format!("pod-{name}.yaml"), &pod.yaml(self.world.ns(pod.ns).name()));
    }
}

/// A policy for `web`: it may look up these names, and reach them on port 80.
pub fn names_of_web(names: &[&str]) -> String {
    let list = |indent: &str| -> String {
        let key = |name: &str| if name.contains('*') { "matchPattern" } else { "matchName" };
        names.iter().map(|name| format!("\n{indent}- {}: \"{name}\"", key(name))).collect()
    };
    format!(
        "apiVersion: cilium.io/v2\nkind: CiliumNetworkPolicy\nmetadata: {{name: names, namespace: shop}}\nspec:\n  \
         endpointSelector: {{matchLabels: {{app: web}}}}\n  egress:\n  - toEndpoints:\n    \
         - matchLabels: {{k8s-app: kube-dns, io.kubernetes.pod.namespace: kube-system}}\n    toPorts:\n    \
         - ports: [{{port: \"5353\", protocol: ANY}}]\n      rules:\n        dns:{}\n  - toFQDNs:{}\n    \
         toPorts: [{{ports: [{{port: \"80\", protocol: TCP}}]}}]\n",
        list("        "),
        list("    ")
    )
}

fn parse(address: &str) -> std::net::IpAddr {
    address.parse().unwrap_or_else(|_| panic!("{address} is no address"))
}

/// Runs nft with these rules in a place.
fn nft(place: &Place, rules: &str) {
    place.run(&Cmd::new(["nft", rules])).expect_success();
}
