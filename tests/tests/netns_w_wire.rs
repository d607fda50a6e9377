//! W, the wire's part: large, split, pipelined, parallel and broken messages, and resolvers nobody trusts.

use std::time::{Duration, Instant};

use egret_tests::dnsd::raw::{self, ANSWER, Message, Name, QNAME, TRUNCATED, rtype};
use egret_tests::dnsd::{Action, Handler, Query, Transport, chunked, handler};
use egret_tests::lab::{Lab, RESOLVER};
use egret_tests::policy::Cnp;
use egret_tests::probe::{Reply, Request, is_refusal};
use egret_tests::traffic::dig;

/// Answers every A question with the addresses 198.51.100.1 and up, every other with nothing.
fn pool(count: u8) -> Handler {
    handler(move |query| vec![Action::Send(pool_reply(query, count))])
}

fn pool_reply(query: &Query, count: u8) -> Vec<u8> {
    let mut reply = Message::reply(query, ANSWER);
    for n in 1..=if query.qtype() == rtype::A { count } else { 0 } {
        reply = reply.address(QNAME, 60, &format!("198.51.100.{n}"));
    }
    reply.finish()
}

fn a(id: u16, name: &str) -> Vec<u8> {
    raw::query(id, name, rtype::A)
}

#[test]
fn w_a06_smoke_sixty_addresses_by_udp() {
    let Some(lab) = Lab::scripted(pool(60)) else { return };
    let mut probe = lab.egret().allow("pool.example.com:443").session();
    let (answers, _) = probe.dns(RESOLVER, false, &[a(1, "pool.example.com")], 1);
    assert_eq!(answers[0].len(), 34 + 60 * 16, "intact");
    for n in [1, 30, 60] {
        probe.tcp_patient(&format!("198.51.100.{n}:443")).allowed();
    }
    probe.tcp_patient("198.51.100.61:443").denied();
    assert_eq!(probe.finish().report.reason("tcp", "198.51.100.61:443"), "NameUnresolved");
}

#[test]
fn w_a06_twenty_eight_ipv6_addresses_by_udp() {
    let many = handler(|query| {
        let add = |reply: Message, n: u8| reply.address(QNAME, 60, &format!("2001:db8:a::{n}"));
        vec![Action::Send((1..=28).fold(Message::reply(query, ANSWER), add).finish())]
    });
    let Some(lab) = Lab::scripted(many) else { return };
    let mut probe = lab.egret().allow("pool.example.com:443").session();
    let query = raw::query(1, "pool.example.com", rtype::AAAA);
    assert_eq!(probe.dns(RESOLVER, false, &[query], 1).0[0].len(), 34 + 28 * 28);
    for n in [1, 14, 28] {
        probe.tcp_patient(&format!("[2001:db8:a::{n}]:443")).allowed();
    }
    probe.tcp_patient("[2001:db8:a::29]:443").denied();
}

#[test]
fn w_a06_a_hundred_and_twenty_addresses_by_tcp() {
    let Some(lab) = Lab::scripted(pool(120)) else { return };
    let mut probe = lab.egret().allow("pool.example.com:443").session();
    let (answers, _) = probe.dns(RESOLVER, true, &[a(1, "pool.example.com")], 1);
    assert_eq!(answers[0].len(), 34 + 120 * 16);
    for n in [1, 60, 120] {
        probe.tcp_patient(&format!("198.51.100.{n}:443")).allowed();
    }
    probe.tcp_patient("198.51.100.121:443").denied();
}

#[test]
fn w_a07_smoke_truncated_then_tcp() {
    let short = handler(|query| {
        let cut = Message::reply(query, TRUNCATED).address(QNAME, 60, "198.51.100.1").finish();
        let whole = pool_reply(query, 7);
        vec![Action::Send(if query.transport == Transport::Udp { cut } else { whole })]
    });
    let Some(lab) = Lab::scripted(short) else { return };
    let mut probe = lab.egret().allow("big.example.com:443").session();
    assert_eq!(probe.resolve_family("big.example.com", 4).addresses.len(), 7);
    probe.tcp_patient("198.51.100.7:443").allowed();
    let before = lab.queries().tcp().0;
    assert!(before > 0);
    let (_, stdout, _) = probe.exec(&dig("10.7.0.53", "leak.example.com", &["+tcp", "+short"]));
    assert!(!stdout.contains("198.51.100"), "{stdout}");
    lab.queries().assert_silent_about("leak");
    assert_eq!(probe.finish().report.row_of_name("leak.example.com").reason, "QueryRefused");
}

#[test]
fn w_a07_tcp_answer_in_many_segments() {
    let pieces = handler(|query| chunked(&pool_reply(query, 7), 9, Duration::from_millis(2)));
    let Some(lab) = Lab::scripted(pieces) else { return };
    let mut probe = lab.egret().allow("big.example.com:443").session();
    probe.held();
    let (answers, _) = probe.dns(RESOLVER, true, &[a(1, "big.example.com")], 1);
    assert_eq!(answers[0].len(), 33 + 7 * 16);
    probe.tcp_patient("198.51.100.7:443").allowed();
}

#[test]
fn w_a08_pipelined_answers_out_of_order() {
    let swapped = handler(|query| {
        let address = if query.qtype() == rtype::A { "192.0.2.8" } else { "2001:db8:a::8" };
        let reply = Message::reply(query, ANSWER).address(QNAME, 60, address).finish();
        let hold = query.qtype() == rtype::A;
        vec![if hold { Action::AfterNext(reply) } else { Action::Send(reply) }]
    });
    let Some(lab) = Lab::scripted(swapped) else { return };
    let mut probe = lab.egret().allow("api.example.com:443").session();
    probe.held();
    let both = [a(1, "api.example.com"), raw::query(2, "api.example.com", rtype::AAAA)];
    let (answers, _) = probe.dns(RESOLVER, true, &both, 2);
    let ids: Vec<u8> = answers.iter().map(|answer| answer[1]).collect();
    assert_eq!(ids, [2, 1]);
    probe.tcp_patient("192.0.2.8:443").allowed();
    probe.tcp_patient("[2001:db8:a::8]:443").allowed();
    assert_eq!(lab.queries().tcp(), (2, 1), "one connection");
}

