//! Name look-ups of the probe: by the C library, and by messages that the test wrote.

use std::ffi::{CStr, CString};
use std::io::{self, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpStream, UdpSocket};
use std::time::{Duration, Instant};

use super::ops;
use super::proto::Reply;
use super::sockaddr::{errno, socket};

pub(super) fn resolve(name: &str, family: u8) -> Reply {
    match getaddrinfo(name, family) {
        Ok(addresses) => Reply::Resolved { addresses, error: String::new() },
        Err(error) => Reply::Resolved { addresses: Vec::new(), error },
    }
}

fn getaddrinfo(name: &str, family: u8) -> Result<Vec<IpAddr>, String> {
    let name = CString::new(name).map_err(|error| error.to_string())?;
    // SAFETY: an all-zero addrinfo is valid as hints.
    let mut hints: libc::addrinfo = unsafe { std::mem::zeroed() };
    hints.ai_socktype = libc::SOCK_STREAM;
    hints.ai_family = match family {
        4 => libc::AF_INET,
        6 => libc::AF_INET6,
        _ => libc::AF_UNSPEC,
    };
    let mut list = std::ptr::null_mut();
    // SAFETY: the strings are NUL-terminated, hints and list live for the call; on success the list is
    // valid until it is freed below, and its addresses have the type that their family says.
    unsafe {
        let code = libc::getaddrinfo(name.as_ptr(), std::ptr::null(), &raw const hints, &raw mut list);
        if code != 0 {
            return Err(CStr::from_ptr(libc::gai_strerror(code)).to_string_lossy().into_owned());
        }
        let mut addresses = Vec::new();
        let mut entry = list;
        while let Some(info) = entry.as_ref() {
            addresses.extend(match info.ai_family {
                libc::AF_INET => {
                    let raw = info.ai_addr.cast::<libc::sockaddr_in>().read();
                    Some(IpAddr::from(raw.sin_addr.s_addr.to_ne_bytes()))
                }
                libc::AF_INET6 => {
                    let raw = info.ai_addr.cast::<libc::sockaddr_in6>().read();
                    Some(IpAddr::from(raw.sin6_addr.s6_addr))
                }
                _ => None,
            });
            entry = info.ai_next;
        }
        libc::freeaddrinfo(list);
        Ok(addresses)
    }
}

/// Sends all messages, then waits for `expect` answers.
pub(super) fn exchange(
    server: SocketAddr,
    tcp: bool,
    messages: &[Vec<u8>],
    expect: usize,
    port: u16,
    limit: Duration,
) -> Reply {
    let mut answers = Vec::new();
    let result = if tcp {
        over_tcp(server, messages, expect, port, limit, &mut answers)
    } else {
        over_udp(server, messages, expect, port, limit, &mut answers)
    };
    Reply::Dns { answers, errno: result.err().as_ref().map_or(0, errno) }
}

fn over_udp(
    server: SocketAddr,
    messages: &[Vec<u8>],
    expect: usize,
    port: u16,
    limit: Duration,
    answers: &mut Vec<Vec<u8>>,
) -> io::Result<()> {
    let socket = UdpSocket::from(socket(server, libc::SOCK_DGRAM, 0, port)?);
    for message in messages {
        socket.send_to(message, server)?;
    }
    let end = Instant::now() + limit;
    let mut buffer = vec![0; 65536];
    while answers.len() < expect {
        socket.set_read_timeout(Some(left(end)))?;
        let (count, from) = socket.recv_from(&mut buffer)?;
        if from == server {
            answers.push(buffer[..count].to_vec());
        }
    }
    Ok(())
}

fn over_tcp(
    server: SocketAddr,
    messages: &[Vec<u8>],
    expect: usize,
    port: u16,
    limit: Duration,
    answers: &mut Vec<Vec<u8>>,
) -> io::Result<()> {
    let mut stream: TcpStream = ops::connect(server, port, limit)?;
    let mut bytes = Vec::new();
    for message in messages {
        bytes.extend((message.len() as u16).to_be_bytes());
        bytes.extend(message);
    }
    stream.write_all(&bytes)?;
    let end = Instant::now() + limit;
    while answers.len() < expect {
        let mut length = [0; 2];
        stream.set_read_timeout(Some(left(end)))?;
        stream.read_exact(&mut length)?;
        let mut message = vec![0; usize::from(u16::from_be_bytes(length))];
        stream.read_exact(&mut message)?;
        answers.push(message);
    }
    Ok(())
}

fn left(end: Instant) -> Duration {
    end.saturating_duration_since(Instant::now()).max(Duration::from_millis(1))
}
