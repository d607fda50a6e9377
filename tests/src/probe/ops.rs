//! Connections and datagrams of the probe.

use std::io::{self, BufRead, BufReader, Write};
use std::net::{IpAddr, SocketAddr, TcpStream, UdpSocket};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::time::{Duration, Instant};

use super::proto::{Datagram, UdpMode};
use super::sockaddr::{Raw, check, errno, socket};
use crate::wait;

/// Connects without blocking and waits at most `limit`.
pub(super) fn connect(to: SocketAddr, port: u16, limit: Duration) -> io::Result<TcpStream> {
    let fd = socket(to, libc::SOCK_STREAM | libc::SOCK_NONBLOCK, 0, port)?;
    let raw = Raw::new(to);
    // SAFETY: the address lives for the call.
    let started = check(unsafe { libc::connect(fd.as_raw_fd(), raw.pointer(), raw.length()) });
    finish_connect(fd, started, limit)
}

/// Sends `data` with the SYN.
pub(super) fn fast_open(to: SocketAddr, port: u16, data: &[u8], limit: Duration) -> io::Result<TcpStream> {
    let fd = socket(to, libc::SOCK_STREAM | libc::SOCK_NONBLOCK, 0, port)?;
    let raw = Raw::new(to);
    // SAFETY: data and address live for the call.
    let sent = unsafe {
        let bytes = data.as_ptr().cast();
        libc::sendto(fd.as_raw_fd(), bytes, data.len(), libc::MSG_FASTOPEN, raw.pointer(), raw.length())
    };
    let stream = finish_connect(fd, check(sent as i32), limit)?;
    // Without a cookie the kernel connects first and takes no data.
    if sent < 0 {
        (&stream).write_all(data)?;
    }
    Ok(stream)
}

fn finish_connect(fd: OwnedFd, started: io::Result<()>, limit: Duration) -> io::Result<TcpStream> {
    match started {
        Err(error) if error.raw_os_error() != Some(libc::EINPROGRESS) => return Err(error),
        _ => {}
    }
    if !wait::writable_within(fd.as_fd(), limit)? {
        return Err(io::ErrorKind::TimedOut.into());
    }
    let stream = TcpStream::from(fd);
    if let Some(error) = stream.take_error()? {
        return Err(error);
    }
    stream.set_nonblocking(false)?;
    stream.set_nodelay(true)?;
    Ok(stream)
}

/// Sends a line and reads until it is back.
pub(super) fn echo(stream: &TcpStream, text: &str, limit: Duration) -> io::Result<()> {
    stream.set_write_timeout(Some(limit))?;
    let mut writer = stream;
    writer.write_all(format!("{text}\n").as_bytes())?;
    await_line(stream, text, Instant::now() + limit)
}

/// Sends `bytes` in lines of 1 KiB and reads until the last one is back.
pub(super) fn upload(stream: &TcpStream, bytes: usize, limit: Duration) -> io::Result<()> {
    let end = Instant::now() + limit;
    let reader = stream.try_clone()?;
    std::thread::scope(|scope| {
        let back = scope.spawn(move || await_line(&reader, "last", end));
        // Large writes make full segments.
        let lines = format!("{}\n", "x".repeat(1023)).repeat(64);
        stream.set_write_timeout(Some(limit))?;
        let mut writer = stream;
        for _ in 0..bytes.div_ceil(lines.len()) {
            writer.write_all(lines.as_bytes())?;
        }
        writer.write_all(b"last\n")?;
        back.join().unwrap_or_else(|_| Err(io::ErrorKind::Other.into()))
    })
}

fn await_line(stream: &TcpStream, wanted: &str, end: Instant) -> io::Result<()> {
    let mut lines = BufReader::new(stream);
    let mut line = String::new();
    while line.trim_end() != wanted {
        let left = end.saturating_duration_since(Instant::now());
        stream.set_read_timeout(Some(left.max(Duration::from_millis(1))))?;
        line.clear();
        if lines.read_line(&mut line)? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
    }
    Ok(())
}

