//! What is sent can be read again, whole.

use super::*;
use crate::observe::message;

/// A flow in which nothing is left out.
pub(crate) fn full() -> Flow {
    let side = |last: u8, name: &str| Side {
        ip: Some(IpAddr::from([192, 0, 2, last])),
        id: u32::from(last),
        identity: 300 + u32::from(last),
        namespace: "shop".into(),
        pod: name.into(),
        labels: vec![format!("k8s:app={name}"), "k8s:x=y".into()].into(),
        workloads: vec![Workload { name: name.into(), kind: "Deployment".into() }],
        names: vec![format!("{name}.example")],
        service: Some(ServiceRef { namespace: "front".into(), name: name.into() }),
    };
    let policy = |name: &str| PolicyRef {
        kind: "CiliumNetworkPolicy".into(),
        namespace: "shop".into(),
        name: name.into(),
        revision: 7,
    };
    Flow {
        time: 1_764_601_802_123_456_789,
        uuid: 0x0123_4567_89ab_cdef_0123_4567_89ab_cdef,
        kind: Kind::Verdict,
        verdict: Verdict::Dropped,
        reason: Some(DropReason::NameExpired),
        direction: Direction::Egress,
        source: side(1, "web"),
        destination: side(2, "api"),
        l4: L4::Tcp { ports: (40_000, 443), flags: 0x112 },
        dns: None,
        is_reply: None,
        matched: Some(Match::L3L4),
        allowed_by: vec![policy("a")],
        denied_by: vec![policy("b"), policy("c")],
        why: Some("NameExpired: The address was learned. It expired 31 s ago.".into()),
        summary: "TCP Flags: SYN, ACK, NS; NameExpired 31 s ago".into(),
        interface: Some(Interface { index: 9, name: "veth9".into() }),
        node: Arc::new(NodeInfo { name: "n1".into(), labels: vec!["zone=a".into()] }),
    }
}

#[track_caller]
fn check(change: impl FnOnce(&mut Flow)) {
    let mut want = full();
    change(&mut want);
    assert_eq!(flow(&message::flow(&want)), Ok(want));
}

#[test]
fn what_is_sent_can_be_read() {
    check(|_| {});
    check(|f| f.direction = Direction::Ingress);
    check(|f| (f.verdict, f.is_reply) = (Verdict::Audited, Some(false)));
    check(|f| {
        (f.verdict, f.reason, f.why) = (Verdict::Forwarded, None, None);
        f.summary = "TCP Flags: SYN".into();
    });
    check(|f| (f.kind, f.matched, f.l4) = (Kind::Drop, None, L4::Udp(1, 65_535)));
    for l4 in [L4::Sctp(5, 6), L4::Icmpv4(8, 0), L4::Icmpv6(128, 255)] {
        check(|f| f.l4 = l4);
    }
    check(|f| (f.l4, f.summary) = (L4::Other(47), "IP protocol 47; UnsupportedProtocol".into()));
    check(|f| (f.source, f.destination.ip) = (Side::default(), Some("2001:db8::1".parse().expect("one"))));
    check(|f| {
        (f.kind, f.matched, f.verdict, f.reason, f.why) = (Kind::L7, None, Verdict::Forwarded, None, None);
        f.summary = "DNS Answer".into();
        f.dns = Some(Dns {
            response: true,
            query: "a.example.".into(),
            qtypes: vec!["A".into()],
            ips: vec![[192, 0, 2, 9].into(), "2001:db8::9".parse().expect("one")],
            ttl: 60,
            cnames: vec!["b.example.".into()],
            rcode: 3,
            rrtypes: vec!["CNAME".into(), "A".into()],
            latency: Some(Duration::from_micros(7)),
        });
    });
    for matched in [Match::None, Match::L3Only, Match::L4Only, Match::All, Match::L3Proto, Match::ProtoOnly] {
        check(|f| f.matched = Some(matched));
    }
    for reason in DropReason::ALL {
        check(|f| (f.reason, f.why) = (Some(*reason), Some(format!("{}: x", reason.name()))));
    }
}

#[test]
fn the_reason_is_the_one_that_was_named() {
    let check = |log: &[&str], summary: &str, want: Option<DropReason>| {
        let policy_log = log.iter().map(|text| (*text).to_owned()).collect();
        let flow = wire::Flow { verdict: 4, policy_log, summary: summary.into(), ..Default::default() };
        assert_eq!(reason(&wire::Flow { verdict: 1, ..flow.clone() }), None);
        assert_eq!(reason(&flow), want, "{log:?} {summary:?}");
    };
    check(&["NoRule: No rule."], "TCP Flags: SYN; NameExpired 3 s ago", Some(DropReason::NoRule));
    check(&[], "TCP Flags: SYN; NameExpired 3 s ago", Some(DropReason::NameExpired));
    check(&["log of a rule"], "UDP; InvalidPacket", Some(DropReason::InvalidPacket));
    check(&["norule: x"], "UDP", None);
    // A name that somebody asked for is not the end of the line.
    check(&[], "DNS Query a; NoRule. A", None);
    check(&[], "DNS Query a; NoRule b. A", None);
    check(&[], "", None);
    // Not Egret's: the number has to do.
    let other = wire::Flow {
        verdict: 2,
        drop_reason_desc: 181,
        event_type: Some(wire::CiliumEventType { r#type: 1, sub_type: 181 }),
        ..Default::default()
    };
    assert_eq!(flow(&other).expect("a flow").reason, Some(DropReason::DenyRule));
    assert_eq!(flow(&wire::Flow { verdict: 1, ..other }).expect("a flow").reason, None);
}

#[test]
fn what_egret_does_not_have_is_told() {
    let of = |number, verdict| {
        let event_type = Some(wire::CiliumEventType { r#type: number, sub_type: 0 });
        flow(&wire::Flow { event_type, verdict, ..Default::default() })
    };
    assert_eq!(of(3, 1), Err(ReadError::Type(3)));
    assert_eq!(of(4, 1), Err(ReadError::Type(4)), "to-endpoint on the way out");
    assert_eq!(of(5, 5), Err(ReadError::Verdict(5)));
    assert_eq!(flow(&wire::Flow::default()), Err(ReadError::Verdict(0)));
    assert!(of(129, 1).is_ok_and(|flow| flow.dns.is_none()));
}
