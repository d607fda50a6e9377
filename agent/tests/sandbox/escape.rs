//! No way out: every attempt of `attempts` must be refused inside, for root and for a user; and, as the
//! control, most of them work for root outside, so that a refusal says something.

use std::os::fd::AsFd;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener};
use std::path::Path;
use std::process::{Child as Process, Command, Stdio};

use egret::datapath::bpf_sys;
use egret::sandbox::{landlock, preflight, user};

use super::attempts::ATTEMPTS;
use super::{World, can_run, eventually};

/// What an attempt is made against: a process, a pin and a socket outside.
struct Outside {
    victim: Process,
    pin: std::path::PathBuf,
    _socket: UnixListener,
    abstract_name: String,
}

impl Outside {
    /// `as_user`: the victim runs as that user, as the user's other programs would.
    fn new(as_user: Option<&user::UserSpec>) -> Self {
        let mut sleep = Command::new("sleep");
        sleep.arg("100").stdin(Stdio::null());
        if let Some(user) = as_user {
            std::os::unix::process::CommandExt::uid(&mut sleep, user.uid);
            std::os::unix::process::CommandExt::gid(&mut sleep, user.gid);
        }
        let victim = sleep.spawn().expect("sleep");
        let name = format!("egret_escape_{}", victim.id());
        let pin = preflight::check(false).expect("preflight").bpffs.join(&name);
        let prog = bpf_sys::prog_load(8, 1, "pin", &bpf_sys::return_program(1)).expect("load");
        bpf_sys::pin(prog.as_fd(), &pin).expect("pin");
        let address = SocketAddr::from_abstract_name(&name).expect("name");
        let _socket = UnixListener::bind_addr(&address).expect("bind");
        Self { victim, pin, _socket, abstract_name: name }
    }
}

impl Drop for Outside {
    fn drop(&mut self) {
        let _ = self.victim.kill();
        let _ = self.victim.wait();
        std::fs::remove_file(&self.pin).expect("unpin");
    }
}

fn settings(world: &World, outside: &Outside) -> Vec<(String, String)> {
    let path = |p: &Path| p.to_string_lossy().into_owned();
    [
        ("EGRET_PROBE", path(&world.dir.join("result"))),
        ("EGRET_VICTIM", outside.victim.id().to_string()),
        ("EGRET_PIN", path(&outside.pin)),
        ("EGRET_ABSTRACT", outside.abstract_name.clone()),
        ("EGRET_CGROUP_ID", world.cgroup().id().to_string()),
    ]
    .map(|(k, v)| (k.to_owned(), v))
    .to_vec()
}

/// This test binary, where any user can execute it.
fn binary(world: &World) -> std::path::PathBuf {
    let copy = world.dir.join("probe");
    std::fs::copy(std::env::current_exe().expect("own path"), &copy).expect("copy");
    copy
}

fn probe_inside(
    as_user: Option<user::UserSpec>,
    adjust: impl FnOnce(&mut egret::sandbox::child::Spec),
) -> String {
    let world = World::new();
    let outside = Outside::new(as_user.as_ref());
    let mut spec = world.shell("");
    spec.argv =
        vec![binary(&world).into(), "--exact".into(), "probe_entry".into(), "--test-threads=1".into()];
    spec.env.extend(settings(&world, &outside).into_iter().map(|(k, v)| (k.into(), v.into())));
    spec.user = as_user;
    adjust(&mut spec);
    assert_eq!(world.run(&spec).expect("runs").code, 0);
    world.read("result")
}

/// What the running kernel's Landlock cannot hold; `escape::detect` warns of the first kind.
fn beyond_landlock() -> &'static [&'static str] {
    let all = &[
        "signal a victim",
        "abstract socket of a process outside",
        "ptrace a victim",
        "read a victim's memory map",
        "steal a victim's descriptor",
    ];
    match landlock::abi() {
        0 => all,
        1..=5 => &all[..2],
        _ => &[],
    }
}

fn escaped<'a>(result: &'a str, known: &[&str]) -> Vec<&'a str> {
    println!("{result}");
    assert_eq!(result.lines().count(), ATTEMPTS.len());
    let names = result.lines().filter_map(|l| l.strip_suffix(": ESCAPED"));
    names.filter(|n| !known.contains(n) && !beyond_landlock().contains(n)).collect()
}

#[test]
fn root_cannot_get_out() {
    if can_run() {
        assert_eq!(escaped(&probe_inside(None, |_| {}), &[]), Vec::<&str>::new());
    }
}

#[test]
fn a_user_cannot_get_out() {
    if can_run() {
        let nobody = user::resolve("nobody").expect("nobody");
        assert_eq!(escaped(&probe_inside(Some(nobody), |_| {}), &[]), Vec::<&str>::new());
    }
}

/// The other layers hold without the system-call filter; what it alone stops is listed here.
#[test]
fn without_the_filter_only_its_own_rows_open() {
    if !can_run() {
        return;
    }
    let result = probe_inside(None, |spec| spec.no_syscall_filter = true);
    let only = ["vsock socket", "io_uring", "type into the terminal", "request-key upcall"];
    assert_eq!(escaped(&result, &only), Vec::<&str>::new());
}

/// Without the sandbox the same attempts work: otherwise the tests above would prove nothing.
#[test]
fn control_root_outside_gets_through() {
    if !can_run() {
        return;
    }
    let world = World::new();
    let outside = Outside::new(None);
    let status = Command::new(binary(&world))
        .args(["--exact", "probe_entry", "--test-threads=1"])
        .envs(settings(&world, &outside))
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .status()
        .expect("runs");
    assert!(status.success());
    let result = world.read("result");
    println!("{result}");
    // Not everything is there on every host (vsock, cgroup v1, sysrq, an init that root may trace); these always are.
    for name in [
        "cgroup.procs of any visible mount",
        "cgroup.procs through a victim's root",
        "mount cgroup2",
        "setns to a victim's mount namespace",
        "raw socket",
        "packet socket",
        "load a BPF program",
        "open the pin",
        "see the pin",
        "ptrace a victim",
        "read a victim's memory map",
        "steal a victim's descriptor",
        "signal a victim",
        "open core_pattern",
        "open by handle",
        "make a block device",
        "abstract socket of a process outside",
    ] {
        assert!(result.contains(&format!("{name}: ESCAPED")), "{name}: {result}");
    }
}

/// The child is in its cgroup from its first instruction, and sees that as the root of its namespace.
#[test]
fn the_cgroup_is_the_root_of_the_namespace() {
    if !can_run() {
        return;
    }
    let world = World::new();
    let exit = world.run(&world.shell("grep ^0:: /proc/self/cgroup >$DIR/inside; sleep 0.2")).expect("runs");
    assert_eq!(exit.code, 0);
    assert_eq!(world.read("inside"), "0::/\n");
    eventually("the cgroup is empty", || world.cgroup().is_empty().expect("readable"));
}
