//! The agent beside an API server: every change in force, whatever becomes of the connection (CASES K, L at level C).

use std::fs;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::time::Duration;

use egret_tests::agent::Agent;
use egret_tests::apiserver::{ApiServer, Crd};
use egret_tests::exec::{Cmd, Place};
use egret_tests::netns::{World, WorldBuilder};
use egret_tests::policy::{A_DENIED as DENY, A_TO_B as ALLOW};
use egret_tests::{residue, wait};
use nix::sys::signal::Signal;

const SERVER: &str = "10.8.2.2:8080";
/// How long anything may take; the client library waits longer after each failure.
const LIMIT: Duration = Duration::from_secs(20);

fn pod(name: &str, app: &str, ip: &str, annotation: &str) -> String {
    format!(
        "apiVersion: v1\nkind: Pod\nmetadata:\n  name: {name}\n  namespace: shop\n  labels: {{app: {app}}}\n  annotations: \
         {{{annotation}}}\nspec: {{nodeName: n1}}\nstatus: {{phase: Running, podIPs: [{{ip: {ip}}}]}}\n"
    )
}

fn pod_b(app: &str) -> String {
    pod("b", app, "10.8.2.2", "egret.dev/interface: vb")
}

const CILIUM: &str = "\
apiVersion: cilium.io/v2
kind: CiliumNetworkPolicy
metadata: {name: to-b, namespace: shop}
spec:
  endpointSelector: {matchLabels: {app: a}}
  egress: [{toEndpoints: [{matchLabels: {app: b}}], toPorts: [{ports: [{port: '8080'}]}]}]
";

/// Two pods behind a node, a server in one, an API server on the node's loopback.
struct Scene {
    agent: Agent,
    api: ApiServer,
    _server: TcpListener,
    world: World,
}

impl Scene {
    fn new(args: &[&str]) -> Self {
        let world = WorldBuilder::node().build();
        let listener = world.ns("h").run(|| TcpListener::bind("127.0.0.1:0")).expect("bound");
        let api = ApiServer::on(listener);
        api.apply("{apiVersion: v1, kind: Namespace, metadata: {name: shop}}");
        api.apply(&pod("a", "a", "10.8.1.2", "egret.dev/interface: va"));
        api.apply(&pod_b("b"));
        let server = world.ns("b").run(|| TcpListener::bind(SERVER)).expect("bound");
        let agent = Agent::new(&world, "h").of(&api).args(args);
        Self { agent, api, _server: server, world }
    }

    fn started() -> Self {
        let mut scene = Self::new(&["--trust-annotations"]);
        scene.agent.start();
        scene.agent.expect_ready("shop/a");
        scene.agent.expect_ready("shop/b");
        scene
    }

    fn connects(&self) -> bool {
        let address: SocketAddr = SERVER.parse().expect("an address");
        self.world.ns("a").run(|| TcpStream::connect_timeout(&address, Duration::from_millis(300))).is_ok()
    }

    #[track_caller]
    fn expect(&self, reachable: bool, why: &str) {
        let seen = wait::until(wait::patient(LIMIT), || (self.connects() == reachable).then_some(()));
        let told = || (self.agent.json(&["status"]), self.agent.said());
        assert!(
            seen.is_some(),
            "{why}: {}: {:#?}",
            if reachable { "not reachable" } else { "reachable" },
            told()
        );
    }

    #[track_caller]
    fn expect_told(&self, what: &str, want: bool) {
        let told = || self.agent.json(&["policy", "get"])["diagnostics"].to_string();
        let seen = wait::until(wait::patient(LIMIT), || (told().contains(what) == want).then_some(()));
        assert!(seen.is_some(), "{what}: {}", told());
    }
}

#[test]
fn k_a08_what_the_server_has_is_in_force_within_moments() {
    let scene = Scene::started();
    scene.expect(true, "nothing isolates");
    scene.api.apply(DENY);
    scene.expect(false, "default deny");
    scene.api.apply(ALLOW);
    scene.expect(true, "allowed by label");
    scene.api.apply(&pod_b("other"));
    scene.expect(false, "another label, another identity");
    scene.api.apply(&pod_b("b"));
    scene.expect(true, "the label is back");
    scene.api.delete("NetworkPolicy", "shop", "to-b");
    scene.expect(false, "the policy is gone");
    scene.api.delete("NetworkPolicy", "shop", "deny");
    scene.expect(true, "nothing isolates any more");
    let agents: Vec<String> = scene.api.requests().into_iter().map(|r| r.user_agent).collect();
    assert!(agents.iter().all(|agent| agent.starts_with("egret/")), "{agents:?}");
}

