//! A small cluster for tests: pods, namespaces, policies; and whether one of them may reach another, read from the
//! text of the policies (the oracle) and from the compiled maps.

use std::{collections::BTreeMap, net::IpAddr, sync::Arc};

use egret_common::{
    decide::{Question, decision_of},
    net::Direction,
};
use egret_core::{
    compile::{Book, Compiled, EndpointSpec, NamesAsk, World, addr, compile},
    desired::View,
    dns::lifetime::Lifetime,
    eval::{Objects, Situation, Verdict, eval},
    identity::{Identity, NamedPorts},
    labels::{Labels, NAMESPACE_LABELS, POD_NAMESPACE},
    policy::{self, Policy},
    ports::Proto,
};

/// A pod.
#[derive(Debug, Clone)]
pub(crate) struct Pod {
    pub(crate) namespace: String,
    pub(crate) name: String,
    pub(crate) ips: Vec<IpAddr>,
    pub(crate) labels: Labels,
    pub(crate) ports: NamedPorts,
}

impl Pod {
    pub(crate) fn key(&self) -> String {
        format!("{}/{}", self.namespace, self.name)
    }
}

/// Who talks: a pod by its index, or an address of nobody in the list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Party {
    Pod(usize),
    Outside(IpAddr),
}

/// The objects of a cluster.
#[derive(Debug, Clone, Default)]
pub(crate) struct Cluster {
    /// Labels by namespace.
    pub(crate) namespaces: BTreeMap<String, Labels>,
    pub(crate) pods: Vec<Pod>,
    /// Addresses of nobody's pod with their identity; 2 is the world.
    pub(crate) outside: BTreeMap<IpAddr, u32>,
    /// Policies by kind, namespace and name.
    pub(crate) policies: BTreeMap<String, Vec<Policy>>,
}

impl Cluster {
    /// The grid of the upstream suites: namespaces x, y, z with pods a, b, c, which serve 80 and 81 over TCP, UDP and
    /// SCTP under names such as `serve-80-tcp`; and two addresses of nobody.
    pub(crate) fn grid() -> Self {
        let mut cluster = Self::default();
        for (i, namespace) in ["x", "y", "z"].iter().enumerate() {
            cluster.add_namespace(namespace, &[("ns", namespace)]);
            for (j, pod) in ["a", "b", "c"].iter().enumerate() {
                let (n, p) = (i + 1, j + 1);
                let ips = [format!("10.1.{n}.{p}"), format!("fd00:{n}::{p}")].map(|ip| ip.parse().unwrap());
                let named = |proto: Proto| [80u16, 81].map(|p| ((format!("serve-{p}-{proto}"), proto), p));
                let ports = Proto::WITH_PORTS.into_iter().flat_map(named).collect();
                cluster.add_pod(namespace, pod, &ips, &[("pod", pod)], ports);
            }
        }
        let nobody = ["198.51.100.7", "2001:db8:99::7"];
        cluster.outside = nobody.map(|ip| (ip.parse().unwrap(), 2)).into();
        cluster
    }

    pub(crate) fn add_namespace(&mut self, name: &str, labels: &[(&str, &str)]) {
        let own = labels.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned()));
        let labels = own.chain([("kubernetes.io/metadata.name".to_owned(), name.to_owned())]).collect();
        self.namespaces.insert(name.to_owned(), labels);
    }

    pub(crate) fn add_pod(
        &mut self,
        namespace: &str,
        name: &str,
        ips: &[IpAddr],
        labels: &[(&str, &str)],
        ports: NamedPorts,
    ) {
        let labels = labels.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
        let (namespace, name) = (namespace.to_owned(), name.to_owned());
        self.pods.push(Pod { namespace, name, ips: ips.to_vec(), labels, ports });
    }

    /// Puts the objects of a text in force, beside the others or in the place of those with the same name.
    pub(crate) fn apply(&mut self, text: &str) {
        let loaded = policy::parse(text);
        assert!(!loaded.has_errors(), "{text}\n{:?}", loaded.diagnostics);
        let mut read: BTreeMap<String, Vec<Policy>> = BTreeMap::new();
        for policy in loaded.policies {
            read.entry(policy.origin().to_string()).or_default().push(policy);
        }
        self.policies.extend(read);
    }

    /// What the specification says a pod is selected by: its own labels, its namespace's, and the namespace.
    fn identity_labels(&self, pod: &Pod) -> Labels {
        let mut labels = pod.labels.clone();
        for (key, value) in &self.namespaces[&pod.namespace] {
            labels.insert(format!("{NAMESPACE_LABELS}{key}"), value.clone());
        }
        labels.insert(POD_NAMESPACE.to_owned(), pod.namespace.clone());
        labels
    }

    /// Everything that the pod's policies say, whichever objects they are from.
    fn policies_of(&self, labels: &Labels) -> Vec<Policy> {
        self.policies.values().flatten().filter(|p| p.selects(labels)).cloned().collect()
    }
}

