//! Policies whose rules name other objects, with what those stand for put in.
//!
//! Owns: what a node, a service, a group of networks stands for, and that a policy that says the same as before is the
//! same value as before. Must not know: classes, how often it is asked.
//!
//! - A node is its addresses: networks of one address each. It has no identity of its own, so entities (`host`,
//!   `remote-node`) and nodes by label can both mean it.
//! - A service is the pods that its selector selects, by their labels: pods come and go, and the policy stays the same.
//!   A selector by labels that are part of no identity cannot be said so; then it is the addresses of the pods. A
//!   service without selector is the addresses of its endpoints, which are then no pods (as in Cilium).
//! - An object that is not there is nobody.

use std::{collections::BTreeMap, net::IpAddr, sync::Arc};

use ipnet::IpNet;

use super::{Cluster, Key, Service, addresses::Owners};
use crate::{
    identity::is_relevant,
    labels::{Labels, POD_NAMESPACE, Requirement, Selector},
    net::host_net,
    policy::{CidrPeer, Peers, Policies, Policy, Reference, Rule},
};

/// The policies that say something else than their text, by where each of them is, with what they say.
#[derive(Debug, Default)]
pub(super) struct Grounded(BTreeMap<usize, Arc<Policy>>);

impl Grounded {
    /// What the policy says.
    pub(super) fn get<'a>(&'a self, policy: &'a Arc<Policy>) -> &'a Arc<Policy> {
        self.0.get(&place(policy)).unwrap_or(policy)
    }
}

fn place(policy: &Arc<Policy>) -> usize {
    Arc::as_ptr(policy).addr()
}

/// What policies and lists of them came to last, so that what is the same stays the same.
#[derive(Debug, Clone, Default)]
pub(super) struct Meant {
    /// By where the policy is: the policy, and what it says.
    policies: BTreeMap<usize, (Arc<Policy>, Arc<Policy>)>,
    /// By where the list is.
    lists: BTreeMap<usize, (Policies, Policies)>,
}

impl Meant {
    /// The policies as the rules have them: objects put in, then changed by `change`, if it changes something.
    pub(super) fn new<'a>(
        before: &Self,
        policies: impl Iterator<Item = &'a Arc<Policy>>,
        grounded: &Grounded,
        change: impl Fn(&Policy) -> Option<Policy>,
    ) -> Self {
        let mut meant = BTreeMap::new();
        for policy in policies {
            let ground = grounded.get(policy);
            let now = change(ground)
                .map(Arc::new)
                .or_else(|| (!Arc::ptr_eq(ground, policy)).then(|| ground.clone()));
            let Some(now) = now else { continue };
            let known = before.policies.get(&place(policy)).map(|(_, known)| known);
            let same = known.filter(|known| ***known == *now).cloned();
            meant.insert(place(policy), (policy.clone(), same.unwrap_or(now)));
        }
        Self { policies: meant, lists: BTreeMap::new() }
    }

    /// The list of what the policies of a list say.
    pub(super) fn list(&mut self, before: &Self, list: &Policies) -> Policies {
        let meant = |policy: &Arc<Policy>| self.policies.get(&place(policy)).map(|(_, meant)| meant);
        if !list.iter().any(|policy| meant(policy).is_some()) {
            return list.clone();
        }
        if let Some((_, known)) = self.lists.get(&list.place()) {
            return known.clone();
        }
        let now = || list.iter().map(|policy| meant(policy).unwrap_or(policy));
        let known = before.lists.get(&list.place()).map(|(_, known)| known);
        let same = known.filter(|known| {
            known.len() == list.len() && known.iter().zip(now()).all(|(a, b)| Arc::ptr_eq(a, b))
        });
        let now = same.cloned().unwrap_or_else(|| now().cloned().collect());
        self.lists.insert(list.place(), (list.clone(), now.clone()));
        now
    }
}

/// What some references stand for.
#[derive(Debug, Default)]
struct Found {
    pods: Vec<Selector>,
    nets: Vec<CidrPeer>,
}

impl Found {
    fn add_nets(&mut self, nets: impl IntoIterator<Item = IpNet>) {
        self.nets.extend(nets.into_iter().map(CidrPeer::whole));
    }

    fn kinds(mut self) -> Vec<Peers> {
        // An order of its own, so that the same objects always make the same rule.
        self.pods.sort();
        self.pods.dedup();
        self.nets.sort();
        self.nets.dedup();
        let pods = (!self.pods.is_empty()).then_some(Peers::Pods(self.pods));
        let nets = (!self.nets.is_empty()).then_some(Peers::Cidrs(self.nets));
        let kinds: Vec<Peers> = pods.into_iter().chain(nets).collect();
        if kinds.is_empty() { vec![Peers::Nobody] } else { kinds }
    }
}

