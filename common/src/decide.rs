//! The decision for a packet that starts a flow (DESIGN 3.3): candidate classes of the remote, one outcome per tier
//! and class, tiers in order. Pure over [`Tables`]: the kernel's maps, the agent's `Desired`, a test's table.

use crate::grant::{self, GrantTime};
use crate::ids::{self, ClassId, EndpointId, SetId, identity};
use crate::maps::{
    BACKENDS, Backends, COOKIE_DNS, ENDPOINT_SERVICES, Endpoint, GRANT_SLOTS, Grants, MAX_CHUNKS,
    OUTCOME_ALLOW, OUTCOME_DENY, OUTCOME_NONE, OUTCOME_PASS, PortRule, RULES_PER_CHUNK, RuleChunk, RuleKey,
    SET_ANY, SET_CIDR, SET_IDENTITY, SET_ISOLATED, SET_NAMES, ServiceKey, cidr_port, port_key,
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
    /// Whether there may be Services; where not, the verifier leaves out what they cost.
    #[inline(always)]
    fn has_services(&self) -> bool {
        true
    }
    /// Entry of `SERVICES`.
    fn service(&self, key: &ServiceKey) -> Option<&Backends>;
    /// Whether the address is one of the endpoint's own (`ADDRESSES`). Asked only for pods.
    fn owns(&self, endpoint: EndpointId, addr: &Addr) -> bool;
    /// Hides a number from the optimiser, so that arithmetic is not turned into branches, nor a mask removed that
    /// the verifier needs. Only the BPF target has to do something.
    #[inline(always)]
    fn opaque(value: u32) -> u32 {
        value
    }
    /// Calls `turn` with 0, 1, ... until it returns false, `max` times at most. In the kernel this is `bpf_loop`,
    /// which checks `turn` once; what it changes must hold no number that the verifier knows (see [`Endpoint::zero`]).
    #[inline(always)]
    fn repeat<F: FnMut(u32) -> bool>(max: u32, mut turn: F) {
        let mut i = 0;
        while i < max && turn(i) {
            i += 1;
        }
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

/// What is asked, without the peer. Numbers, so that the verifier may forget how they came about.
#[derive(Clone, Copy, Debug)]
pub struct What {
    /// As [`Question::port`].
    pub port: u16,
    /// IP protocol.
    pub proto: u8,
    /// 1: the endpoint begins the flow.
    pub egress: u8,
}

impl What {
    /// Where the flow begins.
    #[inline(always)]
    #[must_use]
    pub const fn direction(self) -> Direction {
        if self.egress != 0 { Direction::Egress } else { Direction::Ingress }
    }
}

/// The answer, with what an operator wants to know about it.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Decision {
    /// The class that decided, or under which the address is known.
    pub class: ClassId,
    /// [`DropReason`] as a number; 0 = allowed.
    pub reason: u32,
    /// Cookie of the rule that decided.
    pub cookie: u32,
    /// NameExpired: seconds since the grant ended.
    pub age: u32,
}

impl Decision {
    /// Why not; `None` = allowed.
    #[must_use]
    pub const fn reason(&self) -> Option<DropReason> {
        DropReason::from_u8(self.reason as u8)
    }
}

/// [`decide`] for callers that have no stack to save.
pub fn decision_of<T: Tables>(tables: &T, endpoint: &Endpoint, question: &Question) -> Decision {
    let mut decision = Decision::default();
    decide(tables, endpoint, question, &mut decision);
    decision
}

/// What the classes said so far. Outcomes as words: the verifier follows those best.
struct Tally<'a> {
    /// The peer, or the backend that is being judged.
    remote: Addr,
    grants: Option<&'a Grants>,
    backends: Option<&'a Backends>,
    /// See [`candidates`].
    candidates: u64,
    now: GrantTime,
    endpoint: EndpointId,
    set: SetId,
    features: u32,
    port: u16,
    proto: u8,
    /// Backends that were begun.
    begun: u8,
    /// [`Endpoint::zero`].
    zero: u32,
    /// Rank << 2 | outcome: the least is the first match.
    admin: u32,
    baseline: u32,
    /// 0 nothing, 1 allow, 2 deny: deny beats allow.
    normal: u32,
    class: ClassId,
    cookie: u32,
    /// A live name of the address. If nothing allows the flow, its rules are about other ports, or an earlier rule passed
    /// over them.
    live: ClassId,
    /// An expired name that would open the port.
    expired: ClassId,
    /// Ticks since it expired.
    expired_ticks: GrantTime,
}

