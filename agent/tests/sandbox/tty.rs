//! CMD at a terminal: Ctrl-C reaches it once, not twice, and egret stays to see its end.
//!
//! `terminal_entry` plays egret in a copy of this binary that has a terminal of its own.

use std::ffi::CString;
use std::fs::File;
use std::io::Write;
use std::os::fd::{FromRawFd, IntoRawFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::atomic::{AtomicI32, Ordering};

use egret::sandbox::{child, signals};

use super::{World, can_run, eventually};

#[test]
fn ctrl_c_arrives_once() {
    if !can_run() {
        return;
    }
    let world = World::new();
    let out = world.dir.clone();
    let mut terminal = start(&out);
    eventually("CMD is up", || out.join("up").exists());
    terminal.write_all(b"\x03").expect("type");
    eventually("the interrupt has arrived", || !world.read("interrupts").is_empty());
    // A second delivery would come through egret; its loop has passed this point when CMD has ended.
    std::fs::write(out.join("stop"), "").expect("write");
    eventually("egret has seen the end", || world.read("exit") == "9");
    assert_eq!(world.read("interrupts"), "x\n");
}

/// Forks a copy of this binary onto a new terminal; gives the terminal's other end.
fn start(out: &Path) -> File {
    let c = |b: &[u8]| CString::new(b).expect("no zero byte");
    let exe = c(std::env::current_exe().expect("own path").as_os_str().as_bytes());
    let args = [exe.clone(), c(b"--exact"), c(b"tty::terminal_entry"), c(b"--test-threads=1")];
    let env = [c(&[b"EGRET_TERMINAL=", out.as_os_str().as_bytes()].concat()), c(b"PATH=/usr/bin:/bin")];
    let list = |v: &[CString]| v.iter().map(|s| s.as_ptr()).chain([std::ptr::null()]).collect::<Vec<_>>();
    let (argv, envp) = (list(&args), list(&env));
    let mut master = -1;
    let none = std::ptr::null_mut();
    // SAFETY: forkpty with defaults; the child makes system calls only until exec. The mask survives exec and
    // plays the block that egret's main sets up before any thread exists.
    let pid = unsafe {
        let pid = libc::forkpty(&raw mut master, none, none.cast(), none.cast());
        if pid == 0 {
            let mut set: libc::sigset_t = std::mem::zeroed();
            libc::sigaddset(&raw mut set, libc::SIGINT);
            libc::sigprocmask(libc::SIG_BLOCK, &raw const set, std::ptr::null_mut());
            libc::execve(exe.as_ptr(), argv.as_ptr(), envp.as_ptr());
            libc::_exit(127);
        }
        pid
    };
    assert!(pid > 0, "forkpty");
    // SAFETY: the master is new and ours.
    unsafe { File::from_raw_fd(master) }
}

/// Not a test by itself: see the module's head.
#[test]
fn terminal_entry() {
    let Some(out) = std::env::var_os("EGRET_TERMINAL") else { return };
    let world = World::new();
    let signals = signals::Signals::block().expect("signalfd");
    let mut spec = world.shell("");
    let exe = std::env::current_exe().expect("own path");
    spec.argv = vec![exe.into(), "--exact".into(), "tty::counting_entry".into(), "--test-threads=1".into()];
    spec.env.push(("EGRET_COUNT".into(), out.clone()));
    let child = child::spawn(&spec, world.cgroup()).expect("starts");
    let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build().expect("runtime");
    let exit = runtime.block_on(signals::supervise(&child, world.cgroup(), &signals)).expect("supervise");
    let temporary = Path::new(&out).join("exit.new");
    std::fs::write(&temporary, exit.code.to_string()).expect("write");
    std::fs::rename(temporary, Path::new(&out).join("exit")).expect("rename");
}

static COUNT_FD: AtomicI32 = AtomicI32::new(-1);

extern "C" fn count(_signal: i32) {
    // SAFETY: write(2) is async-signal-safe; the descriptor stays open for the life of the process.
    unsafe { libc::write(COUNT_FD.load(Ordering::Relaxed), c"x\n".as_ptr().cast(), 2) };
}

/// Not a test by itself: CMD, which handles each interrupt at once, so that two are not taken for one.
#[test]
fn counting_entry() {
    let Some(out) = std::env::var_os("EGRET_COUNT").map(std::path::PathBuf::from) else { return };
    let file = File::create(out.join("interrupts")).expect("create");
    COUNT_FD.store(file.into_raw_fd(), Ordering::Relaxed);
    // SAFETY: the handler only makes a system call.
    unsafe { libc::signal(libc::SIGINT, count as *const () as libc::sighandler_t) };
    std::fs::write(out.join("up"), "").expect("write");
    eventually("the test is over", || out.join("stop").exists());
    std::process::exit(9);
}
