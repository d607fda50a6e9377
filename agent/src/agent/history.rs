//! What is different from what was told last, for whoever follows the agent's events.
//!
//! Owns what was told. Must not know who listens: telling never waits.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use egret_common::ids::EndpointId;
use egret_core::cluster::Key;
use egret_core::flow::PolicyRef;
use egret_core::labels::printed;
use egret_core::policy::{Policies, Policy};

use super::keeper::Keeper;
use super::registry::Entry;
use crate::observe::{AgentEvent, EndpointRef};

/// What was told.
#[derive(Debug, Default)]
pub(super) struct History {
    policies: BTreeMap<Key, Vec<Arc<Policy>>>,
    endpoints: BTreeMap<EndpointId, Told>,
}

/// An endpoint as it was told.
#[derive(Debug)]
struct Told {
    uid: String,
    of: EndpointRef,
    policies: Policies,
    /// Its rules are in force at its place.
    held: bool,
    /// Why they are not.
    error: Option<String>,
}

impl Told {
    fn new(entry: &Entry) -> Self {
        Self {
            uid: entry.pod.uid.clone(),
            of: reference(entry),
            policies: Policies::default(),
            held: false,
            error: None,
        }
    }
}

fn reference(entry: &Entry) -> EndpointRef {
    let (namespace, pod) = entry.pod.name.split_once('/').unwrap_or(("", &entry.pod.name));
    EndpointRef {
        id: entry.id,
        namespace: namespace.to_owned(),
        pod: pod.to_owned(),
        labels: printed(&entry.pod.profile.labels).collect(),
    }
}

impl History {
    /// What is different about endpoints; `in_force`: so is what policies say of them.
    pub(super) fn endpoints<'a>(
        &mut self,
        now: impl Iterator<Item = &'a Entry>,
        in_force: bool,
    ) -> Vec<AgentEvent> {
        let mut events = Vec::new();
        let there: BTreeMap<EndpointId, &Entry> = now.map(|entry| (entry.id, entry)).collect();
        self.endpoints.retain(|id, told| {
            let same = there.get(id).is_some_and(|entry| {
                entry.pod.uid == told.uid
                    && entry.pod.name == format!("{}/{}", told.of.namespace, told.of.pod)
            });
            if !same {
                events.push(AgentEvent::EndpointDeleted(told.of.clone()));
            }
            same
        });
        for (id, entry) in there {
            let told = self.endpoints.entry(id).or_insert_with(|| {
                events.push(AgentEvent::EndpointCreated(reference(entry)));
                Told::new(entry)
            });
            let held = entry.held.as_ref().is_ok_and(|held| held.attached);
            let of = reference(entry);
            let other = (told.policies != entry.pod.policies || told.of.labels != of.labels) && in_force;
            if held && (!told.held || other) {
                told.error = None;
                events.push(AgentEvent::Regenerated(of.clone(), Ok(())));
            }
            if in_force {
                (told.policies, told.of) = (entry.pod.policies.clone(), of);
            }
            told.held = held;
        }
        events
    }

    /// An endpoint could not be held; the same cause is told once.
    pub(super) fn failed(&mut self, id: EndpointId, error: &str) -> Option<AgentEvent> {
        let told = self.endpoints.get_mut(&id)?;
        if told.error.as_deref() == Some(error) {
            return None;
        }
        told.error = Some(error.to_owned());
        Some(AgentEvent::Regenerated(told.of.clone(), Err(error.to_owned())))
    }

    /// What is different about objects, which are in force. Mostly they are the very same, which is seen at once.
    pub(super) fn policies<'a, I: Iterator<Item = (&'a Key, &'a [Arc<Policy>])>>(
        &mut self,
        now: impl Fn() -> I,
        revision: u64,
    ) -> Vec<AgentEvent> {
        let mut events = Vec::new();
        let now = || now().filter(|(_, policies)| !policies.is_empty());
        let mut there = 0;
        for (key, policies) in now() {
            there += 1;
            if self.policies.get(key).is_some_and(|old| old == policies) {
                continue;
            }
            let rules = policies.iter().map(|policy| policy.rules().len()).sum();
            events.extend(object(policies, revision).map(|of| AgentEvent::PolicyUpdated(of, rules)));
            self.policies.insert(key.clone(), policies.to_vec());
        }
        if self.policies.len() > there {
            let keys: BTreeSet<&Key> = now().map(|(key, _)| key).collect();
            self.policies.retain(|key, policies| {
                let stays = keys.contains(key);
                let gone = object(policies, revision).filter(|_| !stays);
                events.extend(gone.map(AgentEvent::PolicyDeleted));
                stays
            });
        }
        events
    }
}

fn object(policies: &[Arc<Policy>], revision: u64) -> Option<PolicyRef> {
    let origin = policies.first()?.origin();
    Some(PolicyRef {
        kind: origin.kind.clone(),
        namespace: origin.namespace.clone().unwrap_or_default(),
        name: origin.name.clone(),
        revision,
    })
}

