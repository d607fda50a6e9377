//! Programs on an interface beside other tools' programs: first, found there, replaced without a gap, mended, taken
//! off; by TCX and by clsact. The programs are of two instructions, so that a packet shows which of them ran.

use std::fs;
use std::io;
use std::net::UdpSocket;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use egret::datapath::bpf_sys;
use egret::datapath::tc::{self, Method, Place, Placed, TcError, TcHook};
use egret_tests::arena::fresh_dir;
use egret_tests::netns::{World, WorldBuilder};
use egret_tests::{residue, wait};

/// `TCX_NEXT` and `TC_ACT_UNSPEC`: on to the next program.
const NEXT: u32 = u32::MAX;
/// `TC_ACT_OK`: ends the chain.
const OK: u32 = 0;
/// `TC_ACT_SHOT`.
const DROP: u32 = 2;

/// A host `h` and a pod `p`, and a directory for pins.
struct Lab {
    world: World,
    pins: PathBuf,
    method: Method,
}

impl Lab {
    fn new(method: Method) -> Self {
        residue::ensure_bpffs();
        let world = WorldBuilder::new().ns("h").ns("p").build();
        let pins = fresh_dir();
        fs::create_dir_all(&pins).expect("bpffs");
        let lab = Self { world, pins, method };
        lab.plug();
        lab
    }

    /// The pair of interfaces, made anew.
    fn plug(&self) {
        let pod = self.world.ns("p").name().to_owned();
        self.world.ip("h", &format!("link add v0 type veth peer name eth0 netns {pod}"));
        for (ns, device, address) in [("h", "v0", "10.9.0.1/24"), ("p", "eth0", "10.9.0.2/24")] {
            self.world.ip(ns, &format!("addr add {address} dev {device}"));
            self.world.ip(ns, &format!("link set {device} up"));
        }
    }

    fn unplug(&self) {
        self.world.ip("h", "link del v0");
    }

