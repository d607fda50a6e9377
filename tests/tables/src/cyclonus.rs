//! The shapes of cyclonus' generated policies on the grid: every peer, every port and protocol, pairs of them, rules,
//! conflicts, targets. Each table carries its own meaning: that of its parts, put together as the API says (the union of all
//! rules of the policies that select a pod for a direction). What cyclonus does by steps is in `yaml/cyclonus.yaml`.

mod shapes;

use egret_common::net::Direction::{self, Egress, Ingress};
use shapes::{Other, PEERS, PORTS, Peer, Port};

use crate::{
    line::{Expect, Trial},
    table::{Object, Step, Table, WorldRow},
};

/// A rule: no peers are everybody, no ports every port.
#[derive(Debug, Clone)]
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

/// The pods of a policy.
#[derive(Debug, Clone, Copy)]
struct Target {
    namespace: &'static str,
    selector: &'static str,
    means: fn(&str) -> bool,
}

impl Target {
    const fn pod(namespace: &'static str, selector: &'static str, means: fn(&str) -> bool) -> Self {
        Self { namespace, selector, means }
    }
}

const XA: Target = Target::pod("x", "{matchLabels: {pod: a}}", |pod| pod == "a");
const XB: Target = Target::pod("x", "{matchLabels: {pod: b}}", |pod| pod == "b");
const YC: Target = Target::pod("y", "{matchLabels: {pod: c}}", |pod| pod == "c");

/// One policy of one direction.
#[derive(Debug, Clone)]
struct Policy {
    target: Target,
    direction: Direction,
    rules: Vec<Rule>,
}

impl Policy {
    fn new(target: Target, direction: Direction, rules: Vec<Rule>) -> Self {
        Self { target, direction, rules }
    }

    fn object(&self, number: usize) -> Object {
        let Target { namespace, selector, .. } = self.target;
        let (kind, field) = words(self.direction);
        let rules: Vec<String> = self.rules.iter().map(|r| r.yaml(self.direction)).collect();
        let text = format!(
            "apiVersion: networking.k8s.io/v1\nkind: NetworkPolicy\nmetadata: {{name: p{number}, namespace: {namespace}}}\n\
             spec: {{podSelector: {selector}, policyTypes: [{kind}], {field}: [{}]}}\n",
            rules.join(", ")
        );
        Object { key: format!("NetworkPolicy/{namespace}/p{number}"), text }
    }

    fn selects(&self, direction: Direction, own: &str) -> bool {
        let pod = own.split_once('/').filter(|(namespace, _)| *namespace == self.target.namespace);
        self.direction == direction && pod.is_some_and(|(_, pod)| (self.target.means)(pod))
    }
}

fn words(direction: Direction) -> (&'static str, &'static str) {
    match direction {
        Egress => ("Egress", "egress"),
        Ingress => ("Ingress", "ingress"),
    }
}

/// What the API says about a set of policies: per side, open if no policy selects the pod for the direction, else the
/// union of all rules.
fn allowed(policies: &[Policy], trial: &Trial<'_>) -> bool {
    let sides = [(Egress, trial.from, trial.to), (Ingress, trial.to, trial.from)];
    sides.into_iter().all(|(direction, own, other)| {
        let (namespace, pod) = other.split_once('/').unwrap_or_default();
        let other = Other { namespace, pod, v6: trial.v6 };
        let mut selecting = policies.iter().filter(|p| p.selects(direction, own)).peekable();
        selecting.peek().is_none() || selecting.any(|p| p.rules.iter().any(|r| r.means(other, trial)))
    })
}

fn table(title: String, policies: Vec<Policy>) -> Table {
    let objects = policies.iter().enumerate().map(|(i, p)| p.object(i)).collect();
    let expect = Expect::Meaning(Box::new(move |trial| allowed(&policies, trial)));
    Table {
        title,
        case: "cyclonus".to_owned(),
        world: WorldRow::default(),
        ports: ["80/tcp", "81/tcp", "80/udp", "81/udp", "81/sctp"].map(str::to_owned).to_vec(),
        via: ["podip", "svc"].map(str::to_owned).to_vec(),
        steps: vec![Step::of_policies(objects, expect)],
    }
}

/// One policy for x/a with one rule, in each direction.
fn of_rule(title: &str, rule: &Rule) -> [Table; 2] {
    [Ingress, Egress].map(|direction| {
        let (_, word) = words(direction);
        table(format!("{title}, {word}"), vec![Policy::new(XA, direction, vec![rule.clone()])])
    })
}

/// Peers, alone, with ports, and by twos in one rule.
#[must_use]
pub fn peers() -> Vec<Table> {
    let mut out =
        of_rule("peers: everybody", &Rule { peers: vec![], ports: vec![] }).into_iter().collect::<Vec<_>>();
    for (i, peer) in PEERS.iter().enumerate() {
        let next = PEERS[(i * 5 + 3) % PEERS.len()];
        let yaml = peer.yaml;
        let rules = [
            (format!("peers: {yaml}"), vec![*peer], vec![]),
            (format!("peers: {yaml}; port 81"), vec![*peer], vec![PORTS[1]]),
            (format!("peers: {yaml}; port serve-81-tcp or UDP 81"), vec![*peer], vec![PORTS[2], PORTS[7]]),
            (format!("peers: {yaml} or {}", next.yaml), vec![*peer, next], vec![]),
        ];
        out.extend(
            rules.into_iter().flat_map(|(title, peers, ports)| of_rule(&title, &Rule { peers, ports })),
        );
    }
    out
}

