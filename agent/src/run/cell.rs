//! The place that CMD runs in: its cgroup with the programs on it. Taken down when dropped, in the order in which
//! nothing is ever free: processes first, then the programs, then the directory.

use std::path::PathBuf;
use std::time::Duration;

use egret_common::maps::CONFIG_EVENTS;

use crate::datapath::{self, Datapath, LoadError, Options, Sizes, cgroup_link};
use crate::exit::{self, Refusal};
use crate::sandbox::cgroup::{Cgroup, new_run_name};
use crate::sandbox::preflight::Preflight;
use crate::tell;

/// How long background processes may take to end after SIGTERM.
const GRACE: Duration = Duration::from_secs(2);
/// Events per second, reason and CPU.
const EVENTS: u32 = 100;

/// The place.
#[derive(Debug)]
pub(super) struct Cell {
    cgroup: Option<Cgroup>,
    pins: PathBuf,
    mount: PathBuf,
    level: u32,
}

impl Cell {
    /// Makes the cgroup.
    pub(super) fn make(host: &Preflight) -> Result<Self, Refusal> {
        let name = new_run_name();
        let cgroup = host.hierarchy.create(&name).map_err(|error| {
            Refusal::new(
                exit::UNAVAILABLE,
                format!("cannot make a cgroup below {}: {error}", host.hierarchy.own.display()),
                "cgroup v2 must be writable here",
            )
        })?;
        let level = cgroup_link::level(cgroup.path(), &host.hierarchy.own, &host.hierarchy.mount);
        let pins = host.bpffs.join("egret").join(name);
        let mut cell = Self { cgroup: Some(cgroup), pins, mount: host.hierarchy.mount.clone(), level: 0 };
        cell.level = level.map_err(|error| system("find the cgroup's level", &error))?;
        Ok(cell)
    }

    /// Loads the programs; nothing is attached yet.
    pub(super) fn load(&self, config_flags: u32) -> Result<Datapath, Refusal> {
        let options = Options {
            dir: self.pins.clone(),
            cgroup_level: self.level,
            config_flags: config_flags | CONFIG_EVENTS,
            events_per_second: EVENTS,
            sizes: Sizes::run(),
            adopt: false,
            pods: false,
        };
        Datapath::load(&options).map_err(|error| {
            let remedy = match error {
                LoadError::NoObject => "nothing can be enforced without them",
                _ => "CMD was not started: it could not have been held",
            };
            let text = error.to_string();
            let (cause, log) = text.split_once('\n').unwrap_or((&text, ""));
            log.lines().for_each(|line| tell::line(format_args!("verifier: {line}")));
            Refusal::new(exit::UNAVAILABLE, cause, remedy)
        })
    }

    /// Puts the programs on the cgroup.
    pub(super) fn attach(&self, datapath: &mut Datapath, accept_override: bool) -> Result<(), Refusal> {
        datapath.attach_cgroup(self.cgroup()?.path(), &self.mount, accept_override).map_err(|error| {
            Refusal::new(
                exit::UNAVAILABLE,
                error.to_string(),
                "CMD was not started: it could not have been held",
            )
        })
    }

    /// The cgroup.
    pub(super) fn cgroup(&self) -> Result<&Cgroup, Refusal> {
        self.cgroup
            .as_ref()
            .ok_or_else(|| Refusal::new(exit::SOFTWARE, "the cgroup is gone", "please report this"))
    }

    /// Ends the processes that are left and removes everything.
    pub(super) fn take_down(mut self) {
        self.clean();
    }

    fn clean(&mut self) {
        let Some(cgroup) = self.cgroup.take() else { return };
        match cgroup.terminate(GRACE) {
            Ok(0) => {}
            Ok(1) => tell::line("ended 1 process that CMD had left in the background"),
            Ok(count) => {
                tell::line(format_args!("ended {count} processes that CMD had left in the background"))
            }
            Err(error) => tell::line(format_args!("cannot end what CMD left in the background: {error}")),
        }
        // What still lives stays held; the next run or `egret uninstall` cleans up.
        if !cgroup.is_empty().unwrap_or(false) {
            return;
        }
        if let Err(error) = datapath::remove(&self.pins) {
            tell::line(format_args!("cannot remove the pins of this run: {error}"));
        }
        // Other runs may have theirs there.
        let _ = self.pins.parent().map(std::fs::remove_dir);
        if let Err(error) = cgroup.remove() {
            tell::line(format_args!("cannot remove the cgroup of this run: {error}"));
        }
    }
}

impl Drop for Cell {
    fn drop(&mut self) {
        self.clean();
    }
}

/// A system call failed that should not.
pub(super) fn system(what: &str, error: &dyn std::fmt::Display) -> Refusal {
    Refusal::new(exit::OS_ERROR, format!("cannot {what}: {error}"), "CMD was not started")
}
