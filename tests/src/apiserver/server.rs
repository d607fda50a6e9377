//! Connections: accepting them, logging each request, the faults that a test switches on, and cutting it all off.
//! Knows nothing of what the requests mean.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::net::TcpListener;
use std::sync::atomic::{AtomicBool, AtomicU16, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use http_body_util::BodyExt;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Response, header};
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tokio::sync::{oneshot, watch};

use super::Request;
use super::options::Query;
use super::reply::{Body, Failure};
use super::route::{Call, answer};
use super::store::Store;

/// So many requests are remembered.
const REMEMBERED: usize = 10_000;
/// Only who asks as this one is let in, if he says who he is at all.
pub(super) const TOKEN: &str = "egret-double";

/// What the connections and the test have in common.
#[derive(Debug)]
pub(super) struct Shared {
    store: Mutex<Store>,
    pub(super) faults: Faults,
    pub(super) log: Mutex<Log>,
    /// Open watches.
    pub(super) watches: AtomicUsize,
    serial: AtomicU64,
    /// Told when all connections are to be closed.
    cut: watch::Sender<()>,
}

impl Shared {
    pub(super) fn new() -> Self {
        Self {
            store: Mutex::new(Store::new()),
            faults: Faults::default(),
            log: Mutex::default(),
            watches: AtomicUsize::new(0),
            serial: AtomicU64::new(1),
            cut: watch::Sender::new(()),
        }
    }

    pub(super) fn store(&self) -> MutexGuard<'_, Store> {
        self.store.lock().expect("nobody panics while he holds it")
    }

    /// Another number for each object that is made.
    pub(super) fn serial(&self) -> u64 {
        self.serial.fetch_add(1, Ordering::Relaxed)
    }

    /// Closes every connection.
    pub(super) fn cut(&self) {
        self.cut.send_replace(());
    }
}

/// What goes wrong on purpose.
#[derive(Debug, Default)]
pub(super) struct Faults {
    /// Nanoseconds before each response.
    delay: AtomicU64,
    refusing: AtomicBool,
    /// The status of every response; 0: none.
    failing: AtomicU16,
    gone_as_status: AtomicBool,
}

impl Faults {
    pub(super) fn set_delay(&self, delay: Duration) {
        self.delay.store(u64::try_from(delay.as_nanos()).unwrap_or(u64::MAX), Ordering::SeqCst);
    }

    pub(super) fn set_refusing(&self, refusing: bool) {
        self.refusing.store(refusing, Ordering::SeqCst);
    }

    pub(super) fn set_failing(&self, status: Option<u16>) {
        self.failing.store(status.unwrap_or(0), Ordering::SeqCst);
    }

    pub(super) fn set_gone_as_status(&self, plain: bool) {
        self.gone_as_status.store(plain, Ordering::SeqCst);
    }

    pub(super) fn gone_as_status(&self) -> bool {
        self.gone_as_status.load(Ordering::SeqCst)
    }
}

/// The last requests.
#[derive(Debug, Default)]
pub(super) struct Log {
    pub(super) requests: VecDeque<Request>,
    pub(super) dropped: u64,
}

impl Log {
    fn add(&mut self, request: Request) {
        self.requests.push_back(request);
        if self.requests.len() > REMEMBERED {
            self.requests.pop_front();
            self.dropped += 1;
        }
    }
}

/// Serves until `stop` resolves; every connection ends with it.
pub(super) fn serve(listener: TcpListener, shared: Arc<Shared>, stop: oneshot::Receiver<()>) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async {
        let listener = tokio::net::TcpListener::from_std(listener).expect("a listener that does not block");
        tokio::select! {
            () = accept(&listener, &shared) => {}
            _ = stop => {}
        }
    });
}

async fn accept(listener: &tokio::net::TcpListener, shared: &Arc<Shared>) {
    loop {
        let Ok((stream, _)) = listener.accept().await else {
            // Out of file descriptors, most likely: some of them will be given back.
            tokio::time::sleep(Duration::from_millis(10)).await;
            continue;
        };
        // In this order: who is told to refuse cuts off what was accepted before.
        let cut = shared.cut.subscribe();
        if !shared.faults.refusing.load(Ordering::SeqCst) {
            tokio::spawn(connection(Arc::clone(shared), stream, cut));
        }
    }
}

async fn connection(shared: Arc<Shared>, stream: TcpStream, mut cut: watch::Receiver<()>) {
    let _ = stream.set_nodelay(true);
    let service = service_fn(|request| handle(Arc::clone(&shared), request));
    let serving = http1::Builder::new().serve_connection(TokioIo::new(stream), service);
    tokio::select! {
        // A client that went away is nothing to report.
        _ = serving => {}
        _ = cut.changed() => {}
    }
}

async fn handle(
    shared: Arc<Shared>,
    request: hyper::Request<Incoming>,
) -> Result<Response<Body>, Infallible> {
    let (parts, body) = request.into_parts();
    let text =
        |name| parts.headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default().to_owned();
    let query = parts.uri.query().unwrap_or_default();
    shared.log.lock().expect("nobody panics while he holds it").add(Request {
        method: parts.method.to_string(),
        path: parts.uri.path().into(),
        query: query.into(),
        user_agent: text(header::USER_AGENT),
    });
    let call = Call {
        path: parts.uri.path().into(),
        query: Query::parse(query),
        content_type: text(header::CONTENT_TYPE),
        body: match body.collect().await {
            Ok(body) => body.to_bytes(),
            Err(error) => {
                return Ok(Failure::bad_request(format!("the body ended early: {error}")).response());
            }
        },
        method: parts.method.clone(),
    };
    let delay = Duration::from_nanos(shared.faults.delay.load(Ordering::SeqCst));
    if !delay.is_zero() {
        tokio::time::sleep(delay).await;
    }
    let credentials = text(header::AUTHORIZATION);
    let response = match shared.faults.failing.load(Ordering::SeqCst) {
        0 if credentials.is_empty() || credentials.strip_prefix("Bearer ") == Some(TOKEN) => {
            answer(&shared, &call)
        }
        0 => Failure::new(401, "Unauthorized").response(),
        status => Failure::new(status, "told to fail").response(),
    };
    Ok(response)
}
