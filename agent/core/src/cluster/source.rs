//! Which file gave which objects, so that an edit becomes changes.
//!
//! Owns: the last good version of each object, and which of several files counts. Must not know: the file system, what
//! objects mean. A file is a path and a text.
//!
//! - An object that became invalid stays as it was when it was read last (DESIGN 5), until the file is mended or gone.
//! - If a part of a file cannot be read at all, everything that the file held before and that is not in the rest stays.
//! - If two files hold the same object, a valid version counts before one that only stays, and then the path that
//!   sorts first.

use std::collections::{BTreeMap, BTreeSet};

use super::{Change, Key, Object, read};
use crate::policy::{Diagnostic, Severity};

/// The files of a folder and what they hold.
#[derive(Debug, Clone, Default)]
pub struct Source {
    files: BTreeMap<String, File>,
    /// Whose version of an object counts: the first place.
    places: BTreeMap<Key, BTreeSet<Place>>,
}

/// What a file holds.
#[derive(Debug, Clone, Default)]
struct File {
    text: String,
    objects: BTreeMap<Key, Held>,
    diagnostics: Vec<Diagnostic>,
}

#[derive(Debug, Clone)]
struct Held {
    object: Object,
    /// The text does not say so any more; it is the last good version.
    stale: bool,
}

/// Where a version of an object is; the least one counts.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Place {
    stale: bool,
    path: String,
}

impl Source {
    /// A file is new, or may have another text. The same text again costs nothing.
    pub fn update(&mut self, path: &str, text: &str) -> Vec<Change> {
        let old = match self.files.get(path) {
            Some(file) if file.text == text => return Vec::new(),
            known => known.cloned().unwrap_or_default(),
        };
        self.replace(path, Some(File::read(text, old)))
    }

    /// A file is gone, and with it its objects.
    pub fn remove(&mut self, path: &str) -> Vec<Change> {
        self.replace(path, None)
    }

    /// These are all files there are.
    pub fn sync<'a>(&mut self, files: impl IntoIterator<Item = (&'a str, &'a str)>) -> Vec<Change> {
        let files: BTreeMap<&str, &str> = files.into_iter().collect();
        let gone: Vec<String> =
            self.files.keys().filter(|p| !files.contains_key(p.as_str())).cloned().collect();
        // New places first: an object that moves to another file is never gone.
        let mut changes: Vec<Change> =
            files.into_iter().flat_map(|(path, text)| self.update(path, text)).collect();
        changes.extend(gone.iter().flat_map(|path| self.remove(path)));
        changes
    }

    /// Everything to tell about the files, by path.
    #[must_use]
    pub fn diagnostics(&self) -> Vec<(String, Diagnostic)> {
        let with_path = |(path, file): (&String, &File)| {
            let found = file.diagnostics.iter().cloned().map(|d| (path.clone(), d));
            found.collect::<Vec<_>>()
        };
        let mut out: Vec<_> = self.files.iter().flat_map(with_path).collect();
        for (key, places) in &self.places {
            let Some(first) = places.first() else { continue };
            for place in places.iter().skip(1).filter(|p| !p.stale) {
                let message = format!("is in {} as well, and that one counts", first.path);
                out.push((place.path.clone(), about(key, message)));
            }
        }
        out.sort();
        out
    }

    fn replace(&mut self, path: &str, new: Option<File>) -> Vec<Change> {
        let old = self.files.remove(path).unwrap_or_default();
        let of_new = new.iter().flat_map(|f| f.objects.keys());
        let touched: BTreeSet<Key> = old.objects.keys().chain(of_new).cloned().collect();
        self.files.insert(path.to_owned(), old);
        let before: Vec<Option<Object>> = touched.iter().map(|key| self.in_force(key).cloned()).collect();
        self.index(path, false);
        match new {
            Some(file) => drop(self.files.insert(path.to_owned(), file)),
            None => drop(self.files.remove(path)),
        }
        self.index(path, true);
        let mut changes = Vec::new();
        for (key, before) in touched.into_iter().zip(before) {
            match self.in_force(&key) {
                Some(now) if before.as_ref() != Some(now) => changes.push(Change::Put(Box::new(now.clone()))),
                None if before.is_some() => changes.push(Change::Delete(key)),
                _ => {}
            }
        }
        changes
    }

    fn in_force(&self, key: &Key) -> Option<&Object> {
        let place = self.places.get(key)?.first()?;
        self.files.get(&place.path)?.objects.get(key).map(|held| &held.object)
    }

    /// Enters the objects of a file into `places`, or takes them out.
    fn index(&mut self, path: &str, enter: bool) {
        let Some(file) = self.files.get(path) else { return };
        for (key, held) in &file.objects {
            let place = Place { stale: held.stale, path: path.to_owned() };
            let places = self.places.entry(key.clone()).or_default();
            if enter {
                places.insert(place);
            } else {
                places.remove(&place);
            }
            if places.is_empty() {
                self.places.remove(key);
            }
        }
    }
}

impl File {
    /// What a text holds, and what stays of the file's old objects.
    fn read(text: &str, old: File) -> Self {
        let contents = read(text);
        let fresh = contents.objects.into_iter();
        let mut file = File {
            text: text.to_owned(),
            objects: fresh.map(|object| (object.key.clone(), Held { object, stale: false })).collect(),
            diagnostics: contents.diagnostics,
        };
        for (key, Held { object, .. }) in old.objects {
            let missed = contents.torn || contents.broken.contains(&key);
            if missed && !file.objects.contains_key(&key) {
                let message = "stays in force as it was read last".to_owned();
                file.diagnostics.push(about(&key, message));
                file.objects.insert(key, Held { object, stale: true });
            }
        }
        file
    }
}

fn about(key: &Key, message: String) -> Diagnostic {
    Diagnostic { severity: Severity::Warning, object: key.to_string(), path: String::new(), message }
}
