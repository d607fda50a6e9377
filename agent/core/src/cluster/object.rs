//! The objects of a cluster, as far as Egret asks about them.
//!
//! Owns: what is kept of each kind, and how an object is called. Must not know: YAML, numbers, which object wins.

use std::{collections::BTreeSet, fmt, net::IpAddr, sync::Arc};

use ipnet::IpNet;

use crate::{
    flow::Workload, identity::NamedPorts, labels::Labels, names::Name, policy::Policy, ports::Proto,
};

/// The kinds of objects that Egret reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// `v1`.
    Pod,
    /// `v1`.
    Namespace,
    /// `v1`.
    Service,
    /// `discovery.k8s.io/v1`.
    EndpointSlice,
    /// `v1`.
    Node,
    /// `networking.k8s.io/v1`.
    NetworkPolicy,
    /// `cilium.io/v2`.
    CiliumNetworkPolicy,
    /// `cilium.io/v2`.
    CiliumClusterwideNetworkPolicy,
    /// `policy.networking.k8s.io/v1alpha2`, and `v1beta1`, which says the same.
    ClusterNetworkPolicy,
    /// `cilium.io/v2`, and `v2alpha1` before it.
    CiliumCidrGroup,
}

impl Kind {
    const ALL: [(Kind, &'static str, &'static str); 12] = [
        (Kind::Pod, "v1", "Pod"),
        (Kind::Namespace, "v1", "Namespace"),
        (Kind::Service, "v1", "Service"),
        (Kind::EndpointSlice, "discovery.k8s.io/v1", "EndpointSlice"),
        (Kind::Node, "v1", "Node"),
        (Kind::NetworkPolicy, "networking.k8s.io/v1", "NetworkPolicy"),
        (Kind::CiliumNetworkPolicy, "cilium.io/v2", "CiliumNetworkPolicy"),
        (Kind::CiliumClusterwideNetworkPolicy, "cilium.io/v2", "CiliumClusterwideNetworkPolicy"),
        (Kind::ClusterNetworkPolicy, "policy.networking.k8s.io/v1alpha2", "ClusterNetworkPolicy"),
        (Kind::ClusterNetworkPolicy, "policy.networking.k8s.io/v1beta1", "ClusterNetworkPolicy"),
        (Kind::CiliumCidrGroup, "cilium.io/v2", "CiliumCIDRGroup"),
        (Kind::CiliumCidrGroup, "cilium.io/v2alpha1", "CiliumCIDRGroup"),
    ];

    /// The kind with this `apiVersion` and `kind`.
    #[must_use]
    pub fn of(api_version: &str, kind: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|(_, a, k)| (*a, *k) == (api_version, kind)).map(|(kind, ..)| kind)
    }

    /// Whether objects of the kind are policies.
    #[must_use]
    pub fn is_policy(self) -> bool {
        matches!(
            self,
            Kind::NetworkPolicy
                | Kind::CiliumNetworkPolicy
                | Kind::CiliumClusterwideNetworkPolicy
                | Kind::ClusterNetworkPolicy
        )
    }

    /// Whether objects of the kind live in a namespace.
    #[must_use]
    pub fn is_namespaced(self) -> bool {
        !matches!(
            self,
            Kind::Namespace
                | Kind::Node
                | Kind::CiliumClusterwideNetworkPolicy
                | Kind::ClusterNetworkPolicy
                | Kind::CiliumCidrGroup
        )
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = Self::ALL.iter().find(|(kind, ..)| kind == self).map_or("", |(.., name)| *name);
        f.write_str(name)
    }
}

/// What identifies an object: kind, namespace, name.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key {
    /// Kind.
    pub kind: Kind,
    /// Namespace; empty where the kind has none.
    pub namespace: String,
    /// Name.
    pub name: String,
}

impl Key {
    /// A key; the namespace is dropped where the kind has none.
    #[must_use]
    pub fn new(kind: Kind, namespace: &str, name: &str) -> Self {
        let namespace = if kind.is_namespaced() { namespace } else { "" };
        Self { kind, namespace: namespace.to_owned(), name: name.to_owned() }
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.namespace.as_str() {
            "" => write!(f, "{}/{}", self.kind, self.name),
            ns => write!(f, "{}/{ns}/{}", self.kind, self.name),
        }
    }
}

/// An object with its key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Object {
    /// What identifies it.
    pub key: Key,
    /// What it says.
    pub body: Body,
}

/// What an object says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Body {
    /// A pod.
    Pod(Pod),
    /// A namespace: its labels.
    Namespace(Labels),
    /// A service.
    Service(Service),
    /// A part of the endpoints of a service.
    EndpointSlice(EndpointSlice),
    /// A node.
    Node(Node),
    /// A policy object, read.
    Policies(Vec<Policy>),
    /// A group of networks.
    CidrGroup(CidrGroup),
}

/// A pod.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Pod {
    /// Unique over time; empty if the source gives none.
    pub uid: String,
    /// RFC 3339 in UTC, whole seconds, so that texts compare like times; empty if the source gives none.
    pub created: String,
    /// Its own labels, unfiltered.
    pub labels: Labels,
    /// Annotations `egret.dev/...`.
    pub annotations: Labels,
    /// The node it is bound to.
    pub node: Option<String>,
    /// Service account.
    pub service_account: String,
    /// Whether it uses its node's network namespace and with it the node's address.
    pub host_network: bool,
    /// Where it is in its life.
    pub phase: Phase,
    /// All of its addresses.
    pub ips: BTreeSet<IpAddr>,
    /// Named ports of its containers.
    pub ports: NamedPorts,
    /// Search domains of its own (`dnsConfig`), beside those that the cluster gives it.
    pub searches: BTreeSet<Name>,
    /// What controls it, if anything does.
    pub workload: Option<Arc<Workload>>,
}

/// Where a pod is in its life.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Phase {
    /// Not yet, or not known to be, at its end.
    #[default]
    Live,
    /// Succeeded or failed: nothing of it runs, and its address may be somebody else's.
    Ended,
}

/// A service.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Service {
    /// Its labels.
    pub labels: Labels,
    /// The pods behind it; empty: its endpoints are somebody else's care.
    pub selector: Labels,
    /// Cluster addresses, external addresses, addresses of the load balancer; none if it is headless.
    pub vips: BTreeSet<IpAddr>,
    /// Its ports.
    pub ports: Vec<ServicePort>,
}

/// A port of a service.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServicePort {
    /// Its name; empty if it is the only one.
    pub name: String,
    /// Port at the VIP.
    pub port: u16,
    /// Protocol.
    pub proto: Proto,
    /// Port at the pod.
    pub target: TargetPort,
}

/// The port at a pod that a service's port leads to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TargetPort {
    /// The same one for all pods.
    Number(u16),
    /// Whatever port each pod gave this name.
    Name(String),
}

/// A part of the endpoints of a service.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct EndpointSlice {
    /// The service, from the label `kubernetes.io/service-name`; empty if it is nobody's.
    pub service: String,
    /// Addresses of all endpoints, ready or not: one may become so before Egret hears of it.
    pub addresses: BTreeSet<IpAddr>,
    /// Name of the service's port, protocol, port at the endpoint.
    pub ports: Vec<(String, Proto, u16)>,
}

/// A node.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Node {
    /// Its labels.
    pub labels: Labels,
    /// Internal and external addresses.
    pub addresses: BTreeSet<IpAddr>,
}

/// A group of networks that CiliumNetworkPolicies name.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CidrGroup {
    /// Its labels.
    pub labels: Labels,
    /// Its networks.
    pub nets: BTreeSet<IpNet>,
}
