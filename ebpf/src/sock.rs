//! Socket hooks: stamping at creation, fast answers at connect and sendmsg. They are a courtesy; the boundary is
//! `cgroup_skb`, since a later program may undo what is denied here.

use core::mem::MaybeUninit;

use aya_ebpf::{
    bindings::bpf_sock_addr,
    helpers::{
        bpf_get_current_ancestor_cgroup_id, bpf_get_current_pid_tgid, bpf_set_retval, bpf_sk_storage_get,
        generated::bpf_get_current_comm as write_current_comm,
    },
    macros::{cgroup_sock, cgroup_sock_addr},
    programs::{SockAddrContext, SockContext},
};
use egret_common::{
    decide::{Decision, Question},
    judge::{Work, judge_connect, refusal},
    maps::{ENDPOINT_REJECT, Endpoint, STAMP_SERVES, SocketStamp},
    net::{Addr, Direction, proto},
    verdict::Verdict,
};

use crate::{emit, grant, maps, tables::Maps};

const EPERM: i32 = 1;
const SOCK_STREAM: u32 = 1;
const SOCK_DGRAM: u32 = 2;
const IPPROTO_MPTCP: u32 = 262;
const ALLOW: i32 = 1;

/// Endpoint of a cgroup id.
#[inline(always)]
pub fn endpoint_of(cgroup: u64) -> Option<&'static Endpoint> {
    // SAFETY: copied at once.
    let id = *unsafe { maps::ENDPOINT_BY_CGROUP.get(cgroup) }?;
    let endpoint = maps::ENDPOINTS.get(id)?;
    if endpoint.id == id { Some(endpoint) } else { None }
}

#[inline(always)]
fn current_endpoint() -> Option<&'static Endpoint> {
    // SAFETY: a helper with a number.
    endpoint_of(unsafe { bpf_get_current_ancestor_cgroup_id(maps::CONFIG.load().cgroup_level as i32) })
}

/// The stamp of a socket; null pointers and sockets from before the attach have none.
#[inline(always)]
pub fn stamp(sock: *mut core::ffi::c_void) -> Option<&'static mut SocketStamp> {
    if sock.is_null() {
        return None;
    }
    // SAFETY: a socket pointer of the context, checked against null as the verifier wants it.
    unsafe {
        bpf_sk_storage_get((&raw const maps::SOCKETS).cast_mut().cast(), sock, core::ptr::null_mut(), 0)
            .cast::<SocketStamp>()
            .as_mut()
    }
}

/// `cgroup/sock_create`: a socket belongs to its creator's cgroup for ever; remember whose it is.
#[cgroup_sock(sock_create)]
pub fn egret_sock_create(ctx: SockContext) -> i32 {
    if let Some(endpoint) = current_endpoint() {
        let mut stamp = MaybeUninit::<SocketStamp>::uninit();
        let fields = stamp.as_mut_ptr();
        // SAFETY: the helper writes the whole name, also when it fails; the context is the socket; without memory the
        // socket stays unstamped.
        unsafe {
            (*fields).endpoint = endpoint.id;
            (*fields).pid = (bpf_get_current_pid_tgid() >> 32) as u32;
            (*fields).flags = 0;
            write_current_comm((&raw mut (*fields).comm).cast(), 16);
            bpf_sk_storage_get(
                (&raw const maps::SOCKETS).cast_mut().cast(),
                ctx.sock.cast(),
                fields.cast(),
                aya_ebpf::bindings::BPF_SK_STORAGE_GET_F_CREATE as u64,
            );
        }
    }
    ALLOW
}

/// Connect of a TCP socket to an IPv4 address.
#[cgroup_sock_addr(connect4)]
pub fn egret_connect4(ctx: SockAddrContext) -> i32 {
    connect(ctx.sock_addr, v4(ctx.sock_addr))
}

/// Connect of a TCP socket to an IPv6 address (v4-mapped ones included).
#[cgroup_sock_addr(connect6)]
pub fn egret_connect6(ctx: SockAddrContext) -> i32 {
    connect(ctx.sock_addr, v6(ctx.sock_addr))
}

/// Datagram to an IPv4 address.
#[cgroup_sock_addr(sendmsg4)]
pub fn egret_sendmsg4(ctx: SockAddrContext) -> i32 {
    sendmsg(ctx.sock_addr, v4(ctx.sock_addr))
}

/// Datagram to an IPv6 address.
#[cgroup_sock_addr(sendmsg6)]
pub fn egret_sendmsg6(ctx: SockAddrContext) -> i32 {
    sendmsg(ctx.sock_addr, v6(ctx.sock_addr))
}

#[inline(always)]
fn v4(ctx: *mut bpf_sock_addr) -> Addr {
    // SAFETY: the context pointer that the kernel gave us.
    Addr::from_v4(unsafe { core::ptr::read_volatile(&raw const (*ctx).user_ip4) }.to_ne_bytes())
}

