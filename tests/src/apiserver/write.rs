//! POST, PUT, PATCH and DELETE, and the test's own ways to put objects in. Each change is made on the newest state:
//! who was overtaken begins anew, unless it named the version that it wanted to change.

use std::sync::Arc;

use hyper::Response;
use serde_json::{Map, Value, json};

use super::kinds::{KINDS, Kind};
use super::object::{Draft, Object};
use super::options::Query;
use super::patch::{complete, complete_new, copy_status, give_address, merge, meta, metadata};
use super::reply::{Body, Failure, whole};
use super::server::Shared;
use super::store::{Clash, Expected};

type Fields = Map<String, Value>;

/// The object that a request is about.
#[derive(Clone, Copy, Debug)]
pub(super) struct Place<'a> {
    pub(super) id: usize,
    pub(super) namespace: &'a str,
    pub(super) name: &'a str,
    /// Only its status.
    pub(super) status: bool,
}

impl Place<'_> {
    fn kind(&self) -> &'static Kind {
        &KINDS[self.id]
    }

    fn key(&self) -> String {
        self.kind().key(self.namespace, self.name)
    }
}

/// An object in a request's body: JSON, or YAML, which contains it.
pub(super) fn parse(body: &[u8], yaml: bool) -> Result<Fields, Failure> {
    let value: Result<Value, String> = if yaml {
        serde_yaml_ng::from_slice(body).map_err(|error| error.to_string())
    } else {
        serde_json::from_slice(body).map_err(|error| error.to_string())
    };
    match value {
        Ok(Value::Object(object)) => Ok(object),
        Ok(_) => Err(Failure::bad_request("the body is no object")),
        Err(error) => Err(Failure::bad_request(format!("the body cannot be read: {error}"))),
    }
}

/// Stores an object as it is, status and all, in place of the one of its name.
pub(super) fn store(shared: &Shared, id: usize, object: &Fields) -> Result<Arc<Object>, Clash> {
    let kind = &KINDS[id];
    let key = kind.key(meta(object, "namespace"), meta(object, "name"));
    loop {
        let before = shared.store().get(id, &key);
        let mut new = object.clone();
        if let Some(before) = &before {
            complete(&mut new, &before.value(kind));
        } else {
            complete_new(kind, &mut new, shared.serial());
        }
        let expected = before.map_or(Expected::Absent, |before| Expected::Revision(before.revision));
        let stored = shared.store().put(id, Draft::new(kind, &new), expected);
        match stored {
            Err(Clash::Absent | Clash::Other) => {}
            done => return done,
        }
    }
}

/// POST to a collection.
pub(super) fn create(
    shared: &Shared,
    place: Place<'_>,
    mut object: Fields,
) -> Result<Response<Body>, Failure> {
    let kind = place.kind();
    check_type(kind, &object)?;
    check_place(place, &object)?;
    if !meta(&object, "resourceVersion").is_empty() {
        return Err(Failure::new(500, "resourceVersion should not be set on objects to be created"));
    }
    let serial = shared.serial();
    let given = given_name(kind, &object, serial)?;
    let metadata = metadata(&mut object);
    metadata.insert("name".into(), given.clone().into());
    if kind.namespaced {
        metadata.insert("namespace".into(), place.namespace.into());
    }
    for key in ["uid", "creationTimestamp", "generation"] {
        metadata.remove(key);
    }
    if kind.status {
        object.remove("status");
    }
    complete_new(kind, &mut object, serial);
    if kind.kind == "Service" {
        give_address(&mut object, serial);
    }
    let stored = shared.store().put(place.id, Draft::new(kind, &object), Expected::Absent);
    match stored {
        Ok(object) => Ok(whole(201, object.text(kind))),
        Err(Clash::Other) => Err(Failure::exists(kind, &given)),
        Err(_) => Err(Failure::absent(kind, "")),
    }
}

/// The name of a new object, or one that is made from a prefix.
fn given_name(kind: &Kind, object: &Fields, serial: u64) -> Result<String, Failure> {
    match (meta(object, "name"), meta(object, "generateName")) {
        ("", "") => {
            Err(Failure::invalid(kind.kind, "metadata.name", "FieldValueRequired", "a name is required"))
        }
        ("", prefix) => Ok(format!("{prefix}{serial:05x}")),
        (name, _) => Ok(name.into()),
    }
}

/// PUT of an object or of its status.
pub(super) fn replace(shared: &Shared, place: Place<'_>, object: Fields) -> Result<Response<Body>, Failure> {
    let kind = place.kind();
    check_type(kind, &object)?;
    check_place(place, &object)?;
    let versioned = !meta(&object, "resourceVersion").is_empty();
    if kind.upsert && !place.status && !versioned && shared.store().get(place.id, &place.key()).is_none() {
        return create(shared, place, object);
    }
    if !versioned && !kind.blind {
        let message = "must be specified for an update";
        return Err(Failure::invalid(kind.kind, "metadata.resourceVersion", "FieldValueInvalid", message));
    }
    update(shared, place, |before| {
        check_version(place, &object, before)?;
        Ok(object.clone())
    })
}

