//! A folder of Kubernetes YAML as a source: looked at when something happens in it, and now and then.
//!
//! Owns the subscription, which is a matter of speed alone: whoever looks now and then misses nothing.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::Duration;

use egret_core::cluster::Kind;
use notify::event::{AccessKind, AccessMode, CreateKind, EventKind, ModifyKind};
use notify::{RecommendedWatcher, RecursiveMode, Watcher};
use tokio::sync::mpsc;

use super::folder::{Folder, Texts};
use super::{News, Reports, Source};

/// How often the folder is looked at, whether something happened or not.
const LOOK: Duration = Duration::from_millis(500);

/// The folder, with what was found at the first look.
#[derive(Debug)]
pub struct Files {
    folder: Folder,
    events: Events,
    first: Texts,
}

impl Files {
    /// Looks for the first time.
    ///
    /// # Errors
    /// The folder cannot be read.
    pub fn open(path: PathBuf) -> io::Result<Self> {
        // Before the first look, so that nothing falls between.
        let events = Events::of(&path);
        let mut folder = Folder::new(path);
        let first = folder.look()?.unwrap_or_default();
        Ok(Self { folder, events, first })
    }
}

impl Source for Files {
    fn name(&self) -> String {
        format!("dir:{}", self.folder.path().display())
    }

    fn kinds(&self) -> Vec<Kind> {
        Vec::new()
    }

    /// Files are nobody's to write to: reports are not read.
    fn tell(self: Box<Self>, to: &mpsc::Sender<News>, _: Reports) {
        let Self { mut folder, events, first } = *self;
        let mut trouble = None;
        let mut next = Some(News::Texts(first));
        loop {
            let listens = match next.take() {
                Some(news) => to.blocking_send(news).is_ok(),
                None => !to.is_closed(),
            };
            if !listens {
                return;
            }
            // What is new is told before what is wrong.
            let wrong = match folder.look() {
                Ok(texts) => {
                    next = texts.map(News::Texts);
                    None
                }
                Err(error) => Some(format!("dir:{}: {error}", folder.path().display())),
            };
            if next.is_none() && wrong != trouble {
                trouble.clone_from(&wrong);
                next = Some(News::Trouble(wrong));
            }
            if next.is_none() {
                events.wait(LOOK);
            }
        }
    }
}

/// That something may have changed in a folder.
#[derive(Debug)]
struct Events {
    seen: Receiver<()>,
    /// Keeps the other end open, whether there is a watcher or not.
    _open: SyncSender<()>,
    /// Ends the subscription when dropped.
    _watcher: Option<RecommendedWatcher>,
}

impl Events {
    /// Subscribes. Where that cannot be had, nothing ever seems to happen.
    fn of(folder: &Path) -> Self {
        // One that waits is as good as many.
        let (open, seen) = sync_channel(1);
        let sender = open.clone();
        let note = move |event: notify::Result<notify::Event>| {
            // An error is a full queue: anything may have changed.
            if event.map_or(true, |event| counts(&event.kind)) {
                let _ = sender.try_send(());
            }
        };
        let watcher = notify::recommended_watcher(note).and_then(|mut watcher| {
            watcher.watch(folder, RecursiveMode::Recursive)?;
            Ok(watcher)
        });
        Self { seen, _open: open, _watcher: watcher.ok() }
    }

    /// Waits until something may have changed, but not longer than this. True: something may have.
    fn wait(&self, most: Duration) -> bool {
        self.seen.recv_timeout(most).is_ok()
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
        let told = events.wait(Duration::from_secs(10));
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
