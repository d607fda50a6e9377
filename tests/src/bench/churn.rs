//! A cluster that never rests, behind an API server: how long a change takes to the kernel, and what the agent costs.
//!
//! ```text
//!  town ──changes at a rate──> double ──watch──> egret agent (its own process) ──> IDENTITIES, pinned
//!    └── time of each ──> pending <── look-ups of the address, until it is somebody else's ──┘
//! ```
//! The double runs in this process, on the same two cores as the agent: what it costs is not the agent's, but slows it.

use std::collections::BTreeMap;
use std::net::TcpListener;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use aya::maps::{HashMap, Map, MapData};
use egret_common::ABI_VERSION;
use egret_common::net::Addr;
use egret_tests::agent::Agent;
use egret_tests::apiserver::ApiServer;
use egret_tests::apiserver::town::{self, Town, at_rate};
use egret_tests::netns::{World, WorldBuilder};
use nix::sys::signal::Signal;

use super::process::Process;
use super::stats::quantile;
use super::table::Table;

/// The cluster that changes, and the one that is only read.
const BUSY: Town = Town { pods: 5_000, nodes: 100 };
const LARGE: Town = Town { pods: 50_000, nodes: 500 };
/// Changes per second.
const LABELS: f64 = 200.0;
const PODS: f64 = 50.0;
/// For so many seconds.
const SECONDS: u64 = 30;
/// Between two looks at the kernel's map.
const LOOK: Duration = Duration::from_micros(500);
/// A change that took longer is lost.
const LOST: Duration = Duration::from_secs(10);

/// An agent beside a town.
struct Scene {
    agent: Agent,
    api: ApiServer,
    _world: World,
    /// From the start of the process to the probe's first yes.
    ready: Duration,
}

/// Changes whose effect was not seen yet, by address: what the address was, and since when it is something else.
type Pending = BTreeMap<Addr, (Option<u32>, Instant)>;

impl Scene {
    fn new(town: &Town, policies: bool) -> Self {
        let world = WorldBuilder::new().ns("h").build();
        let listener = world.ns("h").run(|| TcpListener::bind("127.0.0.1:0")).expect("bound");
        let api = ApiServer::on(listener);
        town.settle(&api);
        if policies {
            (0..100).for_each(|namespace| api.apply(&policies_of(namespace)));
        }
        let mut agent = Agent::new(&world, "h").of(&api).node(&town::node_name(0));
        let begun = Instant::now();
        agent.start();
        Self { agent, api, _world: world, ready: begun.elapsed() }
    }

    fn process(&self) -> Process {
        Process(self.agent.process().pid())
    }
}

/// Default deny, the own namespace, and for each application those of its name in all namespaces.
fn policies_of(namespace: u32) -> String {
    let name = town::namespace(namespace);
    let metadata = |policy: &str| format!("{{name: {policy}, namespace: {name}}}");
    let head = "apiVersion: networking.k8s.io/v1\nkind: NetworkPolicy\nmetadata: ";
    let mut text = format!(
        "{head}{}\nspec: {{podSelector: {{}}, policyTypes: [Ingress, Egress], ingress: [{{from: [{{podSelector: {{}}}}]}}], \
         egress: [{{to: [{{podSelector: {{}}}}]}}]}}\n",
        metadata("own")
    );
    for app in 0..20 {
        let selector = format!("{{matchLabels: {{app.kubernetes.io/name: app-{app:02}}}}}");
        text += &format!(
            "---\n{head}{}\nspec: {{podSelector: {selector}, ingress: [{{from: [{{namespaceSelector: {{}}, podSelector: \
             {selector}}}], ports: [{{port: 8080}}]}}]}}\n",
            metadata(&format!("app-{app:02}"))
        );
    }
    text
}

