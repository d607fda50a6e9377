//! `--verbose`: each denial in a line when it happens.

use egret_common::event::{DNS_REFUSED, DnsEvent, FlowEvent};
use egret_common::verdict::{DropReason, Verdict};

use super::report::rows::{process, protocol};
use crate::learn::{Learner, ip, socket};
use crate::tell;

/// A verdict.
pub(super) fn denial(event: &FlowEvent, learner: &Learner) {
    let reason = DropReason::from_u8(event.reason).map_or("Unknown", DropReason::name);
    if reason == DropReason::QueryRefused.name() {
        // Its record of DNS_EVENTS knows the name.
        return;
    }
    let verb = if event.verdict == Verdict::Audited as u8 { "would deny" } else { "denied" };
    let names: Vec<&str> = learner.told().names(ip(event.remote)).map(|(name, _)| name).collect();
    let names = if names.is_empty() { String::new() } else { format!(" ({})", names.join(", ")) };
    let target = socket(event.remote, event.remote_port);
    let (proto, who) = (protocol(event.proto), who(&event.comm, event.pid));
    tell::line(format_args!("{verb} {proto} {target}{names}{who}: {reason}"));
}

/// A refused query.
pub(super) fn query(event: &DnsEvent, learner: &Learner) {
    if event.flags & DNS_REFUSED != 0
        && let Some(refused) = learner.refused(event.question)
    {
        tell::line(format_args!("refused the look-up of {}{}", refused.text, who(&event.comm, event.pid)));
    }
}

fn who(comm: &[u8; 16], pid: u32) -> String {
    if pid == 0 { String::new() } else { format!(" by {}[{pid}]", process(comm)) }
}
