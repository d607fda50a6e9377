//! Runs a table: after each step every probe is read by its expectation, by the text and by a [`Way`], and all agree.

mod probe;

use std::net::IpAddr;

use egret_common::{ids::EndpointId, net::Direction::Egress};
use egret_core::eval::Verdict;
use probe::{Probe, probes};

use crate::{
    dns::{Asked, Exchange},
    node::{Node, Picture},
    scene::Scene,
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
        let (scene, memory) = (self.scene.clone(), self.memory.clone());
        let reading = Reading::new(&scene, &memory);
        let ids: Vec<Option<EndpointId>> = scene.pods.iter().map(|pod| self.node.id(&pod.key())).collect();
        probes(&scene, self.table, |probe| {
            let ruled = probe.sides.iter().any(|(pod, hop)| reading.rules(*pod, hop.direction));
            if self.way.takes(ruled) {
                self.probe(at, &reading, &ids, probe);
            }
        });
    }

    fn probe(&mut self, at: usize, reading: &Reading<'_>, ids: &[Option<EndpointId>], probe: &Probe<'_>) {
        let (want, line) = self.table.steps[at].expect.of(&probe.trial);
        let mut allowed = true;
        for (place, hop) in &probe.sides {
            let pod = &self.scene.pods[*place];
            let endpoint = ids[*place].expect("an endpoint");
            let side = Side { endpoint, own: pod.ip(probe.trial.v6).expect("an address"), hop: *hop };
            let text = reading.verdict(*place, hop);
            let way = self.way.judge(&side);
            let same = if self.way.tells_why() {
                reading.agree(text, way)
            } else {
                (text == Verdict::Allow) == (way == Verdict::Allow)
            };
            assert!(
                same,
                "{}: {:?}: {} {hop:?}: the text says {text:?}, the maps {way:?}\n{}",
                self.what(at),
                probe.trial,
                pod.key(),
                self.scene.policies.values().cloned().collect::<String>()
            );
            allowed &= way == Verdict::Allow;
        }
        assert_eq!(allowed, want, "{}: {:?} by `{line}`", self.what(at), probe.trial);
        self.tally.probes += 1;
    }

    fn exchange(&mut self, at: usize, exchange: &Exchange) {
        let (scene, memory) = (self.scene.clone(), self.memory.clone());
        let reading = Reading::new(&scene, &memory);
        let place = scene.pods.iter().position(|p| p.key() == exchange.pod);
        let place = place.unwrap_or_else(|| panic!("{} is no pod", exchange.pod));
        let pod = &scene.pods[place];
        let remote = self.server(exchange);
        let hop = Hop { direction: Egress, remote, proto: 17, port: exchange.port };
        let endpoint = self.node.id(&exchange.pod).expect("an endpoint");
        let side = Side { endpoint, own: pod.ip(exchange.v6).expect("an address"), hop };
        let (text, believed) = reading.asked(place, exchange, &hop);
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
