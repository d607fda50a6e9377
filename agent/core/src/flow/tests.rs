//! Ring, selection, tally and summary. [`flow`] makes flows for the filters' tests as well.

use std::sync::Arc;

use egret_common::{
    net::Direction,
    verdict::{DropReason, Verdict},
};

use super::*;

/// A plain TCP flow from the pod `shop/web-0` to `api.example`, at `time`.
pub(super) fn flow(time: u64) -> Flow {
    Flow {
        time,
        uuid: 0x0123_4567_89ab_cdef_0011_2233_4455_6677,
        kind: Kind::Verdict,
        verdict: Verdict::Forwarded,
        reason: None,
        direction: Direction::Egress,
        source: Side {
            ip: "10.244.0.11".parse().ok(),
            id: 7,
            identity: 300,
            namespace: "shop".into(),
            pod: "web-0".into(),
            labels: Arc::new(["k8s:app=web".to_owned(), "k8s:tier=2".to_owned()]),
            ..Side::default()
        },
        destination: Side {
            ip: "192.0.2.10".parse().ok(),
            identity: 2,
            labels: Arc::new(["reserved:world".to_owned()]),
            names: vec!["api.example".into()],
            ..Side::default()
        },
        l4: L4::Tcp { ports: (40_000, 443), flags: 0x02 },
        dns: None,
        is_reply: Some(false),
        matched: Some(Match::L3L4),
        allowed_by: Vec::new(),
        denied_by: Vec::new(),
        why: None,
        summary: String::new(),
        interface: Some(Interface { index: 9, name: "veth9".into() }),
        node: Arc::new(NodeInfo { name: "n1".into(), labels: vec!["zone=a".into()] }),
    }
}

/// A ring with a flow at each of these times; every third one is a drop.
fn ring(capacity: usize, times: impl IntoIterator<Item = u64>) -> Ring {
    let mut ring = Ring::new(capacity).expect("a size");
    for time in times {
        ring.push(entry(time));
    }
    ring
}

fn entry(time: u64) -> Entry {
    let mut flow = flow(time);
    if time.is_multiple_of(3) {
        flow.verdict = Verdict::Dropped;
    }
    Entry::Flow(Arc::new(flow))
}

fn drops() -> Filters {
    Filters::new(&[FlowFilter { verdict: vec![2], ..FlowFilter::default() }], &[]).expect("valid")
}

/// Everything until the reader waits or ends: times, `-n` for n lost; and which of the two it was.
fn all(reader: &mut Reader, ring: &Ring) -> (Vec<i64>, Next) {
    let mut seen = Vec::new();
    loop {
        match reader.step() {
            Next::More => reader.take(ring),
            Next::Entry(Entry::Flow(flow)) => seen.push(flow.time as i64),
            Next::Entry(Entry::Lost(lost)) => seen.push(-(lost.count as i64)),
            end => return (seen, end),
        }
    }
}

#[test]
fn sizes_are_powers_of_two_less_one() {
    for (size, good) in [(0, false), (1, true), (2, false), (4095, true), (65_535, true), (131_071, false)] {
        assert_eq!(Ring::new(size).is_ok(), good, "{size}");
    }
    let ring = ring(3, 1..=5);
    assert_eq!((ring.oldest(), ring.end(), ring.len(), ring.capacity()), (2, 5, 3, 3));
    assert!(ring.get(1).is_none() && ring.get(5).is_none());
    assert_eq!(ring.get(2).and_then(Entry::flow).map(|f| f.time), Some(3));
}

