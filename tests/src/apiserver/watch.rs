//! One watch: what was there, then what happens, until its time is over or its history is forgotten.
//!
//! A watch has no queue of its own. It remembers how far in the resource's history it is and reads on when it is
//! told that there is news; one that is too slow finds its place gone. Knows no HTTP beyond being polled.

use std::collections::VecDeque;
use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll, ready};
use std::time::Duration;
use std::vec;

use hyper::body::Bytes;
use serde_json::json;
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};

use super::kinds::{KINDS, Kind};
use super::object::{Object, Verb};
use super::options::{Options, Revision};
use super::reply::{Failure, PIECE};
use super::select::Filter;
use super::server::Shared;
use super::store::Change;

/// A watch that names no time ends after this one (the real server: 30 to 60 minutes).
const LONGEST: Duration = Duration::from_secs(1800);
/// Bookmarks: so often if there is something to tell, and so often anyway.
const BOOKMARK: Duration = Duration::from_secs(1);
const BOOKMARK_ANYWAY: Duration = Duration::from_secs(60);
/// So many changes are looked at while the store is locked.
const BATCH: usize = 256;

/// A watch as a stream of chunks, each of whole events.
pub(super) struct Events {
    next: Pin<Box<dyn Future<Output = Next> + Send>>,
}

/// A chunk, and the watch that makes the one after it.
type Next = Option<(Watch, Bytes)>;

impl Events {
    pub(super) fn new(watch: Watch) -> Self {
        Self { next: Box::pin(watch.next()) }
    }

    /// The next chunk; not to be asked again after the end.
    pub(super) fn poll_next(&mut self, context: &mut Context<'_>) -> Poll<Option<Bytes>> {
        let Some((watch, bytes)) = ready!(self.next.as_mut().poll(context)) else { return Poll::Ready(None) };
        self.next = Box::pin(watch.next());
        Poll::Ready(Some(bytes))
    }
}

impl fmt::Debug for Events {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Events")
    }
}

/// A watch under way.
pub(super) struct Watch {
    shared: Arc<Shared>,
    id: usize,
    filter: Filter,
    /// Everything up to this version has been looked at; the client knows of this one.
    seen: u64,
    told: u64,
    installation: u64,
    era: u64,
    /// What is sent before any change: the objects that are there, and the sign that they are all.
    initial: vec::IntoIter<Arc<Object>>,
    initial_end: Option<Bytes>,
    ready: VecDeque<Bytes>,
    news: watch::Receiver<()>,
    deadline: Instant,
    /// When to think of a bookmark next, and when something was sent last.
    bookmark: Option<(Instant, Instant)>,
    over: bool,
}

impl Watch {
    /// Begins a watch. With the history that it needs forgotten, it is one event long, or fails if `refuse` is set.
    pub(super) fn start(
        shared: &Arc<Shared>,
        id: usize,
        options: Options,
        refuse: bool,
    ) -> Result<Self, Failure> {
        let store = shared.store();
        let shelf = store.shelf(id).ok_or_else(|| Failure::absent(&KINDS[id], ""))?;
        let current = store.revision;
        let whole = options.initial.unwrap_or(!matches!(options.revision, Revision::At(_)));
        let from = match options.revision {
            Revision::At(revision) if options.initial == Some(true) && revision > current => {
                return Err(Failure::future(revision, current));
            }
            Revision::At(revision) if !whole => revision,
            _ => current,
        };
        let forgotten = shelf.since(from).err().map(|gone| Failure::gone(from, gone.oldest));
        let (failure, refused) = if refuse { (None, forgotten) } else { (forgotten, None) };
        refused.map_or(Ok(()), Err)?;
        let initial = shelf.at(current, "", &options.filter.prefix).into_iter().flatten().filter(|_| whole);
        let initial: Vec<_> = initial.filter(|object| options.filter.matches(object)).collect();
        let now = Instant::now();
        let time = options.timeout.filter(|seconds| *seconds > 0).map_or(LONGEST, Duration::from_secs);
        let streamed = options.initial == Some(true) && options.bookmarks;
        shared.watches.fetch_add(1, Ordering::Relaxed);
        Ok(Self {
            id,
            seen: from,
            told: if whole && !streamed { 0 } else { from },
            installation: shelf.installation,
            era: shelf.era,
            initial: initial.into_iter(),
            initial_end: streamed.then(|| bookmark(&KINDS[id], from, true)),
            over: failure.is_some(),
            ready: failure.iter().map(error).collect(),
            news: store.subscribe(id),
            deadline: now + time,
            bookmark: options.bookmarks.then_some((now + BOOKMARK, now)),
            filter: options.filter,
            shared: Arc::clone(shared),
        })
    }

