//! The files under bpffs: one directory per instance, below it one per ABI version. Names hold no dot: bpffs
//! refuses them.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

/// Where instances are.
pub const ROOT: &str = "/sys/fs/bpf/egret";

/// Something of Egret that is pinned.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Instance {
    /// Its directory.
    pub dir: PathBuf,
    /// The directory's name, such as `run-1`.
    pub name: String,
}

/// What is pinned under `/sys/fs/bpf/egret`, whole or half removed, sorted by name. Nothing when the directory
/// cannot be read.
#[must_use]
pub fn instances() -> Vec<Instance> {
    let Ok(entries) = fs::read_dir(ROOT) else { return Vec::new() };
    let mut found: Vec<Instance> = entries
        .filter_map(Result::ok)
        .filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()))
        .map(|entry| Instance { dir: entry.path(), name: entry.file_name().to_string_lossy().into_owned() })
        .collect();
    found.sort();
    found
}

/// Removes the pins in `dir` and the directory: links first, which detaches the programs. What is gone already is no
/// error, and one file that cannot be removed keeps no other. The kernel lets go of the links a moment later.
///
/// # Errors
/// The first thing that could not be removed.
pub fn remove(dir: &Path) -> io::Result<()> {
    let mut first = None;
    remove_all(dir, &mut first);
    first.map_or(Ok(()), Err)
}

fn remove_all(dir: &Path, first: &mut Option<io::Error>) {
    let mut note = |result: io::Result<()>, path: &Path| {
        let told = result.map_err(|e| io::Error::new(e.kind(), format!("{}: {e}", path.display())));
        match told {
            Err(error) if error.kind() != io::ErrorKind::NotFound && first.is_none() => *first = Some(error),
            _ => {}
        }
    };
    let entries = match fs::read_dir(dir) {
        Ok(entries) => entries,
        Err(error) => return note(Err(error), dir),
    };
    let mut entries: Vec<fs::DirEntry> = entries.filter_map(Result::ok).collect();
    entries.sort_by_key(|entry| (!is_link(entry), entry.file_name()));
    for entry in entries {
        let path = entry.path();
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            let mut inner = None;
            remove_all(&path, &mut inner);
            note(inner.map_or(Ok(()), Err), &path);
        } else {
            note(fs::remove_file(&path), &path);
        }
    }
    note(fs::remove_dir(dir), dir);
}

/// Directory of this ABI's pins in an instance.
pub(super) fn version_dir(dir: &Path) -> PathBuf {
    dir.join(format!("v{}", egret_common::ABI_VERSION))
}

/// File of a link.
pub(super) fn link_path(dir: &Path, hook: super::cgroup_link::CgroupHook) -> PathBuf {
    version_dir(dir).join(format!("link_{}", hook.name()))
}

fn is_link(entry: &fs::DirEntry) -> bool {
    entry.file_name().to_string_lossy().starts_with("link_")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn removes_what_is_left_of_an_instance() -> io::Result<()> {
        let dir = std::env::temp_dir().join(format!("egret-pins-{}", std::process::id()));
        fs::create_dir_all(dir.join("v1"))?;
        fs::write(dir.join("v1/link_connect4"), "")?;
        fs::write(dir.join("v1/RULES"), "")?;
        remove(&dir)?;
        assert!(!dir.exists());
        remove(&dir)
    }
}
