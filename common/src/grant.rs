//! Lifetimes of learned addresses. Kernel and agent compare the same clock (`CLOCK_BOOTTIME`), in ticks of 2^26 ns
//! (67 ms), so that class and expiry fit into one word that an atomic exchange can write.

use crate::ids::ClassId;
use crate::maps::{Endpoint, Grants};

/// Boot time in ticks of 2^26 ns; 32 bits last for nine years of uptime.
pub type GrantTime = u32;

/// Bits by which nanoseconds are shifted to ticks.
pub const TICK_SHIFT: u32 = 26;

/// Ticks of a boot time in nanoseconds.
#[inline(always)]
#[must_use]
pub const fn ticks(boot_ns: u64) -> GrantTime {
    (boot_ns >> TICK_SHIFT) as GrantTime
}

/// Ticks in a number of seconds, rounded up; at most 2^26 s (two years) count.
#[inline(always)]
#[must_use]
pub const fn ticks_of_secs(secs: u32) -> GrantTime {
    let secs = if secs > 1 << 26 { 1 << 26 } else { secs };
    // 10^9 / 2^26 = 14.9; exact in 64 bits.
    ((secs as u64 * 1_000_000_000 + (1 << TICK_SHIFT) - 1) >> TICK_SHIFT) as GrantTime
}

/// Whole seconds in a number of ticks.
#[inline(always)]
#[must_use]
pub const fn secs_of_ticks(ticks: GrantTime) -> u32 {
    (((ticks as u64) << TICK_SHIFT) / 1_000_000_000) as u32
}

/// When an address learned now with this TTL stops opening new connections: now + clamp(TTL, floor, cap) + grace.
#[inline(always)]
#[must_use]
pub fn expiry(endpoint: &Endpoint, now: GrantTime, ttl: u32) -> GrantTime {
    let ttl = if ttl < endpoint.ttl_floor { endpoint.ttl_floor } else { ttl };
    let ttl = if ttl > endpoint.ttl_cap { endpoint.ttl_cap } else { ttl };
    now.saturating_add(ticks_of_secs(ttl.saturating_add(endpoint.grace)))
}

/// One slot of [`Grants`].
#[inline(always)]
#[must_use]
pub const fn pack(class: ClassId, expires: GrantTime) -> u64 {
    (class as u64) << 32 | expires as u64
}

/// The name class in a slot; 0 = free.
#[inline(always)]
#[must_use]
pub const fn class(slot: u64) -> ClassId {
    (slot >> 32) as ClassId
}

/// The tick at which a slot stops opening new connections.
#[inline(always)]
#[must_use]
pub const fn expires(slot: u64) -> GrantTime {
    slot as GrantTime
}

/// Ticks since a slot ended, at least 1; 0 while it is live.
#[inline(always)]
#[must_use]
pub const fn expired_for(slot: u64, now: GrantTime) -> GrantTime {
    if expires(slot) > now {
        0
    } else if expires(slot) == now {
        1
    } else {
        now - expires(slot)
    }
}

/// The slot into which a grant of `class` goes, and what stands there: the one that holds the class already, else a
/// free one, else the one that expired first. `None`: all are live, the grant is refused (and counted).
#[inline(always)]
#[must_use]
pub fn choose_slot(grants: &Grants, wanted: ClassId, now: GrantTime) -> Option<(usize, u64)> {
    let (mut best, mut best_expires, mut found) = (0, now, false);
    let mut i = 0;
    while i < crate::maps::GRANT_SLOTS {
        let slot = grants.slots[i];
        if class(slot) == wanted {
            return Some((i, slot));
        }
        let ends = if slot == 0 { 0 } else { expires(slot) };
        if ends < best_expires {
            (best, best_expires, found) = (i, ends, true);
        }
        i += 1;
    }
    if found { Some((best, grants.slots[best & (crate::maps::GRANT_SLOTS - 1)])) } else { None }
}