    /// Waits for what to send next; `None` at the end.
    async fn next(mut self) -> Option<(Self, Bytes)> {
        loop {
            if let Some(bytes) = self.pending() {
                self.bookmark = self.bookmark.map(|(next, _)| (next, Instant::now()));
                return Some((self, bytes));
            }
            if self.over || Instant::now() >= self.deadline {
                return None;
            }
            self.news.mark_unchanged();
            let more = self.read_on();
            self.mark();
            if more || self.over || !self.ready.is_empty() {
                continue;
            }
            let wake = self.bookmark.map_or(self.deadline, |(next, _)| next.min(self.deadline));
            tokio::select! {
                told = self.news.changed() => self.over = told.is_err(),
                () = sleep_until(wake) => {}
            }
        }
    }

    /// What is ready to be sent.
    fn pending(&mut self) -> Option<Bytes> {
        let mut out = Vec::new();
        while out.len() < PIECE {
            let Some(object) = self.initial.next() else { break };
            object.write_event(Verb::Added, &KINDS[self.id], object.revision, &mut out);
        }
        if !out.is_empty() {
            return Some(out.into());
        }
        self.initial_end.take().or_else(|| self.ready.pop_front())
    }

    /// Takes what has happened since; true if there is more than one batch of it.
    fn read_on(&mut self) -> bool {
        let shared = Arc::clone(&self.shared);
        let store = shared.store();
        let shelf = store.remains(self.id);
        let changes = match shelf.since(self.seen) {
            Ok(changes) if shelf.era == self.era => changes,
            _ => {
                self.ready.push_back(error(&Failure::gone(self.seen, shelf.forgotten)));
                self.over = true;
                return false;
            }
        };
        let mut looked = 0;
        for change in changes.take(BATCH) {
            looked += 1;
            self.seen = self.seen.max(change.revision);
            if let Some(event) = event(&KINDS[self.id], change, &self.filter) {
                self.told = change.revision;
                self.ready.push_back(event);
            }
        }
        if looked == BATCH {
            return true;
        }
        self.seen = self.seen.max(store.revision);
        self.over = shelf.installation != self.installation;
        false
    }

    /// Adds a bookmark if it is time for one.
    fn mark(&mut self) {
        let now = Instant::now();
        let Some((next, last)) = self.bookmark.filter(|(next, _)| now >= *next) else { return };
        self.bookmark = Some((next.max(now) + BOOKMARK, last));
        if self.ready.is_empty() && (self.seen > self.told || now - last >= BOOKMARK_ANYWAY) {
            self.ready.push_back(bookmark(&KINDS[self.id], self.seen, false));
            self.told = self.seen;
        }
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.shared.watches.fetch_sub(1, Ordering::Relaxed);
    }
}

/// A change as who looks through the filter sees it.
fn event(kind: &Kind, change: &Change, filter: &Filter) -> Option<Bytes> {
    let seen = |object: &Option<Arc<Object>>| object.clone().filter(|object| filter.matches(object));
    match (seen(&change.before), seen(&change.after)) {
        (None, None) => None,
        (None, Some(after)) if change.before.is_some() => {
            Some(after.event(Verb::Added, kind, change.revision))
        }
        (Some(before), None) if change.after.is_some() => {
            Some(before.event(Verb::Deleted, kind, change.revision))
        }
        _ => Some(change.frame.clone()),
    }
}

/// An object of the kind that is nothing but a version.
fn bookmark(kind: &Kind, revision: u64, initial_end: bool) -> Bytes {
    let mut metadata = json!({"resourceVersion": revision.to_string(), "creationTimestamp": null});
    if initial_end {
        metadata["annotations"] = json!({"k8s.io/initial-events-end": "true"});
    }
    let object = json!({"kind": kind.kind, "apiVersion": kind.api_version(), "metadata": metadata});
    format!("{}\n", json!({"type": "BOOKMARK", "object": object})).into()
}

fn error(failure: &Failure) -> Bytes {
    format!("{}\n", json!({"type": "ERROR", "object": failure.status()})).into()
}
