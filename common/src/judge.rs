//! The path of a packet through the flow table: parse, established or new, decide, remember. What follows (DNS,
//! counters, events, the return value) is the caller's. The kernel and the tests run the same functions.
//!
//! Three steps over one [`Work`], each a frame of its own: the BPF stack has 512 bytes over all frames, and the
//! decision needs most of them.

use crate::conntrack;
use crate::decide::{Decision, Question, Tables, What, decide, decide_what, set_of};
use crate::ids::identity;
use crate::maps::{
    COOKIE_DNS, ENDPOINT_AUDIT, ENDPOINT_DNS_PORTS, ENDPOINT_KEEP, ENDPOINT_LOOPBACK, ENDPOINT_POD, Endpoint,
    FLOW_DNS, FLOW_TRUSTED, FlowEntry, FlowKey, FlowValue, FragmentKey, FragmentPorts, Traffic,
};
use crate::net::{Addr, Direction, proto};
use crate::packet::{self, FRAGMENT_FIRST, FRAGMENT_LATER, Packet, Parsed};
use crate::verdict::{DropReason, Verdict};
pub use crate::work::{Judgement, Work, refusal};

/// A slot of the flow table. The kernel's is a pointer into the map.
pub trait FlowSlot {
    /// Reads the value.
    fn read(&self) -> FlowValue;
    /// Writes the value.
    fn write(&self, value: &FlowValue);
    /// Counts a packet that passes; `forward`: it goes in the direction of the first one.
    fn count(&self, forward: bool, bytes: u32);
}

/// The state that a judgement reads and writes beside [`Tables`].
pub trait State: Tables {
    /// Slot of the flow table.
    type Flow: FlowSlot;

    /// The flow's slot, if there is one.
    fn flow(&self, key: &FlowKey) -> Option<Self::Flow>;
    /// Adds or replaces a flow; false when the table takes none.
    fn insert_flow(&self, key: &FlowKey, entry: &FlowEntry) -> bool;
    /// Ports of a datagram's first fragment.
    fn fragment(&self, key: &FragmentKey) -> Option<FragmentPorts>;
    /// Remembers the ports of a first fragment.
    fn insert_fragment(&self, key: &FragmentKey, ports: &FragmentPorts);
    /// Jiffies now.
    fn jiffies(&self) -> u64;
    /// Jiffies per second.
    fn hz(&self) -> u64;
}

/// Key of the packet's flow, seen from the endpoint.
#[inline(always)]
#[must_use]
pub fn flow_key(endpoint: &Endpoint, parsed: &Parsed, direction: Direction) -> FlowKey {
    let out = matches!(direction, Direction::Egress);
    let echo = parsed.is_echo();
    let (local_port, remote_port) = match (echo, out) {
        (true, _) => (parsed.icmp_id, 0),
        (false, true) => (parsed.sport, parsed.dport),
        (false, false) => (parsed.dport, parsed.sport),
    };
    FlowKey {
        local: if out { parsed.src } else { parsed.dst },
        remote: if out { parsed.dst } else { parsed.src },
        endpoint: endpoint.id,
        local_port,
        remote_port,
        proto: parsed.proto as u32,
        pad: 0,
    }
}

/// What a step of [`track`] leaves to do.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Next {
    /// The judgement stands.
    Done,
    /// [`conclude`] with the decision that stands in the judgement (an exemption).
    Conclude,
    /// [`decide_what`], then [`conclude`].
    Decide,
}

/// Judges a packet of `endpoint`.
#[inline(always)]
pub fn judge<P: Packet, S: State>(packet: &P, state: &S, endpoint: &Endpoint, work: &mut Work) {
    if let Err(reason) = packet::parse(packet, &mut work.parsed) {
        work.judgement = Judgement::denied(endpoint, reason);
        return;
    }
    let error = work.parsed.is_icmp_error();
    if error && quoted_key(packet, endpoint, work) && is_current(state, endpoint, &work.key) {
        return;
    }
    let next = track(state, endpoint, work);
    if matches!(next, Next::Done) {
        return;
    }
    if matches!(next, Next::Decide) {
        decide_what(state, endpoint, &work.key.remote, work.what, &mut work.judgement.decision);
    }
    conclude(state, endpoint, work);
}

/// Looks the flow up.
#[inline(never)]
pub fn track<S: State>(state: &S, endpoint: &Endpoint, work: &mut Work) -> Next {
    let next = find(state, endpoint, work);
    work.settle(endpoint.zero);
    next
}

