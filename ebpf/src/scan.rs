//! The kernel's driver of the DNS scanner, and the scan memory.

use core::ffi::{c_long, c_void};

use aya_ebpf::{bindings::__sk_buff, helpers::bpf_loop};
use egret_common::dns::{Driver, Scratch, Step, WireName};

use crate::maps;

/// `bpf_loop`. The stack carries a pointer to map memory and nothing else: what the verifier of 6.1 finds constant
/// there, it takes for constant in every turn.
pub struct BpfLoop;

impl Driver for BpfLoop {
    #[inline(always)]
    fn repeat<S: Step>(scratch: &mut Scratch, max: u32) {
        let mut pointer: *mut Scratch = scratch;
        let callback: unsafe extern "C" fn(u64, *mut *mut Scratch) -> c_long = turn::<S>;
        // SAFETY: the callback has the signature that the helper calls; its context outlives the call.
        unsafe {
            bpf_loop(max, callback as *mut c_void, (&raw mut pointer).cast(), 0);
        }
    }

    #[inline(always)]
    fn clear(name: &mut WireName) {
        let words = (&raw mut name.0).cast::<u64>();
        let mut i = 0;
        while i < size_of::<WireName>() / 8 {
            // SAFETY: a name is 256 bytes, aligned to 8.
            unsafe { core::ptr::write_volatile(words.add(i), 0) };
            i += 1;
        }
    }
}

unsafe extern "C" fn turn<S: Step>(_index: u64, context: *mut *mut Scratch) -> c_long {
    // SAFETY: the context that `repeat` passes.
    let scratch = unsafe { &mut **context };
    if S::step(scratch) { 0 } else { 1 }
}

/// A loop over the scratch and the packet.
#[repr(C)]
pub struct PacketLoop {
    scratch: *mut Scratch,
    skb: *mut __sk_buff,
}

/// One turn of a loop over the scratch and the packet.
pub trait PacketStep {
    /// True: go on.
    fn step(scratch: &mut Scratch, skb: *mut __sk_buff) -> bool;
}

/// As [`BpfLoop`], for steps that read the packet.
#[inline(always)]
pub fn repeat_with_packet<S: PacketStep>(scratch: &mut Scratch, skb: *mut __sk_buff, max: u32) {
    let mut context = PacketLoop { scratch, skb };
    let callback: unsafe extern "C" fn(u64, *mut PacketLoop) -> c_long = packet_turn::<S>;
    // SAFETY: as for `BpfLoop`.
    unsafe {
        bpf_loop(max, callback as *mut c_void, (&raw mut context).cast(), 0);
    }
}

unsafe extern "C" fn packet_turn<S: PacketStep>(_index: u64, context: *mut PacketLoop) -> c_long {
    // SAFETY: the context that `repeat_with_packet` passes.
    let (scratch, skb) = unsafe { (&mut *(*context).scratch, (*context).skb) };
    if S::step(scratch, skb) { 0 } else { 1 }
}

/// A loop over a closure. What the closure captures stands on the stack: pointers, and numbers that the verifier does
/// not know.
#[inline(always)]
pub fn repeat<F: FnMut(u32) -> bool>(max: u32, mut turn: F) {
    let callback: unsafe extern "C" fn(u64, *mut F) -> c_long = closure_turn::<F>;
    // SAFETY: as for `BpfLoop`.
    unsafe {
        bpf_loop(max, callback as *mut c_void, (&raw mut turn).cast(), 0);
    }
}

unsafe extern "C" fn closure_turn<F: FnMut(u32) -> bool>(index: u64, turn: *mut F) -> c_long {
    // SAFETY: the context that `repeat` passes.
    let turn = unsafe { &mut *turn };
    if turn(index as u32) { 0 } else { 1 }
}

/// A free slot of the egress scratch on this CPU; `None` = all in use (counted by the caller).
#[inline(always)]
pub fn take_slot() -> Option<u32> {
    let mut slot = 0;
    while slot < 4 {
        if let Some(lock) = maps::SCRATCH_LOCKS.get_ptr_mut(slot) {
            // SAFETY: a map value of this CPU; the exchange is atomic against programs that interrupt this one.
            let (_, taken) = unsafe {
                core::intrinsics::atomic_cxchg::<
                    u64,
                    { core::intrinsics::AtomicOrdering::SeqCst },
                    { core::intrinsics::AtomicOrdering::SeqCst },
                >(lock, 0, 1)
            };
            if taken {
                return Some(slot);
            }
        }
        slot += 1;
    }
    None
}

/// Gives a slot back.
#[inline(always)]
pub fn free_slot(slot: u32) {
    if let Some(lock) = maps::SCRATCH_LOCKS.get_ptr_mut(slot) {
        // SAFETY: a map value; only the holder writes 0.
        unsafe { core::ptr::write_volatile(lock, 0) }
    }
}

/// A number that the optimiser knows nothing about.
#[inline(always)]
pub fn opaque(value: u32) -> u32 {
    let mut value = value as u64;
    // SAFETY: a move of a register to itself.
    unsafe {
        core::arch::asm!("{0} = {0}", inout(reg) value, options(pure, nomem, nostack, preserves_flags))
    };
    value as u32
}
