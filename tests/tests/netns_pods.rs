//! Pods behind interfaces, held by the agent: objects in, packets through or not.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::time::Duration;

use egret::datapath::tc::{Method, Place, TcHook};
use egret_tests::agent::Agent;
use egret_tests::netns::{World, WorldBuilder};
use egret_tests::policy::{A_DENIED as DENY, A_TO_B as ALLOW};
use egret_tests::wait;
use nix::sys::signal::Signal;

const SERVER: &str = "10.8.2.2:8080";
const LIMIT: Duration = Duration::from_secs(5);

fn pod(name: &str, ip: &str, annotation: &str) -> String {
    format!(
        "apiVersion: v1\nkind: Pod\nmetadata:\n  name: {name}\n  namespace: shop\n  uid: uid-{name}\n  \
         labels: {{app: {name}}}\n  annotations: {{{annotation}}}\nspec: {{nodeName: n1}}\n\
         status: {{phase: Running, podIPs: [{{ip: {ip}}}]}}\n"
    )
}

/// An agent that holds both pods: one found by its interface, one by its namespace.
fn hold(world: &World) -> Agent {
    let mut agent = Agent::new(world, "h");
    agent.put("a.yaml", &pod("a", "10.8.1.2", "egret.dev/interface: va"));
    agent.put("b.yaml", &pod_b(world, "b"));
    agent.start();
    agent.expect_ready("shop/a");
    agent.expect_ready("shop/b");
    agent
}

fn pod_b(world: &World, app: &str) -> String {
    let annotation = format!("egret.dev/netns: {}", world.ns("b").name());
    pod("b", "10.8.2.2", &annotation).replace("{app: b}", &format!("{{app: {app}}}"))
}

fn connect(world: &World) -> Option<TcpStream> {
    let address: SocketAddr = SERVER.parse().expect("an address");
    world.ns("a").run(|| TcpStream::connect_timeout(&address, Duration::from_millis(300))).ok()
}

#[track_caller]
fn expect(world: &World, reachable: bool, why: &str) {
    let seen = wait::until(wait::patient(LIMIT), || (connect(world).is_some() == reachable).then_some(()));
    assert!(seen.is_some(), "{why}: {}", if reachable { "not reachable" } else { "still reachable" });
}

fn listen(world: &World) -> TcpListener {
    world.ns("b").run(|| TcpListener::bind(SERVER)).expect("bound")
}

fn programs(world: &World, pins: &Path, device: &str) -> usize {
    world.ns("h").run(|| {
        let ifindex = nix::net::if_::if_nametoindex(device).expect("plugged in");
        let method = Method::of_kernel();
        let chain = |hook| Place { ifindex, hook, pins, method }.chain().expect("asked").len();
        TcHook::ALL.into_iter().map(chain).sum()
    })
}

fn echo(client: &mut TcpStream, server: &mut TcpStream) -> std::io::Result<()> {
    let mut buffer = [0; 4];
    client.set_read_timeout(Some(LIMIT))?;
    server.set_read_timeout(Some(LIMIT))?;
    client.write_all(b"ping")?;
    server.read_exact(&mut buffer)?;
    server.write_all(&buffer)?;
    client.read_exact(&mut buffer)
}

#[test]
fn k_a08_policies_and_labels_are_in_force_within_moments() {
    let world = WorldBuilder::node().build();
    let agent = hold(&world);
    let _server = listen(&world);
    expect(&world, true, "nothing isolates");
    agent.put("deny.yaml", DENY);
    expect(&world, false, "default deny");
    agent.put("allow.yaml", ALLOW);
    expect(&world, true, "allowed by label");
    agent.put("b.yaml", &pod_b(&world, "other"));
    expect(&world, false, "another label, another identity");
    agent.put("b.yaml", &pod_b(&world, "b"));
    expect(&world, true, "the label is back");
    agent.put("allow.yaml", &ALLOW.replace("8080", "8081"));
    expect(&world, false, "another port");

    let list = agent.json(&["endpoint", "list"]);
    assert_eq!(
        (list[0]["egress"].as_str(), list[0]["ingress"].as_str()),
        (Some("Enabled"), Some("Disabled"))
    );
    let id = list[0]["id"].to_string();
    let one = agent.json(&["endpoint", "get", &id]);
    let dropped = one["counters"].as_array().expect("a list").iter().any(|c| c["reason"] == "NoRule");
    assert!(dropped && one["pod"] == "shop/a", "{one:#}");
    let policies = agent.json(&["policy", "get"]);
    assert_eq!(policies["policies"][0]["selects"][0], "shop/a", "{policies:#}");
    assert!(agent.ask(&["identity", "list"]).stdout.contains("k8s:app=b"));
    let dump = agent.ask(&["bpf", "dump", "ENDPOINT_BY_IFINDEX"]);
    assert_eq!(dump.expect_success().stdout.lines().count(), 3, "{dump:#?}");
}

