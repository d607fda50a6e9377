//! The cgroup that a run lives in: finding cgroup v2, making a directory, watching, emptying, removing it.
//!
//! Owns the names `egret-run-*` and their lifetime. A live run holds an exclusive `flock` on its directory,
//! so that a run which starts meanwhile never takes it for a leftover. Knows nothing of BPF.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::empty::{kill_all, populated, remove_tree, signal_member, wait_empty};
use super::mounts;

/// First part of the name of every run's cgroup.
pub const PREFIX: &str = "egret-run-";
/// How long the kernel may take to reap what it was told to kill.
const KILL_WAIT: Duration = Duration::from_secs(5);

/// Where cgroup v2 is mounted, and which cgroup this process is in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hierarchy {
    /// The mount point of cgroup2, as this process sees it.
    pub mount: PathBuf,
    /// This process's cgroup as a directory at or below `mount`.
    pub own: PathBuf,
}

/// A cgroup directory. While this value lives the directory is locked as in use.
#[derive(Debug)]
pub struct Cgroup {
    path: PathBuf,
    id: u64,
    _lock: File,
}

/// A cgroup of an earlier run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Leftover {
    /// Its directory.
    pub path: PathBuf,
    /// What follows `egret-run-` in its name.
    pub run: String,
    /// Processes still live in it, or its egret still runs: leave it alone.
    pub in_use: bool,
}

/// Where cgroups of version 1 are mounted.
///
/// # Errors
/// The mount table cannot be read.
pub fn version_one() -> io::Result<Vec<PathBuf>> {
    let v1 = mounts::table()?.into_iter().filter(|mount| mount.fs_type == "cgroup");
    Ok(v1.map(|mount| mount.point).collect())
}

impl Hierarchy {
    /// Finds cgroup v2 by the mount table, wherever it is. `Err(NotFound)` if there is none.
    pub fn find() -> io::Result<Self> {
        let own = own_path(&std::fs::read_to_string("/proc/self/cgroup")?).ok_or_else(|| {
            io::Error::new(io::ErrorKind::NotFound, "no cgroup v2 line in /proc/self/cgroup")
        })?;
        let table = mounts::table()?;
        let v2: Vec<_> = table.iter().filter(|m| m.fs_type == "cgroup2").collect();
        // A mount of the whole tree is better than one of a part, which may not hold our own cgroup.
        let best = v2.iter().find(|m| m.root == Path::new("/")).or_else(|| v2.first());
        let mount = best.ok_or_else(|| io::Error::new(io::ErrorKind::NotFound, "cgroup2 is not mounted"))?;
        let inside = own.strip_prefix(&mount.root).unwrap_or(Path::new(""));
        // Seen from inside a cgroup namespace, a cgroup outside of it shows as "/../x".
        let below = !inside.components().any(|c| c == std::path::Component::ParentDir);
        let dir = if below { mount.point.join(inside) } else { mount.point.clone() };
        Ok(Self { mount: mount.point.clone(), own: dir.components().collect() })
    }

    /// Makes `egret-run-<run>` in our own cgroup, so that limits set on it go on to hold; or right below
    /// the mount if the kernel does not allow it there (a threaded cgroup, or one without permission).
    pub fn create(&self, run: &str) -> io::Result<Cgroup> {
        let name = format!("{PREFIX}{run}");
        match make(&self.own.join(&name)) {
            Err(e) if self.own != self.mount && e.kind() != io::ErrorKind::AlreadyExists => {
                make(&self.mount.join(&name))
            }
            other => other,
        }
    }

    /// Every `egret-run-*` anywhere below the mount.
    #[must_use]
    pub fn leftovers(&self) -> Vec<Leftover> {
        let mut found = Vec::new();
        let mut pending = vec![self.mount.clone()];
        while let Some(dir) = pending.pop() {
            for child in subdirectories(&dir) {
                match child.file_name().and_then(|n| n.to_str()).and_then(|n| n.strip_prefix(PREFIX)) {
                    Some(run) => found.push(Leftover {
                        run: run.to_owned(),
                        in_use: populated(&child).unwrap_or(true) || lock(&child).is_err(),
                        path: child,
                    }),
                    None => pending.push(child),
                }
            }
        }
        found
    }

    /// Removes the directories of runs that have ended and gives their names, for the caller to remove
    /// what it pinned under the same names.
    #[must_use]
    pub fn clean_leftovers(&self) -> Vec<String> {
        let ended = self.leftovers().into_iter().filter(|l| !l.in_use);
        ended.filter(|l| remove_ended(&l.path)).map(|l| l.run).collect()
    }
}

/// Looks again under the lock, which a run that starts at this moment takes as well.
fn remove_ended(path: &Path) -> bool {
    let Ok(_lock) = lock(path) else { return false };
    !populated(path).unwrap_or(true) && remove_tree(path).is_ok()
}

