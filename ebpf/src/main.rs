//! The BPF programs: entry points of a few lines. Parsing, flows, decision and DNS scanning live in
//! `egret-common`; this crate owns maps, contexts and pointers, and nothing that could be tested on the host.
#![no_std]
#![no_main]
#![feature(core_intrinsics, asm_experimental_arch)]
#![expect(internal_features, reason = "atomics on the BPF target exist as intrinsics only")]
#![expect(
    clippy::needless_borrows_for_generic_args,
    reason = "a borrowed key is read in place, an owned one is copied to the stack"
)]
#![expect(unreachable_pub, reason = "a binary: `pub` here says what other modules use")]

mod cgroup;
mod ctx;
mod dns;
mod emit;
mod grant;
mod maps;
mod reply;
mod scan;
mod sock;
mod startup;
mod tables;
mod tc;
mod test_run;

#[cfg(not(test))]
#[panic_handler]
fn panic(_info: &core::panic::PanicInfo<'_>) -> ! {
    loop {}
}

/// The helpers that may be called depend on it; the programs are dual licensed.
#[unsafe(link_section = "license")]
#[unsafe(no_mangle)]
static LICENSE: [u8; 13] = *b"Dual MIT/GPL\0";
