//! The oracle: what the text of the policies says about a probe, read slowly and without identities, classes or maps.
//! Which labels a pod has, what is behind a Service and which names an address is known under follows from the table
//! alone.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
};

use egret_common::{ids::identity, net::Direction, verdict::DropReason};
use egret_core::{
    compile::NamesAsk,
    eval::{KnownName, Objects, Situation, Verdict, eval, eval_query},
    identity::Identity,
    labels::{CLUSTER, Labels, NAMESPACE_LABELS, POD_NAMESPACE, SERVICE_ACCOUNT},
    names::Name,
    policy::{self, Effect, Peers, Policy, Rule},
};

use crate::{
    dns::{Asked, Exchange},
    line::protocol,
    node::DOMAIN,
    scene::{Pod, Scene},
};

/// The Service of the cluster's DNS.
const KUBE_DNS: &str = "kube-system/kube-dns";
/// Kinds of backends that are judged one by one; more are denied (DESIGN 3.3).
const BACKENDS: usize = 8;

/// A name that a pod was told an address under.
#[derive(Debug, Clone)]
struct Told {
    pod: String,
    name: Name,
    address: IpAddr,
    /// In seconds since the beginning.
    expires: u64,
}

/// Everything that was told so far.
#[derive(Debug, Clone, Default)]
pub struct Memory {
    told: Vec<Told>,
    /// Seconds since the beginning.
    pub now: u64,
}

/// Where a packet of a probe goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Hop {
    /// Seen from the pod.
    pub direction: Direction,
    /// The other side's address.
    pub remote: IpAddr,
    /// IP protocol.
    pub proto: u8,
    /// Port at the destination.
    pub port: u16,
}

/// The text, read.
#[derive(Debug)]
pub struct Reading<'a> {
    scene: &'a Scene,
    memory: &'a Memory,
    /// By place in the scene: labels and ports of the pod, and the policies that are about it.
    pods: BTreeMap<usize, (Identity, Vec<Policy>)>,
    /// Pods by address.
    owners: BTreeMap<IpAddr, usize>,
    /// What is behind the ports of Services: by address, protocol and port.
    services: BTreeMap<(IpAddr, u8, u16), Vec<(IpAddr, u16)>>,
    all: Vec<Policy>,
}

impl<'a> Reading<'a> {
    /// Reads every policy.
    ///
    /// # Panics
    /// When one is invalid.
    #[must_use]
    pub fn new(scene: &'a Scene, memory: &'a Memory) -> Self {
        let parse = |text: &String| {
            let loaded = policy::parse(text);
            assert!(!loaded.has_errors(), "{text}\n{:?}", loaded.diagnostics);
            loaded.policies
        };
        let all: Vec<Policy> = scene.policies.values().flat_map(parse).collect();
        let (mut pods, mut owners) = (BTreeMap::new(), BTreeMap::new());
        for (at, pod) in scene.pods.iter().enumerate().filter(|(_, p)| p.is_party()) {
            owners.extend(pod.ips.iter().map(|ip| (*ip, at)));
            let labels = labels(scene, pod);
            let own = all.iter().filter(|p| p.selects(&labels)).cloned().collect();
            let number = identity::FIRST_DYNAMIC + pods.len() as u32;
            pods.insert(at, (Identity { number, labels, ports: pod.ports.clone() }, own));
        }
        Self { scene, memory, pods, owners, services: services(scene), all }
    }

    /// Whether the pod's side lets the flow begin.
    ///
    /// # Panics
    /// When there is no such pod.
    #[must_use]
    pub fn verdict(&self, pod: usize, hop: &Hop) -> Verdict {
        // The node may always begin a flow to its pods (POLICY-APIS 2.1).
        if hop.direction == Direction::Ingress && self.role(hop.remote) == Some("host") {
            return Verdict::Allow;
        }
        match self.service(hop) {
            Some(backends) if self.may_deny(pod) => {
                // Names are not asked: nobody was told what is behind a Service.
                let reached = |b: &(IpAddr, u16)| {
                    let hop = Hop { remote: b.0, port: b.1, ..*hop };
                    self.eval(&self.pods[&pod].1, pod, &hop, &[]) == Verdict::Allow
                };
                let fits = !backends.is_empty() && self.kinds(backends) <= BACKENDS;
                match fits && backends.iter().all(reached) {
                    true => Verdict::Allow,
                    false => Verdict::Deny(DropReason::ServiceBackendDenied),
                }
            }
            _ => self.eval(&self.pods[&pod].1, pod, hop, &self.names(pod, hop.remote)),
        }
    }

    /// Whether the verdicts are the same: of addresses that were told under a name that no policy mentions any more, only that
    /// no rule opens them.
    #[must_use]
    pub fn agree(&self, text: Verdict, maps: Verdict) -> bool {
        use DropReason::{ForbiddenAnswerAddress, NamePortMismatch, NameUnresolved, NoRule};
        let unnamed = |v| {
            matches!(v, Verdict::Deny(NoRule | NameUnresolved | NamePortMismatch | ForbiddenAnswerAddress))
        };
        text == maps || (!self.memory.told.is_empty() && unnamed(text) && unnamed(maps))
    }

