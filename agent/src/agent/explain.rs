//! `egret policy explain`: who the two ends are, and what the agent knows about them.
//!
//! Owns the way from what somebody writes to the values that [`egret_core::explain`] takes. Must not know what breaks a
//! link, nor the words for it.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::Arc;

use egret_common::ids::{EndpointId, identity};
use egret_common::net::proto;
use egret_common::verdict::DropReason;
use egret_core::explain::written::{self, End};
use egret_core::explain::{
    Case, Explanation, Held, Known, Local as Workload, Now, Owner, Receiver, Target, explain,
};
use egret_core::flow::Flow;
use egret_core::labels::printed;
use egret_core::names::Name;

use super::keeper::Keeper;
use super::objects::{Local, Objects, Picture};
use super::registry::Entry;
use crate::api::{self, Answer};
use crate::datapath::Live;
use crate::host;
use crate::learn::now;
use crate::observe;
use crate::place::Spot;

/// Version of what is answered.
pub(super) const VERSION: u32 = 1;
/// What is asked about if no port was given and none was seen.
pub(super) const HTTPS: (u8, u16) = (proto::TCP, 443);

impl Keeper {
    /// Explains a connection.
    pub(super) fn explain(&self, from: &str, to: &str) -> Answer {
        match self.try_explain(from, to) {
            Ok(explanation) => super::answer::value(explanation),
            Err(why) => Answer::Error(why),
        }
    }

    fn try_explain(&self, from: &str, to: &str) -> Result<api::Explanation, String> {
        let from_end = written::from(from).map_err(|error| format!("--from: {error}"))?;
        let (to_end, port) = written::to(to).map_err(|error| format!("--to: {error}"))?;
        let scene = Scene {
            objects: &self.objects,
            picture: &self.picture,
            node: &self.setting.node,
            domain: &self.setting.cluster_domain,
            namespace: "",
        };
        let from = self.meant(&scene, &from_end).map_err(|why| format!("--from: {why}"))?;
        let to = scene.of(&from).find(&to_end).map_err(|why| format!("--to: {why}"))?;
        let live = Live::new(&self.datapath, self.learner.state().desired(), now());
        let workload = |meant: &Meant| meant.pod.as_deref().and_then(|pod| self.workload(pod, &live));
        let (source, destination) = (workload(&from), workload(&to));
        let mut ids: Vec<u32> = source.iter().chain(&destination).map(|workload| workload.id).collect();
        let of_them = |flow: &Flow| ids.contains(&flow.source.id) || ids.contains(&flow.destination.id);
        let flows = self.observer.history(of_them);
        let (port, port_from) = choose(port, &flows, source.as_ref(), &to.target);
        let behind = scene.behind(&to.target, port).into_iter();
        let behind =
            behind.filter_map(|(pod, port)| Some(Receiver { local: self.workload(&pod, &live)?, port }));
        let itself = destination.map(|local| Receiver { local, port: port.1 });
        let receivers: Vec<Receiver<'_>> = itself.into_iter().chain(behind).collect();
        if source.is_none() && receivers.is_empty() {
            return Err(elsewhere(&from, &to, &self.setting.node));
        }
        ids.extend(receivers.iter().map(|receiver| receiver.local.id));
        let of_them = |flow: &Flow| ids.contains(&flow.source.id) || ids.contains(&flow.destination.id);
        let flows = self.observer.history(of_them);
        let known = Answers { scene: &scene, differences: &|| live.differences() };
        let case = Case {
            tables: &live,
            state: self.learner.state(),
            journal: Some(self.learner.journal()),
            flows: Some(&flows),
            known: &known,
            proto: port.0,
            port: port.1,
            now: Now { boot: host::boot_ns(), wall: observe::now() },
        };
        let ends = ((&from.target, source.as_ref()), (&to.target, receivers.as_slice()));
        Ok(answer(&explain(&case, ends.0, ends.1), (&from, &to), port, port_from))
    }

