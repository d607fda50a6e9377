//! Drop reasons and verdicts: one list, stable numbers, never reused. Counters, events, reports, metrics and
//! Hubble's drop codes are all derived from it.

macro_rules! drop_reasons {
    ($($(#[doc = $doc:literal])+ $name:ident = $n:literal, hubble $h:literal;)+) => {
        /// Why a packet, a connect or a DNS query was not let through.
        #[repr(u8)]
        #[derive(Clone, Copy, PartialEq, Eq, Debug, Hash, PartialOrd, Ord)]
        pub enum DropReason { $($(#[doc = $doc])+ $name = $n,)+ }

        impl DropReason {
            /// Every reason, in the order of the numbers.
            pub const ALL: &'static [Self] = &[$(Self::$name,)+];

            /// The stable name, as reports and metrics print it.
            #[must_use]
            pub const fn name(self) -> &'static str { match self { $(Self::$name => stringify!($name),)+ } }

            /// One sentence for an operator.
            #[must_use]
            pub const fn explanation(self) -> &'static str { match self { $(Self::$name => concat!($($doc),+),)+ } }

            /// The number in Hubble's DropReason enumeration.
            #[must_use]
            pub const fn hubble(self) -> u32 { match self { $(Self::$name => $h,)+ } }

            /// From the number in a counter or record.
            #[must_use]
            pub const fn from_u8(n: u8) -> Option<Self> { match n { $($n => Some(Self::$name),)+ _ => None } }
        }
    };
}

drop_reasons! {
    /// No rule allows this destination.
    NoRule = 1, hubble 133;
    /// A deny rule matches.
    DenyRule = 2, hubble 181;
    /// Rules by name allow this port, but this workload was never told this address under an allowed name.
    NameUnresolved = 3, hubble 133;
    /// The address was learned under an allowed name, but the answer's lifetime is over.
    NameExpired = 4, hubble 133;
    /// The address is known under an allowed name, but that name's rules do not open this port or protocol.
    NamePortMismatch = 5, hubble 133;
    /// A backend of this Service is not allowed.
    ServiceBackendDenied = 6, hubble 133;
    /// The name in the DNS query is not on the list; the query did not leave this machine.
    QueryRefused = 7, hubble 133;
    /// The address is one that no name may open, whatever a DNS answer says (loopback, link-local, multicast, unspecified).
    ForbiddenAnswerAddress = 8, hubble 133;
    /// The packet's cgroup or interface belongs to no known endpoint.
    UnknownEndpoint = 9, hubble 203;
    /// The packet is cut short or contradicts itself.
    InvalidPacket = 10, hubble 134;
    /// The endpoint sent with a source address that is not its own.
    InvalidSource = 11, hubble 132;
    /// The protocol is not one that Egret can judge.
    UnsupportedProtocol = 12, hubble 142;
    /// A later fragment came without its first one, so its ports are unknown.
    FragmentUnknown = 13, hubble 175;
    /// The IPv6 extension headers are too long, unknown, or reroute the packet.
    ExtensionHeaders = 14, hubble 156;
    /// A kernel table is full, so the address could not be learned.
    MapFull = 15, hubble 155;
    /// The packet does not fit the state of its connection.
    FlowInvalid = 16, hubble 135;
}

/// Reason number 0 in counters and records: the packet was let through.
pub const FORWARDED: u8 = 0;
/// Slots per direction in the counters; reason numbers stay below it.
pub const REASON_SLOTS: u32 = 32;

/// What was done with a packet; the numbers are Hubble's verdicts.
#[repr(u8)]
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash, PartialOrd, Ord)]
pub enum Verdict {
    /// Let through.
    Forwarded = 1,
    /// Held back.
    Dropped = 2,
    /// Let through because the endpoint is in audit mode; enforcing, it would have been dropped.
    Audited = 4,
}