pub(super) fn run() -> Table {
    let mut table = Table::new(
        "churn: an API server with a cluster that changes, and an agent beside it",
        ["", "p50 ms", "p99 ms", "lost", "wanted", "verdict"],
    );
    let large = Scene::new(&LARGE, false);
    let (ready, peak) = (large.ready, large.process().memory("VmHWM:"));
    drop(large);
    let mut scene = Scene::new(&BUSY, true);
    let map = identities(&scene);
    let settled = scene.process().memory("VmRSS:");
    let pending = [const { Mutex::new(Pending::new()) }; 2];
    let (times, cpu) = measured(&scene, &map, &pending);
    for (what, (mut seen, lost)) in ["label changes, 200/s", "pods made, 50/s"].into_iter().zip(times) {
        seen.sort_unstable();
        let ms = |share| quantile(&seen, share) as f64 / 1000.0;
        let met = if lost == 0 && ms(0.99) < 250.0 { "met" } else { "over" };
        table.row([
            what.into(),
            format!("{:.1}", ms(0.5)),
            format!("{:.1}", ms(0.99)),
            lost.to_string(),
            "p99 250".into(),
            met.into(),
        ]);
    }
    let met = |good: bool| if good { "met" } else { "over" };
    let (cores, resident) = (cpu.as_secs_f64() / SECONDS as f64, scene.process().memory("VmHWM:"));
    table.note(format!("agent: {cores:.2} cores (wanted 0.5: {})", met(cores < 0.5)));
    table.note(format!(
        "agent: {settled} MiB at rest, {resident} MiB at most (wanted 200: {})",
        met(resident < 200)
    ));
    table.note(format!(
        "first lists of {} pods: {:.1} s (wanted 10: {}), {peak} MiB at most (wanted 300: {})",
        LARGE.pods,
        ready.as_secs_f64(),
        met(ready < Duration::from_secs(10)),
        met(peak < 300),
    ));
    let status = scene.agent.json(&["status"]);
    table.note(format!(
        "{} pods on {} nodes, {} of them on the agent's, {} identities, {} policies, for {SECONDS} s",
        BUSY.pods, BUSY.nodes, status["endpoints"], status["identities"], status["policies"]
    ));
    scene.agent.end(Signal::SIGTERM);
    table
}

type Identities = HashMap<MapData, Addr, u32>;

fn identities(scene: &Scene) -> Identities {
    let path = scene.agent.pins().join(format!("v{ABI_VERSION}")).join("IDENTITIES");
    let map = MapData::from_pin(&path).unwrap_or_else(|error| panic!("{path:?}: {error}"));
    HashMap::try_from(Map::HashMap(map)).expect("a hash")
}

fn address(number: u32) -> Addr {
    Addr::from_v4(town::address(number).octets())
}

/// Microseconds from a change to the kernel, with the number of those that were never seen.
type Seen = (Vec<u64>, usize);

/// Changes labels and pods; gives what was seen of both, and the agent's processor time.
fn measured(scene: &Scene, map: &Identities, pending: &[Mutex<Pending>; 2]) -> ([Seen; 2], Duration) {
    let over = AtomicBool::new(false);
    let note = |of: usize, number: u32| {
        let (addr, begun) = (address(number), Instant::now());
        let before = map.get(&addr, 0).ok();
        pending[of].lock().expect("a lock").insert(addr, (before, begun));
    };
    let before = scene.process().cpu();
    let api = &scene.api;
    let seen = thread::scope(|scope| {
        let watcher = scope.spawn(|| watch(map, pending, &over));
        let labels = scope.spawn(|| {
            at_rate(LABELS, LABELS as u64 * SECONDS, |n| {
                // Every pod in turn, so that each has settled before it changes again.
                let (number, release) = (n as u32 % BUSY.pods, n as u32 / BUSY.pods + 1);
                note(0, number);
                BUSY.relabel(api, number, release);
            })
        });
        let pods = scope.spawn(|| {
            at_rate(PODS, PODS as u64 * SECONDS, |n| {
                let number = BUSY.pods + n as u32;
                note(1, number);
                BUSY.add(api, number);
                // As many go as come.
                if n >= 100 {
                    BUSY.remove(api, number - 100);
                }
            })
        });
        labels.join().expect("no panic");
        pods.join().expect("no panic");
        over.store(true, Ordering::Relaxed);
        watcher.join().expect("no panic")
    });
    (seen, scene.process().cpu() - before)
}

/// Looks until nothing is pending and nothing more will be.
fn watch(map: &Identities, pending: &[Mutex<Pending>; 2], over: &AtomicBool) -> [Seen; 2] {
    let mut seen = [const { (Vec::new(), 0) }; 2];
    loop {
        let last = over.load(Ordering::Relaxed);
        let mut waiting = 0;
        for (of, pending) in pending.iter().enumerate() {
            let mut pending = pending.lock().expect("a lock");
            pending.retain(|addr, (before, begun)| {
                let (now, waited) = (map.get(addr, 0).ok(), begun.elapsed());
                if now != *before {
                    seen[of].0.push(u64::try_from(waited.as_micros()).unwrap_or(u64::MAX));
                    return false;
                }
                seen[of].1 += usize::from(waited >= LOST);
                waited < LOST
            });
            waiting += pending.len();
        }
        if last && waiting == 0 {
            return seen;
        }
        thread::sleep(LOOK);
    }
}
