//! Peers and ports as cyclonus writes them (mattfenwick/cyclonus, pkg/generator), each with what it means, from the API's
//! description of the field. Policies are in namespace x of the grid.

use crate::line::Trial;

/// The other side of a connection, as a peer describes it: namespace and pod, both empty outside the cluster.
#[derive(Debug, Clone, Copy)]
pub(super) struct Other<'a> {
    /// Namespace.
    pub(super) namespace: &'a str,
    /// Pod.
    pub(super) pod: &'a str,
    /// The family.
    pub(super) v6: bool,
}

/// A peer's or a port's text with its meaning.
#[derive(Debug, Clone, Copy)]
pub(super) struct Shape<M> {
    /// Fields.
    pub(super) yaml: &'static str,
    /// What they mean.
    pub(super) means: M,
}

/// Whom a peer means.
pub(super) type Peer = Shape<fn(Other<'_>) -> bool>;
/// Which ports, and whether the destination is a pod, which has named ones.
pub(super) type Port = Shape<fn(&Trial<'_>, bool) -> bool>;

/// Every kind of peer.
pub(super) const PEERS: &[Peer] = &[
    Shape { yaml: "podSelector: {}", means: |o| o.namespace == "x" },
    Shape { yaml: "podSelector: {matchLabels: {pod: c}}", means: |o| o.namespace == "x" && o.pod == "c" },
    Shape {
        yaml: "podSelector: {matchExpressions: [{key: pod, operator: In, values: [b, c]}]}",
        means: |o| o.namespace == "x" && o.pod != "a",
    },
    Shape { yaml: "namespaceSelector: {}", means: |o| !o.namespace.is_empty() },
    Shape { yaml: "namespaceSelector: {matchLabels: {ns: x}}", means: |o| o.namespace == "x" },
    Shape {
        yaml: "namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: y}}",
        means: |o| o.namespace == "y",
    },
    Shape {
        yaml: "namespaceSelector: {matchExpressions: [{key: ns, operator: NotIn, values: [x]}]}",
        means: |o| o.namespace == "y" || o.namespace == "z",
    },
    Shape { yaml: "podSelector: {}, namespaceSelector: {}", means: |o| !o.namespace.is_empty() },
    Shape {
        yaml: "podSelector: {}, namespaceSelector: {matchLabels: {ns: y}}",
        means: |o| o.namespace == "y",
    },
    Shape { yaml: "podSelector: {matchLabels: {pod: c}}, namespaceSelector: {}", means: |o| o.pod == "c" },
    Shape {
        yaml: "podSelector: {matchLabels: {pod: c}}, namespaceSelector: {matchLabels: {ns: y}}",
        means: |o| o.namespace == "y" && o.pod == "c",
    },
    Shape { yaml: "podSelector: {matchLabels: {never: there}}", means: |_| false },
    Shape { yaml: "namespaceSelector: {matchLabels: {this-will-never-happen: qrs123}}", means: |_| false },
    Shape { yaml: "ipBlock: {cidr: 10.1.1.0/24}", means: |o| !o.v6 && o.namespace == "x" },
    Shape {
        yaml: "ipBlock: {cidr: 10.1.1.0/24, except: [10.1.1.2/31]}",
        means: |o| !o.v6 && o.namespace == "x" && o.pod == "a",
    },
    Shape { yaml: "ipBlock: {cidr: 0.0.0.0/0}", means: |o| !o.v6 },
    Shape { yaml: "ipBlock: {cidr: 0.0.0.0/31}", means: |_| false },
    Shape { yaml: "ipBlock: {cidr: '::/0', except: ['fd00:2::/64']}", means: |o| o.v6 && o.namespace != "y" },
];

/// Every kind of port.
pub(super) const PORTS: &[Port] = &[
    Shape { yaml: "{}", means: |t, _| t.proto == "tcp" },
    Shape { yaml: "{port: 81}", means: |t, _| t.proto == "tcp" && t.port == "81" },
    Shape { yaml: "{port: serve-81-tcp}", means: |t, pod| pod && t.proto == "tcp" && t.port == "81" },
    Shape { yaml: "{protocol: TCP}", means: |t, _| t.proto == "tcp" },
    Shape { yaml: "{protocol: TCP, port: 81}", means: |t, _| t.proto == "tcp" && t.port == "81" },
    Shape {
        yaml: "{protocol: TCP, port: serve-81-tcp}",
        means: |t, pod| pod && t.proto == "tcp" && t.port == "81",
    },
    Shape { yaml: "{protocol: UDP}", means: |t, _| t.proto == "udp" },
    Shape { yaml: "{protocol: UDP, port: 81}", means: |t, _| t.proto == "udp" && t.port == "81" },
    // A name belongs to one protocol: this one names nothing.
    Shape { yaml: "{protocol: UDP, port: serve-81-tcp}", means: |_, _| false },
    Shape { yaml: "{protocol: SCTP}", means: |t, _| t.proto == "sctp" },
    Shape { yaml: "{protocol: SCTP, port: 81}", means: |t, _| t.proto == "sctp" && t.port == "81" },
    Shape { yaml: "{protocol: SCTP, port: serve-81-tcp}", means: |_, _| false },
    Shape { yaml: "{port: 79, endPort: 80}", means: |t, _| t.proto == "tcp" && t.port == "80" },
    Shape { yaml: "{protocol: UDP, port: 80, endPort: 82}", means: |t, _| t.proto == "udp" },
    Shape {
        yaml: "{protocol: UDP, port: serve-80-udp}",
        means: |t, pod| pod && t.proto == "udp" && t.port == "80",
    },
];