#[inline(always)]
fn find<S: State>(state: &S, endpoint: &Endpoint, work: &mut Work) -> Next {
    let parsed = &mut work.parsed;
    if parsed.is_neighbour_discovery() {
        return Next::Done;
    }
    if parsed.fragment != packet::WHOLE
        && let Err(reason) = reassemble_ports(state, parsed)
    {
        work.judgement = Judgement::denied(endpoint, reason);
        return Next::Done;
    }
    work.key = flow_key(endpoint, parsed, work.direction);
    if let Some(slot) = state.flow(&work.key)
        && let Some(next) = established(state, endpoint, work, &slot)
    {
        return next;
    }
    // Packets of known flows have the source that was checked when the flow began.
    let sends = endpoint.flags & ENDPOINT_POD != 0 && matches!(work.direction, Direction::Egress);
    if sends && !state.owns(endpoint.id, &work.key.local) {
        work.judgement = Judgement::denied(endpoint, DropReason::InvalidSource);
        return Next::Done;
    }
    ask(endpoint, work, work.direction)
}

/// Prepares the decision about a flow that began in direction `origin`. No policy can take away that an address
/// talks to itself, nor, in `egret run`, loopback.
#[inline(always)]
fn ask(endpoint: &Endpoint, work: &mut Work, origin: Direction) -> Next {
    let (parsed, key) = (&work.parsed, &work.key);
    let icmp = parsed.proto == proto::ICMP || parsed.proto == proto::ICMPV6;
    let port = match origin {
        _ if icmp => parsed.dport,
        Direction::Egress => key.remote_port,
        Direction::Ingress => key.local_port,
    };
    work.what = What { port, proto: parsed.proto, egress: matches!(origin, Direction::Egress) as u8 };
    let loopback = endpoint.flags & ENDPOINT_LOOPBACK != 0 && work.key.remote.is_loopback();
    if loopback || work.key.local == work.key.remote { Next::Conclude } else { Next::Decide }
}

/// First fragments leave their ports, later ones take them; unknown ports are a drop, never a guess (P-A01).
#[inline(never)]
fn reassemble_ports<S: State>(state: &S, parsed: &mut Parsed) -> Result<(), DropReason> {
    let key = FragmentKey { src: parsed.src, dst: parsed.dst, id: parsed.seq, proto: parsed.proto as u32 };
    if parsed.fragment == FRAGMENT_FIRST {
        state.insert_fragment(&key, &FragmentPorts { sport: parsed.sport, dport: parsed.dport });
    } else if parsed.fragment == FRAGMENT_LATER {
        let ports = state.fragment(&key).ok_or(DropReason::FragmentUnknown)?;
        parsed.sport = ports.sport;
        parsed.dport = ports.dport;
    }
    Ok(())
}

/// The key of the flow that an ICMP error speaks of. The quoted packet went the other way.
#[inline(never)]
fn quoted_key<P: Packet>(packet: &P, endpoint: &Endpoint, work: &mut Work) -> bool {
    let mut inner = Parsed::default();
    if !packet::quoted(packet, &work.parsed, &mut inner) {
        return false;
    }
    let other = match work.direction {
        Direction::Egress => Direction::Ingress,
        Direction::Ingress => Direction::Egress,
    };
    work.key = flow_key(endpoint, &inner, other);
    true
}

/// Whether the key is that of a living flow that today's rules let through (P-A02).
#[inline(never)]
fn is_current<S: State>(state: &S, endpoint: &Endpoint, key: &FlowKey) -> bool {
    let Some(slot) = state.flow(key) else { return false };
    let flow = slot.read();
    !is_idle(state, &flow, state.jiffies()) && is_valid(endpoint, &flow, key.proto as u8)
}

/// Whether the flow was judged by the rules in force, or need not be judged again (K-A11). A datagram begins nothing and
/// ends nothing, so only TCP has open connections. What only audit let pass counts for as long as there is audit.
#[inline(always)]
fn is_valid(endpoint: &Endpoint, flow: &FlowValue, proto: u8) -> bool {
    if flow.reason != 0 && endpoint.flags & ENDPOINT_AUDIT == 0 {
        return false;
    }
    let kept = endpoint.flags & ENDPOINT_KEEP != 0 && proto == proto::TCP;
    kept || flow.set == set_of(endpoint, origin_of(flow)).0
}

