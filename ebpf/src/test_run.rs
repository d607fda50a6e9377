//! Programs that are never attached: the agent runs them with `BPF_PROG_TEST_RUN`, since only a program can write
//! a grant atomically beside the learner, and only a program can read the kernel's clocks together.

use aya_ebpf::{helpers::bpf_jiffies64, macros::classifier, programs::TcContext};
use egret_common::{
    decide::Tables,
    event::{CLOCK_AT, ClockReading, GRANT_PUT, GRANT_SETTLE, GRANT_SWEEP, GrantRequest},
    grant as grants,
    maps::{GRANT_SLOTS, GrantKey},
};

use crate::{
    grant, maps,
    tables::{Maps, boot_ns},
};

/// Done.
const DONE: i32 = 0;
/// Refused: no room, or nothing to sweep.
const REFUSED: i32 = 1;
/// The request cannot be read.
const INVALID: i32 = 2;

/// Writes or sweeps one entry of `GRANTS`. The request stands behind the Ethernet header.
#[classifier]
pub fn egret_grant(ctx: TcContext) -> i32 {
    let Ok(request) = ctx.load::<GrantRequest>(CLOCK_AT) else {
        return INVALID;
    };
    match request.op {
        GRANT_PUT => put(&request),
        GRANT_SWEEP => sweep(&request),
        GRANT_SETTLE => settle(&request),
        _ => INVALID,
    }
}

#[inline(always)]
fn put(request: &GrantRequest) -> i32 {
    let done = grant::put(request.endpoint, request.addr, request.class, request.expires, Maps.grant_now());
    if done { DONE } else { REFUSED }
}

/// Ends the silence after a slow answer, unless another one began since.
#[inline(always)]
fn settle(request: &GrantRequest) -> i32 {
    match grant::state(request.endpoint) {
        Some(state) if state.pending_until as u32 == request.expires => {
            state.pending_until = 0;
            DONE
        }
        _ => REFUSED,
    }
}

/// Removes an entry whose slots have all expired before `request.expires`: the check and the removal stand side by
/// side here, so that an answer that arrives meanwhile is not undone.
#[inline(always)]
fn sweep(request: &GrantRequest) -> i32 {
    let key = GrantKey { addr: request.addr, endpoint: request.endpoint, pad: 0 };
    let Some(entry) = maps::GRANTS.get_ptr(key) else {
        return REFUSED;
    };
    let mut i = 0;
    while i < GRANT_SLOTS {
        // SAFETY: a map value; slots are single words.
        let slot = unsafe { core::ptr::read_volatile((&raw const (*entry).slots).cast::<u64>().add(i)) };
        if slot != 0 && grants::expires(slot) >= request.expires {
            return REFUSED;
        }
        i += 1;
    }
    if maps::GRANTS.remove(key).is_ok() { DONE } else { REFUSED }
}

/// Reads jiffies and boot time at one moment, behind the Ethernet header of the packet it is given.
#[classifier]
pub fn egret_clock(ctx: TcContext) -> i32 {
    // SAFETY: a helper without arguments.
    let reading = ClockReading { jiffies: unsafe { bpf_jiffies64() }, boot_ns: boot_ns() };
    if ctx.store(CLOCK_AT, &reading, 0).is_ok() { DONE } else { INVALID }
}
