//! Bounded parsing of a packet from its network header on: IPv4 with options, IPv6 with extension headers,
//! fragments, TCP, UDP, SCTP, ICMP. It reads through [`Packet`], so the same code runs over a socket buffer and
//! over bytes in a test. It decides nothing; what it cannot follow is an error with a [`DropReason`].

use crate::net::{Addr, proto};
use crate::verdict::DropReason;

/// A packet whose network header is at offset 0.
pub trait Packet {
    /// Bytes from the network header on.
    fn len(&self) -> u32;

    /// Shows `N` bytes at `offset` to `with`; `None` when the packet ends before. (A closure, since bytes that are
    /// returned would stand on the stack twice.)
    fn read<const N: usize, R>(&self, offset: u32, with: impl FnOnce(&Bytes<N>) -> R) -> Option<R>;

    /// Big-endian 16 bits at `offset`.
    #[inline(always)]
    fn be16(&self, offset: u32) -> Option<u16> {
        self.read::<2, _>(offset, |bytes| bytes.be16(0))
    }

    /// 0, which the verifier does not know ([`crate::maps::Endpoint::zero`]).
    #[inline(always)]
    fn zero(&self) -> u32 {
        0
    }

    /// True for a packet without bytes.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// A small buffer whose alignment lets the compiler read words.
#[repr(C, align(8))]
#[derive(Clone, Copy, Debug)]
pub struct Bytes<const N: usize>(pub [u8; N]);

impl<const N: usize> Bytes<N> {
    /// Big-endian 16 bits at a constant offset.
    #[inline(always)]
    #[must_use]
    pub fn be16(&self, at: usize) -> u16 {
        u16::from_be_bytes([self.0[at], self.0[at + 1]])
    }

    /// Big-endian 32 bits at a constant offset.
    #[inline(always)]
    #[must_use]
    pub fn be32(&self, at: usize) -> u32 {
        u32::from_be_bytes([self.0[at], self.0[at + 1], self.0[at + 2], self.0[at + 3]])
    }

    /// IPv4 address at a constant offset.
    #[inline(always)]
    #[must_use]
    pub fn v4(&self, at: usize) -> Addr {
        Addr::from_v4([self.0[at], self.0[at + 1], self.0[at + 2], self.0[at + 3]])
    }

    /// IPv6 address at a constant offset.
    #[inline(always)]
    #[must_use]
    pub fn v6(&self, at: usize) -> Addr {
        let b = &self.0;
        let word = |i: usize| {
            u64::from_ne_bytes([b[i], b[i + 1], b[i + 2], b[i + 3], b[i + 4], b[i + 5], b[i + 6], b[i + 7]])
        };
        Addr { hi: word(at), lo: word(at + 8) }
    }
}

/// What [`parse`] found.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Parsed {
    /// Source address.
    pub src: Addr,
    /// Destination address.
    pub dst: Addr,
    /// Bytes from the upper-layer header to the end of the IP payload.
    pub l4_len: u32,
    /// TCP sequence number of a whole packet; identification of a fragment.
    pub seq: u32,
    /// Offset of the upper-layer header.
    pub l4: u16,
    /// Source port; ICMP: type << 8 | code; 0 where there is none.
    pub sport: u16,
    /// Destination port; ICMP: as `sport`; ICMP echo: the identifier is in `icmp_id`.
    pub dport: u16,
    /// Identifier of an ICMP echo.
    pub icmp_id: u16,
    /// TCP flags.
    pub tcp_flags: u8,
    /// IP protocol after all extension headers.
    pub proto: u8,
    /// 4 or 6. Wider than it need be: of four bytes in a row the compiler clears each by a turn of a loop.
    pub version: u16,
    /// TTL or hop limit.
    pub hops: u8,
    /// Bytes of the TCP header.
    pub tcp_header: u8,
    /// [`WHOLE`], [`FRAGMENT_FIRST`] or [`FRAGMENT_LATER`].
    pub fragment: u16,
}

/// Not a fragment.
pub const WHOLE: u16 = 0;
/// The fragment that carries the ports.
pub const FRAGMENT_FIRST: u16 = 1;
/// A fragment whose ports are only known from the first one.
pub const FRAGMENT_LATER: u16 = 2;

