//! Which connections a step tries: every party to every other, both families, every port, by address and by Service.

use std::net::IpAddr;

use egret_common::net::Direction::{Egress, Ingress};

use crate::{
    line::{Trial, protocol},
    scene::{Pod, Scene},
    table::Table,
    text::Hop,
};

/// A connection that is tried, and what each pod on its way has to let through.
#[derive(Debug)]
pub(super) struct Probe<'a> {
    pub(super) trial: Trial<'a>,
    /// Places of pods in the scene.
    pub(super) sides: Vec<(usize, Hop)>,
}

/// One end of a connection.
#[derive(Debug, Clone)]
struct Party {
    /// As expectations call it.
    name: String,
    /// Place of the pod.
    pod: Option<usize>,
    /// Address by family.
    ips: [Option<IpAddr>; 2],
    /// The Service that it is, or by which the pod is reached.
    service: Option<String>,
}

/// Calls `each` with every probe.
pub(super) fn probes(scene: &Scene, table: &Table, mut each: impl FnMut(&Probe<'_>)) {
    let (sources, targets) = (parties(scene), targets(scene, table));
    for to in &targets {
        for (v6, text) in [false, true].into_iter().flat_map(|v6| table.ports.iter().map(move |t| (v6, t))) {
            let Some(goal) = Goal::new(scene, to, v6, text) else { continue };
            for from in &sources {
                if let Some(probe) = goal.probe(from) {
                    each(&probe);
                }
            }
        }
    }
}

/// Pods and addresses outside. Pods at their end and those on their node's network take no part.
fn parties(scene: &Scene) -> Vec<Party> {
    let pod = |(at, pod): (usize, &Pod)| {
        let ips = [pod.ip(false), pod.ip(true)];
        pod.is_party().then(|| Party { name: pod.key(), pod: Some(at), ips, service: None })
    };
    let outside = |(ip, role): (&IpAddr, &String)| {
        let name = if role == "world" { format!("world {ip}") } else { ip.to_string() };
        let ips = [false, true].map(|v6| Some(*ip).filter(|ip| ip.is_ipv6() == v6));
        Party { name, pod: None, ips, service: None }
    };
    let pods = scene.pods.iter().enumerate().filter_map(pod);
    pods.chain(scene.outside.iter().map(outside)).collect()
}

/// Pods by the ways of the table, addresses outside, and Services.
fn targets(scene: &Scene, table: &Table) -> Vec<Party> {
    let by_address = table.via.iter().any(|via| via == "podip");
    let mut out: Vec<Party> = parties(scene).into_iter().filter(|p| by_address || p.pod.is_none()).collect();
    for (key, service) in &scene.services {
        let ips = [false, true].map(|v6| service.vips.iter().copied().find(|ip| ip.is_ipv6() == v6));
        let (name, pod) = match &service.only {
            Some(only) => (only.clone(), scene.pods.iter().position(|p| p.key() == *only)),
            None => (format!("svc:{key}"), None),
        };
        out.push(Party { name, pod, ips, service: Some(key.clone()) });
    }
    out
}

/// A port of a target in one family.
#[derive(Debug)]
struct Goal<'a> {
    to: &'a Party,
    v6: bool,
    port: &'a str,
    proto: &'a str,
    target: IpAddr,
    number: u16,
    /// Where packets arrive in the end, and the pod there.
    ends: Vec<(IpAddr, u16, Option<usize>)>,
}

impl<'a> Goal<'a> {
    /// `None` where nothing is to be tried: each version has its own ICMP, and a Service for one pod only the pod's ports.
    fn new(scene: &Scene, to: &'a Party, v6: bool, text: &'a str) -> Option<Self> {
        let target = to.ips[usize::from(v6)]?;
        let (port, proto) = text.split_once('/').expect("PORT/PROTO");
        let number = port.parse().expect("a port");
        if (proto, v6) == ("icmp", true) || (proto, v6) == ("icmpv6", false) {
            return None;
        }
        let ends = match &to.service {
            None => vec![(target, number)],
            Some(service) => {
                let known = scene.services[service].row.ports.contains_key(text);
                (known || to.pod.is_none()).then(|| scene.backends(service, text, v6))?
            }
        };
        let at = |ip| scene.pods.iter().position(|p| p.is_party() && p.ips.contains(&ip));
        let ends = ends.into_iter().map(|(ip, port)| (ip, port, at(ip))).collect();
        Some(Self { to, v6, port, proto, target, number, ends })
    }

    /// Nobody talks to itself, also not through a Service, and those outside talk to pods only.
    fn probe<'b>(&'b self, from: &'b Party) -> Option<Probe<'b>> {
        let Self { to, v6, port, proto, target, number, ref ends } = *self;
        let source = from.ips[usize::from(v6)]?;
        let of_itself = source == target || ends.iter().any(|(ip, ..)| *ip == source);
        if of_itself || (from.pod.is_none() && (to.pod.is_none() || to.service.is_some())) {
            return None;
        }
        let by_service = to.service.is_some() && to.pod.is_some();
        let trial = Trial { from: &from.name, to: &to.name, port, proto, v6, by_service };
        let hop = |direction, remote, port| Hop { direction, remote, proto: protocol(proto), port };
        let leaves = from.pod.map(|pod| (pod, hop(Egress, target, number)));
        let arrives = ends.iter().filter_map(|(_, port, pod)| Some(((*pod)?, hop(Ingress, source, *port))));
        Some(Probe { trial, sides: leaves.into_iter().chain(arrives).collect() })
    }
}
