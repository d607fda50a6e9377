//! What the BPF programs, the agent and the tests share: map keys and values, records, drop reasons, and the
//! decision itself. One decision is compiled three times (kernel, explain, tests), so they cannot drift apart.
//!
//! No allocation, no panic and no unsafe here (but for `aya::Pod` under the feature `user`): a reachable bounds check is a panic loop that the verifier
//! refuses, so every index is masked. Nothing here reads a clock; time comes in as an argument or through
//! [`decide::Tables`]. Nothing here knows aya, a socket buffer or a file.
//!
//! Byte order: an [`net::Addr`] holds the bytes of the wire; every other integer is in host order.
#![no_std]
#![cfg_attr(not(feature = "user"), forbid(unsafe_code))]

pub mod conntrack;
pub mod decide;
pub mod dns;
pub mod event;
pub mod grant;
pub mod ids;
pub mod judge;
pub mod maps;
pub mod net;
pub mod packet;
pub mod verdict;
pub mod work;

/// Version of everything that programs and agent exchange through pinned maps. It stands in the pin path, so
/// that an agent never adopts maps of another layout. Raise it with every change to [`maps`] or [`event`].
pub const ABI_VERSION: u32 = 3;
