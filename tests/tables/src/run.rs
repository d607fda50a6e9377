//! Runs a table: after each step every probe is read by its expectation, by the text and by a [`Way`], and all agree.

use std::net::IpAddr;

use egret_common::{
    ids::EndpointId,
    net::Direction::{Egress, Ingress},
};
use egret_core::eval::Verdict;

use crate::{
    dns::{Asked, Exchange},
    line::{Trial, protocol},
    node::{Node, Picture},
    scene::{Pod, Scene},
    table::Table,
    text::{Hop, Memory, Reading},
};

/// One pod's part in a probe.
#[derive(Debug, Clone, Copy)]
pub struct Side {
    /// The pod.
    pub endpoint: EndpointId,
    /// Its address of the probe's family.
    pub own: IpAddr,
    /// What it sends or gets.
    pub hop: Hop,
}

/// What is judged: compiled maps, or the programs that read them.
pub trait Way {
    /// The cluster is another one now.
    fn update(&mut self, picture: Picture);
    /// Time passes.
    fn wait(&mut self, seconds: u32);
    /// Whether the side lets a flow begin. A way that cannot tell why not says so by any reason: see [`Way::tells_why`].
    fn judge(&mut self, side: &Side) -> Verdict;
    /// A DNS query, and the answer if it gets through.
    fn ask(&mut self, side: &Side, exchange: &Exchange) -> Asked;
    /// Whether the next probe is to be made: not all of them where each is dear. `ruled`: some policy is about it.
    fn takes(&mut self, ruled: bool) -> bool {
        let _ = ruled;
        true
    }
    /// Whether reasons are to be compared.
    fn tells_why(&self) -> bool {
        true
    }
}

/// What was done.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Tally {
    /// Tables.
    pub tables: usize,
    /// Their steps.
    pub steps: usize,
    /// Connections that were tried.
    pub probes: usize,
    /// DNS queries.
    pub queries: usize,
}

impl std::ops::AddAssign for Tally {
    fn add_assign(&mut self, other: Self) {
        self.tables += other.tables;
        self.steps += other.steps;
        self.probes += other.probes;
        self.queries += other.queries;
    }
}

/// Runs a table.
///
/// # Panics
/// At the first probe that is not as expected, with everything that is known about it.
pub fn run(table: &Table, way: &mut dyn Way) -> Tally {
    let mut run = Run {
        table,
        way,
        scene: Scene::new(&table.world),
        node: Node::default(),
        memory: Memory::default(),
        tally: Tally { tables: 1, steps: table.steps.len(), ..Tally::default() },
    };
    (0..table.steps.len()).for_each(|at| run.step(at));
    run.tally
}

struct Run<'a> {
    table: &'a Table,
    way: &'a mut dyn Way,
    scene: Scene,
    node: Node,
    memory: Memory,
    tally: Tally,
}

/// One end of a probe.
#[derive(Debug, Clone)]
struct Party {
    /// As expectations call it.
    name: String,
    /// Index of the pod.
    pod: Option<usize>,
    /// Address by family.
    ips: [Option<IpAddr>; 2],
    /// The Service that it is, or by which the pod is reached.
    service: Option<String>,
}

