//! Reading what the kernel wrote. A map that changes meanwhile may be seen half old, half new; every entry is whole.

use std::{collections::HashMap as Table, hash::Hash, os::fd::AsFd};

use aya::maps::{Array, HashMap, LpmTrie, Map, MapData, PerCpuArray};
use egret_common::{
    maps::{
        Counter, Destination, DestinationKey, EndpointState, FlowEntry, FlowKey, FlowValue, GrantKey, Grants,
        counter_index,
    },
    net::Direction,
    verdict::REASON_SLOTS,
};

use super::{Datapath, Sizes, bpf_sys};

/// Counters of an endpoint for one direction and reason, summed over the CPUs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CounterRow {
    /// Seen from the endpoint.
    pub direction: Direction,
    /// Number of a drop reason; 0 = let through.
    pub reason: u8,
    /// Packets, connects or queries.
    pub packets: u64,
    /// Bytes from the network header on.
    pub bytes: u64,
    /// Events held back by the rate limit.
    pub events_suppressed: u64,
}

/// What did not fit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Lost {
    /// Records of `FLOW_EVENTS`.
    pub flow_events: u64,
    /// Records of `DNS_EVENTS`.
    pub dns_events: u64,
    /// Queries that no scratch slot was free for.
    pub scratch: u64,
}

/// How full a map is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MapFill {
    /// The map.
    pub name: &'static str,
    /// Entries in use.
    pub entries: usize,
    /// Entries that fit.
    pub capacity: usize,
}

impl Datapath {
    /// Every entry of `GRANTS`.
    pub fn grants(&self) -> Vec<(GrantKey, Grants)> {
        self.entries("GRANTS", self.sizes.grants)
    }

    /// Every entry of `FLOWS`, dead ones included.
    pub fn flows(&self) -> Vec<(FlowKey, FlowValue)> {
        self.flow_entries().into_iter().map(|(key, entry)| (key, entry.value)).collect()
    }

    /// The same, with what has passed.
    pub fn flow_entries(&self) -> Vec<(FlowKey, FlowEntry)> {
        self.entries("FLOWS", self.sizes.flows)
    }

    /// Shows every entry of `FLOWS`, read in pieces; none if it cannot be read.
    pub fn each_flow(&self, mut each: impl FnMut(&FlowKey, &FlowEntry)) {
        let each = |keys: &[FlowKey], entries: &[FlowEntry]| {
            keys.iter().zip(entries).for_each(|(key, entry)| each(key, entry));
        };
        let _ = self.ebpf.map("FLOWS").and_then(|map| walk(map, each));
    }

    /// Every entry of `DESTINATIONS`.
    pub fn destinations(&self) -> Vec<(DestinationKey, Destination)> {
        self.entries("DESTINATIONS", self.sizes.destinations)
    }

    /// Counters of an endpoint that are not zero; endpoint 0 counts packets of unknown cgroups.
    pub fn counters(&self, endpoint: u32) -> Vec<CounterRow> {
        let directions = [Direction::Egress, Direction::Ingress];
        let all = directions.into_iter().flat_map(|d| (0..REASON_SLOTS as u8).map(move |reason| (d, reason)));
        all.map(|(direction, reason)| self.counter(endpoint, direction, reason))
            .filter(|row| row.packets != 0 || row.events_suppressed != 0)
            .collect()
    }

    /// Events about this that the rate limit held back.
    pub fn suppressed(&self, endpoint: u32, direction: Direction, reason: u8) -> u64 {
        self.counter(endpoint, direction, reason).events_suppressed
    }

    fn counter(&self, endpoint: u32, direction: Direction, reason: u8) -> CounterRow {
        let mut row = CounterRow { direction, reason, packets: 0, bytes: 0, events_suppressed: 0 };
        for counter in self.per_cpu::<Counter>("COUNTERS", counter_index(endpoint, direction, reason)) {
            row.packets += counter.packets;
            row.bytes += counter.bytes;
            row.events_suppressed += u64::from(counter.suppressed);
        }
        row
    }

    /// What the kernel noticed about an endpoint; zeros for one that does not fit into the map.
    pub fn endpoint_state(&self, endpoint: u32) -> EndpointState {
        let read = || {
            let map = Array::<_, EndpointState>::try_from(self.ebpf.map("ENDPOINT_STATE")?).ok()?;
            map.get(&endpoint, 0).ok()
        };
        read().unwrap_or_default()
    }

