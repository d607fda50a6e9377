//! Texts of objects that several tests share, as a user would write them: policies above all.

use std::fmt::Write as _;

/// The client `c` of the standard world as a pod of `shop`, behind `vc` of the node `n1`.
pub const POD_C: &str = "\
apiVersion: v1
kind: Pod
metadata:
  name: c
  namespace: shop
  labels: {app: c}
  annotations: {egret.dev/interface: vc}
spec: {nodeName: n1}
status: {phase: Running, podIPs: [{ip: 10.7.0.2}, {ip: \"2001:db8:7::2\"}]}
";

/// Pods `app: a` of `shop` may begin nothing.
pub const A_DENIED: &str = "\
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {name: deny, namespace: shop}
spec: {podSelector: {matchLabels: {app: a}}, policyTypes: [Egress]}
";

/// Pods `app: a` of `shop` may begin connections to `app: b` at port 8080, and no others.
pub const A_TO_B: &str = "\
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {name: to-b, namespace: shop}
spec:
  podSelector: {matchLabels: {app: a}}
  policyTypes: [Egress]
  egress: [{to: [{podSelector: {matchLabels: {app: b}}}], ports: [{port: 8080}]}]
";

/// A CiliumNetworkPolicy under construction.
#[derive(Clone, Debug, Default)]
pub struct Cnp {
    rules: String,
    denials: String,
}

impl Cnp {
    /// Without any rule.
    pub fn new() -> Self {
        Self::default()
    }

    /// Opens DNS to the standard resolver for names of this pattern, and nothing else by it.
    #[must_use]
    pub fn queries(mut self, pattern: &str) -> Self {
        let _ = write!(
            self.rules,
            "  - toCIDR: [10.7.0.53/32, \"2001:db8:7::53/128\"]\n    toPorts:\n    - ports:\n      \
             - {{port: \"53\", protocol: ANY}}\n      rules:\n        dns:\n        - matchPattern: \"{pattern}\"\n"
        );
        self
    }

    /// Opens the addresses of a name or pattern on `443/TCP`, `5000/UDP`, ...
    #[must_use]
    pub fn fqdn(mut self, name: &str, ports: &[&str]) -> Self {
        let key = if name.contains('*') { "matchPattern" } else { "matchName" };
        let _ = write!(self.rules, "  - toFQDNs:\n    - {key}: \"{name}\"\n{}", to_ports(ports));
        self
    }

    /// Opens a CIDR.
    #[must_use]
    pub fn cidr(mut self, net: &str, ports: &[&str]) -> Self {
        let _ = write!(self.rules, "  - toCIDR: [\"{net}\"]\n{}", to_ports(ports));
        self
    }

    /// Denies a CIDR, on all ports.
    #[must_use]
    pub fn deny_cidr(mut self, net: &str) -> Self {
        let _ = writeln!(self.denials, "  - toCIDR: [\"{net}\"]");
        self
    }

    /// The YAML text.
    pub fn text(&self) -> String {
        let mut text =
            "apiVersion: cilium.io/v2\nkind: CiliumNetworkPolicy\nmetadata: {name: test}\nspec:\n  \
                        endpointSelector: {}\n"
                .to_string();
        for (key, rules) in [("egress", &self.rules), ("egressDeny", &self.denials)] {
            if !rules.is_empty() {
                let _ = write!(text, "  {key}:\n{rules}");
            }
        }
        text
    }
}

fn to_ports(ports: &[&str]) -> String {
    let mut text = String::new();
    if !ports.is_empty() {
        text.push_str("    toPorts:\n    - ports:\n");
    }
    for port in ports {
        let (number, protocol) = port.split_once('/').expect("PORT/PROTOCOL");
        let _ = writeln!(text, "      - {{port: \"{number}\", protocol: {protocol}}}");
    }
    text
}
