//! Records in, effects and knowledge out.

use super::*;
use crate::learn::fixture::{ENDPOINT, answer, event, exchange, learner, name, query};
use egret_common::event::DNS_SLOW;

fn segment(seq: u32, payload: &[u8], protocol: u8) -> DnsEvent {
    let (len, full_len) = (payload.len() as u32, payload.len() as u32);
    DnsEvent { flags: DNS_SEGMENT | DNS_SLOW, seq, len, full_len, ..event(Direction::Ingress, protocol, 5) }
}

fn framed(message: &[u8]) -> Vec<u8> {
    [&(message.len() as u16).to_be_bytes()[..], message].concat()
}

fn told(learner: &Learner, address: &str) -> Vec<String> {
    learner.told().names(address.parse().expect("valid")).map(|(n, _)| n.to_owned()).collect()
}

#[test]
fn w_a05_an_answer_is_granted_when_the_kernel_did_not() {
    let mut l = learner(&["api.example"], &[]);
    let effects = exchange(&mut l, "api.example", [192, 0, 2, 1], 9, None);
    assert_eq!(effects.grants.len(), 1);
    assert_eq!(effects.grants[0].key.endpoint, ENDPOINT);
    assert_eq!(told(&l, "192.0.2.1"), ["api.example"]);
    assert!(l.allowed().contains(&name("api.example")));
}

#[test]
fn s_a02_a_refused_name_is_known_and_opens_nothing() {
    let mut l = learner(&["api.example"], &[]);
    let effects = exchange(&mut l, "bad.example", [192, 0, 2, 9], 9, Some(77));
    assert!(effects.grants.is_empty());
    assert_eq!(l.refused(77).map(|r| r.text.as_str()), Some("bad.example"));
    assert!(l.is_refused("bad.example") && !l.allowed().contains(&name("bad.example")));
    assert_eq!(told(&l, "192.0.2.9"), ["bad.example"]);
}

#[test]
fn an_unasked_answer_teaches_nothing() {
    let mut l = learner(&["api.example"], &[]);
    let message = answer(7, "api.example", &[[192, 0, 2, 1]]);
    let effects = l.see(&event(Direction::Ingress, proto::UDP, 1), &message).expect("compiles");
    assert!(effects.grants.is_empty() && told(&l, "192.0.2.1").is_empty());
    let stream = framed(&message);
    let effects = l.see(&segment(0, &stream, proto::TCP), &stream).expect("compiles");
    assert!(effects.grants.is_empty(), "a stream's message, too, needs its question");
    assert!(l.see(&DnsEvent { endpoint: 2, ..event(Direction::Egress, proto::UDP, 1) }, &message).is_ok());
}

#[test]
fn w_a07_a_stream_in_pieces_teaches_once_asked() {
    let mut l = learner(&["api.example"], &[]);
    let mut grants = 0;
    for (id, start) in [(1u16, 1000u32), (2, 5000)] {
        l.see(&event(Direction::Egress, proto::TCP, 1), &query(id, "api.example")).expect("compiles");
        let stream = framed(&answer(id, "api.example", &[[192, 0, 2, 1], [192, 0, 2, 2]]));
        let (first, second) = stream.split_at(20);
        for (seq, piece) in [(start, first), (start + 20, second), (start + 20, second)] {
            grants += l.see(&segment(seq, piece, proto::TCP), piece).expect("compiles").grants.len();
        }
        // The next message of the connection comes whole and by the kernel's fast path.
        let whole = answer(9, "api.example", &[]);
        let seq = start + stream.len() as u32;
        let next =
            DnsEvent { seq, flags: DNS_ASKED | DNS_LEARNED, ..event(Direction::Ingress, proto::TCP, 1) };
        l.see(&next, &whole).expect("compiles");
        let after = framed(&answer(3, "api.example", &[[192, 0, 2, 3]]));
        l.see(&event(Direction::Egress, proto::TCP, 1), &query(3, "api.example")).expect("compiles");
        let seq = seq + 2 + whole.len() as u32;
        grants += l.see(&segment(seq, &after, proto::TCP), &after).expect("compiles").grants.len();
        l.streams.end(&Flow::of(&next));
    }
    assert_eq!(grants, 6);
}

#[test]
fn w_a06_a_datagram_in_pieces() {
    let mut l = learner(&["api.example"], &[]);
    let addresses: Vec<[u8; 4]> = (0..200).map(|n| [192, 0, 2, n]).collect();
    let message = answer(4, "api.example", &addresses);
    for _ in 0..2 {
        l.see(&event(Direction::Egress, proto::UDP, 1), &query(4, "api.example")).expect("compiles");
        let mut grants = 0;
        for (at, piece) in message.chunks(1000).enumerate() {
            let full_len = message.len() as u32;
            let record = DnsEvent { full_len, ..segment(at as u32 * 1000, piece, proto::UDP) };
            grants += l.see(&record, piece).expect("compiles").grants.len();
        }
        assert_eq!(grants, 200);
    }
}

#[test]
fn broken_answers_are_told_and_memory_is_bounded() {
    let mut l = learner(&["api.example"], &[]);
    let broken = DnsEvent { flags: DNS_ASKED | DNS_SLOW, ..event(Direction::Ingress, proto::UDP, 1) };
    l.see(&broken, &[0; 20]).expect("compiles");
    assert!(l.notes().any(|n| n.contains("taught nothing")));
    for n in 0..18_000u32 {
        let host = n.to_be_bytes();
        let text = format!("n{n}.example");
        exchange(&mut l, &text, [10, host[1], host[2], host[3]], 1, Some(u64::from(n)));
    }
    assert!(l.refused.len() <= NAMES && l.notes.len() <= NOTES);
}

#[test]
fn every_look_up_and_every_answer_counts_once() {
    let mut l = learner(&["api.example"], &[]);
    exchange(&mut l, "api.example", [192, 0, 2, 1], 1, None);
    exchange(&mut l, "bad.example", [192, 0, 2, 9], 2, Some(77));
    exchange(&mut l, "api.example", [127, 0, 0, 1], 3, None);
    let kernel = DnsEvent { flags: DNS_ASKED, granted: 1, ..event(Direction::Ingress, proto::UDP, 4) };
    let other = answer(8, "other.example", &[[192, 0, 2, 2]]);
    l.see(&kernel, &other).expect("compiles");
    let mut nxdomain = answer(9, "api.example", &[]);
    nxdomain[3] = 3;
    let asked = DnsEvent { flags: DNS_ASKED, ..event(Direction::Ingress, proto::UDP, 5) };
    l.see(&asked, &nxdomain).expect("compiles");
    l.see(&asked, &nxdomain[..9]).expect("compiles");
    l.see(&event(Direction::Ingress, proto::UDP, 6), &other).expect("compiles");
    let want = Counts {
        passed: 2,
        refused: 1,
        rcodes: [4, 0, 0, 1, 0, 0, 0],
        unasked: 1,
        malformed: 1,
        by_kernel: 1,
        by_agent: 1,
        barred: 1,
        idle: 2,
    };
    assert_eq!(l.counts(), want);
}
