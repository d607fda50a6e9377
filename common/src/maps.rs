//! Keys and values of the maps (DESIGN 3.2). `repr(C)`, explicit padding, integers only; sizes are asserted below.
//! The names of the maps and who writes them are listed in `ebpf/src/maps.rs`.

mod flow;

use crate::ids::{ClassId, EndpointId, SetId};
use crate::net::Addr;

pub use flow::{FLOW_DNS, FLOW_TRUSTED, FlowEntry, FlowKey, FlowValue, FragmentKey, FragmentPorts, Traffic};

/// Value of `ENDPOINTS` (array, index = endpoint id). An entry with `id` 0 is free.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Endpoint {
    /// The endpoint's own id.
    pub id: EndpointId,
    /// `ENDPOINT_*` bits.
    pub flags: u32,
    /// Rule set for packets that the endpoint sends. In one word with what is known of it, so that both change at once.
    pub egress_set: SetId,
    /// `SET_*` bits of the egress set.
    pub egress_features: u32,
    /// Rule set for packets that the endpoint receives.
    pub ingress_set: SetId,
    /// `SET_*` bits of the ingress set.
    pub ingress_features: u32,
    /// Identity number of the endpoint itself.
    pub identity: u32,
    /// Shortest lifetime of a learned address, in seconds.
    pub ttl_floor: u32,
    /// Longest lifetime of a learned address before grace, in seconds.
    pub ttl_cap: u32,
    /// Seconds added to every lifetime.
    pub grace: u32,
    /// Always 0. The verifier does not know that: a decision that starts from it is the same state in every branch,
    /// and is checked once instead of once per combination.
    pub zero: u32,
}

/// Audit: nothing is held back, everything is judged and reported.
pub const ENDPOINT_AUDIT: u32 = 1;
/// Denials answer at once (errno, RST, ICMP) instead of in silence.
pub const ENDPOINT_REJECT: u32 = 1 << 1;
/// DNS queries for names that no rule permits are refused.
pub const ENDPOINT_QUERY_FILTER: u32 = 1 << 2;
/// Loopback and the host's own addresses are open (`egret run`).
pub const ENDPOINT_LOOPBACK: u32 = 1 << 3;
/// Every destination is written to `DESTINATIONS` (`egret run`: the report and `--write-policy`).
pub const ENDPOINT_REPORT: u32 = 1 << 4;

/// Some trusted resolver listens on another port than 53.
pub const ENDPOINT_DNS_PORTS: u32 = 1 << 5;
/// A pod behind an interface of its own: it may send from its own addresses only, and its node may always begin a flow to
/// it (probes).
pub const ENDPOINT_POD: u32 = 1 << 6;
/// There are Services: a destination may stand for backends (`SERVICES`).
pub const ENDPOINT_SERVICES: u32 = 1 << 7;
/// Open TCP connections go on when policies change (K-A11).
pub const ENDPOINT_KEEP: u32 = 1 << 9;
/// Refused DNS queries are answered NXDOMAIN instead of REFUSED, where the program answers itself.
pub const ENDPOINT_DNS_NXDOMAIN: u32 = 1 << 8;

/// The direction is isolated: what no rule allows is denied.
pub const SET_ISOLATED: u32 = 1;
/// The set has rules for the any class.
pub const SET_ANY: u32 = 1 << 1;
/// The set has rules for identities.
pub const SET_IDENTITY: u32 = 1 << 2;
/// The set has rules for CIDRs.
pub const SET_CIDR: u32 = 1 << 3;
/// The set has rules for names.
pub const SET_NAMES: u32 = 1 << 4;
/// First of the 16 bits that say for which ports the set has rules for CIDRs: see [`cidr_port`].
pub const SET_CIDR_PORTS: u32 = 16;

/// The bit of a port among the `SET_*` bits. Not set: no rule for a CIDR speaks of the port, so the prefixes, the most
/// expensive look-up, need not be searched. Ports share a bit when their last four bits are equal.
#[inline(always)]
#[must_use]
pub const fn cidr_port(port: u16) -> u32 {
    1 << (SET_CIDR_PORTS + (port & 15) as u32)
}

