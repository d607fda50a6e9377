//! Floors for `cargo xtask bench`: programs that do the unavoidable look-ups of a path and nothing else, over maps of
//! the same names, keys and sizes as Egret's (the benchmark hands them Egret's own). They decide nothing, parse
//! nothing but plain IPv4 TCP, and are never attached. Each stands at a cgroup and, as `floor_tc_...`, at TC.
#![no_std]
#![no_main]

use aya_ebpf::{
    Global,
    bindings::__sk_buff,
    btf_maps::{Array, HashMap, LruHashMap},
    helpers::{bpf_jiffies64, bpf_ktime_get_boot_ns, bpf_skb_ancestor_cgroup_id, bpf_skb_load_bytes},
    macros::{btf_map, cgroup_skb, classifier},
    programs::{SkBuffContext, TcContext},
};
use egret_common::{
    grant, ids,
    maps::{Endpoint, FlowEntry, FlowKey, FlowValue, GrantKey, Grants, RuleChunk, RuleKey},
    net::Addr,
};

/// As `FLOWS` in `maps.rs`.
#[btf_map]
static FLOWS: LruHashMap<FlowKey, FlowEntry, 131072> = LruHashMap::new();
/// As there.
#[btf_map]
static ENDPOINT_BY_CGROUP: HashMap<u64, u32, 4096> = HashMap::new();
/// As there.
#[btf_map]
static ENDPOINTS: Array<Endpoint, 4096> = Array::new();
/// As there.
#[btf_map]
static GRANTS: HashMap<GrantKey, Grants, 65536> = HashMap::new();
/// As there.
#[btf_map]
static RULES: HashMap<RuleKey, RuleChunk, 65536> = HashMap::new();

/// As there.
#[btf_map]
static ENDPOINT_BY_IFINDEX: HashMap<u32, u32, 4096> = HashMap::new();

const PASS: i32 = 1;
const DROP: i32 = 0;
/// The endpoint that the benchmark's cgroup is.
const ENDPOINT: u32 = 1;

/// The level of that cgroup.
#[unsafe(no_mangle)]
static CGROUP_LEVEL: Global<u32> = Global::new(1);

/// Where a program stands.
#[derive(Clone, Copy)]
struct Hook {
    /// Before the network header.
    base: u32,
    tc: bool,
}

const CGROUP: Hook = Hook { base: 0, tc: false };
const TC: Hook = Hook { base: 14, tc: true };

/// Nothing: what the test run itself costs.
#[cgroup_skb(egress)]
fn floor_empty(_ctx: SkBuffContext) -> i32 {
    PASS
}

/// One look-up: whose packet is this?
#[cgroup_skb(egress)]
fn floor_one(ctx: SkBuffContext) -> i32 {
    if endpoint(CGROUP, ctx.skb.skb).is_some() { PASS } else { DROP }
}

/// A known flow, forward: the headers, one flow look-up, its time.
#[cgroup_skb(egress)]
fn floor_established(ctx: SkBuffContext) -> i32 {
    established(CGROUP, ctx.skb.skb, true)
}

/// A known flow, reply.
#[cgroup_skb(ingress)]
fn floor_reply(ctx: SkBuffContext) -> i32 {
    established(CGROUP, ctx.skb.skb, false)
}

/// A new flow that no rule allows: endpoint, flow, one rule.
#[cgroup_skb(egress)]
fn floor_denied(ctx: SkBuffContext) -> i32 {
    denied(CGROUP, ctx.skb.skb)
}

/// A new flow that a learned name allows: endpoint, flow, grant with its clock, one rule, the new entry. An entry that
/// is there is replaced, as by Egret when a SYN comes again, so that the benchmark can repeat a packet.
#[cgroup_skb(egress)]
fn floor_new(ctx: SkBuffContext) -> i32 {
    new(CGROUP, ctx.skb.skb)
}

/// [`floor_empty`] at TC.
#[classifier]
fn floor_tc_empty(_ctx: TcContext) -> i32 {
    PASS
}

/// [`floor_one`] at TC.
#[classifier]
fn floor_tc_one(ctx: TcContext) -> i32 {
    if endpoint(TC, ctx.skb.skb).is_some() { PASS } else { DROP }
}

/// [`floor_established`] at TC.
#[classifier]
fn floor_tc_established(ctx: TcContext) -> i32 {
    established(TC, ctx.skb.skb, true)
}

/// [`floor_reply`] at TC.
#[classifier]
fn floor_tc_reply(ctx: TcContext) -> i32 {
    established(TC, ctx.skb.skb, false)
}

/// [`floor_denied`] at TC.
#[classifier]
fn floor_tc_denied(ctx: TcContext) -> i32 {
    denied(TC, ctx.skb.skb)
}

