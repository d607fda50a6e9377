//! Patterns over names: CiliumNetworkPolicy `matchName`/`matchPattern`, and ClusterNetworkPolicy `domainNames`.
//!
//! A pattern is sorted into a [`Kind`] when it is read; the kinds are exactly what the name tables can express,
//! plus [`Kind::Slow`] for the rest.

use std::{fmt, sync::Arc};

use thiserror::Error;

use super::name::{MAX_LABEL, MAX_NAME, Name, NameError, is_name_char, shorten};

/// Longest pattern text, final dot included (the CRD's limit).
const MAX_PATTERN: usize = 255;

/// What is wrong with a pattern.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum PatternError {
    /// The fixed part is not a name.
    #[error(transparent)]
    Name(#[from] NameError),
    /// `*` in a place that takes only a full name.
    #[error("`*` is not allowed in a full name; write it as a pattern (matchPattern)")]
    StarInName,
    /// The last label holds a wildcard.
    #[error(
        "a wildcard in the last label (`{0}`) would also match names under suffixes that anybody can \
         register, such as `{1}`; list the names, or put the wildcard in front"
    )]
    OpenEnd(String, String),
    /// More than 255 characters.
    #[error("the pattern is {0} characters long, the limit is {MAX_PATTERN}")]
    TooLong(usize),
    /// A wildcard that `domainNames` does not have.
    #[error("in domainNames `*` is allowed only as the whole first label")]
    StarNotFirst,
    /// `domainNames` asks for at least two labels.
    #[error("domainNames needs at least two labels")]
    OneLabel,
}

/// What a pattern can match, by the table that can hold it.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Kind {
    /// This name only.
    Exact(Name),
    /// `*.x`: exactly one more label in front of `x`.
    OneLabelSuffix(Name),
    /// `**.x`: one or more labels in front of `x`.
    DeepSuffix(Name),
    /// Every name.
    All,
    /// A wildcard within a label or between labels: needs the matcher.
    Slow(Slow),
}

/// A pattern that no table expresses: labels with wildcards, perhaps below `**.`.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Slow {
    /// One or more whole labels may stand in front of `labels`.
    deep: bool,
    /// Labels, leftmost first; `*` is zero or more characters, runs of `*` are already one.
    labels: Vec<String>,
}

/// A name pattern of one of the policy languages. Every rule set and every name class has copies of it: they share it.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Pattern(Arc<Kind>);

impl Pattern {
    /// `matchName`: one full name.
    ///
    /// # Errors
    /// [`PatternError`] that names the problem.
    pub fn match_name(text: &str) -> Result<Self, PatternError> {
        let text = text.trim();
        if text.contains('*') {
            return Err(PatternError::StarInName);
        }
        Ok(Kind::Exact(Name::parse(text)?).into())
    }

    /// `matchPattern`: `*` is zero or more characters inside one label, a leading `**.` one or more labels, a
    /// string of stars every name. Also takes a plain name.
    ///
    /// # Errors
    /// [`PatternError`] that names the problem.
    pub fn match_pattern(text: &str) -> Result<Self, PatternError> {
        let text = text.trim();
        if text.len() > MAX_PATTERN {
            return Err(PatternError::TooLong(text.len()));
        }
        let text = text.strip_suffix('.').unwrap_or(text).to_ascii_lowercase();
        if !text.is_empty() && text.bytes().all(|b| b == b'*') {
            return Ok(Kind::All.into());
        }
        if !text.contains('*') {
            return Self::match_name(&text);
        }
        let (first, rest) = text.split_once('.').unwrap_or((&text, ""));
        let all_stars = first.bytes().all(|b| b == b'*');
        match first.len() {
            1 if all_stars && !rest.contains('*') => Ok(Kind::OneLabelSuffix(Name::parse(rest)?).into()),
            _ if all_stars && !rest.contains('*') => Ok(Kind::DeepSuffix(Name::parse(rest)?).into()),
            2.. if all_stars => Ok(Kind::Slow(Slow::parse(true, rest)?).into()),
            _ => Ok(Kind::Slow(Slow::parse(false, &text)?).into()),
        }
    }

    /// An entry of `domainNames` (policy.networking.k8s.io/v1alpha2): a name, or `*.name` = one or more labels. A label may
    /// begin with `_`, as the API's first expression let it.
    ///
    /// # Errors
    /// [`PatternError`] that names the problem.
    pub fn domain_name(text: &str) -> Result<Self, PatternError> {
        let (wild, rest) = match text.strip_prefix("*.") {
            Some(rest) => (true, rest),
            None => (false, text),
        };
        if rest.contains('*') {
            return Err(PatternError::StarNotFirst);
        }
        let name = Name::parse(rest)?;
        if name.label_count() < 2 {
            return Err(PatternError::OneLabel);
        }
        Ok(if wild { Kind::DeepSuffix(name) } else { Kind::Exact(name) }.into())
    }

    /// The pattern that matches `name` and nothing else.
    #[must_use]
    pub fn exact(name: Name) -> Self {
        Kind::Exact(name).into()
    }

    /// What the pattern can match, by the table that can hold it.
    #[must_use]
    pub fn kind(&self) -> &Kind {
        &self.0
    }

