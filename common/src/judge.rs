//! The path of a packet through the flow table: parse, established or new, decide, remember. What follows (DNS,
//! counters, events, the return value) is the caller's. The kernel and the tests run the same function.

use crate::conntrack;
use crate::decide::{Decision, Question, Tables, decide, set_of};
use crate::ids::identity;
use crate::maps::{
    COOKIE_DNS, ENDPOINT_AUDIT, ENDPOINT_DNS_PORTS, ENDPOINT_LOOPBACK, Endpoint, FLOW_DNS, FLOW_TRUSTED,
    FlowKey, FlowValue, FragmentKey, FragmentPorts,
};
use crate::net::{Direction, proto};
use crate::packet::{self, FRAGMENT_FIRST, FRAGMENT_LATER, Packet, Parsed};
use crate::verdict::{DropReason, Verdict};

/// A slot of the flow table. The kernel's is a pointer into the map.
pub trait FlowSlot {
    /// Reads the value.
    fn read(&self) -> FlowValue;
    /// Writes the value.
    fn write(&self, value: &FlowValue);
}

/// The state that a judgement reads and writes beside [`Tables`].
pub trait State: Tables {
    /// Slot of the flow table.
    type Flow: FlowSlot;

    /// The flow's slot, if there is one.
    fn flow(&self, key: &FlowKey) -> Option<Self::Flow>;
    /// Adds or replaces a flow; false when the table takes none.
    fn insert_flow(&self, key: &FlowKey, value: &FlowValue) -> bool;
    /// Ports of a datagram's first fragment.
    fn fragment(&self, key: &FragmentKey) -> Option<FragmentPorts>;
    /// Remembers the ports of a first fragment.
    fn insert_fragment(&self, key: &FragmentKey, ports: &FragmentPorts);
    /// Jiffies now.
    fn jiffies(&self) -> u64;
    /// Jiffies per second.
    fn hz(&self) -> u64;
}

/// What became of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Judgement {
    /// Forwarded, dropped, or audited (let through, would have been dropped).
    pub verdict: Verdict,
    /// Why not; `None` when forwarded.
    pub reason: Option<DropReason>,
    /// True when the packet started a flow or was denied: the moments for an event.
    pub fresh: bool,
    /// `FLOW_*` bits of its flow.
    pub flow_flags: u8,
    /// Class that decided.
    pub class: u32,
    /// Rule that decided.
    pub cookie: u32,
    /// NameExpired: seconds.
    pub age: u32,
    /// True when the packet goes in the direction of the flow's first packet.
    pub forward: bool,
}

impl Judgement {
    const PASS: Self = Self {
        verdict: Verdict::Forwarded,
        reason: None,
        fresh: false,
        flow_flags: 0,
        class: 0,
        cookie: 0,
        age: 0,
        forward: true,
    };

    #[inline(always)]
    fn denied(endpoint: &Endpoint, reason: DropReason) -> Self {
        Self { verdict: refusal(endpoint), reason: Some(reason), fresh: true, ..Self::PASS }
    }
}

