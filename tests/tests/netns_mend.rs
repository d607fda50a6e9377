//! L-A02: a pod's programs are taken off, or another tool's get in front of them, while the agent runs and while none does;
//! and objects that come and go faster than anybody looks. After each harm the verdict is asked for.

use std::fs;
use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;
use std::time::Duration;

use egret::datapath::bpf_sys;
use egret::datapath::tc::Method;
use egret_common::maps::{RuleChunk, RuleKey};
use egret_tests::cluster::{Cluster, names_of_web};
use egret_tests::exec::Cmd;
use egret_tests::probe::{Reply, Request, Session};
use egret_tests::wait;
use nix::sys::signal::Signal;

const CLOSED: &str = "203.0.113.99:80";
const OPEN: &str = "apiVersion: cilium.io/v2\nkind: CiliumNetworkPolicy\nmetadata: {name: open, namespace: shop}\nspec:\n  \
                    endpointSelector: {matchLabels: {app: web}}\n  egress: [{toEntities: [all]}]\n";
/// It looks every few seconds.
const SOON: Duration = Duration::from_secs(12);
/// `BPF_TCX_INGRESS`.
const TCX_INGRESS: u32 = 46;

/// What is done, and what keeps it done.
type Harm = (&'static str, fn(&Cluster) -> Option<OwnedFd>);

fn harms() -> &'static [Harm] {
    match Method::of_kernel() {
        Method::Tcx => &[
            ("links detached", detach),
            ("pins removed", unpin),
            ("another program in front", in_front_by_link),
        ],
        Method::Clsact => &[("qdisc deleted", delete_qdisc), ("another filter in front", in_front_by_filter)],
    }
}

/// The pins of the links of one interface.
fn links(cluster: &Cluster) -> Vec<PathBuf> {
    let pins = cluster.agent.pins().join(format!("v{}", egret_common::ABI_VERSION));
    let start = format!("link_tcx_{}_", ifindex(cluster));
    let entries = fs::read_dir(pins).expect("pins").map(|entry| entry.expect("an entry").path());
    let links: Vec<PathBuf> =
        entries.filter(|p| p.file_name().is_some_and(|n| n.to_string_lossy().starts_with(&start))).collect();
    assert_eq!(links.len(), 2);
    links
}

fn ifindex(cluster: &Cluster) -> u32 {
    let name = cluster.pod("web").interface();
    cluster.world.ns("n").run(|| nix::net::if_::if_nametoindex(name.as_str())).expect("an interface")
}

fn detach(cluster: &Cluster) -> Option<OwnedFd> {
    for path in links(cluster) {
        bpf_sys::link_detach(bpf_sys::get(&path).expect("pinned").as_fd()).expect("detached");
    }
    None
}

fn unpin(cluster: &Cluster) -> Option<OwnedFd> {
    links(cluster).iter().for_each(|path| fs::remove_file(path).expect("removed"));
    None
}

/// It ends the chain and lets everything through.
fn other() -> OwnedFd {
    bpf_sys::prog_load(3, 0, "other", &bpf_sys::return_program(0)).expect("loaded")
}

fn in_front_by_link(cluster: &Cluster) -> Option<OwnedFd> {
    let (program, ifindex) = (other(), ifindex(cluster));
    let link = cluster.world.ns("n").run(|| bpf_sys::link_create_tcx(program.as_fd(), ifindex, TCX_INGRESS));
    Some(link.expect("attached"))
}

fn delete_qdisc(cluster: &Cluster) -> Option<OwnedFd> {
    tc(cluster, "qdisc del dev {} clsact");
    None
}

fn in_front_by_filter(cluster: &Cluster) -> Option<OwnedFd> {
    let pin = cluster.agent.pins().join("other");
    bpf_sys::pin(other().as_fd(), &pin).expect("pinned");
    tc(cluster, &format!("filter add dev {{}} ingress pref 1 protocol all bpf da pinned {}", pin.display()));
    fs::remove_file(pin).expect("unpinned");
    None
}

fn tc(cluster: &Cluster, command: &str) {
    let command = format!("tc {}", command.replace("{}", &cluster.pod("web").interface()));
    cluster.node().run(&Cmd::sh(&command)).expect_success();
}

fn passes(session: &mut Session) -> bool {
    let to = CLOSED.parse().expect("an address");
    let connect = Request::Tcp { to, mapped: false, fast_open: None, port: 0, timeout: 400 };
    matches!(session.ask(&connect, Duration::from_secs(5)), Reply::Connected { .. })
}

/// The harm is done. The kernel lets go of an unpinned link a moment later.
#[track_caller]
fn opens(session: &mut Session, what: &str) {
    assert!(wait::until(wait::patient(SOON), || passes(session).then_some(())).is_some(), "{what}: no harm");
}

