//! The race of the first packet: look up, connect at once, repeat.

use std::io;
use std::net::{Ipv6Addr, SocketAddr, UdpSocket};
use std::time::{Duration, Instant};

use super::ops;
use super::proto::Cycled;
use super::sockaddr::errno;
use crate::dnsd::raw;

const LIMIT: Duration = Duration::from_secs(5);

pub(super) fn run(server: SocketAddr, name: &str, port: u16, count: usize) -> io::Result<Cycled> {
    let any = if server.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" };
    let socket = UdpSocket::bind(any)?;
    socket.connect(server)?;
    socket.set_read_timeout(Some(LIMIT))?;
    let mut result = Cycled::default();
    for round in 0..count {
        let start = Instant::now();
        let Some(address) = lookup(&socket, round as u16, name) else {
            result.unresolved += 1;
            continue;
        };
        let looked_up = Instant::now();
        if let Err(error) = ops::connect(SocketAddr::from((address, port)), 0, LIMIT) {
            *result.failed.entry(errno(&error)).or_default() += 1;
        }
        let micros = |from: Instant, to: Instant| (to - from).as_micros() as u64;
        result.slowest_lookup = result.slowest_lookup.max(micros(start, looked_up));
        result.slowest_connect = result.slowest_connect.max(micros(looked_up, Instant::now()));
    }
    Ok(result)
}

/// The last record's address: answers of this test have one record, and no EDNS.
fn lookup(socket: &UdpSocket, id: u16, name: &str) -> Option<Ipv6Addr> {
    let query = raw::Message::new(id, raw::QUERY).question(name, raw::rtype::AAAA).finish();
    socket.send(&query).ok()?;
    let mut buffer = [0; 512];
    loop {
        let count = socket.recv(&mut buffer).ok()?;
        if count >= 28 && buffer[..2] == id.to_be_bytes() {
            return Some(Ipv6Addr::from(<[u8; 16]>::try_from(&buffer[count - 16..count]).ok()?));
        }
    }
}
