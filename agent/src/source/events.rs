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
    use std::time::{Duration, Instant};

    use super::*;

    fn comes(events: &Events) -> bool {
        let end = Instant::now() + Duration::from_secs(10);
        while Instant::now() < end {
            if events.files() {
                return true;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        false
    }

    #[test]
    fn a_file_counts_when_it_is_closed_moved_or_removed() {
        let dir = std::env::temp_dir().join(format!("egret-events-{}", std::process::id()));
        fs::create_dir_all(&dir).expect("a folder");
        let events = Events::of(&dir);
        let mut file = fs::File::create(dir.join("a.yaml")).expect("made");
        io::Write::write_all(&mut file, b"half").expect("written");
        std::thread::sleep(Duration::from_millis(100));
        assert!(!events.files(), "half written");
        drop(file);
        assert!(comes(&events), "closed");
        fs::rename(dir.join("a.yaml"), dir.join("b.yaml")).expect("moved");
        assert!(comes(&events), "moved");
        // What is left of the same event.
        std::thread::sleep(Duration::from_millis(50));
        events.files();
        fs::remove_file(dir.join("b.yaml")).expect("removed");
        assert!(comes(&events), "removed");
        fs::remove_dir_all(&dir).expect("clean up");
    }
}
