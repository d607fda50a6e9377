//! CASES about objects: YAML in, owners of addresses, identities, services and local pods out.

mod advice;
mod files;
mod pods;
mod references;
mod services;

use std::net::IpAddr;

use egret_core::{
    cluster::{Cluster, LocalPod, Resolved, Source},
    identity::IdentityBook,
};

/// A folder with one file per object, and what follows from it on node `n1`.
#[derive(Default)]
struct Lab {
    source: Source,
    cluster: Cluster,
    book: IdentityBook,
}

impl Lab {
    /// Objects in short: `Kind name: rest`, where the name may be `ns/name` and the rest is YAML in braces.
    fn new(objects: &[&str]) -> Self {
        let mut lab = Self::default();
        objects.iter().for_each(|o| lab.put(o));
        lab
    }

    fn put(&mut self, object: &str) {
        let (path, text) = full(object);
        for change in self.source.update(&path, &text) {
            self.cluster.apply(change);
        }
        assert_eq!(self.source.diagnostics(), [], "{object}");
    }

    fn delete(&mut self, path: &str) {
        let changes = self.source.remove(path);
        assert_eq!(changes.len(), 1, "{path}");
        for change in changes {
            self.cluster.apply(change);
        }
    }

    fn resolve(&mut self) -> Resolved {
        self.cluster.resolve("n1", &mut self.book)
    }

    /// Whose address it is: the label `app` of the pod, or a reserved number, or nobody's.
    fn owner(&mut self, ip: &str) -> String {
        let resolved = self.resolve();
        match resolved.world_identities.get(&ip.parse::<IpAddr>().unwrap()) {
            None => "nobody".to_owned(),
            Some(number) => match resolved.peers.get(number) {
                Some(identity) => identity.labels.get("app").cloned().unwrap_or_default(),
                None => number.to_string(),
            },
        }
    }

    fn local(&mut self, name: &str) -> Option<LocalPod> {
        self.resolve().local.into_iter().find(|p| p.key.name == name)
    }

    /// `vip:port/proto -> ip:port ip:port`, one line per entry.
    fn services(&mut self) -> Vec<String> {
        let entries = self.resolve().services.into_iter().map(|e| {
            let backends: Vec<String> =
                e.backends.iter().map(|b| std::net::SocketAddr::from(*b).to_string()).collect();
            let vip = std::net::SocketAddr::from((e.vip, e.port));
            format!("{vip}/{} -> {}", e.proto, backends.join(" ")).trim_end().to_owned()
        });
        entries.collect()
    }

    fn notes(&mut self) -> Vec<String> {
        self.resolve().notes.iter().map(ToString::to_string).collect()
    }
}

/// Path and text of an object in short. A policy selects the pods whose label `app` is its name, and `all` everybody.
fn full(object: &str) -> (String, String) {
    let (head, rest) = object.split_once(": ").unwrap();
    let (kind, name) = head.split_once(' ').unwrap();
    let (namespace, name) = name.split_once('/').unwrap_or(("default", name));
    let api = match kind {
        "EndpointSlice" => "discovery.k8s.io/v1",
        "CiliumNetworkPolicy" | "CiliumClusterwideNetworkPolicy" | "CiliumCIDRGroup" => "cilium.io/v2",
        "ClusterNetworkPolicy" => "policy.networking.k8s.io/v1alpha2",
        "NetworkPolicy" => "networking.k8s.io/v1",
        _ => "v1",
    };
    // `labels` and what else belongs to the metadata stands before a bar.
    let (metadata, rest) = rest.split_once(" | ").unwrap_or(("{}", rest));
    let inner = |text: &str| text.strip_prefix('{').unwrap().strip_suffix('}').unwrap().to_owned();
    let (metadata, rest) = (inner(metadata), inner(rest));
    let rest = match (kind, name) {
        ("CiliumNetworkPolicy", "all") => rest.replacen('{', "{endpointSelector: {}, ", 1),
        ("CiliumNetworkPolicy", app) => {
            rest.replacen('{', &format!("{{endpointSelector: {{matchLabels: {{app: {app}}}}}, "), 1)
        }
        _ => rest,
    };
    let comma = if metadata.is_empty() { "" } else { ", " };
    let text = format!(
        "{{apiVersion: {api}, kind: {kind}, metadata: {{name: {name}, namespace: {namespace}{comma}{metadata}}}, {rest}}}"
    );
    (head.to_owned(), text)
}
