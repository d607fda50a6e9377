//! The query part of a request: decoded, and for lists and watches validated as the real server does. Knows no state.

use std::fmt::Write;

use super::kinds::Kind;
use super::reply::Failure;
use super::select::Filter;

/// The parameters of a query.
#[derive(Clone, Debug, Default)]
pub(super) struct Query(Vec<(String, String)>);

impl Query {
    pub(super) fn parse(text: &str) -> Self {
        let pairs = text.split('&').filter(|pair| !pair.is_empty());
        let halves = pairs.map(|pair| pair.split_once('=').unwrap_or((pair, "")));
        Self(halves.map(|(key, value)| (decode(key), decode(value))).collect())
    }

    /// A parameter, empty if it is not given.
    pub(super) fn get(&self, key: &str) -> &str {
        self.0.iter().find(|(known, _)| known == key).map_or("", |(_, value)| value)
    }

    fn flag(&self, key: &str) -> Option<bool> {
        match self.get(key) {
            "" => self.0.iter().any(|(known, _)| known == key).then_some(true),
            value => Some(!matches!(value, "0" | "false")),
        }
    }

    fn number(&self, key: &str) -> Result<Option<u64>, Failure> {
        match self.get(key) {
            "" => Ok(None),
            text => text
                .parse()
                .map(Some)
                .map_err(|_| Failure::bad_request(format!("{key}: no number: {text:?}"))),
        }
    }
}

/// `%2F` and `+`.
fn decode(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&first, tail)) = rest.split_first() {
        let escaped = tail.get(..2).filter(|_| first == b'%').and_then(|hex| std::str::from_utf8(hex).ok());
        match escaped.and_then(|hex| u8::from_str_radix(hex, 16).ok()) {
            Some(byte) => {
                bytes.push(byte);
                rest = &tail[2..];
            }
            None => {
                bytes.push(if first == b'+' { b' ' } else { first });
                rest = tail;
            }
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// The version that a client asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Revision {
    /// The newest.
    Unset,
    /// Whatever is at hand.
    Any,
    At(u64),
}

/// What a list or a watch asks for.
#[derive(Debug)]
pub(super) struct Options {
    pub(super) filter: Filter,
    pub(super) limit: usize,
    pub(super) resume: Option<Token>,
    pub(super) revision: Revision,
    /// Exactly the version asked for, none that is newer.
    pub(super) exact: bool,
    pub(super) watch: bool,
    pub(super) bookmarks: bool,
    pub(super) timeout: Option<u64>,
    pub(super) initial: Option<bool>,
}

impl Options {
    pub(super) fn new(kind: &Kind, namespace: &str, query: &Query) -> Result<Self, Failure> {
        let watch = query.flag("watch").unwrap_or(false);
        let limit = query.number("limit")?.unwrap_or(0) as usize;
        let filter = Filter::new(kind, namespace, query.get("labelSelector"), query.get("fieldSelector"))?;
        let revision = match query.number("resourceVersion")? {
            None => Revision::Unset,
            Some(0) => Revision::Any,
            Some(number) => Revision::At(number),
        };
        let resume = match query.get("continue") {
            "" => None,
            _ if watch => None,
            text => {
                Some(Token::parse(text).ok_or_else(|| Failure::bad_request("continue key is not valid"))?)
            }
        };
        let options = Self {
            // Pages are cut only where the database is read, and any state comes from memory.
            limit: if revision == Revision::Any { 0 } else { limit },
            exact: query.get("resourceVersionMatch") == "Exact" || (limit > 0 && !query.has_match()),
            bookmarks: query.flag("allowWatchBookmarks").unwrap_or(false),
            timeout: query.number("timeoutSeconds")?,
            initial: query.flag("sendInitialEvents"),
            filter,
            resume,
            revision,
            watch,
        };
        options.check(query.get("resourceVersionMatch"))?;
        Ok(options)
    }

    /// The combinations that mean nothing.
    fn check(&self, wanted: &str) -> Result<(), Failure> {
        let no =
            |field: &str, cause, message: &str| Err(Failure::invalid("ListOptions", field, cause, message));
        const MATCH: &str = "resourceVersionMatch";
        const FORBIDDEN: &str = "FieldValueForbidden";
        if self.resume.is_some() && matches!(self.revision, Revision::At(_)) {
            return Err(Failure::bad_request("a resource version is not allowed together with continue"));
        }
        if let Some(_initial) = self.initial {
            return match wanted {
                _ if !self.watch => no("sendInitialEvents", FORBIDDEN, "forbidden for a list"),
                "NotOlderThan" => Ok(()),
                _ => no(MATCH, FORBIDDEN, "must be NotOlderThan with sendInitialEvents"),
            };
        }
        match wanted {
            "" => Ok(()),
            _ if self.watch => no(MATCH, FORBIDDEN, "forbidden for a watch without sendInitialEvents"),
            _ if self.resume.is_some() => no(MATCH, FORBIDDEN, "forbidden together with continue"),
            _ if self.revision == Revision::Unset => {
                no(MATCH, FORBIDDEN, "forbidden without resourceVersion")
            }
            "Exact" if self.revision == Revision::Any => {
                no(MATCH, FORBIDDEN, "Exact is forbidden for version 0")
            }
            "Exact" | "NotOlderThan" => Ok(()),
            _ => no(MATCH, "FieldValueNotSupported", "must be Exact or NotOlderThan"),
        }
    }
}

impl Query {
    fn has_match(&self) -> bool {
        !self.get("resourceVersionMatch").is_empty()
    }
}

/// Where a list goes on: of which version, and from which key on. To clients it is opaque.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Token {
    /// `None`: whatever is newest by then.
    pub(super) revision: Option<u64>,
    pub(super) from: String,
}

impl Token {
    pub(super) fn text(&self) -> String {
        let plain = format!("{}:{}", self.revision.unwrap_or(0), self.from);
        plain.bytes().fold(String::new(), |mut text, byte| {
            let _ = write!(text, "{byte:02x}");
            text
        })
    }

    fn parse(text: &str) -> Option<Self> {
        let pairs = text.as_bytes().chunks(2).map(|pair| std::str::from_utf8(pair).ok());
        let bytes = pairs.map(|pair| u8::from_str_radix(pair?, 16).ok()).collect::<Option<Vec<u8>>>()?;
        let plain = String::from_utf8(bytes).ok()?;
        let (revision, from) = plain.split_once(':')?;
        let revision = revision.parse().ok()?;
        Some(Self { revision: Some(revision).filter(|revision| *revision > 0), from: from.into() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queries_are_decoded() {
        let query = Query::parse("labelSelector=a%3Db%2Cc+in+%28d%29&watch&limit=5&bad=%zz%4");
        assert_eq!(query.get("labelSelector"), "a=b,c in (d)");
        assert_eq!(query.flag("watch"), Some(true));
        assert_eq!(query.number("limit").ok().flatten(), Some(5));
        assert_eq!(query.get("bad"), "%zz%4");
        assert!(query.number("bad").is_err());
    }

    #[test]
    fn tokens_come_back_as_they_were() {
        for revision in [None, Some(107)] {
            let token = Token { revision, from: "a:b/ü".into() };
            assert_eq!(Token::parse(&token.text()), Some(token));
        }
        assert_eq!(Token::parse("abc"), None);
        assert_eq!(Token::parse("é"), None);
    }
}
