//! Two nodes with an agent each, a routed link between them, pods on both, one API server: what a policy says about pods
//! of other nodes (CASES K at level C).
//!
//! ```text
//!  a 10.8.1.2 ── va ┐                              ┌ vb ── b 10.8.2.2
//!                   n1 10.9.0.1 ──── 10.9.0.2 n2 ──┤
//!                   └ API server                   └ vc ── c 10.8.3.2
//! ```

use std::collections::BTreeSet;
use std::fs;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::time::Duration;

use egret_tests::agent::Agent;
use egret_tests::apiserver::{ApiServer, Crd};
use egret_tests::egret::{binary, kubectl};
use egret_tests::exec::Cmd;
use egret_tests::netns::{World, WorldBuilder};
use egret_tests::wait;
use nix::sys::signal::Signal;

const LIMIT: Duration = Duration::from_secs(20);
/// Name, node, address.
const PODS: [(&str, &str, &str); 3] =
    [("a", "n1", "10.8.1.2"), ("b", "n2", "10.8.2.2"), ("c", "n2", "10.8.3.2")];

fn pod(name: &str, app: &str) -> String {
    let (_, node, ip) = PODS.into_iter().find(|(known, ..)| *known == name).expect("a pod of the scene");
    format!(
        "apiVersion: v1\nkind: Pod\nmetadata:\n  name: {name}\n  namespace: shop\n  labels: {{app: {app}}}\n  annotations: \
         {{egret.dev/interface: v{name}}}\nspec:\n  nodeName: {node}\n  containers: [{{name: c, ports: [{{name: web, \
         containerPort: {}}}]}}]\nstatus: {{phase: Running, podIPs: [{{ip: {ip}}}]}}\n",
        if name == "b" { 8080 } else { 8081 }
    )
}

fn node(name: &str, ip: &str) -> String {
    format!(
        "apiVersion: v1\nkind: Node\nmetadata: {{name: {name}}}\nstatus: {{addresses: [{{type: InternalIP, address: {ip}}}]}}\n"
    )
}

struct Scene {
    agents: [Agent; 2],
    api: ApiServer,
    _servers: Vec<TcpListener>,
    world: World,
}

impl Scene {
    fn new() -> Self {
        let mut builder = WorldBuilder::new().ns("n1").ns("n2");
        builder = builder.veth(("n1", "up0"), ("n2", "up0"));
        for (node, own, far, nets) in [
            ("n1", "10.9.0.1", "10.9.0.2", &["10.8.2.0/24", "10.8.3.0/24"][..]),
            ("n2", "10.9.0.2", "10.9.0.1", &["10.8.1.0/24"]),
        ] {
            builder =
                builder.sysctl(node, "net/ipv4/ip_forward", "1").address(node, "up0", &format!("{own}/24"));
            for net in nets {
                builder = builder.ip(node, &format!("route add {net} via {far}"));
            }
        }
        for (name, node, ip) in PODS {
            let gateway = format!("{}.1", ip.rsplit_once('.').expect("an address").0);
            let veth = format!("v{name}");
            builder = builder
                .ns(name)
                .veth((node, &veth), (name, "eth0"))
                .address(node, &veth, &format!("{gateway}/24"))
                .address(name, "eth0", &format!("{ip}/24"))
                .ip(name, &format!("route add default via {gateway}"));
        }
        let world = builder.build();
        let listener = world.ns("n1").run(|| TcpListener::bind("10.9.0.1:0")).expect("bound");
        let api = ApiServer::on(listener);
        api.apply("{apiVersion: v1, kind: Namespace, metadata: {name: shop}}");
        api.apply(&node("n1", "10.9.0.1"));
        api.apply(&node("n2", "10.9.0.2"));
        PODS.iter().for_each(|(name, ..)| api.apply(&pod(name, name)));
        let servers = PODS.iter().flat_map(|(name, _, ip)| {
            [8080, 8081].map(|port| world.ns(name).run(|| TcpListener::bind((*ip, port))).expect("bound"))
        });
        let servers = servers.collect();
        let mut agents =
            ["n1", "n2"].map(|n| Agent::new(&world, n).of(&api).node(n).args(&["--trust-annotations"]));
        agents.iter_mut().for_each(Agent::start);
        for (name, node, _) in PODS {
            agents[usize::from(node == "n2")].expect_ready(&format!("shop/{name}"));
        }
        Self { agents, api, _servers: servers, world }
    }

