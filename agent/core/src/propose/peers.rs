//! From who it was to what a rule calls him.
//!
//! Owns: which labels stand for a workload. They are those that stay when it is rolled out anew, and all of those: fewer
//! would mean more pods than were seen.

use super::{Act, Need, Peer, Services, Subject, who::is_forbidden};
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

/// Names that a comment lists at most.
const MAX_LISTED: usize = 4;
/// What runs as the service account that everybody has who asks for none.
const NOBODY: &str = "default";

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
                let peer =
                    simple(&b.peer, subject).map_err(|why| format!("what is behind {service}: {why}"))?;
                Ok(Meant { peer, port: b.port, remark })
            };
            backends.iter().map(behind).collect()
        }
        Peer::World { ip, names } => match &need.name {
            Some(name) if is_writable(name) => Ok(one(DraftPeer::Name(DraftName::Exact(name.clone())), "")),
            Some(name) => Err(format!("no policy can name {name}")),
            None if names.len() > 1 && !is_forbidden(*ip) => {
                let remark = format!("which of its names was meant is not known: {}", listed(names.iter()));
                Ok(one(DraftPeer::Address(*ip), &remark))
            }
            None => Ok(one(DraftPeer::Address(*ip), "no name was asked for")),
        },
        known => Ok(one(simple(known, subject)?, "")),
    }
}

/// Some of the names, and how many more.
pub(super) fn listed<'a>(names: impl Iterator<Item = &'a Name> + Clone) -> String {
    let more = names.clone().count().saturating_sub(MAX_LISTED);
    let mut text = names.take(MAX_LISTED).map(Name::as_str).collect::<Vec<_>>().join(", ");
    if more > 0 {
        text += &format!(" and {more} more");
    }
    text
}

/// One that is no Service, or why no rule can name it.
fn simple(peer: &Peer, subject: &Subject) -> Result<DraftPeer, String> {
    match peer {
        Peer::Pod(labels, ip) => of_peer(labels, subject).map(DraftPeer::Pods).ok_or_else(|| {
            let namespace = labels.get(POD_NAMESPACE).map_or("?", String::as_str);
            format!("the pod {ip} of namespace {namespace} has no labels of its own")
        }),
        Peer::Entity(node, _) => Ok(DraftPeer::Entity(node.word())),
        Peer::World { ip, .. } => Ok(DraftPeer::Address(*ip)),
        Peer::Service { name: (namespace, name), .. } => {
            Err(format!("Service {namespace}/{name} behind another one"))
        }
        Peer::Unknown(who) => Err(who.clone()),
    }
}

/// The cluster's DNS, for a workload whose questions were not seen.
pub(super) fn assumed_resolver(subject: &Subject, services: &Services) -> Vec<Meant> {
    let remark = "no look-up was seen, the cluster's DNS is assumed";
    let one = |peer, port| Meant { peer, port, remark: remark.to_owned() };
    let known = services.cluster_dns().filter_map(|b| Some(one(simple(&b.peer, subject).ok()?, b.port)));
    let known: Vec<Meant> = known.collect();
    if known.is_empty() { vec![one(DraftPeer::Pods(cluster_dns()), DNS_PORT)] } else { known }
}

/// A pod that a workload talks to; with its namespace, unless that is the workload's own. `None`: no label tells it from others.
fn of_peer(labels: &Labels, subject: &Subject) -> Option<Labels> {
    let mut wanted = Some(standing(labels)).filter(|labels| !labels.is_empty())?;
    if let Some(namespace) = labels.get(POD_NAMESPACE).filter(|namespace| **namespace != subject.namespace) {
        wanted.insert(POD_NAMESPACE.to_owned(), namespace.clone());
    }
    Some(wanted)
}

/// The labels that stand for a pod, its namespace apart; none: nothing tells it from others, and a selector would take them all.
/// A pod without labels is known by its service account, if somebody gave it one: that is given to one kind of workload, and
/// its rights go with it. `default` is what all others have.
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
    let mut account = those(&|key| key == SERVICE_ACCOUNT);
    account.retain(|_, name| name != NOBODY && !name.is_empty());
    let choices = [those(&|key| own(key) && stays(key)), those(&own), account];
    choices.into_iter().find(|labels| !labels.is_empty()).unwrap_or_default()
}

/// Whether DNS may go there: a question by this protocol.
pub(super) fn carries_dns(proto: Proto) -> bool {
    matches!(proto, Proto::Udp | Proto::Tcp)
}