/// The verdict on what is not allowed: dropped, or in audit mode let through.
#[inline(always)]
#[must_use]
pub const fn refusal(endpoint: &Endpoint) -> Verdict {
    if endpoint.flags & ENDPOINT_AUDIT != 0 { Verdict::Audited } else { Verdict::Dropped }
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

/// Judges a packet of `endpoint`. `parsed` is filled also when the verdict is a drop.
#[inline(always)]
pub fn judge<P: Packet, S: State>(
    packet: &P,
    state: &S,
    endpoint: &Endpoint,
    direction: Direction,
    parsed: &mut Parsed,
) -> Judgement {
    if let Err(reason) = packet::parse(packet, parsed) {
        return Judgement::denied(endpoint, reason);
    }
    if parsed.is_neighbour_discovery() {
        return Judgement::PASS;
    }
    if parsed.fragment != packet::WHOLE
        && let Err(reason) = reassemble_ports(state, parsed)
    {
        return Judgement::denied(endpoint, reason);
    }
    if parsed.is_icmp_error() && related(packet, state, endpoint, direction, parsed) {
        return Judgement::PASS;
    }
    let key = flow_key(endpoint, parsed, direction);
    let now = state.jiffies();
    if let Some(slot) = state.flow(&key)
        && let Some(judgement) = established(state, endpoint, direction, parsed, &key, &slot, now)
    {
        return judgement;
    }
    start(state, endpoint, direction, parsed, &key, now)
}

/// First fragments leave their ports, later ones take them; unknown ports are a drop, never a guess (P-A01).
#[inline(never)]
fn reassemble_ports<S: State>(state: &S, parsed: &mut Parsed) -> Result<(), DropReason> {
    let key =
        FragmentKey { src: parsed.src, dst: parsed.dst, id: parsed.frag_id, proto: parsed.proto as u32 };
    if parsed.fragment == FRAGMENT_FIRST {
        state.insert_fragment(&key, &FragmentPorts { sport: parsed.sport, dport: parsed.dport });
    } else if parsed.fragment == FRAGMENT_LATER {
        let ports = state.fragment(&key).ok_or(DropReason::FragmentUnknown)?;
        parsed.sport = ports.sport;
        parsed.dport = ports.dport;
    }
    Ok(())
}

/// An ICMP error about a packet of a tracked flow (P-A02). The quoted packet went the other way.
#[inline(never)]
fn related<P: Packet, S: State>(
    packet: &P,
    state: &S,
    endpoint: &Endpoint,
    direction: Direction,
    parsed: &Parsed,
) -> bool {
    let mut inner = Parsed::default();
    if !packet::quoted(packet, parsed, &mut inner) {
        return false;
    }
    let other = match direction {
        Direction::Egress => Direction::Ingress,
        Direction::Ingress => Direction::Egress,
    };
    state.flow(&flow_key(endpoint, &inner, other)).is_some()
}

/// A packet of a known flow. `None`: the entry does not count (idle too long, or a SYN starts anew).
#[inline(always)]
fn established<S: State>(
    state: &S,
    endpoint: &Endpoint,
    direction: Direction,
    parsed: &Parsed,
    key: &FlowKey,
    slot: &S::Flow,
    now: u64,
) -> Option<Judgement> {
    let mut flow = slot.read();
    let forward = flow.origin == direction as u8;
    let idle = now.saturating_sub(flow.last_seen) > conntrack::idle_limit(flow.state) as u64 * state.hz();
    let opens = conntrack::opens(parsed.proto, parsed.tcp_flags);
    if idle || (opens && (forward || flow.state == conntrack::CLOSING)) {
        return None;
    }
    let origin = if flow.origin == Direction::Egress as u8 { Direction::Egress } else { Direction::Ingress };
    let (set, _) = set_of(endpoint, origin);
    let rejudge = flow.set != set;
    let mut fresh = false;
    if rejudge {
        let decision = decide_local(state, endpoint, &question(parsed, key, origin), key);
        if decision.deny.is_some() && endpoint.flags & ENDPOINT_AUDIT == 0 {
            return Some(refused(endpoint, &decision, forward));
        }
        flow.set = set;
        flow.class = decision.class;
        flow.cookie = decision.cookie;
        flow.reason = reason_number(decision.deny);
        fresh = decision.deny.is_some();
    }
    let next = conntrack::transition(flow.state, !forward, parsed.tcp_flags);
    if rejudge || next != flow.state || now != flow.last_seen {
        flow.state = next;
        flow.last_seen = now;
        slot.write(&flow);
    }
    let reason = if fresh { DropReason::from_u8(flow.reason) } else { None };
    Some(Judgement {
        verdict: if fresh { Verdict::Audited } else { Verdict::Forwarded },
        reason,
        fresh,
        flow_flags: flow.flags,
        class: flow.class,
        cookie: flow.cookie,
        age: 0,
        forward,
    })
}

#[inline(always)]
const fn reason_number(deny: Option<DropReason>) -> u8 {
    match deny {
        Some(reason) => reason as u8,
        None => 0,
    }
}

#[inline(always)]
fn refused(endpoint: &Endpoint, decision: &Decision, forward: bool) -> Judgement {
    Judgement {
        verdict: refusal(endpoint),
        reason: decision.deny,
        fresh: true,
        flow_flags: 0,
        class: decision.class,
        cookie: decision.cookie,
        age: decision.age,
        forward,
    }
}

/// The question for a flow that began in direction `origin`.
#[inline(always)]
fn question(parsed: &Parsed, key: &FlowKey, origin: Direction) -> Question {
    let icmp = parsed.proto == proto::ICMP || parsed.proto == proto::ICMPV6;
    let port = match origin {
        _ if icmp => parsed.dport,
        Direction::Egress => key.remote_port,
        Direction::Ingress => key.local_port,
    };
    Question { remote: key.remote, direction: origin, proto: parsed.proto, port }
}

/// [`decide`], and the exemptions that no policy can take away: own address to itself, loopback in `egret run`.
#[inline(always)]
fn decide_local<S: State>(state: &S, endpoint: &Endpoint, question: &Question, key: &FlowKey) -> Decision {
    if key.local == key.remote || (endpoint.flags & ENDPOINT_LOOPBACK != 0 && question.remote.is_loopback()) {
        return Decision::default();
    }
    let decision = decide(state, endpoint, question);
    if decision.deny.is_some() && opens_host(state, endpoint, question) {
        return Decision::default();
    }
    decision
}

/// The host's own addresses are as open as loopback: the same servers listen there.
#[inline(always)]
fn opens_host<S: Tables>(state: &S, endpoint: &Endpoint, question: &Question) -> bool {
    endpoint.flags & ENDPOINT_LOOPBACK != 0 && state.identity(&question.remote) == Some(identity::HOST)
}

/// Decision of the connect and sendmsg hooks, which see a destination and no packet.
#[inline(always)]
pub fn judge_connect<S: Tables>(state: &S, endpoint: &Endpoint, question: &Question) -> Decision {
    if endpoint.flags & ENDPOINT_LOOPBACK != 0 && question.remote.is_loopback() {
        return Decision::default();
    }
    let decision = decide(state, endpoint, question);
    if decision.deny.is_some() && opens_host(state, endpoint, question) {
        return Decision::default();
    }
    decision
}

/// The first packet of a flow, or one whose entry is gone.
#[inline(always)]
fn start<S: State>(
    state: &S,
    endpoint: &Endpoint,
    direction: Direction,
    parsed: &Parsed,
    key: &FlowKey,
    now: u64,
) -> Judgement {
    let decision = decide_local(state, endpoint, &question(parsed, key, direction), key);
    if decision.deny.is_some() && endpoint.flags & ENDPOINT_AUDIT == 0 {
        return refused(endpoint, &decision, true);
    }
    let flags = dns_flags(state, endpoint, direction, parsed, key, &decision);
    let audited = decision.deny.is_some();
    let judgement = Judgement {
        verdict: if audited { Verdict::Audited } else { Verdict::Forwarded },
        reason: decision.deny,
        fresh: true,
        flow_flags: flags,
        class: decision.class,
        cookie: decision.cookie,
        age: decision.age,
        forward: true,
    };
    if !remembers(direction, parsed) {
        return judgement;
    }
    let value = FlowValue {
        last_seen: now,
        set: set_of(endpoint, direction).0,
        class: decision.class,
        cookie: decision.cookie,
        state: conntrack::initial(parsed.proto, parsed.tcp_flags),
        origin: direction as u8,
        flags,
        reason: reason_number(decision.deny),
        ..FlowValue::default()
    };
    if !state.insert_flow(key, &value) && !audited {
        // Without an entry the replies could not be told from new flows.
        return Judgement::denied(endpoint, DropReason::MapFull);
    }
    judgement
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
    decision: &Decision,
) -> u8 {
    let datagram = parsed.proto == proto::UDP || parsed.proto == proto::TCP;
    if !datagram || !matches!(direction, Direction::Egress) {
        return 0;
    }
    if decision.cookie & COOKIE_DNS != 0 {
        return FLOW_DNS | FLOW_TRUSTED;
    }
    let usual = key.remote_port == 53;
    if (usual || endpoint.flags & ENDPOINT_DNS_PORTS != 0) && state.trusted_resolver(&key.remote, key.remote_port)
    {
        return FLOW_DNS | FLOW_TRUSTED;
    }
    if usual { FLOW_DNS } else { 0 }
}
