//! All objects, their history, and the one counter of versions. Knows no HTTP and no clock.
//!
//! History is what a watch reads and what an older state is made of: going back from now, each change is undone. It is
//! kept for each resource by itself, up to a bound; who asks for more gets [`Gone`].

use std::collections::{BTreeMap, VecDeque};
use std::iter;
use std::sync::Arc;

use hyper::body::Bytes;
use tokio::sync::watch;

use super::kinds::{KINDS, Kind};
use super::object::{Draft, Object, Verb};

/// Versions begin here: 0 has a meaning of its own.
const FIRST: u64 = 100;
/// So many changes of a resource are remembered, unless the test says otherwise.
const HISTORY: usize = 10_000;

/// The state asked for is no longer known. `oldest` is the first one that is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Gone {
    pub(super) oldest: u64,
}

/// Why an object was not stored or deleted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Clash {
    /// The resource is not there at all.
    Unknown,
    /// There is no such object.
    Absent,
    /// It is there already, or in another version than the one expected.
    Other,
}

/// In which state an object must be for a change to be made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Expected {
    Any,
    Absent,
    Revision(u64),
}

/// One change of one object.
#[derive(Debug)]
pub(super) struct Change {
    pub(super) revision: u64,
    pub(super) before: Option<Arc<Object>>,
    pub(super) after: Option<Arc<Object>>,
    /// As an event, for who sees both states.
    pub(super) frame: Bytes,
}

/// What is stored of one resource.
#[derive(Debug)]
pub(super) struct Shelf {
    installed: bool,
    /// Counts how often the resource went away, and how often its history was forgotten by order.
    pub(super) installation: u64,
    pub(super) era: u64,
    /// Every change after this version is still known.
    pub(super) forgotten: u64,
    objects: BTreeMap<String, Arc<Object>>,
    history: VecDeque<Arc<Change>>,
}

/// All that is stored.
#[derive(Debug)]
pub(super) struct Store {
    pub(super) revision: u64,
    pub(super) history: usize,
    shelves: Vec<Shelf>,
    /// Says that something happened to a resource.
    news: Vec<watch::Sender<()>>,
}

impl Store {
    pub(super) fn new() -> Self {
        let shelf = |kind: &Kind| Shelf {
            installed: !kind.custom,
            installation: 0,
            era: 0,
            forgotten: FIRST,
            objects: BTreeMap::new(),
            history: VecDeque::new(),
        };
        Self {
            revision: FIRST,
            history: HISTORY,
            shelves: KINDS.iter().map(shelf).collect(),
            news: KINDS.iter().map(|_| watch::Sender::new(())).collect(),
        }
    }

    /// A resource, if it is there.
    pub(super) fn shelf(&self, id: usize) -> Option<&Shelf> {
        Some(&self.shelves[id]).filter(|shelf| shelf.installed)
    }

    /// A resource for who began to read it when it was there: its last events outlive it.
    pub(super) fn remains(&self, id: usize) -> &Shelf {
        &self.shelves[id]
    }

    pub(super) fn subscribe(&self, id: usize) -> watch::Receiver<()> {
        self.news[id].subscribe()
    }

    pub(super) fn get(&self, id: usize, key: &str) -> Option<Arc<Object>> {
        self.shelf(id)?.objects.get(key).cloned()
    }

    /// Stores an object. What changes nothing gets no version and makes no event.
    pub(super) fn put(&mut self, id: usize, draft: Draft, expected: Expected) -> Result<Arc<Object>, Clash> {
        let shelf = self.shelf(id).ok_or(Clash::Unknown)?;
        let before = shelf.objects.get(&draft.key).cloned();
        match (expected, &before) {
            (Expected::Absent, Some(_)) => return Err(Clash::Other),
            (Expected::Revision(_), None) => return Err(Clash::Absent),
            (Expected::Revision(wanted), Some(before)) if before.revision != wanted => {
                return Err(Clash::Other);
            }
            _ => {}
        }
        if let Some(before) = before.as_ref().filter(|before| draft.is_same_as(before)) {
            return Ok(Arc::clone(before));
        }
        self.revision += 1;
        let verb = if before.is_some() { Verb::Modified } else { Verb::Added };
        let after = Arc::new(draft.at(&KINDS[id], self.revision, verb));
        self.shelves[id].objects.insert(after.key.clone(), Arc::clone(&after));
        let frame = after.frame.clone();
        self.remember(id, Change { revision: self.revision, before, after: Some(Arc::clone(&after)), frame });
        Ok(after)
    }