    /// Whether any policy is about what the pod sends or gets.
    ///
    /// # Panics
    /// When there is no such pod.
    #[must_use]
    pub fn rules(&self, pod: usize, direction: Direction) -> bool {
        let about =
            |p: &Policy| p.isolates().of(direction) || p.rules().iter().any(|r| r.direction == direction);
        self.pods[&pod].1.iter().any(about)
    }

    /// What becomes of a question, and whether the answer is believed.
    ///
    /// # Panics
    /// When the name is none.
    #[must_use]
    pub fn asked(&self, pod: usize, exchange: &Exchange, hop: &Hop) -> (Asked, bool) {
        let (_, policies) = &self.pods[&pod];
        if self.verdict(pod, hop) != Verdict::Allow {
            return (Asked::Dropped, false);
        }
        let filters = policies.iter().flat_map(Policy::rules).any(|r| r.dns.is_some());
        let name = Name::from_dns(&exchange.ask).expect("a name");
        if filters && !eval_query(policies, &name, hop.port, &self.search(), NamesAsk::No) {
            return (Asked::Refused, false);
        }
        (Asked::Answered, self.is_listed(hop.remote) || self.by_dns_rule(pod, hop))
    }

    /// What an answer teaches (DESIGN 3.4), in seconds.
    ///
    /// # Panics
    /// When the name is none.
    #[must_use]
    pub fn learn(&self, exchange: &Exchange) -> Memory {
        let mut memory = self.memory.clone();
        let name = self.meant(exchange);
        for (address, ttl) in exchange.told() {
            // A Service's ports are judged by what is behind them, whatever names say.
            let foreign = !is_below(&name, DOMAIN) && self.is_of_cluster(address);
            if is_nowhere(address) || foreign {
                continue;
            }
            let expires = memory.now + u64::from(ttl.clamp(5, 86_400)) + 30;
            let (pod, name) = (exchange.pod.clone(), name.clone());
            memory.told.push(Told { pod, name, address, expires });
        }
        memory
    }

    /// The name asked for, or the one without search domain that the resolver went on with (W-A03).
    fn meant(&self, exchange: &Exchange) -> Name {
        let name = Name::from_dns(&exchange.ask).expect("a name");
        let alias = exchange.first_alias().and_then(|alias| Name::from_dns(alias).ok());
        let walked =
            |alias: &Name| self.search().iter().any(|d| name.prefix_above(d) == Some(alias.as_str()));
        alias.filter(walked).unwrap_or(name)
    }

    fn eval(&self, policies: &[Policy], pod: usize, hop: &Hop, names: &[KnownName]) -> Verdict {
        let peer = self.owners.get(&hop.remote).map(|pod| &self.pods[pod].0);
        let number = match (peer, self.role(hop.remote)) {
            (Some(peer), _) => peer.number,
            (None, Some("host")) => identity::HOST,
            (None, Some("remote-node")) => identity::REMOTE_NODE,
            (None, Some("kube-apiserver")) => identity::KUBE_APISERVER,
            (None, _) => identity::WORLD,
        };
        let situation = Situation {
            direction: hop.direction,
            remote: hop.remote,
            identity: number,
            pod: peer,
            own_ports: &self.pods[&pod].0.ports,
            names,
            proto: hop.proto,
            port: hop.port,
            objects: Objects::NONE,
        };
        eval(policies, &situation)
    }

    fn names(&self, pod: usize, address: IpAddr) -> Vec<KnownName> {
        if self.memory.told.is_empty() {
            return Vec::new();
        }
        let key = self.scene.pods[pod].key();
        let told = self.memory.told.iter().filter(|t| t.pod == key && t.address == address);
        let mut latest: BTreeMap<&Name, u64> = BTreeMap::new();
        for told in told.filter(|t| self.is_in_a_rule(&t.name)) {
            let expires = latest.entry(&told.name).or_default();
            *expires = told.expires.max(*expires);
        }
        let known = |(name, expires): (&Name, u64)| KnownName {
            name: name.clone(),
            expired: expires <= self.memory.now,
        };
        latest.into_iter().map(known).collect()
    }

    /// What resolvers of pods append to names (Kubernetes' `ClusterFirst`).
    fn search(&self) -> Vec<Name> {
        let of_namespaces = self.scene.namespaces.keys().map(|n| format!("{n}.svc.{DOMAIN}"));
        let all = of_namespaces.chain([format!("svc.{DOMAIN}"), DOMAIN.to_owned()]);
        all.map(|text| Name::parse(&text).expect("a name")).collect()
    }

