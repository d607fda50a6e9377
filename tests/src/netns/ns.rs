//! One named network namespace and how to act inside it.

use std::fs::File;
use std::os::fd::{AsFd, BorrowedFd};
use std::panic::resume_unwind;
use std::thread;

use nix::sched::{CloneFlags, setns};

/// A network namespace, held open by its file under /run/netns.
#[derive(Debug)]
pub struct Ns {
    name: String,
    file: File,
}

impl Ns {
    /// Opens the namespace that `ip netns add NAME` made.
    pub fn open(name: &str) -> Self {
        let path = format!("/run/netns/{name}");
        let file = File::open(&path).unwrap_or_else(|error| panic!("{path}: {error}"));
        Self { name: name.into(), file }
    }

    /// The one that this process is in.
    pub fn own() -> Self {
        let path = "/proc/self/ns/net";
        let file = File::open(path).unwrap_or_else(|error| panic!("{path}: {error}"));
        Self { name: String::new(), file }
    }

    /// Its name as `ip netns` shows it; empty if nobody gave it one.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The open namespace, for `setns`.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }

    /// Runs `act` on a thread inside the namespace and returns what it gave. Sockets made there keep
    /// working on any thread afterwards.
    pub fn run<T: Send>(&self, act: impl FnOnce() -> T + Send) -> T {
        thread::scope(|scope| {
            let inside = scope.spawn(|| {
                setns(&self.file, CloneFlags::CLONE_NEWNET)
                    .unwrap_or_else(|error| panic!("setns {}: {error}", self.name));
                act()
            });
            inside.join().unwrap_or_else(|panic| resume_unwind(panic))
        })
    }

    /// Sets `net/…` kernel settings of this namespace.
    pub fn sysctl(&self, settings: &[(String, String)]) {
        self.run(|| {
            for (key, value) in settings {
                let path = format!("/proc/sys/{key}");
                std::fs::write(&path, value).unwrap_or_else(|error| panic!("{path} = {value}: {error}"));
            }
        });
    }
}
