//! Forgetting an endpoint: everything that the kernel wrote about it, so that its number may be given away again. What it
//! counted goes to [`super::Sizes::gone`]: sums over a node's endpoints never go back, also not over a restart.

use aya::maps::{Array, HashMap, MapData, PerCpuArray, PerCpuValues};
use egret_common::{
    ids::EndpointId,
    maps::{
        Counter, Destination, DestinationKey, EndpointState, FlowEntry, FlowKey, GrantKey, Grants, QueryKey,
        counter_index,
    },
    net::Direction,
    verdict::REASON_SLOTS,
};

use super::Datapath;

impl Datapath {
    /// Removes grants, flows and questions of endpoints that are gone, and moves their counts away. Their interfaces and cgroups must be
    /// released before, or packets write anew.
    pub fn purge(&mut self, gone: &dyn Fn(EndpointId) -> bool, ids: &[EndpointId]) {
        let sizes = self.sizes;
        self.remove::<GrantKey, Grants>("GRANTS", sizes.grants, |key| gone(key.endpoint));
        self.remove::<FlowKey, FlowEntry>("FLOWS", sizes.flows, |key| gone(key.endpoint));
        self.remove::<QueryKey, u64>("DNS_QUERIES", sizes.queries, |key| gone(key.flow.endpoint));
        self.remove::<DestinationKey, Destination>("DESTINATIONS", sizes.destinations, |key| {
            gone(key.endpoint)
        });
        let ledger = self.ledger.clone();
        ledger.moving(|| ids.iter().for_each(|id| self.retire(*id)));
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

    /// Moves the endpoint's counts to those of the endpoints that are gone. Somebody who is ended in between has counted one
    /// slot twice; nothing is ever lost.
    fn retire(&mut self, id: EndpointId) {
        let gone = self.sizes.gone().filter(|gone| *gone != id);
        self.retire_state(id, gone);
        let Ok(cpus) = aya::util::nr_cpus() else { return };
        let counters = self.ebpf.map_mut("COUNTERS");
        let Some(Ok(mut map)) = counters.map(PerCpuArray::<&mut MapData, Counter>::try_from) else { return };
        for direction in [Direction::Egress, Direction::Ingress] {
            for reason in 0..REASON_SLOTS as u8 {
                let from = counter_index(id, direction, reason);
                let Ok(counts) = map.get(&from, 0) else { continue };
                if let Some(gone) = gone.filter(|_| counts.iter().any(|counter| counter.packets != 0)) {
                    let to = counter_index(gone, direction, reason);
                    let Ok(sum) = map.get(&to, 0).map(|sums| added(&sums, &counts)) else { continue };
                    let _ = PerCpuValues::try_from(sum).map(|sum| map.set(to, sum, 0));
                }
                let Ok(zeros) = PerCpuValues::try_from(vec![Counter::default(); cpus]) else { return };
                let _ = map.set(from, zeros, 0);
            }
        }
    }

    fn retire_state(&mut self, id: EndpointId, gone: Option<EndpointId>) {
        let state = self.ebpf.map_mut("ENDPOINT_STATE");
        let Some(Ok(mut map)) = state.map(Array::<&mut MapData, EndpointState>::try_from) else { return };
        if let Some(gone) = gone {
            let (Ok(last), Ok(mut sum)) = (map.get(&id, 0), map.get(&gone, 0)) else { return };
            sum.map_full += last.map_full;
            sum.forbidden += last.forbidden;
            let _ = map.set(gone, sum, 0);
        }
        let _ = map.set(id, EndpointState::default(), 0);
    }
}

/// Per CPU: counts, without the windows of the rate limit.
fn added(sums: &[Counter], counts: &[Counter]) -> Vec<Counter> {
    let add = |(sum, counter): (&Counter, &Counter)| Counter {
        packets: sum.packets + counter.packets,
        bytes: sum.bytes + counter.bytes,
        suppressed: sum.suppressed.wrapping_add(counter.suppressed),
        ..Counter::default()
    };
    sums.iter().zip(counts).map(add).collect()
}
