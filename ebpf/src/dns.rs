//! DNS on its way through: queries are filtered and remembered, answers to them are learned before they are
//! delivered, and the agent gets a copy of both. The scanning itself is `egret_common::dns`.

use aya_ebpf::{
    bindings::{__sk_buff, BPF_RB_FORCE_WAKEUP, BPF_RB_NO_WAKEUP},
    helpers::{bpf_jiffies64, bpf_ringbuf_output, bpf_skb_load_bytes},
};
use egret_common::{
    decide::{Tables, may_ask},
    dns::{MSG_CAP, Outcome, Scratch, Step, classify, credited, scan_answer, scan_query},
    event::{DNS_ASKED, DNS_LEARNED, DNS_REFUSED, DNS_SEGMENT, DNS_SLOW, DNS_TRUSTED, DnsEvent},
    grant as grants, ids,
    judge::{FlowSlot, Judgement, State, Work, refusal},
    maps::{CONFIG_SLOW_PATTERNS, ENDPOINT_QUERY_FILTER, Endpoint, FLOW_TRUSTED, FlowKey, FlowValue},
    net::{Direction, proto},
    packet::{Packet, WHOLE},
    verdict::{DropReason, Verdict},
};

use crate::{
    ctx::Skb,
    emit, grant, maps,
    scan::{self, BpfLoop, PacketStep},
    sock,
    tables::{Maps, boot_ns},
};

/// Longest message that is scanned.
const SCAN_MAX: u32 = MSG_CAP as u32 - 1;
/// Pieces in which a longer payload goes to the agent.
const SEGMENTS: u32 = 16;
/// Messages in one TCP segment that the filter looks at.
const PIPELINED: u32 = 4;

/// Looks at a packet of a DNS flow; a refused query changes the judgement. Returns the hash of the question, or 0. `TC`:
/// for the programs at an interface, which have a scan memory of their own.
#[inline(never)]
pub fn inspect<const TC: bool>(packet: &Skb, endpoint: &Endpoint, work: &mut Work) -> u64 {
    if work.parsed.fragment != WHOLE {
        // A filter cannot read a message in pieces. Sockets do not send such: the hook is ahead of fragmentation.
        unread(endpoint, work);
        return 0;
    }
    let (offset, len) = work.parsed.payload();
    if len == 0 {
        return 0;
    }
    if TC {
        let Some(scratch) = maps::SCRATCH_TC.get_ptr_mut(0) else {
            unread(endpoint, work);
            return 0;
        };
        // SAFETY: this CPU's memory; TC programs are not re-entered on their CPU.
        let scratch = unsafe { &mut *scratch };
        if matches!(work.direction, Direction::Egress) {
            return ask(packet, endpoint, work, scratch, offset, len);
        }
        if is_answer(work) {
            head(packet, scratch, work);
            answer(packet, endpoint, scratch, offset, len);
        }
        return 0;
    }
    if matches!(work.direction, Direction::Egress) {
        let Some(slot) = scan::take_slot() else {
            emit::lost(emit::LOST_SCRATCH);
            unread(endpoint, work);
            return 0;
        };
        let mut question = 0;
        if let Some(scratch) = maps::SCRATCH_EGRESS.get_ptr_mut(slot) {
            // SAFETY: this CPU's slot, held through the lock.
            let scratch = unsafe { &mut *scratch };
            question = ask(packet, endpoint, work, scratch, offset, len);
        }
        scan::free_slot(slot);
        return question;
    }
    if is_answer(work)
        && let Some(scratch) = maps::SCRATCH_INGRESS.get_ptr_mut(0)
    {
        // SAFETY: ingress runs in softirq and is not re-entered on its CPU.
        let scratch = unsafe { &mut *scratch };
        head(packet, scratch, work);
        answer(packet, endpoint, scratch, offset, len);
    }
    0
}

/// A packet that is not read is none that a filter can let out.
#[inline(always)]
fn unread(endpoint: &Endpoint, work: &mut Work) {
    if matches!(work.direction, Direction::Egress) && endpoint.flags & ENDPOINT_QUERY_FILTER != 0 {
        refuse(endpoint, &mut work.judgement);
    }
}

/// Whether the packet comes from a resolver that is believed, on a flow that the endpoint began.
#[inline(always)]
fn is_answer(work: &Work) -> bool {
    work.judgement.flow_flags & FLOW_TRUSTED as u32 != 0 && work.judgement.forward == 0
}

/// A packet to a resolver. Returns the hash of the question.
#[inline(always)]
fn ask(packet: &Skb, endpoint: &Endpoint, work: &mut Work, s: &mut Scratch, offset: u32, len: u32) -> u64 {
    head(packet, s, work);
    if !queries(packet, endpoint, s, offset, len) {
        refuse(endpoint, &mut work.judgement);
    }
    s.event.question
}

