//! Emptying a cgroup: is anything left, waiting for the end, signalling members, removing directories.

use std::fs::File;
use std::io::{self, Read, Seek};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::path::Path;
use std::time::{Duration, Instant};

use super::cgroup::{own_path, subdirectories};

pub(super) fn populated(dir: &Path) -> io::Result<bool> {
    Ok(std::fs::read_to_string(dir.join("cgroup.events"))?.lines().any(|l| l == "populated 1"))
}

/// The kernel reports a change of `cgroup.events` as POLLPRI.
pub(super) fn wait_empty(dir: &Path, limit: Duration) -> io::Result<bool> {
    let end = Instant::now() + limit;
    let mut file = File::open(dir.join("cgroup.events"))?;
    let mut text = String::new();
    loop {
        text.clear();
        file.rewind()?;
        file.read_to_string(&mut text)?;
        if text.lines().any(|l| l == "populated 0") {
            return Ok(true);
        }
        let left = end.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Ok(false);
        }
        let mut poll = libc::pollfd { fd: file.as_raw_fd(), events: libc::POLLPRI, revents: 0 };
        let millis = i32::try_from(left.as_millis() + 1).unwrap_or(i32::MAX);
        // SAFETY: one valid pollfd.
        let r = unsafe { libc::poll(&raw mut poll, 1, millis) };
        let error = io::Error::last_os_error();
        if r < 0 && error.kind() != io::ErrorKind::Interrupted {
            return Err(error);
        }
    }
}

pub(super) fn kill_all(dir: &Path, pids: impl Fn() -> Vec<i32>) -> io::Result<()> {
    match std::fs::write(dir.join("cgroup.kill"), "1") {
        Err(e) if e.kind() == io::ErrorKind::NotFound => {}
        other => return other,
    }
    // No cgroup.kill before kernel 5.14: kill round by round, since members may fork meanwhile.
    for _ in 0..100 {
        for pid in pids() {
            signal_member(pid, dir, libc::SIGKILL);
        }
        if wait_empty(dir, Duration::from_millis(50))? {
            return Ok(());
        }
    }
    Err(io::Error::from_raw_os_error(libc::EBUSY))
}

/// Signals `pid` if it still is a member: the number may have been given to another process since.
pub(super) fn signal_member(pid: i32, cgroup: &Path, signal: i32) {
    // SAFETY: plain system call; the descriptor returned is owned right below.
    let fd = unsafe { libc::syscall(libc::SYS_pidfd_open, pid, 0) };
    if fd < 0 {
        return;
    }
    // SAFETY: `fd` is new and ours.
    let fd = unsafe { OwnedFd::from_raw_fd(fd as i32) };
    let name = cgroup.file_name().and_then(|n| n.to_str()).unwrap_or_default();
    let text = std::fs::read_to_string(format!("/proc/{pid}/cgroup")).unwrap_or_default();
    let member = own_path(&text).is_some_and(|p| p.iter().any(|c| c == name));
    if member {
        // SAFETY: plain system call on an open pidfd.
        unsafe { libc::syscall(libc::SYS_pidfd_send_signal, fd.as_raw_fd(), signal, 0, 0) };
    }
}

/// Removes a tree of cgroups, leaves first. A process that has just exited may hold its directory for
/// a moment longer, hence the second try after the event.
pub(super) fn remove_tree(dir: &Path) -> io::Result<()> {
    for child in subdirectories(dir) {
        remove_tree(&child)?;
    }
    for _ in 0..10 {
        match std::fs::remove_dir(dir) {
            Err(e) if e.raw_os_error() == Some(libc::EBUSY) => {
                if !wait_empty(dir, Duration::from_millis(200))? {
                    return Err(e);
                }
                std::thread::yield_now();
            }
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(()),
            other => return other,
        }
    }
    std::fs::remove_dir(dir)
}
