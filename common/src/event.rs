//! Records of the ring buffers `FLOW_EVENTS` and `DNS_EVENTS`. Written by programs, decoded by the agent.

use crate::ids::{ClassId, EndpointId, SetId};
use crate::net::Addr;

/// One new-flow verdict or drop.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FlowEvent {
    /// Boot time, ns.
    pub time: u64,
    /// The endpoint's address; zero at the connect hooks, where it is not known yet.
    pub local: Addr,
    /// The peer's address.
    pub remote: Addr,
    /// The endpoint.
    pub endpoint: EndpointId,
    /// Set that judged.
    pub set: SetId,
    /// Class that decided.
    pub class: ClassId,
    /// Rule that decided.
    pub cookie: u32,
    /// NameExpired: seconds since the lifetime ended.
    pub age: u32,
    /// Process that made the socket; 0 = unknown.
    pub pid: u32,
    /// Bytes from the network header on.
    pub len: u32,
    /// The endpoint's port.
    pub local_port: u16,
    /// The peer's port, or ICMP type << 8 | code.
    pub remote_port: u16,
    /// IP protocol.
    pub proto: u8,
    /// [`crate::net::Direction`].
    pub direction: u8,
    /// [`crate::verdict::Verdict`].
    pub verdict: u8,
    /// [`crate::verdict::DropReason`], or 0.
    pub reason: u8,
    /// TCP flags of the packet.
    pub tcp_flags: u32,
    /// Name of the process.
    pub comm: [u8; 16],
}

/// Head of a record of `DNS_EVENTS`; `len` payload bytes follow.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct DnsEvent {
    /// Boot time, ns.
    pub time: u64,
    /// The endpoint's address.
    pub local: Addr,
    /// The resolver's address.
    pub remote: Addr,
    /// Hash of the question as the kernel computed it; 0 = not parsed.
    pub question: u64,
    /// The endpoint.
    pub endpoint: EndpointId,
    /// TCP: sequence number of the first payload byte.
    pub seq: u32,
    /// Payload bytes that follow.
    pub len: u32,
    /// Payload bytes of the packet; more than `len` when the packet was too large to copy.
    pub full_len: u32,
    /// Name class of the question; 0 = none.
    pub class: ClassId,
    /// Process that made the socket; 0 = unknown.
    pub pid: u32,
    /// The endpoint's port.
    pub local_port: u16,
    /// The resolver's port.
    pub remote_port: u16,
    /// IP protocol.
    pub proto: u8,
    /// [`crate::net::Direction`]: egress = query, ingress = answer.
    pub direction: u8,
    /// `DNS_*` bits.
    pub flags: u8,
    /// Addresses that the kernel granted.
    pub granted: u8,
    /// Name of the process.
    pub comm: [u8; 16],
}

/// The answer matches a question that this endpoint asked.
pub const DNS_ASKED: u8 = 1;
/// The kernel has learned everything there is to learn: for the agent this is information only.
pub const DNS_LEARNED: u8 = 2;
/// The kernel proved nothing: the agent's parser decides.
pub const DNS_SLOW: u8 = 4;
/// The query was refused (or, in audit mode, would have been).
pub const DNS_REFUSED: u8 = 8;
/// The payload is a piece of a TCP stream, not a message.
pub const DNS_SEGMENT: u8 = 16;
/// The resolver is trusted.
pub const DNS_TRUSTED: u8 = 32;

const _: () = {
    assert!(size_of::<FlowEvent>() == 96 && size_of::<DnsEvent>() == 96);
};

/// Request of the agent to the grant program, behind 14 bytes of Ethernet header.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct GrantRequest {
    /// The address.
    pub addr: Addr,
    /// The workload.
    pub endpoint: EndpointId,
    /// Name class; unused when sweeping.
    pub class: ClassId,
    /// Put: until when. Sweep: only if every slot expired before. Ticks ([`crate::grant`]). Settle: jiffies.
    pub expires: u32,
    /// `GRANT_*`.
    pub op: u32,
}

/// Add or prolong.
pub const GRANT_PUT: u32 = 1;
/// Remove when expired.
pub const GRANT_SWEEP: u32 = 2;
/// No answer is on its way through the agent any more, unless one came since `EndpointState::pending_until` was what
/// `expires` says (its low half).
pub const GRANT_SETTLE: u32 = 3;

/// Answer of the clock program, in the same place.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ClockReading {
    /// Kernel ticks.
    pub jiffies: u64,
    /// Boot time, ns.
    pub boot_ns: u64,
}

/// Where request and answer stand in the packet.
pub const CLOCK_AT: usize = 14;
