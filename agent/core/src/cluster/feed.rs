//! What lists and watches of an API server tell, object by object, so that it becomes changes.
//!
//! Owns: which objects a list no longer names, and what there is to tell about each. Must not know: connections, which
//! kinds a server has. What an object says is read before ([`super::Document`]).
//!
//! - A version that cannot be read changes nothing: the last good one stays in force (DESIGN 5) until another can be
//!   read or the object is gone.
//! - While a list is under way nothing is deleted; what it did not name goes when it has ended. A list that breaks off
//!   and begins anew deletes nothing either.

use std::collections::{BTreeMap, BTreeSet};

use super::{Change, Contents, Key, Kind};
use crate::policy::{Diagnostic, Severity};

/// What is told of a kind.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum News {
    /// A list of all objects begins.
    Begin,
    /// An object, as it is now.
    Put(Box<Contents>),
    /// An object is gone.
    Gone(Key),
    /// The list has ended: it named every object there is.
    End,
}

/// What was told of every kind.
#[derive(Debug, Clone, Default)]
pub struct Feed {
    kinds: BTreeMap<Kind, OfKind>,
    /// What there is to tell has changed.
    retold: bool,
}

#[derive(Debug, Clone, Default)]
struct OfKind {
    /// Objects of which some version is in force.
    known: BTreeSet<Key>,
    /// Objects that the list under way has named.
    named: Option<BTreeSet<Key>>,
    told: BTreeMap<Key, Vec<Diagnostic>>,
    retold: bool,
    /// One list has ended.
    complete: bool,
}

impl Feed {
    /// Takes news in.
    pub fn take(&mut self, kind: Kind, news: News) -> Vec<Change> {
        let of_kind = self.kinds.entry(kind).or_default();
        let changes = match news {
            News::Begin => {
                of_kind.named = Some(BTreeSet::new());
                Vec::new()
            }
            News::Put(contents) => of_kind.put(*contents),
            News::Gone(key) => of_kind.gone(&key).into_iter().collect(),
            News::End => of_kind.end(),
        };
        self.retold |= std::mem::take(&mut of_kind.retold);
        changes
    }

    /// Whether there is something else to tell since this was asked last.
    pub fn take_retold(&mut self) -> bool {
        std::mem::take(&mut self.retold)
    }

    /// Whether all objects of the kind are known.
    #[must_use]
    pub fn is_complete(&self, kind: Kind) -> bool {
        self.kinds.get(&kind).is_some_and(|of_kind| of_kind.complete)
    }

    /// Each policy object, good ones among them, and each other object that is bad, with what there is to tell about it.
    #[must_use]
    pub fn verdicts(&self) -> BTreeMap<Key, Vec<Diagnostic>> {
        let mut verdicts = BTreeMap::new();
        for (kind, of_kind) in &self.kinds {
            if kind.is_policy() {
                verdicts.extend(of_kind.known.iter().map(|key| (key.clone(), Vec::new())));
            }
            let bad = |found: &[Diagnostic]| found.iter().any(|d| d.severity == Severity::Error);
            let told = of_kind.told.iter().filter(|(_, found)| kind.is_policy() || bad(found));
            verdicts.extend(told.map(|(key, found)| (key.clone(), found.clone())));
        }
        verdicts
    }

    /// Everything to tell about the objects.
    pub fn diagnostics(&self) -> impl Iterator<Item = (&Key, &Diagnostic)> {
        let told = self.kinds.values().flat_map(|of_kind| &of_kind.told);
        told.flat_map(|(key, found)| found.iter().map(move |diagnostic| (key, diagnostic)))
    }
}

impl OfKind {
    fn put(&mut self, contents: Contents) -> Vec<Change> {
        let Contents { objects, broken, mut diagnostics, .. } = contents;
        // One object, or one that could not be read.
        let Some(key) = objects.first().map(|o| o.key.clone()).or_else(|| broken.first().cloned()) else {
            return Vec::new();
        };
        if let Some(named) = &mut self.named {
            named.insert(key.clone());
        }
        if broken.contains(&key) && self.known.contains(&key) {
            let (object, path) = (key.to_string(), String::new());
            let message = "stays in force as it was read last".to_owned();
            diagnostics.push(Diagnostic { severity: Severity::Warning, object, path, message });
        }
        let before = match diagnostics.is_empty() {
            true => self.told.remove(&key),
            false => self.told.insert(key.clone(), diagnostics),
        };
        self.retold |= before.as_ref() != self.told.get(&key);
        self.known.extend(objects.iter().map(|object| object.key.clone()));
        objects.into_iter().map(|object| Change::Put(Box::new(object))).collect()
    }