impl Tally<'_> {
    /// Adds what the next class that the remote may stand for says; false after the last one.
    #[inline(always)]
    fn candidate<T: Tables>(&mut self, tables: &T) -> bool {
        let zero = self.zero;
        let i = T::opaque(self.candidates as u32 & 15);
        self.candidates >>= 4;
        let (class, expired) = match i {
            0 => return self.next_backend(tables),
            1 => (zero, zero),
            2 => (tables.identity(&self.remote).unwrap_or(identity::WORLD), zero),
            3 => (tables.cidr_class(self.set, &self.remote).unwrap_or(ABSENT), zero),
            _ => {
                let Some(grants) = self.grants else { return false };
                let slot = grants.slots[(i as usize - 4) & (GRANT_SLOTS - 1)];
                if slot == 0 {
                    // Free slots are the last ones.
                    return false;
                }
                (grant::class(slot), grant::expired_for(slot, self.now))
            }
        };
        if class != ABSENT {
            self.consider(tables, class, expired);
        }
        true
    }

    /// Where the destination is a Service: goes on to the next backend if the one before may be reached. Grants are not
    /// asked: no name opens an address of the cluster. A pod cannot block itself (CASES K-A12).
    #[inline(always)]
    fn next_backend<T: Tables>(&mut self, tables: &T) -> bool {
        let Some(backends) = self.backends else { return false };
        let (zero, begun) = (self.zero, self.begun as u32);
        if begun >= backends.count || (begun != 0 && self.outcome() & 3 != OUTCOME_ALLOW as u32) {
            return false;
        }
        let backend = &backends.slots[begun as usize & (BACKENDS - 1)];
        self.remote = backend.addr;
        self.port = backend.port as u16;
        self.begun = (begun + 1) as u8;
        let own = tables.owns(self.endpoint, &self.remote) as u32;
        // No class is asked about itself.
        self.candidates = candidates(self.features, self.port, false).0 & (own as u64).wrapping_sub(1);
        self.admin = !zero << 2;
        self.baseline = !zero << 2;
        self.normal = zero + own * OUTCOME_ALLOW as u32;
        true
    }

    /// Adds what one class says; `expired`: ticks since the grant ended, 0 = live or not a name.
    #[inline(always)]
    fn consider<T: Tables>(&mut self, tables: &T, class: ClassId, expired: GrantTime) {
        match rule_of(tables, self.set, class, self.proto, self.port) {
            Some(rule) if expired == 0 => self.add(class, rule),
            Some(_) => {
                self.expired = class;
                self.expired_ticks = expired;
            }
            None => {}
        }
        if expired == 0 && ids::is_name_class(class) {
            self.live = class;
        }
        self.forget_branches();
    }

    #[inline(always)]
    fn add(&mut self, class: ClassId, rule: &PortRule) {
        if rule.normal as u32 > self.normal {
            self.normal = rule.normal as u32;
            self.class = class;
            self.cookie = rule.cookie;
        }
        let (admin, baseline) = (rule.admin as u32, rule.baseline as u32);
        if admin != 0 && rule.admin_rank << 2 < self.admin {
            self.admin = rule.admin_rank << 2 | admin;
            if admin != OUTCOME_PASS as u32 {
                self.class = class;
            }
        }
        if baseline != 0 && rule.baseline_rank << 2 < self.baseline {
            self.baseline = rule.baseline_rank << 2 | baseline;
        }
    }

    /// Adds 0 to everything. What the verifier knows about the numbers differs with the branches that led here; a sum
    /// with an unknown number is unknown, so all branches are one state again.
    #[inline(always)]
    fn forget_branches(&mut self) {
        let zero = self.zero;
        self.admin = self.admin.wrapping_add(zero);
        self.baseline = self.baseline.wrapping_add(zero);
        self.normal = self.normal.wrapping_add(zero);
        self.class = self.class.wrapping_add(zero);
        self.cookie = self.cookie.wrapping_add(zero);
        self.live = self.live.wrapping_add(zero);
        self.expired = self.expired.wrapping_add(zero);
        self.expired_ticks = self.expired_ticks.wrapping_add(zero);
    }

    /// `OUTCOME_ALLOW`, `OUTCOME_DENY`, or `OUTCOME_NONE` when no tier says anything; beside it (<< 2) the rank of the rule, if
    /// it is one of the Admin or Baseline tier.
    #[inline(always)]
    fn outcome(&self) -> u32 {
        outcome(self.admin, self.normal, self.baseline, self.features).wrapping_add(self.zero)
    }
}

