//! What only tests do with the maps: emptying them, and aging flows and grants.

use aya::maps::{HashMap, Map, MapData, MapError};
use egret_common::maps::{FlowEntry, FlowKey, FlowValue, GrantKey, Grants};

use super::Datapath;

impl Datapath {
    /// Removes every entry of a map that programs write. Panics on failure.
    #[doc(hidden)]
    pub fn clear(&mut self, name: &'static str) {
        let map = self.ebpf.map_mut(name).expect("a map");
        match name {
            "GRANTS" => empty::<24, 64>(map),
            "FLOWS" => empty::<48, 64>(map),
            "FRAGMENTS" => empty::<40, 4>(map),
            "DNS_QUERIES" => empty::<64, 8>(map),
            "DESTINATIONS" => empty::<40, 56>(map),
            other => panic!("{other} is not a map that programs write"),
        }
    }

    /// Writes what an address is known under, as another time would have left it. Panics on failure.
    #[doc(hidden)]
    pub fn put_grants(&mut self, key: &GrantKey, value: &Grants) {
        let map = self.ebpf.map_mut("GRANTS").expect("a map");
        let mut grants = HashMap::<_, GrantKey, Grants>::try_from(map).expect("of this kind");
        grants.insert(key, value, 0).expect("taken");
    }

    /// Writes a flow of which nothing was counted. Panics on failure.
    #[doc(hidden)]
    pub fn put_flow(&mut self, key: &FlowKey, value: &FlowValue) {
        let entry = FlowEntry { value: *value, ..FlowEntry::default() };
        let map = self.ebpf.map_mut("FLOWS").expect("a map");
        let mut flows = HashMap::<_, FlowKey, FlowEntry>::try_from(map).expect("of this kind");
        flows.insert(key, entry, 0).expect("taken");
    }
}

/// Keys and values as bytes.
fn empty<const K: usize, const V: usize>(map: &mut Map) {
    let mut map = HashMap::<&mut MapData, [u8; K], [u8; V]>::try_from(map).expect("of this kind");
    loop {
        let keys: Vec<[u8; K]> = map.keys().take(100_000).filter_map(Result::ok).collect();
        if keys.is_empty() {
            return;
        }
        for key in keys {
            match map.remove(&key) {
                Ok(()) | Err(MapError::KeyNotFound) => {}
                Err(MapError::SyscallError(error)) if error.io_error.raw_os_error() == Some(libc::ENOENT) => {
                }
                Err(error) => panic!("{error}"),
            }
        }
    }
}
