//! The operator's policies.

/// Nobody in `shop` may begin a flow, or be reached.
pub(super) const DEFAULT_DENY: &str = "\
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {name: default-deny, namespace: shop}
spec: {podSelector: {}, policyTypes: [Egress, Ingress]}
";

/// `web` may be reached by nobody; `api` by `web`.
pub(super) const API: &str = "\
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {name: api, namespace: shop}
spec:
  podSelector: {matchLabels: {app: api}}
  policyTypes: [Ingress]
  ingress: [{from: [{podSelector: {matchLabels: {app: web}}}], ports: [{port: 8080}]}]
";

/// What `web` needs; DNS is forgotten.
pub(super) const WEB_WITHOUT_DNS: &str = "\
apiVersion: cilium.io/v2
kind: CiliumNetworkPolicy
metadata: {name: web, namespace: shop}
spec:
  endpointSelector: {matchLabels: {app: web}}
  egress:
  - toEndpoints: [{matchLabels: {app: api}}]
    toPorts: [{ports: [{port: \"8080\", protocol: TCP}]}]
  - toFQDNs: [{matchName: vendor.example}, {matchName: direct.example}]
    toPorts: [{ports: [{port: \"80\", protocol: TCP}]}]
";

/// The rest of [`WEB_WITHOUT_DNS`]: look-ups of these names at the cluster's DNS, at this port of its pods.
fn dns(port: u16) -> String {
    format!(
        "  - toEndpoints:\n    - matchLabels: {{k8s-app: kube-dns, io.kubernetes.pod.namespace: kube-system}}\n    \
         toPorts:\n    - ports: [{{port: \"{port}\", protocol: ANY}}]\n      rules:\n        dns:\n        \
         - {{matchPattern: \"*.*.svc.cluster.local\"}}\n        - {{matchName: vendor.example}}\n        \
         - {{matchName: direct.example}}\n"
    )
}

/// [`WEB_WITHOUT_DNS`] with DNS at a port.
pub(super) fn web(dns_port: u16) -> String {
    format!("{WEB_WITHOUT_DNS}{}", dns(dns_port))
}

/// Another team's policy for the same pod, in the other dialect.
pub(super) const PARTNERS: &str = "\
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {name: partners, namespace: shop}
spec:
  podSelector: {matchLabels: {app: web}}
  policyTypes: [Egress]
  egress: [{to: [{ipBlock: {cidr: 203.0.113.0/24}}], ports: [{port: 8080}]}]
";

/// One of the partners is closed, whatever else is said.
pub(super) const NOT_THIS_ONE: &str = "\
apiVersion: cilium.io/v2
kind: CiliumNetworkPolicy
metadata: {name: not-this-one, namespace: shop}
spec:
  endpointSelector: {}
  egressDeny: [{toCIDR: [203.0.113.9/32]}]
";

/// `job` may reach everybody.
pub(super) const JOB: &str = "\
apiVersion: cilium.io/v2
kind: CiliumNetworkPolicy
metadata: {name: job, namespace: shop}
spec:
  endpointSelector: {matchLabels: {app: job}}
  egress: [{toEntities: [all]}]
";
