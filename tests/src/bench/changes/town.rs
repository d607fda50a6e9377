//! A cluster as text: 40 namespaces with 25 applications each (1,000 identities, 4,000 pods), 200 of its pods on one
//! node, and 180 policies of mixed kinds. One object per file.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::net::Ipv4Addr;
use std::path::PathBuf;

/// The node that is looked at.
pub(super) const NODE: &str = "n1";
pub(super) const NAMESPACES: u32 = 40;
pub(super) const APPS: u32 = 25;
const REPLICAS: u32 = 4;
/// So many applications of each namespace have their first pod on the node.
const LOCAL: u32 = 5;
const NODES: u32 = 20;

/// A pod by namespace, application and replica.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Pod {
    pub(super) ns: u32,
    pub(super) app: u32,
    pub(super) replica: u32,
}

impl Pod {
    /// One of them, by any number.
    pub(super) fn pick(number: u32) -> Self {
        let replica = number % REPLICAS;
        Self { ns: number / REPLICAS / APPS % NAMESPACES, app: number / REPLICAS % APPS, replica }
    }

    /// One on the node, by any number.
    pub(super) fn pick_local(number: u32) -> Self {
        Self { ns: number / LOCAL % NAMESPACES, app: number % LOCAL, replica: 0 }
    }

    pub(super) fn is_local(self) -> bool {
        self.app < LOCAL && self.replica == 0
    }

    fn number(self) -> u32 {
        (self.ns * APPS + self.app) * REPLICAS + self.replica
    }

    pub(super) fn ip(self) -> Ipv4Addr {
        Ipv4Addr::from_bits(0x0a40_0000 + self.number())
    }

    pub(super) fn file(self) -> PathBuf {
        format!("pod-{}-{}-{}.yaml", self.ns, self.app, self.replica).into()
    }

    /// As text; `app` and `version` are what its labels say.
    pub(super) fn text(self, app: u32, version: u32, annotation: &str) -> String {
        let Self { ns, app: own, replica } = self;
        let ip = self.ip();
        let node =
            if self.is_local() { NODE.to_owned() } else { format!("n{}", 2 + self.number() % (NODES - 1)) };
        format!(
            "apiVersion: v1\nkind: Pod\nmetadata:\n  name: app{own}-{replica}\n  namespace: ns{ns}\n  \
             uid: uid-{ns}-{own}-{replica}\n  creationTimestamp: 2026-01-01T00:00:00Z\n  annotations: {{{annotation}}}\n  \
             labels:\n    app: app{app}\n    tier: t{}\n    version: v{version}\n    pod-template-hash: h{own}\n\
             spec:\n  nodeName: {node}\n  containers:\n  - name: main\n    ports:\n    - name: web\n      \
             containerPort: {}\n    - name: metrics\n      containerPort: 9090\n\
             status:\n  phase: Running\n  podIP: {ip}\n  podIPs:\n  - ip: {ip}\n",
            app % 3,
            8000 + app % 2,
        )
    }
}

/// All files. `annotation`: what a pod of the node says about where it is.
pub(super) fn files(annotation: impl Fn(Pod) -> String) -> BTreeMap<PathBuf, String> {
    let mut files = BTreeMap::new();
    let mut put = |path: String, text: String| drop(files.insert(PathBuf::from(path), text));
    for node in 1..=NODES {
        let ip = Ipv4Addr::from_bits(0x0a00_0000 + node);
        put(
            format!("node-{node}.yaml"),
            format!(
                "apiVersion: v1\nkind: Node\nmetadata: {{name: n{node}}}\nstatus:\n  addresses:\n  - {{type: InternalIP, \
                 address: {ip}}}\n"
            ),
        );
    }
    for ns in 0..NAMESPACES {
        put(
            format!("ns-{ns}.yaml"),
            format!(
                "apiVersion: v1\nkind: Namespace\nmetadata:\n  name: ns{ns}\n  labels: {{team: team{}, env: e{}}}\n",
                ns % 8,
                ns % 3
            ),
        );
        for app in 0..5 {
            put(format!("service-{ns}-{app}.yaml"), service(ns, app));
        }
        for (name, text) in policies(ns) {
            put(format!("policy-{ns}-{name}.yaml"), text);
        }
    }
    for number in 0..NAMESPACES * APPS * REPLICAS {
        let pod = Pod::pick(number);
        let annotation = if pod.is_local() { annotation(pod) } else { String::new() };
        put(pod.file().display().to_string(), pod.text(pod.app, 1, &annotation));
    }
    put("dns.yaml".into(), DNS.into());
    put("policy-all.yaml".into(), clusterwide(443));
    files
}

fn service(ns: u32, app: u32) -> String {
    let vip = Ipv4Addr::from_bits(0x0a60_0000 + ns * 5 + app);
    format!(
        "apiVersion: v1\nkind: Service\nmetadata: {{name: app{app}, namespace: ns{ns}}}\nspec:\n  clusterIP: {vip}\n  \
         selector: {{app: app{app}}}\n  ports: [{{name: web, port: 80, targetPort: web}}]\n"
    )
}

/// The cluster's DNS, two pods on other nodes.
const DNS: &str = "\
apiVersion: v1
kind: Service
metadata: {name: kube-dns, namespace: kube-system, labels: {k8s-app: kube-dns}}
spec:
  clusterIP: 10.96.255.10
  selector: {k8s-app: kube-dns}
  ports: [{name: dns, port: 53, protocol: UDP}, {name: dns-tcp, port: 53, protocol: TCP}]
