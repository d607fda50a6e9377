//! DNS on its way through: queries are filtered and remembered, answers to them are learned before they are
//! delivered, and the agent gets a copy of both. The scanning itself is `egret_common::dns`.

use aya_ebpf::{
    bindings::{BPF_RB_FORCE_WAKEUP, BPF_RB_NO_WAKEUP},
    helpers::{bpf_jiffies64, bpf_ringbuf_output, bpf_skb_load_bytes},
};
use egret_common::{
    decide::{Tables, may_ask},
    dns::{MSG_CAP, Outcome, Scratch, Step, classify, credited, scan_answer, scan_query},
    event::{
        DNS_ASKED, DNS_LEARNED, DNS_REFUSED, DNS_SEGMENT, DNS_SLOW, DNS_TRUSTED, DnsEvent,
    },
    grant as grants,
    ids,
    judge::{FlowSlot, Judgement, State, flow_key, refusal},
    maps::{CONFIG_SLOW_PATTERNS, ENDPOINT_QUERY_FILTER, Endpoint, FLOW_TRUSTED, QueryKey},
    net::{Direction, proto},
    packet::Parsed,
    verdict::{DropReason, Verdict},
};

use crate::{
    ctx::Skb,
    emit::{self, Meta},
    grant, maps,
    scan::{self, BpfLoop},
    tables::{Maps, boot_ns},
};

/// Longest message that is scanned.
const SCAN_MAX: u32 = MSG_CAP as u32 - 1;
/// Pieces in which a longer payload goes to the agent.
const SEGMENTS: u32 = 16;
/// Messages in one TCP segment that the filter looks at.
const PIPELINED: u32 = 4;

/// Looks at a packet of a DNS flow; a refused query changes the judgement.
#[inline(never)]
pub fn inspect(packet: &Skb, endpoint: &Endpoint, parsed: &Parsed, judgement: &mut Judgement, meta: &mut Meta) {
    let (offset, len) = parsed.payload();
    if len == 0 {
        return;
    }
    let trusted = judgement.flow_flags & FLOW_TRUSTED != 0;
    if meta.direction == Direction::Egress as u32 {
        let Some(slot) = scan::take_slot() else {
            emit::lost(emit::LOST_SCRATCH);
            if endpoint.flags & ENDPOINT_QUERY_FILTER != 0 {
                refuse(endpoint, judgement);
            }
            return;
        };
        if let Some(scratch) = maps::SCRATCH_EGRESS.get_ptr_mut(slot) {
            // SAFETY: this CPU's slot, held through the lock.
            let scratch = unsafe { &mut *scratch };
            head(scratch, endpoint, parsed, meta, trusted);
            if !queries(packet, endpoint, parsed, scratch, offset, len) {
                refuse(endpoint, judgement);
            }
            meta.question = scratch.event.question;
        }
        scan::free_slot(slot);
    } else if trusted && !judgement.forward
        && let Some(scratch) = maps::SCRATCH_INGRESS.get_ptr_mut(0)
    {
        // SAFETY: ingress runs in softirq and is not re-entered on its CPU.
        let scratch = unsafe { &mut *scratch };
        head(scratch, endpoint, parsed, meta, trusted);
        answer(packet, endpoint, parsed, scratch, offset, len);
    }
}

#[inline(always)]
fn refuse(endpoint: &Endpoint, judgement: &mut Judgement) {
    judgement.verdict = refusal(endpoint);
    judgement.reason = Some(DropReason::QueryRefused);
    judgement.fresh = true;
}

/// Fills the head of the event.
#[inline(always)]
fn head(s: &mut Scratch, endpoint: &Endpoint, parsed: &Parsed, meta: &Meta, trusted: bool) {
    let out = meta.direction == Direction::Egress as u32;
    s.event = DnsEvent {
        time: boot_ns(),
        local: if out { parsed.src } else { parsed.dst },
        remote: if out { parsed.dst } else { parsed.src },
        question: 0,
        endpoint: endpoint.id,
        seq: parsed.seq,
        len: 0,
        full_len: 0,
        class: 0,
        pid: meta.stamp.pid,
        local_port: if out { parsed.sport } else { parsed.dport },
        remote_port: if out { parsed.dport } else { parsed.sport },
        proto: parsed.proto,
        direction: meta.direction as u8,
        flags: if trusted { DNS_TRUSTED } else { 0 },
        granted: 0,
        comm: meta.stamp.comm,
    };
}

/// Copies a message into the scratch; false when it is too short or too long to be scanned.
#[inline(always)]
fn load(packet: &Skb, s: &mut Scratch, offset: u32, len: u32) -> bool {
    if len > SCAN_MAX {
        return false;
    }
    // The verifier wants both bounds on the register that the helper gets; the compiler must not see through.
    let len = scan::opaque(len) & SCAN_MAX;
    if len < 12 {
        return false;
    }
    s.len = len;
    // SAFETY: at most 4,095 bytes into a buffer of more.
    let failed = unsafe {
        bpf_skb_load_bytes(
            packet.skb.cast(),
            packet.base.wrapping_add(offset),
            s.msg.as_mut_ptr().cast(),
            len,
        )
    };
    failed == 0
}

