//! From objects to what a `State` takes, as the agent does it: read, apply, resolve.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
};

use egret_common::{ids::EndpointId, maps::ENDPOINT_POD};
use egret_core::{
    cluster::{Cluster, Resolved, Source},
    compile::{EndpointSpec, World},
    dns::lifetime::Lifetime,
    identity::IdentityBook,
    policy::Severity,
    state::{Wiring, flags_of_policies},
};

use crate::scene::{NODE, Scene};

/// The agent of the only node.
#[derive(Debug, Default)]
pub struct Node {
    source: Source,
    cluster: Cluster,
    book: IdentityBook,
    ids: BTreeMap<String, EndpointId>,
}

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
        let specs = self.specs(&resolved);
        let owned: Vec<(IpAddr, EndpointId)> = resolved
            .local
            .iter()
            .filter_map(|pod| Some((pod, self.id(&format!("{}/{}", pod.key.namespace, pod.key.name))?)))
            .flat_map(|(pod, id)| pod.ips.iter().map(move |ip| (*ip, id)))
            .collect();
        let wiring = Wiring::of_cluster(&resolved, owned);
        (World::of_cluster(&resolved, &BTreeSet::new()), specs, wiring)
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
                flags: ENDPOINT_POD | flags_of_policies(resolved, &pod.policies),
                lifetime: Lifetime::default(),
                ports: pod.ports.clone(),
                policies: pod.policies.clone(),
            });
        }
        specs
    }
}
