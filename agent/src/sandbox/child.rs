//! Starting CMD inside its cgroup, with everything taken from it that would let it out.
//!
//! Everything is prepared before the fork; `confine` runs in the child and only makes system calls.
//! The child enters the cgroup by `clone3(CLONE_INTO_CGROUP)` (kernel 5.7): it never runs outside.
//! No parent-death signal: killing egret neither frees CMD nor ends it.

use std::ffi::{CString, OsString};
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::PathBuf;

use caps::Capability;

use super::cgroup::Cgroup;
use super::confine::{self, Prepared};
use super::process::Child;
use super::stage::Stage;
use super::user::UserSpec;
use super::{fds, landlock, mounts, seccomp};
use crate::exit::{self, Refusal};

/// What to start and what to leave it.
#[derive(Debug, Clone, Default)]
pub struct Spec {
    /// CMD and its arguments; not empty.
    pub argv: Vec<OsString>,
    /// The whole environment; PATH of it is searched for CMD. See `user::environment`.
    pub env: Vec<(OsString, OsString)>,
    /// Working directory; `None` keeps egret's.
    pub cwd: Option<PathBuf>,
    /// Whom to run as; `None` keeps egret's user.
    pub user: Option<UserSpec>,
    /// Capabilities of `caps::DROPPED` that are not dropped.
    pub keep_caps: Vec<Capability>,
    /// Descriptors that CMD inherits although they may be sockets from outside.
    pub keep_fds: Vec<RawFd>,
    /// Paths that are covered (`--hide`).
    pub hide: Vec<PathBuf>,
    /// Leaves the system-call filter out (`--no-syscall-filter`).
    pub no_syscall_filter: bool,
    /// The signal mask CMD starts with (the one egret was started with): bit n-1 = signal n blocked.
    pub signal_mask: u64,
}

/// Starts CMD in `cgroup`. Returns once CMD's own program has been loaded; until then any failure leaves
/// nothing behind. Codes: 127 not found, 126 not executable, 71 if it could not be confined.
pub fn spawn(spec: &Spec, cgroup: &Cgroup) -> Result<Child, Refusal> {
    let (reader, writer) = pipe().map_err(|e| os("pipe", &e))?;
    let dir = File::open(cgroup.path()).map_err(|e| os("open the cgroup", &e))?;
    let mut prepared = prepare(spec, writer.as_raw_fd())?;
    let child =
        confine::fork_into(&dir, &mut prepared).map_err(|e| os("start a process in the cgroup", &e))?;
    drop(writer);
    // End of file: the pipe was closed by exec. Otherwise the stage and errno of what failed.
    let mut report = Vec::new();
    let read = File::from(reader).read_to_end(&mut report);
    match (read, <[u8; 8]>::try_from(report.as_slice())) {
        (Ok(0), _) => Ok(child),
        (Ok(_), Ok([a, b, c, d, e, f, g, h])) => {
            let _ = child.wait_blocking();
            let stage = Stage::from_number(u32::from_ne_bytes([a, b, c, d]));
            Err(failed(spec, stage, i32::from_ne_bytes([e, f, g, h])))
        }
        (Ok(_), Err(_)) | (Err(_), _) => {
            let _ = child.signal(libc::SIGKILL);
            let _ = child.wait_blocking();
            Err(os("start CMD", &io::Error::from(io::ErrorKind::UnexpectedEof)))
        }
    }
}

/// What the caller should tell the user about: standard descriptors that CMD does not get.
#[must_use]
pub fn replaced_stdio(keep: &[RawFd]) -> Vec<String> {
    let names = ["stdin", "stdout", "stderr"];
    let kinds = names.iter().zip(fds::unsafe_stdio(keep)).filter_map(|(n, k)| Some((n, k?)));
    kinds
        .filter(|(_, kind)| *kind != "closed")
        .map(|(name, kind)| {
            let fd = names.iter().position(|n| n == name).unwrap_or_default();
            format!("{name} is {kind}, which no hook sees: CMD gets /dev/null (--keep-fd {fd} keeps it)")
        })
        .collect()
}