    /// Acts on the host's side of the pair.
    fn at<T: Send>(&self, hook: TcHook, act: impl FnOnce(&Place<'_>) -> T + Send) -> T {
        self.world.ns("h").run(|| {
            let ifindex = nix::net::if_::if_nametoindex("v0").expect("plugged in");
            act(&Place { ifindex, hook, pins: &self.pins, method: self.method })
        })
    }

    fn put(&self, hook: TcHook, program: &OwnedFd) -> Result<Placed, TcError> {
        self.at(hook, |place| place.put(program.as_fd()))
    }

    fn names(&self, hook: TcHook) -> Vec<String> {
        self.at(hook, |place| place.chain()).expect("asked").into_iter().map(|m| m.name).collect()
    }

    /// Another tool attaches in front. What is returned keeps it there.
    fn foreign(&self, hook: TcHook, returns: u32) -> Option<OwnedFd> {
        let program = load("other", returns);
        match self.method {
            Method::Tcx => self.at(hook, |place| {
                let kind = if hook == TcHook::FromPod { 46 } else { 47 };
                Some(bpf_sys::link_create_tcx(program.as_fd(), place.ifindex, kind).expect("attached"))
            }),
            Method::Clsact => {
                self.foreign_for(hook, returns, "all");
                None
            }
        }
    }

    /// Another tool's filter, for packets of one protocol.
    fn foreign_for(&self, hook: TcHook, returns: u32, protocol: &str) {
        let pin = self.pins.join("other");
        bpf_sys::pin(load("other", returns).as_fd(), &pin).expect("pinned");
        let side = if hook == TcHook::FromPod { "ingress" } else { "egress" };
        self.tc(&["qdisc", "add", "dev", "v0", "clsact"]);
        let add =
            format!("filter add dev v0 {side} pref 1 protocol {protocol} bpf da pinned {}", pin.display());
        assert!(self.tc(&add.split(' ').collect::<Vec<_>>()), "the neighbour's filter");
        fs::remove_file(pin).expect("unpinned");
    }

    fn tc(&self, args: &[&str]) -> bool {
        let run = || Command::new("tc").args(args).output().expect("tc").status.success();
        self.world.ns("h").run(run)
    }

    /// Whether a datagram gets through.
    fn passes(&self, hook: TcHook) -> bool {
        let (from, to) = self.sockets(hook);
        let target = to.local_addr().expect("bound");
        let mut buffer = [0; 8];
        // Twice: the first one may wait for the neighbour's address.
        (0..2).any(|_| from.send_to(b"x", target).is_ok() && to.recv(&mut buffer).is_ok())
    }

    fn sockets(&self, hook: TcHook) -> (UdpSocket, UdpSocket) {
        let bind = |ns: &str, address: &str| {
            let socket = self.world.ns(ns).run(|| UdpSocket::bind((address, 0)));
            let socket = socket.expect("bound");
            socket.set_read_timeout(Some(Duration::from_millis(200))).expect("a socket");
            socket
        };
        let (host, pod) = (bind("h", "10.9.0.1"), bind("p", "10.9.0.2"));
        if hook == TcHook::FromPod { (pod, host) } else { (host, pod) }
    }
}

impl Drop for Lab {
    fn drop(&mut self) {
        if let Err(error) = egret::datapath::remove(&self.pins) {
            eprintln!("the pins stay: {error}");
        }
    }
}

fn load(name: &str, returns: u32) -> OwnedFd {
    bpf_sys::prog_load(3, 0, name, &bpf_sys::return_program(returns)).expect("loaded")
}

/// Every method that this kernel has, with each hook.
fn everywhere(check: impl Fn(&Lab, TcHook)) {
    let methods: &[Method] = match Method::of_kernel() {
        Method::Tcx => &[Method::Tcx, Method::Clsact],
        Method::Clsact => &[Method::Clsact],
    };
    for method in methods {
        for hook in TcHook::ALL {
            println!("{method:?} {hook:?}");
            check(&Lab::new(*method), hook);
        }
    }
}

#[test]
fn l_a02_ours_is_first_and_lets_the_others_run() {
    everywhere(|lab, hook| {
        assert!(lab.passes(hook), "without any program");
        let other = lab.foreign(hook, OK);
        let ours = load("egret_x", DROP);
        assert_eq!(lab.put(hook, &ours).expect("attached"), Placed::Attached);
        assert_eq!(lab.put(hook, &ours).expect("attached"), Placed::Already);
        assert_eq!(lab.names(hook).len(), 2);
        assert!(!lab.passes(hook), "ours drops, though the other one lets everything through");
        let ours = load("egret_y", NEXT);
        assert_eq!(lab.put(hook, &ours).expect("replaced"), Placed::Attached);
        assert_eq!(lab.names(hook).len(), 2, "replaced, not added");
        assert!(lab.passes(hook));
        drop(ours);
        assert_eq!(lab.names(hook).len(), 2, "it stays without its owner");
        lab.at(hook, |place| place.take_off()).expect("taken off");
        assert_eq!(lab.names(hook), ["other"]);
        lab.at(hook, |place| place.take_off()).expect("nothing to do is no error");
        drop(other);
    });
}

#[test]
fn l_a02_who_gets_in_front_or_takes_ours_off_is_mended() {
    everywhere(|lab, hook| {
        let ours = load("egret_x", DROP);
        lab.put(hook, &ours).expect("attached");
        let other = lab.foreign(hook, OK);
        assert_eq!(lab.names(hook)[0], "other");
        assert!(lab.passes(hook), "the other one ended the chain");
        assert_eq!(lab.put(hook, &ours).expect("moved"), Placed::Moved);
        assert_eq!(lab.names(hook).len(), 2);
        assert!(!lab.passes(hook));
        assert_eq!(lab.put(hook, &ours).expect("attached"), Placed::Already);
        // Taken off by others: the pin removed, the link detached, the qdisc deleted.
        for harm in [remove_pins, detach_links, delete_qdisc] {
            harm(lab, hook);
            let mended = wait::until(Duration::from_secs(2), || {
                matches!(lab.put(hook, &ours), Ok(Placed::Already)).then_some(())
            });
            assert!(mended.is_some() && !lab.passes(hook));
        }
        drop(other);
    });
}

fn links(lab: &Lab) -> impl Iterator<Item = PathBuf> {
    let entries = fs::read_dir(&lab.pins).expect("pins").map(|entry| entry.expect("an entry").path());
    entries.filter(|path| path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("link_")))
}

fn remove_pins(lab: &Lab, _: TcHook) {
    links(lab).for_each(|path| fs::remove_file(path).expect("removed"));
}

fn detach_links(lab: &Lab, _: TcHook) {
    for path in links(lab) {
        bpf_sys::link_detach(bpf_sys::get(&path).expect("pinned").as_fd()).expect("detached");
    }
}

