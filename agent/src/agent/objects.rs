//! From texts to what the loop works with. The only place here that knows how objects are read and resolved.

use std::cell::OnceCell;
use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;

use egret_common::ids::EndpointId;
use egret_common::maps::{
    BACKENDS, Backend, Backends, ENDPOINT_AUDIT, ENDPOINT_POD, ENDPOINT_QUERY_FILTER, ENDPOINT_REJECT,
    ENDPOINT_SERVICES, ServiceKey,
};
use egret_common::net::Direction;
use egret_core::cluster::{Cluster, Feed, Key, Kind, LocalPod, News, Resolved, ServiceEntry, Source};
use egret_core::compile::{EndpointSpec, NamesAsk, World, addr};
use egret_core::dns::lifetime::Lifetime;
use egret_core::flow::{ServiceRef, Workload};
use egret_core::identity::{IdentityBook, Profile};
use egret_core::labels::Labels;
use egret_core::names::Name;
use egret_core::policy::{Diagnostic, Peers, Policies, Policy, Rule, Severity, Subject, Tier};
use egret_core::state::Wiring;
use egret_core::tuning::{Lifetimes, Tuning};

use super::keeper::{OwnPod, Setting};
use super::registry::Registry;
use crate::api;
use crate::source::folder::Texts;

/// A pod of this node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Local {
    /// Namespace and name, `shop/web-0`.
    pub(super) name: String,
    /// Empty if the source gives none.
    pub(super) uid: String,
    /// It uses its node's network.
    pub(super) host_network: bool,
    /// Its own addresses.
    pub(super) ips: BTreeSet<IpAddr>,
    /// Number of its identity.
    pub(super) identity: u32,
    /// Identity labels and named ports.
    pub(super) profile: Arc<Profile>,
    /// Annotations `egret.dev/...`.
    pub(super) annotations: BTreeMap<String, String>,
    /// What controls it, if anything does.
    pub(super) workload: Option<Arc<Workload>>,
    /// The policies that select it.
    pub(super) policies: Policies,
}

/// What follows from the objects.
#[derive(Debug, Clone, Default)]
pub(super) struct Picture {
    /// The pods of this node.
    pub(super) local: Vec<Local>,
    /// What the compiler asks.
    resolved: Resolved,
    /// The pod that this process runs in, if some policy selects it.
    spared: Option<String>,
    /// What there is to tell, once somebody has asked.
    told: OnceCell<Vec<String>>,
    /// Services by address, once somebody has asked.
    vips: OnceCell<BTreeMap<IpAddr, ServiceRef>>,
}

/// The objects in force.
#[derive(Debug, Default)]
pub(super) struct Objects {
    source: Source,
    feed: Feed,
    cluster: Cluster,
    book: IdentityBook,
    unreadable: Vec<String>,
}

impl Objects {
    /// Takes files in; says whether anything may be different now.
    pub(super) fn read(&mut self, texts: &Texts) -> bool {
        let files: Vec<(String, &str)> =
            texts.files.iter().map(|(path, text)| (path.display().to_string(), &**text)).collect();
        for change in self.source.sync(files.iter().map(|(path, text)| (path.as_str(), *text))) {
            self.cluster.apply(change);
        }
        let unreadable = texts.errors.iter();
        self.unreadable = unreadable.map(|(path, why)| format!("{}: error: {why}", path.display())).collect();
        // What there is to tell is different in any case.
        true
    }

    /// Takes in what happened to objects; says whether anything is different now.
    pub(super) fn take(&mut self, news: Vec<(Kind, News)>) -> bool {
        let mut different = false;
        for (kind, news) in news {
            for change in self.feed.take(kind, news) {
                different |= self.cluster.apply(change);
            }
        }
        different | self.feed.take_retold()
    }

    /// Each policy object that an API server told of, and each other one that is bad, with what there is to tell.
    pub(super) fn verdicts(&self) -> BTreeMap<Key, Vec<Diagnostic>> {
        self.feed.verdicts()
    }

    /// The kinds among these of which not everything was told yet.
    pub(super) fn missing(&self, kinds: &[Kind]) -> Vec<Kind> {
        kinds.iter().copied().filter(|kind| !self.feed.is_complete(*kind)).collect()
    }