/// Numbers that outlive a change of the cluster.
#[derive(Debug, Clone, Default)]
pub(crate) struct Numbers {
    book: Book,
    identities: BTreeMap<(Labels, NamedPorts), u32>,
}

/// A cluster at one moment, read both ways.
#[derive(Debug)]
pub(crate) struct Judge {
    pods: Vec<(Pod, Identity, Vec<Policy>)>,
    outside: BTreeMap<IpAddr, u32>,
    pub(crate) compiled: Compiled,
}

impl Judge {
    pub(crate) fn new(cluster: &Cluster, numbers: &mut Numbers) -> Self {
        let pods: Vec<(Pod, Identity, Vec<Policy>)> = cluster
            .pods
            .iter()
            .map(|pod| {
                let labels = cluster.identity_labels(pod);
                let next = 256 + numbers.identities.len() as u32;
                let key = (labels.clone(), pod.ports.clone());
                let number = *numbers.identities.entry(key).or_insert(next);
                let policies = cluster.policies_of(&labels);
                (pod.clone(), Identity { number, labels, ports: pod.ports.clone() }, policies)
            })
            .collect();
        let addresses = pods.iter().flat_map(|(pod, id, _)| pod.ips.iter().map(|ip| (*ip, id.number)));
        let known = cluster.outside.iter().filter(|(_, id)| **id != 2).map(|(ip, id)| (*ip, *id));
        let world = World {
            search: Vec::new(),
            cluster_domain: None,
            resolvers: Default::default(),
            identities: addresses.chain(known).collect(),
            peers: pods.iter().map(|(_, id, _)| (id.number, Arc::new(id.clone()))).collect(),
            names_ask: NamesAsk::No,
            seen_names: Default::default(),
        };
        let specs = pods.iter().enumerate().map(|(i, (pod, id, policies))| EndpointSpec {
            id: i as u32 + 1,
            identity: id.number,
            flags: 0,
            lifetime: Lifetime::default(),
            ports: pod.ports.clone(),
            policies: policies.clone().into(),
        });
        let compiled = compile(&world, &specs.collect::<Vec<_>>(), &mut numbers.book).unwrap();
        Self { pods, outside: cluster.outside.clone(), compiled }
    }

    /// Whether a connection may begin: the egress side of `from` and the ingress side of `to` both let it. Panics if
    /// the text and the maps disagree, about the reason too.
    pub(crate) fn may(&self, from: Party, to: Party, v6: bool, proto: u8, port: u16) -> bool {
        let [source, target] = [from, to].map(|party| self.address(party, v6));
        let sides = [(from, to, target, Direction::Egress), (to, from, source, Direction::Ingress)];
        sides.into_iter().all(|(who, other, remote, direction)| {
            let Party::Pod(index) = who else { return true };
            let verdict = self.by_text(index, other, remote, direction, proto, port);
            assert_eq!(
                self.by_maps(index, remote, direction, proto, port),
                verdict,
                "maps and text: {} {direction:?} {remote} {port}/{proto}",
                self.pods[index].0.key()
            );
            verdict == Verdict::Allow
        })
    }

    fn address(&self, party: Party, v6: bool) -> IpAddr {
        match party {
            Party::Outside(ip) => ip,
            Party::Pod(index) => {
                let ips = &self.pods[index].0.ips;
                *ips.iter().find(|ip| ip.is_ipv6() == v6).expect("an address of the family")
            }
        }
    }

    fn by_text(
        &self,
        index: usize,
        other: Party,
        remote: IpAddr,
        direction: Direction,
        proto: u8,
        port: u16,
    ) -> Verdict {
        let (own, _, policies) = &self.pods[index];
        let pod = match other {
            Party::Pod(other) => Some(&self.pods[other].1),
            Party::Outside(_) => None,
        };
        let identity = pod.map_or_else(|| self.outside[&remote], |pod| pod.number);
        let own_ports = &own.ports;
        let objects = Objects::NONE;
        eval(
            policies,
            &Situation { direction, remote, identity, pod, own_ports, names: &[], proto, port, objects },
        )
    }

    fn by_maps(&self, index: usize, remote: IpAddr, direction: Direction, proto: u8, port: u16) -> Verdict {
        let view = View { desired: &self.compiled.desired, grants: &BTreeMap::new(), now: 1 };
        let question = Question { remote: addr(remote), direction, proto, port };
        let endpoint = &self.compiled.desired.endpoints[&(index as u32 + 1)];
        match decision_of(&view, endpoint, &question).reason() {
            None => Verdict::Allow,
            Some(reason) => Verdict::Deny(reason),
        }
    }
}
