//! Ending a TCP connection of CMD: `SOCK_DESTROY` of sock_diag(7).
//!
//! The kernel can refuse a DNS query over TCP only by dropping the segment, for which the client would wait. With its
//! socket gone it fails at once. Where the kernel has no `CONFIG_INET_DIAG_DESTROY`, it waits.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

const SOCK_DESTROY: u16 = 21;
const REQUEST_LEN: usize = 16 + 56;
/// `struct inet_diag_req_v2`: any state.
const ALL_STATES: u32 = u32::MAX;

/// Destroys the connection's socket in this network namespace. A socket that is gone already is no error.
pub(super) fn connection(local: SocketAddr, remote: SocketAddr) -> io::Result<()> {
    let socket = netlink()?;
    let request = request(local, remote);
    // SAFETY: `request` is valid for its length.
    let sent = unsafe { libc::send(socket.as_raw_fd(), request.as_ptr().cast(), request.len(), 0) };
    if sent < 0 {
        return Err(io::Error::last_os_error());
    }
    let mut answer = [0u8; 128];
    // SAFETY: `answer` is writable for its length; the request asked for an answer, so there is one.
    let got = unsafe { libc::recv(socket.as_raw_fd(), answer.as_mut_ptr().cast(), answer.len(), 0) };
    if got < 0 {
        return Err(io::Error::last_os_error());
    }
    // `struct nlmsgerr` behind the header: the negative errno first, 0 = done.
    let error = i32::from_ne_bytes([answer[16], answer[17], answer[18], answer[19]]);
    match -error {
        0 | libc::ENOENT => Ok(()),
        errno => Err(io::Error::from_raw_os_error(errno)),
    }
}

fn netlink() -> io::Result<OwnedFd> {
    let kind = libc::SOCK_RAW | libc::SOCK_CLOEXEC;
    // SAFETY: a plain system call.
    let fd = unsafe { libc::socket(libc::AF_NETLINK, kind, libc::NETLINK_SOCK_DIAG) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: a new descriptor that nobody else owns.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// `struct nlmsghdr`, then `struct inet_diag_req_v2`: family, protocol, extensions, pad, states, and the socket's id:
/// ports and addresses in network order, interface, cookie (all ones = any).
fn request(local: SocketAddr, remote: SocketAddr) -> Vec<u8> {
    let flags = (libc::NLM_F_REQUEST | libc::NLM_F_ACK) as u16;
    let v4 = local.ip().to_canonical().is_ipv4();
    let family = if v4 { libc::AF_INET } else { libc::AF_INET6 } as u8;
    let mut out = Vec::with_capacity(REQUEST_LEN);
    out.extend((REQUEST_LEN as u32).to_ne_bytes());
    out.extend(SOCK_DESTROY.to_ne_bytes());
    out.extend(flags.to_ne_bytes());
    out.extend([0; 8]);
    out.extend([family, libc::IPPROTO_TCP as u8, 0, 0]);
    out.extend(ALL_STATES.to_ne_bytes());
    out.extend(local.port().to_be_bytes());
    out.extend(remote.port().to_be_bytes());
    out.extend(address(local.ip()));
    out.extend(address(remote.ip()));
    out.extend([0; 4]);
    out.extend([0xff; 8]);
    out
}

fn address(ip: IpAddr) -> [u8; 16] {
    match ip.to_canonical() {
        IpAddr::V6(v6) => v6.octets(),
        IpAddr::V4(v4) => {
            let mut out = [0; 16];
            out[..4].copy_from_slice(&v4.octets());
            out
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;
    use std::net::{TcpListener, TcpStream};

    #[test]
    fn the_request_has_the_kernels_layout() {
        let bytes = request(
            "[::ffff:127.0.0.1]:1".parse().expect("address"),
            "127.0.0.2:258".parse().expect("address"),
        );
        assert_eq!(bytes.len(), REQUEST_LEN);
        assert_eq!(bytes[16..20], [libc::AF_INET as u8, 6, 0, 0]);
        assert_eq!(bytes[24..32], [0, 1, 1, 2, 127, 0, 0, 1]);
        assert_eq!(bytes[44..48], [127, 0, 0, 2]);
        assert_eq!(bytes[60..], [0, 0, 0, 0, 255, 255, 255, 255, 255, 255, 255, 255]);
    }

    #[test]
    fn a_destroyed_connection_fails_at_once() -> io::Result<()> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let mut stream = TcpStream::connect(listener.local_addr()?)?;
        match connection(stream.local_addr()?, stream.peer_addr()?) {
            Err(e) => eprintln!("skipped: {e}"),
            Ok(()) => assert_eq!(
                stream.read(&mut [0; 1]).expect_err("gone").kind(),
                io::ErrorKind::ConnectionAborted
            ),
        }
        Ok(())
    }
}
