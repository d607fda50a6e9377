//! The scratch struct: message, name in two forms, cursor, and what was collected.

use crate::event::DnsEvent;

/// Bytes of a message that the kernel looks at; longer ones go to the agent.
pub const MSG_CAP: usize = 4096;
/// Bytes behind the message, so that a masked offset plus a constant stays inside.
const SLACK: usize = 64;
/// Addresses of one answer that the kernel takes; more go to the agent.
pub const ADDRESS_CAP: usize = 128;
/// CNAME records of one answer that the kernel follows.
pub(super) const EDGE_CAP: usize = 16;
/// Room for the key of `NAME_SUFFIX`: its start moves with the name's length.
pub const REV_CAP: usize = 4 + 256 + 264;

/// A name in lower-case wire order, zero padded: the key of `NAME_EXACT`.
#[repr(C, align(8))]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct WireName(pub [u8; crate::maps::NAME_CAP]);

/// Alias offset -> canonical offset of its target, with the record's TTL.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Edge {
    pub(super) from: u16,
    pub(super) to: u16,
    pub(super) ttl: u32,
}

/// Working memory of one scan. Map memory in the kernel; zero is a valid state.
#[repr(C, align(8))]
#[derive(Clone, Debug)]
pub struct Scratch {
    /// Head of the event that carries the message to the agent; `msg` follows it without a gap.
    pub event: DnsEvent,
    /// The message. Bytes behind `len` are left over from earlier ones.
    pub msg: [u8; MSG_CAP + SLACK],
    /// Key of `DNS_QUERIES` for the message at hand.
    pub query: crate::maps::QueryKey,
    /// The question's name, lower case, wire order.
    pub exact: WireName,
    /// The question's name as text, reversed, ending at a fixed place; see [`Scratch::suffix_key`].
    pub rev: [u8; REV_CAP],
    pub(super) edges: [Edge; EDGE_CAP],
    /// Offsets of address data; bit 15 set for IPv6.
    pub(super) addresses: [u16; ADDRESS_CAP],
    /// Bytes of the message.
    pub len: u32,
    pub(super) at: u32,
    /// Bytes of the question's name without the root.
    pub name_len: u32,
    /// Where the next byte of the reversed text goes. A counter of its own: computed from `name_len`, the compiler
    /// would subtract from the pointer, and the verifier lose its bounds.
    pub(super) rev_at: u32,
    pub(super) label_left: u32,
    /// Labels of the question's name.
    pub labels: u32,
    /// The name holds bytes that no policy can name.
    pub odd: u32,
    /// Hash of the question: lower-case name, type and class.
    pub question: u64,
    /// Type of the question.
    pub qtype: u32,
    /// Transaction id.
    pub txid: u32,
    /// Offset behind the question.
    pub(super) question_end: u32,
    pub(super) fault: u32,
    pub(super) slow: u32,
    pub(super) records_left: u32,
    pub(super) answers_left: u32,
    pub(super) edge_count: u32,
    /// Addresses collected.
    pub address_count: u32,
    pub(super) address_owner: u32,
    pub(super) chain_at: u32,
    pub(super) chain_index: u32,
    pub(super) chain_hops: u32,
    /// Least TTL along the chain of aliases, s.
    pub(super) chain_ttl: u32,
    pub(super) opt_seen: u32,
    pub(super) name_piece: u32,
    pub(super) name_limit: u32,
    pub(super) name_total: u32,
    pub(super) name_end: u32,
    pub(super) name_done: u32,
    pub(super) options_end: u32,
    /// Bytes of the packet before its network header, for the caller's own loops.
    pub base: u32,
    /// For the caller's own loops: where it is, from the network header on.
    pub cursor: u32,
    /// For the caller's own loops: where it ends.
    pub cursor_end: u32,
    /// For the caller's own loops: what it found.
    pub found: u32,
}

