//! What the server says that it serves: groups, versions and resources. A resource that is not installed is not
//! mentioned, nor is a group without any.

use serde_json::{Value, json};

use super::kinds::{KINDS, Kind, within};
use super::store::Store;

/// `/api`.
pub(super) fn core() -> Value {
    json!({"kind": "APIVersions", "versions": ["v1"], "serverAddressByClientCIDRs": []})
}

/// `/apis`.
pub(super) fn groups(store: &Store) -> Value {
    let mut names: Vec<&str> = (0..KINDS.len())
        .filter(|id| store.shelf(*id).is_some() && !KINDS[*id].group.is_empty())
        .map(|id| KINDS[id].group)
        .collect();
    names.dedup();
    let groups: Vec<Value> = names.into_iter().filter_map(|name| group(store, name)).collect();
    json!({"kind": "APIGroupList", "apiVersion": "v1", "groups": groups})
}

/// `/apis/GROUP`, if anything is in it.
pub(super) fn group(store: &Store, name: &str) -> Option<Value> {
    let known = |id: &usize| KINDS[*id].group == name && store.shelf(*id).is_some();
    let kind = &KINDS[(0..KINDS.len()).find(known).filter(|_| !name.is_empty())?];
    let version = json!({"groupVersion": kind.api_version(), "version": kind.version});
    Some(json!({
        "kind": "APIGroup", "apiVersion": "v1", "name": name, "versions": [version], "preferredVersion": version,
    }))
}

/// `/api/v1` and `/apis/GROUP/VERSION`, if anything is in it.
pub(super) fn resources(store: &Store, group: &str, version: &str) -> Option<Value> {
    let kinds: Vec<&Kind> =
        within(group, version).filter(|id| store.shelf(*id).is_some()).map(|id| &KINDS[id]).collect();
    let first = kinds.first()?;
    let resources: Vec<Value> = kinds.iter().flat_map(|kind| entries(kind)).collect();
    Some(json!({
        "kind": "APIResourceList", "apiVersion": "v1", "groupVersion": first.api_version(), "resources": resources,
    }))
}

fn entries(kind: &Kind) -> Vec<Value> {
    let mut entry = json!({
        "name": kind.plural, "singularName": kind.kind.to_lowercase(), "namespaced": kind.namespaced, "kind": kind.kind,
        "verbs": ["create", "delete", "get", "list", "patch", "update", "watch"],
    });
    if !kind.short.is_empty() {
        entry["shortNames"] = json!(kind.short);
    }
    let status = json!({
        "name": format!("{}/status", kind.plural), "singularName": "", "namespaced": kind.namespaced, "kind": kind.kind,
        "verbs": ["get", "patch", "update"],
    });
    if kind.status { vec![entry, status] } else { vec![entry] }
}
