//! `egret policy explain --policies DIR --pods FILE`: what files would do to a connection, without an agent.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;

use egret_core::compile::CompileError;
use egret_core::desired::View;
use egret_core::dns::cache::Limits;
use egret_core::dns::lifetime::Lifetime;
use egret_core::explain::written::{self, End};
use egret_core::explain::{Case, Held, Local as Workload, Now, Receiver, explain};
use egret_core::names::Name;
use egret_core::state::State;

use super::explain::{Answers, HTTPS, Meant, Scene, answer, workload};
use super::objects::{Local, Objects, Picture};
use crate::api;
use crate::source::folder::Texts;

/// The node that pods are taken to be on which say nothing of one.
const NODE: &str = "any node";

/// Files that were read.
#[derive(Debug)]
pub struct Offline {
    objects: Objects,
    picture: Picture,
    domain: Name,
    node: String,
}

impl Offline {
    /// Reads the files, in a cluster with this domain, for a question about these two ends: all pods are taken to be on the
    /// receiver's node, or if it is no pod on the sender's.
    #[must_use]
    pub fn new(texts: &Texts, domain: Name, from: &str, to: &str) -> Self {
        let mut objects = Objects::of_texts(texts);
        let of = |end: Option<End>| match end {
            Some(End::Pod(namespace, name)) => objects.cluster().pod(&namespace, &name)?.node.clone(),
            Some(End::Address(ip)) => {
                let key = objects.pod_at(ip)?;
                objects.cluster().pod(&key.namespace, &key.name)?.node.clone()
            }
            _ => None,
        };
        let node = of(written::to(to).ok().map(|(end, _)| end)).or_else(|| of(written::from(from).ok()));
        let node = node.unwrap_or_else(|| NODE.to_owned());
        objects.bind_all(&node);
        let picture = objects.picture(&node, &BTreeMap::new());
        Self { objects, picture, domain, node }
    }

    /// What there is to tell about the objects, and whether one is bad.
    #[must_use]
    pub fn diagnostics(&self) -> (&[String], bool) {
        (self.objects.diagnostics(&self.picture), self.objects.has_errors())
    }

    /// Explains a connection.
    ///
    /// # Errors
    /// An end that cannot be understood, or is not in the files, or policies that do not compile.
    pub fn explain(
        &self,
        from: &str,
        to: &str,
        trusted: &BTreeSet<SocketAddr>,
    ) -> Result<api::Explanation, String> {
        let from_end = written::from(from).map_err(|error| format!("--from: {error}"))?;
        let (to_end, port) = written::to(to).map_err(|error| format!("--to: {error}"))?;
        let (objects, picture) = (&self.objects, &self.picture);
        let scene = Scene { objects, picture, node: &self.node, domain: &self.domain, namespace: "" };
        let from = scene.find(&from_end).map_err(|why| format!("--from: {why}"))?;
        let to = scene.of(&from).find(&to_end).map_err(|why| format!("--to: {why}"))?;
        let (port, port_from) = (port.unwrap_or(HTTPS), port.is_none().then(|| "none was given".to_owned()));
        let source = self.local(&from);
        let behind = scene.behind(&to.target, port);
        let itself = to.pod.iter().map(|pod| (pod.clone(), port.1));
        let ends: Vec<(String, u16)> = itself.chain(behind).collect();
        if source.is_none() && ends.is_empty() {
            return Err("neither end is a pod of these files".into());
        }
        let names = source.iter().map(|pod| &pod.name).chain(ends.iter().map(|(name, _)| name));
        let pods = self.numbered(names.map(String::as_str).collect());
        let state = self.state(&pods, trusted).map_err(|error| error.to_string())?;
        let workload = |name: &str| {
            let (id, pod) = pods.iter().find(|(_, pod)| pod.name == name)?;
            let endpoint = state.desired().endpoints.get(id).copied().unwrap_or_default();
            Some(workload(pod, *id, Held::Assumed, endpoint, false))
        };
        let receivers: Vec<Receiver<'_>> = ends
            .iter()
            .filter_map(|(name, port)| Some(Receiver { local: workload(name)?, port: *port }))
            .collect();
        let none = BTreeMap::new();
        let view = View { desired: state.desired(), grants: &none, now: 0 };
        let known = Answers { scene: &scene, differences: &Vec::new };
        let case = Case {
            tables: &view,
            state: &state,
            journal: None,
            flows: None,
            known: &known,
            proto: port.0,
            port: port.1,
            now: Now::default(),
        };
        let source: Option<Workload<'_>> = source.and_then(|pod| workload(&pod.name));
        let explained = explain(&case, (&from.target, source.as_ref()), (&to.target, &receivers));
        Ok(answer(&explained, (&from, &to), port, port_from))
    }

    /// These pods with numbers, each once.
    fn numbered(&self, names: BTreeSet<&str>) -> Vec<(u32, &Local)> {
        let pods = self.picture.local.iter().filter(|pod| names.contains(pod.name.as_str()));
        (1..).zip(pods).collect()
    }

    fn local(&self, meant: &Meant) -> Option<&Local> {
        let name = meant.pod.as_ref()?;
        self.picture.local.iter().find(|pod| pod.name == *name)
    }

    /// The pods as endpoints.
    fn state(&self, pods: &[(u32, &Local)], trusted: &BTreeSet<SocketAddr>) -> Result<State, CompileError> {
        let spec =
            |(id, pod): &(u32, &Local)| self.picture.spec(pod, *id, 0, pod.host_network, Lifetime::default());
        let world = self.picture.world_of(trusted, &[], &self.domain);
        let mut state = State::new(world.clone(), Vec::new(), Limits::default())?;
        let wiring = self.picture.wiring_of(pods.iter().copied());
        state.update(world, pods.iter().map(spec).collect(), wiring, 0)?;
        Ok(state)
    }
}