    /// What follows, on the node called `node`, which has these addresses.
    pub(super) fn picture(&mut self, node: &str, own: &BTreeMap<IpAddr, u32>) -> Picture {
        self.cluster.set_own_addresses(own.keys().copied());
        let resolved = self.cluster.resolve(node, &mut self.book);
        let local = resolved.local.iter().map(Local::from).collect();
        Picture { local, resolved, ..Picture::default() }
    }

    /// What there is to tell about the objects that the picture is of. Nobody waits for it when an object changes: it is
    /// worked out when it is asked for.
    pub(super) fn diagnostics<'a>(&self, picture: &'a Picture) -> &'a [String] {
        picture.told.get_or_init(|| {
            let mut told = self.unreadable.clone();
            told.extend(self.source.diagnostics().into_iter().map(|(path, d)| format!("{path}: {d}")));
            told.extend(self.feed.diagnostics().map(|(_, d)| d.to_string()));
            told.extend(picture.resolved.notes.iter().map(ToString::to_string));
            let spared = picture.spared.iter();
            told.extend(
                spared.map(|pod| {
                    format!("warning: Pod/{pod}: is the agent itself: no policy is enforced on it")
                }),
            );
            told.extend(self.cluster.advise(&picture.resolved).iter().map(ToString::to_string));
            told
        })
    }

    /// Whether some object is bad.
    pub(super) fn has_errors(&self) -> bool {
        let bad = |(_, d): &(String, Diagnostic)| d.severity == Severity::Error;
        !self.unreadable.is_empty() || self.source.diagnostics().iter().any(bad)
    }

    /// Objects that are bad, and files that cannot be read.
    pub(super) fn bad(&self) -> usize {
        let bad = |d: &Diagnostic| d.severity == Severity::Error;
        let of_files = self.source.diagnostics();
        let of_files: BTreeSet<(&String, &String)> =
            of_files.iter().filter(|(_, d)| bad(d)).map(|(path, d)| (path, &d.object)).collect();
        let told: BTreeSet<&Key> =
            self.feed.diagnostics().filter(|(_, d)| bad(d)).map(|(key, _)| key).collect();
        self.unreadable.len() + of_files.len() + told.len()
    }

    /// Identities with their numbers.
    pub(super) fn identities(&self) -> &IdentityBook {
        &self.book
    }

    /// The same, to give the identities of an earlier agent their numbers again. Before anything is read.
    pub(super) fn identities_mut(&mut self) -> &mut IdentityBook {
        &mut self.book
    }

    /// Labels by identity, of the identities that pods have.
    pub(super) fn labels<'a>(&self, picture: &'a Picture) -> impl Iterator<Item = (u32, &'a Labels)> {
        let local = picture.local.iter().map(|pod| (pod.identity, &pod.profile.labels));
        let peers = picture.resolved.peers.values().map(|identity| (identity.number, &identity.labels));
        peers.chain(local).collect::<BTreeMap<_, _>>().into_iter()
    }

    /// A policy object for display.
    pub(super) fn describe(&self, policy: &Policy) -> api::Policy {
        let isolates = policy.isolates();
        let directions = [(isolates.ingress, "ingress"), (isolates.egress, "egress")];
        let subject = match policy.subject() {
            Subject::Pods(selector) => selector.to_string(),
            Subject::Nodes(selector) => format!("nodes with {selector}"),
            Subject::This => String::new(),
        };
        let selected = self.cluster.selected(policy);
        api::Policy {
            name: policy.origin().to_string(),
            tier: policy.standing().tier.to_string(),
            priority: Some(policy.standing()).filter(|s| s.tier != Tier::Normal).map(|s| s.priority),
            subject,
            isolates: directions.iter().filter(|d| d.0).map(|d| d.1.to_owned()).collect(),
            rules: policy.rules().iter().map(|rule| rule.path.clone()).collect(),
            selects: selected.map(|(key, _)| format!("{}/{}", key.namespace, key.name)).collect(),
        }
    }

    /// The Service that has the address.
    pub(super) fn service_at(&self, picture: &Picture, address: IpAddr) -> Option<ServiceRef> {
        picture.vips.get_or_init(|| self.cluster.vips()).get(&address).cloned()
    }

    /// The pod that has the address.
    pub(super) fn pod_at(&self, address: IpAddr) -> Option<&Key> {
        self.cluster.pod_at(address)
    }

    /// What there is, to look things up.
    pub(super) fn cluster(&self) -> &Cluster {
        &self.cluster
    }

    /// Takes all pods for pods of this node.
    pub(super) fn bind_all(&mut self, node: &str) {
        self.cluster.bind_all(node);
    }

    /// What files hold.
    pub(super) fn of_texts(texts: &Texts) -> Self {
        let mut objects = Self::default();
        objects.read(texts);
        objects
    }

    /// Whether there is such a pod, on whatever node.
    pub(super) fn has_pod(&self, namespace: &str, name: &str) -> bool {
        self.cluster.has_pod(&Key::new(Kind::Pod, namespace, name))
    }

    /// What controls a pod, if anything does.
    pub(super) fn workload(&self, pod: &Key) -> Option<&Workload> {
        self.cluster.workload(pod).map(|workload| &**workload)
    }

    /// The labels of a node.
    pub(super) fn node_labels(&self, name: &str) -> Option<&Labels> {
        self.cluster.node(name).map(|node| &node.labels)
    }

    /// Every policy object in force.
    pub(super) fn policies(&self) -> impl Iterator<Item = &Policy> {
        self.cluster.policies().flat_map(|(_, policies)| policies).map(|policy| &**policy)
    }

    /// The same by object.
    pub(super) fn policy_objects(&self) -> impl Iterator<Item = (&Key, &[Arc<Policy>])> {
        self.cluster.policies()
    }
}

