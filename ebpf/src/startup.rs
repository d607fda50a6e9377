//! Pods that nobody knows yet: on the cgroup above all pods, until the agent has found a pod and holds it where it belongs.
//!
//! A container's first instruction runs before anything can be attached to its interface; here its packets meet a
//! program nevertheless. What a known pod may do is not decided here.

use aya_ebpf::{
    bindings::__sk_buff, helpers::bpf_skb_ancestor_cgroup_id, macros::cgroup_skb, programs::SkBuffContext,
};
use egret_common::{
    decide::Tables,
    ids::identity,
    maps::{STARTUP_ALLOW, STARTUP_DENY},
    net::Direction,
    packet::Packet,
    verdict::DropReason,
};

use crate::{ctx::Skb, emit, maps, tables::Maps};

const IPV6: u16 = 0x86dd;
const PASS: i32 = 1;
/// Ingress: dropped.
const DROP: i32 = 0;
/// Egress: dropped, and the sender is told that it was sent, so that its own retry finds the pod held.
const SILENCE: i32 = 2;

/// Packets that leave sockets of pods.
#[cgroup_skb(egress)]
pub fn egret_startup_egress(ctx: SkBuffContext) -> i32 {
    if passes(ctx.skb.skb, Direction::Egress) { PASS } else { SILENCE }
}

/// Packets that reach sockets of pods.
#[cgroup_skb(ingress)]
pub fn egret_startup_ingress(ctx: SkBuffContext) -> i32 {
    if passes(ctx.skb.skb, Direction::Ingress) { PASS } else { DROP }
}

#[inline(always)]
fn passes(skb: *mut __sk_buff, direction: Direction) -> bool {
    let Some(startup) = maps::STARTUP.get(0) else { return true };
    if startup.mode == STARTUP_ALLOW || is_known(skb, startup.level + 2) || is_known(skb, startup.level + 1) {
        return true;
    }
    // The node's own network must not depend on the agent: the API server may be a pod, too.
    if startup.mode != STARTUP_DENY && uses_node_network(skb, direction) {
        return true;
    }
    let packet = Skb { skb, base: 0, zero: 0 };
    emit::count(0, direction, DropReason::UnknownEndpoint as u8, packet.len());
    false
}

/// Pods stand one or two levels below: their class of service may be between.
#[inline(always)]
fn is_known(skb: *mut __sk_buff, level: u32) -> bool {
    // SAFETY: the context pointer that the kernel gave us, and a map value that is only asked for.
    unsafe { maps::ENDPOINT_BY_CGROUP.get(bpf_skb_ancestor_cgroup_id(skb, level as i32)).is_some() }
}

/// Whether the socket's own address is one of this node's. A pod of its own network has another, and to write a false one
/// takes a raw socket, whose packets no cgroup sees anyway.
#[inline(always)]
fn uses_node_network(skb: *mut __sk_buff, direction: Direction) -> bool {
    let packet = Skb { skb, base: 0, zero: 0 };
    let out = matches!(direction, Direction::Egress);
    // SAFETY: the context pointer that the kernel gave us.
    let six = u16::from_be(unsafe { (*skb).protocol } as u16) == IPV6;
    let own = if six {
        packet.read::<40, _>(0, |header| if out { header.v6(8) } else { header.v6(24) })
    } else {
        packet.read::<20, _>(0, |header| if out { header.v4(12) } else { header.v4(16) })
    };
    match own {
        Some(own) => own.is_loopback() || Maps.identity(&own) == Some(identity::HOST),
        None => false,
    }
}
