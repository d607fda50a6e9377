//! What ended runs have left: cgroups without processes, and pins whose programs guard nothing any more.

use std::fs;
use std::io;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::cli::UninstallArgs;
use crate::datapath::{self, Instance, bpf_sys};
use crate::exit::{self, Refusal};
use crate::sandbox::cgroup::Hierarchy;
use crate::tell;

/// A run that is just being set up has pins but no links for a moment; nobody takes longer than this.
const SETTING_UP: Duration = Duration::from_secs(60);

/// Where runs pin, by name.
pub(super) const ROOT: &str = "/sys/fs/bpf/egret";

/// Begin of the names of agents' pins, which stay when an agent ends: no leftovers.
const AGENT: &str = "agent";

/// What is left, and what is in use.
#[derive(Debug, Default)]
struct Found {
    /// Cgroups of ended runs.
    cgroups: Vec<PathBuf>,
    /// Pins of ended runs.
    pins: Vec<Instance>,
    /// Runs that go on.
    in_use: Vec<String>,
}

/// Removes what ended runs have left. What cannot be removed is told, and is no reason not to start.
pub(super) fn clean(hierarchy: &Hierarchy) {
    let found = find(hierarchy);
    let _ = remove(hierarchy, &found);
}

/// `egret uninstall`: 0 if nothing of egret is left, 75 if runs go on, 71 if something cannot be removed.
pub fn uninstall(args: &UninstallArgs) -> Result<u8, Refusal> {
    let hierarchy = Hierarchy::find().map_err(|e| {
        Refusal::new(
            exit::UNAVAILABLE,
            format!("no cgroup v2: {e}"),
            "without it there is nothing of egret's",
        )
    })?;
    if !nix::unistd::Uid::effective().is_root() {
        return Err(Refusal::new(exit::NO_PERMISSION, "not root", "run it with sudo"));
    }
    let found = find(&hierarchy);
    let verb = if args.dry_run { "would remove" } else { "removing" };
    found.cgroups.iter().for_each(|path| tell::line(format_args!("{verb} cgroup {}", path.display())));
    found.pins.iter().for_each(|pins| tell::line(format_args!("{verb} pins {}", pins.dir.display())));
    let clean = args.dry_run || remove(&hierarchy, &found);
    found.in_use.iter().for_each(|run| tell::line(format_args!("run {run} is in use: left alone")));
    if !args.dry_run && found.in_use.is_empty() {
        // Fails while something is in it.
        let _ = fs::remove_dir(ROOT);
    }
    Ok(match (clean, found.in_use.is_empty()) {
        (false, _) => exit::OS_ERROR,
        (true, false) => exit::IN_USE,
        (true, true) => 0,
    })
}

/// Pins are listed before cgroups: a run makes its cgroup first, so whatever has pins here has a cgroup there.
fn find(hierarchy: &Hierarchy) -> Found {
    let instances = datapath::instances();
    let runs = hierarchy.leftovers();
    let mut found = Found::default();
    for run in &runs {
        match run.in_use {
            true => found.in_use.push(run.run.clone()),
            false => found.cgroups.push(run.path.clone()),
        }
    }
    let ended = |i: &Instance| match runs.iter().find(|r| r.run == i.name) {
        Some(run) => !run.in_use,
        None => !guards(&i.dir),
    };
    for instance in instances.into_iter().filter(|i| !i.name.starts_with(AGENT)) {
        if ended(&instance) {
            found.pins.push(instance);
        } else if !found.in_use.contains(&instance.name) {
            found.in_use.push(instance.name);
        }
    }
    found
}

/// Cgroups first: while a cgroup is there, and somebody might enter it, its programs stay.
fn remove(hierarchy: &Hierarchy, found: &Found) -> bool {
    let cleaned = if found.cgroups.is_empty() { Vec::new() } else { hierarchy.clean_leftovers() };
    let mut all = true;
    for instance in &found.pins {
        let dead = cleaned.contains(&instance.name) || !guards(&instance.dir);
        if dead && let Err(error) = datapath::remove(&instance.dir) {
            tell::line(format_args!("cannot remove what an earlier run left: {error}"));
            all = false;
        }
    }
    all && found.cgroups.iter().all(|path| !path.exists())
}

/// Whether the programs of this instance are still attached: to a cgroup that this process may not see, such as one
/// of a container. The boundary is attached first, so its link speaks for all. A link whose cgroup is gone says so
/// when its program is replaced, here by itself.
fn guards(dir: &Path) -> bool {
    let version = dir.join(format!("v{}", egret_common::ABI_VERSION));
    let attached = || -> io::Result<bool> {
        let link = bpf_sys::get(&version.join("link_skb_egress"))?;
        let program = bpf_sys::get(&version.join("prog_egret_egress"))?;
        match bpf_sys::link_update(link.as_fd(), program.as_fd()) {
            Err(error) if error.raw_os_error() == Some(libc::ENOLINK) => Ok(false),
            _ => Ok(true),
        }
    };
    attached().unwrap_or_else(|_| is_young(dir))
}

fn is_young(dir: &Path) -> bool {
    let age = fs::metadata(dir).and_then(|m| m.modified()).map(|at| at.elapsed().unwrap_or_default());
    age.is_ok_and(|age| age < SETTING_UP)
}
