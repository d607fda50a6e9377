//! Asking the host where a pod is.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use super::{Spot, Wish, kubepods, netns};

/// Processes of a pod that are asked for their namespace at most.
const PROCESSES: usize = 64;
/// Levels of cgroups below a pod's own: containers, and what they make.
const DEPTH: usize = 3;

/// Why a pod was not found.
#[derive(Debug, thiserror::Error)]
pub enum LookError {
    /// Nothing on this host bears its uid.
    #[error("no cgroup of uid {0} below kubepods, and no egret.dev/ annotation")]
    NoCgroup(String),
    /// No process has started yet.
    #[error("no process in {} yet", .0.display())]
    Empty(PathBuf),
    /// The annotated or found thing is not there.
    #[error("{what}: {error}")]
    Missing {
        /// What was looked for.
        what: String,
        /// What the kernel said.
        error: io::Error,
    },
    /// Its object says that it has a network of its own. Container runtimes keep helpers of their own in a pod's cgroup,
    /// and what becomes a container is in the host's network first: neither is the pod.
    #[error("the processes in {} are in this host's network namespace, and the object does not say hostNetwork", .0.display())]
    HostNetwork(PathBuf),
    /// Programs attach to cgroups of version 2 only.
    #[error("it is in this host's network namespace, and its cgroup {} is of version 1: nothing can hold it", .0.display())]
    VersionOne(PathBuf),
    /// The namespace has no interface with an end on this host.
    #[error("{} has no interface whose other side is in this network namespace", .0.display())]
    NoPair(PathBuf),
}

/// What is the same for all pods.
#[derive(Debug, Clone)]
pub struct Host {
    /// The cgroup2 mount.
    pub cgroups: PathBuf,
    /// Mounts of cgroups of version 1, where older kubelets keep pods. Only good for finding their processes.
    pub cgroups_v1: Vec<PathBuf>,
    /// The proc mount.
    pub proc: PathBuf,
}

/// What leads to a pod.
#[derive(Debug, Clone, Copy)]
pub struct Sought<'a> {
    /// What its annotations say.
    pub wish: &'a Wish,
    /// Its uid.
    pub uid: &'a str,
    /// Its object says that it uses its node's network.
    pub host_network: bool,
}

impl Host {
    /// Where the pod is now, of these ([`Host::pods`]). A pod on the host's network is found by its cgroup.
    ///
    /// # Errors
    /// [`LookError`]: it may be there later.
    pub fn find(&self, sought: Sought<'_>, pods: &BTreeMap<String, PathBuf>) -> Result<Spot, LookError> {
        match sought.wish {
            Wish::Interface(name) => self.interface(name),
            Wish::Netns(path) => self.behind(path),
            Wish::Cgroup(path) => {
                let path = self.cgroups.join(path);
                let there = fs::metadata(path.join("cgroup.procs"));
                there.map_err(|error| missing(format!("cgroup {}", path.display()), error))?;
                Ok(Spot::Cgroup(path))
            }
            Wish::Uid => {
                let cgroup =
                    pods.get(sought.uid).ok_or_else(|| LookError::NoCgroup(sought.uid.to_owned()))?;
                match sought.host_network {
                    false => self.by_process(cgroup),
                    true if self.is_unified(cgroup) => Ok(Spot::Cgroup(cgroup.clone())),
                    true => Err(LookError::VersionOne(cgroup.clone())),
                }
            }
        }
    }

    /// The cgroup of every pod of this host, by uid; of version 2 if there is one.
    #[must_use]
    pub fn pods(&self) -> BTreeMap<String, PathBuf> {
        let mut found = BTreeMap::new();
        // Later ones count.
        for mount in self.cgroups_v1.iter().chain([&self.cgroups]) {
            pods_in(mount, &mut found);
        }
        found
    }

    /// Whether programs can be attached to the cgroup, and know it by its id.
    #[must_use]
    pub fn is_unified(&self, cgroup: &Path) -> bool {
        cgroup.starts_with(&self.cgroups)
    }

