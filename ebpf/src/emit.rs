//! Counters, drop events and the report's destinations. Nothing here waits: what does not fit is counted.

use aya_ebpf::helpers::bpf_jiffies64;
use egret_common::{
    event::FlowEvent,
    judge::{Judgement, Work},
    maps::{
        CONFIG_EVENTS, Counter, Destination, DestinationKey, ENDPOINT_REPORT, Endpoint, STAMP_SERVES,
        SocketStamp, counter_index,
    },
    net::{Direction, proto},
    packet::Packet,
    verdict::DropReason,
};

use crate::{ctx::Skb, maps, sock, tables::boot_ns};

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

/// Adds to a field of a map value.
#[inline(always)]
pub fn add_word(to: *mut u32, by: u32) {
    // SAFETY: a field of a map value.
    unsafe {
        core::intrinsics::atomic_xadd::<u32, u32, { core::intrinsics::AtomicOrdering::Relaxed }>(to, by);
    }
}

/// Adds to a field of a map value.
#[inline(always)]
pub fn add(to: *mut u64, by: u64) {
    // SAFETY: a field of a map value.
    unsafe {
        core::intrinsics::atomic_xadd::<u64, u64, { core::intrinsics::AtomicOrdering::Relaxed }>(to, by);
    }
}

/// Tells user space about a new flow or a drop.
#[inline(never)]
pub fn flow_event(endpoint: &Endpoint, work: &Work, len: u32, stamp: &SocketStamp, now: u64) {
    let Some(mut record) = maps::FLOW_EVENTS.reserve(0) else {
        lost(LOST_FLOW_EVENTS);
        return;
    };
    let (parsed, verdict) = (&work.parsed, &work.judgement);
    let out = matches!(work.direction, Direction::Egress);
    record.write(FlowEvent {
        time: now,
        local: if out { parsed.src } else { parsed.dst },
        remote: if out { parsed.dst } else { parsed.src },
        endpoint: endpoint.id,
        set: if out { endpoint.egress_set } else { endpoint.ingress_set },
        class: verdict.decision.class,
        cookie: verdict.decision.cookie,
        age: verdict.decision.age,
        pid: stamp.pid,
        len,
        local_port: if out { parsed.sport } else { parsed.dport },
        remote_port: if out { parsed.dport } else { parsed.sport },
        proto: parsed.proto,
        direction: work.direction as u8,
        verdict: verdict.verdict as u8,
        reason: verdict.decision.reason as u8,
        tcp_flags: parsed.tcp_flags as u32,
        comm: stamp.comm,
    });
    record.submit(aya_ebpf::bindings::BPF_RB_NO_WAKEUP as u64);
}

/// Counts a judgement and, at the moments that matter, writes the event and the report's entry. `question`: hash of
/// the DNS question in the packet, or 0.
#[inline(always)]
pub fn account(packet: &Skb, endpoint: &Endpoint, work: &Work, question: u64) {
    let wanted = count(endpoint.id, work.direction, work.judgement.decision.reason as u8, packet.len());
    let told = maps::CONFIG.load().flags & CONFIG_EVENTS != 0 || endpoint.flags & ENDPOINT_REPORT != 0;
    if work.judgement.fresh != 0 && (told || matches!(work.direction, Direction::Ingress)) {
        fresh(packet, endpoint, work, question, wanted as u32);
    }
}

#[inline(never)]
fn fresh(packet: &Skb, endpoint: &Endpoint, work: &Work, question: u64, wanted: u32) {
    // SAFETY: the context pointer that the kernel gave us.
    let owner = sock::stamp(unsafe { (*packet.skb).__bindgen_anon_2.sk }.cast());
    let facts = Facts { question, len: packet.len(), wanted: wanted != 0 };
    let Some(owner) = owner else {
        tell(endpoint, work, &facts, &sock::UNSTAMPED);
        return;
    };
    if matches!(work.direction, Direction::Ingress) && work.parsed.proto == proto::UDP {
        owner.flags |= STAMP_SERVES;
    }
    tell(endpoint, work, &facts, owner);
}

/// What is told beside the judgement.
pub struct Facts {
    /// Hash of the DNS question, or 0.
    pub question: u64,
    /// Bytes from the network header on.
    pub len: u32,
    /// The event is within its rate.
    pub wanted: bool,
}

/// Writes the event and the report's entry.
#[inline(never)]
pub fn tell(endpoint: &Endpoint, work: &Work, facts: &Facts, stamp: &SocketStamp) {
    let now = boot_ns();
    if facts.wanted && maps::CONFIG.load().flags & CONFIG_EVENTS != 0 {
        flow_event(endpoint, work, facts.len, stamp, now);
    }
    if endpoint.flags & ENDPOINT_REPORT != 0 {
        destination(
            &destination_key(endpoint, work, facts.question, stamp.pid),
            &work.judgement,
            &stamp.comm,
            now,
        );
    }
}

/// The report's key for a packet.
#[inline(always)]
fn destination_key(endpoint: &Endpoint, work: &Work, question: u64, pid: u32) -> DestinationKey {
    let refused = work.judgement.decision.reason == DropReason::QueryRefused as u32;
    let out = matches!(work.direction, Direction::Egress);
    DestinationKey {
        remote: if out { work.parsed.dst } else { work.parsed.src },
        endpoint: endpoint.id,
        port: work.parsed.dport,
        proto: if refused { proto::DNS_QUERY } else { work.parsed.proto },
        reason: work.judgement.decision.reason as u8,
        pid,
        direction: work.direction as u32,
        name: if refused { question } else { 0 },
    }
}

/// Adds one to the report's entry.
#[inline(never)]
pub fn destination(key: &DestinationKey, judgement: &Judgement, comm: &[u8; 16], now: u64) {
    let held =
        (key.proto == proto::TCP && judgement.decision.reason != 0 && sock::pending(key.endpoint)) as u32;
    if let Some(entry) = maps::DESTINATIONS.get_ptr_mut(key) {
        // SAFETY: a map value.
        let entry: &mut Destination = unsafe { &mut *entry };
        add(&raw mut entry.count, 1);
        entry.last = now;
        entry.held = entry.held.wrapping_add(held);
        return;
    }
    let value = Destination {
        count: 1,
        first: now,
        last: now,
        class: judgement.decision.class,
        cookie: judgement.decision.cookie,
        age: judgement.decision.age,
        held,
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
