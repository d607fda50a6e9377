//! The packet builder.

use std::net::IpAddr;

use super::Ext;
use super::checksum::{crc32c, internet, octets, transport};

/// TCP flag bits.
pub mod tcp {
    #![expect(missing_docs, reason = "the names are those of RFC 9293")]
    pub const FIN: u8 = 1;
    pub const SYN: u8 = 2;
    pub const RST: u8 = 4;
    pub const PSH: u8 = 8;
    pub const ACK: u8 = 16;
}

/// What the packet carries.
#[derive(Clone, Debug)]
pub enum L4 {
    /// Ports, flags, payload.
    Tcp(u16, u16, u8, Vec<u8>),
    /// Ports, payload.
    Udp(u16, u16, Vec<u8>),
    /// Ports, chunk type (1 = INIT).
    Sctp(u16, u16, u8),
    /// Type, code, rest of the message after the checksum. ICMP or ICMPv6 by the packet's family.
    Icmp(u8, u8, Vec<u8>),
    /// Any protocol number and bytes.
    Other(u8, Vec<u8>),
}

/// With or without a link header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Frame {
    /// From the IP header on.
    Ip,
    /// Ethernet II in front.
    Ethernet,
}

/// An IP packet under construction.
#[derive(Clone, Debug)]
pub struct Packet {
    source: IpAddr,
    destination: IpAddr,
    l4: L4,
    options: Vec<u8>,
    exts: Vec<Ext>,
    ttl: u8,
    fragment: (u16, bool, u16),
    dont_fragment: bool,
    seq: u32,
}

impl Packet {
    /// From `source` to `destination`, both of one family.
    pub fn new(source: &str, destination: &str, l4: L4) -> Self {
        let parse = |text: &str| text.parse().unwrap_or_else(|_| panic!("{text} is no address"));
        Self::between(parse(source), parse(destination), l4)
    }

    /// From `source` to `destination`, both of one family.
    pub fn between(source: IpAddr, destination: IpAddr, l4: L4) -> Self {
        assert_eq!(source.is_ipv4(), destination.is_ipv4(), "one family");
        let (options, exts) = (Vec::new(), Vec::new());
        Self {
            source,
            destination,
            l4,
            options,
            exts,
            ttl: 64,
            fragment: (0, false, 0),
            dont_fragment: false,
            seq: 1,
        }
    }

    /// A TCP segment without payload.
    pub fn tcp(source: (&str, u16), destination: (&str, u16), flags: u8) -> Self {
        Self::new(source.0, destination.0, L4::Tcp(source.1, destination.1, flags, Vec::new()))
    }

    /// A UDP datagram.
    pub fn udp(source: (&str, u16), destination: (&str, u16), payload: &[u8]) -> Self {
        Self::new(source.0, destination.0, L4::Udp(source.1, destination.1, payload.into()))
    }

    /// Where it goes.
    pub fn destination(&self) -> IpAddr {
        self.destination
    }

    /// IPv4 options, padded to a multiple of four.
    #[must_use]
    pub fn options(mut self, bytes: &[u8]) -> Self {
        self.options = bytes.to_vec();
        self.options.resize(bytes.len().div_ceil(4) * 4, 0);
        assert!(self.options.len() <= 40, "IPv4 has room for 40 bytes of options");
        self
    }

    /// Appends an IPv6 extension header.
    #[must_use]
    pub fn ext(mut self, ext: Ext) -> Self {
        self.exts.push(ext);
        self
    }

    /// TTL or hop limit.
    #[must_use]
    pub fn ttl(mut self, ttl: u8) -> Self {
        self.ttl = ttl;
        self
    }

    /// IPv4 fragment fields: offset in bytes, more fragments, identification. The body is what is given:
    /// see [`Packet::fragments`] for cutting a packet.
    #[must_use]
    pub fn fragment(mut self, offset: u16, more: bool, id: u16) -> Self {
        self.fragment = (offset, more, id);
        self
    }

    /// IPv4's DF bit.
    #[must_use]
    pub fn dont_fragment(mut self) -> Self {
        self.dont_fragment = true;
        self
    }

    /// TCP's sequence number.
    #[must_use]
    pub fn seq(mut self, seq: u32) -> Self {
        self.seq = seq;
        self
    }

    /// Cuts the packet into fragments whose payload is at most `size` bytes.
    pub fn fragments(&self, size: usize, id: u16) -> Vec<Packet> {
        let (protocol, body) = self.transport();
        let size = size / 8 * 8;
        let count = body.len().div_ceil(size);
        let cut = |(index, part): (usize, &[u8])| {
            let (offset, more) = ((index * size) as u16, index + 1 < count);
            let packet = Packet { l4: L4::Other(protocol, part.to_vec()), ..self.clone() };
            match self.source {
                IpAddr::V4(_) => packet.fragment(offset, more, id),
                IpAddr::V6(_) => packet.ext(Ext::Fragment(offset, more, id.into())),
            }
        };
        body.chunks(size).enumerate().map(cut).collect()
    }