    /// The pod that this process runs in: its uid and its cgroup, of these.
    #[must_use]
    pub fn own_pod(pods: &BTreeMap<String, PathBuf>) -> Option<(&str, &Path)> {
        let own = std::process::id().to_string();
        let found = pods.iter().find(|(_, cgroup)| processes(cgroup).contains(&own));
        found.map(|(uid, cgroup)| (uid.as_str(), cgroup.as_path()))
    }

    fn interface(&self, name: &str) -> Result<Spot, LookError> {
        let ifindex = nix::net::if_::if_nametoindex(name)
            .map_err(|error| missing(format!("interface {name}"), error.into()))?;
        Ok(Spot::Interface { ifindex, name: name.to_owned() })
    }

    /// The interface on the host's side of a network namespace.
    fn behind(&self, path: &Path) -> Result<Spot, LookError> {
        let failed = |error| missing(format!("network namespace {}", path.display()), error);
        let inside = netns::interfaces_of(path).map_err(failed)?;
        let host = netns::interfaces().map_err(failed)?;
        let found = netns::pair(&inside, &host).ok_or_else(|| LookError::NoPair(path.to_owned()))?;
        Ok(Spot::Interface { ifindex: found.ifindex, name: found.name.clone() })
    }

    fn by_process(&self, cgroup: &Path) -> Result<Spot, LookError> {
        let own = self.proc.join("self/ns/net");
        let mut last = LookError::Empty(cgroup.to_owned());
        for process in processes(cgroup).into_iter().take(PROCESSES) {
            let path = self.proc.join(process).join("ns/net");
            match netns::same(&path, &own) {
                Ok(true) => last = LookError::HostNetwork(cgroup.to_owned()),
                Ok(false) => match self.behind(&path) {
                    Err(error) => last = error,
                    found => return found,
                },
                // The process has ended meanwhile.
                Err(_) => {}
            }
        }
        Err(last)
    }
}

fn missing(what: String, error: io::Error) -> LookError {
    LookError::Missing { what, error }
}

/// The pods in trees that begin not too far below a mount.
fn pods_in(mount: &Path, found: &mut BTreeMap<String, PathBuf>) {
    let mut roots = vec![(mount.to_owned(), 0)];
    while let Some((dir, depth)) = roots.pop() {
        for child in directories(&dir) {
            if name(&child).is_some_and(kubepods::is_root) {
                pods_below(&child, kubepods::POD_DEPTH, found);
            } else if depth + 1 < kubepods::ROOT_DEPTH {
                roots.push((child, depth + 1));
            }
        }
    }
}

fn pods_below(dir: &Path, depth: usize, found: &mut BTreeMap<String, PathBuf>) {
    for child in directories(dir) {
        match name(&child).and_then(kubepods::pod_uid) {
            Some(uid) => drop(found.insert(uid, child)),
            None if depth > 1 => pods_below(&child, depth - 1, found),
            None => {}
        }
    }
}

/// Process ids in a cgroup and those below it.
fn processes(cgroup: &Path) -> Vec<String> {
    let mut found = Vec::new();
    let mut pending = vec![(cgroup.to_owned(), 0)];
    while let Some((dir, depth)) = pending.pop() {
        let text = fs::read_to_string(dir.join("cgroup.procs")).unwrap_or_default();
        // 0: a process that this one cannot see.
        found.extend(text.lines().filter(|line| *line != "0").map(str::to_owned));
        if depth < DEPTH {
            pending.extend(directories(&dir).into_iter().map(|child| (child, depth + 1)));
        }
    }
    found
}

fn directories(dir: &Path) -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir(dir) else { return Vec::new() };
    let is_dir = |entry: &fs::DirEntry| entry.file_type().is_ok_and(|kind| kind.is_dir());
    entries.filter_map(Result::ok).filter(is_dir).map(|entry| entry.path()).collect()
}

fn name(path: &Path) -> Option<&str> {
    path.file_name()?.to_str()
}
