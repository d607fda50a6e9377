//! From objects to what is enforced: numbers, places, maps, programs, in this order; and back.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Instant;

use egret_common::ids::EndpointId;
use egret_core::compile::EndpointSpec;
use egret_core::state::Wiring;

use super::keeper::{Keeper, Search};
use super::registry::{Entry, Gone, Held};
use super::startup::Guard;
use crate::datapath::cgroup_link;
use crate::datapath::tc::Placed;
use crate::learn::{Effects, now};
use crate::place::{Sought, Spot, Wish};
use crate::tell;

impl Keeper {
    /// Puts what the objects say now in force. What cannot be put into the maps leaves the last state in force.
    pub(super) fn reconcile(&mut self) {
        let picture = self.objects.picture(&self.setting.node, &self.own);
        self.picture = picture.sparing(self.setting.own_pod.as_ref());
        let gone = self.registry.update(&self.picture.local);
        self.release(&gone);
        self.find();
        let world = self.picture.world(&self.setting);
        let specs = self.specs();
        let wiring = self.wiring();
        let begin = Instant::now();
        let updated = self.learner.state_mut().update(world, specs, wiring, now());
        self.recorder.compiled(begin.elapsed());
        match updated {
            Ok((ops, grants)) => {
                self.refused = None;
                let (begin, changes) = (Instant::now(), !ops.is_empty());
                self.revision += u64::from(changes);
                self.perform(&Effects { ops, grants });
                if changes {
                    self.recorder.applied(begin.elapsed());
                }
            }
            Err(error) => self.refused = Some(format!("the policies are not in force: {error}")),
        }
        self.purge(&gone);
        self.attach();
        self.guard_pods();
        self.tell_changes();
    }

    /// Every endpoint as the compiler takes it.
    pub(super) fn specs(&self) -> Vec<EndpointSpec> {
        self.registry.iter().map(|entry| self.spec(entry)).collect()
    }

    /// What goes into the maps as it is.
    pub(super) fn wiring(&self) -> Wiring {
        self.picture.wiring(&self.registry)
    }

    /// The endpoint as the compiler takes it.
    pub(super) fn spec(&self, entry: &Entry) -> EndpointSpec {
        let cgroup = match &entry.held {
            Ok(held) => held.cgroup.is_some(),
            Err(_) => matches!(Wish::of(&entry.pod.annotations), Ok(Wish::Cgroup(_))),
        };
        self.picture.spec(&entry.pod, entry.id, self.setting.flags, cgroup, self.setting.lifetime)
    }

    /// Looks for pods that are not found yet, and at places that may be gone.
    pub(super) fn look(&mut self) {
        let lost: Vec<(EndpointId, Held)> = self
            .registry
            .iter()
            .filter_map(|entry| Some((entry.id, entry.held.clone().ok()?)))
            .filter(|(_, held)| !is_there(held))
            .collect();
        for (id, held) in &lost {
            self.release(&[Gone { id: None, held: Some(held.clone()), home: None }]);
            let entry = self.registry.iter_mut().find(|entry| entry.id == *id);
            entry.into_iter().for_each(|entry| entry.held = Err(format!("{} is gone", held.spot)));
        }
        if !lost.is_empty() {
            self.search = Search::default();
        }
        let waits = |entry: &Entry| entry.held.as_ref().map_or(true, |held| !held.attached);
        if self.registry.iter().any(waits) && self.search.is_due() {
            let found = self.find();
            self.search.note(found);
            if found {
                return self.reconcile();
            }
            self.attach();
            self.tell_changes();
        }
        self.guard_pods();
    }