fn delete_qdisc(lab: &Lab, _: TcHook) {
    lab.tc(&["qdisc", "del", "dev", "v0", "clsact"]);
}

#[test]
fn l_a02_no_packet_slips_through_while_programs_are_replaced() {
    everywhere(|lab, hook| {
        lab.put(hook, &load("egret_x", DROP)).expect("attached");
        let (from, to) = lab.sockets(hook);
        let (target, stop) = (to.local_addr().expect("bound"), AtomicBool::new(false));
        let sent = std::thread::scope(|scope| {
            let flood = scope.spawn(|| {
                let mut sent = 0u64;
                while !stop.load(Ordering::Relaxed) {
                    sent += u64::from(from.send_to(b"x", target).is_ok());
                }
                sent
            });
            for _ in 0..300 {
                let placed = lab.put(hook, &load("egret_x", DROP)).expect("replaced");
                assert_eq!(placed, Placed::Attached);
            }
            stop.store(true, Ordering::Relaxed);
            flood.join().expect("no panic")
        });
        assert!(sent > 100, "{sent} datagrams are no flood");
        let leaked = to.recv(&mut [0; 8]);
        assert_eq!(leaked.map_err(|e| e.kind()), Err(io::ErrorKind::WouldBlock));
        assert_eq!(lab.names(hook), ["egret_x"]);
    });
}

#[test]
fn l_a02_pins_of_an_interface_that_is_gone_are_swept() {
    if Method::of_kernel() == Method::Clsact {
        eprintln!("skipped: this kernel has no TCX");
        return;
    }
    let lab = Lab::new(Method::Tcx);
    let ours = load("egret_x", DROP);
    TcHook::ALL.into_iter().for_each(|hook| {
        lab.put(hook, &ours).expect("attached");
    });
    assert_eq!(tc::sweep(&lab.pins), 0, "both are in use");
    lab.unplug();
    // Before anybody has swept: a pin that stands in the way of a new interface with the same number.
    let stale: Vec<PathBuf> = links(&lab).collect();
    assert_eq!(stale.len(), 2);
    lab.plug();
    let number = lab.at(TcHook::FromPod, |place| place.ifindex);
    for path in stale {
        let name = path.file_name().expect("a name").to_string_lossy().into_owned();
        let hook = if name.ends_with("from_pod") { "from_pod" } else { "to_pod" };
        rename(&path, &lab.pins.join(format!("link_tcx_{number}_{hook}")));
    }
    for hook in TcHook::ALL {
        assert_eq!(lab.put(hook, &ours).expect("attached anew"), Placed::Attached);
        assert!(!lab.passes(hook));
    }
    lab.unplug();
    let swept = wait::until(Duration::from_secs(2), || (tc::sweep(&lab.pins) == 2).then_some(()));
    assert!(swept.is_some() && links(&lab).count() == 0);
}

fn rename(from: &Path, to: &Path) {
    if from != to {
        fs::rename(from, to).expect("renamed");
    }
}

#[test]
fn l_a02_an_agent_that_died_while_moving_left_the_interface_closed() {
    if Method::of_kernel() == Method::Clsact {
        eprintln!("skipped: this kernel has no TCX");
        return;
    }
    let lab = Lab::new(Method::Tcx);
    let hook = TcHook::FromPod;
    lab.put(hook, &load("egret_x", DROP)).expect("attached");
    let pin = links(&lab).next().expect("pinned");
    let mut new = pin.clone().into_os_string();
    new.push("_new");
    rename(&pin, Path::new(&new));
    assert!(!lab.passes(hook));
    let ours = load("egret_y", NEXT);
    assert_eq!(lab.put(hook, &ours).expect("taken over"), Placed::Attached);
    assert_eq!(lab.names(hook), ["egret_y"]);
    assert!(pin.exists() && !Path::new(&new).exists());
}

#[test]
fn a_filter_that_cannot_be_joined_is_named() {
    let lab = Lab::new(Method::Clsact);
    let hook = TcHook::FromPod;
    lab.foreign_for(hook, OK, "ip");
    let error = lab.put(hook, &load("egret_x", DROP)).expect_err("occupied");
    assert!(matches!(&error, TcError::Occupied(m) if m.name == "other"), "{error}");
    assert!(lab.passes(hook), "the other one's filter stays");
}