    /// Whether some policy opens the name to anybody: the addresses of others are not remembered.
    fn is_in_a_rule(&self, name: &Name) -> bool {
        self.all.iter().flat_map(Policy::rules).any(|rule| match &rule.peers {
            Peers::Names(patterns) => patterns.iter().any(|p| p.matches(name)),
            _ => false,
        })
    }

    /// The backends, if the packet goes to a port of a Service.
    fn service(&self, hop: &Hop) -> Option<&[(IpAddr, u16)]> {
        let key = (hop.remote, hop.proto, hop.port);
        let found = self.services.get(&key).filter(|_| hop.direction == Direction::Egress);
        found.map(Vec::as_slice)
    }

    /// How many of the backends policies can tell apart by labels and ports.
    fn kinds(&self, backends: &[(IpAddr, u16)]) -> usize {
        let kind = |(ip, port): &(IpAddr, u16)| match self.owners.get(ip) {
            Some(pod) => {
                let Identity { labels, ports, .. } = &self.pods[pod].0;
                format!("{labels:?} {ports:?} {port}")
            }
            None => format!("{ip} {port}"),
        };
        backends.iter().map(kind).collect::<BTreeSet<String>>().len()
    }

    /// Whether anything that the pod sends can be denied.
    fn may_deny(&self, pod: usize) -> bool {
        let denies = |r: &Rule| r.direction == Direction::Egress && r.effect == Effect::Deny;
        self.pods[&pod].1.iter().any(|p| p.isolates().egress || p.rules().iter().any(denies))
    }

    /// A rule with `rules.dns` lets the server be reached.
    fn by_dns_rule(&self, pod: usize, hop: &Hop) -> bool {
        let only = |p: &Policy| {
            let rules = p.rules().iter().filter(|r| r.dns.is_some()).cloned().collect();
            Policy::new(p.origin().clone(), p.subject().clone(), p.isolates(), rules)
        };
        let (_, policies) = &self.pods[&pod];
        let policies: Vec<Policy> = policies.iter().map(only).collect();
        let itself = [(hop.remote, hop.port)];
        self.service(hop).unwrap_or(&itself).iter().any(|(remote, port)| {
            let hop = Hop { remote: *remote, port: *port, ..*hop };
            let matched = policies.iter().flat_map(Policy::rules).next().is_some();
            matched && self.eval(&policies, pod, &hop, &[]) == Verdict::Allow
        })
    }

    /// The Service `kube-system/kube-dns` and what is behind it.
    fn is_listed(&self, server: IpAddr) -> bool {
        let Some(dns) = self.scene.services.get(KUBE_DNS) else { return false };
        let behind = self.scene.backends(KUBE_DNS, "53/udp", server.is_ipv6());
        dns.vips.contains(&server) || behind.iter().any(|(ip, _)| *ip == server)
    }

    fn role(&self, ip: IpAddr) -> Option<&'a str> {
        self.scene.outside.get(&ip).map(String::as_str)
    }

    fn is_of_cluster(&self, ip: IpAddr) -> bool {
        self.owners.contains_key(&ip) || self.role(ip).is_some_and(|role| role != "world")
    }
}

/// What is behind every port of every Service.
fn services(scene: &Scene) -> BTreeMap<(IpAddr, u8, u16), Vec<(IpAddr, u16)>> {
    let mut out = BTreeMap::new();
    for (key, service) in &scene.services {
        for port in service.row.ports.keys() {
            let (number, proto) = port.split_once('/').expect("PORT/PROTO");
            let number = number.parse().expect("a port");
            for vip in &service.vips {
                let behind = scene.backends(key, port, vip.is_ipv6());
                out.insert((*vip, protocol(proto), number), behind);
            }
        }
    }
    out
}

/// What a pod is selected by: its own labels, its namespace's, its namespace and its service account.
fn labels(scene: &Scene, pod: &Pod) -> Labels {
    let mut labels = pod.labels.clone();
    for (key, value) in &scene.namespaces[&pod.namespace] {
        labels.insert(format!("{NAMESPACE_LABELS}{key}"), value.clone());
    }
    labels.insert(format!("{NAMESPACE_LABELS}kubernetes.io/metadata.name"), pod.namespace.clone());
    labels.insert(POD_NAMESPACE.to_owned(), pod.namespace.clone());
    labels.insert(SERVICE_ACCOUNT.to_owned(), pod.account.clone());
    labels.insert(CLUSTER.to_owned(), "default".to_owned());
    labels
}

fn is_below(name: &Name, domain: &str) -> bool {
    name.as_str().ends_with(&format!(".{domain}"))
}

/// Loopback, link-local, multicast, unspecified: no name opens them.
fn is_nowhere(ip: IpAddr) -> bool {
    match ip {
        IpAddr::V4(v4) => {
            v4.is_loopback()
                || v4.is_link_local()
                || v4.is_multicast()
                || v4.is_unspecified()
                || v4.is_broadcast()
        }
        IpAddr::V6(v6) => {
            v6.is_loopback() || v6.is_unicast_link_local() || v6.is_multicast() || v6.is_unspecified()
        }
    }
}