    /// Who is meant, as far as this node can tell.
    fn meant(&self, scene: &Scene<'_>, end: &End) -> Result<Meant, String> {
        match end {
            End::Endpoint(id) => {
                let entry = self.registry.get(*id).ok_or_else(|| format!("no endpoint {id}"))?;
                Ok(scene.local(&entry.pod))
            }
            End::Cgroup(path) => {
                let at = |entry: &&Entry| match entry.held.as_ref().ok().map(|held| &held.spot) {
                    Some(Spot::Cgroup(spot)) => spot.ends_with(path.trim_start_matches('/')),
                    _ => false,
                };
                let entry = self.registry.iter().find(at);
                let entry = entry.ok_or_else(|| format!("no endpoint is held at the cgroup {path}"))?;
                Ok(scene.local(&entry.pod))
            }
            other => scene.find(other),
        }
    }

    fn workload<'a>(&'a self, pod: &str, live: &Live<'_>) -> Option<Workload<'a>> {
        let entry = self.registry.named(pod)?;
        let held = match &entry.held {
            Ok(held) if held.attached => Held::Ready(held.spot.to_string()),
            Ok(held) => Held::Not(format!("the programs are not at {} yet", held.spot)),
            Err(why) => Held::Not(why.clone()),
        };
        let counters = self.datapath.counters(entry.id).into_iter();
        Some(Workload {
            counters: counters
                .map(|row| (row.direction, DropReason::from_u8(row.reason), row.packets))
                .collect(),
            ..workload(
                &entry.pod,
                entry.id,
                held,
                live.endpoint(entry.id),
                self.picture.spares(&entry.pod.name),
            )
        })
    }
}

/// A workload that has counted nothing.
pub(super) fn workload(
    pod: &Local,
    id: EndpointId,
    held: Held,
    endpoint: egret_common::maps::Endpoint,
    spared: bool,
) -> Workload<'_> {
    Workload {
        name: pod.name.clone(),
        id,
        endpoint,
        labels: printed(&pod.profile.labels).collect(),
        held,
        host_network: pod.host_network,
        spared,
        policies: &pod.policies,
        counters: Vec::new(),
    }
}

/// Who is meant by one end.
#[derive(Debug, Clone, Default)]
pub(super) struct Meant {
    pub(super) target: Target,
    /// The pod of this node.
    pub(super) pod: Option<String>,
    /// The node that the pod is on, if it is another.
    elsewhere: Option<String>,
}

/// The cluster as this node knows it.
pub(super) struct Scene<'a> {
    pub(super) objects: &'a Objects,
    pub(super) picture: &'a Picture,
    pub(super) node: &'a str,
    pub(super) domain: &'a Name,
    /// The namespace of whoever asks for names; empty: unknown.
    pub(super) namespace: &'a str,
}

