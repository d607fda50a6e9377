//! One stored object: its bytes as they go out, and the little that selectors ask for. Knows no other object.
//!
//! The text is kept from behind the resource version on, so that the same bytes serve in a list, alone, and in events
//! of any version. They lie inside the event that announced them.

use std::time::{SystemTime, UNIX_EPOCH};

use hyper::body::Bytes;
use serde_json::{Map, Value};

use super::kinds::Kind;

/// What happened to an object, as a watch names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verb {
    Added,
    Modified,
    Deleted,
}

impl Verb {
    fn name(self) -> &'static str {
        match self {
            Self::Added => "ADDED",
            Self::Modified => "MODIFIED",
            Self::Deleted => "DELETED",
        }
    }
}

/// An object that is complete except for its version.
#[derive(Debug)]
pub(super) struct Draft {
    pub(super) key: String,
    pub(super) labels: Vec<(Box<str>, Box<str>)>,
    /// In the order of [`Kind::fields`].
    pub(super) fields: Vec<Box<str>>,
    /// Everything behind the version.
    pub(super) rest: Vec<u8>,
}

/// A stored object.
#[derive(Debug)]
pub(super) struct Object {
    pub(super) revision: u64,
    pub(super) key: String,
    pub(super) labels: Vec<(Box<str>, Box<str>)>,
    /// In the order of [`Kind::fields`].
    pub(super) fields: Vec<Box<str>>,
    /// The event with which it came to be.
    pub(super) frame: Bytes,
    rest: Bytes,
}

impl Draft {
    /// Serialises an object whose metadata are complete.
    pub(super) fn new(kind: &Kind, object: &Map<String, Value>) -> Self {
        let metadata = object.get("metadata").and_then(Value::as_object);
        let text =
            |key: &str| metadata.and_then(|map| map.get(key)).and_then(Value::as_str).unwrap_or_default();
        let key = kind.key(text("namespace"), text("name"));
        let labels =
            metadata.and_then(|map| map.get("labels")).and_then(Value::as_object).into_iter().flatten();
        let labels = labels.map(|(key, value)| (key.as_str().into(), plain(value).into())).collect();
        let fields = kind.fields.iter().map(|path| at(object, path).into()).collect();
        let mut rest = Vec::with_capacity(1024);
        let metadata = metadata.into_iter().flatten().filter(|(key, _)| *key != "resourceVersion");
        metadata.for_each(|(key, value)| append(&mut rest, key, value));
        rest.push(b'}');
        let others =
            object.iter().filter(|(key, _)| !matches!(key.as_str(), "kind" | "apiVersion" | "metadata"));
        others.for_each(|(key, value)| append(&mut rest, key, value));
        rest.push(b'}');
        Self { key, labels, fields, rest }
    }

    /// Whether storing it would change nothing.
    pub(super) fn is_same_as(&self, object: &Object) -> bool {
        self.rest == object.rest
    }

    /// The object at its place in history.
    pub(super) fn at(self, kind: &Kind, revision: u64, verb: Verb) -> Object {
        let mut out = Vec::with_capacity(self.rest.len() + 200);
        begin(verb, kind, revision, &mut out);
        let start = out.len();
        out.extend_from_slice(&self.rest);
        let end = out.len();
        out.extend_from_slice(b"}\n");
        let frame = Bytes::from(out);
        let rest = frame.slice(start..end);
        Object { revision, key: self.key, labels: self.labels, fields: self.fields, frame, rest }
    }
}

impl Object {
    /// Appends the object; without its type as in the lists of built-in resources, or with it.
    pub(super) fn write(&self, kind: &Kind, typed: bool, out: &mut Vec<u8>) {
        head(kind, typed, self.revision, out);
        out.extend_from_slice(&self.rest);
    }

    /// The object alone.
    pub(super) fn text(&self, kind: &Kind) -> Vec<u8> {
        let mut out = Vec::with_capacity(self.rest.len() + 100);
        self.write(kind, true, &mut out);
        out
    }

    /// The object, to change it.
    pub(super) fn value(&self, kind: &Kind) -> Map<String, Value> {
        serde_json::from_slice(&self.text(kind)).expect("what was serialised here")
    }

    /// An event about it, as of `revision`.
    pub(super) fn event(&self, verb: Verb, kind: &Kind, revision: u64) -> Bytes {
        let mut out = Vec::with_capacity(self.rest.len() + 200);
        self.write_event(verb, kind, revision, &mut out);
        Bytes::from(out)
    }

    /// Appends an event about it, as of `revision`.
    pub(super) fn write_event(&self, verb: Verb, kind: &Kind, revision: u64, out: &mut Vec<u8>) {
        begin(verb, kind, revision, out);
        out.extend_from_slice(&self.rest);
        out.extend_from_slice(b"}\n");
    }
}

/// An event up to behind the version of its object.
fn begin(verb: Verb, kind: &Kind, revision: u64, out: &mut Vec<u8>) {
    out.extend_from_slice(b"{\"type\":\"");
    out.extend_from_slice(verb.name().as_bytes());
    out.extend_from_slice(b"\",\"object\":");
    head(kind, true, revision, out);
}

/// An object up to behind its version.
fn head(kind: &Kind, typed: bool, revision: u64, out: &mut Vec<u8>) {
    out.push(b'{');
    if typed {
        let (kind, version) = (kind.kind, kind.api_version());
        out.extend_from_slice(format!("\"kind\":\"{kind}\",\"apiVersion\":\"{version}\",").as_bytes());
    }
    out.extend_from_slice(format!("\"metadata\":{{\"resourceVersion\":\"{revision}\"").as_bytes());
}

/// Appends a member of an object that is not its first.
fn append(out: &mut Vec<u8>, key: &str, value: &Value) {
    out.push(b',');
    serde_json::to_writer(&mut *out, key).expect("a key");
    out.push(b':');
    serde_json::to_writer(out, value).expect("a value");
}

/// The value of a field as a selector compares it; empty where there is none.
fn at(object: &Map<String, Value>, path: &str) -> String {
    let mut steps = path.split('.');
    let first = steps.next().and_then(|key| object.get(key));
    steps.fold(first, |value, key| value?.get(key)).map(plain).unwrap_or_default()
}

fn plain(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Bool(_) | Value::Number(_) => value.to_string(),
        _ => String::new(),
    }
}

/// Now, as `creationTimestamp` has it.
pub(super) fn timestamp() -> String {
    let seconds = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    let (days, second) = (seconds / 86_400, seconds % 86_400);
    let (year, month, day) = date(days);
    let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z")
}

/// Year, month and day of a day since 1970. Years are counted from March, so that the leap day is their last.
fn date(days: u64) -> (u64, u64, u64) {
    let days = days + 719_468;
    let (era, day) = (days / 146_097, days % 146_097);
    let year = (day - day / 1_460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    let (day, month) = (day - (153 * month + 2) / 5 + 1, if month < 10 { month + 3 } else { month - 9 });
    (year + era * 400 + u64::from(month <= 2), month, day)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn days_have_dates() {
        assert_eq!(date(0), (1970, 1, 1));
        assert_eq!(date(11_016), (2000, 2, 29));
        assert_eq!(date(19_723), (2024, 1, 1));
        assert_eq!(date(20_787), (2026, 11, 30));
    }
}
