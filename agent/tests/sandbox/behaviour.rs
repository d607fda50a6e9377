//! What CMD sees: user, exit codes, descriptors, signals; and that every descendant is held.

use std::os::fd::AsRawFd;
use std::time::Duration;

use egret::exit;
use egret::sandbox::{self, child, signals, user};

use super::{World, can_run, eventually};

#[test]
fn exit_codes_pass_through() {
    if !can_run() {
        return;
    }
    let world = World::new();
    assert_eq!(world.run(&world.shell("exit 42")).expect("runs").code, 42);
    let killed = world.run(&world.shell("kill -9 $$")).expect("runs");
    assert_eq!((killed.code, killed.signal), (137, Some(9)));
    let mut spec = world.shell("");
    spec.argv = vec!["no-such-command-here".into()];
    assert_eq!(world.run(&spec).expect_err("not there").code, exit::CMD_NOT_FOUND);
    spec.argv = vec!["/etc/passwd".into()];
    assert_eq!(world.run(&spec).expect_err("a text file").code, exit::CMD_NOT_EXECUTABLE);
    let script = world.dir.join("script");
    std::fs::write(&script, "exit $(($1 + 1))\n").expect("write");
    std::process::Command::new("chmod").args(["+x"]).arg(&script).status().expect("chmod");
    spec.argv = vec![script.into(), "4".into()];
    assert_eq!(world.run(&spec).expect("as execvp: by the shell").code, 5);
    assert!(world.cgroup().is_empty().expect("readable"));
}

#[test]
fn runs_as_the_user_with_their_environment() {
    if !can_run() {
        return;
    }
    let world = World::new();
    let who = user::resolve("nobody").expect("nobody");
    let mut spec =
        world.shell("{ id -u; id -G; echo $HOME $USER; grep -E 'Cap|NoNew' /proc/self/status; } >$DIR/out");
    spec.env = user::environment(spec.env.into_iter(), Some(&who));
    spec.user = Some(who.clone());
    assert_eq!(world.run(&spec).expect("runs").code, 0);
    let out = world.read("out");
    let lines: Vec<_> = out.lines().collect();
    let groups: Vec<_> = who.groups.iter().map(ToString::to_string).collect();
    assert_eq!(lines[0], who.uid.to_string());
    assert_eq!(lines[1], groups.join(" "));
    assert_eq!(lines[2], format!("{} nobody", who.home.display()));
    for set in ["CapInh", "CapPrm", "CapEff", "CapAmb"] {
        assert!(out.contains(&format!("{set}:\t0000000000000000")), "{set}: {out}");
    }
    assert!(out.contains("NoNewPrivs:\t1"));
}

#[test]
fn a_kept_capability_works_for_a_user_too() {
    if !can_run() {
        return;
    }
    let world = World::new();
    let mut spec = world.shell("grep -E 'CapEff|CapAmb' /proc/self/status >$DIR/out");
    spec.user = Some(user::resolve("nobody").expect("nobody"));
    spec.keep_caps = vec![sandbox::caps::parse("net_raw").expect("a capability")];
    assert_eq!(world.run(&spec).expect("runs").code, 0);
    assert_eq!(world.read("out"), "CapEff:\t0000000000002000\nCapAmb:\t0000000000002000\n");
}

#[test]
fn ordinary_root_jobs_go_on_to_work() {
    if !can_run() {
        return;
    }
    let world = World::new();
    let script = "set -e; cd $DIR; echo x >f; chown nobody f; chmod 4755 f; mkdir d; mv f d/; ln d/f g; \
        test -r /proc/meminfo; test -d /sys/class/net; chroot / true; kill -0 $$; \
        setpriv --reuid=nobody --regid=nogroup --clear-groups true; echo fine >out";
    let exit = world.run(&world.shell(script)).expect("runs");
    assert_eq!((exit.code, world.read("out").as_str()), (0, "fine\n"));
}

#[test]
fn network_sockets_are_not_inherited() {
    if !can_run() {
        return;
    }
    let world = World::new();
    let socket = std::net::UdpSocket::bind("127.0.0.1:0").expect("bind");
    // SAFETY: duplicates without close-on-exec, as a shell would hand it over.
    let fd = unsafe { libc::fcntl(socket.as_raw_fd(), libc::F_DUPFD, 200) };
    let mut spec = world.shell(&format!("test -e /proc/self/fd/{fd}"));
    assert_eq!(world.run(&spec).expect("runs").code, 1);
    spec.keep_fds = vec![fd];
    assert_eq!(world.run(&spec).expect("runs").code, 0);
    // One that egret opened for itself is not CMD's to keep.
    spec.keep_fds = vec![socket.as_raw_fd()];
    assert_eq!(world.run(&spec).expect_err("close-on-exec").code, exit::USAGE);
    // SAFETY: closes the descriptor made above.
    unsafe { libc::close(fd) };
}