/// How a patch is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Patch {
    Merge,
    Strategic,
    Apply,
}

/// PATCH of an object or of its status.
pub(super) fn patch(
    shared: &Shared,
    place: Place<'_>,
    how: Patch,
    patch: Fields,
    query: &Query,
) -> Result<Response<Body>, Failure> {
    let kind = place.kind();
    if how == Patch::Strategic && kind.custom {
        return Err(Failure::new(415, "a custom resource takes no strategic merge patch"));
    }
    if how == Patch::Apply {
        check_type(kind, &patch)?;
        if query.get("fieldManager").is_empty() {
            let message = "is required for apply patch";
            return Err(Failure::invalid("PatchOptions", "fieldManager", "FieldValueRequired", message));
        }
        if patch.get("metadata").is_some_and(|metadata| metadata.get("managedFields").is_some()) {
            return Err(Failure::bad_request("metadata.managedFields must be nil"));
        }
        if !place.status && shared.store().get(place.id, &place.key()).is_none() {
            let mut new = Fields::new();
            merge(&mut new, patch, false);
            metadata(&mut new).insert("name".into(), place.name.into());
            return create(shared, place, new);
        }
    }
    check_place(place, &patch)?;
    update(shared, place, |before| {
        check_version(place, &patch, before)?;
        let mut object = before.clone();
        merge(&mut object, patch.clone(), how == Patch::Strategic);
        Ok(object)
    })
}

/// Replaces an object by what `change` makes of it: the status alone, or everything but the status.
fn update(
    shared: &Shared,
    place: Place<'_>,
    change: impl Fn(&Fields) -> Result<Fields, Failure>,
) -> Result<Response<Body>, Failure> {
    let kind = place.kind();
    loop {
        let before =
            shared.store().get(place.id, &place.key()).ok_or_else(|| Failure::absent(kind, place.name))?;
        let old = before.value(kind);
        let mut new = change(&old)?;
        if place.status {
            let mut whole = old.clone();
            copy_status(&new, &mut whole);
            new = whole;
        } else if kind.status {
            copy_status(&old, &mut new);
        }
        complete(&mut new, &old);
        let expected = Expected::Revision(before.revision);
        let stored = shared.store().put(place.id, Draft::new(kind, &new), expected);
        match stored {
            Ok(object) => return Ok(whole(200, object.text(kind))),
            Err(Clash::Other) => {}
            Err(_) => return Err(Failure::absent(kind, place.name)),
        }
    }
}

/// DELETE: at once, without grace or finalizers.
pub(super) fn delete(shared: &Shared, place: Place<'_>, options: &Fields) -> Result<Response<Body>, Failure> {
    let kind = place.kind();
    let before =
        shared.store().get(place.id, &place.key()).ok_or_else(|| Failure::absent(kind, place.name))?;
    let object = before.value(kind);
    for key in ["uid", "resourceVersion"] {
        let wanted =
            options.get("preconditions").and_then(|conditions| conditions.get(key)).and_then(Value::as_str);
        if wanted.is_some_and(|wanted| wanted != meta(&object, key)) {
            return Err(Failure::stale(kind, place.name));
        }
    }
    let removed = shared.store().remove(place.id, &place.key(), Expected::Revision(before.revision));
    match removed {
        Ok(_) => {}
        Err(Clash::Other) => return Err(Failure::stale(kind, place.name)),
        Err(_) => return Err(Failure::absent(kind, place.name)),
    }
    let details =
        json!({"name": place.name, "group": kind.group, "kind": kind.plural, "uid": meta(&object, "uid")});
    let status = json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "details": details});
    Ok(whole(200, status.to_string()))
}

fn check_type(kind: &Kind, object: &Fields) -> Result<(), Failure> {
    if Kind::of(object).is_some_and(|id| std::ptr::eq(kind, &KINDS[id])) {
        return Ok(());
    }
    let (name, version) = (kind.kind, kind.api_version());
    Err(Failure::bad_request(format!("the body is no {name} of {version}")))
}

/// The name and namespace of the body, if it has any, must be those of the path.
fn check_place(place: Place<'_>, object: &Fields) -> Result<(), Failure> {
    let differs = |key, wanted: &str| !meta(object, key).is_empty() && meta(object, key) != wanted;
    if place.kind().namespaced && differs("namespace", place.namespace) {
        return Err(Failure::bad_request(
            "the namespace of the object does not match the namespace of the request",
        ));
    }
    if !place.name.is_empty() && differs("name", place.name) {
        return Err(Failure::bad_request("the name of the object does not match the name of the request"));
    }
    Ok(())
}

fn check_version(place: Place<'_>, object: &Fields, before: &Fields) -> Result<(), Failure> {
    let differs = |key| !meta(object, key).is_empty() && meta(object, key) != meta(before, key);
    if differs("resourceVersion") || differs("uid") {
        return Err(Failure::stale(place.kind(), place.name));
    }
    Ok(())
}