    /// Notes where pods are that were not found before. True: there was one.
    pub(super) fn find(&mut self) -> bool {
        let waiting: Vec<Entry> = self.registry.iter().filter(|e| e.held.is_err()).cloned().collect();
        if waiting.is_empty() {
            return false;
        }
        let pods = self.setting.host.pods();
        let mut found = false;
        for entry in waiting {
            let held = self.locate(&entry, &pods);
            found |= held.is_ok();
            // Whoever some policy selects stays unknown to the programs above all pods until it is held.
            let home = self.home(&entry.pod.uid, &pods).filter(|_| entry.pod.policies.is_empty());
            let home = self.know(&entry, home.map(PathBuf::as_path));
            let noted = self.registry.iter_mut().find(|e| e.id == entry.id);
            if let Some(noted) = noted {
                (noted.held, noted.home) = (held, home);
            }
        }
        found
    }

    /// The pod's own cgroup, as far as the programs above all pods may know it.
    fn home<'a>(&self, uid: &str, pods: &'a BTreeMap<String, PathBuf>) -> Option<&'a PathBuf> {
        pods.get(uid).filter(|home| self.setting.host.is_unified(home))
    }

    fn locate(&self, entry: &Entry, pods: &BTreeMap<String, PathBuf>) -> Result<Held, String> {
        let wish = Wish::of(&entry.pod.annotations).map_err(|error| error.to_string())?;
        let sought = Sought { wish: &wish, uid: &entry.pod.uid, host_network: entry.pod.host_network };
        let spot = self.setting.host.find(sought, pods).map_err(|error| error.to_string())?;
        if let Some(other) = self.registry.at(&spot) {
            return Err(format!("{spot} is held for {}", other.pod.name));
        }
        let cgroup = match &spot {
            Spot::Cgroup(path) => Some(id_of(path).map_err(|error| format!("{spot}: {error}"))?),
            Spot::Interface { .. } => None,
        };
        let home = self.home(&entry.pod.uid, pods).filter(|_| cgroup.is_none()).cloned();
        Ok(Held { spot, cgroup, home, attached: false })
    }

    /// Makes the pod's cgroup known to the programs above all pods, or unknown.
    fn know(&mut self, entry: &Entry, home: Option<&Path>) -> Option<u64> {
        let id = home.and_then(|home| id_of(home).ok());
        if let Some(before) = entry.home.filter(|before| Some(*before) != id) {
            self.forget(before);
        }
        match (home, id) {
            (Some(home), Some(_)) if entry.home != id => {
                if let Err(error) = self.datapath.bind_cgroup(home, entry.id) {
                    self.complain(format!("{}: {error}", entry.pod.name), 1);
                    return None;
                }
                id
            }
            _ => id,
        }
    }

    fn forget(&mut self, cgroup: u64) {
        if let Err(error) = self.datapath.release_cgroup(cgroup) {
            self.complain(error.to_string(), 1);
        }
    }

    /// Tells the programs whose the new places are, and puts them there. The maps must know the endpoints by now.
    pub(super) fn attach(&mut self) {
        let new: Vec<(EndpointId, String, Held)> = self
            .registry
            .iter()
            .filter_map(|e| Some((e.id, e.pod.name.clone(), e.held.clone().ok()?)))
            .filter(|(.., held)| !held.attached)
            .collect();
        for (id, name, held) in new {
            let done = self.hold(id, &held.spot);
            let text = match &done {
                Ok(_) => format!("{name}: held at {} as endpoint {id}", held.spot),
                Err(error) => format!("{name} is NOT held at {}: {error}", held.spot),
            };
            match done {
                Ok(_) => tell::line(text),
                Err(_) => self.complain(text, 1),
            }
            if let Err(error) = &done {
                let failed = self.history.failed(id, error);
                failed.into_iter().for_each(|event| self.observer.happened(event));
            }
            if done.is_ok()
                && let Some(entry) = self.registry.get(id).cloned()
            {
                let home = self.know(&entry, held.home.as_deref());
                self.registry.iter_mut().filter(|e| e.id == id).for_each(|e| e.home = home);
            }
            let entry = self.registry.iter_mut().find(|e| e.id == id);
            if let Some(Ok(held)) = entry.map(|e| &mut e.held) {
                held.attached = done.is_ok();
            }
        }
    }

    fn hold(&mut self, id: EndpointId, spot: &Spot) -> Result<Placed, String> {
        let text = |error: &dyn std::fmt::Display| error.to_string();
        match spot {
            Spot::Interface { ifindex, .. } => {
                self.datapath.bind_interface(*ifindex, Some(id)).map_err(|e| text(&e))?;
                self.datapath.attach_interface(*ifindex, self.setting.method).map_err(|e| text(&e))
            }
            Spot::Cgroup(path) => {
                self.datapath.bind_cgroup(path, id).map_err(|e| text(&e))?;
                let (own, mount) = (&self.setting.hierarchy.own, &self.setting.hierarchy.mount);
                let level = cgroup_link::level(path, own, mount).map_err(|e| text(&e))?;
                let attached = self.datapath.attach_endpoint_cgroup(path, mount, level);
                attached.map(|()| Placed::Attached).map_err(|e| text(&e))
            }
        }
    }

    /// Lets go of places.
    fn release(&mut self, gone: &[Gone]) {
        for home in gone.iter().filter_map(|gone| gone.home) {
            self.forget(home);
        }
        for held in gone.iter().filter_map(|gone| gone.held.as_ref()) {
            let failed = match (&held.spot, held.cgroup) {
                (Spot::Interface { ifindex, .. }, _) => {
                    let taken = self.datapath.detach_interface(*ifindex, self.setting.method);
                    let unbound = self.datapath.bind_interface(*ifindex, None);
                    taken.err().map(|e| e.to_string()).or(unbound.err().map(|e| e.to_string()))
                }
                (Spot::Cgroup(_), id) => {
                    id.and_then(|id| self.datapath.release_cgroup(id).err()).map(|e| e.to_string())
                }
            };
            if let Some(error) = failed {
                self.complain(format!("cannot let go of {}: {error}", held.spot), 1);
            }
        }
    }

    /// Forgets numbers. Nothing in the maps speaks of them any more afterwards.
    fn purge(&mut self, gone: &[Gone]) {
        let ids: Vec<EndpointId> = gone.iter().filter_map(|gone| gone.id).collect();
        if !ids.is_empty() {
            self.datapath.purge(&|id| ids.contains(&id), &ids);
        }
    }

    /// Looks whether every program is in its place, and mends it (CASES L-A02).
    pub(super) fn verify(&mut self) {
        let held: Vec<(EndpointId, String, Spot)> = self
            .registry
            .iter()
            .filter_map(|e| Some((e.id, e.pod.name.clone(), e.held.as_ref().ok()?.spot.clone())))
            .collect();
        for (id, name, spot) in held {
            match (self.hold(id, &spot), &spot) {
                (Ok(Placed::Already), _) | (Ok(_), Spot::Cgroup(_)) => {}
                (Ok(_), _) => self
                    .complain(format!("{name}: the programs at {spot} were not in their place; mended"), 1),
                (Err(error), _) => self.complain(format!("{name} is NOT held at {spot}: {error}"), 1),
            }
        }
        self.datapath.sweep_interfaces();
        self.guard = Guard::Unknown;
        self.guard_pods();
    }
}

/// Whether the place is still the same thing.
fn is_there(held: &Held) -> bool {
    match (&held.spot, held.cgroup) {
        (Spot::Interface { ifindex, name }, _) => {
            nix::net::if_::if_nametoindex(name.as_str()).is_ok_and(|found| found == *ifindex)
        }
        (Spot::Cgroup(path), id) => id_of(path).ok() == id,
    }
}

fn id_of(cgroup: &Path) -> std::io::Result<u64> {
    use std::os::unix::fs::MetadataExt;
    std::fs::metadata(cgroup).map(|metadata| metadata.ino())
}
