//! Writing `GRANTS`: by the learner, and by the agent through a test run, so that one piece of code merges.

use egret_common::{
    grant::{self, GrantTime},
    ids::ClassId,
    maps::{EndpointState, GrantKey, Grants},
    net::Addr,
};

use crate::{maps, scan};

/// Opens `addr` for `endpoint` under `class` until `expires`; a longer lifetime that stands already is kept.
/// False when there was no room (counted).
#[inline(always)]
pub fn put(endpoint: u32, addr: Addr, class: ClassId, expires: GrantTime, now: GrantTime) -> bool {
    let key = GrantKey { addr, endpoint, pad: 0 };
    // Written out: 6.1 refuses some loops by the shape of their jumps. Each retry needs another CPU in between.
    let mut result = merge(&key, class, expires, now);
    if result == MISSING {
        result = insert(&key, class, expires);
    }
    if result == AGAIN {
        result = merge(&key, class, expires, now);
    }
    if result == AGAIN {
        result = merge(&key, class, expires, now);
    }
    if result != DONE
        && let Some(state) = state(endpoint)
    {
        // SAFETY: a helper without arguments.
        state.map_full_at = unsafe { aya_ebpf::helpers::bpf_jiffies64() };
        state.map_full += 1;
    }
    result == DONE
}

/// Another CPU was faster.
const AGAIN: u32 = 0;
/// The grant stands.
const DONE: u32 = 1;
/// No room.
const FULL: u32 = 2;
/// No entry yet.
const MISSING: u32 = 3;

#[inline(never)]
fn merge(key: &GrantKey, class: ClassId, expires: GrantTime, now: GrantTime) -> u32 {
    let Some(entry) = maps::GRANTS.get_ptr_mut(key) else {
        return MISSING;
    };
    // SAFETY: a map value; its slots are read as words and written by compare-and-exchange only.
    let Some((slot, old)) = grant::choose_slot(unsafe { &*entry }, class, now) else {
        return FULL;
    };
    if grant::class(old) == class && grant::expires(old) >= expires {
        return DONE;
    }
    // SAFETY: `choose_slot` returns an index below the number of slots; the mask tells the verifier.
    let (_, swapped) = unsafe {
        let slot = scan::opaque(slot as u32) as usize & (egret_common::maps::GRANT_SLOTS - 1);
        let word = (&raw mut (*entry).slots).cast::<u64>().add(slot);
        core::intrinsics::atomic_cxchg::<
            u64,
            { core::intrinsics::AtomicOrdering::SeqCst },
            { core::intrinsics::AtomicOrdering::SeqCst },
        >(word, old, grant::pack(class, expires))
    };
    if swapped { DONE } else { AGAIN }
}

#[inline(never)]
fn insert(key: &GrantKey, class: ClassId, expires: GrantTime) -> u32 {
    // A zero that the compiler does not know: it would clear a known one byte by byte.
    let free = scan::opaque(0) as u64;
    let mut slots = [free; egret_common::maps::GRANT_SLOTS];
    slots[0] = grant::pack(class, expires);
    let fresh = Grants { slots };
    // NOEXIST: then merge with the other CPU's entry.
    match maps::GRANTS.insert(key, fresh, 1) {
        Ok(()) => DONE,
        Err(-17) => AGAIN,
        Err(_) => FULL,
    }
}

/// What the kernel noticed about an endpoint.
#[inline(always)]
pub fn state(endpoint: u32) -> Option<&'static mut EndpointState> {
    // SAFETY: an array entry lives as long as the map; its fields are independent words.
    maps::ENDPOINT_STATE.get_ptr_mut(endpoint).map(|state| unsafe { &mut *state })
}
