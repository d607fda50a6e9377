//! From objects to what a `State` takes, as the agent does it: read, apply, resolve; from files and from lists, which must
//! come to the same.

use std::collections::{BTreeMap, BTreeSet};

use egret_common::{
    ids::EndpointId,
    maps::{Backend, Backends, ENDPOINT_POD, ENDPOINT_QUERY_FILTER, ENDPOINT_SERVICES, ServiceKey},
    net::Direction,
};
use egret_core::{
    cluster::{Cluster, Document, Feed, Kind, LocalPod, News, Resolved, ServiceEntry, Source},
    compile::{EndpointSpec, NamesAsk, World, addr},
    dns::lifetime::Lifetime,
    identity::IdentityBook,
    names::Name,
    policy::{Effect, Peers, Policies, Rule, Severity},
    state::Wiring,
};

use serde::Deserialize;
use serde_yaml_ng::Value;

use crate::scene::{NODE, Scene};

/// The agent of the only node.
#[derive(Debug, Default)]
pub struct Node {
    source: Source,
    cluster: Cluster,
    book: IdentityBook,
    api: Api,
    ids: BTreeMap<String, EndpointId>,
}

/// The same objects, as lists of an API server tell of them.
#[derive(Debug, Default)]
struct Api {
    feed: Feed,
    cluster: Cluster,
    book: IdentityBook,
    kinds: BTreeSet<Kind>,
}

impl Api {
    fn look(&mut self, text: &str) -> Resolved {
        let mut lists: BTreeMap<Kind, Vec<News>> =
            self.kinds.iter().map(|kind| (*kind, Vec::new())).collect();
        for document in serde_yaml_ng::Deserializer::from_str(text) {
            let value = Value::deserialize(document).expect("YAML");
            let field = |name: &str| value.get(name).and_then(Value::as_str).unwrap_or_default();
            let Some(kind) = Kind::of(field("apiVersion"), field("kind")) else { continue };
            let contents =
                Document::deserialize(&value).expect("any object").read(field("apiVersion"), field("kind"));
            lists.entry(kind).or_default().push(News::Put(Box::new(contents)));
        }
        self.kinds.extend(lists.keys());
        for (kind, list) in lists {
            for news in [News::Begin].into_iter().chain(list).chain([News::End]) {
                for change in self.feed.take(kind, news) {
                    self.cluster.apply(change);
                }
            }
        }
        without_notes(&self.cluster.resolve(NODE, &mut self.book))
    }
}

/// Notes tell of objects in the order of their arrival.
fn without_notes(resolved: &Resolved) -> Resolved {
    Resolved { notes: Vec::new(), ..resolved.clone() }
}

/// The cluster's own domain.
pub const DOMAIN: &str = "cluster.local";

/// What a `State` takes.
pub type Picture = (World, Vec<EndpointSpec>, Wiring);

impl Node {
    /// Looks at all objects.
    ///
    /// # Panics
    /// When one of them is invalid.
    pub fn look(&mut self, scene: &Scene) -> Picture {
        let text = scene.objects();
        for change in self.source.sync([("table", text.as_str())]) {
            self.cluster.apply(change);
        }
        for (_, diagnostic) in self.source.diagnostics() {
            assert_ne!(diagnostic.severity, Severity::Error, "{diagnostic}\n{text}");
        }
        let resolved = self.cluster.resolve(NODE, &mut self.book);
        assert_eq!(self.api.look(&text), without_notes(&resolved), "an API server is another door\n{text}");
        let specs = self.specs(&resolved);
        let id = |pod: &LocalPod| self.ids[&format!("{}/{}", pod.key.namespace, pod.key.name)];
        let local = resolved.local.iter().filter(|pod| !pod.host_network);
        let owned = local.flat_map(|pod| pod.ips.iter().map(move |ip| (addr(*ip), id(pod))));
        let wiring =
            Wiring { addresses: owned.collect(), services: resolved.services.iter().map(service).collect() };
        (world(&resolved), specs, wiring)
    }

    /// The endpoint that a pod is.
    #[must_use]
    pub fn id(&self, pod: &str) -> Option<EndpointId> {
        self.ids.get(pod).copied()
    }

    fn specs(&mut self, resolved: &Resolved) -> Vec<EndpointSpec> {
        let mut specs = Vec::new();
        for pod in resolved.local.iter().filter(|p| !p.host_network) {
            let next = self.ids.len() as EndpointId + 1;
            let id = *self.ids.entry(format!("{}/{}", pod.key.namespace, pod.key.name)).or_insert(next);
            specs.push(EndpointSpec {
                id,
                identity: pod.identity,
                flags: ENDPOINT_POD | flags(resolved, &pod.policies),
                lifetime: Lifetime::default(),
                ports: pod.profile.ports.clone(),
                policies: pod.policies.clone(),
            });
        }
        specs
    }
}

/// What all pods share. Search domains count of pods whose policies speak of names.
pub(crate) fn world(resolved: &Resolved) -> World {
    let domain = Name::parse(DOMAIN).expect("a name");
    let named = |rule: &Rule| rule.dns.is_some() || matches!(rule.peers, Peers::Names(_));
    let asks = |pod: &&LocalPod| pod.policies.rules().any(named);
    let search: BTreeSet<Name> =
        resolved.local.iter().filter(asks).flat_map(|pod| pod.search(&domain)).collect();
    World {
        search: search.into_iter().collect(),
        cluster_domain: Some(domain),
        resolvers: resolved.resolvers.clone(),
        identities: resolved.world_identities.clone(),
        peers: resolved.peers.clone(),
        names_ask: NamesAsk::No,
        seen_names: BTreeSet::new(),
    }
}

/// What the pod's policies need of the programs: a filter of queries, and Services where anything can be denied.
fn flags(resolved: &Resolved, policies: &Policies) -> u32 {
    let rules = || policies.rules();
    let filters = rules().any(|rule| rule.dns.is_some());
    let denies = rules().any(|r| r.direction == Direction::Egress && r.effect == Effect::Deny);
    let denies = denies || policies.iter().any(|p| p.isolates().egress);
    let judges = denies && !resolved.services.is_empty();
    [(filters, ENDPOINT_QUERY_FILTER), (judges, ENDPOINT_SERVICES)]
        .iter()
        .fold(0, |flags, (on, bit)| if *on { flags | bit } else { flags })
}

fn service(entry: &ServiceEntry) -> (ServiceKey, Backends) {
    let proto = entry.proto.number().into();
    let key = ServiceKey { addr: addr(entry.vip), port: entry.port.into(), proto };
    let mut backends = Backends { count: entry.backends.len() as u32, ..Backends::default() };
    for (slot, (ip, port)) in backends.slots.iter_mut().zip(&entry.backends) {
        *slot = Backend { addr: addr(*ip), port: (*port).into(), pad: 0 };
    }
    (key, backends)
}
