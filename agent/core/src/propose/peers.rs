//! From who it was to what a rule calls him.
//!
//! Owns: which labels stand for a workload. They are those that stay when it is rolled out anew, and all of those: fewer
//! would mean more pods than were seen.

use std::collections::BTreeSet;

use super::{Act, Need, Peer, Services, Subject};
use crate::{
    identity::is_relevant,
    labels::{Labels, NAMESPACE_LABELS, POD_NAMESPACE, SERVICE_ACCOUNT},
    names::Name,
    policy::{
        DNS_PORT,
        write::{DraftName, DraftPeer, cluster_dns, is_writable},
    },
    ports::Proto,
};

/// Labels that say nothing about what a pod is: a version, who installed it, one run of a job.
const PASSING: [&str; 10] = [
    "app.kubernetes.io/version",
    "app.kubernetes.io/managed-by",
    "helm.sh/chart",
    "chart",
    "heritage",
    "job-name",
    "batch.kubernetes.io/job-name",
    "pod-template-hash",
    "controller-revision-hash",
    "controller-uid",
];
/// Keys that begin so are added by who keeps the pods, not by who writes them.
const ADDED: [&str; 2] = ["io.cilium.k8s.", "io.kubernetes."];

/// A rule's peer, the port there, and what a reader may want to know.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Meant {
    pub(super) peer: DraftPeer,
    pub(super) port: u16,
    pub(super) remark: String,
}

/// Whom a need means, or why nobody can be named.
pub(super) fn meant(need: &Need, services: &Services) -> Result<Vec<Meant>, String> {
    let (proto, port, asks) = match &need.seen.act {
        Act::Connect(proto, port) => (*proto, *port, false),
        Act::Ask(proto, port, _) => (*proto, *port, true),
        Act::Odd(why) => return Err(why.clone()),
    };
    let subject = &need.seen.subject;
    let one = |peer, remark: &str| vec![Meant { peer, port, remark: remark.to_owned() }];
    match &need.seen.peer {
        Peer::Service { name: (namespace, name), ip } => {
            let service = format!("Service {namespace}/{name} port {port}");
            let Some(backends) = services.at(*ip, proto, port).filter(|list| !list.is_empty()) else {
                let assumed = asks.then(|| one(DraftPeer::Pods(cluster_dns()), "assumed behind its Service"));
                return assumed.ok_or_else(|| format!("what is behind {service}/{proto} is not known"));
            };
            let behind = |b: &super::Backend| {
                let remark = format!("behind {service}");
                let peer = simple(&b.peer, subject)
                    .ok_or_else(|| format!("what is behind {service} has no name"))?;
                Ok(Meant { peer, port: b.port, remark })
            };
            backends.iter().map(behind).collect()
        }
        Peer::World { .. } if !need.names.is_empty() => by_name(&need.names, port),
        Peer::World { ip, .. } => Ok(one(DraftPeer::Address(*ip), "no name was asked for")),
        Peer::Unknown(who) => Err(who.clone()),
        known => Ok(simple(known, subject).map_or_else(Vec::new, |peer| one(peer, ""))),
    }
}

fn by_name(names: &BTreeSet<Name>, port: u16) -> Result<Vec<Meant>, String> {
    let writable: Vec<&Name> = names.iter().filter(|name| is_writable(name)).collect();
    let remark = |name: &Name| {
        let others: Vec<&str> = writable.iter().filter(|n| **n != name).map(|n| n.as_str()).collect();
        if others.is_empty() { String::new() } else { format!("one address with {}", others.join(", ")) }
    };
    let one = |name: &&Name| {
        let peer = DraftPeer::Name(DraftName::Exact((*name).clone()));
        Meant { peer, port, remark: remark(name) }
    };
    match writable.is_empty() {
        true => Err(format!(
            "no policy can name {}",
            names.iter().map(Name::as_str).collect::<Vec<_>>().join(", ")
        )),
        false => Ok(writable.iter().map(one).collect()),
    }
}

fn simple(peer: &Peer, subject: &Subject) -> Option<DraftPeer> {
    Some(match peer {
        Peer::Pod(labels, _) => DraftPeer::Pods(of_peer(labels, subject)),
        Peer::Entity(node, _) => DraftPeer::Entity(node.word()),
        Peer::World { ip, .. } => DraftPeer::Address(*ip),
        Peer::Service { .. } | Peer::Unknown(_) => return None,
    })
}

/// The cluster's DNS, for a workload whose questions were not seen.
pub(super) fn assumed_resolver(subject: &Subject, services: &Services) -> Vec<Meant> {
    let remark = "no look-up was seen, the cluster's DNS is assumed";
    let one = |peer, port| Meant { peer, port, remark: remark.to_owned() };
    let known = services.cluster_dns().filter_map(|b| Some(one(simple(&b.peer, subject)?, b.port)));
    let known: Vec<Meant> = known.collect();
    if known.is_empty() { vec![one(DraftPeer::Pods(cluster_dns()), DNS_PORT)] } else { known }
}

/// A pod that a workload talks to; with its namespace, unless that is the workload's own.
fn of_peer(labels: &Labels, subject: &Subject) -> Labels {
    let mut wanted = standing(labels);
    if let Some(namespace) = labels.get(POD_NAMESPACE).filter(|namespace| **namespace != subject.namespace) {
        wanted.insert(POD_NAMESPACE.to_owned(), namespace.clone());
    }
    wanted
}

/// The labels that stand for a pod, its namespace apart. A pod without labels is known by its service account.
#[must_use]
pub(super) fn standing(labels: &Labels) -> Labels {
    let own = |key: &str| {
        is_relevant(key) && !key.starts_with(NAMESPACE_LABELS) && !ADDED.iter().any(|a| key.starts_with(a))
    };
    let stays = |key: &str| !PASSING.contains(&key);
    let those = |counts: &dyn Fn(&str) -> bool| -> Labels {
        let chosen = labels.iter().filter(|(key, _)| counts(key));
        chosen.map(|(key, value)| (key.clone(), value.clone())).collect()
    };
    let choices = [those(&|key| own(key) && stays(key)), those(&own), those(&|key| key == SERVICE_ACCOUNT)];
    choices.into_iter().find(|labels| !labels.is_empty()).unwrap_or_default()
}

/// Whether DNS may go there: a question by this protocol.
pub(super) fn carries_dns(proto: Proto) -> bool {
    matches!(proto, Proto::Udp | Proto::Tcp)
}