    fn connects(&self, from: &str, to: &str, port: u16) -> bool {
        let ip = PODS.iter().find(|(name, ..)| *name == to).map_or(to, |(.., ip)| ip);
        let address: SocketAddr = format!("{ip}:{port}").parse().expect("an address");
        self.world.ns(from).run(|| TcpStream::connect_timeout(&address, Duration::from_millis(300))).is_ok()
    }

    /// Each `(from, to, port, reachable)` holds, within a while.
    #[track_caller]
    fn expect(&self, want: &[(&str, &str, u16, bool)], why: &str) {
        let wrong = || -> Vec<_> {
            want.iter().filter(|(from, to, port, reach)| self.connects(from, to, *port) != *reach).collect()
        };
        let held = wait::until(wait::patient(LIMIT), || wrong().is_empty().then_some(()));
        let told = || self.agents.each_ref().map(|agent| agent.json(&["policy", "get"]));
        assert!(held.is_some(), "{why}: {:?}: {:#?}", wrong(), told());
    }
}

const INGRESS: &str = "\
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {name: b, namespace: shop}
spec:
  podSelector: {matchLabels: {app: b}}
  ingress: [{from: [{podSelector: {matchLabels: {app: a}}}], ports: [{port: 8080}]}]
";

#[test]
fn k_a08_a_peer_on_another_node_is_known_by_its_labels() {
    let scene = Scene::new();
    scene.expect(
        &[("a", "b", 8080, true), ("a", "c", 8080, true), ("c", "b", 8080, true)],
        "nothing isolates",
    );
    scene.api.apply(INGRESS);
    let open =
        [("a", "b", 8080, true), ("a", "b", 8081, false), ("c", "b", 8080, false), ("a", "c", 8080, true)];
    scene.expect(&open, "by label");
    scene.api.apply(&pod("a", "other"));
    scene.expect(&[("a", "b", 8080, false)], "another label on the other node");
    scene.api.apply(&pod("a", "a"));
    scene.expect(&open, "the label is back");
    // Egress at the other end of the same link.
    scene.api.apply(
        "{apiVersion: networking.k8s.io/v1, kind: NetworkPolicy, metadata: {name: a, namespace: shop}, spec: {podSelector: \
         {matchLabels: {app: a}}, policyTypes: [Egress], egress: [{to: [{podSelector: {}}], ports: [{port: web}]}]}}",
    );
    let named = [("a", "b", 8080, true), ("a", "c", 8080, false), ("a", "c", 8081, true)];
    scene.expect(&named, "K-A04: a named port is each pod's own, on whatever node");
}

#[test]
fn k_a06_a_node_reaches_its_own_pods_and_no_other_nodes() {
    let mut scene = Scene::new();
    scene.api.apply(INGRESS);
    let host = [("n2", "b", 8080, true), ("n1", "b", 8080, false), ("a", "b", 8080, true)];
    scene.expect(&host, "probes come from the pod's own node");
    scene.api.install(Crd::CiliumNetworkPolicy);
    scene.api.apply(
        "{apiVersion: cilium.io/v2, kind: CiliumNetworkPolicy, metadata: {name: nodes, namespace: shop}, spec: {endpointSelector: \
         {matchLabels: {app: b}}, ingress: [{fromEntities: [remote-node]}]}}",
    );
    let held = wait::until(Duration::from_secs(60), || scene.connects("n1", "b", 8080).then_some(()));
    assert!(held.is_some(), "remote-node: {}", scene.agents[1].json(&["policy", "get"]));
    // One agent away: its pods stay held, the other node goes on.
    scene.agents[1].end(Signal::SIGKILL);
    scene.api.apply(&pod("a", "other"));
    scene.expect(&[("c", "b", 8080, false), ("a", "b", 8080, true)], "the last state stays in force");
    scene.agents[1].start();
    scene.expect(&[("a", "b", 8080, false), ("n2", "b", 8080, true)], "what happened meanwhile");
}

