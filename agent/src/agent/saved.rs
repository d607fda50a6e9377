//! The file that the next agent begins with: numbers that the kernel's maps hold, and what workloads were told.
//!
//! Written before the maps are: a number that is in the kernel is in the file.

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use egret_common::ABI_VERSION;
use egret_common::ids::EndpointId;
use egret_core::state::Saved;
use serde::{Deserialize, Serialize};

/// What the file holds.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Memory {
    /// The maps' ABI that the numbers belong to.
    abi: u32,
    /// The boot that the clock of the answers belongs to.
    boot: String,
    /// Name, uid and number of each pod.
    pub(super) endpoints: Vec<(String, String, EndpointId)>,
    /// Identities, as `objects` writes them.
    pub(super) identities: serde_json::Value,
    /// Name classes, and what workloads were told.
    pub(super) state: Saved,
}

impl Memory {
    /// Of this boot.
    pub(super) fn new(
        endpoints: Vec<(String, String, EndpointId)>,
        identities: serde_json::Value,
        state: Saved,
    ) -> Self {
        Self { abi: ABI_VERSION, boot: boot(), endpoints, identities, state }
    }

    /// By name and uid.
    pub(super) fn numbers(&self) -> BTreeMap<(String, String), EndpointId> {
        self.endpoints.iter().map(|(name, uid, id)| ((name.clone(), uid.clone()), *id)).collect()
    }
}

/// The file.
#[derive(Debug)]
pub(super) struct MemoryFile {
    path: PathBuf,
    last: Option<Memory>,
}

impl MemoryFile {
    pub(super) fn new(path: PathBuf) -> Self {
        Self { path, last: None }
    }

    /// What an earlier agent wrote since this host was started; `None`: nothing that can be gone on with.
    pub(super) fn read(&self) -> Option<Memory> {
        let memory: Memory = serde_json::from_str(&fs::read_to_string(&self.path).ok()?).ok()?;
        (memory.abi == ABI_VERSION && memory.boot == boot()).then_some(memory)
    }

    /// Writes, unless it is there already. Whole or not at all.
    pub(super) fn write(&mut self, memory: Memory) -> io::Result<()> {
        if self.last.as_ref() == Some(&memory) {
            return Ok(());
        }
        let new = self.path.with_extension("new");
        let mut file =
            fs::OpenOptions::new().create(true).truncate(true).write(true).mode(0o600).open(&new)?;
        file.write_all(serde_json::to_string(&memory)?.as_bytes())?;
        // No sync: what matters is that it outlives the process; a host that is started anew has empty maps.
        fs::rename(&new, &self.path)?;
        self.last = Some(memory);
        Ok(())
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }
}

fn boot() -> String {
    fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default().trim().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read() {
        let path = std::env::temp_dir().join(format!("egret-memory-{}.json", std::process::id()));
        let mut file = MemoryFile::new(path.clone());
        assert_eq!(file.read(), None);
        let state =
            Saved { classes: Vec::new(), told: vec![(1, "a.example".into(), [192, 0, 2, 1].into(), 9)] };
        let memory = Memory::new(vec![("ns/a".into(), "u".into(), 3)], serde_json::Value::Null, state);
        file.write(memory.clone()).expect("written");
        file.write(memory.clone()).expect("nothing to do");
        assert_eq!(MemoryFile::new(path.clone()).read(), Some(memory.clone()));
        let other = Memory { boot: "another".into(), ..memory };
        file.write(other).expect("written");
        assert_eq!(file.read(), None, "of another boot");
        fs::remove_file(path).expect("clean up");
    }
}
