//! A field of an object of the core APIs, with its path.
//!
//! Owns: types and absence. Unlike in a policy, null is absence and unknown fields are nobody's business: the API
//! server writes both. Must not know: which fields there are.

use std::net::IpAddr;

use serde_yaml_ng::Value;

pub(super) use crate::problem::{Problem, Read};
use crate::{labels::Labels, ports::Proto};

/// A field that may be absent, and the path that leads to it.
#[derive(Debug, Clone)]
pub(super) struct Field<'a> {
    value: Option<&'a Value>,
    path: String,
}

impl<'a> Field<'a> {
    pub(super) fn root(value: &'a Value) -> Self {
        Self { value: Some(value), path: String::new() }
    }

    pub(super) fn problem(&self, message: impl ToString) -> Problem {
        Problem::at(&self.path, message)
    }

    fn wrong(&self, want: &str) -> Problem {
        Problem::other_kind(&self.path, want, self.value.filter(|v| !v.is_null()))
    }

    /// A field of this object; absent if this is.
    pub(super) fn get(&self, name: &str) -> Read<Field<'a>> {
        let path = if self.path.is_empty() { name.to_owned() } else { format!("{}.{name}", self.path) };
        let value = match self.value {
            None => None,
            Some(Value::Mapping(map)) => map.get(name).filter(|v| !v.is_null()),
            Some(_) => return Err(self.wrong("an object")),
        };
        Ok(Field { value, path })
    }

    /// The elements; none if the field is absent.
    pub(super) fn items(&self) -> Read<Vec<Field<'a>>> {
        let items = match self.value {
            None => return Ok(Vec::new()),
            Some(Value::Sequence(items)) => items,
            Some(_) => return Err(self.wrong("a list")),
        };
        let item = |(i, value)| Field { value: Some(value), path: format!("{}[{i}]", self.path) };
        Ok(items.iter().enumerate().map(item).collect())
    }

    pub(super) fn text(&self) -> Read<Option<&'a str>> {
        match self.value {
            None => Ok(None),
            Some(Value::String(text)) => Ok(Some(text)),
            Some(_) => Err(self.wrong("a string")),
        }
    }

    /// The text; empty if the field is absent.
    pub(super) fn text_or_empty(&self) -> Read<String> {
        Ok(self.text()?.unwrap_or_default().to_owned())
    }

    /// A text that must be there and say something.
    pub(super) fn need_text(&self) -> Read<&'a str> {
        let missing = || self.problem("is missing");
        self.text()?.filter(|t| !t.is_empty()).ok_or_else(missing)
    }

    /// False if the field is absent.
    pub(super) fn boolean(&self) -> Read<bool> {
        match self.value {
            None => Ok(false),
            Some(Value::Bool(value)) => Ok(*value),
            Some(_) => Err(self.wrong("true or false")),
        }
    }

    /// Strings by key; none if the field is absent.
    pub(super) fn labels(&self) -> Read<Labels> {
        let map = match self.value {
            None => return Ok(Labels::new()),
            Some(Value::Mapping(map)) => map,
            Some(_) => return Err(self.wrong("an object")),
        };
        let mut labels = Labels::new();
        for (key, value) in map {
            let key = key.as_str().ok_or_else(|| self.problem("a key is no string; quote it"))?;
            let field = Field { value: Some(value), path: format!("{}[{key}]", self.path) };
            labels
                .insert(key.to_owned(), if value.is_null() { String::new() } else { field.text_or_empty()? });
        }
        Ok(labels)
    }

    /// A port number.
    pub(super) fn port(&self) -> Read<Option<u16>> {
        let Some(value) = self.value else { return Ok(None) };
        let number = value.as_u64().ok_or_else(|| self.wrong("a number"))?;
        let port = u16::try_from(number).ok().filter(|p| *p != 0);
        port.map(Some).ok_or_else(|| self.problem(format!("{number} is no port")))
    }

    /// A protocol that has ports; TCP if the field is absent, as in the API, and never by guess.
    pub(super) fn proto(&self) -> Read<Proto> {
        let Some(text) = self.text()? else { return Ok(Proto::Tcp) };
        let unknown = || self.problem(format!("`{text}` is none of TCP, UDP, SCTP"));
        Proto::with_ports_from_str(text).ok_or_else(unknown)
    }

    /// An address that something can be reached at; an empty string is absence, as the API writes it.
    pub(super) fn address(&self) -> Read<Option<IpAddr>> {
        let Some(text) = self.text()?.filter(|t| !t.is_empty()) else { return Ok(None) };
        let ip: IpAddr = text.parse().map_err(|_| self.problem(format!("`{text}` is no address")))?;
        let ip = ip.to_canonical();
        if ip.is_unspecified() || ip.is_loopback() || ip.is_multicast() {
            return Err(self.problem(format!("{ip} is nobody's address")));
        }
        Ok(Some(ip))
    }

    pub(super) fn value(&self) -> Option<&'a Value> {
        self.value
    }

    /// Whether the field holds text.
    pub(super) fn is_text(&self) -> bool {
        self.value.is_some_and(Value::is_string)
    }
}