impl Parsed {
    /// Offset and length of the payload of a whole UDP or TCP packet.
    #[inline(always)]
    #[must_use]
    pub fn payload(&self) -> (u32, u32) {
        let header = if self.proto == proto::TCP { self.tcp_header as u32 } else { 8 };
        (self.l4 as u32 + header, self.l4_len.saturating_sub(header))
    }

    /// Bytes from the network header to the end of the IP payload.
    #[inline(always)]
    #[must_use]
    pub fn bytes(&self) -> u32 {
        (self.l4 as u32).wrapping_add(self.l4_len)
    }

    /// ICMP echo request or reply, of either version.
    #[inline(always)]
    #[must_use]
    pub fn is_echo(&self) -> bool {
        let kind = (self.dport >> 8) as u8;
        (self.proto == proto::ICMP && (kind == 8 || kind == 0))
            || (self.proto == proto::ICMPV6 && (kind == 128 || kind == 129))
    }

    /// An ICMP error, which quotes the packet that caused it (RFC 792, RFC 4443 2.1). Redirects are none.
    #[inline(always)]
    #[must_use]
    pub fn is_icmp_error(&self) -> bool {
        if self.fragment != WHOLE {
            return false;
        }
        let kind = (self.dport >> 8) as u8;
        (self.proto == proto::ICMP && (kind == 3 || kind == 4 || kind == 11 || kind == 12))
            || (self.proto == proto::ICMPV6 && (1..=4).contains(&kind))
    }

    /// Neighbour discovery without redirect (hop limit 255, RFC 4861 7.1), or MLD (hop limit 1, RFC 2710).
    #[inline(always)]
    #[must_use]
    pub fn is_neighbour_discovery(&self) -> bool {
        if self.proto != proto::ICMPV6 || self.fragment != WHOLE {
            return false;
        }
        let kind = (self.dport >> 8) as u8;
        ((133..=136).contains(&kind) && self.hops == 255)
            || (((130..=132).contains(&kind) || kind == 143) && self.hops == 1)
    }
}

/// Extension headers that are followed at most.
const MAX_EXTENSIONS: u32 = 8;

/// Parses the headers of `packet` into `out`.
///
/// # Errors
/// `InvalidPacket` for a packet that is cut short, contradicts itself or carries a source route;
/// `ExtensionHeaders` for an IPv6 chain that is too long, unknown or reroutes; `UnsupportedProtocol` for anything
/// but IP.
#[inline(never)]
pub fn parse<P: Packet>(packet: &P, out: &mut Parsed) -> Result<(), DropReason> {
    let long = packet.read::<40, _>(0, |head| match head.0[0] >> 4 {
        4 => {
            parse_v4(packet, head, out)?;
            // The usual packet: no options, and the ports in the bytes that are read already.
            if out.l4 != 20 {
                return Ok(false);
            }
            ports(out, head.be32(20), head.be32(24), head.be16(32)).map(|()| true)
        }
        6 => parse_v6(packet, head, out).map(|()| false),
        _ => Err(DropReason::UnsupportedProtocol),
    });
    let known = match long {
        Some(result) => result?,
        None => packet
            .read::<20, _>(0, |head| match head.0[0] >> 4 {
                4 => parse_v4(packet, head, out).map(|()| false),
                _ => Err(DropReason::InvalidPacket),
            })
            .unwrap_or(Err(DropReason::InvalidPacket))?,
    };
    if known { Ok(()) } else { parse_l4(packet, out) }
}

