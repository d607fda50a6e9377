//! From a request's method and path to what answers it.

use std::sync::Arc;

use hyper::body::Bytes;
use hyper::{Method, Response};
use serde_json::Value;

use super::kinds::{KINDS, within};
use super::options::{Options, Query};
use super::reply::{Body, Failure, plain, respond, whole};
use super::server::Shared;
use super::watch::{Events, Watch};
use super::write::{Patch, Place};
use super::{discovery, read, write};

/// A request whose body has been read.
#[derive(Debug)]
pub(super) struct Call {
    pub(super) method: Method,
    pub(super) path: String,
    pub(super) query: Query,
    pub(super) content_type: String,
    pub(super) body: Bytes,
}

/// Answers a request.
pub(super) fn answer(shared: &Arc<Shared>, call: &Call) -> Response<Body> {
    let steps: Vec<&str> = call.path.split('/').filter(|step| !step.is_empty()).collect();
    let found = match steps.as_slice() {
        ["healthz" | "livez" | "readyz"] => return plain(200, "ok"),
        ["version"] => page(Some(read::version())),
        ["api"] => page(Some(discovery::core())),
        ["apis"] => page(Some(discovery::groups(&shared.store()))),
        ["apis", group] => page(discovery::group(&shared.store(), group)),
        ["api", version] => page(discovery::resources(&shared.store(), "", version)),
        ["apis", group, version] => page(discovery::resources(&shared.store(), group, version)),
        ["api", version, rest @ ..] => resource(shared, call, ("", version), rest),
        ["apis", group, version, rest @ ..] => resource(shared, call, (group, version), rest),
        _ => None,
    };
    // As the real one: paths of which it knows nothing are answered by what is no API, in plain text.
    found.unwrap_or_else(|| plain(404, "404 page not found\n"))
}

fn page(value: Option<Value>) -> Option<Response<Body>> {
    value.map(|value| whole(200, value.to_string()))
}

/// A path below a group and version; `None` if it leads nowhere.
fn resource(
    shared: &Arc<Shared>,
    call: &Call,
    (group, version): (&str, &str),
    steps: &[&str],
) -> Option<Response<Body>> {
    let (namespace, steps) = match steps {
        // A namespace is an object as well as a place.
        ["namespaces", _] | ["namespaces", _, "status"] => ("", steps),
        ["namespaces", namespace, rest @ ..] => (*namespace, rest),
        _ => ("", steps),
    };
    let (plural, name, status) = match steps {
        [plural] => (plural, "", false),
        [plural, name] => (plural, *name, false),
        [plural, name, "status"] => (plural, *name, true),
        _ => return None,
    };
    let id = within(group, version).find(|id| KINDS[*id].plural == *plural)?;
    let kind = &KINDS[id];
    let scoped = !namespace.is_empty();
    if shared.store().shelf(id).is_none() || (status && !kind.status) || (scoped && !kind.namespaced) {
        return None;
    }
    let place = Place { id, namespace, name, status };
    let outcome = if name.is_empty() {
        collection(shared, call, place)
    } else if kind.namespaced && !scoped {
        return None;
    } else {
        object(shared, call, place)
    };
    Some(outcome.unwrap_or_else(|failure| failure.response()))
}

fn collection(shared: &Arc<Shared>, call: &Call, place: Place<'_>) -> Result<Response<Body>, Failure> {
    let kind = &KINDS[place.id];
    match call.method {
        Method::GET => {
            let options = Options::new(kind, place.namespace, &call.query)?;
            if !options.watch {
                return read::list(shared, place.id, &options);
            }
            let watch = Watch::start(shared, place.id, options, shared.faults.gone_as_status())?;
            Ok(respond(200, Body::Watch(Events::new(watch))))
        }
        Method::POST if kind.namespaced != place.namespace.is_empty() => {
            write::create(shared, place, body(call)?)
        }
        _ => Err(Failure::not_allowed()),
    }
}

fn object(shared: &Shared, call: &Call, place: Place<'_>) -> Result<Response<Body>, Failure> {
    match call.method {
        Method::GET => read::get(shared, place.id, place.namespace, place.name),
        Method::PUT => write::replace(shared, place, body(call)?),
        Method::PATCH => {
            let (how, yaml) = match essence(&call.content_type) {
                "application/merge-patch+json" => (Patch::Merge, false),
                "application/strategic-merge-patch+json" => (Patch::Strategic, false),
                "application/apply-patch+yaml" => (Patch::Apply, true),
                other => return Err(Failure::new(415, format!("no patch is written as {other:?}"))),
            };
            not_dry(call)?;
            write::patch(shared, place, how, write::parse(&call.body, yaml)?, &call.query)
        }
        Method::DELETE if !place.status => {
            let options = if call.body.is_empty() { Ok(Default::default()) } else { body(call) };
            write::delete(shared, place, &options?)
        }
        _ => Err(Failure::not_allowed()),
    }
}

/// The object in the body of a request that changes something.
fn body(call: &Call) -> Result<serde_json::Map<String, Value>, Failure> {
    not_dry(call)?;
    match essence(&call.content_type) {
        "" | "application/json" => write::parse(&call.body, false),
        "application/yaml" => write::parse(&call.body, true),
        other => Err(Failure::new(415, format!("the body cannot be read as {other:?}"))),
    }
}

/// A trial run would be no trial here; better no answer than a wrong one.
fn not_dry(call: &Call) -> Result<(), Failure> {
    match call.query.get("dryRun") {
        "" => Ok(()),
        _ => Err(Failure::bad_request("this double does not know dryRun")),
    }
}

fn essence(content_type: &str) -> &str {
    content_type.split(';').next().unwrap_or_default().trim()
}
