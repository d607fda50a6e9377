//! States of a flow and how a packet changes them: a pure function of state, direction and TCP flags.

use crate::net::{proto, tcp};

/// TCP: a SYN was seen, no answer yet.
pub const SYN_SENT: u8 = 1;
/// TCP: both sides have spoken, or the flow was met midway.
pub const ESTABLISHED: u8 = 2;
/// TCP: a FIN or RST was seen.
pub const CLOSING: u8 = 3;
/// Datagrams in one direction only.
pub const UNANSWERED: u8 = 4;
/// Datagrams in both directions.
pub const ANSWERED: u8 = 5;
/// ICMP echo.
pub const ECHO: u8 = 6;

/// State of a flow that begins with this packet.
#[inline(always)]
#[must_use]
pub const fn initial(protocol: u8, tcp_flags: u8) -> u8 {
    match protocol {
        proto::TCP if tcp_flags & tcp::SYN != 0 => SYN_SENT,
        proto::TCP => ESTABLISHED,
        proto::ICMP | proto::ICMPV6 => ECHO,
        _ => UNANSWERED,
    }
}

/// State after a packet. `reply`: the packet goes against the direction of the first one.
#[inline(always)]
#[must_use]
pub const fn transition(state: u8, reply: bool, tcp_flags: u8) -> u8 {
    match state {
        SYN_SENT | ESTABLISHED if tcp_flags & (tcp::FIN | tcp::RST) != 0 => CLOSING,
        SYN_SENT if reply && tcp_flags & tcp::ACK != 0 => ESTABLISHED,
        UNANSWERED if reply => ANSWERED,
        other => other,
    }
}

/// Seconds without a packet after which a flow in this state is over (RFC 5382 REQ-5 for TCP).
#[inline(always)]
#[must_use]
pub const fn idle_limit(state: u8) -> u32 {
    match state {
        SYN_SENT | UNANSWERED => 60,
        ESTABLISHED => 2 * 3600 + 4 * 60,
        CLOSING => 10,
        ANSWERED => 180,
        _ => 30,
    }
}

/// A TCP packet that opens a connection: SYN without ACK.
#[inline(always)]
#[must_use]
pub const fn opens(protocol: u8, tcp_flags: u8) -> bool {
    protocol == proto::TCP && tcp_flags & (tcp::SYN | tcp::ACK | tcp::RST | tcp::FIN) == tcp::SYN
}
