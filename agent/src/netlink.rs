//! rtnetlink(7), as little of it as is needed: one request, its answers, attributes in and out; and that something has
//! happened.
//!
//! Owns sockets, headers and the walk over attributes. Must not know what a message is about. The socket belongs to the
//! network namespace of the thread that opens it.

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

/// Length of `struct nlmsghdr`.
const HEADER: usize = 16;
/// Room for one datagram of answers; the kernel sends at most 32 KiB at a time.
const DATAGRAM: usize = 64 << 10;

/// An rtnetlink socket.
#[derive(Debug)]
pub struct Netlink {
    socket: OwnedFd,
    sequence: u32,
}

/// One answer: its type, and what stands behind the header.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Message {
    /// `RTM_*`.
    pub kind: u16,
    /// The family's header and the attributes.
    pub body: Vec<u8>,
}

impl Netlink {
    /// Opens a socket in this thread's network namespace.
    pub fn open() -> io::Result<Self> {
        Ok(Self { socket: socket(0)?, sequence: 0 })
    }

    /// A request that is done or refused.
    pub fn act(&mut self, kind: u16, flags: i32, body: &[u8]) -> io::Result<()> {
        self.send(kind, flags | libc::NLM_F_ACK, body)?;
        self.answers().map(drop)
    }

    /// A request whose answer is a list.
    pub fn dump(&mut self, kind: u16, body: &[u8]) -> io::Result<Vec<Message>> {
        self.send(kind, libc::NLM_F_DUMP, body)?;
        self.answers()
    }

    fn send(&mut self, kind: u16, flags: i32, body: &[u8]) -> io::Result<()> {
        self.sequence += 1;
        let mut message = Vec::with_capacity(HEADER + body.len());
        message.extend(((HEADER + body.len()) as u32).to_ne_bytes());
        message.extend(kind.to_ne_bytes());
        message.extend(((flags | libc::NLM_F_REQUEST) as u16).to_ne_bytes());
        message.extend(self.sequence.to_ne_bytes());
        message.extend([0; 4]);
        message.extend(body);
        // SAFETY: `message` is valid for its length.
        let sent = unsafe { libc::send(self.socket.as_raw_fd(), message.as_ptr().cast(), message.len(), 0) };
        if sent < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
    }

    /// Everything up to the acknowledgement or the end of the list.
    fn answers(&mut self) -> io::Result<Vec<Message>> {
        let mut buffer = vec![0u8; DATAGRAM];
        let mut out = Vec::new();
        loop {
            // SAFETY: `buffer` is writable for its length.
            let got =
                unsafe { libc::recv(self.socket.as_raw_fd(), buffer.as_mut_ptr().cast(), buffer.len(), 0) };
            let Ok(got) = usize::try_from(got) else { return Err(io::Error::last_os_error()) };
            if read(buffer.get(..got).unwrap_or_default(), self.sequence, &mut out)? {
                return Ok(out);
            }
        }
    }
}

/// News of this thread's network namespace, unread.
#[derive(Debug)]
pub struct Subscription(OwnedFd);

impl Subscription {
    /// That an interface comes, changes or goes.
    pub fn to_links() -> io::Result<Self> {
        let socket = socket(libc::SOCK_NONBLOCK)?;
        // SAFETY: an all-zero address is a valid one.
        let mut address: libc::sockaddr_nl = unsafe { std::mem::zeroed() };
        address.nl_family = libc::AF_NETLINK as u16;
        address.nl_groups = libc::RTMGRP_LINK as u32;
        let len = size_of::<libc::sockaddr_nl>() as libc::socklen_t;
        // SAFETY: `address` is valid for `len`.
        match unsafe { libc::bind(socket.as_raw_fd(), (&raw const address).cast(), len) } {
            0 => Ok(Self(socket)),
            _ => Err(io::Error::last_os_error()),
        }
    }

    /// Throws away what has come, and says whether anything had. Lost news (`ENOBUFS`) are news.
    pub fn drain(&self) -> io::Result<bool> {
        let mut buffer = [0u8; 4096];
        let mut any = false;
        loop {
            // SAFETY: `buffer` is writable for its length; what does not fit is cut off, and nobody reads it.
            let got = unsafe { libc::recv(self.0.as_raw_fd(), buffer.as_mut_ptr().cast(), buffer.len(), 0) };
            if got >= 0 {
                any = true;
                continue;
            }
            let error = io::Error::last_os_error();
            match error.raw_os_error() {
                Some(libc::EAGAIN) => return Ok(any),
                Some(libc::ENOBUFS | libc::EINTR) => any = true,
                _ => return Err(error),
            }
        }
    }
}