    fn gone(&mut self, key: &Key) -> Option<Change> {
        self.retold |= self.told.remove(key).is_some();
        if let Some(named) = &mut self.named {
            named.remove(key);
        }
        self.known.remove(key).then(|| Change::Delete(key.clone()))
    }

    fn end(&mut self) -> Vec<Change> {
        // An end without a beginning says nothing about what is gone.
        let Some(named) = self.named.take() else { return Vec::new() };
        self.complete = true;
        let told: Vec<Key> = self.told.keys().filter(|key| !named.contains(key)).cloned().collect();
        let gone: Vec<Key> = self.known.difference(&named).cloned().collect();
        told.iter().chain(&gone).filter_map(|key| self.gone(key)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::read;

    fn object(name: &str, spec: &str) -> News {
        News::Put(Box::new(read(&format!(
            "{{apiVersion: networking.k8s.io/v1, kind: NetworkPolicy, metadata: {{namespace: x, name: {name}}}, spec: {spec}}}"
        ))))
    }

    fn good(name: &str) -> News {
        object(name, "{podSelector: {}}")
    }

    fn bad(name: &str) -> News {
        object(name, "{podSelector: 7}")
    }

    fn key(name: &str) -> Key {
        Key::new(Kind::NetworkPolicy, "x", name)
    }

    /// Each step's changes as text, `+name` and `-name`.
    #[track_caller]
    fn check(feed: &mut Feed, news: News, want: &[&str]) {
        let changes = feed.take(Kind::NetworkPolicy, news);
        let text = |change: &Change| match change {
            Change::Put(object) => format!("+{}", object.key.name),
            Change::Delete(key) => format!("-{}", key.name),
        };
        assert_eq!(changes.iter().map(text).collect::<Vec<_>>(), want);
    }

    fn told(feed: &Feed) -> Vec<(&str, &str)> {
        feed.diagnostics().map(|(key, d)| (key.name.as_str(), d.message.as_str())).collect()
    }

    #[test]
    fn what_a_list_does_not_name_goes_when_it_has_ended() {
        let mut feed = Feed::default();
        assert!(!feed.is_complete(Kind::NetworkPolicy));
        check(&mut feed, News::Begin, &[]);
        check(&mut feed, good("a"), &["+a"]);
        check(&mut feed, good("b"), &["+b"]);
        check(&mut feed, News::End, &[]);
        assert!(feed.is_complete(Kind::NetworkPolicy) && !feed.is_complete(Kind::Pod));
        check(&mut feed, good("c"), &["+c"]);
        // A list that broke off, and one that names less.
        check(&mut feed, News::Begin, &[]);
        check(&mut feed, good("a"), &["+a"]);
        check(&mut feed, News::Begin, &[]);
        check(&mut feed, good("c"), &["+c"]);
        check(&mut feed, News::End, &["-a", "-b"]);
        check(&mut feed, News::Gone(key("c")), &["-c"]);
        check(&mut feed, News::Gone(key("c")), &[]);
        check(&mut feed, News::End, &[]);
    }

    #[test]
    fn the_last_good_version_stays() {
        let mut feed = Feed::default();
        check(&mut feed, News::Begin, &[]);
        check(&mut feed, good("a"), &["+a"]);
        check(&mut feed, bad("b"), &[]);
        check(&mut feed, News::End, &[]);
        assert_eq!(told(&feed).len(), 1);
        let verdicts: Vec<(String, usize)> =
            feed.verdicts().into_iter().map(|(key, found)| (key.name, found.len())).collect();
        assert_eq!(verdicts, [("a".to_owned(), 0), ("b".to_owned(), 1)]);
        check(&mut feed, bad("a"), &[]);
        assert_eq!(told(&feed)[1], ("a", "stays in force as it was read last"));
        // A list that names it all the same keeps it.
        check(&mut feed, News::Begin, &[]);
        check(&mut feed, bad("a"), &[]);
        check(&mut feed, News::End, &[]);
        assert_eq!(told(&feed).len(), 2, "b is gone, and what there was to tell about it");
        assert!(feed.take_retold());
        check(&mut feed, bad("a"), &[]);
        assert!(!feed.take_retold(), "the same as before");
        check(&mut feed, good("a"), &["+a"]);
        assert!(feed.take_retold());
        assert_eq!(told(&feed), []);
        check(&mut feed, good("a"), &["+a"]);
        assert!(!feed.take_retold());
        check(&mut feed, bad("a"), &[]);
        check(&mut feed, News::Gone(key("a")), &["-a"]);
        assert_eq!(told(&feed), []);
    }
}