/// Big-endian 16 bits of the packet.
#[inline(always)]
fn be16(packet: &Skb, offset: u32) -> Option<u32> {
    let mut bytes = egret_common::packet::Bytes::<2>::default();
    if egret_common::packet::Packet::load(packet, offset, &mut bytes) { Some(bytes.be16(0) as u32) } else { None }
}

/// Queries in a packet; false when the packet has to be refused.
#[inline(always)]
fn queries(packet: &Skb, endpoint: &Endpoint, parsed: &Parsed, s: &mut Scratch, offset: u32, len: u32) -> bool {
    let filtered = endpoint.flags & ENDPOINT_QUERY_FILTER != 0;
    if parsed.proto == proto::UDP {
        if load(packet, s, offset, len) {
            return query(endpoint, parsed, s, filtered);
        }
        return !filtered;
    }
    if parsed.proto != proto::TCP {
        return true;
    }
    let known = stream(packet, endpoint, parsed, s, (offset, len), filtered);
    if known == Stream::Foreign {
        if filtered {
            return false;
        }
        segments(packet, s, offset, len, 0);
    }
    known != Stream::Refused
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Stream {
    /// Whole messages, all of them allowed.
    Allowed,
    /// A message that is not allowed.
    Refused,
    /// Not whole messages.
    Foreign,
}

/// DNS over TCP from the endpoint: the filter lets through what it can read, so a segment has to hold whole
/// messages, or the two length bytes alone with the message in the next one (some clients write them apart).
#[inline(always)]
fn stream(
    packet: &Skb,
    endpoint: &Endpoint,
    parsed: &Parsed,
    s: &mut Scratch,
    (offset, len): (u32, u32),
    filtered: bool,
) -> Stream {
    let (mut at, end) = (offset, offset + len);
    let flow = Maps.flow(&flow_key(endpoint, parsed, Direction::Egress));
    let mut announced = 0;
    if let Some(slot) = &flow {
        let mut value = slot.read();
        if value.dns_len != 0 && value.dns_seq == parsed.seq {
            announced = value.dns_len as u32;
        } else if len == 2 {
            value.dns_len = be16(packet, at).unwrap_or(0) as u16;
            value.dns_seq = parsed.seq.wrapping_add(2);
            slot.write(&value);
            return Stream::Allowed;
        }
    }
    let mut messages = 0;
    while messages < PIPELINED {
        let size = if announced != 0 {
            announced
        } else {
            let Some(size) = be16(packet, at) else { return Stream::Foreign };
            at += 2;
            size
        };
        announced = 0;
        if at + size > end || !load(packet, s, at, size) {
            return Stream::Foreign;
        }
        if !query(endpoint, parsed, s, filtered) {
            return Stream::Refused;
        }
        at += size;
        if at == end {
            return Stream::Allowed;
        }
        messages += 1;
    }
    Stream::Foreign
}

/// One query; false when it has to be refused.
#[inline(never)]
fn query(endpoint: &Endpoint, parsed: &Parsed, s: &mut Scratch, filtered: bool) -> bool {
    let outcome = scan_query::<BpfLoop>(s);
    let readable = outcome != Outcome::Unreadable;
    s.event.class = if filtered && readable { classify(&Maps, s) } else { 0 };
    s.event.question = if readable { s.question } else { 0 };
    let allowed =
        !filtered || (outcome == Outcome::Proven && may_ask(&Maps, endpoint, s.event.class, parsed.dport));
    let passes = allowed || matches!(refusal(endpoint), Verdict::Audited);
    if readable && passes {
        let key = QueryKey {
            flow: flow_key(endpoint, parsed, Direction::Egress),
            question: s.question,
            txid: s.txid as u16,
            pad: [0; 3],
        };
        // A full LRU forgets the oldest question; its answer is then not learned by the kernel.
        let _ = maps::DNS_QUERIES.insert(key, s.event.time, 0);
    }
    if !allowed {
        s.event.flags |= DNS_REFUSED;
    }
    let urgent = allowed && maps::CONFIG.load().flags & CONFIG_SLOW_PATTERNS != 0;
    emit(s, urgent);
    s.event.flags &= !DNS_REFUSED;
    allowed
}

/// An answer from a trusted resolver.
#[inline(always)]
fn answer(packet: &Skb, endpoint: &Endpoint, parsed: &Parsed, s: &mut Scratch, offset: u32, len: u32) {
    let tcp = parsed.proto == proto::TCP;
    let whole = if tcp {
        len > 2 && be16(packet, offset) == Some(len - 2) && load(packet, s, offset + 2, len - 2)
    } else {
        load(packet, s, offset, len)
    };
    if !whole {
        wait_for_agent(endpoint);
        segments(packet, s, offset, len, if tcp { DNS_SLOW } else { DNS_SLOW | DNS_ASKED });
        return;
    }
    let outcome = scan_answer::<BpfLoop>(s);
    if outcome == Outcome::Unreadable {
        emit(s, false);
        return;
    }
    s.event.question = s.question;
    let key = QueryKey {
        flow: flow_key(endpoint, parsed, Direction::Ingress),
        question: s.question,
        txid: s.txid as u16,
        pad: [0; 3],
    };
    // Each question is answered once; a second answer, forged or repeated, teaches nothing.
    if maps::DNS_QUERIES.remove(key).is_ok() {
        s.event.flags |= DNS_ASKED;
        learn(endpoint, s, outcome);
    }
    emit(s, s.event.flags & DNS_SLOW != 0);
}

/// Grants what the scan proved, or hands the answer to the agent.
#[inline(always)]
fn learn(endpoint: &Endpoint, s: &mut Scratch, outcome: Outcome) {
    let class = classify(&Maps, s);
    s.event.class = class;
    let slow_patterns = maps::CONFIG.load().flags & CONFIG_SLOW_PATTERNS != 0;
    let unknown = class == 0 && slow_patterns && s.address_count != 0;
    let expanded = class & ids::CLASS_QUERY_ONLY != 0 && s.has_aliases();
    if outcome == Outcome::Slow || unknown || expanded {
        wait_for_agent(endpoint);
        s.event.flags |= DNS_SLOW;
        return;
    }
    s.event.flags |= DNS_LEARNED;
    if class != 0 && class & ids::CLASS_QUERY_ONLY == 0 && s.address_count != 0 {
        s.cursor = 0;
        <BpfLoop as egret_common::dns::Driver>::repeat::<GrantAddress>(
            s,
            egret_common::dns::ADDRESS_CAP as u32,
        );
    }
}

/// Until the agent has read the answer, a refused connect is dropped in silence, so that TCP's retry finds the grant.
#[inline(always)]
fn wait_for_agent(endpoint: &Endpoint) {
    if let Some(state) = grant::state(endpoint.id) {
        // SAFETY: a helper without arguments.
        state.pending_until = unsafe { bpf_jiffies64() } + (Maps.hz() / 2);
    }
}

/// Grants one address of a proven answer.
struct GrantAddress;

impl Step for GrantAddress {
    #[inline(always)]
    fn step(s: &mut Scratch) -> bool {
        if s.cursor >= s.address_count {
            return false;
        }
        let record = credited(s, s.cursor);
        s.cursor += 1;
        let id = s.event.endpoint;
        let Some(endpoint) = maps::ENDPOINTS.get(id) else { return false };
        if record.addr.is_forbidden_answer() || Maps.identity(&record.addr).is_some() {
            if let Some(state) = grant::state(id) {
                state.forbidden += 1;
            }
            emit::count(id, Direction::Ingress, DropReason::ForbiddenAnswerAddress as u8, 0);
            return true;
        }
        let now = Maps.grant_now();
        if grant::put(id, record.addr, s.event.class, grants::expiry(endpoint, now, record.ttl), now) {
            s.event.granted = s.event.granted.wrapping_add(1);
        }
        true
    }
}

/// Hands the message in the scratch to the agent.
#[inline(always)]
fn emit(s: &mut Scratch, urgent: bool) {
    let len = scan::opaque(s.len) & SCAN_MAX;
    s.event.len = len;
    if s.event.full_len == 0 {
        s.event.full_len = len;
    }
    let flags = if urgent { BPF_RB_FORCE_WAKEUP } else { BPF_RB_NO_WAKEUP };
    // SAFETY: the event and the message behind it are one piece of map memory of 96 + 4,160 bytes.
    let failed = unsafe {
        bpf_ringbuf_output(
            (&raw const maps::DNS_EVENTS).cast_mut().cast(),
            (&raw mut *s).cast(),
            (size_of::<DnsEvent>() as u32 + len) as u64,
            flags as u64,
        )
    };
    if failed != 0 {
        emit::lost(emit::LOST_DNS_EVENTS);
    }
}

/// Hands a payload that cannot be scanned here to the agent, in pieces.
#[inline(always)]
fn segments(packet: &Skb, s: &mut Scratch, offset: u32, len: u32, flags: u8) {
    s.event.flags |= flags | DNS_SEGMENT;
    let first = s.event.seq;
    let mut piece = 0;
    let mut done = 0;
    while piece < SEGMENTS {
        let rest = len - done;
        let size = scan::opaque(if rest > SCAN_MAX { SCAN_MAX } else { rest }) & SCAN_MAX;
        if size == 0 {
            return;
        }
        // SAFETY: at most 4,095 bytes into a buffer of more.
        let failed = unsafe {
            bpf_skb_load_bytes(
                packet.skb.cast(),
                packet.base.wrapping_add(offset).wrapping_add(done),
                s.msg.as_mut_ptr().cast(),
                size,
            )
        };
        if failed != 0 {
            emit::lost(emit::LOST_DNS_EVENTS);
            return;
        }
        s.len = size;
        s.event.seq = first.wrapping_add(done);
        s.event.full_len = len;
        emit(s, flags & DNS_SLOW != 0);
        done += size;
        if done >= len {
            return;
        }
        piece += 1;
    }
    emit::lost(emit::LOST_DNS_EVENTS);
}
