//! What runs between clone and exec: one function, system calls only.
//!
//! The process was cloned from a multi-threaded one: no allocation, no lock, no libc function that keeps
//! state. User ids are set by raw system calls, because libc's versions signal threads that are not there.
//! The order matters: mounts need capabilities, so they come first; the filters come last.

use std::ffi::CString;
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};

use super::child::errno;
use super::process::Child;
use super::stage::Stage;
use super::{caps, fds, landlock, mounts, seccomp};

/// Everything the child needs, made before the fork.
pub(super) struct Prepared {
    pub(super) argv: Vec<CString>,
    pub(super) env: Vec<CString>,
    pub(super) candidates: Vec<CString>,
    pub(super) cwd: Option<CString>,
    pub(super) mounts: Vec<mounts::Op>,
    pub(super) replace_stdio: [bool; 3],
    pub(super) null: OwnedFd,
    pub(super) keep_fds: Vec<RawFd>,
    pub(super) user: Option<(u32, u32, Vec<u32>)>,
    pub(super) caps: caps::Plan,
    pub(super) landlock: Option<landlock::Ruleset>,
    pub(super) seccomp: Option<Vec<libc::sock_filter>>,
    pub(super) signal_mask: u64,
    pub(super) report: RawFd,
}

/// `struct clone_args` of linux/sched.h (kernel 5.7).
#[repr(C)]
#[derive(Default)]
struct CloneArgs {
    flags: u64,
    pidfd: u64,
    child_tid: u64,
    parent_tid: u64,
    exit_signal: u64,
    stack: u64,
    stack_size: u64,
    tls: u64,
    set_tid: u64,
    set_tid_size: u64,
    cgroup: u64,
}

const CLONE_INTO_CGROUP: u64 = 0x2_0000_0000;
/// The kernel's signal sets are one u64.
const SIGSET_SIZE: usize = 8;

/// Clones a process into the cgroup whose directory `cgroup` is, and lets it become CMD.
pub(super) fn fork_into(cgroup: &File, prepared: &mut Prepared) -> io::Result<Child> {
    let pointers = Pointers::new(prepared);
    let mut pidfd: RawFd = -1;
    let args = CloneArgs {
        flags: CLONE_INTO_CGROUP | libc::CLONE_PIDFD as u64,
        pidfd: (&raw mut pidfd) as u64,
        exit_signal: libc::SIGCHLD as u64,
        cgroup: cgroup.as_raw_fd() as u64,
        ..CloneArgs::default()
    };
    // Blocked across the clone, so that no handler of ours ever runs in the child.
    let before = set_signal_mask(u64::MAX);
    // SAFETY: `args` has the layout and size of `struct clone_args`; without CLONE_VM the child gets a copy
    // of this address space, in which `confine` only makes system calls until exec or exit.
    let pid = unsafe { libc::syscall(libc::SYS_clone3, &raw const args, size_of::<CloneArgs>()) };
    if pid == 0 {
        confine(prepared, pointers);
    }
    let error = io::Error::last_os_error();
    set_signal_mask(before);
    if pid < 0 {
        return Err(error);
    }
    // SAFETY: the kernel stored a new descriptor, close-on-exec, owned by nobody else.
    let pidfd = unsafe { OwnedFd::from_raw_fd(pidfd) };
    Ok(Child::new(pid as i32, pidfd))
}

/// Null-terminated arrays for execve, made before the fork.
struct Pointers {
    argv: Vec<*const libc::c_char>,
    /// `/bin/sh`, a slot for the script, the arguments after the first.
    script: Vec<*const libc::c_char>,
    env: Vec<*const libc::c_char>,
}

impl Pointers {
    fn new(prepared: &Prepared) -> Self {
        let list = |v: &[CString]| -> Vec<*const libc::c_char> {
            v.iter().map(|s| s.as_ptr()).chain([std::ptr::null()]).collect()
        };
        let argv = list(&prepared.argv);
        let mut script = vec![c"/bin/sh".as_ptr(), std::ptr::null()];
        script.extend(&argv[1..]);
        Self { argv, script, env: list(&prepared.env) }
    }
}

