//! From YAML to objects.
//!
//! Owns: documents, lists, the dispatch by kind. What is wrong becomes a diagnostic with the field's path, and what is
//! right is read. Must not know: files, which version of an object is in force.

mod field;
mod group;
mod owner;
mod pod;
mod service;

use std::collections::BTreeSet;

use serde::Deserialize;
use serde_yaml_ng::{Deserializer, Value};

use super::object::{Body, Key, Kind, Object, Pod};
use crate::policy::{Diagnostic, Severity, load};
use crate::tuning::Tuning;
use field::{Field, Problem, Read};

/// The namespace of an object that names none.
const DEFAULT_NAMESPACE: &str = "default";

/// What a text holds.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Contents {
    /// The valid objects, in the order of the text.
    pub objects: Vec<Object>,
    /// Objects that are there and invalid.
    pub broken: BTreeSet<Key>,
    /// Something could not be told apart at all; objects may be missing.
    pub torn: bool,
    /// Everything to tell about the text.
    pub diagnostics: Vec<Diagnostic>,
}

impl Contents {
    fn tell(&mut self, severity: Severity, object: &str, problem: Problem) {
        let Problem { path, message } = problem;
        self.diagnostics.push(Diagnostic { severity, object: object.to_owned(), path, message });
    }

    fn tear(&mut self, object: &str, problem: Problem) {
        self.torn = true;
        self.tell(Severity::Error, object, problem);
    }
}

/// Reads all documents of a text; `kind: List` is unpacked. Never fails as a whole.
#[must_use]
pub fn read(text: &str) -> Contents {
    let mut contents = Contents::default();
    for (i, document) in Deserializer::from_str(text).enumerate() {
        let label = format!("document {}", i + 1);
        match document_value(document) {
            Ok(Value::Null) => {}
            Ok(value) => read_document(&value, &label, &mut contents),
            Err(e) => {
                // Where the reader stands now is not known; what follows would be read out of its context.
                let message = format!("{e}; this document and those after it are not read");
                contents.tear(&label, Problem { path: String::new(), message });
                break;
            }
        }
    }
    contents
}

/// Reads one object.
pub(super) fn read_value(value: &Value) -> Contents {
    let mut contents = Contents::default();
    read_object(value, "object", &mut contents);
    contents
}

fn document_value(document: Deserializer<'_>) -> Result<Value, serde_yaml_ng::Error> {
    let mut value = Value::deserialize(document)?;
    value.apply_merge()?;
    Ok(value)
}

fn read_document(value: &Value, label: &str, contents: &mut Contents) {
    if value.get("kind").and_then(Value::as_str) != Some("List") {
        return read_object(value, label, contents);
    }
    match Field::root(value).get("items").and_then(|items| items.items()) {
        Ok(items) => {
            for (i, item) in items.iter().filter_map(Field::value).enumerate() {
                read_object(item, &format!("{label} items[{i}]"), contents);
            }
        }
        Err(problem) => contents.tear(label, problem),
    }
}

fn read_object(value: &Value, label: &str, contents: &mut Contents) {
    let root = Field::root(value);
    let key = match read_key(&root) {
        Ok(Some(key)) => key,
        Ok(None) => {
            let message = "not used by Egret: an object of another kind".to_owned();
            return contents.tell(Severity::Warning, label, Problem { path: "kind".to_owned(), message });
        }
        Err(problem) => return contents.tear(label, problem),
    };
    let body = match key.kind {
        Kind::Pod => pod::pod(&root).map(Body::Pod),
        Kind::Namespace => pod::namespace(&root).map(Body::Namespace),
        Kind::Node => pod::node(&root).map(Body::Node),
        Kind::Service => service::service(&root).map(Body::Service),
        Kind::EndpointSlice => service::endpoint_slice(&root).map(Body::EndpointSlice),
        Kind::CiliumCidrGroup => group::cidr_group(&root).map(Body::CidrGroup),
        Kind::NetworkPolicy
        | Kind::CiliumNetworkPolicy
        | Kind::CiliumClusterwideNetworkPolicy
        | Kind::ClusterNetworkPolicy => return read_policy(value, key, contents),
    };
    match body {
        Ok(body) => {
            if let Body::Pod(pod) = &body {
                warn_about_annotations(pod, &key, contents);
            }
            keep(Object { key, body }, contents);
        }
        Err(problem) => {
            contents.tell(Severity::Error, &key.to_string(), problem);
            contents.broken.insert(key);
        }
    }
}

/// What an annotation says that cannot be read is lost, not the pod.
fn warn_about_annotations(pod: &Pod, key: &Key, contents: &mut Contents) {
    for problem in Tuning::read(&pod.annotations).1 {
        let message = format!("{}; ignored", problem.message);
        contents.tell(Severity::Warning, &key.to_string(), Problem { message, ..problem });
    }
}

/// The object's key; `None` if it is of a kind that Egret has no use for.
fn read_key(root: &Field<'_>) -> Read<Option<Key>> {
    let (api, kind) = (root.get("apiVersion")?, root.get("kind")?);
    let (api_text, kind_text) = (api.need_text()?, kind.need_text()?);
    let Some(known) = Kind::of(api_text, kind_text) else {
        // Never half-enforced in silence.
        return match kind_text.ends_with("NetworkPolicy") {
            true => Err(kind.problem(format!("`{kind_text}` of {api_text} is not enforced by Egret"))),
            false => Ok(None),
        };
    };
    let metadata = root.get("metadata")?;
    let name = metadata.get("name")?.need_text()?;
    let namespace = metadata.get("namespace")?.text()?.filter(|n| !n.is_empty());
    Ok(Some(Key::new(known, namespace.unwrap_or(DEFAULT_NAMESPACE), name)))
}

/// A later document with the same key is the one that counts, as with `kubectl apply`.
fn keep(object: Object, contents: &mut Contents) {
    let before = contents.objects.len();
    contents.objects.retain(|o| o.key != object.key);
    if contents.objects.len() != before {
        let message = "stands in the file twice; the last one counts".to_owned();
        let problem = Problem { path: String::new(), message };
        contents.tell(Severity::Warning, &object.key.to_string(), problem);
    }
    contents.objects.push(object);
}

/// Policies have readers of their own.
fn read_policy(value: &Value, key: Key, contents: &mut Contents) {
    let loaded = load::read_object(value, &key.to_string());
    let valid = !loaded.has_errors();
    contents.diagnostics.extend(loaded.diagnostics);
    if valid {
        keep(Object { key, body: Body::Policies(loaded.policies) }, contents);
    } else {
        contents.broken.insert(key);
    }
}

#[cfg(test)]
mod tests;
