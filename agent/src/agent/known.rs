//! What the agent knows at the moment, for flows.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

use egret_common::event::{DnsEvent, FlowEvent};
use egret_common::ids::{ClassId, EndpointId, identity};
use egret_common::maps::{ENDPOINT_AUDIT, ResolverKey};
use egret_common::net::{Addr, Direction};
use egret_core::flow::{Interface, Passed, PolicyRef, Side};
use egret_core::labels::{Labels, printed};
use egret_core::policy::{Origin, Rule};

use super::answer::RESERVED;
use super::keeper::Keeper;
use super::objects::{Objects, Picture};
use super::registry::{Entry, Registry};
use crate::learn::Learner;
use crate::observe::{Known, Local};
use crate::place::Spot;

/// Borrowed for a batch of records.
struct Now<'a> {
    picture: &'a Picture,
    objects: &'a Objects,
    registry: &'a Registry,
    learner: &'a Learner,
    revision: u64,
    endpoints: BTreeMap<EndpointId, &'a Entry>,
    /// Labels as text by identity.
    labels: RefCell<BTreeMap<u32, Arc<[String]>>>,
}

impl Keeper {
    /// Shows packets to whoever observes.
    pub(super) fn show_events(&mut self, events: &[FlowEvent]) {
        if !events.is_empty() {
            events.iter().for_each(|event| self.withheld.note(event));
            let (picture, objects, registry) = (&self.picture, &self.objects, &self.registry);
            let known = Now::new(picture, objects, registry, &self.learner, self.revision);
            self.observer.events(events, &known);
        }
    }

    /// Shows connections that are over.
    pub(super) fn show_ends(&mut self, ends: &[(FlowEvent, Passed)], missed: u64) {
        if !ends.is_empty() || missed > 0 {
            let (picture, objects, registry) = (&self.picture, &self.objects, &self.registry);
            let known = Now::new(picture, objects, registry, &self.learner, self.revision);
            self.observer.ends(ends, missed, &known);
        }
    }

    /// Shows DNS messages, once what they teach is known.
    pub(super) fn show_messages(&mut self, messages: &[(DnsEvent, Vec<u8>)]) {
        if !messages.is_empty() {
            let (picture, objects, registry) = (&self.picture, &self.objects, &self.registry);
            let known = Now::new(picture, objects, registry, &self.learner, self.revision);
            self.observer.messages(messages, &known);
        }
    }

    /// Tells of records that were lost or held back, and what this node's labels are.
    pub(super) fn show_losses(&mut self) {
        let lost = self.datapath.lost();
        let withheld =
            self.withheld.round(|id, direction, reason| self.datapath.suppressed(id, direction, reason));
        self.observer.losses(lost.flow_events + lost.dns_events + lost.scratch + withheld);
        self.observer.label(self.objects.node_labels(&self.setting.node));
    }
}

impl<'a> Now<'a> {
    fn new(
        picture: &'a Picture,
        objects: &'a Objects,
        registry: &'a Registry,
        learner: &'a Learner,
        revision: u64,
    ) -> Self {
        let endpoints = registry.iter().map(|entry| (entry.id, entry)).collect();
        let labels = RefCell::default();
        Self { picture, objects, registry, learner, revision, endpoints, labels }
    }

    fn labels(&self, number: u32, labels: Option<&Labels>) -> Arc<[String]> {
        let mut known = self.labels.borrow_mut();
        let made = || match (RESERVED.iter().find(|(reserved, _)| *reserved == number), labels) {
            (Some((_, name)), _) => [(*name).to_owned()].into(),
            (None, Some(labels)) => printed(labels).collect(),
            (None, None) => Arc::default(),
        };
        known.entry(number).or_insert_with(made).clone()
    }

    fn policy(&self, origin: &Origin) -> PolicyRef {
        PolicyRef {
            kind: origin.kind.clone(),
            namespace: origin.namespace.clone().unwrap_or_default(),
            name: origin.name.clone(),
            revision: self.revision,
        }
    }
}

impl Known for Now<'_> {
    fn endpoint(&self, id: EndpointId) -> Option<Local> {
        let entry = self.endpoints.get(&id)?;
        let pod = &entry.pod;
        let (namespace, name) = pod.name.split_once('/').unwrap_or(("", &pod.name));
        let side = Side {
            id,
            identity: pod.identity,
            namespace: namespace.to_owned(),
            pod: name.to_owned(),
            labels: self.labels(pod.identity, Some(&pod.profile.labels)),
            workloads: pod.workload.iter().map(|workload| (**workload).clone()).collect(),
            ..Side::default()
        };
        let interface = match entry.held.as_ref().ok().map(|held| &held.spot) {
            Some(Spot::Interface { ifindex, name }) => {
                Some(Interface { index: *ifindex, name: name.clone() })
            }
            _ => None,
        };
        let flags = self.learner.state().desired().endpoints.get(&id).map_or(0, |endpoint| endpoint.flags);
        let ips = pod.ips.iter().copied().collect();
        Some(Local { side, ips, interface, audit: flags & ENDPOINT_AUDIT != 0 })
    }

    fn owner(&self, address: IpAddr) -> Side {
        let Some(number) = self.picture.identity(address) else {
            return match self.objects.service_at(self.picture, address) {
                // What is behind it decides; it is nobody itself.
                Some(service) => Side { service: Some(service), ..Side::default() },
                None => Side {
                    identity: identity::WORLD,
                    labels: self.labels(identity::WORLD, None),
                    ..Side::default()
                },
            };
        };
        let mut side = Side { identity: number, ..Side::default() };
        side.labels = self.labels(number, self.picture.labels_of(number));
        if number >= identity::FIRST_DYNAMIC
            && let Some(key) = self.objects.pod_at(address)
        {
            (side.namespace, side.pod) = (key.namespace.clone(), key.name.clone());
            side.workloads = self.objects.workload(key).cloned().into_iter().collect();
            let here = self.registry.named(&format!("{}/{}", key.namespace, key.name));
            side.id = here.map_or(0, |entry| entry.id);
        }
        side
    }

    fn names(&self, id: EndpointId, address: IpAddr) -> Vec<String> {
        self.learner.state().names_of(id, address).map(|(name, _)| name.as_str().to_owned()).collect()
    }

    fn rule(&self, cookie: u32) -> Option<(PolicyRef, &Rule)> {
        let (origin, rule) = self.learner.state().rule(cookie)?;
        Some((self.policy(origin), rule))
    }

    fn isolating(&self, id: EndpointId, direction: Direction) -> Vec<PolicyRef> {
        let Some(entry) = self.endpoints.get(&id) else { return Vec::new() };
        let isolates = |policy: &&egret_core::policy::Policy| match direction {
            Direction::Egress => policy.isolates().egress,
            Direction::Ingress => policy.isolates().ingress,
        };
        entry.pod.policies.each().filter(isolates).map(|policy| self.policy(policy.origin())).collect()
    }

    fn trusts(&self, addr: Addr, port: u16) -> bool {
        let resolver = ResolverKey { addr, port: port.into() };
        self.learner.state().desired().resolvers.contains(&resolver)
    }

    fn patterns(&self, class: ClassId) -> Vec<String> {
        self.learner.state().patterns(class).map(ToString::to_string).collect()
    }
}