fn prepare(spec: &Spec, report: RawFd) -> Result<Prepared, Refusal> {
    let name = spec.argv.first().ok_or_else(|| usage("no command given"))?;
    fds::check_keep(&spec.keep_fds).map_err(|e| usage(&format!("--keep-fd: {e}")))?;
    let uid = spec.user.as_ref().map_or_else(|| nix::unistd::Uid::effective().as_raw(), |u| u.uid);
    let root_child = uid == 0 || !spec.keep_caps.is_empty();
    let table = mounts::table().map_err(|e| os("read the mount table", &e))?;
    let caps = super::caps::plan(uid == 0, &spec.keep_caps).map_err(io::Error::other);
    Ok(Prepared {
        argv: spec.argv.iter().map(c_string).collect::<Result<_, _>>()?,
        env: spec.env.iter().map(|(k, v)| c_string(&assignment(k, v))).collect::<Result<_, _>>()?,
        candidates: candidates(name, &spec.env).iter().map(c_string).collect::<Result<_, _>>()?,
        cwd: spec.cwd.as_ref().map(|d| c_string(&d.clone().into())).transpose()?,
        mounts: mounts::plan(&table, root_child, &spec.hide).map_err(|e| os("plan the mounts", &e))?,
        replace_stdio: fds::unsafe_stdio(&spec.keep_fds).map(|k| k.is_some()),
        null: null().map_err(|e| os("open /dev/null", &e))?,
        keep_fds: spec.keep_fds.clone(),
        user: spec.user.as_ref().map(|u| (u.uid, u.gid, u.groups.clone())),
        caps: caps.map_err(|e| os("read capabilities", &e))?,
        landlock: landlock::prepare().map_err(|e| os("prepare Landlock", &e))?,
        seccomp: filter(spec),
        signal_mask: spec.signal_mask,
        report,
    })
}

fn filter(spec: &Spec) -> Option<Vec<libc::sock_filter>> {
    let keeps_bpf =
        [Capability::CAP_BPF, Capability::CAP_SYS_ADMIN].iter().any(|c| spec.keep_caps.contains(c));
    if spec.no_syscall_filter { None } else { seccomp::program(keeps_bpf) }
}

fn null() -> io::Result<OwnedFd> {
    let file = std::fs::OpenOptions::new().read(true).write(true).open("/dev/null")?;
    keep_high(file.into())
}

fn assignment(key: &OsString, value: &OsString) -> OsString {
    OsString::from_vec([key.as_bytes(), b"=", value.as_bytes()].concat())
}

fn c_string(text: &OsString) -> Result<CString, Refusal> {
    CString::new(text.as_bytes()).map_err(|_| usage("a zero byte in an argument or in the environment"))
}

fn usage(text: &str) -> Refusal {
    Refusal::new(exit::USAGE, text, "see egret run --help")
}

/// The paths that execvp(3) would try.
fn candidates(name: &OsString, env: &[(OsString, OsString)]) -> Vec<OsString> {
    if name.as_bytes().contains(&b'/') {
        return vec![name.clone()];
    }
    let path = env.iter().rev().find(|(k, _)| k == "PATH").map(|(_, v)| v.clone());
    let path = path.unwrap_or_else(|| "/usr/local/bin:/usr/bin:/bin".into());
    let dirs = path.as_bytes().split(|b| *b == b':');
    dirs.map(|dir| {
        let dir: &[u8] = if dir.is_empty() { b"." } else { dir };
        OsString::from_vec([dir, b"/", name.as_bytes()].concat())
    })
    .collect()
}

fn failed(spec: &Spec, stage: Stage, errno: i32) -> Refusal {
    let error = io::Error::from_raw_os_error(errno);
    let name = spec.argv.first().map(|n| n.to_string_lossy().into_owned()).unwrap_or_default();
    match (stage, errno) {
        (Stage::Exec, libc::ENOENT | libc::ENOTDIR) => {
            Refusal::new(exit::CMD_NOT_FOUND, format!("{name}: command not found"), "check the name and PATH")
        }
        (Stage::Exec, _) => {
            let remedy = "CMD must be executable by the user it runs as";
            Refusal::new(exit::CMD_NOT_EXECUTABLE, format!("{name}: {error}"), remedy)
        }
        _ => os(stage.describe(), &error),
    }
}

fn os(what: &str, error: &io::Error) -> Refusal {
    let remedy = "CMD was not started: it could not have been held";
    Refusal::new(exit::OS_ERROR, format!("cannot {what}: {error}"), remedy)
}

/// A pipe above the standard descriptors, so that a closed stdin cannot swallow it.
fn pipe() -> io::Result<(OwnedFd, OwnedFd)> {
    let (reader, writer) = io::pipe()?;
    Ok((keep_high(reader.into())?, keep_high(writer.into())?))
}

fn keep_high(fd: OwnedFd) -> io::Result<OwnedFd> {
    // SAFETY: F_DUPFD_CLOEXEC on an open descriptor gives a new one, at least 3.
    let new = unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_DUPFD_CLOEXEC, 3) };
    if new < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: `new` was just made and is owned by nobody else.
    Ok(unsafe { OwnedFd::from_raw_fd(new) })
}

/// The calling thread's errno; safe after a fork.
pub(super) fn errno() -> i32 {
    // SAFETY: the location is valid for the life of the thread.
    unsafe { *libc::__errno_location() }
}
