//! From texts to what the loop works with. The only place here that knows how objects are read and resolved.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;

use egret_common::ids::EndpointId;
use egret_common::maps::ENDPOINT_QUERY_FILTER;
use egret_core::compile::{EndpointSpec, NamesAsk, World};
use egret_core::dns::lifetime::Lifetime;
use egret_core::policy::{Policy, cilium};

use crate::api;
use crate::source::folder::Texts;

/// A pod of this node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Local {
    /// Namespace and name, `shop/web-0`.
    pub(super) name: String,
    /// Empty if the source gives none.
    pub(super) uid: String,
    /// Its own addresses.
    pub(super) ips: BTreeSet<IpAddr>,
    /// Number of its identity.
    pub(super) identity: u32,
    /// Identity labels.
    pub(super) labels: BTreeMap<String, String>,
    /// Annotations `egret.dev/...`.
    pub(super) annotations: BTreeMap<String, String>,
    /// The policies that select it.
    pub(super) policies: Vec<Policy>,
}

/// What follows from the objects.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Picture {
    /// The pods of this node.
    pub(super) local: Vec<Local>,
    /// Identity of each address that something in the cluster owns.
    pub(super) identities: BTreeMap<IpAddr, u32>,
    /// The cluster's own resolvers.
    pub(super) resolvers: BTreeSet<SocketAddr>,
    /// Labels by identity.
    pub(super) labels: BTreeMap<u32, BTreeMap<String, String>>,
    /// What there is to tell.
    pub(super) diagnostics: Vec<String>,
}

/// The objects in force.
#[derive(Debug, Default)]
pub(super) struct Objects {
    policies: Vec<Policy>,
    diagnostics: Vec<String>,
    bad: bool,
}

impl Objects {
    /// Takes the texts of a source in.
    pub(super) fn read(&mut self, texts: &Texts) {
        self.policies.clear();
        self.diagnostics.clear();
        self.bad = !texts.errors.is_empty();
        for (path, error) in &texts.errors {
            self.diagnostics.push(format!("{}: {error}", path.display()));
        }
        for (path, text) in &texts.files {
            let loaded = cilium::parse(text);
            let told = loaded.diagnostics.iter().map(|d| format!("{}: {d}", path.display()));
            self.diagnostics.extend(told);
            self.bad |= loaded.has_errors();
            self.policies.extend(loaded.policies);
        }
    }

    /// What follows, on the node called `node`, which has these addresses.
    pub(super) fn picture(&mut self, _node: &str, own: &BTreeMap<IpAddr, u32>) -> Picture {
        Picture { identities: own.clone(), diagnostics: self.diagnostics.clone(), ..Picture::default() }
    }

    /// Identities that were given numbers, for the next agent.
    pub(super) fn identities(&self) -> serde_json::Value {
        serde_json::Value::Null
    }

    /// Gives the identities of an earlier agent their numbers again. Before anything is read.
    pub(super) fn restore(&mut self, _identities: &serde_json::Value) {}

    /// A policy object for display.
    pub(super) fn describe(&self, policy: &Policy) -> api::Policy {
        let isolates = policy.isolates();
        let directions = [(isolates.ingress, "ingress"), (isolates.egress, "egress")];
        api::Policy {
            name: policy.origin().to_string(),
            subject: String::new(),
            isolates: directions.iter().filter(|d| d.0).map(|d| d.1.to_owned()).collect(),
            rules: policy.rules().iter().map(|rule| rule.path.clone()).collect(),
            selects: Vec::new(),
        }
    }

    /// Every policy object in force.
    pub(super) fn policies(&self) -> impl Iterator<Item = &Policy> {
        self.policies.iter()
    }
}

impl Picture {
    /// What all endpoints share.
    pub(super) fn world(&self, trusted: &BTreeSet<SocketAddr>) -> World {
        World {
            search: Vec::new(),
            resolvers: self.resolvers.union(trusted).copied().collect(),
            identities: self.identities.clone(),
            names_ask: NamesAsk::No,
            seen_names: BTreeSet::new(),
        }
    }
}

impl Local {
    /// As the compiler takes it.
    pub(super) fn spec(&self, id: EndpointId, flags: u32, _cgroup: bool, lifetime: Lifetime) -> EndpointSpec {
        let filters = self.policies.iter().flat_map(Policy::rules).any(|rule| rule.dns.is_some());
        let flags = flags | if filters { ENDPOINT_QUERY_FILTER } else { 0 };
        EndpointSpec { id, identity: self.identity, flags, lifetime, policies: self.policies.clone() }
    }
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
        let mut objects = Objects::default();
        objects.read(&Texts { files, errors: BTreeMap::new() });
        let picture = objects.picture("", &BTreeMap::new());
        let policies = objects.policies().map(|policy| objects.describe(policy)).collect();
        let policies = api::Policies { revision: 0, policies, diagnostics: picture.diagnostics };
        Self { policies, bad: objects.bad }
    }
}
