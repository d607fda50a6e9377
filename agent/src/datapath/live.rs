//! The kernel's maps behind the interface that `common::decide` reads: the verdict that a packet would get now. What is
//! read is compared with what it shall be.

use std::cell::RefCell;
use std::fmt::Debug;

use aya::maps::lpm_trie::Key;
use aya::maps::{Array, HashMap, LpmTrie, MapData};
use egret_common::decide::Tables;
use egret_common::grant::GrantTime;
use egret_common::ids::{ClassId, EndpointId, SetId};
use egret_common::maps::{
    Backends, CidrKey, Endpoint, GrantKey, Grants, ResolverKey, RuleChunk, RuleKey, ServiceKey,
};
use egret_common::net::Addr;
use egret_core::desired::{Desired, View};
use typed_arena::Arena;

use super::Datapath;

/// Differences that are told.
const DIFFERENCES: usize = 16;
/// Characters of a value that are shown.
const SHOWN: usize = 160;
/// For so many seconds after an address found no room that is the reason (`common::decide`).
const OVERFLOWED: u64 = 60;

/// The maps at this moment. Each entry is read when it is asked for.
pub struct Live<'a> {
    datapath: &'a Datapath,
    desired: View<'a>,
    rules: Arena<RuleChunk>,
    grants: Arena<Grants>,
    services: Arena<Backends>,
    differences: RefCell<Vec<String>>,
}

impl Debug for Live<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Live").field("differences", &self.differences).finish_non_exhaustive()
    }
}

impl<'a> Live<'a> {
    /// Reads the maps of `datapath`, which shall hold `desired`, at the boot time `now`.
    #[must_use]
    pub fn new(datapath: &'a Datapath, desired: &'a Desired, now: GrantTime) -> Self {
        static NONE: std::collections::BTreeMap<GrantKey, Grants> = std::collections::BTreeMap::new();
        Self {
            datapath,
            desired: View { desired, grants: &NONE, now },
            rules: Arena::new(),
            grants: Arena::new(),
            services: Arena::new(),
            differences: RefCell::default(),
        }
    }

    /// The endpoint's entry; one with number 0 if there is none.
    #[must_use]
    pub fn endpoint(&self, id: EndpointId) -> Endpoint {
        let read = || {
            let map = Array::<&MapData, Endpoint>::try_from(self.datapath.ebpf.map("ENDPOINTS")?).ok()?;
            map.get(&id, 0).ok()
        };
        let live = read().unwrap_or_default();
        let wanted = self.desired.desired.endpoints.get(&id).copied().unwrap_or_default();
        self.compare("ENDPOINTS", &id, &live, &wanted);
        live
    }

    /// Where the maps, as far as they were read, are not as they shall be.
    #[must_use]
    pub fn differences(&self) -> Vec<String> {
        self.differences.borrow().clone()
    }

    fn compare<K: Debug, V: PartialEq + Debug>(&self, map: &str, key: &K, live: &V, wanted: &V) {
        let mut differences = self.differences.borrow_mut();
        if live != wanted && differences.len() < DIFFERENCES {
            let short = |value: &V| format!("{value:?}").chars().take(SHOWN).collect::<String>();
            let text = format!("{map} {key:?}: is {}, shall be {}", short(live), short(wanted));
            if !differences.contains(&text) {
                differences.push(text);
            }
        }
    }

    fn hash<K: aya::Pod, V: aya::Pod>(&self, map: &'static str, key: &K) -> Option<V> {
        let map = HashMap::<&MapData, K, V>::try_from(self.datapath.ebpf.map(map)?).ok()?;
        map.get(key, 0).ok()
    }
}

impl Tables for Live<'_> {
    fn rules(&self, key: &RuleKey) -> Option<&RuleChunk> {
        let live = self.hash("RULES", key);
        self.compare("RULES", key, &live.as_ref(), &self.desired.rules(key));
        live.map(|chunk| &*self.rules.alloc(chunk))
    }

    fn cidr_class(&self, set: SetId, addr: &Addr) -> Option<ClassId> {
        let read = || {
            let map = self.datapath.ebpf.map("CIDR_CLASSES")?;
            let map = LpmTrie::<&MapData, CidrKey, ClassId>::try_from(map).ok()?;
            map.get(&Key::new(160, CidrKey { set, addr: addr.words() }), 0).ok()
        };
        let live = read();
        self.compare("CIDR_CLASSES", &(set, addr), &live, &self.desired.cidr_class(set, addr));
        live
    }

    fn identity(&self, addr: &Addr) -> Option<u32> {
        let live = self.hash("IDENTITIES", addr);
        self.compare("IDENTITIES", addr, &live, &self.desired.identity(addr));
        live
    }

    fn grants(&self, endpoint: EndpointId, addr: &Addr) -> Option<&Grants> {
        let live = self.hash("GRANTS", &GrantKey { addr: *addr, endpoint, pad: 0 });
        live.map(|grants| &*self.grants.alloc(grants))
    }

    fn grant_now(&self) -> GrantTime {
        self.desired.now
    }

    fn trusted_resolver(&self, addr: &Addr, port: u16) -> bool {
        let key = ResolverKey { addr: *addr, port: port.into() };
        let live = self.hash::<_, u32>("TRUSTED_RESOLVERS", &key).is_some();
        self.compare("TRUSTED_RESOLVERS", &key, &live, &self.desired.trusted_resolver(addr, port));
        live
    }

    fn service(&self, key: &ServiceKey) -> Option<&Backends> {
        let live = self.hash("SERVICES", key);
        self.compare("SERVICES", key, &live.as_ref(), &self.desired.service(key));
        live.map(|backends| &*self.services.alloc(backends))
    }

    fn owns(&self, endpoint: EndpointId, addr: &Addr) -> bool {
        let live = self.hash::<_, EndpointId>("ADDRESSES", addr) == Some(endpoint);
        self.compare("ADDRESSES", addr, &live, &self.desired.owns(endpoint, addr));
        live
    }

    fn grants_overflowed(&self, endpoint: EndpointId) -> bool {
        let at = self.datapath.endpoint_state(endpoint).map_full_at;
        let recent = |jiffies: u64| jiffies.wrapping_sub(at) < OVERFLOWED * u64::from(self.datapath.hz());
        at != 0 && self.datapath.clock().is_ok_and(|clock| recent(clock.jiffies))
    }
}