#[test]
fn l_a04_a_server_that_is_away_changes_nothing_and_is_caught_up_with() {
    let scene = Scene::started();
    scene.api.apply(DENY);
    scene.api.apply(ALLOW);
    scene.expect(true, "allowed by label");
    scene.api.set_refusing(true);
    scene.expect_told("Connection refused", false);
    // While it is away, one policy goes, and another pod's label.
    scene.api.delete("NetworkPolicy", "shop", "to-b");
    let trouble = || scene.agent.json(&["status"])["problems"].to_string().contains("NetworkPolicy");
    assert!(wait::until(wait::patient(LIMIT), || trouble().then_some(())).is_some(), "it is told");
    assert!(scene.agent.probe("live") && scene.agent.probe("ready"), "no reason to restart an agent");
    assert!(scene.connects(), "what was in force stays");
    scene.api.set_refusing(false);
    scene.expect(false, "what happened meanwhile is in force");
}

#[test]
fn l_a04_watches_that_break_off_or_are_too_old_miss_nothing() {
    let scene = Scene::started();
    scene.api.apply(DENY);
    scene.expect(false, "default deny");
    for plain in [false, true] {
        scene.api.set_gone_as_status(plain);
        scene.api.apply(ALLOW);
        scene.expect(true, "allowed by label");
        scene.api.drop_connections();
        scene.api.apply(&pod_b("other"));
        scene.expect(false, "a change after a broken connection");
        // Deleted while nobody watches, and forgotten: only another list can tell.
        scene.api.set_refusing(true);
        scene.api.delete("NetworkPolicy", "shop", "to-b");
        scene.api.apply(&pod_b("b"));
        scene.api.expire();
        scene.api.set_refusing(false);
        scene.expect(false, "deleted meanwhile");
        let only_deny = || {
            let policies = scene.agent.json(&["policy", "get"])["policies"].to_string();
            (!policies.contains("to-b")).then_some(())
        };
        assert!(wait::until(wait::patient(LIMIT), only_deny).is_some());
    }
}

#[test]
fn l_a04_an_agent_that_starts_without_a_server_leaves_everything_in_force() {
    let mut scene = Scene::started();
    scene.api.apply(DENY);
    scene.expect(false, "default deny");
    scene.agent.end(Signal::SIGKILL);
    scene.api.set_refusing(true);
    scene.agent.begin();
    assert!(!scene.agent.probe("ready"));
    let status = scene.agent.json(&["status"]);
    assert_eq!(status["state"], "starting", "{status:#}");
    assert!(status["problems"].to_string().contains("waits for the first list of"), "{status:#}");
    assert!(!scene.connects(), "what was in force stays");
    let list = scene.agent.ask(&["endpoint", "list"]);
    assert!(!list.success() && list.stderr.contains("does not know the cluster yet"), "{list:#?}");
    scene.api.delete("NetworkPolicy", "shop", "deny");
    scene.api.set_refusing(false);
    scene.agent.expect_probe("ready", true);
    scene.expect(true, "deleted meanwhile");
}

#[test]
fn kinds_that_come_later_are_picked_up_and_go_with_their_objects() {
    let scene = Scene::started();
    scene.api.apply(DENY);
    scene.expect(false, "default deny");
    for _ in 0..2 {
        scene.api.install(Crd::CiliumNetworkPolicy);
        scene.api.apply(CILIUM);
        let held = wait::until(Duration::from_secs(60), || scene.connects().then_some(()));
        assert!(held.is_some(), "{}", scene.agent.json(&["policy", "get"]));
        scene.api.uninstall(Crd::CiliumNetworkPolicy);
        scene.expect(false, "gone with its kind");
    }
}

