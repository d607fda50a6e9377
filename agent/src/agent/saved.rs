//! The file that the next agent begins with: numbers that the kernel's maps hold, and what workloads were told.
//!
//! Written before the maps are: a number that is in the kernel is in the file. Every change waits for it, so each part is
//! turned into text once and kept.

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use egret_common::ABI_VERSION;
use egret_common::ids::EndpointId;
use egret_core::identity::{IdentityBook, Profile};
use egret_core::labels::Labels;
use egret_core::ports::Proto;
use egret_core::state::{Saved, State};
use serde::{Deserialize, Serialize};

/// Name, uid and number of a pod.
pub(super) type SavedEndpoint = (String, String, EndpointId);

/// What the file holds.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
pub(super) struct Memory {
    /// The maps' ABI that the numbers belong to.
    abi: u32,
    /// The boot that the clock of the answers belongs to.
    boot: String,
    endpoints: Vec<SavedEndpoint>,
    identities: Vec<SavedIdentity>,
    /// Name classes, and what workloads were told.
    pub(super) state: Saved,
}

/// An identity as it is written down.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct SavedIdentity {
    number: u32,
    labels: Labels,
    /// Name, protocol's number, port.
    ports: Vec<(String, u8, u16)>,
}

impl Memory {
    /// By name and uid.
    pub(super) fn numbers(&self) -> BTreeMap<(String, String), EndpointId> {
        self.endpoints.iter().map(|(name, uid, id)| ((name.clone(), uid.clone()), *id)).collect()
    }

    /// Gives the identities their numbers again.
    pub(super) fn restore(&self, book: &mut IdentityBook) {
        for SavedIdentity { number, labels, ports } in &self.identities {
            let known = ports.iter().filter_map(|(name, proto, port)| {
                let proto = Proto::WITH_PORTS.into_iter().find(|p| p.number() == *proto)?;
                Some(((name.clone(), proto), *port))
            });
            // One that is taken gets another number, as any new one.
            book.restore(*number, Profile { labels: labels.clone(), ports: known.collect() });
        }
    }
}

/// The file.
#[derive(Debug)]
pub(super) struct MemoryFile {
    path: PathBuf,
    boot: String,
    endpoints: String,
    identities: Pieces,
    classes: Pieces,
    /// Of each endpoint what it was told, with the revision.
    told: BTreeMap<EndpointId, (u64, String)>,
    /// It says what is here.
    written: bool,
}

impl MemoryFile {
    pub(super) fn new(path: PathBuf) -> Self {
        Self {
            path,
            boot: boot(),
            endpoints: String::new(),
            identities: Pieces::default(),
            classes: Pieces::default(),
            told: BTreeMap::new(),
            written: false,
        }
    }

    /// What an earlier agent wrote since this host was started; `None`: nothing that can be gone on with.
    pub(super) fn read(&self) -> Option<Memory> {
        let memory: Memory = serde_json::from_str(&fs::read_to_string(&self.path).ok()?).ok()?;
        (memory.abi == ABI_VERSION && memory.boot == self.boot).then_some(memory)
    }

