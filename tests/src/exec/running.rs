//! A started program: its output, its end, and its sure removal.

use std::io::{Read, Write};
use std::os::fd::{AsFd, FromRawFd, OwnedFd};
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, ChildStdin, ExitStatus};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill, killpg};
use nix::unistd::Pid;

use super::Cmd;
use crate::wait;

/// How a program ended.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// Exit code, if it exited by itself.
    pub code: Option<i32>,
    /// Signal that ended it.
    pub signal: Option<i32>,
    /// It was killed because its time was over.
    pub timed_out: bool,
    /// What it wrote.
    pub stdout: String,
    /// What it wrote to standard error.
    pub stderr: String,
    /// From start to end.
    pub elapsed: Duration,
}

impl Outcome {
    /// Exit code 0.
    pub fn success(&self) -> bool {
        self.code == Some(0)
    }

    /// Panics with all it said unless it succeeded.
    pub fn expect_success(&self) -> &Self {
        assert!(self.success(), "failed: {self:#?}");
        self
    }
}

/// A program that is running; killed when dropped.
#[derive(Debug)]
pub struct Running {
    child: Child,
    argv: Vec<String>,
    started: Instant,
    pidfd: OwnedFd,
    stdin: Option<ChildStdin>,
    stdout: Gather,
    stderr: Gather,
    ended: bool,
    orphans: Vec<(Pid, String)>,
}

impl Running {
    pub(crate) fn new(mut child: Child, cmd: &Cmd) -> Self {
        // SAFETY: pidfd_open takes two integers and gives a new descriptor that nobody else owns.
        let fd = unsafe { libc::syscall(libc::SYS_pidfd_open, child.id(), 0) };
        assert!(fd >= 0, "pidfd_open: {}", std::io::Error::last_os_error());
        // SAFETY: as above, the descriptor is fresh and ours.
        let pidfd = unsafe { OwnedFd::from_raw_fd(fd as i32) };
        let stdout = Gather::start(child.stdout.take());
        let stderr = Gather::start(child.stderr.take());
        let stdin = child.stdin.take();
        let argv = cmd.argv.clone();
        Self {
            child,
            argv,
            started: Instant::now(),
            pidfd,
            stdin,
            stdout,
            stderr,
            ended: false,
            orphans: Vec::new(),
        }
    }

    /// Its process id.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Writes all of standard input and closes it.
    pub fn feed(&mut self, bytes: &[u8]) {
        if let Some(mut pipe) = self.stdin.take() {
            let _ = pipe.write_all(bytes);
        }
    }

    /// What it has written so far.
    pub fn stdout_so_far(&self) -> String {
        self.stdout.text()
    }

    /// What it has written to standard error so far.
    pub fn stderr_so_far(&self) -> String {
        self.stderr.text()
    }

    /// Sends it a signal.
    pub fn signal(&self, signal: Signal) {
        let pid = Pid::from_raw(self.child.id() as i32);
        kill(pid, signal).unwrap_or_else(|error| panic!("kill {:?}: {error}", self.argv));
    }

    /// Kills the program itself with SIGKILL; its descendants live on and are killed on drop.
    pub fn kill_alone(&mut self) {
        self.orphans = descendants(self.child.id()).into_iter().map(|pid| (pid, start_time(pid))).collect();
        self.signal(Signal::SIGKILL);
    }

    /// True if it ends within `limit`; its status stays to be collected by [`Running::wait`].
    pub fn ends_within(&self, limit: Duration) -> bool {
        wait::readable_within(self.pidfd.as_fd(), wait::patient(limit)).expect("poll a pidfd")
    }

    /// Waits for its end, at most `limit`, then kills it with its process group.
    pub fn wait(mut self, limit: Duration) -> Outcome {
        self.stdin = None;
        let timed_out = !self.ends_within(limit);
        if timed_out {
            self.kill_group();
        }
        let status = self.child.wait().expect("wait for a child");
        self.ended = true;
        self.outcome(status, timed_out)
    }

    fn outcome(&self, status: ExitStatus, timed_out: bool) -> Outcome {
        let elapsed = self.started.elapsed();
        // A descendant may hold the pipes open for ever: what is there after a second is all.
        let limit = Duration::from_secs(1);
        Outcome {
            code: status.code(),
            signal: status.signal(),
            timed_out,
            stdout: self.stdout.finish(limit),
            stderr: self.stderr.finish(limit),
            elapsed,
        }
    }

    fn kill_group(&self) {
        let family = descendants(self.child.id());
        let _ = killpg(Pid::from_raw(self.child.id() as i32), Signal::SIGKILL);
        for pid in family {
            let _ = kill(pid, Signal::SIGKILL);
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if !self.ended {
            self.kill_group();
            let _ = self.child.wait();
        }
        for (pid, started) in &self.orphans {
            if start_time(*pid) == *started && !started.is_empty() {
                let _ = kill(*pid, Signal::SIGKILL);
            }
        }
    }
}

/// Everything that descends from `root` now, without `root`.
pub(crate) fn descendants(root: u32) -> Vec<Pid> {
    let mut found = vec![root.to_string()];
    let mut next = 0;
    while next < found.len() {
        let tasks = std::fs::read_dir(format!("/proc/{}/task", found[next])).into_iter().flatten().flatten();
        let children: Vec<String> = tasks
            .filter_map(|task| std::fs::read_to_string(task.path().join("children")).ok())
            .flat_map(|list| list.split_whitespace().map(String::from).collect::<Vec<_>>())
            .collect();
        found.extend(children);
        next += 1;
    }
    found[1..].iter().filter_map(|pid| pid.parse().ok()).map(Pid::from_raw).collect()
}

/// Tells a process from a later one with the same number.
fn start_time(pid: Pid) -> String {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit(')').next().and_then(|tail| tail.split_whitespace().nth(19)).unwrap_or("").into()
}

/// A pipe read to its end by a thread.
#[derive(Debug)]
struct Gather {
    bytes: Arc<Mutex<Vec<u8>>>,
    done: Receiver<()>,
}

impl Gather {
    fn start(pipe: Option<impl Read + Send + 'static>) -> Self {
        let bytes = Arc::new(Mutex::new(Vec::new()));
        let (sender, done) = channel();
        if let Some(mut pipe) = pipe {
            let bytes = bytes.clone();
            thread::spawn(move || {
                let mut buffer = [0; 16384];
                while let Ok(count @ 1..) = pipe.read(&mut buffer) {
                    bytes.lock().expect("output buffer").extend_from_slice(&buffer[..count]);
                }
                let _ = sender.send(());
            });
        }
        Self { bytes, done }
    }

    fn text(&self) -> String {
        String::from_utf8_lossy(&self.bytes.lock().expect("output buffer")).into_owned()
    }

    fn finish(&self, limit: Duration) -> String {
        let _ = self.done.recv_timeout(limit);
        self.text()
    }
}