impl Run<'_> {
    fn step(&mut self, at: usize) {
        let step = &self.table.steps[at];
        self.way.wait(step.after);
        self.memory.now += u64::from(step.after);
        self.scene.change(step);
        if self.table.via.iter().any(|via| via == "svc") {
            self.scene.serve_each(&self.table.ports);
        }
        self.way.update(self.node.look(&self.scene));
        for exchange in &step.dns {
            self.exchange(at, exchange);
        }
        if step.expect.is_silent() {
            return;
        }
        let (sources, targets) = (self.parties(), self.targets());
        let scene = self.scene.clone();
        let memory = self.memory.clone();
        let reading = Reading::new(&scene, &memory);
        for from in &sources {
            for to in &targets {
                for v6 in [false, true] {
                    for text in &self.table.ports {
                        self.probe(at, &reading, from, to, v6, text);
                    }
                }
            }
        }
    }

    /// Pods and addresses outside. Pods at their end and those on their node's network take no part.
    fn parties(&self) -> Vec<Party> {
        let pod = |(i, pod): (usize, &Pod)| {
            let ips = [pod.ip(false), pod.ip(true)];
            pod.is_party().then(|| Party { name: pod.key(), pod: Some(i), ips, service: None })
        };
        let outside = |(ip, role): (&IpAddr, &String)| {
            let name = if role == "world" { format!("world {ip}") } else { ip.to_string() };
            Party {
                name,
                pod: None,
                ips: [false, true].map(|v6| Some(*ip).filter(|ip| ip.is_ipv6() == v6)),
                service: None,
            }
        };
        let pods = self.scene.pods.iter().enumerate().filter_map(pod);
        pods.chain(self.scene.outside.iter().map(outside)).collect()
    }

    /// Pods by the ways of the table, addresses outside, and Services.
    fn targets(&self) -> Vec<Party> {
        let by_address = self.table.via.iter().any(|via| via == "podip");
        let mut out: Vec<Party> =
            self.parties().into_iter().filter(|p| by_address || p.pod.is_none()).collect();
        for (key, service) in &self.scene.services {
            let ips = [false, true].map(|v6| service.vips.iter().copied().find(|ip| ip.is_ipv6() == v6));
            let (name, pod) = match &service.only {
                Some(only) => (only.clone(), self.scene.pods.iter().position(|p| p.key() == *only)),
                None => (format!("svc:{key}"), None),
            };
            out.push(Party { name, pod, ips, service: Some(key.clone()) });
        }
        out
    }

    /// Nobody talks to itself, also not through a Service, and of those outside only to pods.
    fn probe(&mut self, at: usize, reading: &Reading<'_>, from: &Party, to: &Party, v6: bool, text: &str) {
        let (Some(source), Some(target)) = (from.ips[usize::from(v6)], to.ips[usize::from(v6)]) else {
            return;
        };
        let (port, proto) = text.split_once('/').expect("PORT/PROTO");
        let number: u16 = port.parse().expect("a port");
        // Each version has its own ICMP.
        if (proto, v6) == ("icmp", true) || (proto, v6) == ("icmpv6", false) {
            return;
        }
        let has_ports = self.ends(to, text, v6);
        let Some(ends) = has_ports else { return };
        let of_itself = source == target || ends.iter().any(|(ip, _)| *ip == source);
        if of_itself || (from.pod.is_none() && (to.pod.is_none() || to.service.is_some())) {
            return;
        }
        let by_service = to.service.is_some() && to.pod.is_some();
        let trial = Trial { from: &from.name, to: &to.name, port, proto, v6, by_service };
        let (want, line) = self.table.steps[at].expect.of(&trial);
        let hop = |direction, remote, port| Hop { direction, remote, proto: protocol(proto), port };
        let mut sides: Vec<(usize, Hop)> =
            from.pod.into_iter().map(|pod| (pod, hop(Egress, target, number))).collect();
        for (ip, port) in ends {
            let pod = self.scene.pods.iter().position(|p| p.is_party() && p.ips.contains(&ip));
            sides.extend(pod.map(|pod| (pod, hop(Ingress, source, port))));
        }
        let ruled = sides.iter().any(|(pod, hop)| reading.rules(&self.scene.pods[*pod].key(), hop.direction));
        if !self.way.takes(ruled) {
            return;
        }
        let mut allowed = true;
        for (pod, hop) in sides {
            allowed &= self.side(at, reading, pod, v6, hop, &trial);
        }
        assert_eq!(allowed, want, "{}: {trial:?} by `{line}`", self.what(at));
        self.tally.probes += 1;
    }

    /// Where packets arrive in the end; `None` where nothing is to be tried.
    fn ends(&self, to: &Party, text: &str, v6: bool) -> Option<Vec<(IpAddr, u16)>> {
        let number = text.split_once('/').and_then(|(port, _)| port.parse().ok())?;
        match &to.service {
            None => Some(vec![(to.ips[usize::from(v6)]?, number)]),
            Some(service) => {
                let known = self.scene.services[service].row.ports.contains_key(text);
                (known || to.pod.is_none()).then(|| self.scene.backends(service, text, v6))
            }
        }
    }

    fn side(
        &mut self,
        at: usize,
        reading: &Reading<'_>,
        pod: usize,
        v6: bool,
        hop: Hop,
        trial: &Trial<'_>,
    ) -> bool {
        let pod = &self.scene.pods[pod];
        let key = pod.key();
        let endpoint = self.node.id(&key).unwrap_or_else(|| panic!("{key} is no endpoint"));
        let side = Side { endpoint, own: pod.ip(v6).expect("an address"), hop };
        let text = reading.verdict(&key, &hop);
        let way = self.way.judge(&side);
        let same = if self.way.tells_why() {
            reading.agree(text, way)
        } else {
            (text == Verdict::Allow) == (way == Verdict::Allow)
        };
        assert!(
            same,
            "{}: {trial:?}: {key} {hop:?}: the text says {text:?}, the maps {way:?}\n{}",
            self.what(at),
            self.scene.policies.values().cloned().collect::<String>()
        );
        way == Verdict::Allow
    }

    fn exchange(&mut self, at: usize, exchange: &Exchange) {
        let scene = self.scene.clone();
        let memory = self.memory.clone();
        let reading = Reading::new(&scene, &memory);
        let pod = scene.pods.iter().find(|p| p.key() == exchange.pod);
        let pod = pod.unwrap_or_else(|| panic!("{} is no pod", exchange.pod));
        let remote = self.server(exchange);
        let hop = Hop { direction: Egress, remote, proto: 17, port: exchange.port };
        let endpoint = self.node.id(&exchange.pod).expect("an endpoint");
        let side = Side { endpoint, own: pod.ip(exchange.v6).expect("an address"), hop };
        let (text, believed) = reading.asked(exchange, &hop);
        let way = self.way.ask(&side, exchange);
        let what = format!("{}: {exchange:?}", self.what(at));
        assert_eq!(text, exchange.outcome, "{what}: by the text");
        assert_eq!(way, exchange.outcome, "{what}: by the maps");
        if text == Asked::Answered && believed {
            self.memory = reading.learn(exchange);
        }
        self.tally.queries += 1;
    }

    fn server(&self, exchange: &Exchange) -> IpAddr {
        let text = exchange.server.as_str();
        let found = match text.strip_prefix("svc:") {
            Some(service) => {
                let service = self.scene.services.get(service);
                service.and_then(|s| s.vips.iter().copied().find(|ip| ip.is_ipv6() == exchange.v6))
            }
            None => {
                let pod = self.scene.pods.iter().find(|p| p.key() == text);
                pod.and_then(|p| p.ip(exchange.v6)).or_else(|| text.parse().ok())
            }
        };
        found.unwrap_or_else(|| panic!("{text} is no server"))
    }

    fn what(&self, at: usize) -> String {
        format!("{} {} step {at}", self.table.case, self.table.title)
    }
}