    /// An ICMP or ICMPv6 error (type, code, the four bytes after the checksum) from `router` to this packet's
    /// source that quotes this packet.
    pub fn icmp_error(&self, router: &str, kind: u8, code: u8, rest: u32) -> Packet {
        let mut body = rest.to_be_bytes().to_vec();
        let quoted = self.build();
        let limit = if self.source.is_ipv4() { 548 } else { 1232 };
        body.extend(&quoted[..quoted.len().min(limit)]);
        Packet::between(router.parse().expect("an address"), self.source, L4::Icmp(kind, code, body))
    }

    /// The bytes from the IP header on.
    pub fn build(&self) -> Vec<u8> {
        let (protocol, body) = self.transport();
        match self.source {
            IpAddr::V4(_) => self.v4(protocol, &body),
            IpAddr::V6(_) => self.v6(protocol, &body),
        }
    }

    /// The bytes with or without an Ethernet header.
    pub fn frame(&self, frame: Frame) -> Vec<u8> {
        let mut bytes = Vec::new();
        if frame == Frame::Ethernet {
            bytes.extend([2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1]);
            bytes.extend(if self.source.is_ipv4() { [0x08, 0x00] } else { [0x86, 0xdd] });
        }
        bytes.extend(self.build());
        bytes
    }

    fn v4(&self, protocol: u8, body: &[u8]) -> Vec<u8> {
        let header = 20 + self.options.len();
        let (offset, more, id) = self.fragment;
        let flags = (offset / 8) | (u16::from(more) << 13) | (u16::from(self.dont_fragment) << 14);
        let mut bytes = vec![0x40 | (header / 4) as u8, 0];
        bytes.extend(((header + body.len()) as u16).to_be_bytes());
        bytes.extend(id.to_be_bytes());
        bytes.extend(flags.to_be_bytes());
        bytes.extend([self.ttl, protocol, 0, 0]);
        bytes.extend(octets(self.source));
        bytes.extend(octets(self.destination));
        bytes.extend(&self.options);
        let checksum = internet(&bytes);
        bytes[10..12].copy_from_slice(&checksum.to_be_bytes());
        bytes.extend(body);
        bytes
    }

    fn v6(&self, protocol: u8, body: &[u8]) -> Vec<u8> {
        // Built from the back: each header names the one behind it.
        let mut next = protocol;
        let mut tail = body.to_vec();
        for ext in self.exts.iter().rev() {
            let (number, header) = ext.bytes(next);
            tail = [header, tail].concat();
            next = number;
        }
        let mut bytes = vec![0x60, 0, 0, 0];
        bytes.extend((tail.len() as u16).to_be_bytes());
        bytes.extend([next, self.ttl]);
        bytes.extend(octets(self.source));
        bytes.extend(octets(self.destination));
        bytes.extend(tail);
        bytes
    }

    /// Protocol number and transport bytes with their checksum.
    fn transport(&self) -> (u8, Vec<u8>) {
        let (protocol, mut bytes, at) = match &self.l4 {
            L4::Tcp(source, destination, flags, payload) => {
                let mut bytes = ports(*source, *destination);
                bytes.extend(self.seq.to_be_bytes());
                bytes.extend([0, 0, 0, 0, 0x50, *flags, 0xff, 0xff, 0, 0, 0, 0]);
                bytes.extend(payload);
                (6, bytes, 16)
            }
            L4::Udp(source, destination, payload) => {
                let mut bytes = ports(*source, *destination);
                bytes.extend((8 + payload.len() as u16).to_be_bytes());
                bytes.extend([0, 0]);
                bytes.extend(payload);
                (17, bytes, 6)
            }
            L4::Sctp(source, destination, chunk) => return (132, sctp(*source, *destination, *chunk)),
            L4::Icmp(kind, code, rest) => {
                let mut bytes = vec![*kind, *code, 0, 0];
                bytes.extend(rest);
                (if self.source.is_ipv4() { 1 } else { 58 }, bytes, 2)
            }
            L4::Other(protocol, bytes) => return (*protocol, bytes.clone()),
        };
        let checksum = match protocol {
            1 => internet(&bytes),
            _ => transport(self.source, self.destination, protocol, &bytes),
        };
        // UDP says "none" by 0, so a sum of 0 is sent as all ones.
        let checksum = if protocol == 17 && checksum == 0 { 0xffff } else { checksum };
        bytes[at..at + 2].copy_from_slice(&checksum.to_be_bytes());
        (protocol, bytes)
    }
}

fn sctp(source: u16, destination: u16, chunk: u8) -> Vec<u8> {
    let mut bytes = ports(source, destination);
    bytes.extend([0; 8]);
    bytes.extend([chunk, 0, 0, 20, 0, 0, 0, 1, 0, 0, 0xff, 0xff, 0, 1, 0, 1, 0, 0, 0, 1]);
    let checksum = crc32c(&bytes);
    bytes[8..12].copy_from_slice(&checksum);
    bytes
}

fn ports(source: u16, destination: u16) -> Vec<u8> {
    [source.to_be_bytes(), destination.to_be_bytes()].concat()
}
