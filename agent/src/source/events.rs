//! That something may have changed: files of the folder, interfaces of this host. What, only a look can tell.
//!
//! Owns the two subscriptions. Both are a matter of speed alone: whoever looks now and then misses nothing.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use notify::event::{AccessKind, AccessMode, CreateKind, EventKind, ModifyKind};
use notify::{RecommendedWatcher, RecursiveMode, Watcher};

use crate::netlink::Subscription;

/// The subscriptions; those that cannot be had are left out.
#[derive(Debug, Default)]
pub struct Events {
    files: Arc<AtomicBool>,
    /// Ends the subscription when dropped.
    watcher: Option<RecommendedWatcher>,
    links: Option<Subscription>,
}

impl Events {
    /// Subscribes to a folder and to this network namespace.
    #[must_use]
    pub fn of(folder: &Path) -> Self {
        let files = Arc::new(AtomicBool::new(false));
        let seen = files.clone();
        let note = move |event: notify::Result<notify::Event>| {
            // An error is a full queue: anything may have changed.
            if event.map_or(true, |event| counts(&event.kind)) {
                seen.store(true, Ordering::Relaxed);
            }
        };
        let watcher = notify::recommended_watcher(note).and_then(|mut watcher| {
            watcher.watch(folder, RecursiveMode::Recursive)?;
            Ok(watcher)
        });
        Self { files, watcher: watcher.ok(), links: Subscription::to_links().ok() }
    }

    /// Whether files may have changed since this was asked last.
    pub fn files(&self) -> bool {
        self.watcher.is_some() && self.files.swap(false, Ordering::Relaxed)
    }

    /// Whether interfaces may have changed since this was asked last.
    pub fn links(&self) -> bool {
        let news = self.links.as_ref().map(Subscription::drain);
        news.is_some_and(|news: io::Result<bool>| news.unwrap_or(true))
    }
}

/// A file that is being written is not looked at before its writer closes it.
fn counts(kind: &EventKind) -> bool {
    matches!(
        kind,
        EventKind::Access(AccessKind::Close(AccessMode::Write))
            | EventKind::Modify(ModifyKind::Name(_))
            | EventKind::Create(CreateKind::Folder | CreateKind::Other | CreateKind::Any)
            | EventKind::Remove(_)
            | EventKind::Any
            | EventKind::Other
    )
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::io::Write;
    use std::time::{Duration, Instant};

    use notify::event::{DataChange, RemoveKind, RenameMode};

    use super::*;

    #[test]
    fn a_half_written_file_does_not_count() {
        for (kind, want) in [
            (EventKind::Create(CreateKind::File), false),
            (EventKind::Access(AccessKind::Open(AccessMode::Any)), false),
            (EventKind::Modify(ModifyKind::Data(DataChange::Any)), false),
            (EventKind::Access(AccessKind::Close(AccessMode::Read)), false),
            (EventKind::Access(AccessKind::Close(AccessMode::Write)), true),
            (EventKind::Modify(ModifyKind::Name(RenameMode::To)), true),
            (EventKind::Remove(RemoveKind::File), true),
            (EventKind::Create(CreateKind::Folder), true),
        ] {
            assert_eq!(counts(&kind), want, "{kind:?}");
        }
    }

    /// One change of a folder that holds `a.yaml`; it must be told of. A folder for each: what is left of an earlier
    /// change would be taken for this one.
    #[track_caller]
    fn check(name: &str, change: impl FnOnce(&Path)) {
        let dir = std::env::temp_dir().join(format!("egret-events-{name}-{}", std::process::id()));
        fs::create_dir_all(&dir).expect("a folder");
        fs::write(dir.join("a.yaml"), "a").expect("written");
        let events = Events::of(&dir);
        change(&dir);
        let end = Instant::now() + Duration::from_secs(10);
        let mut told = events.files();
        while !told && Instant::now() < end {
            std::thread::sleep(Duration::from_millis(1));
            told = events.files();
        }
        fs::remove_dir_all(&dir).expect("clean up");
        assert!(told, "{name}");
    }

    #[test]
    fn a_file_counts_when_it_is_closed_moved_or_removed() {
        check("closed", |dir| {
            let mut file = fs::File::options().append(true).open(dir.join("a.yaml")).expect("opened");
            file.write_all(b"more").expect("written");
        });
        check("moved", |dir| fs::rename(dir.join("a.yaml"), dir.join("b.yaml")).expect("moved"));
        check("removed", |dir| fs::remove_file(dir.join("a.yaml")).expect("removed"));
    }
}