    /// Whether `name` matches: the reference that tables and programs are tested against.
    #[must_use]
    pub fn matches(&self, name: &Name) -> bool {
        match self.kind() {
            Kind::Exact(own) => own == name,
            Kind::OneLabelSuffix(suffix) => name.prefix_above(suffix).is_some_and(|p| !p.contains('.')),
            Kind::DeepSuffix(suffix) => name.prefix_above(suffix).is_some(),
            Kind::All => true,
            Kind::Slow(slow) => slow.matches(name),
        }
    }

    /// The pattern for the same names with `.suffix` appended (a resolver's search domain). `None` where that
    /// adds nothing (every name) or no such name can exist (too long).
    #[must_use]
    pub fn below(&self, suffix: &Name) -> Option<Pattern> {
        let kind = match self.kind() {
            Kind::Exact(n) => Kind::Exact(n.join(suffix).ok()?),
            Kind::OneLabelSuffix(n) => Kind::OneLabelSuffix(n.join(suffix).ok()?),
            Kind::DeepSuffix(n) => Kind::DeepSuffix(n.join(suffix).ok()?),
            Kind::All => return None,
            Kind::Slow(slow) => {
                let mut slow = slow.clone();
                slow.labels.extend(suffix.labels().map(str::to_owned));
                Kind::Slow(slow)
            }
        };
        Some(kind.into())
    }
}

impl From<Kind> for Pattern {
    fn from(kind: Kind) -> Self {
        Self(Arc::new(kind))
    }
}

impl Slow {
    fn parse(deep: bool, text: &str) -> Result<Self, PatternError> {
        if let Some(c) = text.chars().find(|&c| !(c == '.' || c == '*' || is_name_char(c))) {
            return Err(NameError::BadChar(c).into());
        }
        let labels: Vec<String> = text.split('.').map(squeeze).collect();
        let fixed: usize = labels.iter().map(|l| fixed_len(l) + 1).sum();
        if fixed > MAX_NAME + 1 {
            return Err(NameError::TooLong(fixed - 1).into());
        }
        for (i, label) in labels.iter().enumerate() {
            check_label(i, label)?;
        }
        let last = labels.last().map_or("", String::as_str);
        if last.contains('*') && (deep || labels.len() > 1) {
            let example = format!("{}.evil.example", text.trim_end_matches(['*', '.']));
            return Err(PatternError::OpenEnd(last.to_owned(), example));
        }
        Ok(Self { deep, labels })
    }

    /// The text behind the last `*`: every name of the pattern ends in it.
    #[must_use]
    pub fn tail(&self) -> String {
        let text = self.labels.join(".");
        text.rsplit('*').next().unwrap_or_default().to_owned()
    }

    /// Whether names of the pattern have exactly one label more than whole ones in the tail.
    #[must_use]
    pub fn ends_in_one(&self) -> bool {
        let whole = self.tail().bytes().filter(|b| *b == b'.').count();
        !self.deep && self.labels.len() == whole + 1
    }

    fn matches(&self, name: &Name) -> bool {
        let mut name_labels = name.labels().rev();
        let fit = self.labels.iter().rev().all(|p| name_labels.next().is_some_and(|l| label_matches(p, l)));
        fit && self.deep == name_labels.next().is_some()
    }
}

impl fmt::Display for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.kind() {
            Kind::Exact(n) => write!(f, "{n}"),
            Kind::OneLabelSuffix(n) => write!(f, "*.{n}"),
            Kind::DeepSuffix(n) => write!(f, "**.{n}"),
            Kind::All => f.write_str("*"),
            Kind::Slow(s) => write!(f, "{}{}", if s.deep { "**." } else { "" }, s.labels.join(".")),
        }
    }
}

impl fmt::Debug for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Pattern({self})")
    }
}

fn check_label(index: usize, label: &str) -> Result<(), NameError> {
    match fixed_len(label) {
        0 if label.is_empty() => Err(NameError::EmptyLabel(index + 1)),
        len if len > MAX_LABEL => Err(NameError::LabelTooLong { label: shorten(label), len }),
        _ if label.starts_with('-') || label.ends_with('-') => Err(NameError::Hyphen(shorten(label))),
        _ => Ok(()),
    }
}

fn fixed_len(label: &str) -> usize {
    label.bytes().filter(|&b| b != b'*').count()
}

/// Runs of stars become one: inside a pattern they mean the same.
fn squeeze(label: &str) -> String {
    let mut out = String::with_capacity(label.len());
    for c in label.chars() {
        if !(c == '*' && out.ends_with('*')) {
            out.push(c);
        }
    }
    out
}

/// Glob match within one label, in time proportional to the product of the lengths at worst.
fn label_matches(pattern: &str, label: &str) -> bool {
    let mut parts = pattern.split('*');
    let Some(mut rest) = label.strip_prefix(parts.next().unwrap_or("")) else {
        return false;
    };
    let mut parts = parts.peekable();
    if parts.peek().is_none() {
        return rest.is_empty();
    }
    while let Some(part) = parts.next() {
        if parts.peek().is_none() {
            return rest.ends_with(part);
        }
        let Some(at) = rest.find(part) else { return false };
        rest = &rest[at + part.len()..];
    }
    true
}

#[cfg(test)]
mod tests;