/// A name for a run: unique on this host, short, and without a dot (bpffs refuses dots).
#[must_use]
pub fn new_run_name() -> String {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    format!("{}-{:x}", std::process::id(), now.as_nanos() as u64 & 0xff_ffff_ffff)
}

impl Cgroup {
    /// The directory.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The cgroup id as programs see it: the directory's inode number.
    #[must_use]
    pub fn id(&self) -> u64 {
        self.id
    }

    /// Whether no process is left in it or below it.
    pub fn is_empty(&self) -> io::Result<bool> {
        populated(&self.path).map(|p| !p)
    }

    /// The processes in it and below it.
    #[must_use]
    pub fn pids(&self) -> Vec<i32> {
        let mut pids = Vec::new();
        let mut pending = vec![self.path.clone()];
        while let Some(dir) = pending.pop() {
            let text = std::fs::read_to_string(dir.join("cgroup.procs")).unwrap_or_default();
            pids.extend(text.lines().filter_map(|l| l.parse::<i32>().ok()).filter(|p| *p > 0));
            pending.extend(subdirectories(&dir));
        }
        pids
    }

    /// Waits until it is empty; false if `limit` passed first. Blocks the thread.
    pub fn wait_empty(&self, limit: Duration) -> io::Result<bool> {
        wait_empty(&self.path, limit)
    }

    /// Kills everything in it and below it, at once (`cgroup.kill`).
    pub fn kill(&self) -> io::Result<()> {
        kill_all(&self.path, || self.pids())
    }

    /// Ends what is left: SIGTERM (and SIGCONT for the stopped), after `grace` SIGKILL. Gives the number
    /// of processes that were there. Blocks the thread for at most `grace` and a few seconds.
    pub fn terminate(&self, grace: Duration) -> io::Result<usize> {
        let pids = self.pids();
        if pids.is_empty() && self.is_empty()? {
            return Ok(0);
        }
        for pid in &pids {
            signal_member(*pid, &self.path, libc::SIGTERM);
            signal_member(*pid, &self.path, libc::SIGCONT);
        }
        if !self.wait_empty(grace)? {
            self.kill()?;
            self.wait_empty(KILL_WAIT)?;
        }
        Ok(pids.len())
    }

    /// Removes the directory and those below it. Fails with `EBUSY` while a process is left.
    pub fn remove(self) -> io::Result<()> {
        remove_tree(&self.path)
    }
}

pub(super) fn own_path(text: &str) -> Option<PathBuf> {
    text.lines().find_map(|l| l.strip_prefix("0::")).map(|p| PathBuf::from(p.trim_end_matches(" (deleted)")))
}

/// Makes the directory and locks it. Between the two another run may look at it or take it for a leftover and
/// remove it; then it is made again. Only who holds the lock removes, so that the path cannot come to mean another
/// directory under the hands of a remover.
fn make(path: &Path) -> io::Result<Cgroup> {
    std::fs::create_dir(path)?;
    for _ in 0..1000 {
        match claim(path) {
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => std::thread::sleep(Duration::from_millis(1)),
            Err(e) if e.kind() == io::ErrorKind::NotFound => std::fs::create_dir(path)?,
            made => return made,
        }
    }
    Err(io::ErrorKind::WouldBlock.into())
}

fn claim(path: &Path) -> io::Result<Cgroup> {
    let file = lock(path)?;
    let id = file.metadata()?.ino();
    if std::fs::metadata(path)?.ino() != id {
        return Err(io::ErrorKind::NotFound.into());
    }
    if std::fs::read_to_string(path.join("cgroup.type"))?.trim() != "domain" {
        std::fs::remove_dir(path)?;
        return Err(io::Error::from_raw_os_error(libc::EOPNOTSUPP));
    }
    Ok(Cgroup { path: path.to_owned(), id, _lock: file })
}

/// An exclusive lock on the directory, held as long as the file is open; `WouldBlock` if taken.
fn lock(dir: &Path) -> io::Result<File> {
    let file = File::open(dir)?;
    // SAFETY: flock on a descriptor that is open.
    let r = unsafe { libc::flock(file.as_raw_fd(), libc::LOCK_EX | libc::LOCK_NB) };
    if r == 0 { Ok(file) } else { Err(io::Error::last_os_error()) }
}

pub(super) fn subdirectories(dir: &Path) -> Vec<PathBuf> {
    let Ok(entries) = std::fs::read_dir(dir) else { return Vec::new() };
    entries.flatten().filter(|e| e.file_type().is_ok_and(|t| t.is_dir())).map(|e| e.path()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn own_cgroup_line() {
        assert_eq!(own_path("9:name=systemd:/x\n0::/a/b\n"), Some("/a/b".into()));
        assert_eq!(own_path("9:name=systemd:/x\n"), None);
    }
}
