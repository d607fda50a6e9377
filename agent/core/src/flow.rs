//! Flows: what was seen of a connection, a packet or a DNS message, in the words of Hubble's API.
//!
//! ```text
//!  records ──(shell joins)──> Flow ─┬─Ring::push──> Ring ──Reader::step, Filters──> whoever asks
//!                                   └─Meter::count──> Family ──rows──> Hubble's metrics
//! ```
//! Owns: the value, its one line of text, the [`Ring`] of the newest ones, which of them a [`Reader`] gets,
//! [`Filters`], and the [`Meter`]. Must not know: records of the kernel, protobuf, clocks: time is an argument, in nanoseconds since 1970.

mod filter;
mod meter;
mod ring;
mod select;
mod summary;
mod tally;

use std::{fmt, net::IpAddr, sync::Arc, time::Duration};

use egret_common::{
    net::Direction,
    verdict::{DropReason, Verdict},
};

pub use filter::{EventTypeFilter, FilterError, Filters, FlowFilter, Interface, SideFilter, Workload};
pub use meter::{Config as MeterConfig, ConfigError as MeterError, Family, Meter, Row};
pub use ring::{Entry, Lost, LostSource, Ring, RingError};
pub use select::{Next, Query, QueryError, Reader};
pub use summary::summary;
pub use tally::Tally;

/// The name that Cilium gives to a cluster of its own.
pub const CLUSTER: &str = "default";
/// TCP flags beyond the byte that packets carry: nonce sum (RFC 3540).
pub const TCP_NS: u16 = 0x100;

/// Subtype of traces: on its way from the endpoint to the network.
const TO_STACK: u32 = 3;

/// What has passed of a connection that is over.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Passed {
    /// Packets and bytes, from the network header on, in the direction of the first packet.
    pub sent: (u64, u64),
    /// The same in the other one.
    pub received: (u64, u64),
    /// Milliseconds between the first packet and the last.
    pub lasted: u64,
}

impl fmt::Display for Passed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { sent, received, lasted } = self;
        let seconds = (lasted / 1000, lasted % 1000);
        write!(
            f,
            "sent {} packets, {} bytes; received {} packets, {} bytes; ",
            sent.0, sent.1, received.0, received.1
        )?;
        write!(f, "{}.{:03} s", seconds.0, seconds.1)
    }
}

/// What an event is about. The numbers are Hubble's event types.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Kind {
    /// A packet was dropped.
    Drop = 1,
    /// A connection is over: what has passed.
    End = 4,
    /// The first packet of a connection was judged.
    Verdict = 5,
    /// A DNS message.
    L7 = 129,
}

/// One event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Flow {
    /// Nanoseconds since 1970.
    pub time: u64,
    /// Another one for every flow.
    pub uuid: u128,
    /// What it is about.
    pub kind: Kind,
    /// What was done.
    pub verdict: Verdict,
    /// Why it was not let through, or in audit mode would not have been.
    pub reason: Option<DropReason>,
    /// The direction of the connection, seen from the endpoint that this was seen at.
    pub direction: Direction,
    /// Who sent the packet.
    pub source: Side,
    /// To whom.
    pub destination: Side,
    /// Ports and flags.
    pub l4: L4,
    /// The DNS message.
    pub dns: Option<Dns>,
    /// The packet goes against the direction of its connection; `None`: it has no connection.
    pub is_reply: Option<bool>,
    /// What the deciding rule was about; only of verdicts.
    pub matched: Option<Match>,
    /// The policies that allowed it.
    pub allowed_by: Vec<PolicyRef>,
    /// The policies that denied it; where no rule matched, those that make the direction deny by default.
    pub denied_by: Vec<PolicyRef>,
    /// The reason as a sentence with its facts, the name of the reason first.
    pub why: Option<String>,
    /// The line that [`summary`] makes.
    pub summary: String,
    /// The host's side of the endpoint's interface.
    pub interface: Option<Interface>,
    /// Where this was seen.
    pub node: Arc<NodeInfo>,
}

/// The node.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct NodeInfo {
    /// Its name.
    pub name: String,
    /// Its labels as `key=value`.
    pub labels: Vec<String>,
}

/// One end of a flow.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Side {
    /// Its address; `None`: not known yet, at the connect hooks.
    pub ip: Option<IpAddr>,
    /// Number of the endpoint on this node; 0: none.
    pub id: u32,
    /// Number of its identity.
    pub identity: u32,
    /// Namespace of the pod.
    pub namespace: String,
    /// Name of the pod.
    pub pod: String,
    /// Identity labels with their source: `k8s:app=web`, `reserved:world`.
    pub labels: Arc<[String]>,
    /// What the pod belongs to.
    pub workloads: Vec<Workload>,
    /// The names that the other side was told for the address: lower case, without the final dot.
    pub names: Vec<String>,
    /// The Service whose address it is.
    pub service: Option<ServiceRef>,
}

/// A Service.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ServiceRef {
    /// Namespace.
    pub namespace: String,
    /// Name.
    pub name: String,
}

