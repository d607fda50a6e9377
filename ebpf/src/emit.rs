//! Counters, drop events and the report's destinations. Nothing here waits: what does not fit is counted.

use aya_ebpf::helpers::bpf_jiffies64;
use egret_common::{
    event::FlowEvent,
    judge::Judgement,
    maps::{Counter, Destination, DestinationKey, ENDPOINT_REPORT, Endpoint, SocketStamp, counter_index},
    net::{Addr, Direction, proto},
    packet::Parsed,
    verdict::{DropReason, Verdict},
};

use crate::{maps, tables::boot_ns};

/// Index into `LOST`.
pub const LOST_FLOW_EVENTS: u32 = 0;
/// Index into `LOST`.
pub const LOST_DNS_EVENTS: u32 = 1;
/// Index into `LOST`.
pub const LOST_SCRATCH: u32 = 2;

/// Adds one to a loss counter.
#[inline(always)]
pub fn lost(index: u32) {
    if let Some(count) = maps::LOST.get_ptr_mut(index) {
        // SAFETY: this CPU's slot; a nested program may lose one increment.
        unsafe { *count += 1 }
    }
}

/// Counts; true when an event for this reason is within its rate.
#[inline(always)]
pub fn count(endpoint: u32, direction: Direction, reason: u8, bytes: u32) -> bool {
    let Some(counter) = maps::COUNTERS.get_ptr_mut(counter_index(endpoint, direction, reason)) else {
        return false;
    };
    // SAFETY: this CPU's slot. Atomic, since egress is re-entered on its CPU and the counts are exact.
    let counter: &mut Counter = unsafe { &mut *counter };
    add(&raw mut counter.packets, 1);
    add(&raw mut counter.bytes, bytes as u64);
    if reason == 0 {
        return true;
    }
    let config = maps::CONFIG.load();
    // SAFETY: a helper without arguments.
    let now = unsafe { bpf_jiffies64() };
    if now.wrapping_sub(counter.window) >= config.hz as u64 {
        counter.window = now;
        counter.events = 0;
    }
    if counter.events >= config.events_per_second {
        counter.suppressed = counter.suppressed.wrapping_add(1);
        return false;
    }
    counter.events += 1;
    true
}

#[inline(always)]
fn add(to: *mut u64, by: u64) {
    // SAFETY: a field of a map value.
    unsafe {
        core::intrinsics::atomic_xadd::<u64, u64, { core::intrinsics::AtomicOrdering::Relaxed }>(to, by);
    }
}

/// Who made the socket, as far as it is known.
#[inline(always)]
pub fn stamp_of(stamp: Option<&SocketStamp>) -> SocketStamp {
    match stamp {
        Some(stamp) => *stamp,
        None => SocketStamp::default(),
    }
}

/// Tells user space about a new flow or a drop.
#[inline(never)]
pub fn flow_event(endpoint: &Endpoint, parsed: &Parsed, verdict: &Judgement, meta: &Meta) {
    let Some(mut record) = maps::FLOW_EVENTS.reserve(0) else {
        lost(LOST_FLOW_EVENTS);
        return;
    };
    let out = meta.direction == Direction::Egress as u32;
    record.write(FlowEvent {
        time: boot_ns(),
        local: if out { parsed.src } else { parsed.dst },
        remote: if out { parsed.dst } else { parsed.src },
        endpoint: endpoint.id,
        set: if out { endpoint.egress_set } else { endpoint.ingress_set },
        class: verdict.class,
        cookie: verdict.cookie,
        age: verdict.age,
        pid: meta.stamp.pid,
        len: meta.len,
        local_port: if out { parsed.sport } else { parsed.dport },
        remote_port: if out { parsed.dport } else { parsed.sport },
        proto: parsed.proto,
        direction: meta.direction as u8,
        verdict: verdict.verdict as u8,
        reason: reason(verdict),
        tcp_flags: parsed.tcp_flags,
        pad: [0; 3],
        comm: meta.stamp.comm,
    });
    record.submit(aya_ebpf::bindings::BPF_RB_NO_WAKEUP as u64);
}

/// What an event says beside the packet.
#[derive(Clone, Copy)]
pub struct Meta {
    /// [`Direction`] as a number.
    pub direction: u32,
    /// Bytes from the network header on.
    pub len: u32,
    /// Creator of the socket.
    pub stamp: SocketStamp,
    /// Hash of the DNS question in the packet; 0 = none.
    pub question: u64,
}

/// Reason number of a judgement; 0 = forwarded.
#[inline(always)]
pub fn reason(judgement: &Judgement) -> u8 {
    match judgement.reason {
        Some(reason) => reason as u8,
        None => 0,
    }
}

/// Counts a judgement and, at the moments that matter, writes the event and the report's entry.
#[inline(always)]
pub fn account(endpoint: &Endpoint, parsed: &Parsed, judgement: &Judgement, meta: &Meta) {
    let direction = if meta.direction == 0 { Direction::Egress } else { Direction::Ingress };
    let wanted = count(endpoint.id, direction, reason(judgement), meta.len);
    if !judgement.fresh {
        return;
    }
    if wanted && maps::CONFIG.load().flags & egret_common::maps::CONFIG_EVENTS != 0 {
        flow_event(endpoint, parsed, judgement, meta);
    }
    if endpoint.flags & ENDPOINT_REPORT != 0 {
        let (remote, port) =
            if meta.direction == 0 { (parsed.dst, parsed.dport) } else { (parsed.src, parsed.dport) };
        let refused = matches!(judgement.reason, Some(DropReason::QueryRefused));
        let key = DestinationKey {
            remote,
            endpoint: endpoint.id,
            port,
            proto: if refused { proto::DNS_QUERY } else { parsed.proto },
            reason: reason(judgement),
            pid: meta.stamp.pid,
            direction: meta.direction,
            name: if refused { meta.question } else { 0 },
        };
        destination(&key, judgement, &meta.stamp.comm);
    }
}

/// Adds one to the report's entry.
#[inline(never)]
pub fn destination(key: &DestinationKey, judgement: &Judgement, comm: &[u8; 16]) {
    let now = boot_ns();
    if let Some(entry) = maps::DESTINATIONS.get_ptr_mut(key) {
        // SAFETY: a map value.
        let entry: &mut Destination = unsafe { &mut *entry };
        add(&raw mut entry.count, 1);
        entry.last = now;
        return;
    }
    let value = Destination {
        count: 1,
        first: now,
        last: now,
        class: judgement.class,
        cookie: judgement.cookie,
        age: judgement.age,
        pad: 0,
        comm: *comm,
    };
    // NOEXIST: two CPUs that meet here must not reset each other's count; the loser adds its one.
    if maps::DESTINATIONS.insert(key, value, 1).is_err()
        && let Some(entry) = maps::DESTINATIONS.get_ptr_mut(key)
    {
        // SAFETY: a map value.
        add(unsafe { &raw mut (*entry).count }, 1);
    }
}

/// For refused queries and connects, which have no packet of their own.
#[inline(always)]
pub fn report_key(endpoint: &Endpoint, remote: Addr, port: u16, proto: u8, reason: u8) -> DestinationKey {
    DestinationKey { remote, endpoint: endpoint.id, port, proto, reason, pid: 0, direction: 0, name: 0 }
}

/// A judgement for [`destination`] when there was none.
#[inline(always)]
pub fn plain(verdict: Verdict) -> Judgement {
    Judgement { verdict, reason: None, fresh: true, flow_flags: 0, class: 0, cookie: 0, age: 0, forward: true }
}