    /// Deletes an object and returns its last state.
    pub(super) fn remove(&mut self, id: usize, key: &str, expected: Expected) -> Result<Arc<Object>, Clash> {
        let shelf = self.shelf(id).ok_or(Clash::Unknown)?;
        let before = shelf.objects.get(key).cloned().ok_or(Clash::Absent)?;
        if matches!(expected, Expected::Revision(wanted) if wanted != before.revision) {
            return Err(Clash::Other);
        }
        self.shelves[id].objects.remove(key);
        self.revision += 1;
        let frame = before.event(Verb::Deleted, &KINDS[id], self.revision);
        let change =
            Change { revision: self.revision, before: Some(Arc::clone(&before)), after: None, frame };
        self.remember(id, change);
        Ok(before)
    }

    fn remember(&mut self, id: usize, change: Change) {
        let shelf = &mut self.shelves[id];
        shelf.history.push_back(Arc::new(change));
        while shelf.history.len() > self.history {
            shelf.forgotten = shelf.history.pop_front().map_or(shelf.forgotten, |change| change.revision);
        }
        self.news[id].send_replace(());
    }

    /// Forgets all history. Open watches are told so, even those that missed nothing.
    pub(super) fn expire(&mut self) {
        for (shelf, news) in self.shelves.iter_mut().zip(&self.news) {
            shelf.history.clear();
            shelf.forgotten = self.revision;
            shelf.era += 1;
            news.send_replace(());
        }
    }

    /// Makes a resource that was absent known. It is empty then; what was deleted with it stays in its history.
    pub(super) fn install(&mut self, id: usize) {
        self.shelves[id].installed = true;
    }

    /// Deletes all objects of a resource, then the resource.
    pub(super) fn uninstall(&mut self, id: usize) {
        let keys: Vec<String> =
            self.shelf(id).into_iter().flat_map(|shelf| shelf.objects.keys().cloned()).collect();
        for key in keys {
            let _ = self.remove(id, &key, Expected::Any);
        }
        self.shelves[id].installed = false;
        self.shelves[id].installation += 1;
        self.news[id].send_replace(());
    }
}

impl Shelf {
    /// The changes after a version, oldest first.
    pub(super) fn since(&self, revision: u64) -> Result<impl Iterator<Item = &Arc<Change>>, Gone> {
        if revision < self.forgotten {
            return Err(Gone { oldest: self.forgotten });
        }
        let first = self.history.partition_point(|change| change.revision <= revision);
        Ok(self.history.range(first..))
    }

    /// The objects as of a version, in the order of their keys, from a key on and as long as keys begin with `prefix`.
    pub(super) fn at<'a>(
        &'a self,
        revision: u64,
        from: &str,
        prefix: &'a str,
    ) -> Result<impl Iterator<Item = Arc<Object>> + 'a, Gone> {
        if revision < self.forgotten {
            return Err(Gone { oldest: self.forgotten });
        }
        let mut undone: BTreeMap<&str, Option<&Arc<Object>>> = BTreeMap::new();
        for change in self.history.iter().rev().take_while(|change| change.revision > revision) {
            if let Some(object) = change.before.as_ref().or(change.after.as_ref()) {
                undone.insert(&object.key, change.before.as_ref());
            }
        }
        let from = from.max(prefix).to_owned();
        undone.retain(|key, _| *key >= from.as_str());
        let mut undone = undone.into_iter().peekable();
        let mut now = self.objects.range(from..).peekable();
        let states = iter::from_fn(move || {
            loop {
                let next_undone = undone.peek().map(|(key, _)| *key);
                let next_now = now.peek().map(|(key, _)| key.as_str());
                match (next_now, next_undone) {
                    (None, None) => return None,
                    (Some(key), other) if other.is_none_or(|other| key < other) => {
                        return now.next().map(|(_, object)| object);
                    }
                    (key, other) => {
                        if key == other {
                            now.next();
                        }
                        if let Some((_, Some(object))) = undone.next() {
                            return Some(object);
                        }
                    }
                }
            }
        });
        Ok(states.take_while(move |object| object.key.starts_with(prefix)).cloned())
    }
}
