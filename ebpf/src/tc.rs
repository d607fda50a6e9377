//! TC on the host's side of a pod's veth: the boundary of pods, which nothing inside can get round.
//!
//! What may pass goes on to the next program in the chain (-1), so that neighbours at the hook are never cut off.

use aya_ebpf::{bindings::__sk_buff, macros::classifier, programs::TcContext};
use egret_common::{
    judge::{Judgement, Work, judge},
    maps::{ENDPOINT_REJECT, Endpoint, FLOW_DNS},
    net::Direction,
    packet::Packet,
    verdict::DropReason,
};

use crate::{ctx::Skb, dns, emit, maps, reply, sock, tables::Maps};

/// `TC_ACT_UNSPEC`, `TCX_NEXT`: let through, as far as we are concerned.
const PASS: i32 = -1;
/// `TC_ACT_SHOT`.
const DROP: i32 = 2;

const ETHERNET: u32 = 14;
const ARP: u16 = 0x0806;
const IPV4: u16 = 0x0800;
const IPV6: u16 = 0x86dd;
const VLAN: u16 = 0x8100;
const QINQ: u16 = 0x88a8;

/// Packets that the pod sends (TC ingress of the host's side).
#[classifier]
pub fn egret_from_pod(ctx: TcContext) -> i32 {
    run(ctx.skb.skb, Direction::Egress)
}

/// Packets for the pod (TC egress of the host's side).
#[classifier]
pub fn egret_to_pod(ctx: TcContext) -> i32 {
    run(ctx.skb.skb, Direction::Ingress)
}

#[inline(always)]
fn run(skb: *mut __sk_buff, direction: Direction) -> i32 {
    if reply::is_own(skb) {
        return PASS;
    }
    // SAFETY: the context pointer that the kernel gave us.
    let ifindex = unsafe { (*skb).ifindex };
    let Some(endpoint) = endpoint_of(ifindex) else {
        emit::count(0, direction, DropReason::UnknownEndpoint as u8, 0);
        return DROP;
    };
    let base = network_header(skb);
    if base == Some(ARP_HEADER) {
        return PASS;
    }
    let packet = Skb { skb, base: base.unwrap_or(0), zero: endpoint.zero };
    let mut work = Work::new(endpoint, direction);
    if base.is_some() {
        judge(&packet, &Maps, endpoint, &mut work);
    } else {
        work.judgement = Judgement::denied(endpoint, DropReason::UnsupportedProtocol);
    }
    let mut question = 0;
    if work.judgement.flow_flags & FLOW_DNS as u32 != 0 {
        question = dns::inspect::<true>(&packet, endpoint, &mut work);
    }
    finish(&packet, endpoint, &work, question)
}

/// Counts and acts. A frame of its own: the one above it is as large as 6.1 allows.
#[inline(never)]
fn finish(packet: &Skb, endpoint: &Endpoint, work: &Work, question: u64) -> i32 {
    emit::account(packet, endpoint, work, question);
    if work.judgement.is_drop() { answer(packet, endpoint, work) } else { PASS }
}

#[inline(always)]
fn endpoint_of(ifindex: u32) -> Option<&'static Endpoint> {
    // SAFETY: copied at once.
    let id = *unsafe { maps::ENDPOINT_BY_IFINDEX.get(ifindex) }?;
    let endpoint = maps::ENDPOINTS.get(id)?;
    if endpoint.id == id { Some(endpoint) } else { None }
}

/// [`network_header`] of ARP, which is not judged: without it no address is found.
const ARP_HEADER: u32 = 0;

/// Offset of the network header behind Ethernet and at most one VLAN tag; `None`: neither IP nor ARP.
#[inline(always)]
fn network_header(skb: *mut __sk_buff) -> Option<u32> {
    // SAFETY: the context pointer that the kernel gave us.
    let mut kind = u16::from_be(unsafe { (*skb).protocol } as u16);
    let mut base = ETHERNET;
    if kind == VLAN || kind == QINQ {
        kind = Skb { skb, base: 0, zero: 0 }.be16(16)?;
        base = ETHERNET + 4;
    }
    match kind {
        IPV4 | IPV6 => Some(base),
        ARP => Some(ARP_HEADER),
        _ => None,
    }
}

/// What the sender of a denied packet gets: silence, unless its endpoint asked for an answer or the packet is a query.
/// While an answer is on its way through the agent, a denied connect gets none: its retry finds the grant.
#[inline(always)]
fn answer(packet: &Skb, endpoint: &Endpoint, work: &Work) -> i32 {
    let query = work.judgement.decision.reason == DropReason::QueryRefused as u32;
    if !query && (endpoint.flags & ENDPOINT_REJECT == 0 || sock::pending(endpoint.id)) {
        return DROP;
    }
    let made = reply::make(packet, endpoint, work, query);
    if made { reply::send(packet.skb, work.direction) } else { DROP }
}