/// [`floor_new`] at TC.
#[classifier]
fn floor_tc_new(ctx: TcContext) -> i32 {
    new(TC, ctx.skb.skb)
}

#[inline(always)]
fn denied(hook: Hook, skb: *mut __sk_buff) -> i32 {
    let (Some(endpoint), Some(key)) = (endpoint(hook, skb), key(hook, skb, true)) else { return DROP };
    if FLOWS.get_ptr(key).is_some() {
        return PASS;
    }
    let rule = RuleKey { set: endpoint.egress_set, class: ids::CLASS_NAMES_SUMMARY, chunk: 0 };
    // SAFETY: read at once.
    let chunk = unsafe { RULES.get(rule) };
    if chunk.is_some_and(|chunk| chunk.count == u32::MAX) { PASS } else { DROP }
}

#[inline(always)]
fn new(hook: Hook, skb: *mut __sk_buff) -> i32 {
    let (Some(endpoint), Some(key)) = (endpoint(hook, skb), key(hook, skb, true)) else { return DROP };
    let known = FLOWS.get_ptr(key).is_some();
    // SAFETY: read at once.
    let Some(grants) = (unsafe { GRANTS.get(GrantKey { addr: key.remote, endpoint: ENDPOINT, pad: 0 }) })
    else {
        return DROP;
    };
    let slot = grants.slots[0];
    // SAFETY: a helper without arguments.
    if grant::expires(slot) <= grant::ticks(unsafe { bpf_ktime_get_boot_ns() }) {
        return DROP;
    }
    let rule = RuleKey { set: endpoint.egress_set, class: grant::class(slot), chunk: 0 };
    // SAFETY: read at once.
    let Some(chunk) = (unsafe { RULES.get(rule) }) else { return DROP };
    // SAFETY: a helper without arguments.
    let last_seen = unsafe { bpf_jiffies64() };
    let (class, state) = (grant::class(slot), known as u8);
    let value = FlowValue { last_seen, set: chunk.count, class, state, ..FlowValue::default() };
    let entry = FlowEntry { value, ..FlowEntry::default() };
    if FLOWS.insert(key, entry, 0).is_ok() { PASS } else { DROP }
}

#[inline(always)]
fn established(hook: Hook, skb: *mut __sk_buff, forward: bool) -> i32 {
    let Some(flow) = key(hook, skb, forward).and_then(|key| FLOWS.get_ptr_mut(key)) else { return DROP };
    // SAFETY: a helper without arguments.
    let now = unsafe { bpf_jiffies64() };
    // SAFETY: a map value.
    unsafe {
        if (*flow).value.last_seen != now {
            (*flow).value.last_seen = now;
        }
    }
    PASS
}

#[inline(always)]
fn endpoint(hook: Hook, skb: *mut __sk_buff) -> Option<&'static Endpoint> {
    // SAFETY: the context pointer that the kernel gave us; the values are copied at once.
    let id = unsafe {
        match hook.tc {
            true => *ENDPOINT_BY_IFINDEX.get((*skb).ifindex)?,
            false => *ENDPOINT_BY_CGROUP.get(bpf_skb_ancestor_cgroup_id(skb, CGROUP_LEVEL.load() as i32))?,
        }
    };
    ENDPOINTS.get(id)
}

/// An IPv4 and a TCP header, as words for the compiler.
#[repr(C, align(8))]
struct Head([u8; 40]);

/// The flow of a plain IPv4 TCP packet.
#[inline(always)]
fn key(hook: Hook, skb: *mut __sk_buff, forward: bool) -> Option<FlowKey> {
    let mut head = Head([0; 40]);
    // SAFETY: the destination has 40 bytes; the helper checks the packet's bounds.
    let failed = unsafe { bpf_skb_load_bytes(skb.cast(), hook.base, (&raw mut head).cast(), 40) };
    if failed != 0 {
        return None;
    }
    let b = &head.0;
    let (src, dst) =
        (Addr::from_v4([b[12], b[13], b[14], b[15]]), Addr::from_v4([b[16], b[17], b[18], b[19]]));
    let (sport, dport) = (u16::from_be_bytes([b[20], b[21]]), u16::from_be_bytes([b[22], b[23]]));
    let (local, remote, local_port, remote_port) =
        if forward { (src, dst, sport, dport) } else { (dst, src, dport, sport) };
    Some(FlowKey { local, remote, endpoint: ENDPOINT, local_port, remote_port, proto: b[9] as u32, pad: 0 })
}

#[cfg(not(test))]
#[panic_handler]
fn panic(_info: &core::panic::PanicInfo<'_>) -> ! {
    loop {}
}

/// The helpers that may be called depend on it.
#[unsafe(link_section = "license")]
#[unsafe(no_mangle)]
static LICENSE: [u8; 13] = *b"Dual MIT/GPL\0";