/// Key of `CIDR_CLASSES` behind the prefix length; matched from the left, the set always whole.
/// Prefix length = 32 + 96 + n for an IPv4 /n, 32 + n for an IPv6 /n.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct CidrKey {
    /// Rule set.
    pub set: SetId,
    /// Address, wire bytes.
    pub addr: [u32; 4],
}

/// Bytes of a DNS name in wire order without the root label; 255 at most (RFC 1035 2.3.4), padded with zero.
pub const NAME_CAP: usize = 256;

/// Value of `NAME_EXACT` (key: lower-case wire name, zero padded) and half of [`SuffixClasses`].
pub type NameClass = ClassId;

/// Value of `NAME_SUFFIX` (key: the name's text reversed byte by byte, ending in the dot before the next label).
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct SuffixClasses {
    /// Labels in the suffix; 0 for the entry of every name.
    pub labels: u32,
    /// Class of a name with exactly one more label; 0 = none.
    pub one: NameClass,
    /// Class of a name with two or more labels more; 0 = none.
    pub more: NameClass,
}

/// Key of `GRANTS`.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct GrantKey {
    /// The address that the workload was told.
    pub addr: Addr,
    /// The workload.
    pub endpoint: EndpointId,
    /// Zero.
    pub pad: u32,
}

/// Grants per address and workload; one more name class on the same address is refused and counted.
pub const GRANT_SLOTS: usize = 8;

/// Value of `GRANTS`: each slot packs class and expiry ([`crate::grant`]) so that one atomic exchange writes it.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Grants {
    /// 0 = free.
    pub slots: [u64; GRANT_SLOTS],
}

/// Key of `RULES`.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct RuleKey {
    /// Rule set (of one direction).
    pub set: SetId,
    /// What the remote stands for.
    pub class: ClassId,
    /// 0, or the chunk that [`RuleChunk::starts`] of chunk 0 leads to.
    pub chunk: u32,
}

/// Intervals in one chunk.
pub const RULES_PER_CHUNK: usize = 8;
/// Chunks of one class at most; the compiler refuses more.
pub const MAX_CHUNKS: usize = 15;

/// Outcome of a tier: nothing matches.
pub const OUTCOME_NONE: u8 = 0;
/// Outcome of a tier: allow (Normal) or accept (Admin, Baseline).
pub const OUTCOME_ALLOW: u8 = 1;
/// Outcome of a tier: deny.
pub const OUTCOME_DENY: u8 = 2;
/// Outcome of the Admin and Baseline tiers: go on with the next tier.
pub const OUTCOME_PASS: u8 = 3;

/// One interval of ports of one protocol with its outcome per tier. The intervals of a class are disjoint and sorted
/// by [`port_key`]; at most one of them is for [`crate::net::proto::ANY`]. It stands last in chunk 0 and counts for
/// protocols that have no interval of their own: those that have, cover all of their ports then.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub struct PortRule {
    /// First port; for ICMP type << 8 | code.
    pub lo: u16,
    /// Last port.
    pub hi: u16,
    /// IP protocol, or [`crate::net::proto::ANY`] or `DNS_QUERY`.
    pub proto: u8,
    /// `OUTCOME_*` of NetworkPolicy and CiliumNetworkPolicy rules.
    pub normal: u8,
    /// `OUTCOME_*` of the Admin tier.
    pub admin: u8,
    /// `OUTCOME_*` of the Baseline tier.
    pub baseline: u8,
    /// Rank of the Admin rule over all classes; the least wins. Below 2^30, and the rule's cookie at the same time.
    pub admin_rank: u32,
    /// Rank of the Baseline rule over all classes; the least wins. Below 2^30, and the rule's cookie at the same time.
    pub baseline_rank: u32,
    /// The Normal rule that decides here, for flows and explain; `PORT_RULE_*` bits lie apart.
    pub cookie: u32,
}

/// Bit of [`PortRule::cookie`]: DNS through this rule is learned (`rules.dns`).
pub const COOKIE_DNS: u32 = 1 << 31;

