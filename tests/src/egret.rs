//! The `egret` binary as a user starts it: `egret run … -- cmd` inside a place. Knows its command line
//! and its exit, nothing of its insides.

use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use nix::sys::signal::Signal;

use crate::exec::{Cmd, Outcome, Place, Running};
use crate::netns::World;
use crate::probe::Session;
use crate::report::Report;

/// target/PROFILE: the directory above the test's own, or the one it is in.
pub fn profile_dir() -> PathBuf {
    let exe = std::env::current_exe().expect("own path");
    let dir = exe.parent().expect("a directory");
    if dir.ends_with("deps") { dir.parent().expect("a directory").into() } else { dir.into() }
}

/// The binary: `EGRET_BIN`, else the one that cargo built beside the tests.
pub fn binary() -> PathBuf {
    let path = std::env::var_os("EGRET_BIN").map_or_else(|| profile_dir().join("egret"), PathBuf::from);
    assert!(path.exists(), "{path:?} is missing: build it (`cargo build -p egret`) or set EGRET_BIN");
    path
}

/// A real kubectl: the one that `xtask` has put there, else that of the machine.
pub fn kubectl() -> Option<PathBuf> {
    let given = std::env::var_os("EGRET_KUBECTL").map(PathBuf::from);
    let path = std::env::var_os("PATH").unwrap_or_default();
    let found = || std::env::split_paths(&path).map(|dir| dir.join("kubectl")).find(|file| file.exists());
    given.or_else(found)
}

/// An `egret run` under construction.
#[derive(Clone, Debug)]
pub struct Egret {
    place: Place,
    dir: PathBuf,
    args: Vec<String>,
    report: PathBuf,
}

/// What `egret run` left.
#[derive(Clone, Debug)]
pub struct Run {
    /// Exit code and output of Egret with its command.
    pub outcome: Outcome,
    /// Its JSON report; empty if it wrote none.
    pub report: Report,
}

impl Egret {
    /// In namespace `c` of the world, with the standard resolver.
    pub fn new(world: &World) -> Self {
        Self::at(world.place("c"), world)
    }

    /// In any place of the world.
    pub fn at(place: Place, world: &World) -> Self {
        let dir = world.dir().to_path_buf();
        let report = dir.join(format!("report-{}.json", number()));
        Self { place, dir, args: Vec::new(), report }
    }

    /// `--allow`.
    #[must_use]
    pub fn allow(self, name: &str) -> Self {
        self.args(&["--allow", name])
    }

    /// `--policy` with this YAML text.
    #[must_use]
    pub fn policy(self, text: &str) -> Self {
        let path = self.dir.join(format!("policy-{}.yaml", number()));
        std::fs::write(&path, text).unwrap_or_else(|error| panic!("{path:?}: {error}"));
        self.args(&["--policy", &path.display().to_string()])
    }

    /// `--ttl-floor`, `--grace` and `--ttl-cap`, in seconds.
    #[must_use]
    pub fn lifetimes(self, floor: u32, grace: u32, cap: u32) -> Self {
        let (floor, grace, cap) = (floor.to_string(), grace.to_string(), cap.to_string());
        self.args(&["--ttl-floor", &floor, "--grace", &grace, "--ttl-cap", &cap])
    }

    /// `--audit`.
    #[must_use]
    pub fn audit(self) -> Self {
        self.args(&["--audit"])
    }

    /// Any further arguments.
    #[must_use]
    pub fn args(mut self, args: &[&str]) -> Self {
        self.args.extend(args.iter().map(|arg| arg.to_string()));
        self
    }

    /// In the same namespace with other private files.
    #[must_use]
    pub fn place(mut self, change: impl FnOnce(Place) -> Place) -> Self {
        self.place = change(self.place);
        self
    }

    /// The whole command line for `cmd`.
    pub fn command(&self, cmd: &Cmd) -> Cmd {
        let mut argv = self.prefix();
        argv.extend(cmd.argv.iter().cloned());
        Cmd { argv, ..cmd.clone() }
    }

    /// Runs a command under Egret to its end.
    pub fn run(&self, cmd: &Cmd) -> Run {
        let outcome = self.place.run(&self.command(cmd));
        Run { outcome, report: Report::read(&self.report) }
    }

    /// Starts a command under Egret and leaves it running.
    pub fn job(&self, cmd: &Cmd) -> Job {
        Job { running: self.place.spawn(&self.command(cmd)), report: self.report.clone() }
    }

    /// Starts the probe under Egret.
    pub fn session(&self) -> Guarded {
        let mut session = Session::start_under(&self.place, &self.prefix());
        // Its first answer comes once the programs are loaded: no attempt's time is to hold that of the start.
        session.ready();
        Guarded { session, report: self.report.clone() }
    }

    fn prefix(&self) -> Vec<String> {
        let mut argv = vec![binary().display().to_string(), "run".into()];
        argv.extend(self.args.iter().cloned());
        argv.extend(["--report".into(), self.report.display().to_string()]);
        argv.extend(["--report-format".into(), "json".into(), "--".into()]);
        argv
    }
}

/// A long-running `egret run`.
#[derive(Debug)]
pub struct Job {
    running: Running,
    report: PathBuf,
}

impl Job {
    /// The process: its output so far, its id.
    pub fn process(&mut self) -> &mut Running {
        &mut self.running
    }

    /// Sends a signal to Egret.
    pub fn signal(&self, signal: Signal) {
        self.running.signal(signal);
    }

    /// Kills Egret itself; its command lives on until the job is dropped.
    pub fn kill_egret(&mut self) {
        self.running.kill_alone();
    }

    /// Waits for the end, at most `limit`.
    pub fn wait(self, limit: Duration) -> Run {
        Run { outcome: self.running.wait(limit), report: Report::read(&self.report) }
    }
}

/// A probe under Egret. Everything a [`Session`] can do, and a report at the end.
#[derive(Debug)]
pub struct Guarded {
    session: Session,
    report: PathBuf,
}

impl Guarded {
    /// Ends the probe and Egret.
    pub fn finish(self) -> Run {
        Run { outcome: self.session.finish(), report: Report::read(&self.report) }
    }
}

impl std::ops::Deref for Guarded {
    type Target = Session;

    fn deref(&self) -> &Session {
        &self.session
    }
}

impl std::ops::DerefMut for Guarded {
    fn deref_mut(&mut self) -> &mut Session {
        &mut self.session
    }
}

fn number() -> u32 {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    COUNT.fetch_add(1, Ordering::Relaxed)
}
