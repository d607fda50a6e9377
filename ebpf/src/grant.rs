//! Writing `GRANTS`: by the learner, and by the agent through a test run, so that one piece of code merges.

use egret_common::{
    grant::{self, GrantTime},
    ids::ClassId,
    maps::{EndpointState, GrantKey, Grants},
    net::Addr,
};

use crate::maps;

/// Opens `addr` for `endpoint` under `class` until `expires`; a longer lifetime that stands already is kept.
/// False when there was no room (counted).
#[inline(always)]
pub fn put(endpoint: u32, addr: Addr, class: ClassId, expires: GrantTime, now: GrantTime) -> bool {
    let key = GrantKey { addr, endpoint, pad: 0 };
    let mut attempt = 0;
    while attempt < 3 {
        attempt += 1;
        let Some(entry) = maps::GRANTS.get_ptr_mut(key) else {
            let mut fresh = Grants::default();
            fresh.slots[0] = grant::pack(class, expires);
            // NOEXIST: another CPU may have been faster; then merge with its entry.
            match maps::GRANTS.insert(key, fresh, 1) {
                Ok(()) => return true,
                Err(-17) => continue,
                Err(_) => break,
            }
        };
        // SAFETY: a map value; its slots are read as words and written by compare-and-exchange only.
        let Some((slot, old)) = grant::choose_slot(unsafe { &*entry }, class, now) else {
            break;
        };
        if grant::class(old) == class && grant::expires(old) >= expires {
            return true;
        }
        // SAFETY: `choose_slot` returns an index below the number of slots.
        let (_, swapped) = unsafe {
            let word = (&raw mut (*entry).slots).cast::<u64>().add(slot & (egret_common::maps::GRANT_SLOTS - 1));
            core::intrinsics::atomic_cxchg::<
                u64,
                { core::intrinsics::AtomicOrdering::SeqCst },
                { core::intrinsics::AtomicOrdering::SeqCst },
            >(word, old, grant::pack(class, expires))
        };
        if swapped {
            return true;
        }
    }
    if let Some(state) = state(endpoint) {
        // SAFETY: a helper without arguments.
        state.map_full_at = unsafe { aya_ebpf::helpers::bpf_jiffies64() };
        state.map_full += 1;
    }
    false
}

/// What the kernel noticed about an endpoint.
#[inline(always)]
pub fn state(endpoint: u32) -> Option<&'static mut EndpointState> {
    // SAFETY: an array entry lives as long as the map; its fields are independent words.
    maps::ENDPOINT_STATE.get_ptr_mut(endpoint).map(|state| unsafe { &mut *state })
}
