//! Answers that the TC programs make of the denied packet itself: DNS REFUSED, TCP RST, ICMP "administratively
//! prohibited". Right in every state of a checksum: bytes are changed through the helpers that know whether the sum is
//! partial (offloaded) or complete.

use aya_ebpf::{
    bindings::{
        __sk_buff, BPF_F_INGRESS, BPF_F_MARK_MANGLED_0, BPF_F_PSEUDO_HDR, bpf_adj_room_mode::BPF_ADJ_ROOM_MAC,
    },
    helpers::{
        bpf_csum_diff, bpf_l3_csum_replace, bpf_l4_csum_replace, bpf_redirect, bpf_skb_adjust_room,
        bpf_skb_change_tail, bpf_skb_store_bytes,
    },
};
use egret_common::{
    judge::Work,
    maps::{ENDPOINT_DNS_NXDOMAIN, Endpoint},
    net::{Direction, proto, tcp},
    packet::{Bytes, Packet, WHOLE},
};

use crate::ctx::Skb;

/// Mark of a packet that was made here, until it has passed the program at the interface where it is put back.
const OWN: u32 = 0x0e67_0e70;

/// Longest packets that an ICMP error quotes whole (RFC 1812 4.3.2.3, RFC 4443 2.4).
const QUOTE_V4: u32 = 548;
const QUOTE_V6: u32 = 1232;

/// True for a packet that was made here; takes the mark off. A pod cannot set it: marks do not leave its namespace. One
/// that the host sets does not count: it stands on packets that came in elsewhere, or nowhere.
#[inline(always)]
pub fn is_own(skb: *mut __sk_buff) -> bool {
    // SAFETY: the context pointer that the kernel gave us.
    unsafe {
        if (*skb).mark != OWN || (*skb).ingress_ifindex != (*skb).ifindex {
            return false;
        }
        (*skb).mark = 0;
    }
    true
}

/// Turns the packet into the answer to it; false when there is none (never to a RST or an ICMP error), then the packet
/// may be half changed and must be dropped.
#[inline(never)]
pub fn make(packet: &Skb, endpoint: &Endpoint, work: &Work, query: bool) -> bool {
    let parsed = &work.parsed;
    if parsed.fragment != WHOLE || parsed.is_icmp_error() || parsed.version == 0 {
        return false;
    }
    if parsed.proto == proto::TCP {
        return parsed.tcp_flags & tcp::RST == 0 && reset(packet, work);
    }
    if query && parsed.proto == proto::UDP {
        let nxdomain = endpoint.flags & ENDPOINT_DNS_NXDOMAIN != 0;
        return refuse(packet, work, if nxdomain { 3 } else { 5 });
    }
    prohibit(packet, work)
}

/// Sends the answer to where the packet came from.
#[inline(always)]
pub fn send(skb: *mut __sk_buff, direction: Direction) -> i32 {
    let back = if matches!(direction, Direction::Egress) { 0 } else { BPF_F_INGRESS as u64 };
    // SAFETY: the context pointer that the kernel gave us.
    unsafe {
        (*skb).mark = OWN;
        bpf_redirect((*skb).ifindex, back) as i32
    }
}

/// Writes `N` bytes at an offset from the start of the frame.
#[inline(always)]
fn store<const N: usize>(packet: &Skb, at: u32, bytes: &Bytes<N>) -> bool {
    // SAFETY: the helper checks the packet's bounds.
    unsafe { bpf_skb_store_bytes(packet.skb, at, bytes.0.as_ptr().cast(), N as u32, 0) == 0 }
}

/// Swaps two neighbouring fields of `H` bytes each: a sum over both stays what it was.
#[inline(always)]
fn swap<const N: usize>(packet: &Skb, at: u32) -> bool {
    let frame = Skb { skb: packet.skb, base: 0, zero: 0 };
    let swapped = frame.read::<N, _>(at, |old| {
        let mut new = *old;
        let mut i = 0;
        while i < N / 2 {
            new.0[i] = old.0[i + N / 2];
            new.0[i + N / 2] = old.0[i];
            i += 1;
        }
        store(packet, at, &new)
    });
    swapped == Some(true)
}

/// Ethernet and IP addresses.
#[inline(always)]
fn turn_round(packet: &Skb, version: u16) -> bool {
    let ip = match version {
        4 => swap::<8>(packet, packet.base + 12),
        _ => swap::<32>(packet, packet.base + 8),
    };
    ip && swap::<12>(packet, 0)
}