#[inline(always)]
fn is_idle<S: State>(state: &S, flow: &FlowValue, now: u64) -> bool {
    now.saturating_sub(flow.last_seen) > conntrack::idle_limit(flow.state) as u64 * state.hz()
}

#[inline(always)]
fn origin_of(flow: &FlowValue) -> Direction {
    if flow.origin == Direction::Egress as u8 { Direction::Egress } else { Direction::Ingress }
}

/// The packet's mark on its flow: the state of the connection, and that it is alive.
#[inline(always)]
fn renew(flow: &mut FlowValue, now: u64, forward: bool, tcp_flags: u8) -> bool {
    let after = conntrack::transition(flow.state, !forward, tcp_flags);
    let changed = after != flow.state || now != flow.last_seen;
    flow.state = after;
    flow.last_seen = now;
    changed
}

/// A packet of a known flow. `None`: the entry does not count (idle too long, or a SYN starts anew).
#[inline(always)]
fn established<S: State>(state: &S, endpoint: &Endpoint, work: &mut Work, slot: &S::Flow) -> Option<Next> {
    let mut flow = slot.read();
    let now = state.jiffies();
    let forward = flow.origin == work.direction as u8;
    let opens = conntrack::opens(work.parsed.proto, work.parsed.tcp_flags);
    if is_idle(state, &flow, now) || (opens && (forward || flow.state == conntrack::CLOSING)) {
        return None;
    }
    let origin = origin_of(&flow);
    let current = is_valid(endpoint, &flow, work.parsed.proto);
    if current {
        if renew(&mut flow, now, forward, work.parsed.tcp_flags) {
            slot.write(&flow);
        }
        slot.count(forward, work.parsed.bytes());
    }
    work.judgement = Judgement {
        verdict: Verdict::Forwarded as u32,
        fresh: 0,
        flow_flags: flow.flags as u32,
        forward: forward as u16,
        filler: 0,
        decision: Decision { reason: 0, class: flow.class, cookie: flow.cookie, age: 0 },
    };
    if current {
        return Some(Next::Done);
    }
    work.judgement.decision = Decision { reason: 0, class: 0, cookie: 0, age: 0 };
    // What the new rules refuse leaves no mark on the flow: it must not be kept alive by refused packets.
    work.rejudge = if flow.reason == 0 { REJUDGE } else { REJUDGE_AUDITED };
    Some(ask(endpoint, work, origin))
}

/// In `egret run` the host's own addresses are as open as loopback: the same servers listen there. A pod's node may
/// always begin a flow to it: no policy can take away the probes.
#[inline(always)]
pub fn opens_host<S: Tables>(state: &S, endpoint: &Endpoint, remote: &Addr, direction: Direction) -> bool {
    let probe = endpoint.flags & ENDPOINT_POD != 0 && matches!(direction, Direction::Ingress);
    let opens = endpoint.flags & ENDPOINT_LOOPBACK != 0 || probe;
    opens && state.identity(remote) == Some(identity::HOST)
}

/// Decision of the connect and sendmsg hooks, which see a destination and no packet.
#[inline(always)]
pub fn judge_connect<S: Tables>(state: &S, endpoint: &Endpoint, question: &Question, out: &mut Decision) {
    if endpoint.flags & ENDPOINT_LOOPBACK != 0 && question.remote.is_loopback() {
        return;
    }
    decide(state, endpoint, question, out);
    if out.reason != 0 && opens_host(state, endpoint, &question.remote, question.direction) {
        out.reason = 0;
    }
}

/// [`Work::rejudge`]: the flow is known.
const REJUDGE: u16 = 1;
/// The flow is known, and only audit had let it pass.
const REJUDGE_AUDITED: u16 = 2;

/// Turns the decision into a judgement, and writes the flow.
#[inline(never)]
pub fn conclude<S: State>(state: &S, endpoint: &Endpoint, work: &mut Work) {
    apply(state, endpoint, work);
    work.settle(endpoint.zero);
}

