//! Messages of a workload that knows its resolver by address only.

use std::sync::Arc;

use super::*;
use crate::learn::fixture::{answer as answer_message, event, query as query_message};
use crate::observe::join::tests::Nobody;
use crate::observe::known::Local;
use egret_common::net::Addr;
use egret_core::flow::{PolicyRef, Side};
use egret_core::policy::Rule;

/// As [`Nobody`], but the endpoint is one in audit mode.
struct Audit;

impl Known for Audit {
    fn endpoint(&self, id: u32) -> Option<Local> {
        Some(Local { side: Side { id, ..Side::default() }, audit: true, ..Local::default() })
    }
    fn owner(&self, address: IpAddr) -> Side {
        Nobody.owner(address)
    }
    fn names(&self, _: u32, _: IpAddr) -> Vec<String> {
        Vec::new()
    }
    fn rule(&self, _: u32) -> Option<(PolicyRef, &Rule)> {
        None
    }
    fn isolating(&self, _: u32, _: Direction) -> Vec<PolicyRef> {
        Vec::new()
    }
    fn trusts(&self, _: Addr, _: u16) -> bool {
        false
    }
    fn patterns(&self, _: u32) -> Vec<String> {
        Vec::new()
    }
}

fn common() -> Common {
    Common { node: Arc::default(), clock: 0 }
}

fn seen(direction: Direction, protocol: u8, flags: u8, message: &[u8]) -> Option<Flow> {
    let event = DnsEvent { flags, ..event(direction, protocol, 9) };
    flow(&event, message, &Nobody, &common())
}

#[test]
fn a_query_goes_out_and_its_answer_comes_back() {
    let asked = seen(Direction::Egress, proto::UDP, 0, &query_message(1, "api.example")).expect("a query");
    assert_eq!(
        (asked.event_type(), asked.is_reply, asked.verdict),
        ((129, 0), Some(false), Verdict::Forwarded)
    );
    assert_eq!(asked.l4, L4::Udp(40_000, 53));
    assert_eq!(asked.destination.ip, Some([10, 7, 0, 53].into()));
    assert_eq!(asked.summary, "DNS Query api.example. A");
    let message = answer_message(1, "api.example", &[[192, 0, 2, 1], [192, 0, 2, 2]]);
    let told = seen(Direction::Ingress, proto::TCP, 0, &message).expect("an answer");
    assert_eq!((told.is_reply, told.direction), (Some(true), Direction::Egress));
    assert_eq!(told.l4, L4::Tcp { ports: (53, 40_000), flags: 0 });
    assert_eq!(told.source.ip, Some([10, 7, 0, 53].into()));
    assert_eq!(told.summary, "DNS Answer \"192.0.2.1,192.0.2.2\" TTL: 60 (Kernel api.example. A)");
    let dns = told.dns.expect("DNS");
    assert_eq!((dns.rcode, dns.rrtypes.concat(), dns.cnames.len()), (0, "A".into(), 0));
    // No such name.
    let mut message = answer_message(1, "api.example", &[]);
    message[3] |= 3;
    let told = seen(Direction::Ingress, proto::UDP, 0, &message).expect("an answer");
    assert_eq!(told.summary, "DNS Answer RCode: Non-Existent Domain (Kernel api.example. A)");
}

#[test]
fn a_refused_query_is_a_drop_with_its_name() {
    let message = query_message(1, "evil.example");
    let refused = seen(Direction::Egress, proto::UDP, DNS_REFUSED, &message).expect("a query");
    assert_eq!(
        (refused.verdict, refused.hubble_reason(), refused.is_reply),
        (Verdict::Dropped, 133, Some(false))
    );
    assert_eq!(refused.summary, "DNS Query evil.example. A; QueryRefused");
    assert!(refused.why.as_deref().is_some_and(|why| why.starts_with("QueryRefused: ")));
    let event = DnsEvent { flags: DNS_REFUSED, ..event(Direction::Egress, proto::UDP, 9) };
    let audited = flow(&event, &message, &Audit, &common()).expect("a query");
    assert_eq!((audited.verdict, audited.hubble_reason()), (Verdict::Audited, 0));
}

#[test]
fn what_cannot_be_read_is_not_shown() {
    let message = query_message(1, "api.example");
    for len in 0..message.len() {
        assert!(seen(Direction::Egress, proto::UDP, 0, &message[..len]).is_none(), "{len}");
        assert!(seen(Direction::Ingress, proto::UDP, 0, &message[..len]).is_none(), "{len}");
    }
    assert!(seen(Direction::Ingress, proto::UDP, 0, &message).is_none(), "a query is no answer");
}

#[test]
fn types_have_their_names() {
    for (number, name) in [(1, "A"), (28, "AAAA"), (65, "HTTPS"), (255, "ANY"), (4242, "TYPE4242")] {
        assert_eq!(kind(number), name);
    }
}
