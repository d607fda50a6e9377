//! The sockets, and the thread that they are served on.

use std::fs;
use std::future::pending;
use std::io;
use std::net::SocketAddr;
use std::os::unix::net::UnixListener;
use std::path::PathBuf;
use std::pin::pin;
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use egret_core::flow::{Entry, NodeInfo, Ring};
use futures_util::FutureExt;
use futures_util::future::FusedFuture;
use futures_util::stream::{self, Stream};
use tokio::net::UnixStream;
use tokio::sync::{Semaphore, mpsc, oneshot};
use tokio::time::timeout;
use tonic::transport::server::Router;
use tonic_health::ServingStatus;

use super::events::{AgentEvent, Dated, Events};
use super::export::{Export, ExportOptions};
use super::feed::Feeder;
use super::meters::Meters;
use super::now;
use super::observer::{From, FromRing};
use super::peer::OneNode;
use super::proto::observer::observer_server::ObserverServer;
use super::proto::peer::peer_server::PeerServer;
use super::seat::{Seated, Turns};
use super::store::Store;
use super::tcp::{ServerFiles, Tcp};
use crate::api::socket;
use crate::exit::{self, Refusal};
use crate::tell;

/// Entries that wait for the ring: the thread has other work as well.
const QUEUE: usize = 16_384;
/// Events of the agent that wait.
const EVENTS: usize = 4096;
/// The name under which clients ask whether this serves.
const HEALTH: &str = "hubble.server.Observer";
/// Connections of each socket at a time; whoever comes later waits in the kernel's queue.
const CLIENTS: usize = 64;
/// Questions of one connection at a time.
const STREAMS: u32 = 64;
/// Those of each socket who read flows at a time: each has filters, and a few entries.
const READERS: usize = 128;
/// Bytes of a question at most: 256 names of 64 letters are a quarter of that.
const QUESTION: usize = 64 * 1024;
/// How long a connection may be silent before it is asked whether it is still there.
const KEEPALIVE: Duration = Duration::from_secs(60);
/// How long connections may take to end.
pub(super) const END: Duration = Duration::from_millis(100);

/// Where and what.
#[derive(Debug, Clone)]
pub struct Options {
    /// The unix socket, for root.
    pub socket: PathBuf,
    /// A TCP address.
    pub listen: Option<Listen>,
    /// Flows that are kept: 2^n-1.
    pub flows: usize,
    /// The node's name.
    pub node: String,
    /// Flows are written to a file as well.
    pub export: Option<ExportOptions>,
    /// Counts flows on their way.
    pub meters: Option<Meters>,
}

/// A TCP address. Where nobody vouches for clients, whoever reaches it may read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listen {
    /// The address.
    pub address: SocketAddr,
    /// `None`: in the clear.
    pub tls: Option<ServerFiles>,
}

/// The thread; it ends with this.
#[derive(Debug)]
pub struct Server {
    socket: PathBuf,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

/// Listens, and begins to serve.
///
/// # Errors
/// A socket cannot be had, or the ring cannot have this size.
pub fn start(options: &Options) -> Result<(Feeder, Server), Refusal> {
    let ring = Ring::new(options.flows);
    let ring =
        ring.map_err(|error| Refusal::new(exit::USAGE, format!("--flow-buffer: {error}"), "try 4095"))?;
    let unix = socket::listen(&options.socket).map_err(|error| {
        let cause = format!("--hubble-socket {}: {error}", options.socket.display());
        Refusal::new(exit::OS_ERROR, cause, "give a path that can be made")
    })?;
    let tcp = options.listen.clone().map(Tcp::bind).transpose()?;
    let (queue, entries) = mpsc::channel(QUEUE);
    let (happened, events) = mpsc::channel(EVENTS);
    // There is room for the first one.
    let _ = happened.try_send((now(), AgentEvent::Started));
    let (stop, stopped) = oneshot::channel();
    let store = Arc::new(Store::new(ring, options.meters.clone()));
    let export = options.export.clone().map(Export::start).transpose().map_err(|error| no_thread(&error))?;
    let condition = export.as_ref().map(|export| export.condition.clone());
    let work = Work { options: options.clone(), store: store.clone(), unix, tcp, entries, events, export };
    let thread = thread::Builder::new().name("hubble".into()).spawn(move || work.run(stopped));
    let thread = thread.map_err(|error| no_thread(&error))?;
    let node = NodeInfo { name: options.node.clone(), labels: Vec::new() };
    let server = Server { socket: options.socket.clone(), stop: Some(stop), thread: Some(thread) };
    Ok((Feeder::new(queue, store, Arc::new(node), condition, happened), server))
}

fn no_thread(error: &io::Error) -> Refusal {
    Refusal::new(
        exit::OS_ERROR,
        format!("cannot start a thread: {error}"),
        "what was enforced stays enforced",
    )
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.socket);
        drop(self.stop.take());
        self.thread.take().map(JoinHandle::join);
    }
}