impl Scratch {
    /// A zeroed scratch.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            event: DnsEvent {
                time: 0,
                local: crate::net::Addr { hi: 0, lo: 0 },
                remote: crate::net::Addr { hi: 0, lo: 0 },
                question: 0,
                endpoint: 0,
                seq: 0,
                len: 0,
                full_len: 0,
                class: 0,
                pid: 0,
                local_port: 0,
                remote_port: 0,
                proto: 0,
                direction: 0,
                flags: 0,
                granted: 0,
                comm: [0; 16],
            },
            msg: [0; MSG_CAP + SLACK],
            query: crate::maps::QueryKey {
                flow: crate::maps::FlowKey {
                    local: crate::net::Addr { hi: 0, lo: 0 },
                    remote: crate::net::Addr { hi: 0, lo: 0 },
                    endpoint: 0,
                    local_port: 0,
                    remote_port: 0,
                    proto: 0,
                    pad: 0,
                },
                question: 0,
                txid: 0,
                pad: [0; 3],
            },
            exact: WireName([0; crate::maps::NAME_CAP]),
            rev: [0; REV_CAP],
            edges: [Edge { from: 0, to: 0, ttl: 0 }; EDGE_CAP],
            addresses: [0; ADDRESS_CAP],
            len: 0,
            at: 0,
            name_len: 0,
            rev_at: 0,
            label_left: 0,
            labels: 0,
            odd: 0,
            question: 0,
            qtype: 0,
            txid: 0,
            question_end: 0,
            fault: 0,
            slow: 0,
            records_left: 0,
            answers_left: 0,
            edge_count: 0,
            address_count: 0,
            address_owner: 0,
            chain_at: 0,
            chain_index: 0,
            chain_hops: 0,
            chain_ttl: 0,
            opt_seen: 0,
            name_piece: 0,
            name_limit: 0,
            name_total: 0,
            name_end: 0,
            name_done: 0,
            options_end: 0,
            base: 0,
            cursor: 0,
            cursor_end: 0,
            found: 0,
        }
    }

    /// A message byte; beyond the capacity it wraps, beyond `len` it is stale: callers check first.
    #[inline(always)]
    pub(super) fn byte(&self, at: u32) -> u8 {
        self.msg[(at & (MSG_CAP as u32 - 1)) as usize]
    }

    /// Big-endian 16 bits of the message.
    #[inline(always)]
    pub(super) fn be16(&self, at: u32) -> u32 {
        let at = (at & (MSG_CAP as u32 - 1)) as usize;
        (self.msg[at] as u32) << 8 | self.msg[at + 1] as u32
    }

    /// Big-endian 32 bits of the message.
    #[inline(always)]
    pub(super) fn be32(&self, at: u32) -> u32 {
        self.be16(at) << 16 | self.be16((at & (MSG_CAP as u32 - 1)) + 2)
    }

    /// Bytes at an offset, `N` at most 64.
    #[inline(always)]
    pub(super) fn bytes<const N: usize>(&self, at: u32) -> [u8; N] {
        let at = (at & (MSG_CAP as u32 - 1)) as usize;
        let mut out = [0; N];
        let mut i = 0;
        while i < N {
            out[i] = self.msg[at + i];
            i += 1;
        }
        out
    }

    /// True when a scanned answer holds aliases.
    #[inline(always)]
    #[must_use]
    pub fn has_aliases(&self) -> bool {
        self.edge_count != 0
    }

    /// Where the key of `NAME_SUFFIX` begins in `rev` (its four bytes of prefix length first) and that length in
    /// bits: the reversed text without the dot before the first label.
    #[inline(always)]
    #[must_use]
    pub fn suffix_key(&self) -> (u32, u32) {
        (256 - (self.name_len & 255), (self.name_len & 255).wrapping_sub(1).wrapping_mul(8))
    }
}

impl Default for Scratch {
    fn default() -> Self {
        Self::new()
    }
}
