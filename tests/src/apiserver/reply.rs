//! What goes out: bodies (whole, a list in pieces, a watch without end) and failures as the API's `Status` objects.
//! Knows no requests.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::vec;

use hyper::body::{Bytes, Frame, SizeHint};
use hyper::{Response, StatusCode, header};
use serde_json::{Value, json};

use super::kinds::Kind;
use super::object::Object;
use super::watch::Events;

/// A list is sent in pieces of about so many bytes.
pub(super) const PIECE: usize = 128 * 1024;

/// The body of a response.
#[derive(Debug)]
pub(super) enum Body {
    Whole(Bytes),
    List(List),
    Watch(Events),
}

/// A list under way.
#[derive(Debug)]
pub(super) struct List {
    pub(super) kind: &'static Kind,
    /// The list's text up to its first item.
    pub(super) head: Vec<u8>,
    pub(super) items: vec::IntoIter<Arc<Object>>,
    pub(super) done: bool,
}

impl List {
    fn piece(&mut self) -> Option<Bytes> {
        if self.done {
            return None;
        }
        let mut out = std::mem::take(&mut self.head);
        let mut separate = out.is_empty();
        while out.len() < PIECE {
            let Some(object) = self.items.next() else {
                out.extend_from_slice(b"]}\n");
                self.done = true;
                break;
            };
            if separate {
                out.push(b',');
            }
            object.write(self.kind, self.kind.custom, &mut out);
            separate = true;
        }
        Some(Bytes::from(out))
    }
}

impl hyper::body::Body for Body {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let next = match self.get_mut() {
            Self::Whole(bytes) if bytes.is_empty() => None,
            Self::Whole(bytes) => Some(std::mem::take(bytes)),
            Self::List(list) => list.piece(),
            Self::Watch(events) => match events.poll_next(context) {
                Poll::Ready(next) => next,
                Poll::Pending => return Poll::Pending,
            },
        };
        Poll::Ready(next.map(|bytes| Ok(Frame::data(bytes))))
    }

    fn is_end_stream(&self) -> bool {
        matches!(self, Self::Whole(bytes) if bytes.is_empty())
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Whole(bytes) => SizeHint::with_exact(bytes.len() as u64),
            _ => SizeHint::default(),
        }
    }
}

/// A JSON response.
pub(super) fn respond(code: u16, body: Body) -> Response<Body> {
    let mut response = Response::new(body);
    *response.status_mut() = StatusCode::from_u16(code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, header::HeaderValue::from_static("application/json"));
    headers.insert(header::CACHE_CONTROL, header::HeaderValue::from_static("no-cache, private"));
    response
}

/// A JSON response with this text.
pub(super) fn whole(code: u16, text: impl Into<Bytes>) -> Response<Body> {
    respond(code, Body::Whole(text.into()))
}

/// A response that is no JSON: health, and paths that lead nowhere.
pub(super) fn plain(code: u16, text: &'static str) -> Response<Body> {
    let mut response = whole(code, text);
    let kind = header::HeaderValue::from_static("text/plain; charset=utf-8");
    response.headers_mut().insert(header::CONTENT_TYPE, kind);
    response
}

/// A request that failed.
#[derive(Debug)]
pub(super) struct Failure {
    pub(super) code: u16,
    reason: &'static str,
    message: String,
    details: Value,
    /// With which a list can go on, at the price of consistency.
    pub(super) resume: Option<String>,
}

impl Failure {
    pub(super) fn new(code: u16, message: impl Into<String>) -> Self {
        let details = match code {
            429 | 503 | 504 => json!({"retryAfterSeconds": 1}),
            _ => json!({}),
        };
        Self { code, reason: reason(code), message: message.into(), details, resume: None }
    }

    pub(super) fn bad_request(message: impl Into<String>) -> Self {
        Self::new(400, message)
    }

    /// About one object, or about all of a kind if the name is empty.
    pub(super) fn about(code: u16, kind: &Kind, name: &str, what: &str) -> Self {
        let message = format!("{} {name:?} {what}", kind.qualified());
        let details = json!({"name": name, "group": kind.group, "kind": kind.plural});
        Self { details, ..Self::new(code, message) }
    }

    pub(super) fn absent(kind: &Kind, name: &str) -> Self {
        Self::about(404, kind, name, "not found")
    }

    pub(super) fn exists(kind: &Kind, name: &str) -> Self {
        Self { reason: "AlreadyExists", ..Self::about(409, kind, name, "already exists") }
    }

    pub(super) fn stale(kind: &Kind, name: &str) -> Self {
        Self::about(409, kind, name, "was changed since: read the latest version and try again")
    }

    /// One field of an object or of the options has no possible value.
    pub(super) fn invalid(what: &str, field: &str, cause: &'static str, message: &str) -> Self {
        let details =
            json!({"kind": what, "causes": [{"reason": cause, "message": message, "field": field}]});
        Self { details, ..Self::new(422, format!("{what} is invalid: {field}: {message}")) }
    }

    pub(super) fn not_allowed() -> Self {
        Self::new(405, "the server does not allow this method on the requested resource")
    }

    /// The history that was asked for is forgotten.
    pub(super) fn gone(asked: u64, oldest: u64) -> Self {
        Self::new(410, format!("too old resource version: {asked} ({oldest})"))
    }

    /// A version that is not there yet.
    pub(super) fn future(asked: u64, current: u64) -> Self {
        let message = "Too large resource version";
        let causes = json!([{"reason": "ResourceVersionTooLarge", "message": message}]);
        let details = json!({"causes": causes, "retryAfterSeconds": 1});
        Self { details, ..Self::new(504, format!("{message}: {asked}, current: {current}")) }
    }

    /// The `Status` object.
    pub(super) fn status(&self) -> Value {
        let metadata = self.resume.as_ref().map_or(json!({}), |token| json!({"continue": token}));
        json!({
            "kind": "Status", "apiVersion": "v1", "metadata": metadata, "status": "Failure", "message": self.message,
            "reason": self.reason, "details": self.details, "code": self.code,
        })
    }

    pub(super) fn response(&self) -> Response<Body> {
        let mut response = whole(self.code, self.status().to_string());
        if let Some(seconds) = self.details.get("retryAfterSeconds").and_then(Value::as_u64) {
            response.headers_mut().insert(header::RETRY_AFTER, seconds.into());
        }
        response
    }
}

/// The machine-readable reason that goes with a code, where there is only one.
fn reason(code: u16) -> &'static str {
    match code {
        400 => "BadRequest",
        401 => "Unauthorized",
        403 => "Forbidden",
        404 => "NotFound",
        405 => "MethodNotAllowed",
        409 => "Conflict",
        410 => "Expired",
        415 => "UnsupportedMediaType",
        422 => "Invalid",
        429 => "TooManyRequests",
        500 => "InternalError",
        503 => "ServiceUnavailable",
        504 => "Timeout",
        _ => "",
    }
}