/// What the thread does.
struct Work {
    options: Options,
    store: Arc<Store>,
    unix: UnixListener,
    tcp: Option<Tcp>,
    entries: mpsc::Receiver<Entry>,
    events: mpsc::Receiver<Dated>,
    export: Option<Export>,
}

impl Work {
    fn run(self, stopped: oneshot::Receiver<()>) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_io().enable_time().build();
        let served = runtime.and_then(|runtime| {
            let served = runtime.block_on(self.serve(stopped));
            // Who follows is cut off.
            runtime.shutdown_timeout(END);
            served
        });
        if let Err(error) = served {
            tell::line(format_args!("warning: flows are not served any more: {error}"));
        }
    }

    async fn serve(self, stopped: oneshot::Receiver<()>) -> io::Result<()> {
        let Self { options, store, unix, tcp, entries, events: happened, mut export } = self;
        let events = Events::new();
        let from = From { store: store.clone(), events: events.clone(), node: options.node.clone() };
        let mut exporter = export.as_mut().and_then(|export| export.exporter(&store, &options.node));
        let mut filling = pin!(store.fill(entries).fuse());
        let unix = tokio::net::UnixListener::from_std(unix)?;
        let address = format!("unix://{}", options.socket.display());
        let services = services(tonic::transport::Server::builder(), &from, address, false).await;
        let on_unix = services.serve_with_incoming(of_root(unix));
        let on_tcp = async {
            match tcp {
                Some(tcp) => tcp.serve(&from).await,
                None => pending().await,
            }
        };
        let exporting = async {
            if let Some(exporter) = &mut exporter {
                exporter.run().await;
            }
            pending::<()>().await;
        };
        let working = async {
            tokio::select! {
                () = async { (&mut filling).await; pending().await } => Ok(()),
                () = async { events.fill(happened).await; pending().await } => Ok(()),
                ended = on_unix => ended.map_err(io::Error::other),
                ended = on_tcp => ended,
                () = exporting => Ok(()),
            }
        };
        let ended = tokio::select! {
            ended = working => ended,
            _ = stopped => Ok(()),
        };
        if !filling.is_terminated() {
            // What was fed by then is exported as well.
            let _ = timeout(END, filling).await;
        }
        if let Some(exporter) = &mut exporter {
            exporter.finish().await;
        }
        ended
    }
}

/// What is served, by a server that may have TLS.
pub(super) async fn services(
    server: tonic::transport::Server,
    from: &From,
    address: String,
    tls: bool,
) -> Router {
    let (reporter, health) = tonic_health::server::health_reporter();
    reporter.set_service_status(HEALTH, ServingStatus::Serving).await;
    let readers = Arc::new(Semaphore::new(READERS));
    let observer = FromRing { from: from.clone(), address: address.clone(), tls, readers };
    let peer = OneNode { node: from.node.clone(), address, tls };
    server
        .http2_keepalive_interval(Some(KEEPALIVE))
        .max_concurrent_streams(Some(STREAMS))
        .add_service(health.max_decoding_message_size(QUESTION))
        .add_service(ObserverServer::new(observer).max_decoding_message_size(QUESTION))
        .add_service(PeerServer::new(peer).max_decoding_message_size(QUESTION))
}

/// Connections of root.
fn of_root(listener: tokio::net::UnixListener) -> impl Stream<Item = io::Result<Seated<UnixStream>>> {
    stream::unfold((listener, places()), |(listener, places)| async {
        loop {
            let place = places.clone().acquire_owned().await.ok()?;
            match listener.accept().await {
                Ok((stream, _)) if socket::is_root(&stream) => {
                    return Some((Ok(Seated::new(stream, place, Turns::CLEAR)), (listener, places)));
                }
                Ok(_) => {}
                // No descriptor is left: one comes free when a client goes.
                Err(_) => tokio::time::sleep(END).await,
            }
        }
    })
}

/// Each socket has its own: who fills the one keeps nobody from the other.
pub(super) fn places() -> Arc<Semaphore> {
    Arc::new(Semaphore::new(CLIENTS))
}
