//! One lock over all test processes of this machine: worlds share it, a test that looks for residue
//! holds it alone, since it would take another test's cgroup for something left behind.

use std::fs::{File, OpenOptions};
use std::os::fd::AsRawFd;

/// Held until dropped.
#[derive(Debug)]
pub struct Lock {
    _file: File,
}

impl Lock {
    /// With any number of other shared holders.
    pub fn shared() -> Self {
        Self::take(libc::LOCK_SH)
    }

    /// With nobody else.
    pub fn exclusive() -> Self {
        Self::take(libc::LOCK_EX)
    }

    fn take(mode: i32) -> Self {
        let path = "/run/egret-tests.lock";
        let file = OpenOptions::new()
            .create(true)
            .truncate(false)
            .write(true)
            .open(path)
            .unwrap_or_else(|error| panic!("{path}: {error}"));
        loop {
            // SAFETY: the descriptor is open for the whole call; flock touches no memory.
            if unsafe { libc::flock(file.as_raw_fd(), mode) } == 0 {
                return Self { _file: file };
            }
            let error = std::io::Error::last_os_error();
            assert_eq!(error.raw_os_error(), Some(libc::EINTR), "flock {path}: {error}");
        }
    }
}