/// S-A03: children that strip variables, detach or change their user are held all the same.
#[test]
fn s_a03_every_descendant_is_in_the_cgroup() {
    if !can_run() {
        return;
    }
    let world = World::new();
    let script = "setsid sleep 61 & (setsid sh -c 'sleep 62 & exec sleep 63' &) ; env -i sleep 64 & \
        setpriv --reuid=nobody --clear-groups --regid=nogroup sleep 65 & nohup sleep 66 >/dev/null & exit 3";
    let child = child::spawn(&world.shell(script), world.cgroup()).expect("starts");
    assert_eq!(child.wait_blocking().expect("wait").code, 3);
    let named = |pid: &i32| std::fs::read_to_string(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    let expected: Vec<String> = (61..=66).map(|n| format!("sleep\0{n}\0")).collect();
    eventually("all six run in the cgroup", || {
        let mut have: Vec<_> = world.cgroup().pids().iter().map(named).collect();
        have.sort();
        have == expected
    });
    assert!(!world.cgroup().is_empty().expect("readable"));
    assert_eq!(world.cgroup().terminate(Duration::from_secs(5)).expect("terminate"), 6);
    assert!(world.cgroup().is_empty().expect("readable"));
}

#[test]
fn what_ignores_sigterm_is_killed() {
    if !can_run() {
        return;
    }
    let world = World::new();
    let script = "trap '' TERM; (trap '' TERM; touch $DIR/up; while :; do sleep 60; done) & exit 0";
    assert_eq!(world.run(&world.shell(script)).expect("runs").code, 0);
    eventually("the survivor is up", || world.dir.join("up").exists());
    assert!(world.cgroup().terminate(Duration::from_millis(50)).expect("terminate") >= 1);
    assert!(world.cgroup().is_empty().expect("readable"));
}

#[test]
fn signals_from_processes_reach_cmd() {
    if !can_run() {
        return;
    }
    let world = World::new();
    let signals = signals::Signals::block().expect("signalfd");
    let script = "trap 'exit 7' TERM; touch $DIR/up; while :; do sleep 0.05; done";
    let mut spec = world.shell(script);
    spec.signal_mask = signals.original_mask;
    let child = child::spawn(&spec, world.cgroup()).expect("starts");
    eventually("CMD is up", || world.dir.join("up").exists());
    // SAFETY: to this thread only, where the signal is blocked.
    unsafe { libc::syscall(libc::SYS_tgkill, libc::getpid(), libc::gettid(), libc::SIGTERM) };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build().expect("runtime");
    let exit = runtime.block_on(signals::supervise(&child, world.cgroup(), &signals)).expect("supervise");
    assert_eq!(exit.code, 7);
}

#[test]
fn leftovers_are_told_from_live_runs() {
    if !can_run() {
        return;
    }
    let world = World::new();
    let dead = world.hierarchy.create(&format!("dead-{}", std::process::id())).expect("create");
    let path = dead.path().to_owned();
    let in_use = || world.hierarchy.leftovers().into_iter().find(|l| l.path == path).map(|l| l.in_use);
    assert_eq!(in_use(), Some(true), "locked by its run");
    drop(dead); // as if its egret had been killed
    // A cleaner of a test beside this one may hold it for a moment.
    eventually("it is nobody's", || in_use() != Some(true));
    // A test beside this one may be quicker to clean it.
    let _ = world.hierarchy.clean_leftovers();
    assert!(!path.exists());
    assert!(world.cgroup().path().exists(), "the live run's cgroup stays");
}

/// Runs that start and runs that clean up at the same time do not get in each other's way.
#[test]
fn a_starting_run_is_not_cleaned_away() {
    if !can_run() {
        return;
    }
    let world = World::new();
    let cleaning = std::sync::atomic::AtomicBool::new(true);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while cleaning.load(std::sync::atomic::Ordering::Relaxed) {
                let _ = world.hierarchy.clean_leftovers();
            }
        });
        for number in 0..300 {
            let made =
                world.hierarchy.create(&format!("race-{}-{number}", std::process::id())).expect("create");
            assert!(made.is_empty().expect("still there"));
            made.remove().expect("remove");
        }
        cleaning.store(false, std::sync::atomic::Ordering::Relaxed);
    });
}

#[test]
fn hidden_paths_and_name_sockets_are_covered() {
    if !can_run() {
        return;
    }
    let world = World::new();
    let socket = world.dir.join("service");
    let _listener = std::os::unix::net::UnixListener::bind(&socket).expect("bind");
    std::fs::create_dir(world.dir.join("folder")).expect("mkdir");
    std::fs::write(world.dir.join("folder/file"), "x").expect("write");
    let mut spec = world.shell("test -c $DIR/service && ! test -e $DIR/folder/file");
    spec.hide = vec![socket, world.dir.join("folder")];
    assert_eq!(world.run(&spec).expect("runs").code, 0);
    spec.hide = vec![world.dir.join("not there")];
    assert_eq!(world.run(&spec).expect_err("a typo must not pass").code, exit::OS_ERROR);
}
