//! The sandbox against the real kernel: needs root and cgroup v2; says so on stderr where it cannot run.
//!
//! `attempts` is run by this same binary inside the sandbox: `probe_entry` is its entry point.

mod attempts;
mod behaviour;
mod escape;
mod link;
mod tty;

use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use egret::exit::Refusal;
use egret::sandbox::cgroup::{Cgroup, Hierarchy};
use egret::sandbox::child::{self, Spec};
use egret::sandbox::process::Exit;

/// Whether these tests can run; if not, says why.
fn can_run() -> bool {
    let root = nix::unistd::Uid::effective().is_root();
    let reason = match (root, Hierarchy::find()) {
        (false, _) => "needs root".to_owned(),
        (true, Err(e)) => format!("needs cgroup v2: {e}"),
        (true, Ok(_)) => return true,
    };
    eprintln!("skipped: {reason}");
    false
}

/// A cgroup and a scratch directory of one test; both go with it.
struct World {
    hierarchy: Hierarchy,
    cgroup: Option<Cgroup>,
    dir: PathBuf,
}

impl World {
    fn new() -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let name = format!("test-{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        let hierarchy = Hierarchy::find().expect("cgroup v2");
        let cgroup = Some(hierarchy.create(&name).expect("create a cgroup"));
        let dir = std::env::temp_dir().join(format!("egret-{name}"));
        std::fs::create_dir_all(&dir).expect("scratch directory");
        let everybody = std::os::unix::fs::PermissionsExt::from_mode(0o777);
        std::fs::set_permissions(&dir, everybody).expect("chmod");
        Self { hierarchy, cgroup, dir }
    }

    fn cgroup(&self) -> &Cgroup {
        self.cgroup.as_ref().expect("not removed yet")
    }

    /// A specification that runs a shell script with this process's environment.
    fn shell(&self, script: &str) -> Spec {
        let argv = ["/bin/sh", "-c", script].map(OsString::from).to_vec();
        let env = std::env::vars_os().chain([("DIR".into(), self.dir.clone().into())]).collect();
        Spec { argv, env, ..Spec::default() }
    }

    fn run(&self, spec: &Spec) -> Result<Exit, Refusal> {
        Ok(child::spawn(spec, self.cgroup())?.wait_blocking().expect("wait"))
    }

    fn read(&self, name: &str) -> String {
        std::fs::read_to_string(self.dir.join(name)).unwrap_or_default()
    }
}

impl Drop for World {
    fn drop(&mut self) {
        if let Some(cgroup) = self.cgroup.take() {
            cgroup.terminate(Duration::ZERO).expect("terminate");
            cgroup.remove().expect("no residue");
        }
        std::fs::remove_dir_all(&self.dir).expect("scratch directory");
    }
}

/// A bounded poll for something that another process does.
fn eventually(what: &str, mut done: impl FnMut() -> bool) {
    for _ in 0..500 {
        if done() {
            return;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    panic!("{what}: not within 5 s");
}

/// Not a test by itself: what the sandboxed copy of this binary runs.
#[test]
fn probe_entry() {
    if std::env::var_os("EGRET_PROBE").is_some() {
        attempts::run_all();
    }
}
