//! The maps (DESIGN 3.2) and the loader's configuration. Sizes here are those of a node; the loader shrinks them
//! for `egret run`. Who writes: `[agent]`, `[kernel]` or both. Maps that programs write are preallocated or LRU.

use aya_ebpf::{
    Global,
    btf_maps::{Array, HashMap, LpmTrie, LruHashMap, PerCpuArray, RingBuf, SkStorage},
    macros::btf_map,
};
use egret_common::{dns, event, maps, net::Addr};

/// Reverse-name key: prefix length, then 256 bytes of reversed text.
pub type ReversedName = [u8; 256];

/// What the loader tells the programs.
#[unsafe(no_mangle)]
pub static CONFIG: Global<maps::Config> =
    Global::new(maps::Config { hz: 250, cgroup_level: 0, flags: 0, events_per_second: 100 });

/// cgroup id -> endpoint id `[agent]`.
#[btf_map]
pub static ENDPOINT_BY_CGROUP: HashMap<u64, u32, 4096> = HashMap::new();
/// What becomes of pods that nobody knows yet `[agent]`.
#[btf_map]
pub static STARTUP: Array<maps::Startup, 1> = Array::new();
/// Index of the interface on the host's side of a pod's veth -> endpoint id `[agent]`.
#[btf_map]
pub static ENDPOINT_BY_IFINDEX: HashMap<u32, u32, 4096> = HashMap::new();
/// Address of a pod of this node -> endpoint id `[agent]`.
#[btf_map]
pub static ADDRESSES: HashMap<Addr, u32, 8192> = HashMap::new();
/// (virtual address, port, protocol) -> backends `[agent]`.
#[btf_map]
pub static SERVICES: HashMap<maps::ServiceKey, maps::Backends, 16384> = HashMap::new();
/// Endpoint id -> endpoint `[agent]`.
#[btf_map]
pub static ENDPOINTS: Array<maps::Endpoint, 4096> = Array::new();
/// Endpoint id -> what the kernel noticed `[kernel]`.
#[btf_map]
pub static ENDPOINT_STATE: Array<maps::EndpointState, 4096> = Array::new();
/// Address -> identity `[agent]`.
#[btf_map]
pub static IDENTITIES: HashMap<Addr, u32, 65536> = HashMap::new();
/// (set, prefix) -> class `[agent]`.
#[btf_map]
pub static CIDR_CLASSES: LpmTrie<maps::CidrKey, u32, 65536> = LpmTrie::new();
/// Name -> name class `[agent]`.
#[btf_map]
pub static NAME_EXACT: HashMap<dns::WireName, u32, 16384> = HashMap::new();
/// Reversed suffix -> name classes `[agent]`.
#[btf_map]
pub static NAME_SUFFIX: LpmTrie<ReversedName, maps::SuffixClasses, 16384> = LpmTrie::new();
/// (address, endpoint) -> name classes with their expiry `[kernel, agent through the grant program]`.
#[btf_map]
pub static GRANTS: HashMap<maps::GrantKey, maps::Grants, 65536> = HashMap::new();
/// (set, class, chunk) -> port intervals `[agent]`.
#[btf_map]
pub static RULES: HashMap<maps::RuleKey, maps::RuleChunk, 131072> = HashMap::new();
/// Flow -> state `[kernel]`.
#[btf_map]
pub static FLOWS: LruHashMap<maps::FlowKey, maps::FlowEntry, 131072> = LruHashMap::new();
/// First fragment -> ports `[kernel]`.
#[btf_map]
pub static FRAGMENTS: LruHashMap<maps::FragmentKey, maps::FragmentPorts, 4096> = LruHashMap::new();
/// Question that an endpoint asked -> boot time in ns `[kernel]`.
#[btf_map]
pub static DNS_QUERIES: LruHashMap<maps::QueryKey, u64, 16384> = LruHashMap::new();
/// Resolvers whose answers are learned `[agent]`.
#[btf_map]
pub static TRUSTED_RESOLVERS: HashMap<maps::ResolverKey, u32, 256> = HashMap::new();
/// (endpoint, direction, reason) -> packets and bytes `[kernel]`.
#[btf_map]
pub static COUNTERS: PerCpuArray<maps::Counter, 262144> = PerCpuArray::new();
/// What was used and denied, for the report of `egret run` `[kernel]`.
#[btf_map]
pub static DESTINATIONS: LruHashMap<maps::DestinationKey, maps::Destination, 16384> = LruHashMap::new();
/// Who made a socket `[kernel]`.
#[btf_map]
pub static SOCKETS: SkStorage<maps::SocketStamp> = SkStorage::new();
/// Verdicts `[kernel]`.
#[btf_map]
pub static FLOW_EVENTS: RingBuf<event::FlowEvent, 1048576> = RingBuf::new();
/// DNS queries and answers `[kernel]`.
#[btf_map]
pub static DNS_EVENTS: RingBuf<event::DnsEvent, 4194304> = RingBuf::new();
/// Lost records: 0 flow events, 1 DNS events, 2 scans without a free scratch slot `[kernel]`.
#[btf_map]
pub static LOST: PerCpuArray<u64, 4> = PerCpuArray::new();
/// Scan memory of cgroup egress, which is re-entered on its CPU: slots taken by compare-and-exchange.
#[btf_map]
pub static SCRATCH_EGRESS: PerCpuArray<dns::Scratch, 4> = PerCpuArray::new();
/// Locks of the slots of `SCRATCH_EGRESS`.
#[btf_map]
pub static SCRATCH_LOCKS: PerCpuArray<u64, 4> = PerCpuArray::new();
/// Scan memory of TC, in both directions: there it is not re-entered.
#[btf_map]
pub static SCRATCH_TC: PerCpuArray<dns::Scratch, 1> = PerCpuArray::new();
/// Scan memory of cgroup ingress and of test runs.
#[btf_map]
pub static SCRATCH_INGRESS: PerCpuArray<dns::Scratch, 2> = PerCpuArray::new();
