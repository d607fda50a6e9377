//! `cgroup_skb`: the boundary for host-network pods, host services and `egret run`.

use aya_ebpf::{
    bindings::__sk_buff, helpers::bpf_skb_ancestor_cgroup_id, macros::cgroup_skb, programs::SkBuffContext,
};
use egret_common::{
    judge::{Work, judge},
    maps::{ENDPOINT_REJECT, Endpoint, FLOW_DNS},
    net::Direction,
    verdict::DropReason,
};

use crate::{ctx::Skb, dns, emit, maps, sock, tables::Maps};

/// Both directions: let through.
const PASS: i32 = 1;
/// Egress: `sendto` fails with EPERM. Ingress: dropped.
const REFUSE: i32 = 0;
/// Egress: dropped, and the sender is told that it was sent.
const SILENCE: i32 = 2;

/// Packets that leave sockets of the cgroup.
#[cgroup_skb(egress)]
pub fn egret_egress(ctx: SkBuffContext) -> i32 {
    match run(ctx.skb.skb, Direction::Egress) {
        Action::Pass => PASS,
        Action::Refuse => REFUSE,
        Action::Silence => SILENCE,
    }
}

/// Packets that reach sockets of the cgroup.
#[cgroup_skb(ingress)]
pub fn egret_ingress(ctx: SkBuffContext) -> i32 {
    match run(ctx.skb.skb, Direction::Ingress) {
        Action::Pass => PASS,
        Action::Refuse | Action::Silence => REFUSE,
    }
}

/// What becomes of the packet.
enum Action {
    Pass,
    Refuse,
    Silence,
}

#[inline(always)]
fn run(skb: *mut __sk_buff, direction: Direction) -> Action {
    // SAFETY: the context pointer that the kernel gave us.
    let cgroup = unsafe { bpf_skb_ancestor_cgroup_id(skb, maps::CONFIG.load().cgroup_level as i32) };
    let Some(endpoint) = sock::endpoint_of(cgroup) else {
        emit::count(0, direction, DropReason::UnknownEndpoint as u8, 0);
        return Action::Refuse;
    };
    let packet = Skb { skb, base: 0, zero: endpoint.zero };
    let mut work = Work::new(endpoint, direction);
    judge(&packet, &Maps, endpoint, &mut work);
    let mut question = 0;
    if work.judgement.flow_flags & FLOW_DNS as u32 != 0 {
        question = dns::inspect::<false>(&packet, endpoint, &mut work);
    }
    emit::account(&packet, endpoint, &work, question);
    action(endpoint, &work)
}

/// A refused query fails at once also while an answer is on its way through the agent; a packet does not.
#[inline(always)]
fn action(endpoint: &Endpoint, work: &Work) -> Action {
    if !work.judgement.is_drop() {
        return Action::Pass;
    }
    let query = work.judgement.decision.reason == DropReason::QueryRefused as u32;
    if endpoint.flags & ENDPOINT_REJECT == 0 || (!query && sock::pending(endpoint.id)) {
        return Action::Silence;
    }
    Action::Refuse
}