#[test]
fn n_a03_a_bad_version_is_told_and_the_last_good_one_stays() {
    let scene = Scene::new(&["--trust-annotations"]);
    scene.api.install(Crd::CiliumNetworkPolicy);
    let Scene { mut agent, .. } = scene;
    scene.api.apply(CILIUM);
    agent.start();
    agent.expect_ready("shop/a");
    let scene = Scene { agent, ..scene };
    scene.expect(true, "allowed by label");
    scene.api.apply(&CILIUM.replace("toEndpoints", "toEndpoint"));
    scene.expect_told("spec.egress[0].toEndpoint", true);
    scene.expect_told("stays in force as it was read last", true);
    assert!(scene.connects());
    // A list, too, only names it.
    scene.api.drop_connections();
    scene.api.expire();
    scene.api.apply(DENY);
    let denied =
        || scene.agent.json(&["policy", "get"])["policies"].to_string().contains("shop/deny").then_some(());
    assert!(wait::until(wait::patient(LIMIT), denied).is_some());
    assert!(scene.connects(), "the union of both");
    scene.api.apply(&CILIUM.replace("8080", "8081"));
    scene.expect(false, "another port");
    scene.expect_told("toEndpoint:", false);
}

#[test]
fn annotations_of_pods_weaken_nothing_unless_they_are_trusted() {
    let mut scene = Scene::new(&[]);
    scene.api.apply(&pod("a", "a", "10.8.1.2", "egret.dev/interface: va, egret.dev/audit: 'true'"));
    scene.agent.start();
    let waits = || {
        let all = scene.agent.json(&["endpoint", "list"]);
        let all = all.as_array().expect("a list").clone();
        (all.len() == 2 && all.iter().all(|e| e["state"] == "waiting")).then_some(())
    };
    assert!(wait::until(LIMIT, waits).is_some(), "no place by annotation: {}", scene.agent.said());
    scene.agent.end(Signal::SIGTERM);
    scene.agent.set_args(&["--trust-annotations"]);
    scene.agent.start();
    scene.agent.expect_ready("shop/a");
    scene.api.apply(DENY);
    let audits = || {
        let all = scene.agent.json(&["endpoint", "list"]);
        (all[0]["egress"] == "Disabled (Audit)").then_some(())
    };
    assert!(wait::until(LIMIT, audits).is_some(), "{}", scene.agent.json(&["endpoint", "list"]));
}

#[test]
fn a_server_that_refuses_what_the_agent_asks_is_told_by_kind() {
    let mut scene = Scene::new(&["--trust-annotations"]);
    scene.api.set_failing(Some(403));
    scene.agent.begin();
    let told = || scene.agent.json(&["status"])["problems"].to_string().contains("403").then_some(());
    assert!(wait::until(wait::patient(LIMIT), told).is_some(), "{}", scene.agent.json(&["status"]));
    assert!(!scene.agent.probe("ready") && scene.agent.probe("live"));
    scene.api.set_failing(None);
    scene.agent.expect_probe("ready", true);
    scene.agent.expect_ready("shop/a");
}

/// The condition of a policy.
fn condition(api: &ApiServer) -> Option<(String, String, String)> {
    let policy = api.get("CiliumNetworkPolicy", "shop", "to-b")?;
    let all = policy["status"]["conditions"].as_array()?;
    let one = all.iter().find(|condition| condition["type"] == "Valid")?;
    let text = |field: &str| one[field].as_str().unwrap_or_default().to_owned();
    Some((text("status"), text("reason"), text("message")))
}

#[track_caller]
fn expect_condition(api: &ApiServer, status: &str, reason: &str, message: &str) {
    let said = || condition(api).filter(|(s, r, m)| s == status && r == reason && m.contains(message));
    assert!(wait::until(wait::patient(LIMIT), || said().map(drop)).is_some(), "{:?}", condition(api));
}

fn holder(api: &ApiServer) -> Option<String> {
    let lease = api.get("Lease", "default", "egret-policy-status")?;
    lease["spec"]["holderIdentity"].as_str().map(str::to_owned)
}

fn events(api: &ApiServer, reason: &str) -> Vec<String> {
    let all = api.all("Event").into_iter().filter(|event| event["reason"] == reason);
    all.map(|event| format!("{} {}", event["regarding"]["name"], event["note"])).collect()
}

