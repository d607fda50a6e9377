//! One host name in canonical form: lower case, no final dot, every label within limits.

use std::{fmt, str::FromStr};

use egret_common::maps::NAME_CAP;
use thiserror::Error;

/// Longest label, in octets (RFC 1035 2.3.4).
pub const MAX_LABEL: usize = 63;
/// Longest name as text without the final dot, in characters (255 octets on the wire).
pub const MAX_NAME: usize = 253;

/// What is wrong with a name.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum NameError {
    /// Nothing, or only dots: the root is not a host.
    #[error("the name is empty")]
    Empty,
    /// Two dots in a row, or a dot in front.
    #[error("label {0} of the name is empty")]
    EmptyLabel(usize),
    /// A label over [`MAX_LABEL`] octets.
    #[error("label `{label}` is {len} characters long, the limit is {MAX_LABEL}")]
    LabelTooLong {
        /// The label, shortened for display.
        label: String,
        /// Its length in octets.
        len: usize,
    },
    /// The whole name is over [`MAX_NAME`] characters.
    #[error("the name is {0} characters long, the limit is {MAX_NAME}")]
    TooLong(usize),
    /// A character outside `[-a-zA-Z0-9_]`.
    #[error("character {0:?} is not allowed in a name (letters, digits, '-' and '_' are)")]
    BadChar(char),
    /// A label that begins or ends with a hyphen (RFC 952, RFC 1123 2.1).
    #[error("label `{0}` begins or ends with a hyphen")]
    Hyphen(String),
}

/// A host name: lower case, without the final dot, 1 to 253 characters, labels of 1 to 63.
///
/// Two names are equal exactly if DNS treats them as equal (RFC 4343).
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Name(String);

impl Name {
    /// Reads a name as a user writes it in a policy. Stricter than DNS: a label may not begin or end with a hyphen.
    ///
    /// # Errors
    /// [`NameError`] that names the first problem.
    pub fn parse(text: &str) -> Result<Self, NameError> {
        let name = Self::from_dns(text)?;
        let hyphen = name.labels().find(|l| l.starts_with('-') || l.ends_with('-')).map(shorten);
        hyphen.map_or(Ok(name), |label| Err(NameError::Hyphen(label)))
    }

    /// Reads a name as it appears in DNS traffic: any arrangement of the legal characters.
    ///
    /// # Errors
    /// [`NameError`] that names the first problem; [`NameError::Hyphen`] never.
    pub fn from_dns(text: &str) -> Result<Self, NameError> {
        let text = text.strip_suffix('.').unwrap_or(text);
        if text.is_empty() {
            return Err(NameError::Empty);
        }
        if let Some(c) = text.chars().find(|&c| !(c == '.' || is_name_char(c))) {
            return Err(NameError::BadChar(c));
        }
        for (i, label) in text.split('.').enumerate() {
            check_label(i, label)?;
        }
        if text.len() > MAX_NAME {
            return Err(NameError::TooLong(text.len()));
        }
        Ok(Self(text.to_ascii_lowercase()))
    }

    /// Reads an uncompressed wire-format name, final zero octet optional; case is folded.
    ///
    /// # Errors
    /// [`NameError`], also for octets that no host name holds.
    pub fn from_wire(wire: &[u8]) -> Result<Self, NameError> {
        let mut text = String::new();
        let mut rest = wire;
        while let [len, tail @ ..] = rest {
            let len = usize::from(*len);
            if len == 0 {
                break;
            }
            let Some((label, after)) = tail.split_at_checked(len) else {
                return Err(NameError::EmptyLabel(text.split('.').count()));
            };
            if let Some(&b) = label.iter().find(|&&b| !is_name_char(char::from(b))) {
                return Err(NameError::BadChar(char::from(b)));
            }
            if !text.is_empty() {
                text.push('.');
            }
            text.extend(label.iter().map(|&b| char::from(b)));
            rest = after;
        }
        Self::from_dns(&text)
    }

    /// The canonical text, without the final dot.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The labels, leftmost first.
    pub fn labels(&self) -> impl DoubleEndedIterator<Item = &str> {
        self.0.split('.')
    }

    /// Number of labels, at least 1.
    #[must_use]
    pub fn label_count(&self) -> usize {
        self.labels().count()
    }

    /// The name in wire order with its final zero octet: `3www7example3com0`, 3 to 255 octets.
    #[must_use]
    pub fn to_wire(&self) -> Vec<u8> {
        let mut wire = Vec::with_capacity(self.0.len() + 2);
        for label in self.labels() {
            wire.push(u8::try_from(label.len()).unwrap_or(u8::MAX));
            wire.extend_from_slice(label.as_bytes());
        }
        wire.push(0);
        wire
    }