impl<'a> Scene<'a> {
    /// The scene as this end sees it.
    pub(super) fn of(&self, from: &'a Meant) -> Scene<'a> {
        let namespace = from.pod.as_deref().and_then(|pod| pod.split_once('/')).map_or("", |(of, _)| of);
        Scene { namespace, ..*self }
    }

    /// Pods of this node behind the Service at an address or of a name, with their ports.
    pub(super) fn behind(&self, to: &Target, (proto, port): (u8, u16)) -> Vec<(String, u16)> {
        let entries = self.picture.service_entries().iter();
        let meant = entries.filter(|entry| {
            to.addresses.contains(&entry.vip) && entry.port == port && entry.proto.number() == proto
        });
        let backends = meant.flat_map(|entry| entry.backends.iter().copied());
        // A name without an address of its own stands for the pods.
        let named = to.addresses.iter().filter(|_| to.name.is_some()).map(|ip| (*ip, port));
        let pods = backends.chain(named).filter_map(|(ip, port)| {
            let key = self.objects.pod_at(ip)?;
            let name = format!("{}/{}", key.namespace, key.name);
            self.picture.local.iter().any(|pod| pod.name == name).then_some((name, port))
        });
        pods.collect::<BTreeSet<_>>().into_iter().collect()
    }

    /// Who is meant.
    pub(super) fn find(&self, end: &End) -> Result<Meant, String> {
        match end {
            End::Pod(namespace, name) => self.pod(namespace, name),
            End::Address(ip) => Ok(self.address(*ip)),
            End::Name(name) => Ok(self.name(name)),
            End::Cgroup(path) => Err(format!("the cgroup {path}: only an agent knows cgroups")),
            End::Endpoint(id) => Err(format!("endpoint {id}: only an agent knows endpoints")),
        }
    }

    /// A pod of this node.
    fn local(&self, pod: &Local) -> Meant {
        let (namespace, name) = pod.name.split_once('/').unwrap_or(("", &pod.name));
        let addresses = match pod.host_network {
            false => pod.ips.clone(),
            true => self.objects.cluster().pod(namespace, name).map(|p| p.ips.clone()).unwrap_or_default(),
        };
        let target = Target { text: format!("pod {}", pod.name), name: None, addresses };
        Meant { target, pod: Some(pod.name.clone()), elsewhere: None }
    }

    fn pod(&self, namespace: &str, name: &str) -> Result<Meant, String> {
        let namespace = match namespace {
            "" => self.namespace_of(name)?,
            given => given.to_owned(),
        };
        let full = format!("{namespace}/{name}");
        if let Some(local) = self.picture.local.iter().find(|pod| pod.name == full) {
            return Ok(self.local(local));
        }
        let Some(pod) = self.objects.cluster().pod(&namespace, name) else {
            return Err(format!("there is no pod {full}"));
        };
        let target = Target { text: format!("pod {full}"), name: None, addresses: pod.ips.clone() };
        let node = pod.node.clone().unwrap_or_else(|| "no node yet".into());
        Ok(Meant { target, pod: None, elsewhere: Some(node) })
    }

    /// As for `kubectl`, `default`; but if only one pod has the name, it is meant.
    fn namespace_of(&self, name: &str) -> Result<String, String> {
        let mut found: Vec<&str> =
            self.objects.cluster().pods_named(name).map(|key| key.namespace.as_str()).collect();
        found.sort_unstable();
        match found.as_slice() {
            [] => Err(format!("there is no pod {name} in any namespace")),
            [one] => Ok((*one).to_owned()),
            several if several.contains(&"default") => Ok("default".into()),
            several => Err(format!(
                "pods {name} are in the namespaces {}: write NAMESPACE/{name}",
                several.join(", ")
            )),
        }
    }

    fn address(&self, ip: IpAddr) -> Meant {
        let key = self.objects.pod_at(ip).map(|key| format!("{}/{}", key.namespace, key.name));
        let local = key.and_then(|name| self.picture.local.iter().find(|pod| pod.name == name));
        let target = Target { text: ip.to_string(), name: None, addresses: [ip].into() };
        Meant { target, pod: local.map(|pod| pod.name.clone()), elsewhere: None }
    }

    /// A name; one of a Service has its addresses, also if it is short (`db`, `db.shop`): resolvers of pods complete it.
    fn name(&self, name: &Name) -> Meant {
        let complete = |domain: &str| Name::parse(&format!("{name}.{domain}")).ok();
        let below = |prefix: &str| complete(&format!("{prefix}.{}", self.domain));
        let own = (!self.namespace.is_empty()).then(|| below(&format!("{}.svc", self.namespace))).flatten();
        let completed = [Some(name.clone()), own, below("svc"), complete(self.domain.as_str())];
        let mut found = completed.into_iter().flatten().filter_map(|full| Some((self.service(&full)?, full)));
        let (addresses, full) = found.next().unwrap_or_else(|| (BTreeSet::new(), name.clone()));
        let text = if full == *name { name.to_string() } else { format!("{name} ({full})") };
        Meant { target: Target { text, name: Some(full), addresses }, pod: None, elsewhere: None }
    }

    /// The addresses of the Service of this name.
    fn service(&self, name: &Name) -> Option<BTreeSet<IpAddr>> {
        let below = name.prefix_above(self.domain)?.strip_suffix(".svc")?;
        let (service, namespace) = below.split_once('.')?;
        self.objects.cluster().addresses_of_service(namespace, service)
    }

    fn owner(&self, address: IpAddr) -> Owner {
        let cluster = self.objects.cluster();
        let number = self.picture.identity(address);
        let host_pods = match number {
            Some(identity::HOST | identity::REMOTE_NODE | identity::KUBE_APISERVER) => {
                cluster.host_pods_at(address).map(|key| format!("{}/{}", key.namespace, key.name)).collect()
            }
            _ => Vec::new(),
        };
        let reserved = |name: &str, label: &str| (name.to_owned(), vec![label.to_owned()]);
        let (name, labels) = match number {
            None => match self.objects.service_at(self.picture, address) {
                Some(service) => (format!("Service {}/{}", service.namespace, service.name), Vec::new()),
                None => reserved("world", "reserved:world"),
            },
            Some(identity::HOST) => reserved(&format!("this node, {}", self.node), "reserved:host"),
            Some(identity::REMOTE_NODE) => reserved("another node", "reserved:remote-node"),
            Some(identity::KUBE_APISERVER) => reserved("the API server", "reserved:kube-apiserver"),
            Some(number) => {
                let labels = self.picture.labels_of(number).into_iter().flat_map(printed).collect();
                let pod = self.objects.pod_at(address);
                let name = pod.map_or_else(
                    || format!("identity {number}"),
                    |key| format!("pod {}/{}", key.namespace, key.name),
                );
                (name, labels)
            }
        };
        let is_of_cluster = name.starts_with("Service ") || name.starts_with("pod ");
        Owner { name, identity: number.unwrap_or(identity::WORLD), is_of_cluster, labels, host_pods }
    }
}

/// [`Known`] for one question.
pub(super) struct Answers<'a> {
    pub(super) scene: &'a Scene<'a>,
    pub(super) differences: &'a dyn Fn() -> Vec<String>,
}

