//! Contexts as `egret_common` wants them: a socket buffer as a [`Packet`].

use core::mem::MaybeUninit;

use aya_ebpf::{bindings::__sk_buff, helpers::bpf_skb_load_bytes};
use egret_common::packet::{Bytes, Packet};

/// A socket buffer whose network header is `base` bytes behind its start.
pub struct Skb {
    pub skb: *mut __sk_buff,
    pub base: u32,
    /// [`egret_common::maps::Endpoint::zero`].
    pub zero: u32,
}

impl Packet for Skb {
    #[inline(always)]
    fn len(&self) -> u32 {
        // SAFETY: the context pointer that the kernel gave us.
        unsafe { (*self.skb).len }.wrapping_sub(self.base)
    }

    #[inline(always)]
    fn read<const N: usize, R>(&self, offset: u32, with: impl FnOnce(&Bytes<N>) -> R) -> Option<R> {
        let mut bytes = MaybeUninit::<Bytes<N>>::uninit();
        // SAFETY: the destination has N bytes; the helper checks the packet's bounds, and on success writes them all.
        unsafe {
            let failed = bpf_skb_load_bytes(
                self.skb.cast(),
                self.base.wrapping_add(offset),
                bytes.as_mut_ptr().cast(),
                N as u32,
            );
            if failed == 0 { Some(with(bytes.assume_init_ref())) } else { None }
        }
    }

    #[inline(always)]
    fn zero(&self) -> u32 {
        self.zero
    }
}