#[inline(always)]
fn v6(ctx: *mut bpf_sock_addr) -> Addr {
    // SAFETY: as above; volatile, so that the four words are read as the verifier allows them.
    let word =
        |i: usize| unsafe { core::ptr::read_volatile((&raw const (*ctx).user_ip6).cast::<u32>().add(i)) };
    let (a, b, c, d) = (word(0) as u64, word(1) as u64, word(2) as u64, word(3) as u64);
    if cfg!(target_endian = "little") {
        Addr { hi: a | b << 32, lo: c | d << 32 }
    } else {
        Addr { hi: a << 32 | b, lo: c << 32 | d }
    }
}

/// A UDP connect sends nothing (resolvers use it to ask for a route) and is let through: its datagrams are judged.
#[inline(always)]
fn connect(ctx: *mut bpf_sock_addr, remote: Addr) -> i32 {
    // SAFETY: the context pointer that the kernel gave us.
    let (kind, protocol) = unsafe { ((*ctx).type_, (*ctx).protocol) };
    if kind != SOCK_STREAM || (protocol != proto::TCP as u32 && protocol != IPPROTO_MPTCP) {
        return ALLOW;
    }
    fast_answer(ctx, remote, proto::TCP)
}

/// A datagram of a socket that serves peers may be a reply, which only the flow table knows: let through.
#[inline(always)]
fn sendmsg(ctx: *mut bpf_sock_addr, remote: Addr) -> i32 {
    // SAFETY: the context pointer that the kernel gave us.
    let (kind, protocol) = unsafe { ((*ctx).type_, (*ctx).protocol) };
    if kind != SOCK_DGRAM || protocol != proto::UDP as u32 {
        return ALLOW;
    }
    // SAFETY: as above.
    let sock = unsafe { (*ctx).__bindgen_anon_1.sk };
    match stamp(sock.cast()) {
        Some(stamp) if stamp.flags & STAMP_SERVES == 0 => fast_answer(ctx, remote, proto::UDP),
        _ => ALLOW,
    }
}

#[inline(always)]
fn fast_answer(ctx: *mut bpf_sock_addr, remote: Addr, protocol: u8) -> i32 {
    // SAFETY: the context pointer that the kernel gave us.
    let (sock, port) = unsafe { ((*ctx).__bindgen_anon_1.sk, (*ctx).user_port) };
    let owner = stamp(sock.cast());
    let endpoint = match &owner {
        Some(stamp) => maps::ENDPOINTS.get(stamp.endpoint).filter(|e| e.id != 0),
        None => current_endpoint(),
    };
    let Some(endpoint) = endpoint else {
        return ALLOW;
    };
    // Audit changes no verdict, and silence wants the packet: both are the boundary's.
    if endpoint.flags & ENDPOINT_REJECT == 0 || matches!(refusal(endpoint), Verdict::Audited) {
        return ALLOW;
    }
    let port = u16::from_be(port as u16);
    let question = Question { remote, direction: Direction::Egress, proto: protocol, port };
    let zero = endpoint.zero;
    let mut decision = Decision { reason: zero, class: zero, cookie: zero, age: zero };
    judge_connect(&Maps, endpoint, &question, &mut decision);
    // While an answer is on its way through the agent, the packet is dropped in silence: TCP's retry finds the grant.
    if decision.reason == 0 || pending(endpoint.id) {
        return ALLOW;
    }
    deny(endpoint, &question, &decision, owner.as_deref());
    // SAFETY: a helper with a number.
    unsafe { bpf_set_retval(-EPERM) };
    0
}

/// What is told of a socket from before the attach, or of a packet without one.
pub static UNSTAMPED: SocketStamp = SocketStamp { endpoint: 0, pid: 0, comm: [0; 16], flags: 0 };

/// Counts and reports a connect or datagram that is refused before it becomes a packet.
#[inline(never)]
fn deny(endpoint: &Endpoint, question: &Question, decision: &Decision, owner: Option<&SocketStamp>) {
    let mut work = Work::new(endpoint, Direction::Egress);
    work.parsed.dst = question.remote;
    work.parsed.dport = question.port;
    work.parsed.proto = question.proto;
    let judgement = &mut work.judgement;
    judgement.verdict = Verdict::Dropped as u32;
    judgement.decision = *decision;
    judgement.fresh = 1;
    let wanted = emit::count(endpoint.id, Direction::Egress, decision.reason as u8, 0);
    // Not copied: 6.1 counts 512 bytes of stack over all frames, and this one holds the work.
    let stamp = owner.unwrap_or(&UNSTAMPED);
    emit::tell(endpoint, &work, &emit::Facts { question: 0, len: 0, wanted }, stamp);
}

/// True while an answer of this endpoint is with the agent.
#[inline(always)]
pub fn pending(endpoint: u32) -> bool {
    match grant::state(endpoint) {
        // SAFETY: a helper without arguments.
        Some(state) => state.pending_until > unsafe { aya_ebpf::helpers::bpf_jiffies64() },
        None => false,
    }
}
