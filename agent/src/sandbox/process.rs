//! The running CMD: a pidfd, so that its number can never come to mean another process.

use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};

use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// How CMD ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Exit {
    /// Its exit code, or 128 + the signal it died of, as shells report it.
    pub code: u8,
    /// The signal it died of.
    pub signal: Option<i32>,
}

/// CMD's first process. Dropping the handle neither ends nor frees it.
#[derive(Debug)]
pub struct Child {
    pid: i32,
    pidfd: OwnedFd,
}

impl Child {
    pub(super) fn new(pid: i32, pidfd: OwnedFd) -> Self {
        Self { pid, pidfd }
    }

    /// Its process id.
    #[must_use]
    pub fn pid(&self) -> i32 {
        self.pid
    }

    /// Sends a signal to this process alone. `ESRCH` once it has ended.
    pub fn signal(&self, signal: i32) -> io::Result<()> {
        // SAFETY: plain system call on a pidfd that is open.
        let r = unsafe { libc::syscall(libc::SYS_pidfd_send_signal, self.pidfd.as_raw_fd(), signal, 0, 0) };
        if r == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
    }

    /// Waits for the end and reaps it. Needs a tokio runtime with I/O. To be called once.
    pub async fn wait(&self) -> io::Result<Exit> {
        // A pidfd becomes readable when its process ends.
        // SAFETY: the borrowed descriptor stays open for as long as `self`, which outlives `fd`.
        let fd = unsafe { AsyncFd::register_with_interest(self.pidfd.as_fd(), Interest::READABLE) }?;
        let _guard = fd.readable().await?;
        self.wait_blocking()
    }

    /// As `wait`, for callers without a runtime.
    pub fn wait_blocking(&self) -> io::Result<Exit> {
        // SAFETY: an all-zero `siginfo_t` is valid.
        let mut info: libc::siginfo_t = unsafe { std::mem::zeroed() };
        loop {
            // SAFETY: waitid on our own child; `info` is writable.
            let r = unsafe {
                libc::waitid(libc::P_PIDFD, self.pidfd.as_raw_fd() as u32, &raw mut info, libc::WEXITED)
            };
            match io::Error::last_os_error() {
                _ if r == 0 => break,
                e if e.kind() == io::ErrorKind::Interrupted => {}
                e => return Err(e),
            }
        }
        // SAFETY: waitid filled in the fields of a SIGCHLD.
        let status = unsafe { info.si_status() };
        Ok(match info.si_code {
            libc::CLD_EXITED => Exit { code: status as u8, signal: None },
            _ => Exit { code: 128u8.wrapping_add(status as u8), signal: Some(status) },
        })
    }
}