#[test]
fn selection_rules() {
    // Times 10 to 19; drops at 12, 15 and 18.
    let ring = ring(15, 10..20);
    let all_flows = Filters::default;
    let q = Query::default();
    let check = |query: Query, filters: Filters, want: &[i64], end: Next| {
        let mut reader = Reader::new(&ring, query, filters).expect("valid");
        assert_eq!(all(&mut reader, &ring), (want.to_vec(), end), "{query:?}");
    };
    let everything: Vec<i64> = (10..20).collect();
    check(q, all_flows(), &everything, Next::End);
    check(Query { number: 2, ..q }, all_flows(), &[18, 19], Next::End);
    check(Query { number: u64::MAX, ..q }, all_flows(), &everything, Next::End);
    check(Query { number: 2, ..q }, drops(), &[15, 18], Next::End);
    check(Query { number: 2, first: true, ..q }, all_flows(), &[10, 11], Next::End);
    check(Query { number: 2, first: true, ..q }, drops(), &[12, 15], Next::End);
    // Since decides where to begin, number when to end.
    check(Query { since: Some(17), ..q }, all_flows(), &[17, 18, 19], Next::End);
    check(Query { since: Some(14), number: 2, ..q }, all_flows(), &[14, 15], Next::End);
    check(Query { since: Some(14), number: 1, first: true, ..q }, drops(), &[15], Next::End);
    check(Query { since: Some(16), until: Some(17), ..q }, all_flows(), &[16, 17], Next::End);
    check(Query { until: Some(12), ..q }, all_flows(), &[10, 11, 12], Next::End);
    check(Query { until: Some(17), number: 2, ..q }, all_flows(), &[16, 17], Next::End);
    check(Query { since: Some(30), ..q }, all_flows(), &[], Next::End);
    // Followers.
    check(Query { follow: true, ..q }, all_flows(), &[], Next::Wait);
    check(Query { follow: true, number: 1, ..q }, drops(), &[18], Next::Wait);
    check(Query { follow: true, since: Some(18), ..q }, all_flows(), &[18, 19], Next::Wait);
    assert_eq!(
        Reader::new(&ring, Query { first: true, follow: true, ..q }, all_flows()).err(),
        Some(QueryError)
    );
}

#[test]
fn a_follower_gets_what_comes_and_is_told_what_it_missed() {
    let mut ring = ring(3, 1..=2);
    let query = Query { follow: true, number: 1, ..Query::default() };
    let mut reader = Reader::new(&ring, query, Filters::default()).expect("valid");
    assert_eq!(all(&mut reader, &ring), (vec![2], Next::Wait));
    ring.push(entry(4));
    assert_eq!(all(&mut reader, &ring), (vec![4], Next::Wait));
    (5..=10).for_each(|time| ring.push(entry(time)));
    assert_eq!(all(&mut reader, &ring), (vec![-3, 8, 9, 10], Next::Wait));
    // Losses pass every filter and do not count.
    let lost = Lost { source: LostSource::Kernel, count: 9, first: 1, last: 2 };
    ring.push(Entry::Lost(lost));
    ring.push(entry(12));
    let query = Query { number: 2, ..Query::default() };
    let mut reader = Reader::new(&ring, query, drops()).expect("valid");
    assert_eq!(all(&mut reader, &ring), (vec![-9, 12], Next::End));
}

#[test]
fn selection_is_the_same_over_many_slices() {
    let mut ring = ring(1023, 1..=1500);
    let times = |range: std::ops::RangeInclusive<i64>| -> Vec<i64> { range.collect() };
    let q = Query::default();
    for (query, want) in [
        (q, times(478..=1500)),
        (Query { number: 100, ..q }, times(1401..=1500)),
        (Query { number: 40, until: Some(1000), ..q }, times(961..=1000)),
        (Query { number: 70, first: true, ..q }, times(478..=547)),
        (Query { since: Some(1300), ..q }, times(1300..=1500)),
        (Query { since: Some(600), until: Some(700), ..q }, times(600..=700)),
    ] {
        let mut reader = Reader::new(&ring, query, Filters::default()).expect("valid");
        assert_eq!(all(&mut reader, &ring), (want, Next::End), "{query:?}");
    }
    let mut reader = Reader::new(&ring, Query { number: 100, ..q }, drops()).expect("valid");
    let want = (401..=500).map(|n| n * 3).collect();
    assert_eq!(all(&mut reader, &ring), (want, Next::End));
    // What is forgotten while the beginning is looked for was there: it is lost.
    let mut reader = Reader::new(&ring, q, Filters::default()).expect("valid");
    for _ in 0..10 {
        assert_eq!(reader.step(), Next::More);
        reader.take(&ring);
    }
    (1501..=2300).for_each(|time| ring.push(entry(time)));
    let (seen, end) = all(&mut reader, &ring);
    assert_eq!((seen[0], seen[1], seen.len(), end), (-97, 1278, 1024, Next::End));
}

