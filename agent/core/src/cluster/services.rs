//! Services: what a client that sends to a VIP may end up with.
//!
//! Owns: backends, and which of them can stand for others. Must not know: who may reach them. A client is let through
//! only if it may reach every backend, so that one backend too many denies and one too few would open: endpoints count
//! whether they are ready or not, and where the different ones do not fit, none is named, which denies.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::{IpAddr, SocketAddr},
};

use ipnet::IpNet;

use super::{
    Cluster, EndpointSlice, Key, Kind, Resolved, Service, ServicePort, TargetPort, addresses::Owners,
    ground::Grounded,
};
use crate::{
    policy::{DNS_PORT, Peers},
    ports::Proto,
};

/// Backends that an entry can hold.
const MAX_BACKENDS: usize = 8;
/// Where the cluster's DNS is: namespace, and name of the Service.
const DNS_SERVICES: [(&str, &str); 2] = [("kube-system", "kube-dns"), ("openshift-dns", "dns-default")];
/// Or any Service of `kube-system` with this label.
const DNS_LABEL: (&str, &str) = ("k8s-app", "kube-dns");

/// One port of a Service at one of its virtual addresses.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct ServiceEntry {
    /// Virtual address: of the cluster, external, or of a load balancer.
    pub vip: IpAddr,
    /// Port at the VIP.
    pub port: u16,
    /// Protocol.
    pub proto: Proto,
    /// Address and port of one backend of each kind, of two where the one is of this node; eight at most. **Empty means deny**: there is no backend, or there
    /// are more different ones than fit.
    pub backends: Vec<(IpAddr, u16)>,
}

/// Backends of one port: which stand for which.
type Kinds = BTreeMap<BackendKind, Standing>;

/// Who stands for the backends of one kind. A pod is not judged by itself (CASES K-A12), so that one pod of this node is
/// not enough where there are others.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Standing {
    first: (IpAddr, u16),
    /// Where the first one is of this node.
    second: Option<(IpAddr, u16)>,
}

impl Standing {
    fn add(&mut self, backend: (IpAddr, u16), here: &BTreeSet<IpAddr>) {
        if backend == self.first || !here.contains(&self.first.0) {
            return;
        }
        if here.contains(&backend.0) {
            self.second.get_or_insert(backend);
        } else {
            *self = Self { first: backend, second: None };
        }
    }
}

/// What policies can tell apart about a backend.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum BackendKind {
    /// Something with an identity: number, port, and the longest network of any policy that holds the address and may mean it.
    Known(u32, u16, Option<IpNet>),
    /// Something of the world: names may have been learned for the very address.
    World(IpAddr, u16),
}

impl Cluster {
    /// The endpoints of a service, as far as they are given.
    pub(super) fn slices_of(&self, service: &Key) -> impl Iterator<Item = &EndpointSlice> {
        let first = Key::new(Kind::EndpointSlice, &service.namespace, "");
        let slices = self.slices.range(first..).take_while(|(key, _)| key.namespace == service.namespace);
        slices.map(|(_, slice)| slice).filter(|slice| slice.service == service.name)
    }

    /// Every backend of one port.
    fn backends(
        &self,
        key: &Key,
        service: &Service,
        port: &ServicePort,
        owners: &Owners<'_>,
    ) -> BTreeSet<(IpAddr, u16)> {
        let mut backends = BTreeSet::new();
        let mut given = false;
        for slice in self.slices_of(key) {
            given = true;
            let targets =
                slice.ports.iter().filter(|(name, proto, _)| (name, proto) == (&port.name, &port.proto));
            for (.., target) in targets {
                backends.extend(slice.addresses.iter().map(|ip| (*ip, *target)));
            }
        }
        if !given && !service.selector.is_empty() {
            self.selected_backends(key, service, port, owners, &mut backends);
        }
        backends
    }

    fn selected_backends(
        &self,
        key: &Key,
        service: &Service,
        port: &ServicePort,
        owners: &Owners<'_>,
        backends: &mut BTreeSet<(IpAddr, u16)>,
    ) {
        let first = Key::new(Kind::Pod, &key.namespace, "");
        let pods = self.pods.range(first..).take_while(|(pod, _)| pod.namespace == key.namespace);
        for (pod, stored) in pods.filter(|(_, s)| s.is_live()) {
            if !service.selector.iter().all(|(k, v)| stored.pod.labels.get(k) == Some(v)) {
                continue;
            }
            let target = match &port.target {
                TargetPort::Number(number) => Some(*number),
                TargetPort::Name(name) => stored.pod.ports.get(&(name.clone(), port.proto)).copied(),
            };
            let Some(target) = target else { continue };
            let here = |ip: &&IpAddr| stored.pod.host_network || owners.has(pod, **ip);
            backends.extend(stored.pod.ips.iter().filter(here).map(|ip| (*ip, target)));
        }
    }

    /// Networks that some policy tells apart.
    fn policy_nets(&self, grounded: &Grounded) -> PolicyNets {
        let mut nets = PolicyNets::default();
        let policies = self.policies.values().flatten().map(|p| grounded.get(p));
        for rule in policies.flat_map(|policy| policy.rules()) {
            let Peers::Cidrs(peers) = &rule.peers else { continue };
            for peer in peers {
                for net in peer.except.iter().chain([&peer.net]) {
                    nets.others.add(*net);
                    if peer.pods {
                        nets.pods.add(*net);
                    }
                }
            }
        }
        nets
    }
}

/// The backends of each service's ports, until something changes in its namespace.
#[derive(Debug, Clone, Default)]
pub(super) struct Backends {
    of: BTreeMap<Key, Vec<BTreeSet<(IpAddr, u16)>>>,
    /// Addresses of nodes, which are no pod's.
    of_nodes: BTreeSet<IpAddr>,
}

