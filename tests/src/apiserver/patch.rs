//! How a patch and the server's own bookkeeping change an object. Pure: objects in, objects out.

use std::collections::hash_map::DefaultHasher;
use std::hash::{Hash, Hasher};

use serde_json::{Map, Value};

use super::kinds::Kind;
use super::object::timestamp;

type Object = Map<String, Value>;

/// RFC 7386: `null` removes, maps are merged, everything else replaces. `directives` drops keys that begin with `$`:
/// what a strategic merge patch says to the server about its lists.
pub(super) fn merge(target: &mut Object, patch: Object, directives: bool) {
    for (key, value) in patch {
        match value {
            _ if directives && key.starts_with('$') => {}
            Value::Null => {
                target.remove(&key);
            }
            Value::Object(patch) => {
                let slot = target.entry(key).or_insert(Value::Null);
                if !slot.is_object() {
                    *slot = Value::Object(Map::new());
                }
                if let Value::Object(inner) = slot {
                    merge(inner, patch, directives);
                }
            }
            other => {
                target.insert(key, other);
            }
        }
    }
}

/// The metadata of an object, made if they are missing.
pub(super) fn metadata(object: &mut Object) -> &mut Object {
    let slot = object.entry("metadata").or_insert(Value::Null);
    if !slot.is_object() {
        *slot = Value::Object(Map::new());
    }
    slot.as_object_mut().expect("made above")
}

/// A text among the metadata, empty if it is not there.
pub(super) fn meta<'a>(object: &'a Object, key: &str) -> &'a str {
    object.get("metadata").and_then(|metadata| metadata.get(key)).and_then(Value::as_str).unwrap_or_default()
}

/// Sets what the server sets on an object that is new. What is given already stays.
pub(super) fn complete_new(kind: &Kind, object: &mut Object, serial: u64) {
    let key = kind.key(meta(object, "namespace"), meta(object, "name"));
    let metadata = metadata(object);
    metadata.entry("uid").or_insert_with(|| uid(kind, &key, serial).into());
    metadata.entry("creationTimestamp").or_insert_with(|| timestamp().into());
    metadata.entry("generation").or_insert_with(|| 1.into());
}

/// The address of a Service that asks for none, out of 10.97.0.0/16.
pub(super) fn give_address(service: &mut Object, serial: u64) {
    let Some(spec) = service.get_mut("spec").and_then(Value::as_object_mut) else { return };
    let external = spec.get("type").is_some_and(|kind| kind == "ExternalName");
    if external || spec.contains_key("clusterIP") {
        return;
    }
    let address = format!("10.97.{}.{}", serial >> 8 & 0xff, serial & 0xff);
    spec.insert("clusterIPs".into(), vec![address.clone()].into());
    spec.insert("clusterIP".into(), address.into());
}

/// Sets what the server keeps when an object is replaced: who it is, and how often it changed apart from its metadata
/// and status.
pub(super) fn complete(object: &mut Object, before: &Object) {
    let changed = content(object).count() != content(before).count()
        || content(object).any(|(key, value)| before.get(key) != Some(value));
    for key in ["kind", "apiVersion"] {
        object.insert(key.into(), before[key].clone());
    }
    let empty = Map::new();
    let old = before.get("metadata").and_then(Value::as_object).unwrap_or(&empty);
    let generation = old.get("generation").and_then(Value::as_u64).unwrap_or(0) + u64::from(changed);
    let metadata = metadata(object);
    for key in ["name", "namespace", "uid", "creationTimestamp", "generateName"] {
        if let Some(value) = old.get(key) {
            metadata.insert(key.into(), value.clone());
        }
    }
    metadata.insert("generation".into(), generation.into());
}

/// What an object says apart from its type, metadata and status.
fn content(object: &Object) -> impl Iterator<Item = (&String, &Value)> {
    let other = |key: &str| !matches!(key, "kind" | "apiVersion" | "metadata" | "status");
    object.iter().filter(move |(key, _)| other(key))
}

/// The part of `from` that is its status, put in place of `to`'s.
pub(super) fn copy_status(from: &Object, to: &mut Object) {
    match from.get("status") {
        Some(status) => to.insert("status".into(), status.clone()),
        None => to.remove("status"),
    };
}

/// Shaped like a UUID of version 4, another one for each object that ever was.
fn uid(kind: &Kind, key: &str, serial: u64) -> String {
    let half = |salt: u8| {
        let mut hasher = DefaultHasher::new();
        (salt, kind.plural, key, serial).hash(&mut hasher);
        hasher.finish()
    };
    let (high, low) = (half(0), half(1));
    let (a, b, c) = (high >> 32, high >> 16 & 0xffff, high & 0xfff);
    format!("{a:08x}-{b:04x}-4{c:03x}-8{:03x}-{:012x}", low >> 48 & 0xfff, low & 0xffff_ffff_ffff)
}