/// The tiers in order. A frame of its own: its branches come to one number, which its caller makes unknown again.
#[inline(never)]
fn outcome(admin: u32, normal: u32, baseline: u32, features: u32) -> u32 {
    let (allow, deny) = (OUTCOME_ALLOW as u32, OUTCOME_DENY as u32);
    if admin & 3 == allow || admin & 3 == deny {
        return admin;
    }
    if normal == deny || normal == allow {
        return normal;
    }
    if features & SET_ISOLATED != 0 {
        return OUTCOME_NONE as u32;
    }
    if baseline & 3 == allow || baseline & 3 == deny { baseline } else { allow }
}

/// The rule of a class for a protocol and port: two look-ups at most.
#[inline(always)]
pub fn rule_of<T: Tables>(
    tables: &T,
    set: SetId,
    class: ClassId,
    protocol: u8,
    port: u16,
) -> Option<&PortRule> {
    let first = tables.rules(&RuleKey { set, class, chunk: 0 })?;
    if first.more != 0 {
        let chunk = chunk_of::<T>(first, port_key(protocol, port));
        if chunk != 0
            && let Some(entry) = tables.rules(&RuleKey { set, class, chunk })
            && let Some(rule) = matching::<T>(entry, protocol, port)
        {
            return Some(rule);
        }
    }
    matching::<T>(first, protocol, port)
}

/// The chunk in which an interval for this key would stand: as many chunks as begin at or before it.
#[inline(always)]
fn chunk_of<T: Tables>(first: &RuleChunk, key: u32) -> u32 {
    let key = T::opaque(key + 1);
    let mut chunk = 0;
    let mut i = 0;
    while i < MAX_CHUNKS - 1 {
        // Keys stay below 2^31; the unused start, u32::MAX, is cut to the largest of them.
        let start = first.starts[i] & 0x7fff_ffff;
        chunk += start.wrapping_sub(key) >> 31;
        i += 1;
    }
    chunk
}

/// Index of the first interval of a chunk that covers the port, or `RULES_PER_CHUNK`. Arithmetic instead of branches: a
/// branch per interval would double the states that the verifier has to follow, eight times per class.
#[inline(never)]
fn first_match<T: Tables>(entry: &RuleChunk, protocol: u8, port: u16) -> u32 {
    // Numbers whose range the compiler does not know: else it would put the branches back.
    let (protocol, port) = (T::opaque(protocol as u32), T::opaque(port as u32));
    // DNS_QUERY is a pseudo-protocol: rules for every protocol do not speak of it.
    let query = differ(protocol, proto::DNS_QUERY as u32) ^ 1;
    let (mut missing, mut at) = (1u32, 0u32);
    let count = if entry.count > RULES_PER_CHUNK as u32 { RULES_PER_CHUNK as u32 } else { entry.count };
    let mut i = 0;
    while T::opaque(i) < count {
        let rule = &entry.rules[i as usize & (RULES_PER_CHUNK - 1)];
        let outside = (port.wrapping_sub(rule.lo as u32) | (rule.hi as u32).wrapping_sub(port)) >> 31;
        let own = T::opaque(rule.proto as u32);
        let other = differ(own, protocol) & (differ(own, proto::ANY as u32) | query);
        missing = T::opaque(missing & (outside | other));
        at += missing;
        i += 1;
    }
    // All missed: at is the count, which may be less than a chunk holds.
    at += (missing & 1) * RULES_PER_CHUNK as u32;
    at
}