impl Backends {
    /// Something has changed in the namespace.
    pub(super) fn forget(&mut self, namespace: &str) {
        let first = Key::new(Kind::Service, namespace, "");
        let services = self.of.range(first..).map(|(key, _)| key);
        let gone: Vec<Key> = services.take_while(|key| key.namespace == namespace).cloned().collect();
        gone.iter().for_each(|key| drop(self.of.remove(key)));
    }

    /// The addresses of nodes are these.
    pub(super) fn meet_nodes(&mut self, of_nodes: &BTreeMap<IpAddr, u32>) {
        if !self.of_nodes.iter().eq(of_nodes.keys()) {
            self.of.clear();
            self.of_nodes = of_nodes.keys().copied().collect();
        }
    }

    fn of_ports(
        &mut self,
        cluster: &Cluster,
        key: &Key,
        service: &Service,
        owners: &Owners<'_>,
    ) -> &[BTreeSet<(IpAddr, u16)>] {
        if !self.of.contains_key(key) {
            let of_port = |port| cluster.backends(key, service, port, owners);
            self.of.insert(key.clone(), service.ports.iter().map(of_port).collect());
        }
        self.of.get(key).map(Vec::as_slice).unwrap_or_default()
    }
}

/// Fills `out.services` and `out.resolvers`. `here`: addresses of this node's pods.
pub(super) fn resolve(
    cluster: &Cluster,
    known: &mut Backends,
    owners: &Owners<'_>,
    grounded: &Grounded,
    here: &BTreeSet<IpAddr>,
    out: &mut Resolved,
) {
    let nets = cluster.policy_nets(grounded);
    let mut entries: BTreeMap<(IpAddr, u16, Proto), Kinds> = BTreeMap::new();
    for (key, service) in &cluster.services {
        let of_ports = known.of_ports(cluster, key, service, owners);
        for (port, backends) in service.ports.iter().zip(of_ports) {
            if is_dns(key, service) && port.port == DNS_PORT {
                out.resolvers.extend(service.vips.iter().map(|vip| SocketAddr::new(*vip, DNS_PORT)));
                out.resolvers.extend(backends.iter().map(|(ip, target)| SocketAddr::new(*ip, *target)));
            }
            for vip in &service.vips {
                // Two services at one address: the client may get to either.
                let kinds = entries.entry((*vip, port.port, port.proto)).or_default();
                let same_family = backends.iter().filter(|(ip, _)| ip.is_ipv4() == vip.is_ipv4());
                for backend in same_family {
                    let standing = kinds.entry(kind(*backend, out, &nets));
                    let alone = Standing { first: *backend, second: None };
                    standing.and_modify(|s| s.add(*backend, here)).or_insert(alone);
                }
                note_size(key, port, count(kinds), out);
            }
        }
    }
    out.services =
        entries.into_iter().map(|((vip, port, proto), kinds)| entry(vip, port, proto, kinds)).collect();
    out.notes.dedup();
}

fn entry(vip: IpAddr, port: u16, proto: Proto, kinds: Kinds) -> ServiceEntry {
    let fits = count(&kinds) <= MAX_BACKENDS;
    let all = kinds.into_values().flat_map(|standing| [Some(standing.first), standing.second]).flatten();
    let backends = if fits { all.collect() } else { Vec::new() };
    ServiceEntry { vip, port, proto, backends }
}

fn count(kinds: &Kinds) -> usize {
    kinds.values().map(|standing| 1 + usize::from(standing.second.is_some())).sum()
}

fn kind((ip, port): (IpAddr, u16), out: &Resolved, nets: &PolicyNets) -> BackendKind {
    let Some(number) = out.world_identities.get(&ip) else { return BackendKind::World(ip, port) };
    let nets = if out.peers.contains_key(number) { &nets.pods } else { &nets.others };
    BackendKind::Known(*number, port, nets.longest(ip))
}

fn note_size(key: &Key, port: &ServicePort, kinds: usize, out: &mut Resolved) {
    if kinds > MAX_BACKENDS {
        let (number, proto) = (port.port, port.proto);
        out.note(
            key,
            format!(
                "port {number}/{proto} leads to more than {MAX_BACKENDS} kinds of backends, which cannot be judged one by \
                 one: its address is denied; the pods behind it can be reached directly"
            ),
        );
    }
}

fn is_dns(key: &Key, service: &Service) -> bool {
    let (label, value) = DNS_LABEL;
    let labelled = service.labels.get(label).is_some_and(|v| v == value);
    DNS_SERVICES.contains(&(key.namespace.as_str(), key.name.as_str()))
        || (labelled && key.namespace == DNS_SERVICES[0].0)
}

/// Networks by what they can mean: some policies never mean pods by address (CASES K-A10).
#[derive(Debug, Default)]
struct PolicyNets {
    pods: Nets,
    others: Nets,
}

/// A set of networks, asked for the longest that holds an address: as networks lie inside one another or apart, it
/// stands for all others that hold it.
#[derive(Debug, Default)]
struct Nets {
    nets: BTreeSet<IpNet>,
    lengths: BTreeSet<(bool, u8)>,
}

impl Nets {
    fn add(&mut self, net: IpNet) {
        self.lengths.insert((net.addr().is_ipv4(), net.prefix_len()));
        self.nets.insert(net.trunc());
    }

    fn longest(&self, ip: IpAddr) -> Option<IpNet> {
        let lengths = self.lengths.iter().rev().filter(|(v4, _)| *v4 == ip.is_ipv4());
        let nets = lengths.filter_map(|(_, len)| IpNet::new(ip, *len).ok());
        nets.map(|net| net.trunc()).find(|net| self.nets.contains(net))
    }
}
