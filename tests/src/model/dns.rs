//! `ebpf/src/dns.rs` on the host: which queries pass, what is remembered, what is learned, what the agent is told.

use egret_common::{
    decide::{Tables, may_ask},
    dns::{
        ForLoop, MSG_CAP, Names, Outcome as Scan, Scratch, WireName, classify, credited, scan_answer,
        scan_query,
    },
    event::{DNS_ASKED, DNS_LEARNED, DNS_REFUSED, DNS_SEGMENT, DNS_SLOW, DNS_TRUSTED, DnsEvent},
    grant::{self, GrantTime},
    ids::{CLASS_CLUSTER, CLASS_QUERY_ONLY, CLASS_SEARCHED, CLASS_UNSURE, ClassId},
    judge::{FlowSlot, State, Work, refusal},
    maps::{
        CONFIG_SLOW_PATTERNS, ENDPOINT_QUERY_FILTER, Endpoint, FLOW_TRUSTED, FlowValue, GrantKey, QueryKey,
        SuffixClasses,
    },
    net::{Addr, Direction, proto},
    packet::WHOLE,
    verdict::{DropReason, Verdict},
};
use egret_core::{desired::Suffix, names::Name};

use super::{Model, Outcome, Slice};

/// The longest message that is scanned.
const SCAN_MAX: usize = MSG_CAP - 1;
/// Messages in one segment that the filter looks at.
const PIPELINED: usize = 4;
/// Pieces in which a payload goes to the agent.
const SEGMENTS: usize = 16;

/// One packet of a DNS flow on its way through.
struct Pass<'a> {
    endpoint: &'a Endpoint,
    event: DnsEvent,
    query: QueryKey,
    out: &'a mut Outcome,
}

impl Model {
    /// Looks at a packet of a DNS flow. Returns the hash of the question, or 0.
    pub(super) fn inspect(
        &mut self,
        packet: &Slice<'_>,
        endpoint: &Endpoint,
        work: &mut Work,
        out: &mut Outcome,
    ) -> u64 {
        if work.parsed.fragment != WHOLE {
            if work.direction == Direction::Egress && endpoint.flags & ENDPOINT_QUERY_FILTER != 0 {
                refuse(endpoint, work);
            }
            return 0;
        }
        let (offset, len) = work.parsed.payload();
        let Some(payload) = packet.0.get(offset as usize..(offset + len) as usize) else { return 0 };
        if payload.is_empty() {
            return 0;
        }
        let trusted = work.judgement.flow_flags & u32::from(FLOW_TRUSTED) != 0;
        let mut pass = Pass { endpoint, event: head(work, trusted), query: query_key(work), out };
        if work.direction == Direction::Egress {
            if !self.queries(&mut pass, payload) {
                refuse(endpoint, work);
            }
            return pass.event.question;
        }
        if trusted && work.judgement.forward == 0 {
            self.answer(&mut pass, payload);
        }
        0
    }

    fn queries(&mut self, pass: &mut Pass<'_>, payload: &[u8]) -> bool {
        let filtered = pass.endpoint.flags & ENDPOINT_QUERY_FILTER != 0;
        if pass.event.proto == proto::UDP {
            return if scannable(payload) { self.query(pass, payload) } else { !filtered };
        }
        match self.stream(pass, payload) {
            Some(allowed) => allowed,
            None if filtered => false,
            None => {
                segments(pass, payload, 0);
                true
            }
        }
    }

    /// `None`: not whole messages.
    fn stream(&mut self, pass: &mut Pass<'_>, payload: &[u8]) -> Option<bool> {
        let mut announced = None;
        if let Some(slot) = self.flow(&pass.query.flow) {
            let value = slot.read();
            if value.dns_len != 0 && value.dns_seq == pass.event.seq {
                announced = Some(value.dns_len as usize);
            } else if let [high, low] = payload {
                let size = u16::from_be_bytes([*high, *low]);
                slot.write(&announce(value, pass.event.seq.wrapping_add(2), size)?);
                return Some(true);
            }
        }
        let known = self.messages(pass, payload, announced);
        if announced.is_some()
            && known == Some(true)
            && let Some(slot) = self.flow(&pass.query.flow)
        {
            slot.write(&FlowValue { dns_passed: 1, ..slot.read() });
        }
        known
    }

