//! The HTTP side. Bounded in every direction: connections, time, bytes; one request per connection.

use std::cell::RefCell;
use std::convert::Infallible;
use std::io;
use std::net::TcpListener;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use http::header::{ALLOW, CONTENT_TYPE, HeaderValue};
use http::{Method, Request, Response, StatusCode};
use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use prometheus_client::encoding::text::encode_eof;
use tokio::net::TcpStream;
use tokio::sync::{Semaphore, watch};
use tokio::time::timeout;

use super::kernel::Kernel;
use super::page::Page;
use super::{About, Newest, hubble};
use crate::observe::Meters;

/// Clients at a time; whoever comes later waits in the kernel's queue.
const CLIENTS: usize = 16;
/// How long a client may take for everything.
const PATIENCE: Duration = Duration::from_secs(5);
/// Bytes of a request's head.
const HEAD: usize = 8 << 10;
/// After so long without a sign of the loop the agent is not alive. Its longest step, the first list of a large cluster, takes
/// seconds.
const SILENCE: Duration = Duration::from_secs(60);

const TEXT: &str = "text/plain; charset=utf-8";
const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// What requests are answered from.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) about: About,
    pub(super) newest: watch::Receiver<Newest>,
    /// `None`: the agent's own metrics are not shown here.
    pub(super) kernel: Option<Kernel>,
    /// Hubble's, if they are shown here.
    pub(super) meters: Option<Meters>,
}

/// Serves for ever, wherever there is a listener.
pub(super) async fn serve(both: [(Option<TcpListener>, Shared); 2]) -> io::Result<()> {
    let [own, hubble] = both.map(|(listener, shared)| async {
        match listener {
            Some(listener) => accept(listener, shared).await,
            None => std::future::pending().await,
        }
    });
    tokio::task::LocalSet::new().run_until(async { tokio::try_join!(own, hubble).map(drop) }).await
}

async fn accept(listener: TcpListener, shared: Shared) -> io::Result<()> {
    let listener = tokio::net::TcpListener::from_std(listener)?;
    let shared = Rc::new(RefCell::new(shared));
    let places = Arc::new(Semaphore::new(CLIENTS));
    loop {
        let place = places.clone().acquire_owned().await.map_err(io::Error::other)?;
        let Ok((stream, _)) = listener.accept().await else {
            // No descriptor is left: one comes free when a client goes.
            tokio::time::sleep(Duration::from_millis(100)).await;
            continue;
        };
        let shared = shared.clone();
        tokio::task::spawn_local(async move {
            // A client that does not ask, or does not read, has itself to blame.
            let _ = timeout(PATIENCE, converse(stream, shared)).await;
            drop(place);
        });
    }
}

async fn converse(stream: TcpStream, shared: Rc<RefCell<Shared>>) -> hyper::Result<()> {
    let answer = service_fn(move |request: Request<Incoming>| {
        let answer = shared.borrow_mut().answer(request.method(), request.uri().path());
        std::future::ready(Ok::<_, Infallible>(answer))
    });
    http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(PATIENCE)
        .max_buf_size(HEAD)
        .keep_alive(false)
        .serve_connection(TokioIo::new(stream), answer)
        .await
}

impl Shared {
    fn answer(&mut self, method: &Method, path: &str) -> Response<Full<Bytes>> {
        if !matches!(*method, Method::GET | Method::HEAD) {
            let mut answer = reply(StatusCode::METHOD_NOT_ALLOWED, TEXT, "only GET and HEAD\n");
            answer.headers_mut().insert(ALLOW, HeaderValue::from_static("GET, HEAD"));
            return answer;
        }
        match path {
            "/metrics" => self.metrics(),
            "/livez" => self.live(),
            "/readyz" => self.ready(),
            _ => reply(StatusCode::NOT_FOUND, TEXT, "there are /metrics, /livez and /readyz\n"),
        }
    }

    fn metrics(&mut self) -> Response<Full<Bytes>> {
        match self.page() {
            Ok(text) => reply(StatusCode::OK, OPEN_METRICS, text),
            Err(error) => reply(StatusCode::INTERNAL_SERVER_ERROR, TEXT, format!("{error}\n")),
        }
    }

    fn page(&mut self) -> Result<String, std::fmt::Error> {
        let mut text = String::new();
        if let Some(kernel) = &mut self.kernel {
            let snapshot = self.newest.borrow().as_ref().map(|(_, snapshot)| snapshot.clone());
            Page { about: self.about, kernel: kernel.read().clone(), snapshot }.write(&mut text)?;
        }
        if let Some(meters) = &self.meters {
            hubble::write(&mut text, meters)?;
        }
        encode_eof(&mut text)?;
        Ok(text)
    }

    /// An agent that waits for its objects is alive: it says nothing then.
    fn live(&self) -> Response<Full<Bytes>> {
        match self.newest.borrow().as_ref().map(|(at, _)| at.elapsed()) {
            Some(silence) if silence > SILENCE => {
                let text = format!("the agent has not moved for {} s\n", silence.as_secs());
                reply(StatusCode::SERVICE_UNAVAILABLE, TEXT, text)
            }
            _ => reply(StatusCode::OK, TEXT, "ok\n"),
        }
    }

    /// As `egret status --probe ready`: a bad policy or an API server that is away is no reason not to be.
    fn ready(&self) -> Response<Full<Bytes>> {
        match *self.newest.borrow() {
            Some(_) => reply(StatusCode::OK, TEXT, "ok\n"),
            None => reply(StatusCode::SERVICE_UNAVAILABLE, TEXT, "starting: see `egret status`\n"),
        }
    }
}

fn reply(status: StatusCode, kind: &'static str, text: impl Into<Bytes>) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(text.into()));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    response
}
