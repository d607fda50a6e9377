//! A rule set in use, with what must be known of it to follow the cluster.
//!
//! Owns: which pods' addresses have entries of their own in a set. What a set says about an identity or a name class is
//! never changed, only added and taken away, so that of a change only what is touched is looked at.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
};

use egret_common::{
    ids::{ClassId, SetId},
    maps::RuleKey,
};
use ipnet::IpNet;

use super::{Book, ClassKey, CompileError, cidrs, ports::Chunks, roster::Roster, set::Set};
use crate::{
    desired::{CidrPrefix, Delta, Desired},
    net::host_net,
};

/// The steps from the old maps that are being put together.
#[derive(Debug)]
pub(super) struct Draft<'a> {
    pub(super) old: &'a Desired,
    pub(super) delta: Delta,
}

impl Draft<'_> {
    /// The chunks of a class in a set are these.
    pub(super) fn class(&mut self, set: SetId, class: ClassId, chunks: Chunks) {
        let key = |chunk: usize| RuleKey { set, class, chunk: chunk as u32 };
        for (gone, _) in self.old.rules.range(key(chunks.len())..=key(u32::MAX as usize)) {
            self.delta.rules.insert(*gone, None);
        }
        for (i, chunk) in chunks.into_iter().enumerate() {
            match self.old.rules.get(&key(i)) == Some(&chunk) {
                true => drop(self.delta.rules.remove(&key(i))),
                false => drop(self.delta.rules.insert(key(i), Some(chunk))),
            }
        }
    }

    /// The same of a set that the old maps know nothing of.
    fn new_class(&mut self, set: SetId, class: ClassId, chunks: Chunks) {
        let keys = (0..).map(|chunk| RuleKey { set, class, chunk });
        self.delta.rules.extend(keys.zip(chunks.into_iter().map(Some)));
    }

    fn cidr(&mut self, set: SetId, net: IpNet, class: Option<ClassId>) {
        let (bits, key) = cidrs::key(set, net);
        let prefix = CidrPrefix { bits, key };
        match self.old.cidrs.get(&prefix).copied() == class {
            true => drop(self.delta.cidrs.remove(&prefix)),
            false => drop(self.delta.cidrs.insert(prefix, class)),
        }
    }
}

/// What has changed in the cluster.
#[derive(Debug, Default)]
pub(super) struct Touched {
    pub(super) identities: BTreeSet<u32>,
    /// Those of the identities among them.
    pub(super) addresses: BTreeSet<IpAddr>,
}

/// A class of pods' addresses.
#[derive(Debug, Clone)]
struct PodClass {
    addresses: usize,
    /// What it adds to the set's features.
    ports: u32,
}

/// A set in use.
#[derive(Debug, Clone)]
pub(super) struct Kept {
    id: SetId,
    pub(super) set: Set,
    /// Pods' addresses with an entry of their own.
    pods: BTreeMap<IpAddr, ClassId>,
    classes: BTreeMap<ClassId, PodClass>,
}

impl Kept {
    /// Puts a new set into the maps, whole. The roster knows its selectors.
    pub(super) fn new(
        id: SetId,
        set: Set,
        roster: &Roster,
        book: &mut Book,
        draft: &mut Draft<'_>,
    ) -> Result<Self, CompileError> {
        let first = RuleKey { set: id, class: 0, chunk: 0 };
        let is_new = draft.old.rules.range(first..).next().is_none_or(|(key, _)| key.set != id);
        for (class, chunks) in set.fixed_classes(roster)? {
            match is_new {
                true => draft.new_class(id, class, chunks),
                false => draft.class(id, class, chunks),
            }
        }
        for (class, key) in book.names().with(set.patterns()) {
            draft.class(id, class, set.name_class(key)?);
        }
        for (net, class) in &set.cidrs.prefixes {
            draft.cidr(id, *net, Some(*class));
        }
        let nets = if set.tells_pods_apart() { set.outer_nets() } else { Vec::new() };
        let mut kept = Self { id, set, pods: BTreeMap::new(), classes: BTreeMap::new() };
        for net in nets {
            for (address, number) in roster.addresses_in(net) {
                kept.place(address, Some(number), &Touched::default(), roster, book, draft)?;
            }
        }
        Ok(kept)
    }