#[test]
fn a_tally_counts_rates_and_namespaces() {
    const S: u64 = 1_000_000_000;
    let mut tally = Tally::default();
    for second in 0..120 {
        (0..=second % 2).for_each(|_| tally.count(&flow(0), second * S));
    }
    assert_eq!(tally.seen(), 180);
    assert!((tally.rate(0, 120 * S) - 1.5).abs() < 1e-9);
    assert!((tally.rate(118 * S, 120 * S) - 1.5).abs() < 1e-9);
    assert!(tally.rate(120 * S, 120 * S).abs() < 1e-9);
    assert_eq!(tally.namespaces(120 * S).into_iter().collect::<Vec<_>>(), ["shop"]);
    assert!(tally.namespaces(3_800 * S).is_empty());
}

#[test]
fn summaries() {
    let check = |change: &dyn Fn(&mut Flow), age: Option<u32>, want: &str| {
        let mut flow = flow(1);
        change(&mut flow);
        assert_eq!(summary(&flow, age), want);
    };
    check(&|_| {}, None, "TCP Flags: SYN");
    check(&|f| f.l4 = L4::Tcp { ports: (1, 2), flags: 0x1ff }, None, {
        "TCP Flags: SYN, ACK, RST, FIN, PSH, URG, ECE, CWR, NS"
    });
    check(&|f| f.l4 = L4::Udp(1, 2), None, "UDP");
    check(&|f| f.l4 = L4::Icmpv4(8, 0), None, "ICMPv4 EchoRequest");
    check(&|f| f.l4 = L4::Icmpv6(135, 0), None, "ICMPv6 NeighborSolicitation");
    check(&|f| f.l4 = L4::Other(47), None, "IP protocol 47");
    check(&|f| f.reason = Some(DropReason::NoRule), Some(3), "TCP Flags: SYN; NoRule");
    check(&|f| f.reason = Some(DropReason::NameExpired), Some(31), "TCP Flags: SYN; NameExpired 31 s ago");
    let dns = Dns { query: "a.example.".into(), qtypes: vec!["A".into()], ..Dns::default() };
    check(&|f| f.dns = Some(dns.clone()), None, "DNS Query a.example. A");
    let answer = Dns { response: true, ..dns };
    check(&|f| f.dns = Some(Dns { rcode: 3, ..answer.clone() }), None, {
        "DNS Answer RCode: Non-Existent Domain (Kernel a.example. A)"
    });
    let full = Dns {
        ips: vec![[192, 0, 2, 1].into(), [192, 0, 2, 2].into()],
        ttl: 30,
        cnames: vec!["c.example.".into()],
        ..answer
    };
    check(&|f| f.dns = Some(full.clone()), None, {
        "DNS Answer \"192.0.2.1,192.0.2.2\" CNAMEs: \"c.example.\" TTL: 30 (Kernel a.example. A)"
    });
}

#[test]
fn numbers_are_hubbles() {
    let mut f = flow(1);
    assert_eq!((f.event_type(), f.hubble_reason(), f.traffic_direction(), f.ip_version()), ((5, 0), 0, 2, 1));
    assert_eq!(f.uuid_text(), "01234567-89ab-cdef-0011-223344556677");
    (f.kind, f.verdict, f.reason) = (Kind::Drop, Verdict::Dropped, Some(DropReason::DenyRule));
    assert_eq!((f.event_type(), f.hubble_reason()), ((1, 181), 181));
    // In audit mode nothing was dropped.
    f.verdict = Verdict::Audited;
    assert_eq!(f.hubble_reason(), 0);
}
