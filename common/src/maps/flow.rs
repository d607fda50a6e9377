//! The flow table, and the ports of fragmented datagrams.

use crate::ids::{ClassId, EndpointId, SetId};
use crate::net::Addr;

/// Key of `FLOWS`: one entry per flow, one key for both directions.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct FlowKey {
    /// The endpoint's address.
    pub local: Addr,
    /// The peer's address.
    pub remote: Addr,
    /// The endpoint.
    pub endpoint: EndpointId,
    /// The endpoint's port; for ICMP echo the identifier.
    pub local_port: u16,
    /// The peer's port; for ICMP echo 0.
    pub remote_port: u16,
    /// IP protocol in the low byte.
    pub proto: u32,
    /// Zero.
    pub pad: u32,
}

/// Value of `FLOWS`.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct FlowEntry {
    /// What judges the flow's packets.
    pub value: FlowValue,
    /// What has passed. Apart from the rest: it is counted where it lies.
    pub traffic: Traffic,
}

/// Packets of a flow that passed, and their bytes from the network header on. Packets are
/// counted modulo 2^32, and DNS queries before they are read: refused ones as well.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Traffic {
    /// Jiffies of the first packet.
    pub began: u64,
    /// Bytes in the direction of the first packet.
    pub sent: u64,
    /// Bytes in the other one.
    pub received: u64,
    /// Packets in the direction of the first packet.
    pub packets_sent: u32,
    /// Packets in the other one.
    pub packets_received: u32,
}

/// State of a flow.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct FlowValue {
    /// Jiffies of the last packet.
    pub last_seen: u64,
    /// Rule set that judged the flow; another set of the endpoint means: judge again.
    pub set: SetId,
    /// The class that allowed it.
    pub class: ClassId,
    /// The rule that allowed it.
    pub cookie: u32,
    /// [`crate::conntrack`] state.
    pub state: u8,
    /// [`crate::net::Direction`] of the first packet.
    pub origin: u8,
    /// `FLOW_*` bits.
    pub flags: u8,
    /// Audit: the reason for which it would have been dropped; else 0.
    pub reason: u8,
    /// DNS over TCP: sequence number at which the announced message must begin.
    pub dns_seq: u32,
    /// DNS over TCP: length of the announced message; 0 = none announced.
    pub dns_len: u16,
    /// DNS over TCP: 1 once the announced message has passed.
    pub dns_passed: u16,
}

/// The flow carries DNS: its queries are filtered where the endpoint filters.
pub const FLOW_DNS: u8 = 1;
/// The flow's resolver is trusted: its answers are learned.
pub const FLOW_TRUSTED: u8 = 2;

/// Key of `FRAGMENTS`.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct FragmentKey {
    /// Source.
    pub src: Addr,
    /// Destination.
    pub dst: Addr,
    /// IPv4 identification or IPv6 fragment identification.
    pub id: u32,
    /// IP protocol.
    pub proto: u32,
}

/// Value of `FRAGMENTS`: the ports of the first fragment.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct FragmentPorts {
    /// Source port.
    pub sport: u16,
    /// Destination port.
    pub dport: u16,
}
