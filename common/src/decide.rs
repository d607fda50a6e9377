//! The decision for a packet that starts a flow (DESIGN 3.3): candidate classes of the remote, one outcome per tier
//! and class, tiers in order. Pure over [`Tables`]: the kernel's maps, the agent's `Desired`, a test's table.

use crate::grant::{self, GrantTime};
use crate::ids::{self, ClassId, EndpointId, SetId, identity};
use crate::maps::{
    Endpoint, GRANT_SLOTS, Grants, MAX_CHUNKS, OUTCOME_ALLOW, OUTCOME_DENY, OUTCOME_NONE, PortRule, RULES_PER_CHUNK, RuleChunk,
    RuleKey, SET_ANY, SET_CIDR, SET_IDENTITY, SET_ISOLATED, SET_NAMES, port_key,
};
use crate::net::{Addr, Direction, proto};
use crate::verdict::DropReason;

/// What a decision reads. All look-ups are of single entries; none waits.
pub trait Tables {
    /// Entry of `RULES`.
    fn rules(&self, key: &RuleKey) -> Option<&RuleChunk>;
    /// Class of the longest prefix in `CIDR_CLASSES` of this set; `None` when no prefix covers the address.
    fn cidr_class(&self, set: SetId, addr: &Addr) -> Option<ClassId>;
    /// Identity in `IDENTITIES`; `None` = nobody's.
    fn identity(&self, addr: &Addr) -> Option<u32>;
    /// Entry of `GRANTS`.
    fn grants(&self, endpoint: EndpointId, addr: &Addr) -> Option<&Grants>;
    /// Boot time now. Asked only for flows that names may open.
    fn grant_now(&self) -> GrantTime;
    /// True for a resolver whose answers are learned (`TRUSTED_RESOLVERS`).
    fn trusted_resolver(&self, addr: &Addr, port: u16) -> bool;
    /// Hides a number from the optimiser, so that arithmetic is not turned into branches, nor a mask removed that
    /// the verifier needs. Only the BPF target has to do something.
    #[inline(always)]
    fn opaque(value: u32) -> u32 {
        value
    }
    /// True when `GRANTS` had no room for an address of this endpoint in the last minute.
    fn grants_overflowed(&self, endpoint: EndpointId) -> bool;
}

/// What is asked: may this endpoint exchange packets with `remote`?
#[derive(Clone, Copy, Debug)]
pub struct Question {
    /// The peer's address.
    pub remote: Addr,
    /// Where the flow begins.
    pub direction: Direction,
    /// IP protocol.
    pub proto: u8,
    /// Port at the destination: the peer's on egress, the endpoint's on ingress; ICMP: type << 8 | code.
    pub port: u16,
}

/// The answer, with what an operator wants to know about it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Decision {
    /// `None`: allowed.
    pub deny: Option<DropReason>,
    /// The class that decided, or under which the address is known.
    pub class: ClassId,
    /// Cookie of the rule that decided.
    pub cookie: u32,
    /// NameExpired: seconds since the grant ended.
    pub age: u32,
}

/// What the classes said so far. Outcomes as words: the verifier follows those best.
#[derive(Clone, Copy)]
struct Tally {
    admin_rank: u32,
    admin: u32,
    baseline_rank: u32,
    baseline: u32,
    /// 0 nothing, 1 allow, 2 deny: deny beats allow.
    normal: u32,
    class: ClassId,
    cookie: u32,
    /// A live name of the address that has other ports.
    live: ClassId,
    /// An expired name that would open the port.
    expired: ClassId,
    /// Ticks since it expired.
    expired_ticks: GrantTime,
}

impl Tally {
    #[inline(always)]
    fn add(&mut self, class: ClassId, rule: &PortRule) {
        if rule.normal as u32 > self.normal {
            self.normal = rule.normal as u32;
            self.class = class;
            self.cookie = rule.cookie;
        }
        if rule.admin != OUTCOME_NONE && rule.admin_rank < self.admin_rank {
            self.admin_rank = rule.admin_rank;
            self.admin = rule.admin as u32;
        }
        if rule.baseline != OUTCOME_NONE && rule.baseline_rank < self.baseline_rank {
            self.baseline_rank = rule.baseline_rank;
            self.baseline = rule.baseline as u32;
        }
    }