    fn messages(
        &mut self,
        pass: &mut Pass<'_>,
        payload: &[u8],
        mut announced: Option<usize>,
    ) -> Option<bool> {
        let mut rest = payload;
        for _ in 0..PIPELINED {
            let size = match announced.take() {
                Some(size) => size,
                None => {
                    let (head, tail) = rest.split_first_chunk::<2>()?;
                    rest = tail;
                    usize::from(u16::from_be_bytes(*head))
                }
            };
            let message = rest.get(..size).filter(|message| scannable(message))?;
            if !self.query(pass, message) {
                return Some(false);
            }
            rest = &rest[size..];
            if rest.is_empty() {
                return Some(true);
            }
        }
        None
    }

    fn query(&mut self, pass: &mut Pass<'_>, message: &[u8]) -> bool {
        let filtered = pass.endpoint.flags & ENDPOINT_QUERY_FILTER != 0;
        let mut scratch = load(message);
        let outcome = scan_query::<ForLoop>(&mut scratch);
        let readable = outcome != Scan::Unreadable;
        pass.event.class = if filtered && readable { classify(self, &mut scratch) } else { 0 };
        pass.event.question = if readable { scratch.question } else { 0 };
        let port = pass.event.remote_port;
        let asks = outcome == Scan::Proven && may_ask(self, pass.endpoint, pass.event.class, port);
        let allowed = !filtered || asks;
        if readable && (allowed || refusal(pass.endpoint) == Verdict::Audited) {
            self.queries.insert(remembered(pass, &scratch));
        }
        let flags = if allowed { 0 } else { DNS_REFUSED };
        emit(pass, message, flags);
        allowed
    }

    fn answer(&mut self, pass: &mut Pass<'_>, payload: &[u8]) {
        let tcp = pass.event.proto == proto::TCP;
        let message = if tcp { framed(payload) } else { Some(payload) };
        let Some(message) = message.filter(|message| scannable(message)) else {
            self.wait_for_agent();
            return segments(pass, payload, if tcp { DNS_SLOW } else { DNS_SLOW | DNS_ASKED });
        };
        let mut scratch = load(message);
        let outcome = scan_answer::<ForLoop>(&mut scratch);
        if outcome == Scan::Unreadable {
            return emit(pass, message, 0);
        }
        pass.event.question = scratch.question;
        if self.queries.remove(&remembered(pass, &scratch)) {
            pass.event.flags |= DNS_ASKED;
            self.learn(pass, &mut scratch, outcome);
        }
        emit(pass, message, 0);
    }

    fn learn(&mut self, pass: &mut Pass<'_>, scratch: &mut Scratch, outcome: Scan) {
        let class = classify(self, scratch);
        pass.event.class = class;
        let slow_patterns = self.config_flags & CONFIG_SLOW_PATTERNS != 0;
        let unsure = class == 0 || class & CLASS_UNSURE != 0;
        let unknown = unsure && slow_patterns && scratch.address_count != 0;
        let expanded = class & CLASS_SEARCHED != 0 && scratch.has_aliases() && scratch.address_count != 0;
        if outcome == Scan::Slow || unknown || expanded {
            let opens = class != 0 && class & CLASS_QUERY_ONLY == 0;
            if slow_patterns || class & CLASS_SEARCHED != 0 || opens {
                self.wait_for_agent();
            }
            pass.event.flags |= DNS_SLOW;
            return;
        }
        pass.event.flags |= DNS_LEARNED;
        if class == 0 || class & CLASS_QUERY_ONLY != 0 {
            return;
        }
        for index in 0..scratch.address_count {
            let record = credited(scratch, index);
            let owned = class & CLASS_CLUSTER == 0 && self.identity(&record.addr).is_some();
            if owned || record.addr.is_forbidden_answer() {
                self.forbidden += 1;
                let reason = DropReason::ForbiddenAnswerAddress as u8;
                self.count(pass.endpoint.id, Direction::Ingress, reason, 0);
                continue;
            }
            let expires = grant::expiry(pass.endpoint, self.now, record.ttl);
            if self.put_grant(pass.endpoint.id, record.addr, class, expires) {
                pass.event.granted = pass.event.granted.wrapping_add(1);
            }
        }
    }

    /// Opens an address; a longer lifetime stays. False: no room.
    pub fn put_grant(&mut self, endpoint: u32, addr: Addr, class: ClassId, expires: GrantTime) -> bool {
        let key = GrantKey { addr, endpoint, pad: 0 };
        let room = self.grants.contains_key(&key) || self.grants.len() < self.grants_capacity;
        let slot = self.grants.get(&key).map_or(Some((0, 0)), |g| grant::choose_slot(g, class, self.now));
        let Some((slot, old)) = slot.filter(|_| room) else {
            self.map_full = (self.jiffies, self.map_full.1 + 1);
            return false;
        };
        if grant::class(old) != class || grant::expires(old) < expires {
            let entry = self.grants.entry(key).or_default();
            entry.slots[slot] = grant::pack(class, expires);
        }
        true
    }

