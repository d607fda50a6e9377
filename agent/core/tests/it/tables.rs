//! Truth tables: YAML files of worlds, policies and steps, with who may reach whom after each step. The expectations are
//! written from the APIs' descriptions; the oracle and the compiled maps must both meet them, on every pair.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
};

use egret_core::{identity::NamedPorts, labels::Labels, ports::Proto};
use serde::Deserialize;
use serde_yaml_ng::{Mapping, Value};

use crate::cluster::{Cluster, Judge, Numbers, Party};

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Table {
    title: String,
    /// Id in CASES, for who searches.
    #[serde(default)]
    case: String,
    /// The grid, if there is none.
    world: Option<World>,
    #[serde(default)]
    ports: Vec<String>,
    steps: Vec<Step>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct World {
    namespaces: BTreeMap<String, Labels>,
    /// Pods of every namespace.
    #[serde(default)]
    each: Vec<PodRow>,
    #[serde(default)]
    pods: Vec<PodRow>,
    outside: BTreeMap<IpAddr, String>,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
struct PodRow {
    #[serde(default)]
    namespace: String,
    name: String,
    labels: Labels,
    /// `name/proto: number`.
    #[serde(default)]
    ports: BTreeMap<String, u16>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Step {
    #[serde(default)]
    delete: Vec<String>,
    /// Specs, with `np: NAMESPACE/NAME`, `cnp: NAMESPACE/NAME`, `ccnp: NAME` or `kcnp: NAME` (ClusterNetworkPolicy) beside
    /// their fields.
    #[serde(default)]
    apply: Vec<Mapping>,
    #[serde(default)]
    set_labels: BTreeMap<String, Labels>,
    #[serde(default)]
    set_namespace_labels: BTreeMap<String, Labels>,
    #[serde(default)]
    set_ports: BTreeMap<String, BTreeMap<String, u16>>,
    expect: Vec<String>,
}

/// Runs every table of a text; returns how many probes were made.
fn run(text: &str) -> usize {
    let tables: Vec<Table> = serde_yaml_ng::from_str(text).unwrap();
    tables.iter().map(run_table).sum()
}

fn run_table(table: &Table) -> usize {
    let mut cluster = table.world.as_ref().map_or_else(Cluster::grid, world);
    let mut numbers = Numbers::default();
    let default = ["80/tcp", "81/tcp", "80/udp", "81/udp", "80/sctp", "81/sctp"].map(str::to_owned);
    let ports = if table.ports.is_empty() { default.to_vec() } else { table.ports.clone() };
    let mut probes = 0;
    for (i, step) in table.steps.iter().enumerate() {
        change(&mut cluster, step);
        let judge = Judge::new(&cluster, &mut numbers);
        let what = format!("{} {} step {i}", table.case, table.title);
        let lines: Vec<Line> = step.expect.iter().map(|l| Line::read(l)).collect();
        let expected = |trial: &Trial<'_>| {
            let line = lines.iter().rev().find(|l| l.fits(trial)).expect("a line for everything");
            (line.allow, line.text.clone())
        };
        probes += check(&cluster, &judge, &ports, &expected, &what);
    }
    probes
}

fn world(world: &World) -> Cluster {
    let mut cluster = Cluster::default();
    for (i, (namespace, labels)) in world.namespaces.iter().enumerate() {
        let labels: Vec<_> = labels.iter().map(|(k, v)| (k.as_str(), v.as_str())).collect();
        cluster.add_namespace(namespace, &labels);
        let own = world.pods.iter().filter(|p| p.namespace == *namespace);
        for (j, pod) in world.each.iter().chain(own).enumerate() {
            let (n, p) = (i + 1, j + 1);
            let ips = [format!("10.1.{n}.{p}"), format!("fd00:{n}::{p}")].map(|ip| ip.parse().unwrap());
            let labels: Vec<_> = pod.labels.iter().map(|(k, v)| (k.as_str(), v.as_str())).collect();
            cluster.add_pod(namespace, &pod.name, &ips, &labels, named_ports(&pod.ports));
        }
    }
    let number = |name: &String| match name.as_str() {
        "host" => 1,
        "world" => 2,
        "remote-node" => 6,
        "kube-apiserver" => 7,
        other => panic!("{other}"),
    };
    cluster.outside = world.outside.iter().map(|(ip, name)| (*ip, number(name))).collect();
    cluster
}

fn named_ports(ports: &BTreeMap<String, u16>) -> NamedPorts {
    let named = |(key, port): (&String, &u16)| {
        let (name, proto) = key.split_once('/').unwrap();
        ((name.to_owned(), Proto::with_ports_from_str(proto).unwrap()), *port)
    };
    ports.iter().map(named).collect()
}

fn change(cluster: &mut Cluster, step: &Step) {
    for name in &step.delete {
        assert!(cluster.policies.remove(name).is_some(), "{name}");
    }
    for spec in &step.apply {
        cluster.apply(&object(spec));
    }
    for (name, labels) in &step.set_namespace_labels {
        let pairs: Vec<_> = labels.iter().map(|(k, v)| (k.as_str(), v.as_str())).collect();
        cluster.add_namespace(name, &pairs);
    }
    let mut pod = |key: &String, change: &dyn Fn(&mut crate::cluster::Pod)| {
        change(cluster.pods.iter_mut().find(|p| p.key() == *key).expect("a pod"));
    };
    for (key, labels) in &step.set_labels {
        pod(key, &|p| p.labels = labels.clone());
    }
    for (key, ports) in &step.set_ports {
        pod(key, &|p| p.ports = named_ports(ports));
    }
}

/// The whole object of a spec that names it.
fn object(spec: &Mapping) -> String {
    let mut spec = spec.clone();
    let kinds = [
        ("np", "networking.k8s.io/v1", "NetworkPolicy"),
        ("cnp", "cilium.io/v2", "CiliumNetworkPolicy"),
        ("ccnp", "cilium.io/v2", "CiliumClusterwideNetworkPolicy"),
        ("kcnp", "policy.networking.k8s.io/v1alpha2", "ClusterNetworkPolicy"),
    ];
    let found = kinds.iter().find_map(|(key, api, kind)| Some((spec.remove(*key)?, api, kind)));
    let (name, api, kind) = found.expect("np, cnp, ccnp or kcnp");
    let name = name.as_str().unwrap();
    let metadata = match name.split_once('/') {
        Some((namespace, name)) => format!("{{namespace: {namespace}, name: {name}}}"),
        None => format!("{{name: {name}}}"),
    };
    let spec = serde_yaml_ng::to_string(&Value::Mapping(spec)).unwrap();
    let spec: String = spec.lines().map(|l| format!("  {l}\n")).collect();
    format!("apiVersion: {api}\nkind: {kind}\nmetadata: {metadata}\nspec:\n{spec}")
}

/// `allow FROM -> TO [PORT/PROTO] [v4|v6]`; the last line that fits counts.
#[derive(Debug)]
struct Line {
    text: String,
    allow: bool,
    from: Vec<String>,
    to: Vec<String>,
    ports: (String, String),
    v6: Option<bool>,
}

/// One connection that is tried.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Trial<'a> {
    /// `namespace/pod`, an address, or `world ` and an address.
    pub(crate) from: &'a str,
    pub(crate) to: &'a str,
    pub(crate) port: &'a str,
    pub(crate) proto: &'a str,
    pub(crate) v6: bool,
}

impl Line {
    fn read(text: &str) -> Self {
        let mut words = text.split_whitespace();
        let mut word = || words.next();
        let allow = match word() {
            Some("allow") => true,
            Some("deny") => false,
            other => panic!("{text}: {other:?}"),
        };
        let list = |w: Option<&str>| w.expect(text).split(',').map(str::to_owned).collect::<Vec<_>>();
        let from = list(word());
        assert_eq!(word(), Some("->"), "{text}");
        let to = list(word());
        let (mut ports, mut v6) = (("*".to_owned(), "*".to_owned()), None);
        while let Some(more) = word() {
            match more {
                "v4" => v6 = Some(false),
                "v6" => v6 = Some(true),
                port => {
                    let (port, proto) = port.split_once('/').expect(text);
                    ports = (port.to_owned(), proto.to_owned());
                }
            }
        }
        Self { text: text.to_owned(), allow, from, to, ports, v6 }
    }

    fn fits(&self, trial: &Trial<'_>) -> bool {
        let part = |pattern: &str, text: &str| pattern == "*" || pattern == text;
        let who = |patterns: &[String], who: &str| {
            patterns.iter().any(|pattern| match (pattern.split_once('/'), who.split_once('/')) {
                (Some((ns, pod)), Some((of, name))) => part(ns, of) && part(pod, name),
                (Some(_), None) => false,
                (None, _) if pattern == "world" => who.starts_with("world "),
                _ => part(pattern, who.trim_start_matches("world ")),
            })
        };
        who(&self.from, trial.from)
            && who(&self.to, trial.to)
            && part(&self.ports.0, trial.port)
            && part(&self.ports.1, trial.proto)
            && self.v6.is_none_or(|v6| v6 == trial.v6)
    }
}

/// Tries every connection between two of the cluster; `expected` says whether it may begin, and why. Nobody talks to itself, and of those outside only to pods.
/// What the pods' own node sends is let in before any policy is asked, so it is not tried.
pub(crate) fn check(
    cluster: &Cluster,
    judge: &Judge,
    ports: &[String],
    expected: &dyn Fn(&Trial<'_>) -> (bool, String),
    what: &str,
) -> usize {
    let mut parties: Vec<(String, Party)> =
        cluster.pods.iter().enumerate().map(|(i, p)| (p.key(), Party::Pod(i))).collect();
    parties.extend(cluster.outside.iter().map(|(ip, id)| {
        let name = if *id == 2 { format!("world {ip}") } else { ip.to_string() };
        (name, Party::Outside(*ip))
    }));
    let mut tried = 0;
    for (from_name, from) in &parties {
        for (to_name, to) in &parties {
            for v6 in families(cluster, *from, *to) {
                for text in ports {
                    let (port, proto) = text.split_once('/').unwrap();
                    let trial = Trial { from: from_name, to: to_name, port, proto, v6 };
                    let (want, line) = expected(&trial);
                    let got = judge.may(*from, *to, v6, protocol(proto), port.parse().unwrap());
                    assert_eq!(got, want, "{what}: {trial:?} by `{line}`");
                    tried += 1;
                }
            }
        }
    }
    tried
}

fn families(cluster: &Cluster, from: Party, to: Party) -> BTreeSet<bool> {
    let own_node = |party| matches!(party, Party::Outside(ip) if cluster.outside[&ip] == 1);
    match (from, to) {
        (a, b) if a == b || own_node(a) => BTreeSet::new(),
        (Party::Outside(_), Party::Outside(_)) => BTreeSet::new(),
        (Party::Outside(ip), _) | (_, Party::Outside(ip)) => BTreeSet::from([ip.is_ipv6()]),
        _ => BTreeSet::from([false, true]),
    }
}

fn protocol(text: &str) -> u8 {
    match text {
        "tcp" => 6,
        "udp" => 17,
        "sctp" => 132,
        "icmp" => 1,
        number => number.parse().unwrap(),
    }
}

#[test]
fn k_upstream_titles() {
    assert!(run(include_str!("../tables/upstream.yaml")) > 50_000);
}

#[test]
fn k_public_recipes() {
    assert!(run(include_str!("../tables/recipes.yaml")) > 10_000);
}

#[test]
fn k_conformance_of_cluster_network_policy() {
    let probes = run(include_str!("../tables/tiers.yaml"));
    assert!(probes > 25_000, "{probes}");
}

#[test]
fn k_a02_k_a04_k_a08_k_a10_cases() {
    assert!(run(include_str!("../tables/cases.yaml")) > 15_000);
}

/// A table that expects something else than what the policy says fails: the loader looks.
#[test]
#[should_panic(expected = "by `deny x/b -> x/a`")]
fn a_wrong_expectation_is_found() {
    run("[{title: t, steps: [{expect: ['allow * -> *', 'deny x/b -> x/a']}]}]");
}