/// Ports and protocols, alone and by twos in one rule.
#[must_use]
pub fn ports() -> Vec<Table> {
    let mut out = Vec::new();
    for (i, port) in PORTS.iter().enumerate() {
        out.extend(of_rule(&format!("ports: {}", port.yaml), &Rule { peers: vec![], ports: vec![*port] }));
        for other in &PORTS[i + 1..] {
            let title = format!("ports: {} or {}", port.yaml, other.yaml);
            let pair = of_rule(&title, &Rule { peers: vec![], ports: vec![*port, *other] });
            out.extend(pair.map(|table| Table { via: vec!["podip".to_owned()], ..table }));
        }
    }
    out
}

/// Two rules of one policy, or one of each of two policies: a union that keeps peers and ports together.
#[must_use]
pub fn rules() -> Vec<Table> {
    let mut out = Vec::new();
    for (i, port) in PORTS.iter().enumerate() {
        let peer = |n: usize| PEERS[(i + n) % PEERS.len()];
        let other = PORTS[(i * 7 + 4) % PORTS.len()];
        let one = Rule { peers: vec![peer(0)], ports: vec![*port] };
        let two = Rule { peers: vec![peer(4), peer(9)], ports: vec![other] };
        for direction in [Ingress, Egress] {
            let (_, word) = words(direction);
            let policy = |rules| Policy::new(XA, direction, rules);
            let texts = format!("{} and {}", one.yaml(direction), two.yaml(direction));
            let together = vec![policy(vec![one.clone(), two.clone()])];
            out.push(table(format!("rules: {word} {texts} in one policy"), together));
            let apart = vec![policy(vec![two.clone()]), policy(vec![one.clone()])];
            out.push(table(format!("rules: {word} {texts} in two policies"), apart));
        }
    }
    out
}

/// Policies that contradict one another, for one pod and for the two ends of a connection.
#[must_use]
pub fn conflicts() -> Vec<Table> {
    let everybody = || ("everybody", vec![Rule { peers: vec![], ports: vec![] }]);
    let by = |name, peer: usize| (name, vec![Rule { peers: vec![PEERS[peer]], ports: vec![] }]);
    let (by_pod, by_ip) = (|| by("all pods", 3), || by("all addresses", 15));
    let (no_ip, no_pod) = (|| by("no address", 16), || by("no pod", 12));
    let nothing = || ("nothing", vec![]);
    let mut out = Vec::new();
    for (source, target) in [(nothing(), everybody()), (everybody(), nothing())] {
        let title = format!("conflict: egress to {}, ingress from {}", source.0, target.0);
        let policies = vec![Policy::new(XB, Egress, source.1), Policy::new(YC, Ingress, target.1)];
        out.push(table(title, policies));
    }
    for (who, direction) in [(XB, Egress), (YC, Ingress)] {
        let pairs = [
            (nothing(), everybody()),
            (nothing(), by_pod()),
            (nothing(), by_ip()),
            (no_ip(), by_pod()),
            (no_pod(), by_ip()),
            (no_ip(), nothing()),
            (no_pod(), nothing()),
        ];
        for (one, two) in pairs {
            let title = format!("conflict: {} of {} and of {}", words(direction).1, one.0, two.0);
            out.push(table(
                title,
                vec![Policy::new(who, direction, one.1), Policy::new(who, direction, two.1)],
            ));
        }
    }
    out
}

/// Whom a policy is about.
#[must_use]
pub fn targets() -> Vec<Table> {
    let targets = [
        Target::pod("x", "{}", |_| true),
        Target::pod("y", "{}", |_| true),
        XA,
        YC,
        Target::pod("x", "{matchLabels: {pod: never}}", |_| false),
        Target::pod("x", "{matchExpressions: [{key: pod, operator: In, values: [b, c]}]}", |pod| pod != "a"),
        Target::pod("z", "{matchExpressions: [{key: pod, operator: NotIn, values: [b]}]}", |pod| pod != "b"),
        Target::pod("z", "{matchExpressions: [{key: pod, operator: Exists}]}", |_| true),
        Target::pod("z", "{matchExpressions: [{key: pod, operator: DoesNotExist}]}", |_| false),
    ];
    let rule = Rule { peers: vec![PEERS[9]], ports: vec![PORTS[1]] };
    let both = targets.into_iter().flat_map(|target| [Ingress, Egress].map(|direction| (target, direction)));
    both.map(|(target, direction)| {
        let title =
            format!("target: {} of pods {} in {}", words(direction).1, target.selector, target.namespace);
        // The peer is the pod c of every namespace, so that what is not selected shows.
        table(title, vec![Policy::new(target, direction, vec![rule.clone()])])
    })
    .collect()
}
