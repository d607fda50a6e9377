//! What a record or a flow entry says about a connection.

use egret_common::conntrack::{CLOSING, SYN_SENT, UNANSWERED, idle_limit};
use egret_common::event::FlowEvent;
use egret_common::maps::FlowValue;
use egret_common::net::{Direction, proto, tcp};
use egret_common::verdict::{DropReason, Verdict};

/// A DNS query over TCP that was dropped: its client would wait for an answer.
pub fn refused_stream(event: &FlowEvent) -> bool {
    event.proto == proto::TCP
        && event.reason == DropReason::QueryRefused as u8
        && event.verdict == Verdict::Dropped as u8
}

/// The first packet of a connection, dropped without a word.
pub fn silent_connect(event: &FlowEvent) -> bool {
    event.proto == proto::TCP
        && event.direction == Direction::Egress as u8
        && event.verdict == Verdict::Dropped as u8
        && event.local_port != 0
        && event.tcp_flags as u8 & (tcp::SYN | tcp::ACK) == tcp::SYN
}

/// Whether a flow is a connection in use: answered, not closing, not idle for too long.
pub fn is_live(flow: &FlowValue, jiffies: u64, hz: u64) -> bool {
    let idle = jiffies.saturating_sub(flow.last_seen) / hz.max(1);
    !matches!(flow.state, CLOSING | SYN_SENT | UNANSWERED) && idle < u64::from(idle_limit(flow.state))
}
