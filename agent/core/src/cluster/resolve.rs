//! What follows from the objects: owners of addresses, identities, services, the pods of this node.
//!
//! Owns: who has which address when objects disagree. Must not know: how identities become classes.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::{IpAddr, SocketAddr},
    sync::Arc,
};

use egret_common::ids::identity;

use super::{Cluster, Key, Kind, ServiceEntry, Stored, profiles::place, services};
use crate::{
    identity::{Identity, IdentityBook, Profile, UNMANAGED},
    labels::Labels,
    policy::{Diagnostic, Policies, Severity},
};

/// Annotations that say where a pod of a plain host is to be found.
const PLACES: [&str; 3] = ["egret.dev/netns", "egret.dev/interface", "egret.dev/cgroup"];

/// Everything that the compiler and the shell ask about the cluster.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Resolved {
    /// Identity of each address that something in the cluster owns.
    pub world_identities: BTreeMap<IpAddr, u32>,
    /// Identities of all pods that have a network of their own: those that a selector of peers may mean.
    pub peers: BTreeMap<u32, Arc<Identity>>,
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
    /// Identity labels and named ports.
    pub profile: Arc<Profile>,
    /// Annotations `egret.dev/...`.
    pub annotations: Labels,
    /// The policies that are about it.
    pub policies: Policies,
}

/// Owners of addresses.
pub(super) type Owners<'a> = BTreeMap<IpAddr, (&'a Key, &'a Stored)>;

/// Identities of the profiles, by where each of them is: every pod of a profile points there.
type Identities = BTreeMap<usize, Arc<Identity>>;

fn number_of(stored: &Stored, identities: &Identities) -> u32 {
    identities.get(&place(&stored.profile)).map_or(UNMANAGED, |identity| identity.number)
}

impl Cluster {
    /// What follows from the objects on the node called `node`.
    pub fn resolve(&self, node: &str, book: &mut IdentityBook) -> Resolved {
        let mut out = Resolved::default();
        self.resolve_nodes(node, &mut out);
        let owners = self.owners(&mut out);
        let identities: Identities = self.profiles.iter().map(|p| (place(p), book.identity(p))).collect();
        book.forget(&identities.keys().copied().collect());
        // Sorted on both sides, so that the result is built in one go.
        let of_pods = owners.iter().map(|(ip, (_, stored))| (*ip, number_of(stored, &identities)));
        out.world_identities.append(&mut of_pods.collect());
        let with_network = self.pods.values().filter(|s| s.has_own_network());
        let places: BTreeSet<usize> = with_network.map(|s| place(&s.profile)).collect();
        let peers = places.iter().filter_map(|place| identities.get(place));
        let peers = peers.filter(|identity| identity.number >= identity::FIRST_DYNAMIC);
        out.peers = peers.map(|identity| (identity.number, identity.clone())).collect();
        services::resolve(self, &owners, &mut out);
        out.local = self.local_pods(node, &owners, &identities);
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

    fn local_pods(&self, node: &str, owners: &Owners<'_>, identities: &Identities) -> Vec<LocalPod> {
        let mut local = Vec::new();
        for (key, stored) in self.pods.iter().filter(|(_, s)| s.is_live() && is_local(s, node)) {
            let owns = |ip: &&IpAddr| owners.get(ip).is_some_and(|(owner, _)| *owner == key);
            local.push(LocalPod {
                key: key.clone(),
                uid: stored.pod.uid.clone(),
                host_network: stored.pod.host_network,
                ips: stored.pod.ips.iter().filter(owns).copied().collect(),
                identity: number_of(stored, identities),
                profile: stored.profile.clone(),
                annotations: stored.pod.annotations.clone(),
                policies: self.profiles.policies(&stored.profile, self.policies.values().flatten()),
            });
        }
        local
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