impl From<&LocalPod> for Local {
    fn from(pod: &LocalPod) -> Self {
        Self {
            name: format!("{}/{}", pod.key.namespace, pod.key.name),
            uid: pod.uid.clone(),
            host_network: pod.host_network,
            ips: pod.ips.clone(),
            identity: pod.identity,
            profile: pod.profile.clone(),
            annotations: pod.annotations.clone(),
            workload: pod.workload.clone(),
            policies: pod.policies.clone(),
        }
    }
}

impl Picture {
    /// Enforces nothing on the pod that this process runs in: whoever cuts the agent off from the API server can never be
    /// told to let it through again (CASES L-A04).
    pub(super) fn sparing(mut self, own: Option<&OwnPod>) -> Self {
        let own = self.local.iter_mut().filter(|pod| own.is_some_and(|own| pod.uid == own.uid));
        for pod in own.filter(|pod| !pod.policies.is_empty()) {
            pod.policies = Policies::default();
            self.spared = Some(pod.name.clone());
        }
        self
    }

    /// Whether nothing is enforced on the pod, since this process runs in it.
    pub(super) fn spares(&self, pod: &str) -> bool {
        self.spared.as_deref() == Some(pod)
    }

    /// Every port of every Service, with what is behind it.
    pub(super) fn service_entries(&self) -> &[ServiceEntry] {
        &self.resolved.services
    }

    /// The identity of an address of the cluster.
    pub(super) fn identity(&self, address: IpAddr) -> Option<u32> {
        self.resolved.world_identities.get(&address).copied()
    }

    /// The labels of an identity that pods have.
    pub(super) fn labels_of(&self, number: u32) -> Option<&Labels> {
        self.resolved.peers.get(&number).map(|identity| &identity.labels)
    }

    /// What all endpoints share.
    pub(super) fn world(&self, setting: &Setting) -> World {
        self.world_of(&setting.trusted, &setting.search, &setting.cluster_domain)
    }

    /// The same, with these resolvers trusted beside the cluster's, and the search domains of this host.
    pub(super) fn world_of(
        &self,
        trusted: &BTreeSet<SocketAddr>,
        search: &[Name],
        cluster_domain: &Name,
    ) -> World {
        World {
            search: self.search(search, cluster_domain),
            cluster_domain: Some(cluster_domain.clone()),
            resolvers: self.resolvers(trusted),
            identities: self.resolved.world_identities.clone(),
            peers: self.resolved.peers.clone(),
            names_ask: NamesAsk::No,
            seen_names: BTreeSet::new(),
        }
    }

    /// The domains that resolvers of pods append to names. Of pods without a rule that speaks of names nobody asks.
    fn search(&self, of_host: &[Name], cluster_domain: &Name) -> Vec<Name> {
        let named = |rule: &Rule| rule.dns.is_some() || matches!(rule.peers, Peers::Names(_));
        let asks = |pod: &&LocalPod| pod.policies.rules().any(named);
        let pods = self.resolved.local.iter().filter(asks);
        let of_pods: BTreeSet<Name> = pods.flat_map(|pod| pod.search(cluster_domain)).collect();
        let of_host = of_host.iter().filter(|name| !of_pods.contains(*name)).cloned();
        of_host.chain(of_pods.iter().cloned()).collect()
    }