/// Value of `RULES`. A class with at most eight intervals has one chunk.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct RuleChunk {
    /// Intervals in use.
    pub count: u32,
    /// Chunk 0: further chunks of this class.
    pub more: u32,
    /// Chunk 0: `starts[i]` is the [`port_key`] of the first interval in chunk i + 1; unused ones are `u32::MAX`.
    pub starts: [u32; MAX_CHUNKS - 1],
    /// The intervals.
    pub rules: [PortRule; RULES_PER_CHUNK],
}

/// Order of intervals and of chunks: protocol, then port.
#[inline(always)]
#[must_use]
pub const fn port_key(proto: u8, port: u16) -> u32 {
    (proto as u32) << 16 | port as u32
}

/// Key of `TRUSTED_RESOLVERS`.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct ResolverKey {
    /// The resolver.
    pub addr: Addr,
    /// Its port; as wide as the address, so that nothing is padded.
    pub port: u64,
}

/// Key of `SERVICES`: where clients of a Service send.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct ServiceKey {
    /// A virtual address of the Service.
    pub addr: Addr,
    /// Its port.
    pub port: u32,
    /// IP protocol.
    pub proto: u32,
}

/// One that a Service may send a client to.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Backend {
    /// Its address.
    pub addr: Addr,
    /// The port there.
    pub port: u32,
    /// Zero.
    pub pad: u32,
}

/// Backends of one Service port in the map; of several that policies cannot tell apart one stands for all.
pub const BACKENDS: usize = 8;

/// Value of `SERVICES`. No backend (or more different ones than fit) means: nobody may pass.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Backends {
    /// How many of `slots` count.
    pub count: u32,
    /// Zero.
    pub pad: u32,
    /// The backends.
    pub slots: [Backend; BACKENDS],
}

/// Value of `STARTUP`.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Startup {
    /// `STARTUP_*`.
    pub mode: u32,
    /// Level of the cgroup above all pods (0 = root); pods stand one or two levels below.
    pub level: u32,
}

/// Unknown pods are let through.
pub const STARTUP_ALLOW: u32 = 0;
/// Unknown pods are denied, those on the node's own network excepted.
pub const STARTUP_GUARD: u32 = 1;
/// Unknown pods are denied.
pub const STARTUP_DENY: u32 = 2;

/// Key of `DNS_QUERIES`: what the endpoint asked, so that only an answer to it is learned.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct QueryKey {
    /// The flow of the question.
    pub flow: FlowKey,
    /// Hash of the lower-case name and the type ([`crate::dns`]).
    pub question: u64,
    /// Transaction id.
    pub txid: u16,
    /// Zero.
    pub pad: [u16; 3],
}

/// Value of `ENDPOINT_STATE` (array, index = endpoint id): what the kernel tells itself and the agent.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct EndpointState {
    /// Jiffies until which an answer may still be on its way through the agent; 0 = none.
    pub pending_until: u64,
    /// Jiffies of the last time `GRANTS` had no room; 0 = never.
    pub map_full_at: u64,
    /// Grants refused since `GRANTS` or an address's slots were full.
    pub map_full: u64,
    /// Addresses refused since no name may open them.
    pub forbidden: u64,
}

/// Value of `COUNTERS` (per CPU, index = [`counter_index`]).
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Counter {
    /// Packets, connects or queries.
    pub packets: u64,
    /// Bytes from the network header on.
    pub bytes: u64,
    /// Events: jiffies when the current second began.
    pub window: u64,
    /// Events sent in this second.
    pub events: u32,
    /// Events held back so far.
    pub suppressed: u32,
}

/// Index into `COUNTERS`.
#[inline(always)]
#[must_use]
pub const fn counter_index(endpoint: EndpointId, direction: crate::net::Direction, reason: u8) -> u32 {
    (endpoint * 2 + direction as u32) * crate::verdict::REASON_SLOTS + (reason as u32 & 31)
}

/// Key of `DESTINATIONS`: what an endpoint used or was denied, for the report of `egret run`.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct DestinationKey {
    /// The peer; zero for a refused query.
    pub remote: Addr,
    /// The endpoint.
    pub endpoint: EndpointId,
    /// Destination port (ICMP: type << 8 | code).
    pub port: u16,
    /// IP protocol; `DNS_QUERY` for a refused query.
    pub proto: u8,
    /// Drop reason, or 0 for what was let through.
    pub reason: u8,
    /// Process that made the socket (thread group id in the initial namespace); 0 = unknown.
    pub pid: u32,
    /// [`crate::net::Direction`].
    pub direction: u32,
    /// Refused query: hash of the name, which the DNS event repeats; else 0.
    pub name: u64,
}