/// The interval that covers the port.
#[inline(always)]
fn matching<T: Tables>(entry: &RuleChunk, protocol: u8, port: u16) -> Option<&PortRule> {
    let at = first_match::<T>(entry, protocol, port);
    if at >= RULES_PER_CHUNK as u32 {
        return None;
    }
    Some(&entry.rules[T::opaque(at) as usize & (RULES_PER_CHUNK - 1)])
}

/// 0 for equal numbers below 2^31, else 1, without a branch.
#[inline(always)]
fn differ(a: u32, b: u32) -> u32 {
    (a ^ b).wrapping_neg() >> 31
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

/// [`decide_what`] for a question in one piece.
#[inline(always)]
pub fn decide<T: Tables>(tables: &T, endpoint: &Endpoint, question: &Question, out: &mut Decision) {
    let egress = matches!(question.direction, Direction::Egress) as u8;
    let what = What { port: question.port, proto: question.proto, egress };
    decide_what(tables, endpoint, &question.remote, what, out);
}

/// Decides for the first packet of a flow with `remote`, into a default [`Decision`]. A destination that is a Service is
/// judged by its backends, all of which have to be allowed: nobody knows yet which one it will be. A frame of its own: the
/// BPF stack has 512 bytes over all frames.
#[inline(never)]
pub fn decide_what<T: Tables>(
    tables: &T,
    endpoint: &Endpoint,
    remote: &Addr,
    what: What,
    out: &mut Decision,
) {
    let (set, features) = set_of(endpoint, what.direction());
    if features == 0 {
        return;
    }
    let zero = endpoint.zero;
    let egress = what.egress != 0;
    let names = features & SET_NAMES != 0 && egress;
    let asks = tables.has_services() && endpoint.flags & ENDPOINT_SERVICES != 0 && egress;
    let backends = if asks { service(tables, remote, what) } else { None };
    let grants = if names && backends.is_none() { tables.grants(endpoint.id, remote) } else { None };
    let (list, count) = candidates(features, what.port, grants.is_some());
    let (list, count) =
        if backends.is_some() { (zero as u64, BACKENDS as u32 * 4 + 1) } else { (list, count) };
    let mut tally = Tally {
        remote: *remote,
        grants,
        backends,
        candidates: list | zero as u64,
        now: if grants.is_some() { tables.grant_now() } else { zero },
        endpoint: endpoint.id,
        set,
        features,
        port: what.port,
        proto: what.proto,
        begun: zero as u8,
        zero,
        admin: !zero << 2,
        baseline: !zero << 2,
        normal: zero,
        class: zero,
        cookie: zero,
        live: zero,
        expired: zero,
        expired_ticks: zero,
    };
    T::repeat(count, |_| tally.candidate(tables));
    // From here on only what the tally holds: whatever else lived through the loop would need room on the stack.
    let zero = tally.zero;
    out.class = tally.class;
    out.cookie = tally.cookie;
    let outcome = tally.outcome();
    if outcome > 3 {
        // The rule's rank is its cookie. DNS is learned as under the rule of the Normal tier beside it.
        out.cookie = outcome >> 2 | tally.cookie & COOKIE_DNS;
    }
    let outcome = outcome & 3;
    if tally.backends.is_some() {
        if tally.begun == 0 || outcome != OUTCOME_ALLOW as u32 {
            out.reason = DropReason::ServiceBackendDenied as u32;
        }
    } else {
        match outcome as u8 {
            OUTCOME_ALLOW => {}
            OUTCOME_DENY => out.reason = DropReason::DenyRule as u32,
            _ => explain(tables, endpoint, remote, what, &tally, out),
        }
    }
    out.reason = out.reason.wrapping_add(zero);
    out.class = out.class.wrapping_add(zero);
    out.cookie = out.cookie.wrapping_add(zero);
    out.age = out.age.wrapping_add(zero);
}

/// The backends, if the destination is a Service.
#[inline(never)]
fn service<'a, T: Tables>(tables: &'a T, remote: &Addr, what: What) -> Option<&'a Backends> {
    let key = ServiceKey { addr: *remote, port: what.port as u32, proto: what.proto as u32 };
    tables.service(&key)
}