#[inline(always)]
fn parse_v4<P: Packet, const N: usize>(
    packet: &P,
    head: &Bytes<N>,
    out: &mut Parsed,
) -> Result<(), DropReason> {
    let header = (head.0[0] & 15) as u32 * 4;
    let total = head.be16(2) as u32;
    // A total length of 0 is a segmentation-offload packet above 64 KiB; one above the buffer is cut short.
    let total = if total == 0 { packet.len() } else { total };
    if header < 20 || total < header || total > packet.len() {
        return Err(DropReason::InvalidPacket);
    }
    if header > 20 && has_source_route(packet, header) {
        return Err(DropReason::InvalidPacket);
    }
    out.version = 4;
    out.proto = head.0[9];
    out.hops = head.0[8];
    out.src = head.v4(12);
    out.dst = head.v4(16);
    out.l4 = header as u16;
    out.l4_len = total - header;
    let fragment = head.be16(6);
    out.fragment = fragment_kind(fragment & 0x1fff, fragment & 0x2000 != 0);
    if out.fragment != WHOLE {
        out.seq = head.be16(4) as u32;
    }
    Ok(())
}

#[inline(always)]
fn fragment_kind(offset: u16, more: bool) -> u16 {
    match (offset, more) {
        (0, false) => WHOLE,
        (0, true) => FRAGMENT_FIRST,
        _ => FRAGMENT_LATER,
    }
}

/// Loose or strict source route (RFC 791 3.1): the destination in the header is not where the packet goes.
/// Options that cannot be walked count as one. A frame of its own: what the walk leaves behind is one of two numbers.
#[inline(never)]
fn has_source_route<P: Packet>(packet: &P, header: u32) -> bool {
    let mut at = 20;
    let mut steps = 0;
    while steps < 40 {
        // One state per step, whatever lengths the options before had.
        at += packet.zero();
        if at >= header {
            return false;
        }
        let Some(option) = packet.be16(at) else {
            return true;
        };
        let size = (option & 255) as u32;
        match option >> 8 {
            0 => return false,
            1 => at += 1,
            131 | 137 => return true,
            _ if size < 2 => return true,
            _ => at += size,
        }
        steps += 1;
    }
    true
}

#[inline(always)]
fn parse_v6<P: Packet>(packet: &P, head: &Bytes<40>, out: &mut Parsed) -> Result<(), DropReason> {
    let total = head.be16(4) as u32;
    // A payload length of 0 is a jumbogram or a segmentation-offload packet above 64 KiB (RFC 2675).
    let total = if total == 0 { packet.len() } else { total + 40 };
    if total < 40 || total > packet.len() {
        return Err(DropReason::InvalidPacket);
    }
    out.version = 6;
    out.hops = head.0[7];
    out.src = head.v6(8);
    out.dst = head.v6(24);
    out.fragment = WHOLE;
    let (mut next, mut at) = (head.0[6], 40u32);
    let mut steps = 0;
    while steps < MAX_EXTENSIONS {
        if !is_extension(next) || out.fragment == FRAGMENT_LATER {
            break;
        }
        at += packet.zero();
        out.fragment = out.fragment.wrapping_add(packet.zero() as u16);
        if at > 2048 {
            return Err(DropReason::ExtensionHeaders);
        }
        let Some((first, second)) = packet.read::<8, _>(at, |bytes| (bytes.be32(0), bytes.be32(4))) else {
            return Err(DropReason::ExtensionHeaders);
        };
        let size = first >> 16 & 255;
        match next {
            44 => {
                out.fragment = fragment_kind((first as u16) >> 3, first & 1 != 0);
                out.seq = second;
                at += 8;
            }
            51 => at += (size + 2) * 4,
            // Segments left: the destination in the header is not the last one (RFC 8200 4.4).
            43 if first & 255 != 0 => return Err(DropReason::ExtensionHeaders),
            _ => at += (size + 1) * 8,
        }
        next = (first >> 24) as u8;
        steps += 1;
    }
    if is_extension(next) && out.fragment != FRAGMENT_LATER || !is_upper_layer(next) && !is_extension(next) {
        return Err(DropReason::ExtensionHeaders);
    }
    if at > total {
        return Err(DropReason::InvalidPacket);
    }
    out.proto = next;
    out.l4 = at as u16;
    out.l4_len = total - at;
    Ok(())
}

/// Hop-by-hop, routing, fragment, authentication, destination options.
#[inline(always)]
const fn is_extension(next: u8) -> bool {
    matches!(next, 0 | 43 | 44 | 51 | 60)
}