/// An agent's pod, as the DaemonSet makes it.
fn agent_pod(node: &str) -> String {
    format!(
        "apiVersion: v1\nkind: Pod\nmetadata:\n  name: egret-{node}\n  namespace: kube-system\n  labels: \
         {{app.kubernetes.io/name: egret, app.kubernetes.io/component: agent}}\nspec: {{nodeName: {node}, hostNetwork: true}}\n\
         status: {{phase: Running}}\n"
    )
}

/// The plugin, a real kubectl and the double. Only the way into a pod is a stand-in: there is no kubelet to take it.
#[test]
fn the_plugin_asks_the_agent_of_a_pods_node_and_says_which() {
    let Some(kubectl) = kubectl() else { panic!("no kubectl: `cargo xtask setup` puts it there") };
    let scene = Scene::new();
    ["n1", "n2"].iter().for_each(|node| scene.api.apply(&agent_pod(node)));
    let dir = scene.world.dir().join("plugin");
    fs::create_dir_all(&dir).expect("a folder");
    std::os::unix::fs::symlink(binary(), dir.join("kubectl-egret")).expect("a link");
    let config = dir.join("config");
    fs::write(&config, scene.api.kubeconfig()).expect("written");
    let sockets = scene.agents.each_ref().map(|agent| agent.socket().display().to_string());
    let script = format!(
        "#!/bin/bash\nset -e\ncase \" $* \" in\n*' exec '*' -- egret '*)\n  case \"$*\" in *egret-n1*) s={};; *) s={};; esac\n  \
         while [ \"$1\" != -- ]; do shift; done; shift 2\n  exec {} \"$@\" --socket $s;;\n*) exec {} \"$@\";;\nesac\n",
        sockets[0],
        sockets[1],
        binary().display(),
        kubectl.display()
    );
    let shim = dir.join("kubectl");
    fs::write(&shim, script).expect("written");
    fs::set_permissions(&shim, fs::Permissions::from_mode(0o755)).expect("executable");
    let place = scene.world.place("n1");
    let ask = |args: &[&str]| {
        let program = dir.join("kubectl-egret").display().to_string();
        let (home, path) = (dir.display().to_string(), std::env::var("PATH").unwrap_or_default());
        let cmd = Cmd::new([&[program.as_str()], args].concat()).env("PATH", &format!("{home}:{path}"));
        place.run(&cmd.env("KUBECONFIG", &config.display().to_string()).env("HOME", &home))
    };
    let of_b = ask(&["-n", "shop", "--pod", "b", "endpoint", "list", "-o", "json"]);
    assert!(of_b.success() && of_b.stderr.contains("node n2: kube-system/egret-n2"), "{of_b:#?}");
    let pods: serde_json::Value = serde_json::from_str(&of_b.stdout).expect("JSON");
    let names: BTreeSet<_> =
        pods.as_array().expect("a list").iter().filter_map(|e| e["pod"].as_str()).collect();
    assert_eq!(names, ["kube-system/egret-n2", "shop/b", "shop/c"].into());
    let of_a = ask(&["--pod", "shop/a", "status"]);
    assert!(of_a.stderr.contains("node n1") && of_a.stdout.contains("1 of 2 ready"), "{of_a:#?}");
    let all = ask(&["status", "--probe", "ready"]);
    assert!(all.success() && all.stderr.contains("node n1") && all.stderr.contains("node n2"), "{all:#?}");
    let none = ask(&["--node", "n3", "status"]);
    assert!(none.code == Some(69) && none.stderr.contains("no agent runs on node n3"), "{none:#?}");
    let gone = ask(&["-n", "shop", "--pod", "nobody", "status"]);
    assert!(gone.code == Some(69) && gone.stderr.contains("NotFound"), "{gone:#?}");
    // What somebody else labels so is not asked: its answers would be his.
    scene.api.apply(&agent_pod("n1").replace("kube-system", "shop"));
    assert!(!ask(&["status", "--probe", "live"]).stderr.contains("shop/"));
}