/// The classes to ask for and how many at most, four bits for each: 1 any, 2 the identity, 3 the longest CIDR, 4 and up
/// the names of the address, 0 the end. Only what the set has rules for: each costs a look-up and a turn of the loop.
/// Arithmetic, since the verifier would follow each branch to the end.
#[inline(always)]
fn candidates(features: u32, port: u16, names: bool) -> (u64, u32) {
    const NAMES: u64 = 0xba98_7654;
    let has = |bit: u32| (features & bit).wrapping_neg() >> 31;
    let (any, identity) = (has(SET_ANY), has(SET_IDENTITY));
    let cidr = has(SET_CIDR) & has(cidr_port(port));
    let mut list = any as u64;
    let mut count = any;
    list |= (identity as u64 * 2) << (4 * count);
    count += identity;
    list |= (cidr as u64 * 3) << (4 * count);
    count += cidr;
    list |= (names as u64 * NAMES) << (4 * count);
    (list, count + names as u32 * GRANT_SLOTS as u32)
}

/// No class.
const ABSENT: ClassId = ClassId::MAX;

/// The reason when no rule matches: is the address known under a name, was it, or should it be?
#[inline(always)]
fn explain<T: Tables>(
    tables: &T,
    endpoint: &Endpoint,
    remote: &Addr,
    what: What,
    tally: &Tally<'_>,
    out: &mut Decision,
) {
    out.class = 0;
    out.cookie = 0;
    let reason = if tally.features & SET_NAMES == 0 || what.egress == 0 {
        DropReason::NoRule
    } else if tally.expired != 0 {
        out.class = tally.expired;
        out.age = grant::secs_of_ticks(tally.expired_ticks);
        DropReason::NameExpired
    } else if tally.live != 0 {
        out.class = tally.live;
        DropReason::NamePortMismatch
    } else {
        unresolved(tables, endpoint, remote, what)
    };
    out.reason = reason as u32;
}

/// The address is known under no name: do names open this port at all, and why could it be unknown?
#[inline(never)]
fn unresolved<T: Tables>(tables: &T, endpoint: &Endpoint, remote: &Addr, what: What) -> DropReason {
    let (set, _) = set_of(endpoint, what.direction());
    let rule = rule_of(tables, set, ids::CLASS_NAMES_SUMMARY, what.proto, what.port);
    if rule.is_none() {
        DropReason::NoRule
    } else if remote.is_forbidden_answer() {
        DropReason::ForbiddenAnswerAddress
    } else if tables.grants_overflowed(endpoint.id) {
        DropReason::MapFull
    } else {
        DropReason::NameUnresolved
    }
}

/// May this endpoint ask a resolver for a name of this class (0 = no class)? Port: the resolver's.
#[inline(always)]
pub fn may_ask<T: Tables>(tables: &T, endpoint: &Endpoint, class: ClassId, port: u16) -> bool {
    let allowed = |class| matches!(rule_of(tables, endpoint.egress_set, class, proto::DNS_QUERY, port), Some(rule) if rule.normal == OUTCOME_ALLOW);
    (class != 0 && allowed(class)) || allowed(ids::CLASS_ANY)
}
