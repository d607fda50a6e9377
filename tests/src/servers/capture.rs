//! Packets that arrive in a namespace, whether anybody listens or not: the proof that something was
//! *not* sent.

use std::net::IpAddr;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use crate::netns::Ns;
use crate::wait::{self, Stop};

/// One IP packet that came in from outside.
#[derive(Clone, Debug)]
pub struct Seen {
    /// Source address.
    pub source: IpAddr,
    /// Destination address.
    pub destination: IpAddr,
    /// Protocol after IPv6 extension headers (6 TCP, 17 UDP, ...).
    pub protocol: u8,
    /// Source and destination port; `None` for other protocols and non-first fragments.
    pub ports: Option<(u16, u16)>,
    /// Byte offset of a fragment; 0 for a first or whole one.
    pub fragment_offset: u16,
    /// From the IP header on.
    pub bytes: Vec<u8>,
}

/// A running capture; ends when dropped.
#[derive(Debug)]
pub struct Capture {
    seen: Arc<Mutex<Vec<Seen>>>,
    stop: Stop,
    thread: Option<JoinHandle<()>>,
}

impl Capture {
    /// Captures all that enters `ns` by any device but lo.
    pub fn start(ns: &Ns) -> Self {
        let socket = ns.run(open);
        let seen = Arc::new(Mutex::new(Vec::new()));
        let stop = Stop::new();
        let (list, signal) = (seen.clone(), stop.clone());
        let thread = thread::spawn(move || {
            while signal.readable(&[socket.as_fd()]).is_some() {
                if let Some(packet) = receive(&socket) {
                    list.lock().expect("capture").push(packet);
                }
            }
        });
        Self { seen, stop, thread: Some(thread) }
    }

    /// All packets so far.
    pub fn all(&self) -> Vec<Seen> {
        self.seen.lock().expect("capture").clone()
    }

    /// How many packets to this address were seen, of any kind.
    pub fn count_to(&self, destination: &str) -> usize {
        let address: IpAddr = destination.parse().expect("an address");
        self.all().iter().filter(|seen| seen.destination == address).count()
    }

    /// Waits for a packet that `pick` takes.
    pub fn wait_for(&self, limit: Duration, pick: impl Fn(&Seen) -> bool) -> Option<Seen> {
        wait::until(limit, || self.all().into_iter().find(&pick))
    }
}

impl Drop for Capture {
    fn drop(&mut self) {
        self.stop.raise();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn open() -> OwnedFd {
    let protocol = i32::from((libc::ETH_P_ALL as u16).to_be());
    let kind = libc::SOCK_DGRAM | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
    // SAFETY: socket() takes integers; its result is a fresh descriptor or negative.
    let fd = unsafe { libc::socket(libc::AF_PACKET, kind, protocol) };
    assert!(fd >= 0, "packet socket: {}", std::io::Error::last_os_error());
    let size: i32 = 16 << 20;
    // SAFETY: the option's value is an i32 that lives for the call. A smaller buffer is no error.
    unsafe {
        let value = (&raw const size).cast();
        libc::setsockopt(fd, libc::SOL_SOCKET, libc::SO_RCVBUFFORCE, value, size_of::<i32>() as u32);
        OwnedFd::from_raw_fd(fd)
    }
}

fn receive(socket: &OwnedFd) -> Option<Seen> {
    let mut buffer = vec![0; 65536];
    // SAFETY: an all-zero sockaddr_ll is valid.
    let mut from: libc::sockaddr_ll = unsafe { std::mem::zeroed() };
    let mut length = size_of::<libc::sockaddr_ll>() as u32;
    // SAFETY: buffer and address are valid for the lengths passed.
    let count = unsafe {
        let (bytes, address) = (buffer.as_mut_ptr().cast(), (&raw mut from).cast());
        libc::recvfrom(socket.as_raw_fd(), bytes, buffer.len(), 0, address, &raw mut length)
    };
    let outgoing = from.sll_pkttype == libc::PACKET_OUTGOING;
    // Hardware type 772 is loopback.
    if count <= 0 || outgoing || from.sll_hatype == 772 {
        return None;
    }
    buffer.truncate(count as usize);
    dissect(buffer)
}

/// Reads an IP packet far enough for [`Seen`]; anything else is `None`.
pub fn dissect(bytes: Vec<u8>) -> Option<Seen> {
    let (source, destination, protocol, at, offset) = match bytes.first()? >> 4 {
        4 if bytes.len() >= 20 => v4(&bytes)?,
        6 if bytes.len() >= 40 => v6(&bytes)?,
        _ => return None,
    };
    let has_ports = matches!(protocol, 6 | 17 | 132) && offset == 0;
    let ports = bytes.get(at..at + 4).filter(|_| has_ports);
    let ports = ports.map(|p| (u16::from_be_bytes([p[0], p[1]]), u16::from_be_bytes([p[2], p[3]])));
    Some(Seen { source, destination, protocol, ports, fragment_offset: offset, bytes })
}

type Parts = (IpAddr, IpAddr, u8, usize, u16);

fn v4(bytes: &[u8]) -> Option<Parts> {
    let address = |at: usize| <[u8; 4]>::try_from(&bytes[at..at + 4]).ok().map(IpAddr::from);
    let offset = (u16::from_be_bytes([bytes[6], bytes[7]]) & 0x1fff) * 8;
    Some((address(12)?, address(16)?, bytes[9], usize::from(bytes[0] & 15) * 4, offset))
}

fn v6(bytes: &[u8]) -> Option<Parts> {
    let address = |at: usize| <[u8; 16]>::try_from(&bytes[at..at + 16]).ok().map(IpAddr::from);
    let (mut next, mut at, mut offset) = (bytes[6], 40, 0);
    while matches!(next, 0 | 43 | 44 | 51 | 60) && offset == 0 {
        let Some(header) = bytes.get(at..at + 8) else { break };
        let length = match next {
            44 => {
                offset = u16::from_be_bytes([header[2], header[3]]) & 0xfff8;
                8
            }
            51 => (usize::from(header[1]) + 2) * 4,
            _ => (usize::from(header[1]) + 1) * 8,
        };
        next = header[0];
        at += length;
    }
    Some((address(8)?, address(24)?, next, at, offset))
}