    /// The key of `NAME_EXACT`: wire order without the root label, padded with zero.
    #[must_use]
    pub fn to_key(&self) -> [u8; NAME_CAP] {
        let wire = self.to_wire();
        let mut key = [0; NAME_CAP];
        key[..wire.len()].copy_from_slice(&wire);
        key
    }

    /// The text back to front, closed by a dot: `moc.elpmaxe.` for `example.com`. A name lies under a suffix
    /// exactly if its reversed text begins with the suffix's.
    #[must_use]
    pub fn reversed(&self) -> String {
        let mut text: String = self.0.chars().rev().collect();
        text.push('.');
        text
    }

    /// The part of this name above `suffix`: `a.b` for `a.b.example.com` under `example.com`; `None` if it is
    /// not strictly below.
    #[must_use]
    pub fn prefix_above(&self, suffix: &Name) -> Option<&str> {
        self.0.strip_suffix(&suffix.0)?.strip_suffix('.')
    }

    /// `self.suffix` as one name.
    ///
    /// # Errors
    /// [`NameError::TooLong`].
    pub fn join(&self, suffix: &Name) -> Result<Name, NameError> {
        Name::from_dns(&format!("{}.{}", self.0, suffix.0))
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Name({})", self.0)
    }
}

impl FromStr for Name {
    type Err = NameError;
    fn from_str(text: &str) -> Result<Self, NameError> {
        Self::parse(text)
    }
}

pub(super) fn is_name_char(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '-' || c == '_'
}

fn check_label(index: usize, label: &str) -> Result<(), NameError> {
    match label.len() {
        0 => Err(NameError::EmptyLabel(index + 1)),
        1..=MAX_LABEL => Ok(()),
        len => Err(NameError::LabelTooLong { label: shorten(label), len }),
    }
}

/// At most 20 characters of `text`, for messages.
pub(super) fn shorten(text: &str) -> String {
    match text.char_indices().nth(20) {
        Some((end, _)) => format!("{}...", &text[..end]),
        None => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, want: Result<&str, NameError>) {
        assert_eq!(Name::parse(text).map(|n| n.0), want.map(str::to_owned), "{text}");
    }

    #[test]
    fn n_a02_final_dot_and_case_are_one_name() {
        check("api.example.com.", Ok("api.example.com"));
        check("API.Example.com", Ok("api.example.com"));
        check("_db._tcp.example.com", Ok("_db._tcp.example.com"));
        check("postgres", Ok("postgres"));
        check(".", Err(NameError::Empty));
        check("", Err(NameError::Empty));
        check("example.com..", Err(NameError::EmptyLabel(3)));
        check(".example.com", Err(NameError::EmptyLabel(1)));
    }

    #[test]
    fn n_a03_limits_at_load_time() {
        let l63 = "a".repeat(63);
        let n253 = format!("{l63}.{l63}.{l63}.{}", "b".repeat(61));
        let n254 = format!("{l63}.{l63}.{l63}.{}", "b".repeat(62));
        check(&n253, Ok(&n253));
        check(&format!("{n253}."), Ok(&n253));
        check(&n254, Err(NameError::TooLong(254)));
        check(&format!("{l63}.x"), Ok(&format!("{l63}.x")));
        let l64 = "a".repeat(64);
        check(&format!("{l64}.x"), Err(NameError::LabelTooLong { label: shorten(&l64), len: 64 }));
        check("a..b", Err(NameError::EmptyLabel(2)));
        check("-a.b", Err(NameError::Hyphen("-a".into())));
        check("a.b-", Err(NameError::Hyphen("b-".into())));
        check("b\u{fc}cher.example", Err(NameError::BadChar('\u{fc}')));
        check("a b", Err(NameError::BadChar(' ')));
        assert!(matches!(Name::parse(&"x".repeat(5000)), Err(NameError::LabelTooLong { len: 5000, .. })));
    }

    #[test]
    fn wire_and_reversed_forms() {
        let n = Name::parse("www.example.com").unwrap();
        assert_eq!(n.to_wire(), b"\x03www\x07example\x03com\x00");
        assert_eq!(n.reversed(), "moc.elpmaxe.www.");
        assert_eq!(Name::from_wire(b"\x03wWw\x07Example\x03com\x00").unwrap(), n);
        assert_eq!(Name::from_wire(b"\x03w.w\x00"), Err(NameError::BadChar('.')));
        assert!(Name::from_wire(b"\x05ab").is_err());
        assert_eq!(n.prefix_above(&Name::parse("com").unwrap()), Some("www.example"));
        assert_eq!(n.prefix_above(&Name::parse("ample.com").unwrap()), None);
        assert_eq!(n.prefix_above(&n), None);
    }
}