#[test]
fn n_a03_policies_say_themselves_whether_they_are_valid() {
    let mut scene = Scene::new(&["--trust-annotations"]);
    scene.api.install(Crd::CiliumNetworkPolicy);
    scene.api.apply(CILIUM);
    scene.agent.start();
    expect_condition(&scene.api, "True", "PolicyValid", "Policy validation succeeded");
    assert_eq!(holder(&scene.api).as_deref(), Some("n1"));
    let policy = scene.api.get("CiliumNetworkPolicy", "shop", "to-b").expect("there");
    assert!(policy["spec"]["egress"].is_array(), "{policy:#}");
    assert_eq!(events(&scene.api, "PolicyInvalid"), [] as [&str; 0]);
    scene.api.apply(&CILIUM.replace("toEndpoints", "toEndpoint"));
    expect_condition(&scene.api, "False", "PolicyInvalid", "spec.egress[0].toEndpoint");
    let told = || (!events(&scene.api, "PolicyInvalid").is_empty()).then_some(());
    assert!(wait::until(wait::patient(LIMIT), told).is_some());
    assert!(events(&scene.api, "PolicyInvalid")[0].contains("toEndpoint"));
    // Others' conditions stay, and what is said already is not said again.
    scene.api.apply(CILIUM);
    expect_condition(&scene.api, "True", "PolicyValid", "succeeded");
    let writes =
        || scene.api.requests().iter().filter(|r| r.method == "PATCH" && r.path.ends_with("/status")).count();
    let before = writes();
    scene.agent.end(Signal::SIGTERM);
    scene.agent.start();
    let leads = || {
        let looked =
            scene.api.requests().iter().filter(|r| r.path.ends_with("/ciliumnetworkpolicies/to-b")).count();
        (looked > 3).then_some(())
    };
    assert!(wait::until(wait::patient(LIMIT), leads).is_some(), "it looks");
    assert_eq!(writes(), before, "and writes nothing");
    // A policy without a status, and one with an error.
    scene.api.apply(&DENY.replace("podSelector: {matchLabels", "podSelector: {matchLabel"));
    let told = || {
        events(&scene.api, "PolicyInvalid").iter().any(|e| e.contains("podSelector.matchLabel")).then_some(())
    };
    assert!(wait::until(wait::patient(LIMIT), told).is_some(), "{:?}", events(&scene.api, "PolicyInvalid"));
}

#[test]
fn one_agent_of_the_cluster_writes_about_policies() {
    let mut scene = Scene::new(&["--trust-annotations"]);
    scene.api.install(Crd::CiliumNetworkPolicy);
    let lease = |name: &str, time: &str| {
        format!(
            "apiVersion: coordination.k8s.io/v1\nkind: Lease\nmetadata: {{name: egret-policy-status, namespace: default}}\n\
             spec: {{holderIdentity: {name}, leaseDurationSeconds: 30, renewTime: '{time}'}}\n"
        )
    };
    // A higher name gives way at once, whatever its clock says.
    scene.api.apply(&lease("n2", "2199-01-01T00:00:00.000000Z"));
    scene.api.apply(CILIUM);
    scene.agent.start();
    expect_condition(&scene.api, "True", "PolicyValid", "");
    assert_eq!(holder(&scene.api).as_deref(), Some("n1"));
    scene.agent.end(Signal::SIGTERM);
    // A lower one does not, until it has not been heard of for half a minute.
    scene.api.apply(&lease("n0", "2199-01-01T00:00:00.000000Z"));
    scene.agent.start();
    scene.api.apply(&CILIUM.replace("toEndpoints", "toEndpoint"));
    scene.expect_told("spec.egress[0].toEndpoint", true);
    assert_eq!(holder(&scene.api).as_deref(), Some("n0"));
    let taken = || (holder(&scene.api).as_deref() == Some("n1")).then_some(());
    assert!(wait::until(wait::patient(Duration::from_secs(60)), taken).is_some());
    expect_condition(&scene.api, "False", "PolicyInvalid", "toEndpoint");
}

#[test]
fn a_node_takes_pods_once_they_are_held_and_drops_are_told() {
    let mut scene =
        Scene::new(&["--trust-annotations", "--remove-taint", "egret.dev/agent-not-ready", "--drop-events"]);
    scene.api.apply(
        "apiVersion: v1\nkind: Node\nmetadata: {name: n1}\nspec:\n  taints:\n  - {key: egret.dev/agent-not-ready, effect: \
         NoSchedule}\n  - {key: other, effect: NoExecute}\n",
    );
    scene.api.set_failing(Some(503));
    scene.agent.begin();
    let taints = || scene.api.get("Node", "", "n1").expect("there")["spec"]["taints"].to_string();
    assert!(taints().contains("agent-not-ready"), "not before it is ready");
    scene.api.set_failing(None);
    scene.agent.expect_probe("ready", true);
    let gone = || (!taints().contains("agent-not-ready")).then_some(());
    assert!(wait::until(wait::patient(LIMIT), gone).is_some(), "{} {}", taints(), scene.agent.said());
    assert!(taints().contains("other"), "{}", taints());
    scene.api.apply(DENY);
    scene.expect(false, "default deny");
    let told = || {
        scene.connects();
        events(&scene.api, "PacketsDropped").iter().any(|e| e.contains("NoRule")).then_some(())
    };
    assert!(
        wait::until(wait::patient(Duration::from_secs(40)), told).is_some(),
        "{:?}",
        events(&scene.api, "")
    );
}

