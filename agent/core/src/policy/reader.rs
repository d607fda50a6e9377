//! A YAML value together with its path, so that every complaint names the exact field.
//!
//! Owns: types, null, unknown fields. Must not know: any policy language.

use std::collections::BTreeMap;

use serde_yaml_ng::Value;

pub(super) use crate::problem::{Problem, Read};

/// A value and the path that leads to it.
#[derive(Debug, Clone)]
pub(super) struct Node<'a> {
    value: &'a Value,
    path: String,
}

impl<'a> Node<'a> {
    pub(super) fn root(value: &'a Value) -> Self {
        Self { value, path: String::new() }
    }

    pub(super) fn path(&self) -> &str {
        &self.path
    }

    pub(super) fn problem(&self, message: impl ToString) -> Problem {
        Problem::at(&self.path, message)
    }

    fn wrong(&self, want: &str) -> Problem {
        Problem::other_kind(&self.path, want, Some(self.value))
    }

    pub(super) fn is_empty_object(&self) -> bool {
        matches!(self.value, Value::Mapping(m) if m.is_empty())
    }

    pub(super) fn text(&self) -> Read<&'a str> {
        self.value.as_str().ok_or_else(|| self.wrong("a string"))
    }

    /// The number, if the value is one that is not negative.
    pub(super) fn number(&self) -> Option<u64> {
        self.value.as_u64()
    }

    /// A string, or an unquoted number.
    pub(super) fn text_or_number(&self) -> Read<String> {
        match self.value {
            Value::String(s) => Ok(s.clone()),
            Value::Number(n) if n.is_u64() => Ok(n.to_string()),
            _ => Err(self.wrong("a string or a number")),
        }
    }

    pub(super) fn boolean(&self) -> Read<bool> {
        self.value.as_bool().ok_or_else(|| self.wrong("true or false"))
    }

    pub(super) fn list(&self) -> Read<Vec<Node<'a>>> {
        let Value::Sequence(items) = self.value else { return Err(self.wrong("a list")) };
        let item = |(i, value)| Node { value, path: format!("{}[{i}]", self.path) };
        Ok(items.iter().enumerate().map(item).collect())
    }

    /// The entries of an object whose keys are data.
    pub(super) fn entries(&self) -> Read<Vec<(&'a str, Node<'a>)>> {
        let fields = self.fields()?;
        let entry = |(name, value)| (name, Node { value, path: format!("{}.{name}", self.path) });
        Ok(fields.fields.into_iter().map(entry).collect())
    }

    pub(super) fn fields(&self) -> Read<Fields<'a>> {
        let Value::Mapping(map) = self.value else { return Err(self.wrong("an object")) };
        let mut fields = BTreeMap::new();
        for (key, value) in map {
            let name = key.as_str().ok_or_else(|| self.problem("a field's name is no string"))?;
            fields.insert(name, value);
        }
        Ok(Fields { path: self.path.clone(), fields })
    }
}

/// The fields of an object that nobody has taken yet.
#[derive(Debug)]
pub(super) struct Fields<'a> {
    path: String,
    fields: BTreeMap<&'a str, &'a Value>,
}

impl<'a> Fields<'a> {
    fn child(&self, name: &str) -> String {
        if self.path.is_empty() { name.to_owned() } else { format!("{}.{name}", self.path) }
    }

    /// Those of a whole object, of which the head is known to be right.
    pub(super) fn behind_head(object: &Node<'a>) -> Read<Self> {
        let mut fields = object.fields()?;
        for known in ["apiVersion", "kind", "metadata", "status"] {
            fields.ignore(known);
        }
        Ok(fields)
    }

    /// Those of the `spec` of such an object, which has nothing else.
    pub(super) fn of_spec(object: &Node<'a>) -> Read<Self> {
        let mut fields = Self::behind_head(object)?;
        let spec = fields.need("spec")?;
        fields.finish()?;
        spec.fields()
    }

    /// Takes a field. Null is a mistake, never "absent": a peer list that came out empty must not mean "anybody".
    pub(super) fn take(&mut self, name: &str) -> Read<Option<Node<'a>>> {
        let Some(value) = self.fields.remove(name) else { return Ok(None) };
        let node = Node { value, path: self.child(name) };
        if value.is_null() {
            return Err(node.problem("is null; remove the field or give it a value"));
        }
        Ok(Some(node))
    }

    /// Whether the field is there, null or not.
    pub(super) fn has(&self, name: &str) -> bool {
        self.fields.contains_key(name)
    }

    /// A field that must be there, and stays.
    pub(super) fn peek(&self, name: &str) -> Read<Node<'a>> {
        let missing = Problem { path: self.child(name), message: "is missing".to_owned() };
        let value = self.fields.get(name).copied().ok_or(missing)?;
        Ok(Node { value, path: self.child(name) })
    }

    /// Takes a field that must be there.
    pub(super) fn need(&mut self, name: &str) -> Read<Node<'a>> {
        let missing = Problem { path: self.child(name), message: "is missing".to_owned() };
        self.take(name)?.ok_or(missing)
    }

    /// Drops a field, whatever it holds.
    pub(super) fn ignore(&mut self, name: &str) {
        self.fields.remove(name);
    }

    /// Complains about fields that exist in the API and that Egret does not enforce.
    pub(super) fn refuse(&self, names: &[&str]) -> Read<()> {
        match names.iter().find(|n| self.fields.contains_key(*n)) {
            Some(name) => {
                Err(Problem { path: self.child(name), message: "not enforced by Egret".to_owned() })
            }
            None => Ok(()),
        }
    }

    /// Complains about whatever nobody took.
    pub(super) fn finish(self) -> Read<()> {
        match self.fields.keys().next() {
            Some(name) => Err(Problem { path: self.child(name), message: "unknown field".to_owned() }),
            None => Ok(()),
        }
    }
}