/// Sends `payload` to each destination and waits for each echo. Each datagram's first byte is its number,
/// so that echoes find their datagram.
pub(super) fn datagrams(
    mode: UdpMode,
    to: &[SocketAddr],
    payload: &[u8],
    port: u16,
    limit: Duration,
) -> io::Result<Vec<Datagram>> {
    let Some(first) = to.first() else { return Ok(Vec::new()) };
    let socket = UdpSocket::from(socket(*first, libc::SOCK_DGRAM, 0, port)?);
    let bodies: Vec<Vec<u8>> = (0..to.len())
        .map(|number| std::iter::once(number as u8).chain(payload.iter().copied()).collect())
        .collect();
    let errors = match mode {
        UdpMode::Connected => {
            let connected = socket.connect(first);
            let send = |body: &Vec<u8>| match &connected {
                Ok(()) => socket.send(body).err().as_ref().map_or(0, errno),
                Err(error) => errno(error),
            };
            bodies.iter().map(send).collect()
        }
        UdpMode::SendTo => bodies
            .iter()
            .zip(to)
            .map(|(body, to)| socket.send_to(body, to).err().as_ref().map_or(0, errno))
            .collect(),
        UdpMode::SendMmsg => send_many(&socket, &bodies, to),
    };
    let mut sent: Vec<Datagram> =
        errors.into_iter().map(|errno: i32| Datagram { errno, echoed: false }).collect();
    collect_echoes(&socket, &mut sent, limit);
    Ok(sent)
}

fn collect_echoes(socket: &UdpSocket, sent: &mut [Datagram], limit: Duration) {
    let end = Instant::now() + limit;
    let mut buffer = vec![0; 65536];
    while sent.iter().any(|datagram| datagram.errno == 0 && !datagram.echoed) {
        let left = end.saturating_duration_since(Instant::now());
        if left.is_zero() || socket.set_read_timeout(Some(left)).is_err() {
            return;
        }
        match socket.recv(&mut buffer) {
            Ok(1..) => {
                if let Some(datagram) = sent.get_mut(usize::from(buffer[0])) {
                    datagram.echoed = true;
                }
            }
            Ok(0) => {}
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(_) => return,
        }
    }
}

/// sendmmsg stops at the first message that fails: go on behind it, as programs do.
fn send_many(socket: &UdpSocket, bodies: &[Vec<u8>], to: &[SocketAddr]) -> Vec<i32> {
    let addresses: Vec<Raw> = to.iter().map(|to| Raw::new(*to)).collect();
    let mut parts: Vec<libc::iovec> = bodies
        .iter()
        .map(|body| libc::iovec { iov_base: body.as_ptr().cast_mut().cast(), iov_len: body.len() })
        .collect();
    let mut messages: Vec<libc::mmsghdr> = addresses
        .iter()
        .zip(&mut parts)
        .map(|(address, part)| {
            // SAFETY: an all-zero mmsghdr is valid.
            let mut message: libc::mmsghdr = unsafe { std::mem::zeroed() };
            message.msg_hdr.msg_name = address.pointer().cast_mut().cast();
            message.msg_hdr.msg_namelen = address.length();
            message.msg_hdr.msg_iov = part;
            message.msg_hdr.msg_iovlen = 1;
            message
        })
        .collect();
    let mut errors = vec![0; messages.len()];
    let mut next = 0;
    while next < messages.len() {
        let rest = &mut messages[next..];
        // SAFETY: the headers, addresses and bodies that they point to live for the call.
        let count = unsafe { libc::sendmmsg(socket.as_raw_fd(), rest.as_mut_ptr(), rest.len() as u32, 0) };
        if count > 0 {
            next += count as usize;
        } else {
            errors[next] = errno(&io::Error::last_os_error());
            next += 1;
        }
    }
    errors
}

/// One echo request by a ping socket.
pub(super) fn ping(to: IpAddr, limit: Duration) -> io::Result<()> {
    let (protocol, kind) = if to.is_ipv4() { (libc::IPPROTO_ICMP, 8) } else { (libc::IPPROTO_ICMPV6, 128) };
    let to = SocketAddr::new(to, 0);
    let socket = UdpSocket::from(socket(to, libc::SOCK_DGRAM, protocol, 0)?);
    socket.send_to(&[kind, 0, 0, 0, 0, 0, 0, 1, b'e', b'g'], to)?;
    socket.set_read_timeout(Some(limit))?;
    socket.recv(&mut [0; 64]).map(|_| ())
}

/// Sends a whole IP packet; needs CAP_NET_RAW.
pub(super) fn raw(bytes: &[u8], to: IpAddr) -> io::Result<()> {
    let to = SocketAddr::new(to, 0);
    let fd = socket(to, libc::SOCK_RAW, libc::IPPROTO_RAW, 0)?;
    let address = Raw::new(to);
    // SAFETY: packet and address live for the call.
    let sent = unsafe {
        let (data, length) = (bytes.as_ptr().cast(), bytes.len());
        libc::sendto(fd.as_raw_fd(), data, length, 0, address.pointer(), address.length())
    };
    check(sent as i32)
}