/// The query as a response with a code and no answer.
#[inline(never)]
fn refuse(packet: &Skb, work: &Work, code: u16) -> bool {
    let l4 = work.parsed.l4 as u32;
    let Some(old) = packet.be16(l4 + 10) else { return false };
    // QR and RA; the kind of query and RD as they were (RFC 1035 4.1.1).
    let new = 0x8080 | (old & 0x7900) | code;
    let at = packet.base + l4;
    let bytes = Bytes(new.to_be_bytes());
    let sum = (BPF_F_MARK_MANGLED_0 as u64) | 2;
    // SAFETY: as for `store`.
    let summed =
        unsafe { bpf_l4_csum_replace(packet.skb, at + 6, old.to_be() as u64, new.to_be() as u64, sum) == 0 };
    summed
        && store(packet, at + 10, &bytes)
        && swap::<4>(packet, at)
        && turn_round(packet, work.parsed.version)
}

/// A sum of 16-bit words as the helpers give and take it; the seed is a former sum.
#[inline(always)]
fn sum<const N: usize>(bytes: &Bytes<N>, seed: u32) -> u32 {
    let data = bytes.0.as_ptr().cast_mut().cast();
    // SAFETY: `N` readable bytes, a multiple of four.
    unsafe { bpf_csum_diff(core::ptr::null_mut(), 0, data, N as u32, seed) as u32 }
}

/// Folds a sum to 16 bits.
#[inline(always)]
fn fold(sum: u32) -> u16 {
    let sum = (sum & 0xffff) + (sum >> 16);
    ((sum & 0xffff) + (sum >> 16)) as u16
}

/// Sum of the pseudo header (RFC 793 3.1, RFC 8200 8.1). Source and destination may stand in either order.
#[inline(always)]
fn pseudo(work: &Work, protocol: u8, length: u32) -> u32 {
    let (src, dst) = (&work.parsed.src, &work.parsed.dst);
    let mut seed = sum(&Bytes(length.to_be_bytes()), 0);
    seed = sum(&Bytes([0, 0, 0, protocol]), seed);
    if work.parsed.version == 4 {
        seed = sum(&Bytes(src.words()[3].to_ne_bytes()), seed);
        return sum(&Bytes(dst.words()[3].to_ne_bytes()), seed);
    }
    seed = sum(&Bytes(src.hi.to_ne_bytes()), seed);
    seed = sum(&Bytes(src.lo.to_ne_bytes()), seed);
    seed = sum(&Bytes(dst.hi.to_ne_bytes()), seed);
    sum(&Bytes(dst.lo.to_ne_bytes()), seed)
}

/// A RST that the peer would send (RFC 9293 3.5.2): it ends a connect at once, which no ICMP error does.
#[inline(never)]
fn reset(packet: &Skb, work: &Work) -> bool {
    let parsed = &work.parsed;
    let l4 = parsed.l4 as u32;
    let Some(acked) = packet.read::<4, _>(l4 + 8, |bytes| bytes.be32(0)) else { return false };
    let has_ack = parsed.tcp_flags & tcp::ACK != 0;
    let occupies = (parsed.l4_len - parsed.tcp_header as u32)
        + (parsed.tcp_flags & tcp::SYN != 0) as u32
        + (parsed.tcp_flags & tcp::FIN != 0) as u32;
    let seq = if has_ack { acked } else { 0 };
    let ack = if has_ack { 0 } else { parsed.seq.wrapping_add(occupies) };
    let flags = if has_ack { tcp::RST } else { tcp::RST | tcp::ACK };
    let ports = (parsed.dport as u32) << 16 | parsed.sport as u32;
    // SAFETY: as for `store`.
    if unsafe { bpf_skb_change_tail(packet.skb, packet.base + l4 + 20, 0) } != 0 {
        return false;
    }
    if !shorten(packet, work) || !turn_round(packet, parsed.version) {
        return false;
    }
    let (a, b, c) = (ports.to_be_bytes(), seq.to_be_bytes(), ack.to_be_bytes());
    let header = Bytes([
        a[0], a[1], a[2], a[3], b[0], b[1], b[2], b[3], c[0], c[1], c[2], c[3], 0x50, flags, 0, 0, 0, 0, 0, 0,
    ]);
    let at = packet.base + l4;
    let (head, upper) = (pseudo(work, proto::TCP, 20), sum(&header, 0));
    store(packet, at, &header)
        // A partial sum takes the pseudo header only, a complete one both.
        && add_to_sum(packet, at + 16, head, BPF_F_PSEUDO_HDR as u64)
        && add_to_sum(packet, at + 16, upper, 0)
}

#[inline(always)]
fn add_to_sum(packet: &Skb, at: u32, sum: u32, flags: u64) -> bool {
    // SAFETY: as for `store`.
    unsafe { bpf_l4_csum_replace(packet.skb, at, 0, sum as u64, flags) == 0 }
}

