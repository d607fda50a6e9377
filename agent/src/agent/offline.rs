//! `egret policy explain --policies DIR --pods FILE`: what files would do to a connection, without an agent.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::path::PathBuf;

use egret_core::desired::View;
use egret_core::dns::cache::Limits;
use egret_core::dns::lifetime::Lifetime;
use egret_core::explain::written::{self, End};
use egret_core::explain::{Case, Held, Local as Workload, Now, explain};
use egret_core::names::Name;
use egret_core::state::State;

use super::explain::{Answers, Meant, Scene, answer, workload};
use super::objects::{Local, Objects, Picture};
use crate::api;

/// The node that all pods are taken to be on.
const NODE: &str = "any node";
/// What is asked about if no port was given.
const HTTPS: (u8, u16) = (egret_common::net::proto::TCP, 443);

/// Files that were read.
#[derive(Debug)]
pub struct Offline {
    objects: Objects,
    picture: Picture,
    domain: Name,
}

impl Offline {
    /// Reads the files, in a cluster with this domain.
    #[must_use]
    pub fn new(files: BTreeMap<PathBuf, String>, domain: Name) -> Self {
        let mut objects = Objects::on_one_node(files, NODE);
        let picture = objects.picture(NODE, &BTreeMap::new());
        Self { objects, picture, domain }
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
        let scene =
            Scene { objects: &self.objects, picture: &self.picture, node: NODE, domain: &self.domain };
        let find = |option: &str, end: &End| scene.find(end).map_err(|why| format!("{option}: {why}"));
        let (from, to) = (find("--from", &from_end)?, find("--to", &to_end)?);
        let (source, destination) = (self.local(&from), self.local(&to));
        if source.is_none() && destination.is_none() {
            return Err("neither end is a pod of these files".into());
        }
        let state = self.state([source, destination], trusted).map_err(|error| error.to_string())?;
        let none = BTreeMap::new();
        let view = View { desired: state.desired(), grants: &none, now: 0 };
        let known = Answers { scene: &scene, differences: &Vec::new };
        let (port, port_from) = (port.unwrap_or(HTTPS), port.is_none().then(|| "none was given".to_owned()));
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
        let workload = |id: u32, pod: Option<&'_ Local>| -> Option<Workload<'_>> {
            let endpoint = state.desired().endpoints.get(&id).copied().unwrap_or_default();
            pod.map(|pod| {
                let pod = self.picture.local.iter().find(|own| own.name == pod.name);
                pod.map(|pod| workload(pod, Held::Assumed, endpoint, false))
            })?
        };
        let (source, destination) = (workload(1, source), workload(2, destination));
        let explained = explain(&case, (&from.target, source.as_ref()), (&to.target, destination.as_ref()));
        Ok(answer(&explained, (&from, &to), port, port_from))
    }

    fn local(&self, meant: &Meant) -> Option<&Local> {
        let name = meant.pod.as_ref()?;
        self.picture.local.iter().find(|pod| pod.name == *name)
    }

    /// The two pods as endpoints 1 and 2.
    fn state(
        &self,
        pods: [Option<&Local>; 2],
        trusted: &BTreeSet<SocketAddr>,
    ) -> Result<State, egret_core::compile::CompileError> {
        let numbered = || (1..).zip(pods).filter_map(|(id, pod)| Some((id, pod?)));
        let specs =
            numbered().map(|(id, pod)| self.picture.spec(pod, id, 0, pod.host_network, Lifetime::default()));
        let world = self.picture.world_of(trusted, &[], &self.domain);
        let mut state = State::new(world.clone(), Vec::new(), Limits::default())?;
        state.update(world, specs.collect(), self.picture.wiring_of(numbered()), 0)?;
        Ok(state)
    }
}