impl Known for Answers<'_> {
    fn owner(&self, address: IpAddr) -> Owner {
        self.scene.owner(address)
    }

    fn differences(&self) -> Vec<String> {
        (self.differences)()
    }
}

fn elsewhere(from: &Meant, to: &Meant, node: &str) -> String {
    let of = |meant: &Meant| meant.elsewhere.as_ref().map(|other| (meant.target.text.clone(), other.clone()));
    match of(from).or(of(to)) {
        Some((pod, other)) => {
            format!("{pod} is on {other}, and this is the agent of {node}: ask the one there")
        }
        None => format!("neither {} nor {} is a workload of {node}", from.target.text, to.target.text),
    }
}

/// The port that is asked about: the one that was given, or that of the last flow, or 443/tcp; with where it comes from.
fn choose(
    given: Option<(u8, u16)>,
    flows: &[Arc<Flow>],
    source: Option<&Workload<'_>>,
    to: &Target,
) -> ((u8, u16), Option<String>) {
    if let Some(port) = given {
        return (port, None);
    }
    let name = to.name.as_ref().map(Name::as_str);
    let meant = |flow: &&Arc<Flow>| {
        let ip = flow.destination.ip.is_some_and(|ip| to.addresses.contains(&ip));
        let named = name.is_some_and(|name| flow.destination.names.iter().any(|other| other == name));
        source.is_none_or(|source| flow.source.id == source.id) && (ip || named)
    };
    let port = |flow: &Arc<Flow>| match (flow.l4, flow.l4.ports()) {
        (egret_core::flow::L4::Tcp { .. }, Some((_, port))) => Some((proto::TCP, port)),
        (egret_core::flow::L4::Udp(..), Some((_, port))) => Some((proto::UDP, port)),
        (egret_core::flow::L4::Sctp(..), Some((_, port))) => Some((proto::SCTP, port)),
        _ => None,
    };
    match flows.iter().filter(meant).find_map(port) {
        Some(port) => (port, Some("none was given: that of the last flow".into())),
        None => (HTTPS, Some("none was given".into())),
    }
}

/// The explanation as it is told.
pub(super) fn answer(
    of: &Explanation,
    (from, to): (&Meant, &Meant),
    (proto, port): (u8, u16),
    port_from: Option<String>,
) -> api::Explanation {
    api::Explanation {
        version: VERSION,
        from: from.target.text.clone(),
        to: to.target.text.clone(),
        port: egret_core::explain::port_text(proto, port),
        port_from,
        verdict: of.outcome.name().into(),
        reason: of.reason.map(|reason| reason.name().to_owned()),
        cause: api::Cause { code: of.cause.code().into(), text: of.sentence.clone() },
        remedy: of.remedy.clone(),
        links: of
            .links
            .iter()
            .map(|link| api::Link {
                direction: link.direction.name().into(),
                link: link.name.into(),
                state: link.state.name().into(),
                evidence: link.evidence.clone(),
            })
            .collect(),
    }
}
