//! Socket addresses for the plain system calls.

use std::io;
use std::net::{SocketAddr, SocketAddrV6};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

/// A `sockaddr_storage` with its length.
pub(super) struct Raw {
    storage: libc::sockaddr_storage,
    length: libc::socklen_t,
}

impl Raw {
    pub(super) fn new(address: SocketAddr) -> Self {
        // SAFETY: an all-zero sockaddr_storage is valid.
        let mut storage: libc::sockaddr_storage = unsafe { std::mem::zeroed() };
        let length = match address {
            SocketAddr::V4(v4) => {
                let raw = libc::sockaddr_in {
                    sin_family: libc::AF_INET as u16,
                    sin_port: v4.port().to_be(),
                    sin_addr: libc::in_addr { s_addr: u32::from_ne_bytes(v4.ip().octets()) },
                    sin_zero: [0; 8],
                };
                // SAFETY: sockaddr_storage is larger than and aligned for every sockaddr.
                unsafe { (&raw mut storage).cast::<libc::sockaddr_in>().write(raw) };
                size_of::<libc::sockaddr_in>()
            }
            SocketAddr::V6(v6) => {
                let raw = libc::sockaddr_in6 {
                    sin6_family: libc::AF_INET6 as u16,
                    sin6_port: v6.port().to_be(),
                    sin6_flowinfo: 0,
                    sin6_addr: libc::in6_addr { s6_addr: v6.ip().octets() },
                    sin6_scope_id: v6.scope_id(),
                };
                // SAFETY: as above.
                unsafe { (&raw mut storage).cast::<libc::sockaddr_in6>().write(raw) };
                size_of::<libc::sockaddr_in6>()
            }
        };
        Self { storage, length: length as libc::socklen_t }
    }

    pub(super) fn pointer(&self) -> *const libc::sockaddr {
        (&raw const self.storage).cast()
    }

    pub(super) fn length(&self) -> libc::socklen_t {
        self.length
    }
}

/// A socket of the address's family, bound to `port` of any address unless that is 0.
pub(super) fn socket(to: SocketAddr, kind: i32, protocol: i32, port: u16) -> io::Result<OwnedFd> {
    let family = if to.is_ipv4() { libc::AF_INET } else { libc::AF_INET6 };
    let fd = open(family, kind, protocol)?;
    if port != 0 {
        let one: i32 = 1;
        let any = if to.is_ipv4() { "0.0.0.0" } else { "::" }.parse().expect("an address");
        let raw = Raw::new(SocketAddr::new(any, port));
        // SAFETY: option value and address live for the calls.
        unsafe {
            let value = (&raw const one).cast();
            libc::setsockopt(fd.as_raw_fd(), libc::SOL_SOCKET, libc::SO_REUSEADDR, value, 4);
            check(libc::bind(fd.as_raw_fd(), raw.pointer(), raw.length()))?;
        }
    }
    Ok(fd)
}

pub(super) fn open(family: i32, kind: i32, protocol: i32) -> io::Result<OwnedFd> {
    // SAFETY: socket() takes integers; a result that is not negative is a fresh descriptor.
    unsafe {
        let fd = libc::socket(family, kind | libc::SOCK_CLOEXEC, protocol);
        check(fd)?;
        Ok(OwnedFd::from_raw_fd(fd))
    }
}

pub(super) fn check(result: i32) -> io::Result<()> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// `::ffff:a.b.c.d` for an IPv4 address if `mapped`.
pub(super) fn target(to: SocketAddr, mapped: bool) -> SocketAddr {
    match to {
        SocketAddr::V4(v4) if mapped => SocketAddrV6::new(v4.ip().to_ipv6_mapped(), v4.port(), 0, 0).into(),
        other => other,
    }
}

pub(super) fn errno(error: &io::Error) -> i32 {
    match error.kind() {
        io::ErrorKind::TimedOut | io::ErrorKind::WouldBlock => libc::ETIMEDOUT,
        _ => error.raw_os_error().unwrap_or(libc::EIO),
    }
}
