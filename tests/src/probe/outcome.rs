//! What a test is told about an attempt, and what it may expect of it.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

/// A connection that the probe keeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Conn {
    /// Its number.
    pub id: u64,
    /// The probe's end.
    pub local: SocketAddr,
}

/// What came of trying to connect.
#[derive(Clone, Debug)]
pub struct Tried {
    /// The connection, or the errno.
    pub result: Result<Conn, i32>,
    /// How long it took, the talk with the probe included.
    pub elapsed: Duration,
}

impl Tried {
    /// Panics unless it connected.
    #[track_caller]
    pub fn allowed(&self) -> Conn {
        self.result.unwrap_or_else(|errno| panic!("expected a connection, got errno {errno}: {self:?}"))
    }

    /// Panics unless it failed at once with EPERM or EACCES.
    #[track_caller]
    pub fn refused(&self) {
        assert!(self.result.is_err_and(is_refusal), "expected EPERM or EACCES, got {self:?}");
        let limit = crate::wait::patient(Duration::from_millis(500));
        assert!(self.elapsed < limit, "refused, but late: {self:?}");
    }

    /// Panics if it connected.
    #[track_caller]
    pub fn denied(&self) {
        assert!(self.result.is_err(), "expected no connection, got {self:?}");
    }
}

/// What the C library said about a name.
#[derive(Clone, Debug)]
pub struct Answer {
    /// Addresses in its order.
    pub addresses: Vec<IpAddr>,
    /// Its error, empty if none.
    pub error: String,
    /// How long it took.
    pub elapsed: Duration,
}

impl Answer {
    /// The first address as text; panics if there is none.
    #[track_caller]
    pub fn first(&self) -> String {
        assert!(!self.addresses.is_empty(), "the name did not resolve: {self:?}");
        self.addresses[0].to_string()
    }

    /// Panics if the name resolved.
    #[track_caller]
    pub fn failed(&self) {
        assert!(self.addresses.is_empty(), "the name should not resolve: {self:?}");
    }
}

/// Whether this errno is a refusal that came at once, rather than a failure of another kind.
pub fn is_refusal(errno: i32) -> bool {
    matches!(errno, libc::EPERM | libc::EACCES)
}
