//! Metrics for Prometheus, and whether the agent is alive and ready, over HTTP (`--metrics`).
//!
//! ```text
//!  Keeper ──Snapshot, once a second──> watch ──┐
//!                                              ├──> a thread of its own ──> /metrics, /livez, /readyz
//!  kernel's maps <──Reader, when asked─────────┤
//!  flows ──counted by observe::Meters, locked──┘
//! ```
//! Owns the names of the metrics and what they mean. Must not know: pods, addresses. Every label has a fixed set of values,
//! but for policies' names and Hubble's metrics, which are bounded where they are counted ([`Verdicts`], [`Meters`]) and
//! escaped where they are written (`series`). Nothing here is waited for by the loop, and a scrape makes
//! it do nothing: what it knows is published whether anybody asks or not, and what the kernel counts is read here, with
//! handles of its own, at most once a second.

mod histogram;
mod hubble;
mod kernel;
mod page;
mod series;
mod server;

use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::time::{Instant, SystemTime};
use std::{io, thread};

use tokio::sync::watch;

use crate::datapath::Reader;
use crate::learn::Counts;
use crate::observe::{Meters, Verdicts};
pub use histogram::Histogram;
use kernel::Kernel;
use server::Shared;

/// What is known of an agent before it has begun.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct About {
    /// When the process began.
    pub started: SystemTime,
    /// Maps and programs were there already.
    pub adopted: bool,
    /// Nothing is held back.
    pub audit: bool,
}

/// Endpoints by state, as `egret endpoint list` names them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Endpoints {
    /// Held.
    pub ready: u64,
    /// Found, but the programs are not in their places.
    pub not_ready: u64,
    /// Not found yet.
    pub waiting: u64,
    /// There was no number for them.
    pub crowded_out: u64,
}

/// What follows from the objects.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Objects {
    /// Identities that pods have.
    pub identities: u64,
    /// Policies in force.
    pub policies: u64,
    /// Objects, and files that cannot be read, whose newest version is not in force since it is bad.
    pub bad: u64,
}

/// What the loop knows.
#[derive(Debug, Clone, PartialEq)]
pub struct Snapshot {
    /// The endpoints.
    pub endpoints: Endpoints,
    /// The objects.
    pub objects: Objects,
    /// Changes of what is enforced.
    pub changes: u64,
    /// When the last of them was put in force.
    pub changed: SystemTime,
    /// The source cannot tell of its newest state.
    pub source_trouble: bool,
    /// The newest policies cannot be compiled.
    pub compile_failed: bool,
    /// The kernel's maps did not take everything.
    pub maps_incomplete: bool,
    /// Look-ups and answers.
    pub dns: Counts,
    /// From a look-up to its answer.
    pub dns_latency: Histogram,
    /// How often each policy decided.
    pub verdicts: Verdicts,
    /// Grants that were prolonged for an open connection.
    pub kept: u64,
    /// Flows that were to be exported, and could not be written.
    pub unexported: u64,
    /// How long it took to compile a change.
    pub compile: Histogram,
    /// How long it took to put it into the kernel's maps.
    pub apply: Histogram,
}

/// The newest snapshot and when it came; `None`: the agent does not know its objects yet.
type Newest = Option<(Instant, Arc<Snapshot>)>;

/// The loop's end: never waits.
#[derive(Debug)]
pub struct Publisher(watch::Sender<Newest>);

impl Publisher {
    /// This is what the loop knows now; the agent is ready.
    pub fn publish(&self, snapshot: Snapshot) {
        self.0.send_replace(Some((Instant::now(), Arc::new(snapshot))));
    }
}

/// Takes the address: whoever is to serve there knows early that he cannot.
///
/// # Errors
/// What the system says.
pub fn bind(address: SocketAddr) -> io::Result<TcpListener> {
    let listener = TcpListener::bind(address)?;
    listener.set_nonblocking(true)?;
    Ok(listener)
}

/// What is served where.
#[derive(Debug, Default)]
pub struct Places {
    /// The agent's own metrics.
    pub own: Option<TcpListener>,
    /// Hubble's metrics; `None`: beside the agent's own.
    pub hubble: Option<TcpListener>,
    /// The same, if they are counted.
    pub meters: Option<Meters>,
}

/// Serves until the process ends.
///
/// # Errors
/// No thread can be had.
pub fn serve(places: Places, about: About, reader: Reader) -> io::Result<Publisher> {
    let (publisher, newest) = watch::channel(None);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_io().enable_time().build()?;
    let Places { own, hubble, meters } = places;
    let beside = meters.clone().filter(|_| hubble.is_none());
    let shared = Shared { about, newest: newest.clone(), kernel: Some(Kernel::new(reader)), meters: beside };
    let apart = Shared { about, newest, kernel: None, meters };
    thread::Builder::new().name("egret-metrics".into()).spawn(move || {
        // Without it the agent goes on; whoever scrapes sees that nobody answers.
        if let Err(error) = runtime.block_on(server::serve([(own, shared), (hubble, apart)])) {
            crate::tell::line(format_args!("warning: metrics are not served any more: {error}"));
        }
    })?;
    Ok(Publisher(publisher))
}
