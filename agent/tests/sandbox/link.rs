//! L-A05: attaching beside other tools' programs, with the kernel's own rules as the judge.

use std::fs::File;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};

use egret::datapath::bpf_sys::{self, F_ALLOW_MULTI, F_ALLOW_OVERRIDE};
use egret::datapath::cgroup_link::{self, AttachError, CgroupHook};

use super::{World, can_run};

fn program(hook: CgroupHook, name: &str) -> OwnedFd {
    bpf_sys::prog_load(hook.prog_type(), hook.attach_type(), name, &bpf_sys::return_program(1)).expect("load")
}

fn id(prog: &OwnedFd) -> u32 {
    bpf_sys::prog_info(prog.as_fd()).expect("info").id
}

fn foreign(cgroup: &Path, hook: CgroupHook, flags: u32) -> OwnedFd {
    let prog = program(hook, "foreign");
    let dir = File::open(cgroup).expect("open");
    bpf_sys::prog_attach_legacy(prog.as_fd(), dir.as_fd(), hook.attach_type(), flags).expect("attach");
    prog
}

/// A parent and a child cgroup inside the world's, so that nothing else on the host is touched.
fn family(world: &World) -> (PathBuf, PathBuf) {
    let parent = world.cgroup().path().join("parent");
    let child = parent.join("child");
    std::fs::create_dir_all(&child).expect("mkdir");
    (parent, child)
}

#[test]
fn every_hook_attaches_updates_and_detaches() {
    if !can_run() {
        return;
    }
    let world = World::new();
    let (mount, path) = (&world.hierarchy.mount, world.cgroup().path());
    for hook in CgroupHook::ALL {
        let (first, second) = (program(hook, "first"), program(hook, "second"));
        let link = cgroup_link::attach(first.as_fd(), path, mount, hook, false).expect("attach");
        let attached = cgroup_link::attached(path, hook).expect("query");
        assert_eq!((attached.flags, attached.programs), (F_ALLOW_MULTI, vec![id(&first)]), "{hook:?}");
        bpf_sys::link_update(link.as_fd(), second.as_fd()).expect("update");
        assert!(cgroup_link::effective(path, hook).expect("query").contains(&id(&second)));
        drop(link);
        assert_eq!(cgroup_link::attached(path, hook).expect("query").programs, Vec::<u32>::new());
    }
}

#[test]
fn a_pinned_link_outlives_its_handle() {
    if !can_run() {
        return;
    }
    let world = World::new();
    let bpffs = egret::sandbox::preflight::check(false).expect("preflight").bpffs;
    let (mount, path, hook) = (&world.hierarchy.mount, world.cgroup().path(), CgroupHook::SkbEgress);
    let prog = program(hook, "pinned");
    let pin = bpffs.join(format!("egret_test_{}", std::process::id()));
    let link = cgroup_link::attach(prog.as_fd(), path, mount, hook, false).expect("attach");
    bpf_sys::pin(link.as_fd(), &pin).expect("pin");
    drop(link);
    assert_eq!(cgroup_link::attached(path, hook).expect("query").programs, vec![id(&prog)]);
    let again = bpf_sys::get(&pin).expect("get");
    let next = program(hook, "next");
    bpf_sys::link_update(again.as_fd(), next.as_fd()).expect("update");
    std::fs::remove_file(&pin).expect("unpin");
    drop(again);
    assert_eq!(cgroup_link::attached(path, hook).expect("query").programs, Vec::<u32>::new());
}

#[test]
fn l_a05_a_multi_program_of_another_tool_stays_and_runs() {
    if !can_run() {
        return;
    }
    let world = World::new();
    let (parent, child) = family(&world);
    let hook = CgroupHook::SkbEgress;
    let theirs = foreign(&parent, hook, F_ALLOW_MULTI);
    let ours = program(hook, "ours");
    let _link =
        cgroup_link::attach(ours.as_fd(), &child, &world.hierarchy.mount, hook, false).expect("attach");
    let effective = cgroup_link::effective(&child, hook).expect("query");
    let at = |p: &OwnedFd| effective.iter().position(|e| *e == id(p));
    assert!(at(&ours) < at(&theirs), "{effective:?}");
    assert!(at(&ours).is_some());
}

#[test]
fn l_a05_an_exclusive_program_is_named_not_removed() {
    if !can_run() {
        return;
    }
    let world = World::new();
    let (parent, child) = family(&world);
    let hook = CgroupHook::Connect4;
    let theirs = foreign(&parent, hook, 0);
    let ours = program(hook, "ours");
    for (place, at) in [(&child, &parent), (&parent, &parent)] {
        let error =
            cgroup_link::attach(ours.as_fd(), place, &world.hierarchy.mount, hook, true).expect_err("EPERM");
        let text = error.to_string();
        assert!(matches!(error, AttachError::Exclusive(_)), "{text}");
        let expected = format!("EPERM: program foreign id {} at {} (connect4)", id(&theirs), at.display());
        assert!(text.starts_with(&expected), "{text}");
        // The check says what the kernel says.
        let dir = File::open(place).expect("open");
        let kernel = bpf_sys::link_create(ours.as_fd(), dir.as_fd(), hook.attach_type()).expect_err("EPERM");
        assert_eq!(kernel.raw_os_error(), Some(libc::EPERM));
    }
    assert_eq!(cgroup_link::attached(&parent, hook).expect("query").programs, vec![id(&theirs)]);
}

#[test]
fn l_a05_an_overridable_program_is_not_switched_off_in_silence() {
    if !can_run() {
        return;
    }
    let world = World::new();
    let (parent, child) = family(&world);
    let (mount, hook) = (&world.hierarchy.mount, CgroupHook::SkbIngress);
    let theirs = foreign(&parent, hook, F_ALLOW_OVERRIDE);
    let ours = program(hook, "ours");
    let error = cgroup_link::attach(ours.as_fd(), &child, mount, hook, false).expect_err("refused");
    assert!(matches!(&error, AttachError::WouldOverride(f) if f.program.id == id(&theirs)), "{error}");
    let _link = cgroup_link::attach(ours.as_fd(), &child, mount, hook, true).expect("accepted");
    let effective = cgroup_link::effective(&child, hook).expect("query");
    assert!(!effective.contains(&id(&theirs)), "this is what the refusal is about: {effective:?}");
}

#[test]
fn the_level_is_the_kernels() {
    if !can_run() {
        return;
    }
    let world = World::new();
    let (_, child) = family(&world);
    let (own, mount) = (&world.hierarchy.own, &world.hierarchy.mount);
    let level = |p: &Path| cgroup_link::level(p, own, mount).expect("level");
    assert_eq!(level(mount), 0);
    assert_eq!(level(&child), level(world.cgroup().path()) + 2);
    let id = std::os::unix::fs::MetadataExt::ino(&std::fs::metadata(own).expect("stat"));
    assert_eq!(cgroup_link::probe_level(id).expect("probe"), level(own), "both ways agree");
}