    fn wait_for_agent(&mut self) {
        self.pending_until = self.jiffies + self.hz / 2;
    }
}

impl Names for Model {
    fn exact(&self, name: &WireName) -> Option<ClassId> {
        let name = Name::from_wire(&name.0).ok()?;
        self.desired.name_exact.get(&name).copied()
    }

    fn suffix(&self, scratch: &mut Scratch, start: u32, bits: u32) -> Option<SuffixClasses> {
        // What the kernel's trie is asked: the bytes behind the prefix length, the longest entry that they begin with.
        let from = start as usize + 4;
        let key = &scratch.rev[from..from + bits as usize / 8];
        let entries = self.desired.name_suffix.iter();
        let matching = entries.filter(|(Suffix(text), _)| key.starts_with(text.as_bytes()));
        matching.max_by_key(|(Suffix(text), _)| text.len()).map(|(_, classes)| *classes)
    }
}

fn refuse(endpoint: &Endpoint, work: &mut Work) {
    work.judgement.verdict = refusal(endpoint) as u32;
    work.judgement.decision.reason = DropReason::QueryRefused as u32;
    work.judgement.fresh = 1;
}

/// The flow after two bytes alone that announce a message at `seq`; `None` while another is awaited.
fn announce(flow: FlowValue, seq: u32, size: u16) -> Option<FlowValue> {
    if size == 0 {
        return None;
    }
    if (flow.dns_seq, flow.dns_len) == (seq, size) {
        return Some(flow);
    }
    let free = match flow.dns_len {
        0 => true,
        len => {
            let gap = seq.wrapping_sub(2).wrapping_sub(flow.dns_seq.wrapping_add(len.into()));
            flow.dns_passed == 1 && gap < 1 << 31
        }
    };
    free.then_some(FlowValue { dns_seq: seq, dns_len: size, dns_passed: 0, ..flow })
}

fn head(work: &Work, trusted: bool) -> DnsEvent {
    DnsEvent {
        local: work.key.local,
        remote: work.key.remote,
        endpoint: work.key.endpoint,
        seq: work.parsed.seq,
        local_port: work.key.local_port,
        remote_port: work.key.remote_port,
        proto: work.parsed.proto,
        direction: work.direction as u8,
        flags: if trusted { DNS_TRUSTED } else { 0 },
        ..DnsEvent::default()
    }
}

fn query_key(work: &Work) -> QueryKey {
    QueryKey { flow: work.key, question: 0, txid: 0, pad: [0; 3] }
}

fn remembered(pass: &Pass<'_>, scratch: &Scratch) -> QueryKey {
    QueryKey { question: scratch.question, txid: scratch.txid as u16, ..pass.query }
}

fn scannable(message: &[u8]) -> bool {
    (12..=SCAN_MAX).contains(&message.len())
}

/// A TCP payload that is exactly one message.
fn framed(payload: &[u8]) -> Option<&[u8]> {
    let (head, message) = payload.split_first_chunk::<2>()?;
    (!message.is_empty() && usize::from(u16::from_be_bytes(*head)) == message.len()).then_some(message)
}

fn load(message: &[u8]) -> Scratch {
    let mut scratch = Scratch::new();
    scratch.msg[..message.len()].copy_from_slice(message);
    scratch.len = message.len() as u32;
    scratch
}

fn emit(pass: &mut Pass<'_>, message: &[u8], flags: u8) {
    pass.event.len = message.len() as u32;
    if pass.event.flags & DNS_SEGMENT == 0 {
        pass.event.full_len = pass.event.len;
    }
    let event = DnsEvent { flags: pass.event.flags | flags, ..pass.event };
    pass.out.dns.push((event, message.to_vec()));
}

fn segments(pass: &mut Pass<'_>, payload: &[u8], flags: u8) {
    pass.event.flags |= flags | DNS_SEGMENT;
    let first = pass.event.seq;
    pass.event.full_len = payload.len() as u32;
    for (index, piece) in payload.chunks(SCAN_MAX).take(SEGMENTS).enumerate() {
        pass.event.seq = first.wrapping_add((index * SCAN_MAX) as u32);
        emit(pass, piece, 0);
    }
}