    /// Adds 0 to everything. What the verifier knows about the numbers differs with the branches that led here; a sum
    /// with an unknown number is unknown, so all branches are one state again.
    #[inline(always)]
    fn forget_branches(&mut self, zero: u32) {
        self.admin_rank = self.admin_rank.wrapping_add(zero);
        self.admin = self.admin.wrapping_add(zero);
        self.baseline_rank = self.baseline_rank.wrapping_add(zero);
        self.baseline = self.baseline.wrapping_add(zero);
        self.normal = self.normal.wrapping_add(zero);
        self.class = self.class.wrapping_add(zero);
        self.cookie = self.cookie.wrapping_add(zero);
        self.live = self.live.wrapping_add(zero);
        self.expired = self.expired.wrapping_add(zero);
        self.expired_ticks = self.expired_ticks.wrapping_add(zero);
    }

    /// `Some(allowed)`, or `None` when no tier says anything.
    #[inline(always)]
    fn outcome(&self, isolated: bool) -> Option<bool> {
        match self.admin as u8 {
            OUTCOME_ALLOW => return Some(true),
            OUTCOME_DENY => return Some(false),
            _ => {}
        }
        match self.normal as u8 {
            OUTCOME_DENY => return Some(false),
            OUTCOME_ALLOW => return Some(true),
            _ if isolated => return None,
            _ => {}
        }
        match self.baseline as u8 {
            OUTCOME_DENY => Some(false),
            _ => Some(true),
        }
    }
}

/// The rule of a class for a protocol and port: two look-ups at most.
#[inline(always)]
pub fn rule_of<T: Tables>(tables: &T, set: SetId, class: ClassId, protocol: u8, port: u16) -> Option<PortRule> {
    let first = tables.rules(&RuleKey { set, class, chunk: 0 })?;
    if first.more != 0 {
        let chunk = chunk_of::<T>(first, port_key(protocol, port));
        if chunk != 0
            && let Some(entry) = tables.rules(&RuleKey { set, class, chunk })
            && let Some(rule) = first_match::<T>(entry, protocol, port)
        {
            return Some(rule);
        }
    }
    first_match::<T>(first, protocol, port)
}

/// The chunk in which an interval for this key would stand: as many chunks as begin at or before it.
#[inline(always)]
fn chunk_of<T: Tables>(first: &RuleChunk, key: u32) -> u32 {
    let mut chunk = 0;
    let mut i = 0;
    while i < MAX_CHUNKS - 1 {
        // Keys stay below 2^31; the unused start, u32::MAX, is cut to the largest of them.
        let start = first.starts[i] & 0x7fff_ffff;
        chunk += T::opaque(start.wrapping_sub(key + 1) >> 31);
        i += 1;
    }
    chunk
}

/// The first interval of a chunk that covers the port. Arithmetic instead of branches: a branch per interval would
/// double the states that the verifier has to follow, eight times per class.
#[inline(always)]
fn first_match<T: Tables>(entry: &RuleChunk, protocol: u8, port: u16) -> Option<PortRule> {
    // DNS_QUERY is a pseudo-protocol: rules for every protocol do not speak of it.
    let query = zero_if_equal::<T>(protocol as u32, proto::DNS_QUERY as u32) ^ 1;
    let (mut missing, mut at) = (1u32, 0u32);
    let mut i = 0;
    while i < RULES_PER_CHUNK {
        let rule = &entry.rules[i];
        let (below, above) = ((port as u32).wrapping_sub(rule.lo as u32), (rule.hi as u32).wrapping_sub(port as u32));
        let outside = T::opaque((below | above) >> 31);
        let other = zero_if_equal::<T>(rule.proto as u32, protocol as u32);
        let specific = zero_if_equal::<T>(rule.proto as u32, proto::ANY as u32) | query;
        let unused = T::opaque((i as u32).wrapping_sub(entry.count) >> 31) ^ 1;
        missing = T::opaque(missing & (outside | (other & specific) | unused));
        at += missing;
        i += 1;
    }
    if at >= RULES_PER_CHUNK as u32 {
        return None;
    }
    Some(entry.rules[T::opaque(at) as usize & (RULES_PER_CHUNK - 1)])
}

/// 0 for equal numbers below 2^31, else 1, without a branch.
#[inline(always)]
fn zero_if_equal<T: Tables>(a: u32, b: u32) -> u32 {
    T::opaque((a ^ b).wrapping_neg() >> 31)
}

/// Set and features of an endpoint in one direction.
#[inline(always)]
#[must_use]
pub const fn set_of(endpoint: &Endpoint, direction: Direction) -> (SetId, u32) {
    match direction {
        Direction::Egress => (endpoint.egress_set, endpoint.egress_features),
        Direction::Ingress => (endpoint.ingress_set, endpoint.ingress_features),
    }
}

