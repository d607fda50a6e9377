//! Contexts as `egret_common` wants them: a socket buffer as a [`Packet`].

use aya_ebpf::{bindings::__sk_buff, helpers::bpf_skb_load_bytes};
use egret_common::packet::{Bytes, Packet};

/// A socket buffer whose network header is `base` bytes behind its start.
pub struct Skb {
    pub skb: *mut __sk_buff,
    pub base: u32,
}

impl Packet for Skb {
    #[inline(always)]
    fn len(&self) -> u32 {
        // SAFETY: the context pointer that the kernel gave us.
        unsafe { (*self.skb).len }.wrapping_sub(self.base)
    }

    #[inline(always)]
    fn load<const N: usize>(&self, offset: u32, into: &mut Bytes<N>) -> bool {
        // SAFETY: the destination has N bytes; the helper checks the packet's bounds.
        let failed = unsafe {
            bpf_skb_load_bytes(
                self.skb.cast(),
                self.base.wrapping_add(offset),
                (&raw mut into.0).cast(),
                N as u32,
            )
        };
        failed == 0
    }
}
