//! GET: one object, and lists in pages.

use hyper::Response;
use serde_json::{Map, Value, json};

use super::kinds::KINDS;
use super::options::{Options, Revision, Token};
use super::reply::{Body, Failure, List, respond, whole};
use super::server::Shared;
use super::store::Store;

/// One object.
pub(super) fn get(
    shared: &Shared,
    id: usize,
    namespace: &str,
    name: &str,
) -> Result<Response<Body>, Failure> {
    let kind = &KINDS[id];
    let object = shared.store().get(id, &kind.key(namespace, name));
    object.map(|object| whole(200, object.text(kind))).ok_or_else(|| Failure::absent(kind, name))
}

/// A list, or a page of one.
pub(super) fn list(shared: &Shared, id: usize, options: &Options) -> Result<Response<Body>, Failure> {
    let kind = &KINDS[id];
    let (filter, store) = (&options.filter, shared.store());
    let shelf = store.shelf(id).ok_or_else(|| Failure::absent(kind, ""))?;
    let revision = revision(&store, options)?;
    let from = options.resume.as_ref().map_or("", |token| &token.from);
    let states =
        shelf.at(revision, from, &filter.prefix).map_err(|gone| expired(options, revision, gone.oldest))?;
    let mut states = states.filter(|object| filter.matches(object));
    let limit = if options.limit == 0 { usize::MAX } else { options.limit };
    let items: Vec<_> = states.by_ref().take(limit).collect();
    let mut metadata = Map::new();
    metadata.insert("resourceVersion".into(), revision.to_string().into());
    if let Some(next) = states.next() {
        let token = Token { revision: Some(revision), from: next.key.clone() };
        metadata.insert("continue".into(), token.text().into());
        if filter.is_plain() {
            metadata.insert("remainingItemCount".into(), (1 + states.count()).into());
        }
    }
    let (name, version) = (kind.kind, kind.api_version());
    let metadata = Value::Object(metadata);
    let head =
        format!("{{\"kind\":\"{name}List\",\"apiVersion\":\"{version}\",\"metadata\":{metadata},\"items\":[");
    let list = List { kind, head: head.into_bytes(), items: items.into_iter(), done: false };
    Ok(respond(200, Body::List(list)))
}

/// Of which version the list is.
fn revision(store: &Store, options: &Options) -> Result<u64, Failure> {
    let resumed = options.resume.as_ref().and_then(|token| token.revision);
    match (resumed, options.revision) {
        (Some(revision), _) => Ok(revision),
        (None, Revision::At(revision)) if revision > store.revision => {
            Err(Failure::future(revision, store.revision))
        }
        (None, Revision::At(revision)) if options.exact => Ok(revision),
        (None, _) => Ok(store.revision),
    }
}

/// An old page comes with a token that goes on from there in the newest state.
fn expired(options: &Options, revision: u64, oldest: u64) -> Failure {
    let mut failure = Failure::gone(revision, oldest);
    failure.resume =
        options.resume.as_ref().map(|token| Token { revision: None, from: token.from.clone() }.text());
    failure
}

/// The versions of the server itself.
pub(super) fn version() -> Value {
    json!({
        "major": "1", "minor": "34", "gitVersion": "v1.34.0-double", "gitCommit": "0", "gitTreeState": "clean",
        "buildDate": "2025-08-27T00:00:00Z", "goVersion": "none", "compiler": "rustc", "platform": "linux/amd64",
    })
}
