//! The shapes of cyclonus' generated policies (mattfenwick/cyclonus, pkg/generator): every peer, every port and
//! protocol, pairs of them, conflicts, on the grid of namespaces x, y, z with pods a, b, c. Each shape carries what it
//! means, written from the API's description of the field; the policy as a whole means the union of its parts.

use egret_common::net::Direction::{self, Egress, Ingress};

use crate::{
    cluster::{Cluster, Judge, Numbers},
    tables::{Trial, check},
};

/// The other side of a connection, as a peer describes it: namespace and pod, both empty outside the cluster.
#[derive(Debug, Clone, Copy)]
struct Other<'a> {
    namespace: &'a str,
    pod: &'a str,
    v6: bool,
}

/// A peer's or a port's text with its meaning.
#[derive(Clone, Copy)]
struct Shape<M> {
    yaml: &'static str,
    means: M,
}

type Peer = Shape<fn(Other<'_>) -> bool>;
type Port = Shape<fn(&Trial<'_>, bool) -> bool>;

/// The policies are in namespace x.
const PEERS: &[Peer] = &[
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

/// The second argument says whether the destination is a pod, which has named ports.
const PORTS: &[Port] = &[
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

/// A rule: no peers are everybody, no ports every port.
#[derive(Clone)]
struct Rule {
    peers: Vec<Peer>,
    ports: Vec<Port>,
}

impl Rule {
    fn yaml(&self, direction: Direction) -> String {
        let word = if direction == Egress { "to" } else { "from" };
        let peers: Vec<String> = self.peers.iter().map(|p| format!("{{{}}}", p.yaml)).collect();
        let ports: Vec<&str> = self.ports.iter().map(|p| p.yaml).collect();
        format!("{{{word}: [{}], ports: [{}]}}", peers.join(", "), ports.join(", "))
    }

    fn means(&self, other: Other<'_>, trial: &Trial<'_>) -> bool {
        let peer = self.peers.is_empty() || self.peers.iter().any(|p| (p.means)(other));
        let pod = trial.to.contains('/');
        peer && (self.ports.is_empty() || self.ports.iter().any(|p| (p.means)(trial, pod)))
    }
}

/// One policy of one direction.
struct Policy {
    target: (&'static str, &'static str),
    direction: Direction,
    rules: Vec<Rule>,
}

impl Policy {
    fn yaml(&self, number: usize) -> String {
        let (types, field) = match self.direction {
            Egress => ("Egress", "egress"),
            Ingress => ("Ingress", "ingress"),
        };
        let rules: Vec<String> = self.rules.iter().map(|r| r.yaml(self.direction)).collect();
        format!(
            "apiVersion: networking.k8s.io/v1\nkind: NetworkPolicy\nmetadata: {{name: p{number}, namespace: {}}}\n\
             spec: {{podSelector: {{matchLabels: {{pod: {}}}}}, policyTypes: [{types}], {field}: [{}]}}\n",
            self.target.0,
            self.target.1,
            rules.join(", ")
        )
    }
}

/// What the API says about a set of policies: per side, open if no policy selects the pod for the direction, else the
/// union of all rules.
fn allowed(policies: &[Policy], trial: &Trial<'_>) -> bool {
    let sides = [(Egress, trial.from, trial.to), (Ingress, trial.to, trial.from)];
    sides.into_iter().all(|(direction, own, other)| {
        let is_target =
            |p: &&Policy| p.direction == direction && own == format!("{}/{}", p.target.0, p.target.1);
        let (namespace, pod) = other.split_once('/').unwrap_or_default();
        let other = Other { namespace, pod, v6: trial.v6 };
        let mut selecting = policies.iter().filter(is_target).peekable();
        selecting.peek().is_none() || selecting.any(|p| p.rules.iter().any(|r| r.means(other, trial)))
    })
}

fn run(policies: &[Policy]) -> usize {
    let mut cluster = Cluster::grid();
    for (number, policy) in policies.iter().enumerate() {
        cluster.apply(&policy.yaml(number));
    }
    let text: String = policies.iter().enumerate().map(|(i, p)| p.yaml(i)).collect();
    let judge = Judge::new(&cluster, &mut Numbers::default());
    let ports = ["80/tcp", "81/tcp", "80/udp", "81/udp", "81/sctp"].map(str::to_owned);
    check(&cluster, &judge, &ports, &|trial| (allowed(policies, trial), text.clone()), "")
}

/// One policy for x/a with one rule, in both directions.
fn run_rule(rule: &Rule) -> usize {
    let policy = |direction| Policy { target: ("x", "a"), direction, rules: vec![rule.clone()] };
    [Ingress, Egress].map(|direction| run(&[policy(direction)])).iter().sum()
}

#[test]
fn k_cyclonus_peers() {
    let mut probes = run_rule(&Rule { peers: vec![], ports: vec![] });
    for (i, peer) in PEERS.iter().enumerate() {
        let alone = |ports| Rule { peers: vec![*peer], ports };
        probes += run_rule(&alone(vec![]));
        probes += run_rule(&alone(vec![PORTS[1]]));
        probes += run_rule(&alone(vec![PORTS[2], PORTS[7]]));
        // Two peers of one rule.
        let next = PEERS[(i * 5 + 3) % PEERS.len()];
        probes += run_rule(&Rule { peers: vec![*peer, next], ports: vec![] });
    }
    assert!(probes > 100_000, "{probes}");
}

#[test]
fn k_a03_k_a04_k_a05_cyclonus_ports_and_protocols() {
    let mut probes = 0;
    for (i, port) in PORTS.iter().enumerate() {
        probes += run_rule(&Rule { peers: vec![], ports: vec![*port] });
        for other in &PORTS[i + 1..] {
            probes += run_rule(&Rule { peers: vec![], ports: vec![*port, *other] });
        }
    }
    assert!(probes > 200_000, "{probes}");
}

#[test]
fn k_cyclonus_rules_are_a_union_that_keeps_peers_and_ports_together() {
    for (i, port) in PORTS.iter().enumerate() {
        let peer = |n: usize| PEERS[(i + n) % PEERS.len()];
        let other = PORTS[(i * 7 + 4) % PORTS.len()];
        let one = Rule { peers: vec![peer(0)], ports: vec![*port] };
        let two = Rule { peers: vec![peer(4), peer(9)], ports: vec![other] };
        for direction in [Ingress, Egress] {
            let policy = |rules| Policy { target: ("x", "a"), direction, rules };
            run(&[policy(vec![one.clone(), two.clone()])]);
            run(&[policy(vec![two.clone()]), policy(vec![one.clone()])]);
        }
    }
}

#[test]
fn k_cyclonus_conflicts() {
    let everybody = || vec![Rule { peers: vec![], ports: vec![] }];
    let by_pod = || vec![Rule { peers: vec![PEERS[3]], ports: vec![] }];
    let by_ip = || vec![Rule { peers: vec![PEERS[15]], ports: vec![] }];
    let no_ip = || vec![Rule { peers: vec![PEERS[16]], ports: vec![] }];
    let no_pod = || vec![Rule { peers: vec![PEERS[12]], ports: vec![] }];
    let policy = |target, direction, rules| Policy { target, direction, rules };
    let (source, target) = (("x", "b"), ("y", "c"));
    run(&[policy(source, Egress, vec![]), policy(target, Ingress, everybody())]);
    run(&[policy(source, Egress, everybody()), policy(target, Ingress, vec![])]);
    for (who, direction) in [(source, Egress), (target, Ingress)] {
        let pairs: [(Vec<Rule>, Vec<Rule>); 7] = [
            (vec![], everybody()),
            (vec![], by_pod()),
            (vec![], by_ip()),
            (no_ip(), by_pod()),
            (no_pod(), by_ip()),
            (no_ip(), vec![]),
            (no_pod(), vec![]),
        ];
        for (one, two) in pairs {
            run(&[policy(who, direction, one), policy(who, direction, two)]);
        }
    }
}