    /// Whose answers are learned.
    pub(super) fn resolvers(&self, trusted: &BTreeSet<SocketAddr>) -> BTreeSet<SocketAddr> {
        self.resolved.resolvers.union(trusted).copied().collect()
    }

    /// What goes into the maps as it is: whose the addresses of these pods are, and the Services.
    pub(super) fn wiring(&self, registry: &Registry) -> Wiring {
        self.wiring_of(registry.iter().map(|entry| (entry.id, &entry.pod)))
    }

    /// The same for some pods by number.
    pub(super) fn wiring_of<'a>(&self, pods: impl Iterator<Item = (EndpointId, &'a Local)>) -> Wiring {
        let owned = |(id, pod): (EndpointId, &'a Local)| pod.ips.iter().map(move |ip| (addr(*ip), id));
        Wiring { addresses: pods.flat_map(owned).collect(), services: self.services() }
    }

    /// Services as the maps hold them.
    fn services(&self) -> BTreeMap<ServiceKey, Backends> {
        self.resolved.services.iter().map(service).collect()
    }

    /// The pod as the compiler takes it. `cgroup`: it has no interface of its own.
    pub(super) fn spec(
        &self,
        pod: &Local,
        id: EndpointId,
        flags: u32,
        cgroup: bool,
        lifetime: Lifetime,
    ) -> EndpointSpec {
        let filters = pod.policies.rules().any(|rule| rule.dns.is_some());
        let mut flags = flags;
        flags |= if filters { ENDPOINT_QUERY_FILTER } else { 0 };
        flags |= if cgroup { 0 } else { ENDPOINT_POD };
        // Where nothing can be denied, a Service that the map cannot hold must not be denied either.
        let denies = |policy: &Policy| policy.may_deny(Direction::Egress);
        let judged = !self.resolved.services.is_empty() && pod.policies.each().any(denies);
        flags |= if judged { ENDPOINT_SERVICES } else { 0 };
        let tuning = Tuning::of(&pod.annotations);
        for (wish, bit) in [(tuning.audit, ENDPOINT_AUDIT), (tuning.reject, ENDPOINT_REJECT)] {
            flags = match wish {
                Some(true) => flags | bit,
                Some(false) => flags & !bit,
                None => flags,
            };
        }
        let lifetime = Lifetimes::of_policies(pod.policies.each()).under(tuning.lifetimes).or(lifetime);
        let (ports, policies) = (pod.profile.ports.clone(), pod.policies.clone());
        EndpointSpec { id, identity: pod.identity, flags, lifetime, ports, policies }
    }
}

/// More backends than fit are none: nobody may pass.
fn service(entry: &ServiceEntry) -> (ServiceKey, Backends) {
    let key =
        ServiceKey { addr: addr(entry.vip), port: entry.port.into(), proto: entry.proto.number().into() };
    let mut backends = Backends::default();
    if entry.backends.len() <= BACKENDS {
        for (slot, (ip, port)) in backends.slots.iter_mut().zip(&entry.backends) {
            *slot = Backend { addr: addr(*ip), port: (*port).into(), pad: 0 };
        }
        backends.count = entry.backends.len() as u32;
    }
    (key, backends)
}

/// What files mean, without an agent.
#[derive(Debug, Default)]
pub struct Checked {
    /// The policies, and everything to tell.
    pub policies: api::Policies,
    /// Some object is bad.
    pub bad: bool,
}

impl Checked {
    /// Reads the files.
    #[must_use]
    pub fn new(files: BTreeMap<PathBuf, String>) -> Self {
        let files = files.into_iter().map(|(path, text)| (path, text.into())).collect();
        let mut objects = Objects::of_texts(&Texts { files, errors: BTreeMap::new() });
        let picture = objects.picture("", &BTreeMap::new());
        let policies = objects.policies().map(|policy| objects.describe(policy)).collect();
        let diagnostics = objects.diagnostics(&picture).to_vec();
        let policies = api::Policies { revision: 0, policies, diagnostics };
        Self { policies, bad: objects.has_errors() }
    }
}