/// An agent that holds all pods, and a probe in one that may reach nothing.
fn held() -> Option<(Cluster, Session)> {
    let mut cluster = Cluster::new()?;
    cluster.agent.put("web.yaml", &names_of_web(&["vendor.example"]));
    cluster.agent.start();
    cluster.agent.expect_ready("shop/web");
    let mut session = Session::start(&cluster.place("web"));
    assert!(!passes(&mut session), "denied");
    Some((cluster, session))
}

#[test]
fn l_a02_what_is_taken_off_is_put_back_within_seconds() {
    let Some((cluster, mut session)) = held() else { return };
    for (what, harm) in harms() {
        // So that it is seen to be harm at all.
        cluster.agent.process().signal(Signal::SIGSTOP);
        let kept = harm(&cluster);
        opens(&mut session, what);
        cluster.agent.process().signal(Signal::SIGCONT);
        let closed = || (!passes(&mut session)).then_some(());
        let mended = wait::until(wait::patient(SOON), closed);
        assert!(mended.is_some(), "{what}: still open: {}", cluster.agent.said());
        let told =
            || cluster.agent.ask(&["status"]).stdout.contains("shop/web: the programs at").then_some(());
        assert!(wait::until(wait::patient(SOON), told).is_some(), "{what}: not told");
        drop(kept);
        assert!(!passes(&mut session), "{what}: without the other tool");
    }
}

/// Fills the map of rules with what no endpoint asks for; gives the keys.
fn fill(map: &OwnedFd) -> Vec<RuleKey> {
    let value = RuleChunk { count: 0, more: 0, starts: [u32::MAX; 14], rules: Default::default() };
    let mut keys: Vec<RuleKey> = Vec::new();
    loop {
        let class = keys.len() as u32;
        let more: Vec<RuleKey> =
            (0..4096).map(|n| RuleKey { set: u32::MAX, class: class + n, chunk: 0 }).collect();
        match bpf_sys::map_batch(map.as_fd(), &more, Some(&vec![value; more.len()])) {
            Ok(()) => keys.extend(more),
            Err((done, error)) => {
                assert_eq!(error.raw_os_error(), Some(libc::E2BIG));
                keys.extend(&more[..done]);
                return keys;
            }
        }
    }
}

#[test]
fn l_a03_rules_that_did_not_fit_are_in_force_once_there_is_room() {
    let Some((cluster, mut session)) = held() else { return };
    let pins = cluster.agent.pins().join(format!("v{}", egret_common::ABI_VERSION));
    let map = bpf_sys::get(&pins.join("RULES")).expect("pinned");
    let keys = fill(&map);
    cluster.agent.put("open.yaml", OPEN);
    let told = || cluster.agent.ask(&["status"]).stdout.contains("are not in force: RULES").then_some(());
    assert!(wait::until(wait::patient(SOON), told).is_some(), "{}", cluster.agent.ask(&["status"]).stdout);
    assert!(!passes(&mut session), "what was in force stays");
    for some in keys.chunks(4096) {
        bpf_sys::map_batch::<_, RuleChunk>(map.as_fd(), some, None).expect("deleted");
    }
    let open = || passes(&mut session).then_some(());
    assert!(wait::until(wait::patient(SOON), open).is_some(), "{}", cluster.agent.said());
    assert!(told().is_none(), "it is no problem any more");
}

#[test]
fn l_a02_what_was_taken_off_between_two_agents_is_put_back_at_the_start() {
    let Some((mut cluster, mut session)) = held() else { return };
    for (what, harm) in harms() {
        cluster.agent.end(Signal::SIGKILL);
        assert!(!passes(&mut session), "{what}: held without an agent");
        let kept = harm(&cluster);
        opens(&mut session, what);
        cluster.agent.start();
        assert!(!passes(&mut session), "{what}: ready, and open: {}", cluster.agent.said());
        drop(kept);
    }
}

#[test]
fn l_a02_pods_and_policies_that_come_and_go_at_once_end_as_the_last_ones_say() {
    let Some((mut cluster, mut session)) = held() else { return };
    for round in 0..8 {
        let allowed = round % 2 == 0;
        cluster.agent.remove("pod-web.yaml");
        if round % 3 == 0 {
            // Long enough for the agent to let go, or not.
            wait::pass(Duration::from_millis(300));
        }
        if allowed {
            cluster.agent.put("open.yaml", OPEN);
        } else {
            cluster.agent.remove("open.yaml");
        }
        cluster.change("web", |_| {});
        let right = || {
            let held = cluster.agent.json(&["endpoint", "list"]).to_string().contains("shop/web");
            (held && passes(&mut session) == allowed).then_some(())
        };
        assert!(wait::until(wait::patient(SOON), right).is_some(), "round {round}: {}", cluster.agent.said());
    }
    assert!(!passes(&mut session), "the last one denies");
}