    /// Follows a change that the roster knows already.
    pub(super) fn follow(
        &mut self,
        touched: &Touched,
        roster: &Roster,
        book: &mut Book,
        draft: &mut Draft<'_>,
    ) -> Result<(), CompileError> {
        for number in &touched.identities {
            draft.class(self.id, *number, self.set.identity_class(*number, roster)?);
        }
        if !touched.addresses.is_empty() && self.set.tells_pods_apart() {
            for address in &touched.addresses {
                self.place(*address, roster.owner(*address), touched, roster, book, draft)?;
            }
            book.forget_pods(self.id, self.classes.len(), |class| self.classes.contains_key(&class));
        }
        Ok(())
    }

    /// Adds name classes that came up after the set.
    pub(super) fn add_name(
        &self,
        class: ClassId,
        key: &ClassKey,
        draft: &mut Draft<'_>,
    ) -> Result<(), CompileError> {
        draft.class(self.id, class, self.set.name_class(key)?);
        Ok(())
    }

    /// Takes the set out of the maps.
    pub(super) fn remove(self, draft: &mut Draft<'_>) {
        let first = RuleKey { set: self.id, class: 0, chunk: 0 };
        let rules = draft.old.rules.range(first..).take_while(|(key, _)| key.set == self.id);
        for (key, _) in rules {
            draft.delta.rules.insert(*key, None);
        }
        let pods = self.pods.keys().map(|address| host_net(*address));
        for net in self.set.cidrs.prefixes.keys().copied().chain(pods) {
            draft.cidr(self.id, net, None);
        }
    }

    /// `SET_*` bits.
    pub(super) fn features(&self) -> u32 {
        self.classes.values().fold(self.set.features(), |bits, class| bits | class.ports)
    }

    /// Gives a pod's address the entry that it needs. `owner`: the pod's identity, if it is a pod's at all.
    fn place(
        &mut self,
        address: IpAddr,
        owner: Option<u32>,
        touched: &Touched,
        roster: &Roster,
        book: &mut Book,
        draft: &mut Draft<'_>,
    ) -> Result<(), CompileError> {
        let pod = owner.and_then(|number| self.set.pod_in_cidr(address, number, roster));
        let class = pod.as_ref().and_then(|pod| book.pod_class(self.id, pod));
        if let (Some(class), Some(pod)) = (class, pod) {
            let known = self.classes.contains_key(&class) && !touched.identities.contains(&pod.identity);
            if !known {
                let (chunks, ports) = self.set.pod_class(&pod, roster)?;
                draft.class(self.id, class, chunks);
                let addresses = self.classes.get(&class).map_or(0, |class| class.addresses);
                self.classes.insert(class, PodClass { addresses, ports });
            }
        }
        let before = self.pods.get(&address).copied();
        if before != class {
            let net = host_net(address);
            draft.cidr(self.id, net, class.or_else(|| self.set.cidrs.prefixes.get(&net).copied()));
            self.count(address, before, class, draft);
        }
        Ok(())
    }

    /// Notes that an address has another class; a class without addresses goes.
    fn count(
        &mut self,
        address: IpAddr,
        before: Option<ClassId>,
        now: Option<ClassId>,
        draft: &mut Draft<'_>,
    ) {
        match now {
            Some(class) => drop(self.pods.insert(address, class)),
            None => drop(self.pods.remove(&address)),
        }
        if let Some(class) = now.and_then(|class| self.classes.get_mut(&class)) {
            class.addresses += 1;
        }
        let Some(old) = before else { return };
        let left = self.classes.get_mut(&old).map(|class| {
            class.addresses -= 1;
            class.addresses
        });
        if left == Some(0) {
            self.classes.remove(&old);
            draft.class(self.id, old, Vec::new());
        }
    }
}
