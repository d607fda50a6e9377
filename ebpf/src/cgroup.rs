//! `cgroup_skb`: the boundary for host-network pods, host services and `egret run`.

use aya_ebpf::{
    bindings::__sk_buff, helpers::bpf_skb_ancestor_cgroup_id, macros::cgroup_skb, programs::SkBuffContext,
};
use egret_common::{
    judge::{self, Judgement},
    maps::{ENDPOINT_REJECT, Endpoint, FLOW_DNS, STAMP_SERVES},
    net::{Direction, proto},
    packet::{Packet, Parsed},
    verdict::{DropReason, Verdict},
};

use crate::{
    ctx::Skb,
    dns,
    emit::{self, Meta},
    maps, sock,
    tables::Maps,
};

/// Both directions: let through.
const PASS: i32 = 1;
/// Egress: `sendto` fails with EPERM. Ingress: dropped.
const REFUSE: i32 = 0;
/// Egress: dropped, and the sender is told that it was sent.
const SILENCE: i32 = 2;

/// Packets that leave sockets of the cgroup.
#[cgroup_skb(egress)]
pub fn egret_egress(ctx: SkBuffContext) -> i32 {
    let (verdict, silent) = run(ctx.skb.skb, Direction::Egress);
    match verdict {
        Verdict::Dropped if silent => SILENCE,
        Verdict::Dropped => REFUSE,
        _ => PASS,
    }
}

/// Packets that reach sockets of the cgroup.
#[cgroup_skb(ingress)]
pub fn egret_ingress(ctx: SkBuffContext) -> i32 {
    match run(ctx.skb.skb, Direction::Ingress).0 {
        Verdict::Dropped => REFUSE,
        _ => PASS,
    }
}

/// Verdict, and whether a drop should be silent.
#[inline(always)]
fn run(skb: *mut __sk_buff, direction: Direction) -> (Verdict, bool) {
    // SAFETY: the context pointer that the kernel gave us.
    let cgroup = unsafe { bpf_skb_ancestor_cgroup_id(skb, maps::CONFIG.load().cgroup_level as i32) };
    let Some(endpoint) = sock::endpoint_of(cgroup) else {
        emit::count(0, direction, DropReason::UnknownEndpoint as u8, 0);
        return (Verdict::Dropped, false);
    };
    let packet = Skb { skb, base: 0 };
    let mut parsed = Parsed::default();
    let mut judgement = emit::plain(Verdict::Dropped);
    judge(&packet, endpoint, direction as u32, &mut parsed, &mut judgement);
    let mut meta = Meta { direction: direction as u32, len: packet.len(), stamp: Default::default(), question: 0 };
    if judgement.flow_flags & FLOW_DNS != 0 && parsed.fragment == 0 {
        dns::inspect(&packet, endpoint, &parsed, &mut judgement, &mut meta);
    }
    if judgement.fresh {
        // SAFETY: the context pointer that the kernel gave us.
        let owner = sock::stamp(unsafe { (*skb).__bindgen_anon_2.sk }.cast());
        if let Some(owner) = owner {
            meta.stamp = *owner;
            if matches!(direction, Direction::Ingress) && parsed.proto == proto::UDP {
                owner.flags |= STAMP_SERVES;
            }
        }
    }
    emit::account(endpoint, &parsed, &judgement, &meta);
    (judgement.verdict, silent(endpoint, &judgement))
}

/// A frame of its own: what it needs of the stack is free again for the DNS scanner.
#[inline(never)]
fn judge(packet: &Skb, endpoint: &Endpoint, direction: u32, parsed: &mut Parsed, out: &mut Judgement) {
    let direction = if direction == 0 { Direction::Egress } else { Direction::Ingress };
    *out = judge::judge(packet, &Maps, endpoint, direction, parsed);
}

#[inline(always)]
fn silent(endpoint: &Endpoint, judgement: &Judgement) -> bool {
    if !matches!(judgement.verdict, Verdict::Dropped) {
        return false;
    }
    endpoint.flags & ENDPOINT_REJECT == 0
        || (!matches!(judgement.reason, Some(DropReason::QueryRefused)) && sock::pending(endpoint.id))
}
