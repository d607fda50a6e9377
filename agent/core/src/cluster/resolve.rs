//! What follows from the objects: owners of addresses, identities, services, the pods of this node.
//!
//! Owns: who has which address when objects disagree. Must not know: how identities become classes.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::{IpAddr, SocketAddr},
    sync::Arc,
};

use egret_common::ids::identity;

use super::{
    Cluster, Key, Kind, ServiceEntry, Stored,
    addresses::{Claim, Owners},
    ground::Meant,
    profiles::place,
    services,
};
use crate::{
    flow::Workload,
    identity::{Identity, IdentityBook, Profile, UNMANAGED},
    labels::Labels,
    names::Name,
    policy::{Diagnostic, Entity, Peers, Policies, Policy, Rule, Severity},
    tuning::PLACES,
};

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
    /// Search domains of its own, beside those that the cluster gives it.
    pub searches: BTreeSet<Name>,
    /// What controls it, if anything does.
    pub workload: Option<Arc<Workload>>,
    /// The policies that are about it.
    pub policies: Policies,
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

/// Identities of the profiles, by where each of them is: every pod of a profile points there.
type Identities = BTreeMap<usize, Arc<Identity>>;

impl Cluster {
    /// What follows from the objects on the node called `node`.
    pub fn resolve(&mut self, node: &str, book: &mut IdentityBook) -> Resolved {
        let mut out = Resolved::default();
        let of_nodes = self.resolve_nodes(node, &mut out);
        let identities: Identities = self.profiles.iter().map(|p| (place(p), book.identity(p))).collect();
        book.forget(&identities.keys().copied().collect());
        let with_network = identities.iter().filter(|(place, _)| self.profiles.has_network(**place));
        let peers = with_network.map(|(_, i)| i).filter(|i| i.number >= identity::FIRST_DYNAMIC);
        out.peers = peers.map(|identity| (identity.number, identity.clone())).collect();

        let mut backends = std::mem::take(&mut self.backends);
        backends.meet_nodes(&of_nodes);
        self.addresses.take_touched().iter().for_each(|namespace| backends.forget(namespace));
        let before = std::mem::take(&mut self.meant);

        let owners = Owners::new(&self.addresses, &of_nodes);
        out.notes.extend(owners.losses().iter().map(|(pod, message)| note(pod, message.clone())));
        let number = |claim: &Claim| identities.get(&claim.profile).map_or(UNMANAGED, |i| i.number);
        // Sorted on both sides, so that the result is built in one go.
        out.world_identities = owners.iter().map(|(ip, claim)| (ip, number(claim))).collect();
        out.world_identities.extend(&of_nodes);
        let grounded = self.grounded(&owners);
        services::resolve(self, &mut backends, &owners, &grounded, &self.addresses_on(node), &mut out);
        let policies = self.policies.values().flatten();
        let mut meant = Meant::new(&before, policies, &grounded, |policy| out.apiserver.changes(policy));
        out.local = self.local_pods(node, &owners, &identities, |list| meant.list(&before, list));
        (self.backends, self.meant) = (backends, meant);
        out
    }

    /// This node before the API server, the API server before other nodes.
    fn resolve_nodes(&self, own: &str, out: &mut Resolved) -> BTreeMap<IpAddr, u32> {
        let remote = self.nodes.iter().filter(|(name, _)| *name != own).flat_map(|(_, n)| &n.addresses);
        let remote: BTreeSet<IpAddr> = remote.copied().collect();
        let mut host = self.own_addresses.clone();
        host.extend(self.nodes.get(own).iter().flat_map(|n| &n.addresses));
        let api_service = Key::new(Kind::Service, "default", "kubernetes");
        let api = self.slices_of(&api_service).flat_map(|s| &s.addresses);
        let (on_host, api): (BTreeSet<IpAddr>, BTreeSet<IpAddr>) = api.partition(|ip| host.contains(ip));
        out.apiserver =
            ApiServer { on_host: !on_host.is_empty(), on_nodes: !api.is_empty() && api.is_subset(&remote) };
        let all = [(remote, identity::REMOTE_NODE), (api, identity::KUBE_APISERVER), (host, identity::HOST)];
        all.into_iter().flat_map(|(ips, number)| ips.into_iter().map(move |ip| (ip, number))).collect()
    }

    /// Pods that are or may be on this node.
    fn pods_on(&self, node: &str) -> impl Iterator<Item = (&Key, &Stored)> {
        let bound = self.by_node.get(&Some(node.to_owned())).into_iter().flatten();
        let unbound = self.by_node.get(&None).into_iter().flatten();
        let mut keys: Vec<&Key> = bound.chain(unbound).collect();
        keys.sort();
        let stored = keys.into_iter().filter_map(|key| Some((key, self.pods.get(key)?)));
        stored.filter(move |(_, s)| s.is_live() && is_local(s, node))
    }

    fn addresses_on(&self, node: &str) -> BTreeSet<IpAddr> {
        let pods = self.pods_on(node).filter(|(_, stored)| stored.has_own_network());
        pods.flat_map(|(_, stored)| stored.pod.ips.iter().copied()).collect()
    }

    fn local_pods(
        &self,
        node: &str,
        owners: &Owners<'_>,
        identities: &Identities,
        mut meant: impl FnMut(&Policies) -> Policies,
    ) -> Vec<LocalPod> {
        let mut local = Vec::new();
        for (key, stored) in self.pods_on(node) {
            let (pod, profile) = (&stored.pod, &stored.profile);
            let all = self.policies.values().flatten();
            let selecting = self.profiles.policies(profile, pod.host_network, all);
            local.push(LocalPod {
                key: key.clone(),
                uid: pod.uid.clone(),
                host_network: pod.host_network,
                ips: pod.ips.iter().copied().filter(|ip| owners.has(key, *ip)).collect(),
                identity: identities.get(&place(profile)).map_or(UNMANAGED, |i| i.number),
                profile: profile.clone(),
                annotations: pod.annotations.clone(),
                searches: pod.searches.clone(),
                workload: pod.workload.clone(),
                policies: meant(&selecting),
            });
        }
        local
    }
}

impl ApiServer {
    /// The policy with its entities as the numbers of identities have them here, if they are others.
    fn changes(self, policy: &Policy) -> Option<Policy> {
        let others = |rule: &Rule| match &rule.peers {
            Peers::Entities(entities) => self.meant_by(entities) != *entities,
            _ => false,
        };
        let changed = policy.rules().iter().any(others);
        changed.then(|| policy.with_entities(|entities| self.meant_by(entities)))
    }

    fn meant_by(self, entities: &BTreeSet<Entity>) -> BTreeSet<Entity> {
        let mut meant = entities.clone();
        if self.on_host && entities.contains(&Entity::KubeApiserver) {
            meant.insert(Entity::Host);
        }
        if self.on_nodes && entities.contains(&Entity::RemoteNode) {
            meant.insert(Entity::KubeApiserver);
        }
        meant
    }
}

impl Resolved {
    pub(super) fn note(&mut self, object: &Key, message: String) {
        self.notes.push(note(object, message));
    }
}

fn note(object: &Key, message: String) -> Diagnostic {
    let (object, path) = (object.to_string(), String::new());
    Diagnostic { severity: Severity::Warning, object, path, message }
}

/// A pod that is bound to no node is here if its annotations say where (a plain host has no scheduler).
fn is_local(stored: &Stored, node: &str) -> bool {
    match &stored.pod.node {
        Some(bound) => bound == node,
        None => PLACES.iter().any(|place| stored.pod.annotations.contains_key(*place)),
    }
}
