//! What follows from the objects: owners of addresses, identities, services, the pods of this node.
//!
//! Owns: who has which address when objects disagree. Must not know: how identities become classes.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::{IpAddr, SocketAddr},
    sync::Arc,
};

use egret_common::ids::identity;

use super::{Cluster, Key, Kind, ServiceEntry, Stored, services};
use crate::{
    identity::{Identity, IdentityBook, NamedPorts, Profile, UNMANAGED},
    labels::Labels,
    names::Name,
    policy::{Diagnostic, Entity, Policy, Severity},
    tuning::PLACES,
};

/// Everything that the compiler and the shell ask about the cluster.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Resolved {
    /// Identity of each address that something in the cluster owns.
    pub world_identities: BTreeMap<IpAddr, u32>,
    /// Identities of all pods that have a network of their own: those that a selector of peers may mean.
    pub peers: BTreeMap<u32, Identity>,
    /// Services, one entry per VIP and port.
    pub services: Vec<ServiceEntry>,
    /// The pods of this node.
    pub local: Vec<LocalPod>,
    /// The cluster's DNS: VIPs and pods, with the ports that each of them listens on (CASES R-A01, R-A02).
    pub resolvers: BTreeSet<SocketAddr>,
    /// Where the API server runs.
    pub apiserver: ApiServer,
    /// What does not fit or contradicts itself.
    pub notes: Vec<Diagnostic>,
}

/// Where the API server runs. An address has one identity only, and a node's own one must stay `host`; so the entities
/// say here what the numbers cannot.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ApiServer {
    /// Also on this node: the entity `kube-apiserver` means identity `host` too.
    pub on_host: bool,
    /// Every address of identity `kube-apiserver` is another node's: the entity `remote-node` means it too.
    pub on_nodes: bool,
}

/// A pod of this node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LocalPod {
    /// Namespace and name.
    pub key: Key,
    /// Empty if the source gives none.
    pub uid: String,
    /// Uses the node's network: enforced by its cgroup, and `ips` is empty.
    pub host_network: bool,
    /// The addresses that it owns.
    pub ips: BTreeSet<IpAddr>,
    /// Number of its identity. Other pods with the same labels and ports have the same.
    pub identity: u32,
    /// Identity labels.
    pub labels: Labels,
    /// Named ports.
    pub ports: NamedPorts,
    /// Annotations `egret.dev/...`.
    pub annotations: Labels,
    /// Search domains of its own, beside those that the cluster gives it.
    pub searches: BTreeSet<Name>,
    /// The policies that are about it.
    pub policies: Vec<Policy>,
}

impl LocalPod {
    /// The domains that its resolver may append to a name, in a cluster with this domain.
    pub fn search(&self, cluster_domain: &Name) -> BTreeSet<Name> {
        let below = |prefix: &str| Name::parse(&format!("{prefix}.{cluster_domain}")).ok();
        let services = [below(&format!("{}.svc", self.key.namespace)), below("svc")];
        let own = self.searches.iter().cloned();
        own.chain(services.into_iter().flatten()).chain([cluster_domain.clone()]).collect()
    }
}

/// Owners of addresses.
pub(super) type Owners<'a> = BTreeMap<IpAddr, (&'a Key, &'a Stored)>;

/// Numbers of the profiles, by where each of them is: every pod of a profile points there.
type Numbers = BTreeMap<*const Profile, u32>;

fn number_of(stored: &Stored, numbers: &Numbers) -> u32 {
    numbers.get(&Arc::as_ptr(&stored.profile)).copied().unwrap_or(UNMANAGED)
}

impl Cluster {
    /// What follows from the objects on the node called `node`.
    pub fn resolve(&self, node: &str, book: &mut IdentityBook) -> Resolved {
        let mut out = Resolved::default();
        self.resolve_nodes(node, &mut out);
        let owners = self.owners(&mut out);
        let numbers: Numbers = self.profiles.iter().map(|p| (Arc::as_ptr(p), book.number(p))).collect();
        for (ip, (_, stored)) in &owners {
            out.world_identities.insert(*ip, number_of(stored, &numbers));
        }
        for stored in self.pods.values().filter(|s| s.has_own_network()) {
            let number = number_of(stored, &numbers);
            if number >= identity::FIRST_DYNAMIC && !out.peers.contains_key(&number) {
                out.peers.insert(number, book.identity(&stored.profile));
            }
        }
        let grounded = self.grounded(&owners);
        services::resolve(self, &owners, &grounded, &mut out);
        let apiserver = out.apiserver;
        out.local = self.local_pods(node, &owners, &numbers, |p| apiserver.meant_by(grounded.get(p)));
        out
    }