/// A socket with these flags beside the usual ones.
fn socket(flags: i32) -> io::Result<OwnedFd> {
    let kind = libc::SOCK_RAW | libc::SOCK_CLOEXEC | flags;
    // SAFETY: a plain system call.
    let fd = unsafe { libc::socket(libc::AF_NETLINK, kind, libc::NETLINK_ROUTE) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: a new descriptor that nobody else owns.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Takes the messages of one datagram. True: that was the last.
fn read(mut bytes: &[u8], sequence: u32, out: &mut Vec<Message>) -> io::Result<bool> {
    while let (Some(len), Some(kind), Some(number)) = (u32_at(bytes, 0), u16_at(bytes, 4), u32_at(bytes, 8)) {
        let len = len as usize;
        let Some(body) = bytes.get(HEADER..len) else { break };
        // An answer to an earlier request that was given up.
        if number == sequence {
            match i32::from(kind) {
                libc::NLMSG_DONE => return Ok(true),
                libc::NLMSG_ERROR => return errno(body).map(|()| true),
                _ => out.push(Message { kind, body: body.to_vec() }),
            }
        }
        bytes = bytes.get(len.next_multiple_of(4)..).unwrap_or_default();
    }
    Ok(false)
}

/// `struct nlmsgerr`: the negative errno first; 0 is the acknowledgement.
fn errno(body: &[u8]) -> io::Result<()> {
    match u32_at(body, 0).map_or(-libc::EBADMSG, |word| word as i32) {
        0 => Ok(()),
        errno => Err(io::Error::from_raw_os_error(-errno)),
    }
}

/// Appends an attribute.
pub fn put(body: &mut Vec<u8>, kind: u16, value: &[u8]) {
    body.extend(((4 + value.len()) as u16).to_ne_bytes());
    body.extend(kind.to_ne_bytes());
    body.extend(value);
    body.resize(body.len().next_multiple_of(4), 0);
}

/// The attributes in `bytes`: type without its flag bits, and value.
pub fn attributes(mut bytes: &[u8]) -> impl Iterator<Item = (u16, &[u8])> {
    std::iter::from_fn(move || {
        let len = usize::from(u16_at(bytes, 0)?);
        let kind = u16_at(bytes, 2)? & 0x3fff;
        let value = bytes.get(4..len)?;
        bytes = bytes.get(len.next_multiple_of(4)..).unwrap_or_default();
        Some((kind, value))
    })
}

/// The first attribute of a type.
#[must_use]
pub fn attribute(bytes: &[u8], kind: u16) -> Option<&[u8]> {
    attributes(bytes).find(|(found, _)| *found == kind).map(|(_, value)| value)
}

/// A text attribute, without its final zero.
#[must_use]
pub fn text(value: &[u8]) -> String {
    let text = value.split(|byte| *byte == 0).next().unwrap_or_default();
    String::from_utf8_lossy(text).into_owned()
}

/// Four bytes in host order.
#[must_use]
pub fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_ne_bytes(bytes.get(at..at + 2)?.try_into().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attributes_are_read_as_they_are_written() {
        let mut body = Vec::new();
        put(&mut body, 1, b"bpf\0");
        put(&mut body, 2, &[7]);
        put(&mut body, 0x8003, &[]);
        assert_eq!(body.len(), 8 + 8 + 4);
        let found: Vec<_> = attributes(&body).collect();
        assert_eq!(found, [(1, &b"bpf\0"[..]), (2, &[7][..]), (3, &[][..])]);
        assert_eq!(attribute(&body, 1).map(text).as_deref(), Some("bpf"));
        for len in 0..body.len() {
            assert!(attributes(&body[..len]).count() <= 3, "{len}");
        }
        assert_eq!(attributes(&[3, 0, 1, 0, 0, 0]).count(), 0, "shorter than its own header");
    }

    #[test]
    fn datagrams_end_with_an_acknowledgement_or_an_error() {
        let message = |kind: i32, sequence: u32, body: &[u8]| {
            let mut out = ((HEADER + body.len()) as u32).to_ne_bytes().to_vec();
            out.extend((kind as u16).to_ne_bytes());
            out.extend([0; 2]);
            out.extend(sequence.to_ne_bytes());
            out.extend([0; 4]);
            out.extend(body);
            out
        };
        let mut out = Vec::new();
        let list = [message(44, 7, b"abcd"), message(44, 6, b"late"), message(44, 7, b"efgh")].concat();
        assert!(!read(&list, 7, &mut out).expect("no error"));
        assert_eq!(out.iter().map(|m| &m.body[..]).collect::<Vec<_>>(), [b"abcd", b"efgh"]);
        assert!(read(&message(libc::NLMSG_DONE, 7, &[]), 7, &mut out).expect("no error"));
        assert!(read(&message(libc::NLMSG_ERROR, 7, &[0; 4]), 7, &mut out).expect("acknowledged"));
        let refused = message(libc::NLMSG_ERROR, 7, &(-libc::EEXIST).to_ne_bytes());
        let error = read(&refused, 7, &mut out).expect_err("refused");
        assert_eq!(error.raw_os_error(), Some(libc::EEXIST));
        assert!(read(&refused, 8, &mut out).is_ok(), "another request's");
        for len in 0..list.len() {
            assert!(read(&list[..len], 7, &mut Vec::new()).is_ok());
        }
    }
}
