//! Connections that are over: found in the kernel's table, told to whoever observes.

use egret_common::conntrack::idle_limit;
use egret_common::event::{ClockReading, FlowEvent};
use egret_common::maps::{FLOW_DNS, FlowEntry, FlowKey};
use egret_common::net::proto;
use egret_common::verdict::Verdict;
use egret_core::flow::Passed;

use super::keeper::Keeper;

/// Ends that are told of at a time; the others are counted as lost.
const MOST: usize = 4096;
/// Type of an echo request, which the table does not keep.
const ECHO: [(u8, u16); 2] = [(proto::ICMP, 8 << 8), (proto::ICMPV6, 128 << 8)];

impl Keeper {
    /// Tells of the flows that have ended since the last time: those whose last packet is as long ago as their state allows.
    /// One that made room for others, or whose ports were taken by a new one, has ended unseen.
    pub(super) fn tell_ends(&mut self) {
        let Ok(clock) = self.datapath.clock() else { return };
        let hz = u64::from(self.datapath.hz());
        let since = self.swept.replace(clock.jiffies).unwrap_or(clock.jiffies);
        let mut missed = 0;
        let mut ends = Vec::new();
        self.datapath.each_flow(|key, entry| {
            let over = entry.value.last_seen + u64::from(idle_limit(entry.value.state)) * hz;
            // Queries are counted before they are read. Where nothing came back, they may all have been refused.
            let silent = entry.value.flags & FLOW_DNS != 0 && entry.traffic.packets_received == 0;
            if over <= since || over > clock.jiffies || silent {
                return;
            }
            match ends.len() < MOST {
                true => ends.push(end(key, entry, clock, hz)),
                false => missed += 1,
            }
        });
        self.show_ends(&ends, missed);
    }
}

/// The end as a record would have it, and what has passed. Its time is now: whoever reads flows since some time expects them in
/// the order of their times, and the last packet is up to two hours ago.
fn end(key: &FlowKey, entry: &FlowEntry, clock: ClockReading, hz: u64) -> (FlowEvent, Passed) {
    let (value, traffic) = (&entry.value, &entry.traffic);
    let protocol = key.proto as u8;
    let echo = ECHO.iter().find(|(icmp, _)| *icmp == protocol);
    let event = FlowEvent {
        time: clock.boot_ns,
        local: key.local,
        remote: key.remote,
        endpoint: key.endpoint,
        set: value.set,
        class: value.class,
        cookie: value.cookie,
        age: 0,
        pid: 0,
        len: 0,
        local_port: key.local_port,
        remote_port: echo.map_or(key.remote_port, |(_, request)| *request),
        proto: protocol,
        direction: value.origin,
        verdict: if value.reason == 0 { Verdict::Forwarded } else { Verdict::Audited } as u8,
        reason: value.reason,
        tcp_flags: 0,
        comm: [0; 16],
    };
    let lasted = value.last_seen.saturating_sub(traffic.began).saturating_mul(1000) / hz.max(1);
    let sent = (traffic.packets_sent.into(), traffic.sent);
    let received = (traffic.packets_received.into(), traffic.received);
    (event, Passed { sent, received, lasted })
}

#[cfg(test)]
mod tests {
    use egret_common::maps::{FlowValue, Traffic};
    use egret_common::net::Addr;

    use super::*;

    #[test]
    fn an_end_has_the_sums_of_its_flow() {
        let key = FlowKey {
            local: Addr::from_v4([10, 0, 0, 1]),
            remote: Addr::from_v4([192, 0, 2, 1]),
            endpoint: 7,
            local_port: 40_000,
            remote_port: 443,
            proto: proto::TCP.into(),
            pad: 0,
        };
        let value = FlowValue { last_seen: 5_000, class: 9, origin: 1, ..FlowValue::default() };
        let traffic =
            Traffic { began: 3_750, sent: 100, received: 2_000, packets_sent: 2, packets_received: 3 };
        let clock = ClockReading { jiffies: 6_000, boot_ns: 60_000_000_000 };
        let (event, passed) = end(&key, &FlowEntry { value, traffic }, clock, 250);
        assert_eq!((event.time, event.endpoint, event.class), (60_000_000_000, 7, 9));
        assert_eq!((event.local_port, event.remote_port, event.verdict), (40_000, 443, 1));
        assert_eq!(passed.to_string(), "sent 2 packets, 100 bytes; received 3 packets, 2000 bytes; 5.000 s");
        let echo = FlowKey { proto: proto::ICMP.into(), local_port: 77, remote_port: 0, ..key };
        let audited = FlowValue { reason: 1, ..value };
        let (event, _) = end(&echo, &FlowEntry { value: audited, traffic }, clock, 250);
        assert_eq!((event.remote_port, event.verdict, event.reason), (8 << 8, 4, 1));
    }
}
