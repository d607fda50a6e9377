//! Where pods are, under every kubelet and container runtime: trees of cgroups and processes as they make them, with real
//! network namespaces behind the processes.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use egret::place::{Host, Sought, Spot, Wish};
use egret_tests::netns::{World, WorldBuilder};

const UID: &str = "0f3ab5b9-7a5e-4c5e-9b7a-8d2c1e6f0a11";
const SCORED: &str = "0f3ab5b9_7a5e_4c5e_9b7a_8d2c1e6f0a11";
/// Of a container.
const ID: &str = "6d5b7a0c3f1e4b2a9c8d7e6f5a4b3c2d1e0f9a8b7c6d5e4f3a2b1c0d9e8f7a6b";

/// A host's cgroups and processes, as files; the namespaces are real.
struct Tree {
    host: Host,
    world: World,
}

impl Tree {
    fn new() -> Self {
        let world = WorldBuilder::new().ns("h").ns("a").veth(("h", "va"), ("a", "eth0")).build();
        let dir = world.dir().join("host");
        let host = Host {
            cgroups: dir.join("cgroup/unified"),
            cgroups_v1: vec![dir.join("cgroup/pids"), dir.join("cgroup/systemd")],
            proc: dir.join("proc"),
        };
        let tree = Self { host, world };
        fs::create_dir_all(&tree.host.cgroups).expect("a folder");
        tree.host.cgroups_v1.iter().for_each(|mount| fs::create_dir_all(mount).expect("a folder"));
        tree.process("self", "h");
        tree
    }

    /// A process in one of the namespaces.
    fn process(&self, pid: &str, ns: &str) {
        let dir = self.host.proc.join(pid).join("ns");
        fs::create_dir_all(&dir).expect("a folder");
        symlink(format!("/var/run/netns/{}", self.world.ns(ns).name()), dir.join("net")).expect("a link");
    }

    /// A cgroup below a mount with these processes.
    fn cgroup(&self, mount: &Path, path: &str, pids: &[&str]) -> PathBuf {
        let dir = mount.join(path);
        fs::create_dir_all(&dir).expect("a folder");
        fs::write(dir.join("cgroup.procs"), pids.iter().map(|pid| format!("{pid}\n")).collect::<String>())
            .expect("written");
        dir
    }

    /// Where the pod is, in words.
    fn find(&self, host_network: bool) -> String {
        let pods = self.host.pods();
        let sought = Sought { wish: &Wish::Uid, uid: UID, host_network };
        match self.world.ns("h").run(|| self.host.find(sought, &pods)) {
            Ok(Spot::Interface { name, .. }) => format!("interface {name}"),
            Ok(Spot::Cgroup(path)) => {
                format!("cgroup {}", path.file_name().expect("a name").to_string_lossy())
            }
            Err(error) => error.to_string(),
        }
    }
}

/// Folders of a pod, and of a container in it, below a mount.
fn layouts() -> [(String, String); 6] {
    let (burstable, guaranteed) =
        (format!("kubepods-burstable-pod{SCORED}.slice"), format!("kubepods-pod{SCORED}.slice"));
    [
        (
            format!("kubepods.slice/kubepods-burstable.slice/{burstable}"),
            format!("cri-containerd-{ID}.scope"),
        ),
        (format!("kubepods.slice/{guaranteed}"), format!("crio-{ID}.scope")),
        (format!("kubepods.slice/{guaranteed}"), format!("crio-{ID}.scope/container")),
        (format!("kubepods/burstable/pod{UID}"), ID.to_owned()),
        (format!("kubepods/pod{UID}"), format!("crio-{ID}")),
        (
            format!(
                "kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-besteffort.slice/kubelet-kubepods-besteffort-pod{SCORED}.slice"
            ),
            format!("cri-containerd-{ID}.scope"),
        ),
    ]
}

#[test]
fn every_layout_leads_to_the_pods_interface() {
    for (pod, container) in layouts() {
        let tree = Tree::new();
        let mount = tree.host.cgroups.clone();
        assert_eq!(
            tree.find(false),
            format!("no cgroup of uid {UID} below kubepods, and no egret.dev/ annotation")
        );
        let dir = tree.cgroup(&mount, &pod, &[]);
        assert_eq!(tree.find(false), format!("no process in {} yet", dir.display()));
        assert_eq!(
            tree.find(true),
            format!("cgroup {}", dir.file_name().expect("a name").to_string_lossy()),
            "at once"
        );
        // A helper of the runtime in the pod's cgroup (CRI-O's conmon), and what is not in its own namespaces yet.
        tree.process("100", "h");
        tree.cgroup(&mount, &format!("{pod}/crio-conmon-{ID}.scope"), &["100", "0"]);
        assert!(tree.find(false).contains("does not say hostNetwork"), "{}: {}", pod, tree.find(false));
        tree.process("200", "a");
        tree.cgroup(&mount, &format!("{pod}/{container}"), &["99", "200"]);
        assert_eq!(tree.find(false), "interface va", "{pod}/{container}");
    }
}

#[test]
fn a_hybrid_host_has_its_pods_in_version_one() {
    for mount in [0, 1] {
        for (pod, container) in layouts() {
            let tree = Tree::new();
            let mount = tree.host.cgroups_v1[mount].clone();
            tree.process("200", "a");
            tree.cgroup(&mount, &format!("{pod}/{container}"), &["200"]);
            assert_eq!(tree.find(false), "interface va", "{pod}/{container}");
            assert!(tree.find(true).ends_with("is of version 1: nothing can hold it"), "{}", tree.find(true));
            // systemd makes its slices in version 2 as well: that one counts, since programs can be attached there.
            let unified = tree.cgroup(&tree.host.cgroups.clone(), &format!("{pod}/{container}"), &["200"]);
            assert!(unified.starts_with(&tree.host.cgroups) && tree.find(true).starts_with("cgroup "));
            assert_eq!(tree.find(false), "interface va");
        }
    }
}