/// Value of `DESTINATIONS`.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Destination {
    /// Times.
    pub count: u64,
    /// Boot time of the first, ns.
    pub first: u64,
    /// Boot time of the last, ns.
    pub last: u64,
    /// Class that decided, if any.
    pub class: ClassId,
    /// Rule that decided, if any.
    pub cookie: u32,
    /// NameExpired: seconds since the answer's lifetime ended.
    pub age: u32,
    /// Of `count`, TCP packets dropped while an answer was on its way through the agent: TCP tries again.
    pub held: u32,
    /// Name of the process.
    pub comm: [u8; 16],
}

/// Value of `SOCKETS` (socket storage): who made the socket.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct SocketStamp {
    /// The endpoint of the creator.
    pub endpoint: EndpointId,
    /// Thread group id of the creator in the initial namespace.
    pub pid: u32,
    /// Name of the creator.
    pub comm: [u8; 16],
    /// `STAMP_*` bits.
    pub flags: u32,
}

/// The socket has taken part in a flow that a peer began: its datagrams may be replies.
pub const STAMP_SERVES: u32 = 1;

/// What the loader writes into the programs' read-only data.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Config {
    /// Kernel ticks per second.
    pub hz: u32,
    /// Level of the cgroup at which the programs are attached (0 = root).
    pub cgroup_level: u32,
    /// `CONFIG_*` bits.
    pub flags: u32,
    /// Drop events per second, reason, endpoint and CPU.
    pub events_per_second: u32,
}

/// Some pattern cannot be put into the name tables: the agent classifies names that the kernel does not find.
pub const CONFIG_SLOW_PATTERNS: u32 = 1;
/// Flow events are wanted.
pub const CONFIG_EVENTS: u32 = 1 << 1;
/// There may be Services. Where there never are (`egret run`) the verifier need not follow what they cost.
pub const CONFIG_SERVICES: u32 = 1 << 2;

const _: () = {
    assert!(size_of::<Endpoint>() == 44 && size_of::<CidrKey>() == 20 && size_of::<SuffixClasses>() == 12);
    assert!(size_of::<GrantKey>() == 24 && size_of::<Grants>() == 64 && size_of::<RuleKey>() == 12);
    assert!(size_of::<PortRule>() == 20 && size_of::<RuleChunk>() == 224);
    assert!(size_of::<FlowKey>() == 48 && size_of::<FlowEntry>() == 64 && size_of::<ResolverKey>() == 24);
    assert!(
        size_of::<FragmentKey>() == 40 && size_of::<QueryKey>() == 64 && size_of::<EndpointState>() == 32
    );
    assert!(
        size_of::<Counter>() == 32 && size_of::<DestinationKey>() == 40 && size_of::<Destination>() == 56
    );
    assert!(size_of::<ServiceKey>() == 24 && size_of::<Backends>() == 200 && size_of::<Startup>() == 8);
    assert!(size_of::<SocketStamp>() == 28 && size_of::<Config>() == 16);
};

#[cfg(feature = "user")]
mod pod {
    //! `aya::Pod` for everything that goes through a map.
    use super::*;

    macro_rules! pod {
        ($($t:ty),+ $(,)?) => { $(
            // SAFETY: `repr(C)`, integers only, no implicit padding (sizes asserted above), any bytes are valid.
            unsafe impl aya::Pod for $t {}
        )+ };
    }

    pod!(
        Endpoint,
        CidrKey,
        SuffixClasses,
        GrantKey,
        Grants,
        RuleKey,
        PortRule,
        RuleChunk,
        FlowKey,
        FlowEntry,
        FlowValue,
        ResolverKey,
        ServiceKey,
        Backends,
        Startup,
        FragmentKey,
        FragmentPorts,
        QueryKey,
        EndpointState,
        Counter,
        DestinationKey,
        Destination,
        SocketStamp,
        Config,
        Addr,
    );
}