#[test]
fn w_a09_ten_thousand_parallel_pairs_from_one_port() {
    let Some(lab) = Lab::exclusive() else { return };
    let mut probe = lab.egret().allow("api.example.com:443").session();
    probe.held();
    let pair = vec![a(1, "api.example.com"), raw::query(2, "api.example.com", rtype::AAAA)];
    let server = RESOLVER.parse().expect("an address");
    let (tcp, expect, port, timeout) = (false, 2, 45678, 1000);
    let request = Request::Dns { server, tcp, messages: pair, expect, port, timeout };
    let (mut lost, mut slow) = (0, 0);
    for _ in 0..10_000 {
        let start = Instant::now();
        let Reply::Dns { answers, errno } = probe.ask(&request, Duration::from_secs(10)) else { panic!() };
        lost += usize::from(answers.len() != 2 || errno != 0);
        slow += usize::from(start.elapsed() > Duration::from_millis(100));
    }
    assert_eq!((lost, slow), (0, 0));
    probe.finish().report.nothing_denied();
}

#[test]
fn w_a14_pointer_loops_teach_nothing() {
    let shapes: [&'static [u8]; 6] =
        [b"\xc0\x21", b"\xc0\x0c\xc0\x21", b"\x05ab", b"\x40abc\0", b"\xbfabc\0", b"\x01a\xc0\xff"];
    let hostile = handler(move |query| {
        let owner = Name::Raw(shapes[usize::from(query.id()) % shapes.len()]);
        vec![Action::Send(Message::reply(query, ANSWER).address(owner, 60, "192.0.2.66").finish())]
    });
    let Some(lab) = Lab::scripted(hostile) else { return };
    let mut probe = lab.egret().allow("api.example.com:443").session();
    for id in 0..shapes.len() as u16 {
        probe.dns(RESOLVER, false, &[a(id, "api.example.com")], 1);
        probe.tcp_patient("192.0.2.66:443").denied();
    }
    assert_eq!(probe.finish().report.reason("tcp", "192.0.2.66:443"), "NameUnresolved");
}

#[test]
fn w_a15_a_cut_message_teaches_nothing() {
    // The id says where to cut; 0 does not cut; above 1000 the counts lie.
    let cutting = handler(|query| {
        let reply = Message::reply(query, ANSWER).address(QNAME, 60, "192.0.2.67");
        let reply = if query.id() > 1000 { reply.counts([1, 65535, 0, 0]) } else { reply };
        let mut bytes = reply.finish();
        if (1..1000).contains(&query.id()) {
            bytes.truncate(usize::from(query.id()));
        }
        vec![Action::Send(bytes)]
    });
    let Some(lab) = Lab::scripted(cutting) else { return };
    let mut probe = lab.egret().allow("api.example.com:443").session();
    let whole = 12 + 21 + 16;
    for id in (12..whole).chain([1001]) {
        assert_eq!(probe.dns(RESOLVER, false, &[a(id, "api.example.com")], 1).0.len(), 1);
    }
    probe.tcp_patient("192.0.2.67:443").denied();
    probe.dns(RESOLVER, false, &[a(0, "api.example.com")], 1);
    probe.tcp_patient("192.0.2.67:443").allowed();
}

#[test]
fn w_a17_an_answer_in_ip_fragments_is_learned_whole() {
    let Some(lab) = Lab::scripted(pool(180)) else { return };
    let capture = egret_tests::servers::Capture::start(lab.world.ns("c"));
    let mut probe = lab.egret().allow("pool.example.com:443").session();
    probe.held();
    let (answers, _) = probe.dns(RESOLVER, false, &[a(1, "pool.example.com")], 1);
    assert_eq!(answers[0].len(), 34 + 180 * 16);
    let fragment = capture.wait_for(Duration::from_secs(2), |seen| seen.fragment_offset > 0);
    assert!(fragment.is_some(), "it came in fragments");
    for n in [1, 91, 180] {
        probe.tcp_patient(&format!("198.51.100.{n}:443")).allowed();
    }
}

#[test]
fn w_a18_a_resolver_of_ones_own_is_not_believed() {
    let Some(lab) = Lab::start() else { return };
    let lie = handler(|query| {
        vec![Action::Send(Message::reply(query, ANSWER).address(QNAME, 60, "203.0.113.66").finish())]
    });
    let rogue = lab.rogue("203.0.113.53:53", lie);
    let query = [a(1, "allowed.example")];
    let mut closed = lab.egret().allow("allowed.example").session();
    let (answers, errno) = closed.dns("203.0.113.53:53", false, &query, 1);
    assert!(answers.is_empty() && is_refusal(errno), "errno {errno}");
    assert!(rogue.log().all().is_empty());
    let policy = Cnp::new().cidr("203.0.113.53/32", &["53/UDP"]).fqdn("allowed.example", &["443/TCP"]);
    let mut open = lab.egret().policy(&policy.text()).session();
    assert_eq!(open.dns("203.0.113.53:53", false, &query, 1).0.len(), 1);
    open.tcp("203.0.113.66:443").refused();
    assert_eq!(open.finish().report.reason("tcp", "203.0.113.66:443"), "NameUnresolved");
    assert_eq!(closed.finish().report.reason("udp", "203.0.113.53:53"), "NoRule");
}