#[inline(always)]
fn apply<S: State>(state: &S, endpoint: &Endpoint, work: &mut Work) {
    if work.judgement.decision.reason != 0
        && opens_host(state, endpoint, &work.key.remote, work.what.direction())
    {
        work.judgement.decision.reason = 0;
    }
    // That a name has expired closes no open connection that it had opened: its rule still stands (T-A01).
    if work.rejudge == REJUDGE && work.judgement.decision.reason == DropReason::NameExpired as u32 {
        work.judgement.decision.reason = 0;
    }
    let denied = work.judgement.decision.reason != 0;
    if denied && endpoint.flags & ENDPOINT_AUDIT == 0 {
        work.judgement.verdict = Verdict::Dropped as u32;
        work.judgement.fresh = 1;
        work.judgement.flow_flags = 0;
        return;
    }
    let judgement = &mut work.judgement;
    judgement.verdict = if denied { Verdict::Audited as u32 } else { Verdict::Forwarded as u32 };
    let decision = &judgement.decision;
    judgement.flow_flags =
        dns_flags(state, endpoint, work.what.direction(), &work.parsed, &work.key, decision.cookie) as u32;
    if work.rejudge != 0 {
        judgement.fresh = denied as u16;
        readmit(state, endpoint, work);
    } else {
        judgement.fresh = 1;
        start(state, endpoint, work);
    }
}

/// A known flow that passes under the new rule set, too (or, in audit mode, is let through).
#[inline(always)]
fn readmit<S: State>(state: &S, endpoint: &Endpoint, work: &mut Work) {
    let (judgement, decision) = (&work.judgement, &work.judgement.decision);
    if let Some(slot) = state.flow(&work.key) {
        let mut flow = slot.read();
        flow.set = set_of(endpoint, work.what.direction()).0;
        flow.class = decision.class;
        flow.cookie = decision.cookie;
        flow.reason = decision.reason as u8;
        flow.flags = judgement.flow_flags as u8;
        renew(&mut flow, state.jiffies(), judgement.forward != 0, work.parsed.tcp_flags);
        slot.write(&flow);
        slot.count(judgement.forward != 0, work.parsed.bytes());
    }
}

/// The first packet of a flow, or one whose entry is gone.
#[inline(always)]
fn start<S: State>(state: &S, endpoint: &Endpoint, work: &mut Work) {
    if !remembers(work.direction, &work.parsed) {
        return;
    }
    let (judgement, decision) = (&work.judgement, &work.judgement.decision);
    let now = state.jiffies();
    let value = FlowValue {
        last_seen: now,
        set: set_of(endpoint, work.direction).0,
        class: decision.class,
        cookie: decision.cookie,
        state: conntrack::initial(work.parsed.proto, work.parsed.tcp_flags),
        origin: work.direction as u8,
        flags: judgement.flow_flags as u8,
        reason: decision.reason as u8,
        dns_seq: 0,
        dns_len: 0,
        dns_passed: 0,
    };
    let sent = work.parsed.bytes() as u64;
    let traffic = Traffic { began: now, sent, received: 0, packets_sent: 1, packets_received: 0 };
    if !state.insert_flow(&work.key, &FlowEntry { value, traffic }) && decision.reason == 0 {
        // Without an entry the replies could not be told from new flows.
        work.judgement = Judgement::denied(endpoint, DropReason::MapFull);
    }
}

/// Whether the packet makes an entry. An incoming TCP packet in the middle of a connection does not: it would turn
/// the remains of a revoked connection into a new one that the peer began. ICMP other than echo has no flow.
#[inline(always)]
fn remembers(direction: Direction, parsed: &Parsed) -> bool {
    match parsed.proto {
        proto::TCP => {
            matches!(direction, Direction::Egress) || conntrack::opens(parsed.proto, parsed.tcp_flags)
        }
        proto::ICMP | proto::ICMPV6 => parsed.is_echo(),
        _ => true,
    }
}

/// Is this flow DNS, and does its resolver teach?
#[inline(always)]
fn dns_flags<S: Tables>(
    state: &S,
    endpoint: &Endpoint,
    direction: Direction,
    parsed: &Parsed,
    key: &FlowKey,
    cookie: u32,
) -> u8 {
    let datagram = parsed.proto == proto::UDP || parsed.proto == proto::TCP;
    if !datagram || !matches!(direction, Direction::Egress) {
        return 0;
    }
    if cookie & COOKIE_DNS != 0 {
        return FLOW_DNS | FLOW_TRUSTED;
    }
    let usual = key.remote_port == 53;
    if (usual || endpoint.flags & ENDPOINT_DNS_PORTS != 0)
        && state.trusted_resolver(&key.remote, key.remote_port)
    {
        return FLOW_DNS | FLOW_TRUSTED;
    }
    if usual { FLOW_DNS } else { 0 }
}
