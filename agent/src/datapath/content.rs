//! What the agent's maps hold, read back: what a process that takes over begins with.

use std::collections::BTreeMap;
use std::sync::Arc;

use aya::maps::{Array, LpmTrie, MapData};
use egret_common::{
    ids::SetId,
    maps::{
        Backends, CidrKey, Endpoint, NAME_CAP, ResolverKey, RuleChunk, RuleKey, ServiceKey, SuffixClasses,
    },
    net::Addr,
};
use egret_core::{
    desired::{CidrPrefix, Desired, Suffix},
    names::Name,
};

use super::Datapath;

/// Entries of `TRUSTED_RESOLVERS`.
const RESOLVERS: u32 = 256;

impl Datapath {
    /// The content of all maps that are written from a [`Desired`]. What no [`Desired`] could say is left out.
    pub fn content(&self) -> Desired {
        let sizes = &self.sizes;
        let names = self.entries::<[u8; NAME_CAP], u32>("NAME_EXACT", sizes.names);
        let resolvers = self.entries::<ResolverKey, u32>("TRUSTED_RESOLVERS", RESOLVERS);
        Desired {
            endpoints: self.endpoints(),
            identities: self.entries::<Addr, u32>("IDENTITIES", sizes.identities).into_iter().collect(),
            cidrs: self.cidrs(),
            name_exact: names.into_iter().filter_map(|(k, v)| Some((Name::from_wire(&k).ok()?, v))).collect(),
            name_suffix: self.suffixes(),
            rules: self.rules(),
            resolvers: resolvers.into_iter().map(|(key, _)| key).collect(),
            addresses: self.entries::<Addr, u32>("ADDRESSES", 2 * sizes.interfaces).into_iter().collect(),
            services: self.entries::<ServiceKey, Backends>("SERVICES", sizes.services).into_iter().collect(),
        }
    }

    /// The highest number of a rule set that something in the maps speaks of.
    pub fn last_set(&self, content: &Desired) -> SetId {
        let endpoints = content.endpoints.values().flat_map(|e| [e.egress_set, e.ingress_set]);
        let rules = content.rules.keys().map(|key| key.set);
        let flows = self.flows().into_iter().map(|(_, flow)| flow.set);
        endpoints.chain(rules).chain(flows).max().unwrap_or(0)
    }

    fn endpoints(&self) -> BTreeMap<u32, Endpoint> {
        let Some(map) = self.ebpf.map("ENDPOINTS") else { return BTreeMap::new() };
        let Ok(map) = Array::<&MapData, Endpoint>::try_from(map) else { return BTreeMap::new() };
        let all = map.iter().filter_map(Result::ok).filter(|e| e.id != 0);
        all.map(|e| (e.id, e)).collect()
    }

    fn rules(&self) -> BTreeMap<RuleKey, Arc<RuleChunk>> {
        let entries = self.entries("RULES", self.sizes.rules).into_iter();
        entries.map(|(key, chunk): (RuleKey, RuleChunk)| (key, Arc::new(chunk))).collect()
    }

    fn cidrs(&self) -> BTreeMap<CidrPrefix, u32> {
        let entries = self.prefixes::<CidrKey, u32>("CIDR_CLASSES", self.sizes.cidrs);
        entries.into_iter().map(|(bits, key, class)| (CidrPrefix { bits, key }, class)).collect()
    }

    fn suffixes(&self) -> BTreeMap<Suffix, SuffixClasses> {
        let entries = self.prefixes::<[u8; 256], SuffixClasses>("NAME_SUFFIX", self.sizes.names);
        let text = |bits: u32, key: &[u8; 256]| {
            let bytes = key.get(..bits as usize / 8)?;
            Some(Suffix(std::str::from_utf8(bytes).ok()?.to_owned()))
        };
        entries.into_iter().filter_map(|(bits, key, value)| Some((text(bits, &key)?, value))).collect()
    }

    fn prefixes<K: aya::Pod, V: aya::Pod>(&self, name: &'static str, capacity: u32) -> Vec<(u32, K, V)> {
        let map = self.ebpf.map(name).and_then(|map| LpmTrie::<&MapData, K, V>::try_from(map).ok());
        let Some(map) = map else { return Vec::new() };
        let walk = map.iter().take(2 * capacity as usize).filter_map(Result::ok);
        walk.map(|(key, value)| (key.prefix_len(), key.data(), value)).collect()
    }
}
