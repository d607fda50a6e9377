//! UDP echo that answers from the address it was asked at, on every address of a namespace.

use std::io::{self, IoSlice, IoSliceMut};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::os::fd::{AsFd, AsRawFd};

use nix::cmsg_space;
use nix::sys::socket::{
    ControlMessage, ControlMessageOwned, MsgFlags, SockaddrStorage, recvmsg, sendmsg, setsockopt, sockopt,
};

use super::log::{Hits, Proto};
use crate::wait::Stop;

/// Two sockets per port: one for each family, so that the control messages are plain.
pub(super) fn bind_all(ports: &[u16]) -> Vec<UdpSocket> {
    ports.iter().flat_map(|&port| [bind_v4(port), bind_v6(port)]).collect()
}

fn bind_v4(port: u16) -> UdpSocket {
    let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, port));
    let socket = socket.unwrap_or_else(|error| panic!("bind udp port {port}: {error}"));
    setsockopt(&socket, sockopt::Ipv4PacketInfo, &true).expect("IP_PKTINFO");
    socket
}

fn bind_v6(port: u16) -> UdpSocket {
    use nix::sys::socket::{AddressFamily, SockFlag, SockType, SockaddrIn6, bind, socket};
    let flags = SockFlag::SOCK_CLOEXEC;
    let fd = socket(AddressFamily::Inet6, SockType::Datagram, flags, None).expect("a UDP socket");
    setsockopt(&fd, sockopt::Ipv6V6Only, &true).expect("IPV6_V6ONLY");
    setsockopt(&fd, sockopt::Ipv6RecvPacketInfo, &true).expect("IPV6_RECVPKTINFO");
    let address = SockaddrIn6::from(std::net::SocketAddrV6::new(Ipv6Addr::UNSPECIFIED, port, 0, 0));
    bind(fd.as_raw_fd(), &address).unwrap_or_else(|error| panic!("bind udp port {port}: {error}"));
    UdpSocket::from(fd)
}

pub(super) fn serve(sockets: &[UdpSocket], hits: &Hits, stop: &Stop) {
    let fds: Vec<_> = sockets.iter().map(AsFd::as_fd).collect();
    while let Some(ready) = stop.readable(&fds) {
        for (socket, _) in sockets.iter().zip(ready).filter(|(_, ready)| *ready) {
            if let Err(error) = echo(socket, hits) {
                eprintln!("udp echo: {error}");
            }
        }
    }
}

fn echo(socket: &UdpSocket, hits: &Hits) -> io::Result<()> {
    let port = socket.local_addr()?.port();
    let mut buffer = vec![0; 65536];
    let mut control = cmsg_space!(libc::in6_pktinfo);
    let (count, peer, info) = {
        let mut parts = [IoSliceMut::new(&mut buffer)];
        let message = recvmsg::<SockaddrStorage>(
            socket.as_raw_fd(),
            &mut parts,
            Some(&mut control),
            MsgFlags::empty(),
        )?;
        let info = message.cmsgs()?.next();
        (message.bytes, message.address, info)
    };
    let (Some(peer), Some(info)) = (peer, info) else { return Ok(()) };
    let Some(from) = peer_address(&peer) else { return Ok(()) };
    let parts = [IoSlice::new(&buffer[..count])];
    let flags = MsgFlags::empty();
    match info {
        ControlMessageOwned::Ipv4PacketInfo(mut info) => {
            let local = Ipv4Addr::from(u32::from_be(info.ipi_addr.s_addr));
            hits.push(Proto::Udp, (local, port).into(), from, count);
            info.ipi_spec_dst = info.ipi_addr;
            info.ipi_ifindex = 0;
            let from = [ControlMessage::Ipv4PacketInfo(&info)];
            sendmsg(socket.as_raw_fd(), &parts, &from, flags, Some(&peer))?;
        }
        ControlMessageOwned::Ipv6PacketInfo(mut info) => {
            let local = Ipv6Addr::from(info.ipi6_addr.s6_addr);
            hits.push(Proto::Udp, (local, port).into(), from, count);
            info.ipi6_ifindex = 0;
            let from = [ControlMessage::Ipv6PacketInfo(&info)];
            sendmsg(socket.as_raw_fd(), &parts, &from, flags, Some(&peer))?;
        }
        _ => {}
    }
    Ok(())
}

fn peer_address(peer: &SockaddrStorage) -> Option<SocketAddr> {
    if let Some(v4) = peer.as_sockaddr_in() {
        return Some((v4.ip(), v4.port()).into());
    }
    peer.as_sockaddr_in6().map(|v6| (v6.ip(), v6.port()).into())
}