impl Keeper {
    /// Tells what is different since it was told last.
    pub(super) fn tell_changes(&mut self) {
        let in_force = self.refused.is_none() && !self.pending;
        let mut events = self.history.endpoints(self.registry.iter(), in_force);
        if in_force {
            events.extend(self.history.policies(|| self.objects.policy_objects(), self.revision));
        }
        events.into_iter().for_each(|event| self.observer.happened(event));
    }
}

#[cfg(test)]
mod tests {
    use egret_core::cluster::Kind;
    use egret_core::identity::Profile;
    use egret_core::policy::cilium;

    use super::super::objects::Local;
    use super::super::registry::Held;
    use super::*;
    use crate::place::Spot;

    fn policy(rules: usize) -> Vec<Arc<Policy>> {
        let rules = "  - toEntities: [world]\n".repeat(rules);
        let text = format!(
            "apiVersion: cilium.io/v2\nkind: CiliumNetworkPolicy\nmetadata: {{name: names, namespace: shop}}\n\
             spec:\n  endpointSelector: {{}}\n  egress:\n{rules}"
        );
        cilium::parse(&text).policies.into_iter().map(Arc::new).collect()
    }

    fn entry(id: EndpointId, uid: &str, attached: bool, policies: &[Arc<Policy>]) -> Entry {
        let pod = Local {
            name: format!("shop/p{id}"),
            uid: uid.into(),
            host_network: false,
            ips: BTreeSet::new(),
            identity: 256,
            profile: Arc::new(Profile::default()),
            annotations: BTreeMap::new(),
            workload: None,
            policies: policies.iter().cloned().collect(),
        };
        let spot = Spot::Interface { ifindex: 1, name: "v".into() };
        Entry { id, pod, held: Ok(Held { spot, cgroup: None, home: None, attached }), home: None }
    }

    /// The events in short.
    fn told(events: Vec<AgentEvent>) -> String {
        let one = |event| match event {
            AgentEvent::Started => "started".into(),
            AgentEvent::PolicyUpdated(of, rules) => format!("+{}:{rules}@{}", of.name, of.revision),
            AgentEvent::PolicyDeleted(of) => format!("-{}", of.name),
            AgentEvent::EndpointCreated(of) => format!("+{}", of.pod),
            AgentEvent::EndpointDeleted(of) => format!("-{}", of.pod),
            AgentEvent::Regenerated(of, Ok(())) => format!("={}", of.pod),
            AgentEvent::Regenerated(of, Err(error)) => format!("!{}:{error}", of.pod),
        };
        events.into_iter().map(one).collect::<Vec<String>>().join(" ")
    }

    #[test]
    fn endpoints_come_change_and_go() {
        let mut history = History::default();
        let mut check = |now: &[Entry], in_force, want: &str| {
            assert_eq!(told(history.endpoints(now.iter(), in_force)), want);
        };
        let (none, some) = (vec![], policy(1));
        check(&[entry(1, "a", false, &none)], true, "+p1");
        check(&[entry(1, "a", true, &none)], true, "=p1");
        check(&[entry(1, "a", true, &none)], true, "");
        // What is not in force is told when it is.
        check(&[entry(1, "a", true, &some)], false, "");
        check(&[entry(1, "a", true, &some)], true, "=p1");
        check(&[entry(1, "a", true, &some), entry(2, "b", true, &none)], true, "+p2 =p2");
        // Another pod has the number.
        check(&[entry(1, "c", false, &some), entry(2, "b", true, &none)], true, "-p1 +p1");
        check(&[entry(1, "c", false, &some)], true, "-p2");
        let fail = |history: &mut History, error: &str| told(history.failed(1, error).into_iter().collect());
        assert_eq!(fail(&mut history, "no"), "!p1:no");
        assert_eq!(fail(&mut history, "no"), "");
        assert_eq!(fail(&mut history, "other"), "!p1:other");
        assert!(history.failed(9, "nobody").is_none());
    }

    #[test]
    fn objects_come_change_and_go() {
        let mut history = History::default();
        let key = Key::new(Kind::CiliumNetworkPolicy, "shop", "names");
        let mut check = |now: &[(&Key, &[Arc<Policy>])], revision, want: &str| {
            assert_eq!(told(history.policies(|| now.iter().copied(), revision)), want);
        };
        let (one, two) = (policy(1), policy(2));
        check(&[(&key, &one)], 3, "+names:1@3");
        check(&[(&key, &one)], 4, "");
        check(&[(&key, &policy(1))], 4, "");
        check(&[(&key, &two)], 5, "+names:2@5");
        let other = Key::new(Kind::CiliumNetworkPolicy, "shop", "other");
        check(&[(&key, &two), (&other, &one)], 5, "+names:1@5");
        check(&[(&other, &one)], 5, "-names");
        check(&[(&key, &two)], 5, "+names:2@5 -names");
        check(&[(&key, &[])], 6, "-names");
        check(&[], 6, "");
    }
}