    /// Writes, unless it is there already. Whole or not at all.
    pub(super) fn write(
        &mut self,
        endpoints: &[SavedEndpoint],
        identities: &IdentityBook,
        state: &State,
    ) -> io::Result<()> {
        let endpoints = serde_json::to_string(endpoints)?;
        let mut same = self.written && endpoints == self.endpoints;
        self.endpoints = endpoints;
        same &=
            self.identities.keep(identities.iter().map(|(n, profile)| (n, move || identity(n, profile))))?;
        let classes = state.book().names().iter();
        same &= self.classes.keep(classes.map(|(n, key)| (n, move || json(&Saved::class(n, key)))))?;
        same &= self.keep_told(state)?;
        if same {
            return Ok(());
        }
        self.written = false;
        let new = self.path.with_extension("new");
        let mut file =
            fs::OpenOptions::new().create(true).truncate(true).write(true).mode(0o600).open(&new)?;
        file.write_all(self.text()?.as_bytes())?;
        // No sync: what matters is that it outlives the process; a host that is started anew has empty maps.
        fs::rename(&new, &self.path)?;
        self.written = true;
        Ok(())
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// True: nothing has changed.
    fn keep_told(&mut self, state: &State) -> io::Result<bool> {
        let (mut known, mut same) = (std::mem::take(&mut self.told), true);
        for (id, cache) in state.caches() {
            let text = match known.remove(&id).filter(|(revision, _)| *revision == cache.revision()) {
                Some((_, text)) => text,
                None => {
                    same = false;
                    let told =
                        Saved::told(id, cache).map(|told| json(&told)).collect::<io::Result<Vec<_>>>()?;
                    told.join(",")
                }
            };
            self.told.insert(id, (cache.revision(), text));
        }
        Ok(same && known.is_empty())
    }

    fn text(&self) -> io::Result<String> {
        let told = self.told.values().map(|(_, text)| text.as_str()).filter(|text| !text.is_empty());
        Ok(format!(
            "{{\"abi\":{ABI_VERSION},\"boot\":{},\"endpoints\":{},\"identities\":[{}],\"state\":{{\"classes\":[{}],\"told\":[{}]}}}}",
            json(&self.boot)?,
            self.endpoints,
            self.identities.text(),
            self.classes.text(),
            told.collect::<Vec<_>>().join(","),
        ))
    }
}

/// Values that never change, by number, as text.
#[derive(Debug, Default)]
struct Pieces(BTreeMap<u32, String>);

impl Pieces {
    /// These are all there are. True: nothing has changed.
    fn keep<M: FnOnce() -> io::Result<String>>(
        &mut self,
        now: impl Iterator<Item = (u32, M)>,
    ) -> io::Result<bool> {
        let (mut known, mut same) = (std::mem::take(&mut self.0), true);
        for (number, make) in now {
            let text = match known.remove(&number) {
                Some(text) => text,
                None => {
                    same = false;
                    make()?
                }
            };
            self.0.insert(number, text);
        }
        Ok(same && known.is_empty())
    }

    fn text(&self) -> String {
        self.0.values().map(String::as_str).collect::<Vec<_>>().join(",")
    }
}

fn identity(number: u32, profile: &Profile) -> io::Result<String> {
    let ports = profile.ports.iter().map(|((name, proto), port)| (name.clone(), proto.number(), *port));
    json(&SavedIdentity { number, labels: profile.labels.clone(), ports: ports.collect() })
}

fn json(value: &impl Serialize) -> io::Result<String> {
    Ok(serde_json::to_string(value)?)
}

fn boot() -> String {
    fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default().trim().to_owned()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::learn::fixture;

    fn profile(app: &str) -> Arc<Profile> {
        let ports = BTreeMap::from([(("web".to_owned(), Proto::Tcp), 80)]);
        Arc::new(Profile { labels: BTreeMap::from([("app".to_owned(), app.to_owned())]), ports })
    }

    #[test]
    fn what_is_written_is_read() {
        let path = std::env::temp_dir().join(format!("egret-memory-{}.json", std::process::id()));
        let mut file = MemoryFile::new(path.clone());
        assert_eq!(file.read(), None);
        let mut learner = fixture::learner(&["a.example", "*.b.example"], &[]);
        let mut book = IdentityBook::default();
        book.identity(&profile("a"));
        book.identity(&profile("b"));
        let endpoints = [("ns/a".to_owned(), "u".to_owned(), 3)];
        file.write(&endpoints, &book, learner.state()).expect("written");
        let written = || fs::metadata(&path).expect("there").modified().expect("a time");
        let (memory, at) = (file.read().expect("readable"), written());
        assert_eq!(memory.state, learner.state().save());
        assert_eq!(memory.numbers(), [(("ns/a".to_owned(), "u".to_owned()), 3)].into());
        let mut again = IdentityBook::default();
        memory.restore(&mut again);
        assert!(again.iter().eq(book.iter()));
        file.write(&endpoints, &book, learner.state()).expect("nothing to do");
        assert_eq!(written(), at);
        // Each part alone.
        book.identity(&profile("c"));
        file.write(&endpoints, &book, learner.state()).expect("written");
        assert_eq!(file.read().expect("readable").identities.len(), 3);
        fixture::exchange(&mut learner, "a.example", [192, 0, 2, 1], 1, None);
        file.write(&endpoints, &book, learner.state()).expect("written");
        assert_eq!(file.read().expect("readable").state, learner.state().save());
        assert_eq!(learner.state().save().told.len(), 1);
        file.write(&[], &book, learner.state()).expect("written");
        assert_eq!(MemoryFile::new(path.clone()).read().expect("readable").numbers(), BTreeMap::new());
        file.boot = "another".into();
        file.written = false;
        file.write(&[], &book, learner.state()).expect("written");
        assert_eq!(MemoryFile::new(path.clone()).read(), None, "of another boot");
        fs::remove_file(path).expect("clean up");
    }
}