/// Protocols that end an IPv6 chain. Everything else may be an extension header that hides the real ports.
#[inline(always)]
const fn is_upper_layer(next: u8) -> bool {
    matches!(next, 4 | 6 | 17 | 33 | 41 | 47 | 50 | 58 | 88 | 89 | 103 | 112 | 115 | 132 | 136)
}

#[inline(always)]
fn parse_l4<P: Packet>(packet: &P, out: &mut Parsed) -> Result<(), DropReason> {
    let at = out.l4 as u32;
    let read = match least(out) {
        0 => return Ok(()),
        20 => packet.read::<16, _>(at, |bytes| (bytes.be32(0), bytes.be32(4), bytes.be16(12))),
        _ => packet.read::<8, _>(at, |bytes| (bytes.be32(0), bytes.be32(4), 0)),
    };
    match read {
        Some((first, second, fourth)) => ports(out, first, second, fourth),
        None => Err(DropReason::InvalidPacket),
    }
}

/// Bytes that the upper-layer header has at least; 0 = there are no ports to read.
#[inline(always)]
fn least(out: &Parsed) -> u32 {
    match out.proto {
        _ if out.fragment == FRAGMENT_LATER => 0,
        proto::TCP => 20,
        proto::UDP | proto::ICMP | proto::ICMPV6 => 8,
        proto::SCTP => 12,
        _ => 0,
    }
}

/// Ports, and what else of the upper-layer header counts: its first and second word, and the upper half of the fourth.
#[inline(always)]
fn ports(out: &mut Parsed, first: u32, second: u32, fourth: u16) -> Result<(), DropReason> {
    let least = least(out);
    if least == 0 {
        return Ok(());
    }
    // A first fragment too short for its ports is a classic way round a filter (RFC 1858): invalid.
    if out.l4_len < least {
        return Err(DropReason::InvalidPacket);
    }
    out.sport = (first >> 16) as u16;
    out.dport = first as u16;
    if out.proto == proto::ICMP || out.proto == proto::ICMPV6 {
        out.dport = out.sport;
        out.icmp_id = (second >> 16) as u16;
    } else if out.proto == proto::TCP {
        if out.fragment == WHOLE {
            out.seq = second;
        }
        out.tcp_header = (fourth >> 12) as u8 * 4;
        out.tcp_flags = fourth as u8;
        if out.tcp_header < 20 || out.tcp_header as u32 > out.l4_len {
            return Err(DropReason::InvalidPacket);
        }
    }
    Ok(())
}

/// The packet that an ICMP error quotes, as far as its ports: source, destination, protocol, ports. `None` when the
/// quote is too short, a later fragment, or hidden behind extension headers: then the error is judged as ICMP.
#[inline(never)]
pub fn quoted<P: Packet>(packet: &P, outer: &Parsed, out: &mut Parsed) -> bool {
    let at = outer.l4 as u32 + 8;
    let read = match outer.version {
        4 => packet.read::<20, _>(at, |head| {
            out.proto = head.0[9];
            out.src = head.v4(12);
            out.dst = head.v4(16);
            let whole = head.0[0] >> 4 == 4 && head.be16(6) & 0x1fff == 0;
            if whole { (head.0[0] & 15) as u32 * 4 } else { 0 }
        }),
        _ => packet.read::<40, _>(at, |head| {
            out.proto = head.0[6];
            out.src = head.v6(8);
            out.dst = head.v6(24);
            if head.0[0] >> 4 == 6 { 40 } else { 0 }
        }),
    };
    let Some(header) = read else { return false };
    if header == 0 {
        return false;
    }
    let Some((first, second)) = packet.read::<8, _>(at + header, |bytes| (bytes.be32(0), bytes.be32(4)))
    else {
        return false;
    };
    out.version = outer.version;
    out.sport = (first >> 16) as u16;
    out.dport = first as u16;
    out.icmp_id = (second >> 16) as u16;
    if out.proto == proto::ICMP || out.proto == proto::ICMPV6 {
        out.dport = out.sport;
        return out.is_echo();
    }
    matches!(out.proto, proto::TCP | proto::UDP | proto::SCTP)
}