#[test]
fn l_a01_a_killed_agent_leaves_pods_held_and_the_next_takes_over() {
    let world = WorldBuilder::node().build();
    let mut agent = hold(&world);
    agent.put("deny.yaml", DENY);
    agent.put("allow.yaml", ALLOW);
    let server = listen(&world);
    expect(&world, true, "allowed by label");
    let mut client = connect(&world).expect("reachable");
    let mut other = loop {
        let (stream, peer) = server.accept().expect("accepted");
        if peer == client.local_addr().expect("connected") {
            break stream;
        }
    };
    echo(&mut client, &mut other).expect("before");
    let before = agent.json(&["endpoint", "list"]);
    agent.end(Signal::SIGKILL);
    echo(&mut client, &mut other).expect("without an agent");
    assert!(connect(&world).is_some(), "allowed stays allowed");
    drop(server);
    agent.start();
    echo(&mut client, &mut other).expect("with the next agent");
    assert!(agent.json(&["status"])["adopted"].as_bool().expect("a flag"));
    let after = agent.json(&["endpoint", "list"]);
    let ids = |list: &serde_json::Value| {
        let all = list.as_array().expect("a list");
        all.iter().map(|e| (e["id"].clone(), e["identity"].clone())).collect::<Vec<_>>()
    };
    assert_eq!(ids(&before), ids(&after));
    assert_eq!((programs(&world, agent.pins(), "va"), programs(&world, agent.pins(), "vb")), (2, 2));
    agent.end(Signal::SIGKILL);
    agent.remove("allow.yaml");
    assert!(client.write_all(b"x").is_ok());
    agent.start();
    let _server = listen(&world);
    expect(&world, false, "what changed meanwhile is in force");
}

#[test]
fn l_a02_a_pod_that_goes_or_comes_back_elsewhere_is_let_go_of_and_held_again() {
    let world = WorldBuilder::node().build();
    let agent = hold(&world);
    agent.put("deny.yaml", DENY);
    let _server = listen(&world);
    expect(&world, false, "default deny");
    agent.remove("a.yaml");
    expect(&world, true, "nobody's pod");
    // One program is taken off after the other.
    let off = || (programs(&world, agent.pins(), "va") == 0).then_some(());
    assert!(wait::until(wait::patient(LIMIT), off).is_some());
    agent.put("a.yaml", &pod("a", "10.8.1.2", "egret.dev/interface: va"));
    expect(&world, false, "held again");
    // The interface is made anew under the same name: another number.
    let ns = world.ns("a").name().to_owned();
    world.ip("h", "link del va");
    world.ip("h", &format!("link add va type veth peer name eth0 netns {ns}"));
    for (ns, device, address) in [("h", "va", "10.8.1.1/24"), ("a", "eth0", "10.8.1.2/24")] {
        world.ip(ns, &format!("addr add {address} dev {device}"));
        world.ip(ns, &format!("link set {device} up"));
    }
    world.ip("a", "route add default via 10.8.1.1");
    let held = || (programs(&world, agent.pins(), "va") == 2).then_some(());
    assert!(wait::until(wait::patient(LIMIT), held).is_some(), "{}", agent.json(&["endpoint", "list"]));
    expect(&world, false, "held at the new interface");
}

const ONLY_API: &str = "\
apiVersion: cilium.io/v2
kind: CiliumNetworkPolicy
metadata: {name: web, namespace: shop}
spec:
  endpointSelector: {matchLabels: {app: web}}
  egress:
  - toEndpoints: [{matchLabels: {app: b}}]
    toPorts: [{ports: [{port: \"8080\", protocol: TCP}]}]
";

/// A cgroup below the mount, removed when dropped.
struct Service(std::path::PathBuf);

impl Service {
    fn new(name: &str) -> Self {
        let root = egret_tests::residue::cgroup2().expect("cgroup v2");
        let path = root.join(format!("eg-{name}-{}", std::process::id())).join("web.service");
        std::fs::create_dir_all(&path).expect("a cgroup");
        Self(path)
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        let gone = |path: &Path| wait::until(LIMIT, || std::fs::remove_dir(path).ok());
        if gone(&self.0).and_then(|()| gone(self.0.parent()?)).is_none() {
            eprintln!("{:?} stays", self.0);
        }
    }
}

#[test]
fn a_service_of_a_plain_host_is_held_by_its_cgroup() {
    let world = WorldBuilder::node().build();
    let service = Service::new("svc");
    let root = egret_tests::residue::cgroup2().expect("cgroup v2");
    let below = service.0.strip_prefix(&root).expect("below the mount").display().to_string();
    let mut agent = Agent::new(&world, "h");
    agent.put("web.yaml", &pod("web", "10.8.1.1", &format!("egret.dev/cgroup: {below}")));
    agent.put("b.yaml", &pod_b(&world, "b"));
    agent.put("policy.yaml", ONLY_API);
    agent.start();
    agent.expect_ready("shop/web");
    let _server = listen(&world);
    let _closed = world.ns("b").run(|| TcpListener::bind("10.8.2.2:8081")).expect("bound");
    let place = world.place("h").cgroup(&service.0);
    let try_port = |port: u16| {
        let line = format!("exec 3<>/dev/tcp/10.8.2.2/{port}");
        place.run(&egret_tests::exec::Cmd::new(["timeout", "1", "bash", "-c", &line])).success()
    };
    assert!(try_port(8080) && !try_port(8081), "{}", agent.json(&["endpoint", "list"]));
    let from = format!("/{below}");
    let told = agent.json(&["policy", "explain", "--from", &from, "--to", "10.8.2.2:8081"]);
    assert_eq!((&told["cause"]["code"], &told["verdict"]), (&"no-rule".into(), &"denied".into()), "{told:#}");
    // Not of the service: not held.
    let outside = world.place("h");
    let line = "exec 3<>/dev/tcp/10.8.2.2/8081";
    assert!(outside.run(&egret_tests::exec::Cmd::new(["timeout", "1", "bash", "-c", line])).success());
    agent.end(Signal::SIGKILL);
    assert!(try_port(8080) && !try_port(8081), "without an agent");
    agent.start();
    agent.expect_ready("shop/web");
    assert!(try_port(8080) && !try_port(8081), "with the next agent");
    agent.remove("web.yaml");
    assert!(wait::until(wait::patient(LIMIT), || try_port(8081).then_some(())).is_some(), "let go of");
}
