//! What listens in the outer world: TCP and UDP on every address of a namespace, each contact logged,
//! and a capture of the packets that arrive at all.

mod capture;
mod log;
mod tcp;
mod udp;

use std::thread::{self, JoinHandle};

pub use capture::{Capture, Seen, dissect};
pub use log::{Hit, Hits, Proto};

use crate::netns::Ns;
use crate::wait::Stop;

/// TCP ports that [`Servers::standard`] opens.
pub const TCP_PORTS: [u16; 10] = [22, 80, 443, 853, 5000, 5001, 8080, 8443, 27017, 5432];
/// UDP ports that [`Servers::standard`] opens.
pub const UDP_PORTS: [u16; 6] = [443, 853, 5000, 5001, 8080, 9999];

/// Listeners on all addresses of one namespace, IPv4 and IPv6; they end when dropped.
///
/// TCP speaks HTTP/1.1 to who speaks HTTP (the body names the address that was reached) and otherwise
/// sends every line back. UDP sends every datagram back from the address that it was sent to.
#[derive(Debug)]
pub struct Servers {
    hits: Hits,
    stop: Stop,
    threads: Vec<JoinHandle<()>>,
}

impl Servers {
    /// The ports that the cases use.
    pub fn standard(ns: &Ns) -> Self {
        Self::start(ns, &TCP_PORTS, &UDP_PORTS)
    }

    /// Listens on these ports of every address of `ns`.
    pub fn start(ns: &Ns, tcp_ports: &[u16], udp_ports: &[u16]) -> Self {
        let hits = Hits::default();
        let stop = Stop::new();
        let listeners = ns.run(|| tcp::bind_all(tcp_ports));
        let sockets = ns.run(|| udp::bind_all(udp_ports));
        let (h, s) = (hits.clone(), stop.clone());
        let tcp = thread::spawn(move || tcp::serve(&listeners, &h, &s));
        let (h, s) = (hits.clone(), stop.clone());
        let udp = thread::spawn(move || udp::serve(&sockets, &h, &s));
        Self { hits, stop, threads: vec![tcp, udp] }
    }

    /// Who came.
    pub fn hits(&self) -> &Hits {
        &self.hits
    }
}

impl Drop for Servers {
    fn drop(&mut self) {
        self.stop.raise();
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}