#[inline(always)]
fn refuse(endpoint: &Endpoint, judgement: &mut Judgement) {
    judgement.verdict = refusal(endpoint) as u32;
    judgement.decision.reason = DropReason::QueryRefused as u32;
    judgement.fresh = 1;
}

/// Fills the head of the event, and of the key under which the question is remembered.
#[inline(never)]
fn head(packet: &Skb, s: &mut Scratch, work: &Work) {
    let trusted = work.judgement.flow_flags & FLOW_TRUSTED as u32 != 0;
    // SAFETY: the context pointer that the kernel gave us.
    let owner = sock::stamp(unsafe { (*packet.skb).__bindgen_anon_2.sk }.cast());
    let owner = owner.as_deref().unwrap_or(&sock::UNSTAMPED);
    s.base = packet.base;
    s.query.flow = work.key;
    s.event = DnsEvent {
        time: boot_ns(),
        local: work.key.local,
        remote: work.key.remote,
        question: 0,
        endpoint: work.key.endpoint,
        seq: work.parsed.seq,
        len: 0,
        full_len: 0,
        class: 0,
        pid: owner.pid,
        local_port: work.key.local_port,
        remote_port: work.key.remote_port,
        proto: work.parsed.proto,
        direction: work.direction as u8,
        flags: if trusted { DNS_TRUSTED } else { 0 },
        granted: 0,
        comm: owner.comm,
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
    s.event.full_len = len;
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

/// Queries in a packet; false when the packet has to be refused.
#[inline(always)]
fn queries(packet: &Skb, endpoint: &Endpoint, s: &mut Scratch, offset: u32, len: u32) -> bool {
    let filtered = endpoint.flags & ENDPOINT_QUERY_FILTER != 0;
    if s.event.proto == proto::UDP {
        if load(packet, s, offset, len) {
            return query(endpoint, s);
        }
        return !filtered;
    }
    let known = stream(packet, s, offset, len);
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
/// Until the announced message has passed, nothing else can be announced: otherwise a message could be sent as
/// a row of announcements.
#[inline(always)]
fn stream(packet: &Skb, s: &mut Scratch, offset: u32, len: u32) -> Stream {
    let lone = if len == 2 { packet.be16(offset).unwrap_or(0) } else { 0 };
    let announced = match announced(&s.query.flow, s.event.seq, len == 2, lone) {
        LENGTH_PASSES => return Stream::Allowed,
        LENGTH_REFUSED => return Stream::Foreign,
        size => size,
    };
    s.cursor = offset;
    s.cursor_end = offset + len;
    s.found = announced;
    scan::repeat_with_packet::<StreamMessage>(s, packet.skb, PIPELINED);
    match s.found {
        STREAM_DONE => {
            if announced != 0 {
                passed(&s.query.flow);
            }
            Stream::Allowed
        }
        STREAM_REFUSED => Stream::Refused,
        _ => Stream::Foreign,
    }
}

/// [`announced`]: the two bytes were noted.
const LENGTH_PASSES: u32 = u32::MAX;
/// [`announced`]: the two bytes come at a time when nothing can be announced.
const LENGTH_REFUSED: u32 = u32::MAX - 1;

/// Length of the message that was announced for `seq`, or 0. Notes the length `size` when it stands `alone`.
#[inline(never)]
fn announced(key: &FlowKey, seq: u32, alone: bool, size: u16) -> u32 {
    let Some(slot) = Maps.flow(key) else { return 0 };
    let mut value = slot.read();
    if value.dns_len != 0 && value.dns_seq == seq {
        return value.dns_len as u32;
    }
    if !alone {
        return 0;
    }
    if !announces(&mut value, seq.wrapping_add(2), size) {
        return LENGTH_REFUSED;
    }
    slot.write(&value);
    LENGTH_PASSES
}

/// The announced message has passed.
#[inline(never)]
fn passed(key: &FlowKey) {
    if let Some(slot) = Maps.flow(key) {
        slot.write(&FlowValue { dns_passed: 1, ..slot.read() });
    }
}

/// Whether two bytes alone may announce a message of `size` bytes that begins at `seq`; notes it in the flow.
#[inline(always)]
fn announces(value: &mut FlowValue, seq: u32, size: u16) -> bool {
    let again = value.dns_len == size && value.dns_seq == seq;
    let end = value.dns_seq.wrapping_add(value.dns_len as u32);
    let behind = (seq.wrapping_sub(2).wrapping_sub(end) as i32) >= 0;
    if again || size == 0 {
        return again && size != 0;
    }
    if value.dns_len != 0 && (value.dns_passed == 0 || !behind) {
        return false;
    }
    value.dns_seq = seq;
    value.dns_len = size;
    value.dns_passed = 0;
    true
}

/// `Scratch::found` of [`StreamMessage`]: all bytes were messages that may pass.
const STREAM_DONE: u32 = u32::MAX;
/// A message was refused.
const STREAM_REFUSED: u32 = u32::MAX - 1;

/// One message of a TCP stream; its length stands in `found` when the segment before announced it.
struct StreamMessage;

impl PacketStep for StreamMessage {
    #[inline(always)]
    fn step(s: &mut Scratch, skb: *mut __sk_buff) -> bool {
        let packet = Skb { skb, base: s.base, zero: 0 };
        let (mut at, mut size) = (s.cursor, s.found);
        if size == 0 {
            let Some(prefix) = packet.be16(at) else { return false };
            at += 2;
            size = prefix as u32;
        }
        s.found = 0;
        if size == 0 || at + size > s.cursor_end || !load(&packet, s, at, size) {
            return false;
        }
        let Some(endpoint) = maps::ENDPOINTS.get(s.event.endpoint) else { return false };
        if !query(endpoint, s) {
            s.found = STREAM_REFUSED;
            return false;
        }
        s.cursor = at + size;
        if s.cursor == s.cursor_end {
            s.found = STREAM_DONE;
            return false;
        }
        true
    }
}

/// One query; false when it has to be refused.
#[inline(never)]
fn query(endpoint: &Endpoint, s: &mut Scratch) -> bool {
    let filtered = endpoint.flags & ENDPOINT_QUERY_FILTER != 0;
    let outcome = scan_query::<BpfLoop>(s);
    let readable = outcome != Outcome::Unreadable;
    s.event.class = if filtered && readable { classify(&Maps, s) } else { 0 };
    s.event.question = if readable { s.question } else { 0 };
    let allowed = !filtered
        || (outcome == Outcome::Proven && may_ask(&Maps, endpoint, s.event.class, s.event.remote_port));
    let passes = allowed || matches!(refusal(endpoint), Verdict::Audited);
    if readable && passes {
        s.query.question = s.question;
        s.query.txid = s.txid as u16;
        // A full LRU forgets the oldest question; its answer is then not learned by the kernel.
        let _ = maps::DNS_QUERIES.insert(&s.query, s.event.time, 0);
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
fn answer(packet: &Skb, endpoint: &Endpoint, s: &mut Scratch, offset: u32, len: u32) {
    let tcp = s.event.proto == proto::TCP;
    let whole = if tcp {
        len > 2
            && packet.be16(offset).is_some_and(|size| size as u32 == len - 2)
            && load(packet, s, offset + 2, len - 2)
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
    s.query.question = s.question;
    s.query.txid = s.txid as u16;
    // Each question is answered once; a second answer, forged or repeated, teaches nothing.
    if maps::DNS_QUERIES.remove(&s.query).is_ok() {
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
    let unknown = (class == 0 || class & ids::CLASS_UNSURE != 0) && slow_patterns && s.address_count != 0;
    let expanded = class & ids::CLASS_SEARCHED != 0 && s.has_aliases() && s.address_count != 0;
    if outcome == Outcome::Slow || unknown || expanded {
        // For other names the agent cannot find anything to open either.
        let hopeful = slow_patterns
            || class & ids::CLASS_SEARCHED != 0
            || (class != 0 && class & ids::CLASS_QUERY_ONLY == 0);
        if hopeful {
            wait_for_agent(endpoint);
        }
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
        let inside = s.event.class & ids::CLASS_CLUSTER != 0;
        if record.addr.is_forbidden_answer() || (!inside && Maps.identity(&record.addr).is_some()) {
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
    s.event.full_len = len;
    s.cursor = offset;
    s.cursor_end = offset + len;
    scan::repeat_with_packet::<Segment>(s, packet.skb, SEGMENTS);
    if s.cursor != s.cursor_end {
        emit::lost(emit::LOST_DNS_EVENTS);
    }
}

/// One piece.
struct Segment;

impl PacketStep for Segment {
    #[inline(always)]
    fn step(s: &mut Scratch, skb: *mut __sk_buff) -> bool {
        let rest = s.cursor_end.wrapping_sub(s.cursor);
        if rest == 0 {
            return false;
        }
        // 6.1 does not learn from `rest != 0` that a size is at least 1: it does from a sum.
        let size = (scan::opaque(if rest > SCAN_MAX { SCAN_MAX } else { rest } - 1) & SCAN_MAX) + 1;
        let from = s.base.wrapping_add(s.cursor);
        // SAFETY: at most 4,096 bytes into a buffer of more.
        let failed = unsafe { bpf_skb_load_bytes(skb.cast(), from, s.msg.as_mut_ptr().cast(), size) };
        if failed != 0 {
            return false;
        }
        s.len = size;
        emit(s, s.event.flags & DNS_SLOW != 0);
        s.event.seq = s.event.seq.wrapping_add(size);
        s.cursor += size;
        true
    }
}