    /// This node before the API server, the API server before other nodes.
    fn resolve_nodes(&self, own: &str, out: &mut Resolved) {
        let remote = self.nodes.iter().filter(|(name, _)| *name != own).flat_map(|(_, n)| &n.addresses);
        let remote: BTreeSet<IpAddr> = remote.copied().collect();
        let mut host = self.own_addresses.clone();
        host.extend(self.nodes.get(own).iter().flat_map(|n| &n.addresses));
        let api_service = Key::new(Kind::Service, "default", "kubernetes");
        let api = self.slices_of(&api_service).flat_map(|s| &s.addresses);
        let (on_host, api): (BTreeSet<IpAddr>, BTreeSet<IpAddr>) = api.partition(|ip| host.contains(ip));
        out.apiserver =
            ApiServer { on_host: !on_host.is_empty(), on_nodes: !api.is_empty() && api.is_subset(&remote) };
        for (ips, number) in
            [(remote, identity::REMOTE_NODE), (api, identity::KUBE_APISERVER), (host, identity::HOST)]
        {
            out.world_identities.extend(ips.into_iter().map(|ip| (ip, number)));
        }
    }

    /// The pod behind each address that is no node's. Of several pods the newest has it.
    fn owners(&self, out: &mut Resolved) -> Owners<'_> {
        let mut owners = Owners::new();
        for (key, stored) in self.pods.iter().filter(|(_, s)| s.has_own_network()) {
            for ip in &stored.pod.ips {
                if out.world_identities.contains_key(ip) {
                    out.note(key, format!("{ip} is a node's address and stays the node's"));
                    continue;
                }
                let Some(other) = owners.insert(*ip, (key, stored)) else { continue };
                let loser = if other.1.age() > stored.age() {
                    owners.insert(*ip, other);
                    key
                } else {
                    other.0
                };
                let winner = owners.get(ip).map(|(key, _)| key.to_string()).unwrap_or_default();
                out.note(loser, format!("{ip} is the address of {winner} now, which is newer"));
            }
        }
        owners
    }

    fn local_pods(
        &self,
        node: &str,
        owners: &Owners<'_>,
        numbers: &Numbers,
        meant: impl Fn(&Policy) -> Policy,
    ) -> Vec<LocalPod> {
        let mut policies: BTreeMap<(&Labels, bool), Vec<Policy>> = BTreeMap::new();
        let mut local = Vec::new();
        for (key, stored) in self.pods.iter().filter(|(_, s)| s.is_live() && is_local(s, node)) {
            let (labels, host_network) = (&stored.profile.labels, stored.pod.host_network);
            let selecting = policies.entry((labels, host_network)).or_insert_with(|| {
                let all = self.policies.values().flatten();
                all.filter(|p| p.selects_pod(labels, host_network)).map(&meant).collect()
            });
            let owns = |ip: &&IpAddr| owners.get(ip).is_some_and(|(owner, _)| *owner == key);
            local.push(LocalPod {
                key: key.clone(),
                uid: stored.pod.uid.clone(),
                host_network,
                ips: stored.pod.ips.iter().filter(owns).copied().collect(),
                identity: number_of(stored, numbers),
                labels: labels.clone(),
                ports: stored.profile.ports.clone(),
                annotations: stored.pod.annotations.clone(),
                searches: stored.pod.searches.clone(),
                policies: selecting.clone(),
            });
        }
        local
    }
}

impl ApiServer {
    /// The policy with its entities as the numbers of identities have them here.
    fn meant_by(self, policy: &Policy) -> Policy {
        policy.with_entities(|entities| {
            let mut meant = entities.clone();
            if self.on_host && entities.contains(&Entity::KubeApiserver) {
                meant.insert(Entity::Host);
            }
            if self.on_nodes && entities.contains(&Entity::RemoteNode) {
                meant.insert(Entity::KubeApiserver);
            }
            meant
        })
    }
}

impl Resolved {
    pub(super) fn note(&mut self, object: &Key, message: String) {
        let (object, path) = (object.to_string(), String::new());
        self.notes.push(Diagnostic { severity: Severity::Warning, object, path, message });
    }
}

/// A pod that is bound to no node is here if its annotations say where (a plain host has no scheduler).
fn is_local(stored: &Stored, node: &str) -> bool {
    match &stored.pod.node {
        Some(bound) => bound == node,
        None => PLACES.iter().any(|place| stored.pod.annotations.contains_key(*place)),
    }
}