impl Cluster {
    /// Looks up what policies name.
    pub(super) fn grounded(&self, owners: &Owners<'_>) -> Grounded {
        let names_objects = |p: &&Arc<Policy>| p.rules().iter().any(|r| matches!(r.peers, Peers::Objects(_)));
        let naming = self.policies.values().flatten().filter(names_objects);
        Grounded(naming.map(|p| (place(p), Arc::new(self.ground(p, owners)))).collect())
    }

    /// Whether there is any such object.
    pub(super) fn exists(&self, reference: &Reference) -> bool {
        match reference {
            Reference::Nodes(labels) => self.nodes.values().any(|n| labels.matches(&n.labels)),
            Reference::CidrGroup(name) => self.groups.contains_key(name),
            Reference::CidrGroups(labels) => self.groups.values().any(|g| labels.matches(&g.labels)),
            Reference::Service { .. } | Reference::Services { .. } => {
                self.services.iter().any(|(key, service)| names(reference, key, service))
            }
        }
    }

    fn ground(&self, policy: &Policy, owners: &Owners<'_>) -> Policy {
        let mut rules = Vec::new();
        for rule in policy.rules() {
            let Peers::Objects(references) = &rule.peers else {
                rules.push(rule.clone());
                continue;
            };
            let mut meant = Found::default();
            references.iter().for_each(|reference| self.put_in(reference, owners, &mut meant));
            rules.extend(meant.kinds().into_iter().map(|peers| Rule { peers, ..rule.clone() }));
        }
        policy.with_rules(rules)
    }

    fn put_in(&self, reference: &Reference, owners: &Owners<'_>, meant: &mut Found) {
        match reference {
            Reference::Nodes(labels) => {
                let nodes = self.nodes.values().filter(|n| labels.matches(&n.labels));
                meant.add_nets(nodes.flat_map(|n| &n.addresses).map(|ip| host_net(*ip)));
            }
            Reference::CidrGroup(name) => {
                meant.add_nets(self.groups.get(name).into_iter().flat_map(|g| &g.nets).copied());
            }
            Reference::CidrGroups(labels) => {
                let groups = self.groups.values().filter(|g| labels.matches(&g.labels));
                meant.add_nets(groups.flat_map(|g| &g.nets).copied());
            }
            Reference::Service { .. } | Reference::Services { .. } => {
                for (key, service) in self.services.iter().filter(|(k, s)| names(reference, k, s)) {
                    self.put_service_in(key, service, owners, meant);
                }
            }
        }
    }

    fn put_service_in(&self, key: &Key, service: &Service, owners: &Owners<'_>, meant: &mut Found) {
        if service.selector.is_empty() {
            let endpoints = self.slices_of(key).flat_map(|slice| &slice.addresses);
            return meant.add_nets(endpoints.map(|ip| host_net(*ip)));
        }
        if service.selector.keys().all(|key| is_relevant(key)) {
            let labels = service.selector.iter().map(|(k, v)| Requirement::is(k, v));
            let namespace = Requirement::is(POD_NAMESPACE, &key.namespace);
            return meant.pods.push(Selector::all_of(labels.chain([namespace])));
        }
        let selected =
            |pod: &Key| self.pods.get(pod).is_some_and(|s| has_all(&s.pod.labels, &service.selector));
        let pods =
            owners.iter().filter(|(_, claim)| claim.pod.namespace == key.namespace && selected(&claim.pod));
        let peer = |ip: IpAddr| CidrPeer { pods: true, ..CidrPeer::whole(host_net(ip)) };
        meant.nets.extend(pods.map(|(ip, _)| peer(ip)));
    }
}

/// Whether the reference is to this service.
fn names(reference: &Reference, key: &Key, service: &Service) -> bool {
    let here = |namespace: &Option<String>| namespace.as_ref().is_none_or(|n| *n == key.namespace);
    match reference {
        Reference::Service { namespace, name } => here(namespace) && *name == key.name,
        Reference::Services { namespace, labels } => here(namespace) && labels.matches(&service.labels),
        Reference::Nodes(_) | Reference::CidrGroup(_) | Reference::CidrGroups(_) => false,
    }
}

fn has_all(labels: &Labels, wanted: &Labels) -> bool {
    wanted.iter().all(|(key, value)| labels.get(key) == Some(value))
}
