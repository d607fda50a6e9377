//! Flows for whoever observes: records of the kernel joined with what the agent knows, kept in a ring, served as Hubble's
//! API.
//!
//! ```text
//!  FlowEvent, DNS message ──join, dns (ask Known)──> Flow ──Feeder──> bounded queue ──> Store: Ring, Tally, Meters
//!  hubble, egret observe  <──gRPC── observer, peer, health <──message, mask── Reader <──────┤   (a thread of its own)
//!  AgentEvent ──Feeder──> bounded queue ──> Events ──> observer
//!  a file, rotated        <──────── export: a thread for the disk <──lines of JSON── Reader <┘
//! ```
//! Owns: the queue, the ring and the sockets. Must not know: how the agent keeps what it knows ([`Known`] answers). The
//! loop that feeds it never waits: what the queue does not take is counted, and the count is part of the stream.

mod dns;
mod events;
mod export;
mod feed;
mod join;
pub(crate) mod json;
mod known;
mod latency;
mod mask;
pub(crate) mod message;
mod meters;
mod observer;
mod peer;
pub mod proto;
pub(crate) mod request;
mod seat;
mod serve;
mod store;
mod tcp;
mod verdicts;
mod words;

use std::time::{SystemTime, UNIX_EPOCH};

pub use events::{AgentEvent, EndpointRef};
pub use export::{Destination, ExportOptions};
pub use feed::Feeder;
pub use known::{Known, Local};
pub use meters::Meters;
pub use serve::{Listen, Options, Server, start};
pub use tcp::ServerFiles;
pub use verdicts::{Counts, Verdicts};

use crate::host;

/// Now, in nanoseconds since 1970.
pub(crate) fn now() -> u64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |d| u64::try_from(d.as_nanos()).unwrap_or(u64::MAX))
}

/// What to add to boot time, the clock of records, to get nanoseconds since 1970. Asked anew for every batch, since that
/// clock may be set.
fn clock() -> u64 {
    now().saturating_sub(host::boot_ns())
}