fn confine(p: &Prepared, mut pointers: Pointers) -> ! {
    let (stage, errno) = match try_confine(p) {
        Err(failure) => failure,
        Ok(()) => (Stage::Exec, execute(p, &mut pointers)),
    };
    let mut report = [0u8; 8];
    report[..4].copy_from_slice(&(stage as u32).to_ne_bytes());
    report[4..].copy_from_slice(&errno.to_ne_bytes());
    // SAFETY: write from a live array; _exit ends the process without running any destructor.
    unsafe {
        libc::write(p.report, report.as_ptr().cast(), report.len());
        libc::_exit(127)
    }
}

fn try_confine(p: &Prepared) -> Result<(), (Stage, i32)> {
    let at = |stage| move |errno| (stage, errno);
    // Until exec nobody of the same user may look into this copy of egret; exec resets it.
    check(prctl(libc::PR_SET_DUMPABLE, 0)).map_err(at(Stage::NoNewPrivs))?;
    fds::replace_stdio(p.replace_stdio, p.null.as_raw_fd()).map_err(at(Stage::Stdio))?;
    // SAFETY: plain system call. The cgroup namespace's root is the cgroup the child already is in.
    let unshared = unsafe { libc::unshare(libc::CLONE_NEWNS | libc::CLONE_NEWCGROUP) };
    check(unshared.into()).map_err(at(Stage::Namespaces))?;
    for op in &p.mounts {
        op.apply().map_err(at(Stage::Mounts))?;
    }
    if mounts::cwd_in_bpffs() {
        // SAFETY: a constant C string.
        check(unsafe { libc::chdir(c"/".as_ptr()) }.into()).map_err(at(Stage::Directory))?;
    }
    set_identity(p)?;
    if let Some(dir) = &p.cwd {
        // SAFETY: a C string that lives in `p`.
        check(unsafe { libc::chdir(dir.as_ptr()) }.into()).map_err(at(Stage::Directory))?;
    }
    check(prctl(libc::PR_SET_NO_NEW_PRIVS, 1)).map_err(at(Stage::NoNewPrivs))?;
    if let Some(ruleset) = &p.landlock {
        landlock::enter(ruleset.raw()).map_err(at(Stage::Landlock))?;
    }
    fds::seal(&p.keep_fds).map_err(at(Stage::Descriptors))?;
    reset_signals(p.signal_mask);
    if let Some(filter) = &p.seccomp {
        seccomp::install(filter).map_err(at(Stage::Seccomp))?;
    }
    Ok(())
}

/// Bounding set, groups, user, and the capability sets that remain, in the only order that works.
fn set_identity(p: &Prepared) -> Result<(), (Stage, i32)> {
    let caps = |errno| (Stage::Capabilities, errno);
    for cap in &p.caps.bounding_drop {
        check(prctl(libc::PR_CAPBSET_DROP, (*cap).into()))
            // A capability that this kernel does not know needs no dropping.
            .or_else(|e| if e == libc::EINVAL { Ok(()) } else { Err(e) })
            .map_err(caps)?;
    }
    if let Some((uid, gid, groups)) = &p.user {
        check(prctl(libc::PR_SET_KEEPCAPS, 1)).map_err(caps)?;
        // SAFETY: raw system calls with a live slice and numbers; see the module's head for why raw.
        let (a, b, c) = unsafe {
            (
                libc::syscall(libc::SYS_setgroups, groups.len(), groups.as_ptr()),
                libc::syscall(libc::SYS_setresgid, *gid, *gid, *gid),
                libc::syscall(libc::SYS_setresuid, *uid, *uid, *uid),
            )
        };
        for r in [a, b, c] {
            check(r).map_err(|errno| (Stage::User, errno))?;
        }
    }
    check(prctl4(libc::PR_CAP_AMBIENT, libc::PR_CAP_AMBIENT_CLEAR_ALL as u64, 0)).map_err(caps)?;
    set_caps(&p.caps).map_err(caps)?;
    for cap in (0..64u64).filter(|c| p.caps.ambient >> c & 1 == 1) {
        check(prctl4(libc::PR_CAP_AMBIENT, libc::PR_CAP_AMBIENT_RAISE as u64, cap)).map_err(caps)?;
    }
    Ok(())
}

