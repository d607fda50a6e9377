//! The way of a change from texts to map steps in pieces, for the benchmark.
//!
//! The agent goes the same way ([`super::pods`]), with places and programs. Must not know: maps, interfaces.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime};

use egret_core::desired::{Desired, MapOp, diff};
use egret_core::dns::cache::Limits;
use egret_core::dns::lifetime::Lifetime;
use egret_core::names::Name;
use egret_core::state::State;

use super::keeper::Setting;
use super::objects::{Objects, Picture};
use super::registry::{Entry, Registry};
use super::saved::MemoryFile;
use crate::cli::StartupMode;
use crate::datapath::tc::Method;
use crate::place::Host;
use crate::sandbox::cgroup::Hierarchy;
use crate::source::folder::Texts;

/// Where the time of a change goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Stage {
    /// From text to objects.
    Read,
    /// From objects to identities, owners of addresses, backends, policies of pods.
    Resolve,
    /// Numbers of endpoints, and what the compiler is asked.
    Ask,
    /// Rule sets, classes, and the steps from the old maps to the new.
    Compile,
    /// Writing down what the next agent must know, before the maps are written.
    Save,
}

impl Stage {
    /// In their order.
    pub const ALL: [Self; 5] = [Self::Read, Self::Resolve, Self::Ask, Self::Compile, Self::Save];
}

/// What a change led to.
#[derive(Debug)]
pub struct Change {
    /// Time of each stage.
    pub times: [Duration; Stage::ALL.len()],
    /// The steps.
    pub ops: Vec<MapOp>,
}

/// An agent without a kernel.
#[derive(Debug)]
pub struct Course {
    setting: Setting,
    texts: Texts,
    objects: Objects,
    picture: Picture,
    registry: Registry,
    state: State,
    memory: MemoryFile,
}

impl Course {
    /// Begins with these files, on the node `node`, with room for `most` endpoints; also gives the steps that fill empty
    /// maps. `memory`: a file to write to.
    ///
    /// # Panics
    /// If the files cannot be compiled.
    #[must_use]
    pub fn new(
        node: &str,
        files: BTreeMap<PathBuf, String>,
        most: u32,
        memory: PathBuf,
    ) -> (Self, Vec<MapOp>) {
        let files = files.into_iter().map(|(path, text)| (path, text.into())).collect();
        let texts = Texts { files, ..Texts::default() };
        let mut objects = Objects::default();
        let picture = objects.picture(node, &BTreeMap::new());
        let setting = setting(node);
        let world = picture.world(&setting);
        let state = State::new(world, Vec::new(), Limits::default()).expect("nothing can be compiled");
        let (registry, memory) = (Registry::new(most, BTreeMap::new()), MemoryFile::new(memory));
        let mut course = Self { setting, texts, objects, picture, registry, state, memory };
        course.follow();
        let ops = diff(&Desired::default(), course.state.desired());
        (course, ops)
    }

    /// A file has another text now.
    pub fn change(&mut self, path: &Path, text: &str) -> Change {
        self.texts.files.insert(path.to_owned(), text.into());
        self.follow()
    }

    /// What there is to tell, and how long it took to find that out.
    pub fn diagnostics(&self) -> (&[String], Duration) {
        let at = Instant::now();
        (self.objects.diagnostics(&self.picture), at.elapsed())
    }

    /// What the maps shall hold.
    #[must_use]
    pub fn desired(&self) -> &Desired {
        self.state.desired()
    }

    fn follow(&mut self) -> Change {
        let mut at = Instant::now();
        let mut lap = || std::mem::replace(&mut at, Instant::now()).elapsed();
        self.objects.read(&self.texts);
        let read = lap();
        self.picture = self.objects.picture(&self.setting.node, &BTreeMap::new());
        let resolve = lap();
        self.registry.update(&self.picture.local);
        let world = self.picture.world(&self.setting);
        let spec = |e: &Entry| self.picture.spec(&e.pod, e.id, 0, false, Lifetime::default());
        let specs = self.registry.iter().map(spec).collect();
        let wiring = self.picture.wiring(&self.registry);
        let ask = lap();
        let (ops, _) = self.state.update(world, specs, wiring, 0).expect("policies that compile");
        let compile = lap();
        let (endpoints, identities) = (self.registry.numbers(), self.objects.identities());
        self.memory.write(&endpoints, identities, &self.state).expect("a file that can be written");
        Change { times: [read, resolve, ask, compile, lap()], ops }
    }
}

/// As without options, on a host without resolvers of its own.
fn setting(node: &str) -> Setting {
    let hierarchy = Hierarchy::find().expect("cgroup v2");
    Setting {
        node: node.to_owned(),
        flags: 0,
        lifetime: Lifetime::default(),
        keep_in_use: true,
        trusted: BTreeSet::new(),
        search: Vec::new(),
        cluster_domain: Name::parse("cluster.local").expect("a name"),
        method: Method::of_kernel(),
        host: Host { cgroups: hierarchy.mount.clone(), cgroups_v1: Vec::new(), proc: "/proc".into() },
        hierarchy,
        startup: StartupMode::Allow,
        kubepods: None,
        own_pod: None,
        drop_events: false,
        started: SystemTime::now(),
        adopted: false,
    }
}
