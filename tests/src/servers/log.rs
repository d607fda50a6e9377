//! Contacts that reached a listener.

use std::net::SocketAddr;
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

/// Transport of a contact.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Proto {
    /// A connection was accepted.
    Tcp,
    /// A datagram arrived.
    Udp,
}

/// One connection or datagram.
#[derive(Clone, Debug)]
pub struct Hit {
    /// Transport.
    pub proto: Proto,
    /// The address that was reached.
    pub local: SocketAddr,
    /// Who came.
    pub peer: SocketAddr,
    /// Bytes of the datagram; 0 for a connection.
    pub bytes: usize,
    /// When.
    pub at: Instant,
}

/// All contacts, in order. Clones show the same list.
#[derive(Clone, Debug, Default)]
pub struct Hits(Arc<(Mutex<Vec<Hit>>, Condvar)>);

impl Hits {
    pub(super) fn push(&self, proto: Proto, local: SocketAddr, peer: SocketAddr, bytes: usize) {
        let hit = Hit { proto, local: plain(local), peer: plain(peer), bytes, at: Instant::now() };
        self.0.0.lock().expect("hits").push(hit);
        self.0.1.notify_all();
    }

    /// All contacts so far.
    pub fn all(&self) -> Vec<Hit> {
        self.0.0.lock().expect("hits").clone()
    }

    /// Forgets what came so far.
    pub fn clear(&self) {
        self.0.0.lock().expect("hits").clear();
    }

    /// How often `address:port` was reached.
    pub fn count(&self, proto: Proto, target: &str) -> usize {
        let target = target_of(target);
        self.all().iter().filter(|hit| hit.proto == proto && hit.local == target).count()
    }

    /// Waits until `address:port` was reached; false when `limit` passes first.
    pub fn wait_for(&self, limit: Duration, proto: Proto, target: &str) -> bool {
        let target = target_of(target);
        let end = Instant::now() + limit;
        let mut list = self.0.0.lock().expect("hits");
        while !list.iter().any(|hit| hit.proto == proto && hit.local == target) {
            let Some(left) = end.checked_duration_since(Instant::now()) else { return false };
            list = self.0.1.wait_timeout(list, left).expect("hits").0;
        }
        true
    }
}

fn target_of(text: &str) -> SocketAddr {
    text.parse().unwrap_or_else(|_| panic!("{text} is no address:port"))
}

/// A v4-mapped address as IPv4.
pub(super) fn plain(address: SocketAddr) -> SocketAddr {
    SocketAddr::new(address.ip().to_canonical(), address.port())
}
