//! The maps behind the traits of `egret_common`.

use aya_ebpf::{
    btf_maps::lpm_trie::Key,
    helpers::{bpf_jiffies64, bpf_ktime_get_boot_ns, bpf_map_lookup_elem},
};
use egret_common::{
    decide::Tables,
    dns::{Names, Scratch, WireName},
    grant::{self, GrantTime},
    judge::{FlowSlot, State},
    maps::{
        Backends, CONFIG_SERVICES, CidrKey, FlowEntry, FlowKey, FlowValue, FragmentKey, FragmentPorts,
        GrantKey, Grants, ResolverKey, RuleChunk, RuleKey, ServiceKey, SuffixClasses,
    },
    net::Addr,
};

use crate::{emit, maps, scan};

/// All maps. Zero-sized: passing it costs nothing.
pub struct Maps;

// Look-ups that need a key on the stack are frames of their own.
impl Tables for Maps {
    #[inline(always)]
    fn rules(&self, key: &RuleKey) -> Option<&RuleChunk> {
        // SAFETY: rule sets are immutable; an entry is removed only after no endpoint names its set.
        unsafe { maps::RULES.get(key) }
    }

    #[inline(never)]
    fn cidr_class(&self, set: u32, addr: &Addr) -> Option<u32> {
        let key = Key { prefix_len: 160, data: CidrKey { set, addr: addr.words() } };
        maps::CIDR_CLASSES.get(&key).copied()
    }

    #[inline(never)]
    fn identity(&self, addr: &Addr) -> Option<u32> {
        // SAFETY: read at once; a recycled slot gives another address's identity for the time of an update.
        unsafe { maps::IDENTITIES.get(addr) }.copied()
    }

    #[inline(never)]
    fn grants(&self, endpoint: u32, addr: &Addr) -> Option<&Grants> {
        // SAFETY: slots are single words; an entry is removed only when all of them have long expired.
        unsafe { maps::GRANTS.get(GrantKey { addr: *addr, endpoint, pad: 0 }) }
    }

    #[inline(always)]
    fn grant_now(&self) -> GrantTime {
        grant::ticks(boot_ns())
    }

    #[inline(never)]
    fn trusted_resolver(&self, addr: &Addr, port: u16) -> bool {
        maps::TRUSTED_RESOLVERS.get_ptr(ResolverKey { addr: *addr, port: port as u64 }).is_some()
    }

    #[inline(always)]
    fn has_services(&self) -> bool {
        maps::CONFIG.load().flags & CONFIG_SERVICES != 0
    }

    #[inline(never)]
    fn owns(&self, endpoint: u32, addr: &Addr) -> bool {
        // SAFETY: copied at once.
        unsafe { maps::ADDRESSES.get(addr) }.copied() == Some(endpoint)
    }

    #[inline(always)]
    fn service(&self, key: &ServiceKey) -> Option<&Backends> {
        // SAFETY: an entry in use by a program is replaced, never changed in place, by the agent's update.
        unsafe { maps::SERVICES.get(key) }
    }

    #[inline(always)]
    fn opaque(value: u32) -> u32 {
        scan::opaque(value)
    }

    #[inline(always)]
    fn repeat<F: FnMut(u32) -> bool>(max: u32, turn: F) {
        scan::repeat(max, turn);
    }

    #[inline(always)]
    fn grants_overflowed(&self, endpoint: u32) -> bool {
        match maps::ENDPOINT_STATE.get(endpoint) {
            Some(state) => {
                state.map_full_at != 0 && self.jiffies().wrapping_sub(state.map_full_at) < 60 * self.hz()
            }
            None => false,
        }
    }
}

/// An entry of `FLOWS`.
pub struct FlowRef(*mut FlowEntry);

impl FlowSlot for FlowRef {
    #[inline(always)]
    fn read(&self) -> FlowValue {
        // SAFETY: a map value; LRU entries are not reused within this program's RCU section in a way that matters:
        // a recycled entry gives the state of another flow to one packet at worst.
        unsafe { (*self.0).value }
    }

    #[inline(always)]
    fn write(&self, value: &FlowValue) {
        // SAFETY: as above.
        unsafe { (*self.0).value = *value }
    }

    #[inline(always)]
    fn count(&self, forward: bool, bytes: u32) {
        // SAFETY: fields of a map value.
        unsafe {
            let traffic = &raw mut (*self.0).traffic;
            let (total, packets) = match forward {
                true => (&raw mut (*traffic).sent, &raw mut (*traffic).packets_sent),
                false => (&raw mut (*traffic).received, &raw mut (*traffic).packets_received),
            };
            emit::add(total, bytes as u64);
            emit::add_word(packets, 1);
        }
    }
}

impl State for Maps {
    type Flow = FlowRef;

    #[inline(always)]
    fn flow(&self, key: &FlowKey) -> Option<FlowRef> {
        maps::FLOWS.get_ptr_mut(key).map(FlowRef)
    }

    #[inline(always)]
    fn insert_flow(&self, key: &FlowKey, entry: &FlowEntry) -> bool {
        maps::FLOWS.insert(key, entry, 0).is_ok()
    }

    #[inline(always)]
    fn fragment(&self, key: &FragmentKey) -> Option<FragmentPorts> {
        // SAFETY: copied at once.
        unsafe { maps::FRAGMENTS.get(key) }.copied()
    }

    #[inline(always)]
    fn insert_fragment(&self, key: &FragmentKey, ports: &FragmentPorts) {
        // A full LRU evicts; without an entry later fragments are dropped, which is the safe side.
        let _ = maps::FRAGMENTS.insert(key, ports, 0);
    }

    #[inline(always)]
    fn jiffies(&self) -> u64 {
        // SAFETY: a helper without arguments.
        unsafe { bpf_jiffies64() }
    }

    #[inline(always)]
    fn hz(&self) -> u64 {
        maps::CONFIG.load().hz as u64
    }
}

impl Names for Maps {
    #[inline(always)]
    fn exact(&self, name: &WireName) -> Option<u32> {
        // SAFETY: copied at once.
        unsafe { maps::NAME_EXACT.get(name) }.copied()
    }

    #[inline(always)]
    fn suffix(&self, scratch: &mut Scratch, start: u32, bits: u32) -> Option<SuffixClasses> {
        let start = (start & 0xff) as usize;
        let bytes = bits.to_ne_bytes();
        scratch.rev[start] = bytes[0];
        scratch.rev[start + 1] = bytes[1];
        scratch.rev[start + 2] = bytes[2];
        scratch.rev[start + 3] = bytes[3];
        // SAFETY: the key is 260 bytes from `start`, at most 255; the buffer has 524. The value is copied at once.
        unsafe {
            let key = scratch.rev.as_mut_ptr().add(start);
            let value = bpf_map_lookup_elem((&raw const maps::NAME_SUFFIX).cast_mut().cast(), key.cast());
            value.cast::<SuffixClasses>().as_ref().copied()
        }
    }
}

/// Boot time, ns.
#[inline(always)]
pub fn boot_ns() -> u64 {
    // SAFETY: a helper without arguments.
    unsafe { bpf_ktime_get_boot_ns() }
}