    /// What was lost since the programs were loaded.
    pub fn lost(&self) -> Lost {
        let sum = |index| self.per_cpu::<u64>("LOST", index).into_iter().sum();
        Lost { flow_events: sum(0), dns_events: sum(1), scratch: sum(2) }
    }

    /// How full the maps are whose size is a limit. Walks all of them: for a status page, not for a loop.
    pub fn fill(&self) -> Vec<MapFill> {
        fill(&self.sizes, |name| self.ebpf.map(name))
    }

    fn per_cpu<V: aya::Pod>(&self, map: &'static str, index: u32) -> Vec<V> {
        let read = || {
            let map = PerCpuArray::<&MapData, V>::try_from(self.ebpf.map(map)?).ok()?;
            map.get(&index, 0).ok()
        };
        read().map(|values| values.iter().copied().collect()).unwrap_or_default()
    }

    /// The entries of a hash. While entries are removed the kernel's walk may begin anew: hence the bound, and the
    /// table that takes each key once.
    pub(super) fn entries<K: aya::Pod + Eq + Hash, V: aya::Pod>(
        &self,
        name: &'static str,
        capacity: u32,
    ) -> Vec<(K, V)> {
        let Some(map) = self.ebpf.map(name).and_then(|map| HashMap::<&MapData, K, V>::try_from(map).ok())
        else {
            return Vec::new();
        };
        let walk = map.iter().take(2 * capacity as usize).filter_map(Result::ok);
        walk.collect::<Table<K, V>>().into_iter().collect()
    }
}

/// How full these maps are.
pub(super) fn fill<'a>(sizes: &Sizes, map: impl Fn(&str) -> Option<&'a Map>) -> Vec<MapFill> {
    let hashes = sizes.entries().into_iter().filter(|(name, _)| HASHES.contains(name));
    hashes
        .filter_map(|(name, capacity)| {
            // A walk that began anew has seen some twice.
            let entries = count(map(name)?, name, capacity)?.min(capacity as usize);
            Some(MapFill { name, entries, capacity: capacity as usize })
        })
        .collect()
}

fn count(map: &Map, name: &'static str, capacity: u32) -> Option<usize> {
    use egret_common::{
        maps::{CidrKey, FragmentKey, FragmentPorts, NAME_CAP, QueryKey, RuleChunk, RuleKey, SuffixClasses},
        net::Addr,
    };
    // While entries of a trie are removed the walk may begin anew.
    let limit = 2 * capacity as usize;
    macro_rules! keys {
        (HashMap, $key:ty, $value:ty) => {{
            let mut count = 0;
            walk::<$key, $value>(map, |keys, _| count += keys.len())?;
            count
        }};
        (LpmTrie, $key:ty, $value:ty) => {
            LpmTrie::<&MapData, $key, $value>::try_from(map).ok()?.keys().take(limit).count()
        };
    }
    Some(match name {
        "ENDPOINT_BY_CGROUP" => keys!(HashMap, u64, u32),
        "IDENTITIES" => keys!(HashMap, Addr, u32),
        "CIDR_CLASSES" => keys!(LpmTrie, CidrKey, u32),
        "NAME_EXACT" => keys!(HashMap, [u8; NAME_CAP], u32),
        "NAME_SUFFIX" => keys!(LpmTrie, [u8; 256], SuffixClasses),
        "GRANTS" => keys!(HashMap, GrantKey, Grants),
        "RULES" => keys!(HashMap, RuleKey, RuleChunk),
        "FLOWS" => keys!(HashMap, FlowKey, FlowEntry),
        "FRAGMENTS" => keys!(HashMap, FragmentKey, FragmentPorts),
        "DNS_QUERIES" => keys!(HashMap, QueryKey, u64),
        "DESTINATIONS" => keys!(HashMap, DestinationKey, Destination),
        _ => return None,
    })
}

/// The entries of a hash, in pieces. `None`: it cannot be read.
pub(super) fn walk<K: aya::Pod, V: aya::Pod>(map: &Map, each: impl FnMut(&[K], &[V])) -> Option<()> {
    let (Map::HashMap(data) | Map::LruHashMap(data)) = map else { return None };
    bpf_sys::hash_batch(data.fd().as_fd(), each).ok()
}

/// Maps whose fill says something.
pub(super) const HASHES: [&str; 11] = [
    "ENDPOINT_BY_CGROUP",
    "IDENTITIES",
    "CIDR_CLASSES",
    "NAME_EXACT",
    "NAME_SUFFIX",
    "GRANTS",
    "RULES",
    "FLOWS",
    "FRAGMENTS",
    "DNS_QUERIES",
    "DESTINATIONS",
];