/// Decides for the first packet of a flow. A frame of its own: the BPF stack has 512 bytes over all frames.
#[inline(never)]
pub fn decide<T: Tables>(tables: &T, endpoint: &Endpoint, question: &Question) -> Decision {
    let (set, features) = set_of(endpoint, question.direction);
    if features == 0 {
        return Decision::default();
    }
    let remote = &question.remote;
    let zero = endpoint.zero;
    let mut tally = Tally {
        admin_rank: !zero,
        admin: zero,
        baseline_rank: !zero,
        baseline: zero,
        normal: zero,
        class: zero,
        cookie: zero,
        live: zero,
        expired: zero,
        expired_ticks: zero,
    };
    let names = features & SET_NAMES != 0 && matches!(question.direction, Direction::Egress);
    let grants = if names { tables.grants(endpoint.id, remote) } else { None };
    if let Some(grants) = grants {
        let now = tables.grant_now();
        let mut i = 0;
        while T::opaque(i) < GRANT_SLOTS as u32 {
            let slot = grants.slots[i as usize & (GRANT_SLOTS - 1)];
            i += 1;
            if slot != 0 {
                consider(tables, question, &Candidate { set, class: grant::class(slot), expired: grant::expired_for(slot, now), zero }, &mut tally);
            }
        }
    }
    let mut i = 0;
    while T::opaque(i) < 3 {
        let class = match i {
            0 if features & SET_ANY != 0 => zero,
            1 if features & SET_IDENTITY != 0 => tables.identity(remote).unwrap_or(identity::WORLD),
            2 if features & SET_CIDR != 0 => tables.cidr_class(set, remote).unwrap_or(ABSENT),
            _ => ABSENT,
        };
        i += 1;
        if class != ABSENT {
            consider(tables, question, &Candidate { set, class, expired: zero, zero }, &mut tally);
        }
    }
    match tally.outcome(features & SET_ISOLATED != 0) {
        Some(true) => Decision { deny: None, class: tally.class, cookie: tally.cookie, age: 0 },
        Some(false) => {
            Decision { deny: Some(DropReason::DenyRule), class: tally.class, cookie: tally.cookie, age: 0 }
        }
        None => explain(tables, endpoint, set, names, question, &tally),
    }
}

/// No class.
const ABSENT: ClassId = ClassId::MAX;

/// One class that the remote may stand for.
struct Candidate {
    set: SetId,
    class: ClassId,
    /// Ticks since the grant ended; 0 = live, or not a name.
    expired: GrantTime,
    /// [`Endpoint::zero`].
    zero: u32,
}

/// Adds what one class says.
#[inline(never)]
fn consider<T: Tables>(tables: &T, question: &Question, candidate: &Candidate, tally: &mut Tally) {
    let rule = rule_of(tables, candidate.set, candidate.class, question.proto, question.port);
    match rule {
        Some(rule) if candidate.expired == 0 => tally.add(candidate.class, &rule),
        Some(_) => {
            tally.expired = candidate.class;
            tally.expired_ticks = candidate.expired;
        }
        None if candidate.expired == 0 && ids::is_name_class(candidate.class) => tally.live = candidate.class,
        None => {}
    }
    tally.forget_branches(candidate.zero);
}

/// The reason when no rule matches: is the address known under a name, was it, or should it be?
#[inline(always)]
fn explain<T: Tables>(
    tables: &T,
    endpoint: &Endpoint,
    set: SetId,
    names: bool,
    question: &Question,
    known: &Tally,
) -> Decision {
    let deny = |reason, class, age| Decision { deny: Some(reason), class, cookie: 0, age };
    if !names {
        return deny(DropReason::NoRule, 0, 0);
    }
    if known.expired != 0 {
        return deny(DropReason::NameExpired, known.expired, grant::secs_of_ticks(known.expired_ticks));
    }
    if known.live != 0 {
        return deny(DropReason::NamePortMismatch, known.live, 0);
    }
    if rule_of(tables, set, ids::CLASS_NAMES_SUMMARY, question.proto, question.port).is_none() {
        return deny(DropReason::NoRule, 0, 0);
    }
    if question.remote.is_forbidden_answer() {
        return deny(DropReason::ForbiddenAnswerAddress, 0, 0);
    }
    if tables.grants_overflowed(endpoint.id) {
        return deny(DropReason::MapFull, 0, 0);
    }
    deny(DropReason::NameUnresolved, 0, 0)
}

/// May this endpoint ask a resolver for a name of this class (0 = no class)? Port: the resolver's.
#[inline(always)]
pub fn may_ask<T: Tables>(tables: &T, endpoint: &Endpoint, class: ClassId, port: u16) -> bool {
    let allowed = |class| {
        matches!(rule_of(tables, endpoint.egress_set, class, proto::DNS_QUERY, port), Some(rule) if rule.normal == OUTCOME_ALLOW)
    };
    (class != 0 && allowed(class)) || allowed(ids::CLASS_ANY)
}
