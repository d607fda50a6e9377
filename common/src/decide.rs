//! The decision for a packet that starts a flow (DESIGN 3.3): candidate classes of the remote, one outcome per tier
//! and class, tiers in order. Pure over [`Tables`]: the kernel's maps, the agent's `Desired`, a test's table.

use crate::grant::{self, GrantTime};
use crate::ids::{self, ClassId, EndpointId, SetId, identity};
use crate::maps::{
    Endpoint, GRANT_SLOTS, Grants, MAX_CHUNKS, OUTCOME_ALLOW, OUTCOME_DENY, OUTCOME_NONE, PortRule, RULES_PER_CHUNK, RuleChunk,
    RuleKey, SET_ANY, SET_CIDR, SET_IDENTITY, SET_ISOLATED, SET_NAMES,
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

/// What the classes said so far.
#[derive(Clone, Copy)]
struct Tally {
    admin_rank: u32,
    admin: u8,
    baseline_rank: u32,
    baseline: u8,
    /// 0 nothing, 1 allow, 2 deny: deny beats allow.
    normal: u8,
    class: ClassId,
    cookie: u32,
}

impl Tally {
    #[inline(always)]
    fn add(&mut self, class: ClassId, rule: &PortRule) {
        if rule.normal > self.normal {
            self.normal = rule.normal;
            self.class = class;
            self.cookie = rule.cookie;
        }
        if rule.admin != OUTCOME_NONE && rule.admin_rank < self.admin_rank {
            self.admin_rank = rule.admin_rank;
            self.admin = rule.admin;
        }
        if rule.baseline != OUTCOME_NONE && rule.baseline_rank < self.baseline_rank {
            self.baseline_rank = rule.baseline_rank;
            self.baseline = rule.baseline;
        }
    }

    /// `Some(allowed)`, or `None` when no tier says anything.
    #[inline(always)]
    fn outcome(&self, isolated: bool) -> Option<bool> {
        match self.admin {
            OUTCOME_ALLOW => return Some(true),
            OUTCOME_DENY => return Some(false),
            _ => {}
        }
        match self.normal {
            OUTCOME_DENY => return Some(false),
            OUTCOME_ALLOW => return Some(true),
            _ if isolated => return None,
            _ => {}
        }
        match self.baseline {
            OUTCOME_DENY => Some(false),
            _ => Some(true),
        }
    }
}

/// The rule of a class for a protocol and port: the first interval that covers it.
#[inline(always)]
pub fn rule_of<T: Tables>(tables: &T, set: SetId, class: ClassId, protocol: u8, port: u16) -> Option<PortRule> {
    let mut chunk = 0;
    while chunk < MAX_CHUNKS {
        let entry = tables.rules(&RuleKey { set, class, chunk })?;
        let mut i = 0;
        while i < RULES_PER_CHUNK {
            if i as u32 >= entry.count {
                return None;
            }
            let rule = &entry.rules[i];
            if (rule.proto == protocol || (rule.proto == proto::ANY && protocol != proto::DNS_QUERY))
                && rule.lo <= port
                && port <= rule.hi
            {
                return Some(*rule);
            }
            i += 1;
        }
        if entry.more == 0 {
            return None;
        }
        chunk += 1;
    }
    None
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

/// Decides for the first packet of a flow.
#[inline(always)]
pub fn decide<T: Tables>(tables: &T, endpoint: &Endpoint, question: &Question) -> Decision {
    let (set, features) = set_of(endpoint, question.direction);
    if features == 0 {
        return Decision::default();
    }
    let remote = &question.remote;
    let mut tally = Tally {
        admin_rank: u32::MAX,
        admin: OUTCOME_NONE,
        baseline_rank: u32::MAX,
        baseline: OUTCOME_NONE,
        normal: OUTCOME_NONE,
        class: 0,
        cookie: 0,
    };
    let names = features & SET_NAMES != 0 && matches!(question.direction, Direction::Egress);
    let candidates = candidates(tables, endpoint, set, features, names, remote);
    let mut known = Known::default();
    let mut i = 0;
    while i < CANDIDATES {
        let candidate = candidates[i];
        i += 1;
        if candidate.class == ABSENT {
            continue;
        }
        let rule = rule_of(tables, set, candidate.class, question.proto, question.port);
        match rule {
            Some(rule) if candidate.expired == 0 => tally.add(candidate.class, &rule),
            Some(_) => {
                known.expired = candidate.class;
                known.expired_ticks = candidate.expired;
            }
            None if candidate.expired == 0 && ids::is_name_class(candidate.class) => known.live = candidate.class,
            None => {}
        }
    }
    match tally.outcome(features & SET_ISOLATED != 0) {
        Some(true) => Decision { deny: None, class: tally.class, cookie: tally.cookie, age: 0 },
        Some(false) => {
            Decision { deny: Some(DropReason::DenyRule), class: tally.class, cookie: tally.cookie, age: 0 }
        }
        None => explain(tables, endpoint, set, names, question, &known),
    }
}

/// One class that the remote may stand for.
#[derive(Clone, Copy)]
struct Candidate {
    class: ClassId,
    /// Ticks since the grant ended; 0 = live (or not a name).
    expired: GrantTime,
}

/// Eight names, the any class, the identity, the longest CIDR.
const CANDIDATES: usize = GRANT_SLOTS + 3;
/// No class.
const ABSENT: ClassId = ClassId::MAX;

#[inline(always)]
fn candidates<T: Tables>(
    tables: &T,
    endpoint: &Endpoint,
    set: SetId,
    features: u32,
    names: bool,
    remote: &Addr,
) -> [Candidate; CANDIDATES] {
    let mut list = [Candidate { class: ABSENT, expired: 0 }; CANDIDATES];
    if names && let Some(grants) = tables.grants(endpoint.id, remote) {
        let now = tables.grant_now();
        let mut i = 0;
        while i < GRANT_SLOTS {
            let slot = grants.slots[i];
            if slot != 0 {
                list[i] = Candidate { class: grant::class(slot), expired: grant::expired_for(slot, now) };
            }
            i += 1;
        }
    }
    if features & SET_ANY != 0 {
        list[GRANT_SLOTS].class = ids::CLASS_ANY;
    }
    if features & SET_IDENTITY != 0 {
        list[GRANT_SLOTS + 1].class = tables.identity(remote).unwrap_or(identity::WORLD);
    }
    if features & SET_CIDR != 0
        && let Some(class) = tables.cidr_class(set, remote)
    {
        list[GRANT_SLOTS + 2].class = class;
    }
    list
}

/// What the names of an address said when none of them opened it.
#[derive(Clone, Copy, Default)]
struct Known {
    /// A live name that has other ports.
    live: ClassId,
    /// An expired name that would open the port.
    expired: ClassId,
    /// Ticks since it expired.
    expired_ticks: GrantTime,
}

/// The reason when no rule matches: is the address known under a name, was it, or should it be?
#[inline(always)]
fn explain<T: Tables>(
    tables: &T,
    endpoint: &Endpoint,
    set: SetId,
    names: bool,
    question: &Question,
    known: &Known,
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
