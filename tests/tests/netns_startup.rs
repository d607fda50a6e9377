//! Pods that start before anybody knows them: the cgroup above all pods (DESIGN 3.1; CASES K-A13).

use std::fs;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::time::Duration;

use egret_tests::agent::Agent;
use egret_tests::exec::{Cmd, Place};
use egret_tests::netns::{World, WorldBuilder};
use egret_tests::{residue, wait};
use nix::sys::signal::Signal;

const LIMIT: Duration = Duration::from_secs(10);
const UIDS: [&str; 4] = ["11", "22", "33", "44"];

/// A tree of pods as the systemd driver makes it, removed when dropped.
struct Kubepods {
    top: PathBuf,
}

impl Kubepods {
    fn new() -> Self {
        let top = residue::cgroup2().expect("cgroup v2").join(format!("eg-kube-{}", std::process::id()));
        let tree = Self { top };
        UIDS.iter().for_each(|uid| fs::create_dir_all(tree.pod(uid)).expect("a cgroup"));
        tree
    }

    /// Of two classes of service: one stands a level above the other.
    fn pod(&self, uid: &str) -> PathBuf {
        let root = self.top.join("kubepods.slice");
        match uid {
            "44" => root.join(format!("kubepods-pod{uid}.slice")),
            _ => root.join(format!("kubepods-burstable.slice/kubepods-burstable-pod{uid}.slice")),
        }
    }

    /// Below the mount.
    fn option(&self) -> String {
        let name = self.top.file_name().expect("a name").to_string_lossy();
        format!("{name}/kubepods.slice")
    }
}

impl Drop for Kubepods {
    fn drop(&mut self) {
        let burstable = self.top.join("kubepods.slice/kubepods-burstable.slice");
        let pods = UIDS.map(|uid| self.pod(uid));
        for dir in pods.into_iter().chain([burstable, self.top.join("kubepods.slice"), self.top.clone()]) {
            if wait::until(LIMIT, || fs::remove_dir(&dir).ok()).is_none() {
                eprintln!("{dir:?} stays");
            }
        }
    }
}

fn pod(name: &str, uid: &str, ip: &str) -> String {
    format!(
        "apiVersion: v1\nkind: Pod\nmetadata: {{name: {name}, namespace: shop, uid: '{uid}', labels: {{app: {name}}}}}\n\
         spec: {{nodeName: n1}}\nstatus: {{phase: Running, podIPs: [{{ip: {ip}}}]}}\n"
    )
}

const POLICY: &str = "\
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {name: a, namespace: shop}
spec:
  podSelector: {matchLabels: {app: a}}
  policyTypes: [Egress]
  egress: [{to: [{ipBlock: {cidr: 10.8.2.2/32}}], ports: [{port: 8080}]}]
";

/// Whether a process at this place reaches the server's port.
fn reaches(place: &Place, port: u16) -> bool {
    let line = format!("exec 3<>/dev/tcp/10.8.2.2/{port}");
    place.run(&Cmd::new(["timeout", "1", "bash", "-c", &line])).success()
}

#[track_caller]
fn expect(agent: &Agent, place: &Place, want: [bool; 2], why: &str) {
    let tried = || [reaches(place, 8080), reaches(place, 8081)];
    let seen = wait::until(wait::patient(LIMIT), || (tried() == want).then_some(()));
    assert!(seen.is_some(), "{why}: {:?}\n{:#}\n{}", tried(), agent.json(&["status"]), agent.said());
}

fn start(world: &World, tree: &Kubepods, more: &[&str]) -> Agent {
    let option = tree.option();
    Agent::new(world, "h").args(&[&["--kubepods", &option], more].concat())
}

#[test]
fn k_a13_a_pod_that_nobody_knows_yet_is_denied_from_its_first_packet() {
    let (world, tree) = (WorldBuilder::node().build(), Kubepods::new());
    let listen = |port| world.ns("b").run(|| TcpListener::bind(("10.8.2.2", port))).expect("bound");
    let _servers = [8080, 8081].map(listen);
    let inside = |ns: &str, uid: &str| world.place(ns).cgroup(&tree.pod(uid));
    let (unknown, chosen, other, guaranteed) =
        (inside("a", "11"), inside("a", "22"), inside("b", "33"), inside("a", "44"));
    let host = inside("h", "11");

    let mut agent = start(&world, &tree, &[]);
    agent.start();
    expect(&agent, &unknown, [true, true], "no policy holds anything back");
    agent.put("policy.yaml", POLICY);
    expect(&agent, &unknown, [false, false], "it may be the pod that the policy is about");
    expect(&agent, &guaranteed, [false, false], "a level above the others");
    expect(&agent, &host, [true, true], "the node's own network does not depend on the agent");
    expect(&agent, &world.place("a"), [true, true], "no pod of the kubelet's");
    assert!(agent.json(&["status"])["unknown_drops"].as_u64().expect("a number") > 0);

    // Known and not selected: nothing is lost, whether or not its interface is found by the processes that try.
    expect(&agent, &other, [false, false], "not known yet");
    agent.put("other.yaml", &pod("other", "33", "10.8.2.2"));
    expect(&agent, &other, [true, true], "selected by nobody");
    agent.put("chosen.yaml", &pod("a", "22", "10.8.1.2"));
    expect(&agent, &chosen, [false, false], "selected, and not found yet");
    let _process = chosen.spawn(&Cmd::new(["sleep", "600"]));
    agent.expect_ready("shop/a");
    expect(&agent, &chosen, [true, false], "held at its interface, by its policy");

    agent.end(Signal::SIGKILL);
    assert!(!reaches(&unknown, 8080), "without an agent");
    assert!(reaches(&chosen, 8080) && !reaches(&chosen, 8081), "without an agent");
    agent.start();
    assert!(!reaches(&unknown, 8080) && reaches(&chosen, 8080), "with the next agent");
    agent.remove("chosen.yaml");
    expect(&agent, &chosen, [false, false], "nobody's again");
    agent.end(Signal::SIGTERM);
    // 75: runs of other tests hold something.
    assert!(matches!(agent.uninstall().code, Some(0 | 75)));
    assert!(reaches(&unknown, 8081), "uninstalled");
}

#[test]
fn the_mode_can_be_said() {
    let (world, tree) = (WorldBuilder::node().build(), Kubepods::new());
    let _server = world.ns("b").run(|| TcpListener::bind("10.8.2.2:8080")).expect("bound");
    let place = |ns: &str| world.place(ns).cgroup(&tree.pod("11"));
    let mut agent = start(&world, &tree, &["--startup", "deny"]);
    agent.start();
    assert!(!reaches(&place("a"), 8080) && !reaches(&place("h"), 8080), "deny");
    agent.end(Signal::SIGKILL);
    agent.put("policy.yaml", POLICY);
    agent.set_args(&["--kubepods", &tree.option(), "--startup", "allow"]);
    agent.start();
    assert!(reaches(&place("a"), 8080), "allow: {}", agent.said());
    assert!(Path::new(agent.pins()).exists());
}
