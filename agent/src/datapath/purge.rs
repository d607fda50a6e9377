//! Forgetting an endpoint: everything that the kernel wrote about it, so that its number may be given away again.

use aya::maps::{Array, HashMap, MapData, PerCpuArray, PerCpuValues};
use egret_common::{
    ids::EndpointId,
    maps::{
        Counter, Destination, DestinationKey, EndpointState, FlowKey, FlowValue, GrantKey, Grants, QueryKey,
        counter_index,
    },
    net::Direction,
    verdict::REASON_SLOTS,
};

use super::Datapath;

impl Datapath {
    /// Removes grants, flows, questions and counts of endpoints that are gone. Their interfaces and cgroups must be
    /// released before, or packets write anew.
    pub fn purge(&mut self, gone: &dyn Fn(EndpointId) -> bool, ids: &[EndpointId]) {
        let sizes = self.sizes;
        self.remove::<GrantKey, Grants>("GRANTS", sizes.grants, |key| gone(key.endpoint));
        self.remove::<FlowKey, FlowValue>("FLOWS", sizes.flows, |key| gone(key.endpoint));
        self.remove::<QueryKey, u64>("DNS_QUERIES", sizes.queries, |key| gone(key.flow.endpoint));
        self.remove::<DestinationKey, Destination>("DESTINATIONS", sizes.destinations, |key| {
            gone(key.endpoint)
        });
        ids.iter().for_each(|id| self.reset(*id));
    }

    fn remove<K: aya::Pod + Eq + std::hash::Hash, V: aya::Pod>(
        &mut self,
        name: &'static str,
        capacity: u32,
        dead: impl Fn(&K) -> bool,
    ) {
        let keys: Vec<K> =
            self.entries::<K, V>(name, capacity).into_iter().map(|(key, _)| key).filter(dead).collect();
        let map = self.ebpf.map_mut(name).and_then(|map| HashMap::<&mut MapData, K, V>::try_from(map).ok());
        if let Some(mut map) = map {
            // What went by itself meanwhile is gone as well.
            keys.iter().for_each(|key| drop(map.remove(key)));
        }
    }

    fn reset(&mut self, id: EndpointId) {
        let state = self.ebpf.map_mut("ENDPOINT_STATE");
        if let Some(Ok(mut map)) = state.map(Array::<&mut MapData, EndpointState>::try_from) {
            let _ = map.set(id, EndpointState::default(), 0);
        }
        let Ok(cpus) = aya::util::nr_cpus() else { return };
        let counters = self.ebpf.map_mut("COUNTERS");
        let Some(Ok(mut map)) = counters.map(PerCpuArray::<&mut MapData, Counter>::try_from) else { return };
        for direction in [Direction::Egress, Direction::Ingress] {
            for reason in 0..REASON_SLOTS as u8 {
                let Ok(zeros) = PerCpuValues::try_from(vec![Counter::default(); cpus]) else { return };
                let _ = map.set(counter_index(id, direction, reason), zeros, 0);
            }
        }
    }
}
