//! The sockets, and the thread that they are served on.

use std::fs;
use std::future::pending;
use std::io;
use std::net::SocketAddr;
use std::os::unix::net::UnixListener;
use std::path::PathBuf;
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use egret_core::flow::{Entry, NodeInfo, Ring};
use futures_util::stream::{self, Stream};
use tokio::net::{TcpStream, UnixStream};
use tokio::sync::{Semaphore, mpsc, oneshot};
use tonic::transport::server::Router;
use tonic_health::ServingStatus;

use super::feed::Feeder;
use super::meters::Meters;
use super::observer::FromRing;
use super::peer::OneNode;
use super::proto::observer::observer_server::ObserverServer;
use super::proto::peer::peer_server::PeerServer;
use super::seat::Seated;
use super::store::Store;
use crate::api::socket;
use crate::exit::{self, Refusal};
use crate::tell;

/// Entries that wait for the ring: the thread has other work as well.
const QUEUE: usize = 16_384;
/// The name under which clients ask whether this serves.
const HEALTH: &str = "hubble.server.Observer";
/// Connections of each socket at a time; whoever comes later waits in the kernel's queue.
const CLIENTS: usize = 64;
/// Questions of one connection at a time.
const STREAMS: u32 = 64;
/// How long a connection may be silent before it is asked whether it is still there.
const KEEPALIVE: Duration = Duration::from_secs(60);
/// How long connections may take to end.
const END: Duration = Duration::from_millis(100);

/// Where and what.
#[derive(Debug, Clone)]
pub struct Options {
    /// The unix socket, for root.
    pub socket: PathBuf,
    /// A TCP address, which must be a loopback one: whoever reaches it may read.
    pub listen: Option<SocketAddr>,
    /// Flows that are kept: 2^n-1.
    pub flows: usize,
    /// The node's name.
    pub node: String,
    /// Counts flows on their way.
    pub meters: Option<Meters>,
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
    let tcp = options.listen.map(tcp).transpose().map_err(|(address, error)| {
        let cause = format!("--hubble-listen {address}: {error}");
        Refusal::new(exit::OS_ERROR, cause, "give an address of loopback that nobody else has")
    })?;
    let (queue, entries) = mpsc::channel(QUEUE);
    let (stop, stopped) = oneshot::channel();
    let work = Work { options: options.clone(), ring, unix, tcp, entries };
    let thread = thread::Builder::new().name("hubble".into()).spawn(move || work.run(stopped));
    let thread = thread.map_err(|error| {
        Refusal::new(
            exit::OS_ERROR,
            format!("cannot start a thread: {error}"),
            "what was enforced stays enforced",
        )
    })?;
    let node = NodeInfo { name: options.node.clone(), labels: Vec::new() };
    let server = Server { socket: options.socket.clone(), stop: Some(stop), thread: Some(thread) };
    Ok((Feeder::new(queue, Arc::new(node)), server))
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.socket);
        drop(self.stop.take());
        self.thread.take().map(JoinHandle::join);
    }
}

fn tcp(address: SocketAddr) -> Result<std::net::TcpListener, (SocketAddr, io::Error)> {
    let bind = || {
        let listener = std::net::TcpListener::bind(address)?;
        listener.set_nonblocking(true)?;
        Ok(listener)
    };
    bind().map_err(|error| (address, error))
}

/// What the thread does.
struct Work {
    options: Options,
    ring: Ring,
    unix: UnixListener,
    tcp: Option<std::net::TcpListener>,
    entries: mpsc::Receiver<Entry>,
}

impl Work {
    fn run(self, stopped: oneshot::Receiver<()>) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_io().enable_time().build();
        let served = runtime.and_then(|runtime| {
            let served = runtime.block_on(async {
                tokio::select! {
                    served = self.serve() => served,
                    _ = stopped => Ok(()),
                }
            });
            // Who follows is cut off.
            runtime.shutdown_timeout(END);
            served
        });
        if let Err(error) = served {
            tell::line(format_args!("warning: flows are not served any more: {error}"));
        }
    }

    async fn serve(self) -> io::Result<()> {
        let Self { options, ring, unix, tcp, entries } = self;
        let store = Arc::new(Store::new(ring, options.meters.clone()));
        let filling = async {
            store.fill(entries).await;
            pending::<()>().await;
        };
        let unix = tokio::net::UnixListener::from_std(unix)?;
        let address = format!("unix://{}", options.socket.display());
        let on_unix = services(&store, &options.node, address).await.serve_with_incoming(of_root(unix));
        let tcp = tcp.map(tokio::net::TcpListener::from_std).transpose()?;
        let on_tcp = async {
            let (Some(tcp), Some(address)) = (tcp, options.listen) else { return pending().await };
            services(&store, &options.node, address.to_string()).await.serve_with_incoming(of_tcp(tcp)).await
        };
        tokio::select! {
            () = filling => Ok(()),
            ended = on_unix => ended.map_err(io::Error::other),
            ended = on_tcp => ended.map_err(io::Error::other),
        }
    }
}

async fn services(store: &Arc<Store>, node: &str, address: String) -> Router {
    let (reporter, health) = tonic_health::server::health_reporter();
    reporter.set_service_status(HEALTH, ServingStatus::Serving).await;
    let observer = FromRing { store: store.clone(), node: node.to_owned(), address: address.clone() };
    let peer = OneNode { node: node.to_owned(), address };
    tonic::transport::Server::builder()
        .http2_keepalive_interval(Some(KEEPALIVE))
        .max_concurrent_streams(Some(STREAMS))
        .add_service(health)
        .add_service(ObserverServer::new(observer))
        .add_service(PeerServer::new(peer))
}

/// Connections of root.
fn of_root(listener: tokio::net::UnixListener) -> impl Stream<Item = io::Result<Seated<UnixStream>>> {
    stream::unfold((listener, places()), |(listener, places)| async {
        loop {
            let place = places.clone().acquire_owned().await.ok()?;
            match listener.accept().await {
                Ok((stream, _)) if socket::is_root(&stream) => {
                    return Some((Ok(Seated::new(stream, place)), (listener, places)));
                }
                Ok(_) => {}
                // No descriptor is left: one comes free when a client goes.
                Err(_) => tokio::time::sleep(END).await,
            }
        }
    })
}

fn of_tcp(listener: tokio::net::TcpListener) -> impl Stream<Item = io::Result<Seated<TcpStream>>> {
    stream::unfold((listener, places()), |(listener, places)| async {
        loop {
            let place = places.clone().acquire_owned().await.ok()?;
            match listener.accept().await {
                Ok((stream, _)) => {
                    // Slower without, but served.
                    let _ = stream.set_nodelay(true);
                    return Some((Ok(Seated::new(stream, place)), (listener, places)));
                }
                Err(_) => tokio::time::sleep(END).await,
            }
        }
    })
}

/// Each socket has its own: who fills the one keeps nobody from the other.
fn places() -> Arc<Semaphore> {
    Arc::new(Semaphore::new(CLIENTS))
}
