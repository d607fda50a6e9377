//! Where a program runs.

use std::ffi::{CStr, CString};
use std::io;
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use super::{Cmd, Outcome, Running};
use crate::netns::{Ns, RESOLVER_V4};

/// A network namespace with private files of /etc, and a cgroup if one is given.
#[derive(Clone, Debug)]
pub struct Place {
    ns: Arc<Ns>,
    dir: PathBuf,
    files: Vec<(&'static str, String)>,
    cgroup: Option<PathBuf>,
}

impl Place {
    /// In `ns`, with the standard resolver; `dir` takes the private files.
    pub fn new(ns: &Arc<Ns>, dir: &Path) -> Self {
        let files = vec![
            ("/etc/resolv.conf", format!("nameserver {RESOLVER_V4}\noptions timeout:2 attempts:2\n")),
            ("/etc/hosts", "127.0.0.1 localhost\n::1 localhost\n".into()),
            ("/etc/nsswitch.conf", "passwd: files\ngroup: files\nhosts: files dns\n".into()),
        ];
        Self { ns: ns.clone(), dir: dir.into(), files, cgroup: None }
    }

    /// Where this process is, with this machine's own files.
    pub fn own() -> Self {
        Self { ns: Arc::new(Ns::own()), dir: PathBuf::new(), files: Vec::new(), cgroup: None }
    }

    /// Another /etc/resolv.conf.
    #[must_use]
    pub fn resolv_conf(self, text: &str) -> Self {
        self.file("/etc/resolv.conf", text)
    }

    /// Another /etc/hosts.
    #[must_use]
    pub fn hosts(self, text: &str) -> Self {
        self.file("/etc/hosts", text)
    }

    /// Another /etc/nsswitch.conf.
    #[must_use]
    pub fn nsswitch(self, text: &str) -> Self {
        self.file("/etc/nsswitch.conf", text)
    }

    /// Programs enter this cgroup (a directory) before they start.
    #[must_use]
    pub fn cgroup(mut self, path: &Path) -> Self {
        self.cgroup = Some(path.into());
        self
    }

    /// Starts the program and leaves it running.
    pub fn spawn(&self, cmd: &Cmd) -> Running {
        let (program, args) = cmd.argv.split_first().expect("a program");
        let mut command = Command::new(program);
        command.args(args).envs(cmd.env.iter().cloned()).env("LC_ALL", "C");
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        self.enter(&mut command);
        let child = command.spawn().unwrap_or_else(|error| panic!("start {:?}: {error}", cmd.argv));
        Running::new(child, cmd)
    }

    /// Runs the program to its end.
    pub fn run(&self, cmd: &Cmd) -> Outcome {
        let mut running = self.spawn(cmd);
        running.feed(&cmd.stdin);
        running.wait(cmd.timeout)
    }

    /// Makes `command` start in this place; for callers that need their own pipes.
    pub fn enter(&self, command: &mut Command) {
        let entry = Entry::prepare(self);
        command.process_group(0);
        // SAFETY: between fork and exec the closure only makes system calls on memory that was
        // allocated before: no allocation, no lock.
        unsafe {
            command.pre_exec(move || entry.perform());
        }
    }

    fn file(mut self, path: &'static str, text: &str) -> Self {
        self.files.retain(|(known, _)| *known != path);
        self.files.push((path, text.into()));
        self
    }
}

/// All that the forked child needs, allocated beforehand.
struct Entry {
    ns: Arc<Ns>,
    binds: Vec<(CString, CString)>,
    procs: Option<std::fs::File>,
}

impl Entry {
    fn prepare(place: &Place) -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let c = |path: &Path| CString::new(path.as_os_str().as_encoded_bytes()).expect("path without NUL");
        let mut binds = Vec::new();
        for (target, text) in &place.files {
            let name = format!("etc-{}-{}", COUNT.fetch_add(1, Ordering::Relaxed), target.replace('/', "_"));
            let source = place.dir.join(name);
            std::fs::write(&source, text).unwrap_or_else(|error| panic!("{source:?}: {error}"));
            binds.push((c(&source), c(Path::new(target))));
        }
        let procs = place.cgroup.as_ref().map(|path| {
            let path = path.join("cgroup.procs");
            let open = std::fs::OpenOptions::new().write(true).open(&path);
            open.unwrap_or_else(|error| panic!("{path:?}: {error}"))
        });
        Self { ns: place.ns.clone(), binds, procs }
    }

    fn perform(&self) -> io::Result<()> {
        if let Some(procs) = &self.procs {
            write_all(procs.as_raw_fd(), b"0")?;
        }
        // SAFETY: system calls on open descriptors and NUL-terminated strings that outlive them.
        unsafe {
            check(libc::setns(self.ns.fd().as_raw_fd(), libc::CLONE_NEWNET))?;
            check(libc::unshare(libc::CLONE_NEWNS))?;
            mount(None, c"/", libc::MS_REC | libc::MS_SLAVE)?;
            for (source, target) in &self.binds {
                mount(Some(source), target, libc::MS_BIND)?;
            }
        }
        Ok(())
    }
}

/// # Safety
/// Only as `mount(2)`: the strings live for the call.
unsafe fn mount(source: Option<&CStr>, target: &CStr, flags: libc::c_ulong) -> io::Result<()> {
    let source = source.map_or(std::ptr::null(), CStr::as_ptr);
    // SAFETY: both strings are NUL-terminated; no file system type and no data are passed.
    check(unsafe { libc::mount(source, target.as_ptr(), std::ptr::null(), flags, std::ptr::null()) })
}

fn write_all(fd: RawFd, bytes: &[u8]) -> io::Result<()> {
    // SAFETY: the buffer is valid for its length.
    check((unsafe { libc::write(fd, bytes.as_ptr().cast(), bytes.len()) }) as i32)
}

fn check(result: i32) -> io::Result<()> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}