/// A policy object.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct PolicyRef {
    /// Kind of the object.
    pub kind: String,
    /// Namespace; empty where the kind has none.
    pub namespace: String,
    /// Name.
    pub name: String,
    /// Counts the changes of what is enforced.
    pub revision: u64,
}

/// The transport's header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum L4 {
    /// TCP.
    Tcp {
        /// Ports of source and destination.
        ports: (u16, u16),
        /// Flags as in the header, and [`TCP_NS`].
        flags: u16,
    },
    /// UDP: ports of source and destination.
    Udp(u16, u16),
    /// SCTP: ports of source and destination.
    Sctp(u16, u16),
    /// ICMP for IPv4: type and code.
    Icmpv4(u8, u8),
    /// ICMPv6: type and code.
    Icmpv6(u8, u8),
    /// Another protocol: its IP number.
    Other(u8),
}

impl L4 {
    /// Ports of source and destination, where there are any.
    #[must_use]
    pub fn ports(self) -> Option<(u16, u16)> {
        match self {
            Self::Tcp { ports, .. } => Some(ports),
            Self::Udp(source, destination) | Self::Sctp(source, destination) => Some((source, destination)),
            Self::Icmpv4(..) | Self::Icmpv6(..) | Self::Other(_) => None,
        }
    }
}

/// A DNS message.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Dns {
    /// An answer.
    pub response: bool,
    /// The name asked for, with its final dot.
    pub query: String,
    /// Types asked for.
    pub qtypes: Vec<String>,
    /// Addresses of the answer.
    pub ips: Vec<IpAddr>,
    /// Seconds that the answer holds.
    pub ttl: u32,
    /// Aliases of the answer.
    pub cnames: Vec<String>,
    /// Response code.
    pub rcode: u16,
    /// Types of the records of the answer.
    pub rrtypes: Vec<String>,
    /// Of an answer: the time since its query; `None`: that was not seen.
    pub latency: Option<Duration>,
}

/// What the deciding rule was about. The numbers are Hubble's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Match {
    /// No rule matched.
    None = 0,
    /// Peers, at every port.
    L3Only = 1,
    /// Peers, at some ports.
    L3L4 = 2,
    /// Everybody, at some ports.
    L4Only = 3,
    /// Everybody, at every port.
    All = 4,
    /// Peers, by one protocol.
    L3Proto = 5,
    /// Everybody, by one protocol.
    ProtoOnly = 6,
}

impl Match {
    /// The word of Hubble's output.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::L3Only => "L3-Only",
            Self::L3L4 => "L3-L4",
            Self::L4Only => "L4-Only",
            Self::All => "all",
            Self::L3Proto => "L3-Proto",
            Self::ProtoOnly => "Proto-Only",
        }
    }
}

impl Flow {
    /// What was seen between these two at this time, and passed. Everything else is for the caller to say.
    #[must_use]
    pub fn new(
        kind: Kind,
        time: u64,
        direction: Direction,
        (source, destination): (Side, Side),
        l4: L4,
    ) -> Self {
        Self {
            time,
            uuid: 0,
            kind,
            verdict: Verdict::Forwarded,
            reason: None,
            direction,
            source,
            destination,
            l4,
            dns: None,
            is_reply: None,
            matched: None,
            allowed_by: Vec::new(),
            denied_by: Vec::new(),
            why: None,
            summary: String::new(),
            interface: None,
            node: Arc::default(),
        }
    }

    /// Event type and subtype in Hubble's numbers.
    #[must_use]
    pub fn event_type(&self) -> (i32, i32) {
        let sub = match self.kind {
            Kind::Drop => self.hubble_reason(),
            // Where the packets were seen: on their way from the endpoint, or to it.
            Kind::End if self.direction == Direction::Egress => TO_STACK,
            Kind::End | Kind::Verdict | Kind::L7 => 0,
        };
        (self.kind as i32, i32::try_from(sub).unwrap_or_default())
    }

    /// The drop reason's number in Hubble's enumeration; 0: not dropped.
    #[must_use]
    pub fn hubble_reason(&self) -> u32 {
        let dropped = self.reason.filter(|_| self.verdict == Verdict::Dropped);
        dropped.map_or(0, DropReason::hubble)
    }

    /// 1 or 2 as the addresses are; 0: there are none.
    #[must_use]
    pub fn ip_version(&self) -> i32 {
        match self.source.ip.or(self.destination.ip) {
            Some(IpAddr::V4(_)) => 1,
            Some(IpAddr::V6(_)) => 2,
            None => 0,
        }
    }

    /// The direction in Hubble's numbers.
    #[must_use]
    pub fn traffic_direction(&self) -> i32 {
        match self.direction {
            Direction::Ingress => 1,
            Direction::Egress => 2,
        }
    }

    /// The [`Flow::uuid`] as text.
    #[must_use]
    pub fn uuid_text(&self) -> String {
        let hex = format!("{:032x}", self.uuid);
        let parts = [&hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..]];
        parts.join("-")
    }
}

#[cfg(test)]
mod tests;