---
apiVersion: v1
kind: Pod
metadata: {name: dns-0, namespace: kube-system, uid: dns-0, labels: {k8s-app: kube-dns}}
spec: {nodeName: n2}
status: {phase: Running, podIPs: [{ip: 10.80.0.1}]}
---
apiVersion: v1
kind: Pod
metadata: {name: dns-1, namespace: kube-system, uid: dns-1, labels: {k8s-app: kube-dns}}
spec: {nodeName: n3}
status: {phase: Running, podIPs: [{ip: 10.80.0.2}]}
";

/// What holds for every pod: the way to DNS, and a port that is closed everywhere.
pub(super) fn clusterwide(port: u32) -> String {
    format!(
        "apiVersion: cilium.io/v2\nkind: CiliumClusterwideNetworkPolicy\nmetadata: {{name: all}}\nspec:\n  \
         endpointSelector: {{}}\n  egress:\n  - toEndpoints: [{{matchLabels: {{'k8s:io.kubernetes.pod.namespace': kube-system, \
         k8s-app: kube-dns}}}}]\n    toPorts: [{{ports: [{{port: '53', protocol: ANY}}], rules: {{dns: [{{matchPattern: '*'}}]}}}}]\n  \
         - toCIDR: [198.51.100.0/24]\n    toPorts: [{{ports: [{{port: '{port}', protocol: TCP}}]}}]\n  egressDeny:\n  \
         - toCIDR: [169.254.169.254/32]\n"
    )
}

/// The policies of a namespace, each with its name.
fn policies(ns: u32) -> Vec<(&'static str, String)> {
    vec![
        ("inside", inside(ns)),
        ("web", web(ns, 80)),
        ("names", names(ns, &[])),
        ("partners", partners(ns, 5432, 17)),
    ]
}

/// Isolates the namespace and opens it to itself.
fn inside(ns: u32) -> String {
    format!(
        "apiVersion: networking.k8s.io/v1\nkind: NetworkPolicy\nmetadata: {{name: inside, namespace: ns{ns}}}\nspec:\n  \
         podSelector: {{}}\n  policyTypes: [Ingress, Egress]\n  ingress: [{{from: [{{podSelector: {{}}}}]}}]\n  \
         egress: [{{to: [{{podSelector: {{}}}}]}}]\n"
    )
}

/// Ingress to some applications by another team's pods, by named port; egress to a network with a hole.
pub(super) fn web(ns: u32, port: u32) -> String {
    format!(
        "apiVersion: networking.k8s.io/v1\nkind: NetworkPolicy\nmetadata: {{name: web, namespace: ns{ns}}}\nspec:\n  \
         podSelector: {{matchExpressions: [{{key: app, operator: In, values: [app0, app1, app2]}}]}}\n  \
         policyTypes: [Ingress, Egress]\n  ingress:\n  - from: [{{namespaceSelector: {{matchLabels: {{team: team{}}}}}, podSelector: \
         {{matchLabels: {{app: app{}}}}}}}]\n    ports: [{{port: web}}, {{port: {port}}}]\n  egress:\n  - to: [{{ipBlock: {{cidr: \
         203.0.113.0/24, except: [203.0.113.128/25]}}}}]\n    ports: [{{port: 443}}]\n",
        (ns + 1) % 8,
        ns % APPS,
    )
}

/// Names; `more` ones beside those that are always there.
pub(super) fn names(ns: u32, more: &[String]) -> String {
    let mut list =
        format!("{{matchName: api{ns}.vendor.example}}, {{matchPattern: '*.team{}.example'}}", ns % 8);
    for name in more {
        let _ = write!(list, ", {{matchName: {name}}}");
    }
    format!(
        "apiVersion: cilium.io/v2\nkind: CiliumNetworkPolicy\nmetadata: {{name: names, namespace: ns{ns}}}\nspec:\n  \
         endpointSelector: {{matchLabels: {{tier: t0}}}}\n  egress:\n  - toFQDNs: [{list}]\n    toPorts: [{{ports: [{{port: '443', \
         protocol: TCP}}]}}]\n"
    )
}

/// Other teams' pods, networks without pods, entities, and a denial.
pub(super) fn partners(ns: u32, port: u32, net: u32) -> String {
    format!(
        "apiVersion: cilium.io/v2\nkind: CiliumNetworkPolicy\nmetadata: {{name: partners, namespace: ns{ns}}}\nspec:\n  \
         endpointSelector: {{matchLabels: {{tier: t1}}}}\n  egress:\n  - toEndpoints: [{{matchLabels: \
         {{'k8s:io.kubernetes.pod.namespace': ns{}, tier: t1}}}}]\n    toPorts: [{{ports: [{{port: '{port}', protocol: TCP}}]}}]\n  \
         - toCIDRSet: [{{cidr: 0.0.0.0/0, except: [10.0.0.0/8, 172.{net}.0.0/16]}}]\n    toPorts: [{{ports: [{{port: '8443', \
         protocol: TCP}}]}}]\n  - toEntities: [kube-apiserver]\n  ingress:\n  - fromEntities: [host]\n  ingressDeny:\n  \
         - fromEndpoints: [{{matchLabels: {{'k8s:io.kubernetes.pod.namespace': ns{}}}}}]\n",
        (ns + 3) % NAMESPACES,
        (ns + 7) % NAMESPACES,
    )
}
