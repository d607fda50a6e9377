//! Sockets made inside a place and driven from the test. A socket belongs to the cgroup of the process
//! that made it, so a test thread cannot make one for the workload: `egret-probe serve` runs there (under
//! `egret run` or without) and does what it is told, a line of JSON at a time.

mod cycle;
mod dns;
mod ops;
mod outcome;
mod proto;
mod serve;
mod session;
mod sockaddr;

pub use outcome::{Answer, Conn, Tried, is_refusal};
pub use proto::{Cycled, Datagram, Reply, Request, UdpMode};
pub use serve::serve;
pub use session::Session;

use std::path::PathBuf;

/// Where the probe's binary is: beside the test's own directory in target/.
pub fn binary() -> PathBuf {
    if let Some(path) = std::env::var_os("EGRET_PROBE_BIN") {
        return path.into();
    }
    let path = crate::egret::profile_dir().join("egret-probe");
    assert!(path.exists(), "{path:?} is missing: build it with `cargo build -p egret-tests --bins`");
    path
}