/// The cgroups of pods, as the systemd driver makes them, removed when dropped.
struct Kubepods(PathBuf);

impl Kubepods {
    fn new() -> Self {
        let name = format!("eg-own-{}", std::process::id());
        Self(residue::cgroup2().expect("cgroup v2").join(name).join("kubepods.slice"))
    }

    fn pod(&self, object: &serde_json::Value) -> PathBuf {
        let uid = object["metadata"]["uid"].as_str().expect("the server gives one").replace('-', "_");
        let path = self.0.join(format!("kubepods-pod{uid}.slice"));
        fs::create_dir_all(&path).expect("a cgroup");
        path
    }

    /// Below the mount.
    fn option(&self) -> String {
        let mount = residue::cgroup2().expect("cgroup v2");
        self.0.strip_prefix(mount).expect("below").display().to_string()
    }
}

impl Drop for Kubepods {
    fn drop(&mut self) {
        let pods = fs::read_dir(&self.0).into_iter().flatten().flatten().map(|entry| entry.path());
        let pods: Vec<PathBuf> = pods.filter(|path| path.is_dir()).collect();
        for dir in pods.into_iter().chain([self.0.clone(), self.0.parent().expect("its own").to_owned()]) {
            if wait::until(LIMIT, || fs::remove_dir(&dir).ok()).is_none() {
                eprintln!("{dir:?} stays");
            }
        }
    }
}

#[test]
fn l_a04_no_policy_and_no_earlier_agent_cuts_the_agent_off() {
    let own = |name: &str| {
        format!(
            "apiVersion: v1\nkind: Pod\nmetadata: {{name: {name}, namespace: kube-system, labels: {{app: egret}}}}\nspec: \
             {{nodeName: n1, hostNetwork: true}}\nstatus: {{phase: Running}}\n"
        )
    };
    let tree = Kubepods::new();
    let Scene { mut agent, api, _server, world } =
        Scene::new(&["--trust-annotations", "--startup", "deny", "--kubepods", &tree.option()]);
    for object in [DENY.replace("shop", "kube-system").replace("app: a", "app: egret"), own("egret-1")] {
        api.apply(&object);
    }
    let pod = |name: &str| api.get("Pod", "kube-system", name).expect("there");
    agent = agent.at(world.place("h").cgroup(&tree.pod(&pod("egret-1"))));
    agent.start();
    agent.expect_ready("kube-system/egret-1");
    let told = agent.json(&["status"])["problems"].to_string();
    assert!(told.contains("Pod/kube-system/egret-1: is the agent itself"), "{told}");
    let scene = Scene { agent, api, _server, world };
    scene.api.drop_connections();
    scene.api.apply(DENY);
    scene.expect(false, "the API server is reached");
    // Another pod of the DaemonSet, which nobody knows yet, below what the first one left in force.
    let Scene { mut agent, api, _server, world } = scene;
    agent.end(Signal::SIGKILL);
    api.delete("Pod", "kube-system", "egret-1");
    api.apply(&own("egret-2"));
    let cgroup = tree.pod(&api.get("Pod", "kube-system", "egret-2").expect("there"));
    agent = agent.at(world.place("h").cgroup(&cgroup));
    agent.start();
    let scene = Scene { agent, api, _server, world };
    scene.api.delete("NetworkPolicy", "shop", "deny");
    scene.expect(true, "the API server is reached");
    // The other pods of that cgroup are still judged.
    let stranger = tree.0.join("kubepods-pod0f3ab5b9_7a5e_4c5e_9b7a_8d2c1e6f0a11.slice");
    fs::create_dir_all(&stranger).expect("a cgroup");
    let line = format!("exec 3<>/dev/tcp/127.0.0.1/{}", scene.api.addr().port());
    let place = scene.world.place("h");
    let reach = |place: &Place| place.run(&Cmd::new(["timeout", "2", "bash", "-c", &line])).success();
    assert!(reach(&place) && !reach(&place.clone().cgroup(&stranger)), "unknown pods are denied");
    drop(scene);
    drop(tree);
}