/// `capset(2)`, version 3: two words each of effective, permitted, inheritable.
fn set_caps(plan: &caps::Plan) -> Result<(), i32> {
    let header = [0x2008_0522u32, 0];
    let (p, i) = (plan.permitted, plan.ambient);
    let data = [p as u32, p as u32, i as u32, (p >> 32) as u32, (p >> 32) as u32, (i >> 32) as u32];
    // SAFETY: header and data have the kernel's layout.
    check(unsafe { libc::syscall(libc::SYS_capset, header.as_ptr(), data.as_ptr()) })
}

/// No handler of egret may run in CMD's place; what was ignored stays ignored (nohup), except SIGPIPE,
/// which Rust's runtime ignores on its own.
fn reset_signals(mask: u64) {
    for signal in 1..=64 {
        // The kernel's `struct sigaction`: handler, flags, restorer, mask. All zero is SIG_DFL.
        let default = [0u64; 4];
        let mut old = [0u64; 4];
        let none = std::ptr::null_mut::<u64>();
        // SAFETY: both arrays are as large as the kernel's structure on 64-bit architectures.
        unsafe {
            libc::syscall(libc::SYS_rt_sigaction, signal, none, old.as_mut_ptr(), SIGSET_SIZE);
            if old[0] > 1 || signal == libc::SIGPIPE {
                libc::syscall(libc::SYS_rt_sigaction, signal, default.as_ptr(), none, SIGSET_SIZE);
            }
        }
    }
    set_signal_mask(mask);
}

/// Tries each candidate as execvp(3) does; gives the errno to report.
fn execute(p: &Prepared, pointers: &mut Pointers) -> i32 {
    let mut denied = None;
    let mut last = libc::ENOENT;
    for path in &p.candidates {
        // SAFETY: null-terminated arrays of C strings that live in `p`.
        unsafe { libc::execve(path.as_ptr(), pointers.argv.as_ptr(), pointers.env.as_ptr()) };
        last = errno();
        match last {
            libc::ENOEXEC => {
                // A script without `#!`: as execvp does, the shell reads it.
                pointers.script[1] = path.as_ptr();
                // SAFETY: as above; the slot before the arguments now holds the script.
                unsafe { libc::execve(c"/bin/sh".as_ptr(), pointers.script.as_ptr(), pointers.env.as_ptr()) };
                return errno();
            }
            libc::EACCES => denied = Some(last),
            libc::ENOENT | libc::ENOTDIR => {}
            _ => return last,
        }
    }
    denied.unwrap_or(last)
}

/// Sets the thread's signal mask and gives the old one.
pub(super) fn set_signal_mask(mask: u64) -> u64 {
    let mut old = 0u64;
    // SAFETY: both are one kernel signal set.
    unsafe {
        libc::syscall(
            libc::SYS_rt_sigprocmask,
            libc::SIG_SETMASK,
            &raw const mask,
            &raw mut old,
            SIGSET_SIZE,
        );
    }
    old
}

fn prctl(option: i32, argument: u64) -> i64 {
    // SAFETY: the options used here take numbers only.
    unsafe { libc::prctl(option, argument, 0u64, 0u64, 0u64).into() }
}

fn prctl4(option: i32, first: u64, second: u64) -> i64 {
    // SAFETY: the options used here take numbers only.
    unsafe { libc::prctl(option, first, second, 0u64, 0u64).into() }
}

fn check(result: i64) -> Result<(), i32> {
    if result < 0 { Err(errno()) } else { Ok(()) }
}