/// The IP header of a packet that ends behind a TCP header without options.
#[inline(always)]
fn shorten(packet: &Skb, work: &Work) -> bool {
    let length = work.parsed.l4 as u32 + 20;
    if work.parsed.version != 4 {
        return store(packet, packet.base + 4, &Bytes(((length - 40) as u16).to_be_bytes()));
    }
    let Some(old) = packet.be16(2) else { return false };
    let new = length as u16;
    // SAFETY: as for `store`.
    let summed = unsafe {
        bpf_l3_csum_replace(packet.skb, packet.base + 10, old.to_be() as u64, new.to_be() as u64, 2) == 0
    };
    summed && store(packet, packet.base + 2, &Bytes(new.to_be_bytes()))
}

/// ICMP or ICMPv6 "administratively prohibited" around the whole packet. What follows the quoted IP header sums up to the
/// opposite of its pseudo header, whatever it is and whether its own sum is partial or complete, so it need not be read.
#[inline(never)]
fn prohibit(packet: &Skb, work: &Work) -> bool {
    let parsed = &work.parsed;
    let length = packet.len();
    let known = match parsed.proto {
        // A datagram without a sum says nothing about its bytes.
        proto::UDP => packet.be16(parsed.l4 as u32 + 6).is_some_and(|sum| sum != 0),
        proto::ICMP | proto::ICMPV6 => true,
        _ => false,
    };
    if !known || length != parsed.l4 as u32 + parsed.l4_len {
        return false;
    }
    if parsed.version == 4 { prohibit_v4(packet, work, length) } else { prohibit_v6(packet, work, length) }
}

/// Sum of what a quoted packet carries behind its IP header.
#[inline(always)]
fn quoted_sum(work: &Work) -> u32 {
    let parsed = &work.parsed;
    // ICMP for IPv4 has no pseudo header.
    if parsed.proto == proto::ICMP { 0 } else { !fold(pseudo(work, parsed.proto, parsed.l4_len)) as u32 }
}

#[inline(always)]
fn prohibit_v4(packet: &Skb, work: &Work, length: u32) -> bool {
    if length > QUOTE_V4 {
        return false;
    }
    let parsed = &work.parsed;
    let total = (length as u16 + 28).to_be_bytes();
    let from = parsed.dst.words()[3].to_ne_bytes();
    let to = parsed.src.words()[3].to_ne_bytes();
    let mut header = Bytes([
        0x45,
        0xc0,
        total[0],
        total[1],
        0,
        0,
        0x40,
        0,
        64,
        proto::ICMP,
        0,
        0,
        from[0],
        from[1],
        from[2],
        from[3],
        to[0],
        to[1],
        to[2],
        to[3],
    ]);
    let check = (!fold(sum(&header, 0))).to_ne_bytes();
    header.0[10] = check[0];
    header.0[11] = check[1];
    // A valid IP header sums up to nothing.
    let mut icmp = Bytes([3, 13, 0, 0, 0, 0, 0, 0]);
    let check = (!fold(sum(&icmp, quoted_sum(work)))).to_ne_bytes();
    icmp.0[2] = check[0];
    icmp.0[3] = check[1];
    grow(packet, 28)
        && store(packet, packet.base, &header)
        && store(packet, packet.base + 20, &icmp)
        && swap::<12>(packet, 0)
}

#[inline(always)]
fn prohibit_v6(packet: &Skb, work: &Work, length: u32) -> bool {
    let parsed = &work.parsed;
    if length > QUOTE_V6 || parsed.l4 != 40 {
        return false;
    }
    let Some(quoted) = packet.read::<40, _>(0, |header| sum(header, 0)) else { return false };
    let size = length + 8;
    let bytes = (size as u16).to_be_bytes();
    let mut icmp = Bytes([1, 1, 0, 0, 0, 0, 0, 0]);
    let own = pseudo(work, proto::ICMPV6, size);
    let seed = fold(quoted) as u32 + quoted_sum(work) + fold(own) as u32;
    let check = (!fold(sum(&icmp, seed))).to_ne_bytes();
    icmp.0[2] = check[0];
    icmp.0[3] = check[1];
    let first = Bytes([0x60, 0, 0, 0, bytes[0], bytes[1], proto::ICMPV6, 64]);
    let (from, to) = (Bytes(parsed.dst.octets()), Bytes(parsed.src.octets()));
    grow(packet, 48)
        && store(packet, packet.base, &first)
        && store(packet, packet.base + 8, &from)
        && store(packet, packet.base + 24, &to)
        && store(packet, packet.base + 40, &icmp)
        && swap::<12>(packet, 0)
}

/// Room behind the Ethernet header.
#[inline(always)]
fn grow(packet: &Skb, bytes: i32) -> bool {
    // SAFETY: as for `store`.
    unsafe { bpf_skb_adjust_room(packet.skb, bytes, BPF_ADJ_ROOM_MAC, 0) == 0 }
}
