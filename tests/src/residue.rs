//! What Egret must not leave behind: pins, programs, links, cgroups, qdiscs, namespaces.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use serde_json::Value;

use crate::wait;

/// Where Egret pins.
const PINS: &str = "/sys/fs/bpf/egret";

/// All that bears Egret's name on this machine, as sorted lines.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Residue(BTreeSet<String>);

impl Residue {
    /// Looks now.
    pub fn snapshot() -> Self {
        let mut found = BTreeSet::new();
        files_below(Path::new(PINS), &mut |path| {
            found.insert(format!("pin {}", path.display()));
        });
        programs(&mut found);
        if let Some(root) = cgroup2() {
            cgroups(&root, 0, &mut found);
        }
        qdiscs(&mut found);
        namespaces(&mut found);
        Self(found)
    }

    /// What is here and was not in `before`.
    pub fn new_since(&self, before: &Self) -> Vec<String> {
        self.0.difference(&before.0).cloned().collect()
    }

    /// Waits up to `limit` for everything that came since to be gone; panics with what stays.
    #[track_caller]
    pub fn assert_clean(&self, limit: Duration) {
        let gone =
            wait::until(wait::patient(limit), || Self::snapshot().new_since(self).is_empty().then_some(()));
        if gone.is_none() {
            panic!("left behind: {:#?}", Self::snapshot().new_since(self));
        }
    }

    /// The lines that begin with a kind (`pin`, `prog`, `link`, `cgroup`, `qdisc`, `netns`).
    pub fn of_kind(&self, kind: &str) -> Vec<&str> {
        self.0.iter().map(String::as_str).filter(|line| line.starts_with(kind)).collect()
    }
}

/// The mount point of cgroup v2, found as Egret must find it.
pub fn cgroup2() -> Option<PathBuf> {
    mount_of("cgroup2")
}

/// Mounts bpffs at /sys/fs/bpf if nobody has yet, as systemd does on any host: pins that a run makes in
/// its private mount namespace would otherwise vanish with it.
pub fn ensure_bpffs() {
    if mount_of("bpf").is_some() {
        return;
    }
    let none: Option<&str> = None;
    let flags = nix::mount::MsFlags::empty();
    nix::mount::mount(Some("bpf"), "/sys/fs/bpf", Some("bpf"), flags, none).expect("mount bpffs");
}

fn mount_of(kind: &str) -> Option<PathBuf> {
    let mounts = std::fs::read_to_string("/proc/mounts").ok()?;
    let mut fields = mounts.lines().map(|line| line.split(' ').collect::<Vec<_>>());
    fields.find(|f| f.get(2) == Some(&kind)).map(|f| PathBuf::from(f[1]))
}

fn files_below(dir: &Path, visit: &mut impl FnMut(&Path)) {
    for entry in std::fs::read_dir(dir).into_iter().flatten().flatten() {
        let path = entry.path();
        visit(&path);
        if path.is_dir() {
            files_below(&path, visit);
        }
    }
}

/// Programs whose name begins with egret, and the links that hold them.
fn programs(found: &mut BTreeSet<String>) {
    let mut ours = BTreeSet::new();
    for program in json(&["bpftool", "prog", "list", "-j"]) {
        let name = program["name"].as_str().unwrap_or_default();
        if name.starts_with("egret") {
            ours.insert(program["id"].as_u64());
            let mut line = String::new();
            let _ = write!(line, "prog {} {name}", program["id"]);
            found.insert(line);
        }
    }
    for link in json(&["bpftool", "link", "list", "-j"]) {
        if ours.contains(&link["prog_id"].as_u64()) {
            found.insert(format!("link {} of prog {}", link["id"], link["prog_id"]));
        }
    }
}

fn cgroups(dir: &Path, depth: usize, found: &mut BTreeSet<String>) {
    for entry in std::fs::read_dir(dir).into_iter().flatten().flatten() {
        if !entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            continue;
        }
        if entry.file_name().to_string_lossy().contains("egret") {
            found.insert(format!("cgroup {}", entry.path().display()));
        }
        if depth < 8 {
            cgroups(&entry.path(), depth + 1, found);
        }
    }
}

/// clsact qdiscs of the host; those of a world go with its namespaces.
fn qdiscs(found: &mut BTreeSet<String>) {
    for qdisc in json(&["tc", "-j", "qdisc", "show"]) {
        if matches!(qdisc["kind"].as_str(), Some("clsact" | "ingress")) {
            found.insert(format!("qdisc {} on {}", qdisc["kind"], qdisc["dev"]));
        }
    }
}

fn namespaces(found: &mut BTreeSet<String>) {
    for entry in std::fs::read_dir("/run/netns").into_iter().flatten().flatten() {
        found.insert(format!("netns {}", entry.file_name().to_string_lossy()));
    }
}

/// Rows of a tool that prints a JSON list; a tool that is missing is said so and gives none.
fn json(argv: &[&str]) -> Vec<Value> {
    let output = match Command::new(argv[0]).args(&argv[1..]).output() {
        Ok(output) => output,
        Err(error) => {
            eprintln!("residue: {}: {error}: not looked at", argv[0]);
            return Vec::new();
        }
    };
    match serde_json::from_slice(&output.stdout) {
        Ok(Value::Array(rows)) => rows,
        _ => Vec::new(),
    }
}
