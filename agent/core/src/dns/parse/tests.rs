//! Message shapes of CASES W, built with the parser's own encoder or byte by byte.

use std::str::FromStr;

use hickory_proto::{
    op::{Query as WireQuery, ResponseCode},
    rr::{
        RecordType,
        rdata::{
            A, AAAA, CNAME, HTTPS, SRV,
            svcb::{IpHint, SVCB, SvcParamKey},
        },
    },
};
use proptest::prelude::*;

use super::*;

fn wire(name: &str) -> WireName {
    WireName::from_str(&format!("{}.", name.trim_end_matches('.'))).unwrap()
}

fn a(owner: &str, ttl: u32, ip: &str) -> Record {
    match ip.parse().unwrap() {
        IpAddr::V4(ip) => Record::from_rdata(wire(owner), ttl, RData::A(A(ip))),
        IpAddr::V6(ip) => Record::from_rdata(wire(owner), ttl, RData::AAAA(AAAA(ip))),
    }
}

fn cname(owner: &str, ttl: u32, target: &str) -> Record {
    Record::from_rdata(wire(owner), ttl, RData::CNAME(CNAME(wire(target))))
}

fn message(question: &str, answers: Vec<Record>) -> Message {
    let mut m = Message::response(7, OpCode::Query);
    m.add_query(WireQuery::query(wire(question), RecordType::A));
    m.add_answers(answers);
    m
}

fn parsed(question: &str, answers: Vec<Record>) -> Answer {
    parse_answer(&message(question, answers).to_vec().unwrap()).unwrap()
}

/// Credited addresses as `ip/ttl`.
fn check(question: &str, answers: Vec<Record>, want: &[&str]) {
    let shown =
        |a: &Answer| a.addresses.iter().map(|l| format!("{}/{}", l.address, l.ttl)).collect::<Vec<_>>();
    let answer = parsed(question, answers.clone());
    assert_eq!(shown(&answer), want, "{question}");
    let mut reversed = shown(&parsed(question, answers.into_iter().rev().collect()));
    reversed.reverse();
    assert_eq!(reversed, want, "{question}: the order of records carries no meaning");
}

fn chain(n: usize) -> Vec<Record> {
    let mut records: Vec<Record> = (0..n)
        .map(|i| cname(&format!("h{i}.example"), 900 - i as u32, &format!("h{}.example", i + 1)))
        .collect();
    records.push(a(&format!("h{n}.example"), 1000, "192.0.2.10"));
    records
}

#[test]
fn w_a01_chains_and_their_least_ttl() {
    let six = vec![
        cname("api.svc.example", 900, "h2.example"),
        cname("h2.example", 3600, "h3.example"),
        cname("h3.example", 30, "h4.example"),
        cname("h4.example", 900, "h5.example"),
        cname("h5.example", 300, "h6.example"),
        cname("h6.example", 900, "h7.example"),
        a("h7.example", 10, "192.0.2.10"),
    ];
    check("api.svc.example", six.clone(), &["192.0.2.10/10"]);
    assert_eq!(parsed("api.svc.example", six).aliases.len(), 6);
    check("h0.example", chain(16), &["192.0.2.10/885"]);
    check("h0.example", chain(100), &["192.0.2.10/801"]);
    check("x.example", vec![a("x.example", 1 << 31, "192.0.2.1")], &["192.0.2.1/0"]);
}

#[test]
fn w_a01_loops_teach_nothing() {
    let with_address = |aliases: Vec<Record>| [aliases, vec![a("b.example", 5, "192.0.2.1")]].concat();
    check(
        "a.example",
        with_address(vec![cname("a.example", 5, "b.example"), cname("b.example", 5, "a.example")]),
        &[],
    );
    check("a.example", with_address(vec![cname("a.example", 5, "a.example")]), &[]);
    check(
        "a.example",
        with_address(vec![cname("a.example", 5, "b.example"), cname("a.example", 5, "c.example")]),
        &[],
    );
    let twice = with_address(vec![cname("a.example", 5, "b.example"), cname("a.example", 3, "B.example")]);
    check("a.example", twice, &["192.0.2.1/3"]);
}

#[test]
fn w_a02_the_target_is_reported_and_not_credited_to_another_question() {
    let answer = parsed(
        "database.example.com",
        vec![cname("database.example.com", 5, "host.example.com"), a("host.example.com", 5, "192.0.2.20")],
    );
    assert_eq!(answer.question.name, Some(Name::parse("database.example.com").unwrap()));
    assert_eq!(answer.aliases, ["host.example.com"]);
    assert_eq!(answer.addresses.len(), 1);
}

#[test]
fn w_a03_autopath() {
    let search: Vec<Name> =
        ["shop.svc.cluster.local", "svc.cluster.local"].map(|n| Name::parse(n).unwrap()).into();
    let bare = |question: &str, target: &str| {
        let answer = parsed(question, vec![cname(question, 5, target), a(target, 5, "192.0.2.30")]);
        answer.autopath(&search).map(ToString::to_string)
    };
    assert_eq!(
        bare("api.partner.example.shop.svc.cluster.local", "api.partner.example").as_deref(),
        Some("api.partner.example")
    );
    assert_eq!(
        bare("api.partner.example.svc.cluster.local", "API.partner.example").as_deref(),
        Some("api.partner.example")
    );
    assert_eq!(bare("api.partner.example.evil.example", "api.partner.example"), None);
    assert_eq!(bare("x.partner.example.svc.cluster.local", "api.partner.example"), None);
    assert_eq!(bare("svc.cluster.local", "api.partner.example"), None);
}

#[test]
fn w_a04_case_does_not_matter() {
    check("aPi.eXaMple.Com", vec![a("API.example.COM", 5, "192.0.2.1")], &["192.0.2.1/5"]);
    check(
        "aPi.eXaMple.Com",
        vec![cname("api.EXAMPLE.com", 5, "X.example"), a("x.Example", 5, "192.0.2.1")],
        &["192.0.2.1/5"],
    );
    assert_eq!(parsed("aPi.eXaMple.Com", vec![]).question.text, "api.example.com");
}

#[test]
fn w_a05_unlinked_owners_are_reported() {
    let records = vec![a("svc.example.com", 5, "192.0.2.1"), a("node7.pool.example.net", 5, "192.0.2.40")];
    check("svc.example.com", records.clone(), &["192.0.2.1/5"]);
    let answer = parsed("svc.example.com", records);
    assert_eq!(answer.unlinked, [("node7.pool.example.net".to_owned(), "192.0.2.40".parse().unwrap())]);
}

#[test]
fn w_a06_many_records() {
    let many: Vec<Record> = (0..120u8).map(|i| a("pool.example.com", 5, &format!("192.0.2.{i}"))).collect();
    assert_eq!(parsed("pool.example.com", many).addresses.len(), 120);
}

#[test]
fn w_a07_truncation_is_told() {
    let mut m = message("x.example", vec![a("x.example", 5, "192.0.2.1")]);
    m.metadata.truncation = true;
    let answer = parse_answer(&m.to_vec().unwrap()).unwrap();
    assert!(answer.truncated && answer.addresses.len() == 1);
}

#[test]
fn w_a10_hints_of_https_records() {
    let hints = vec![
        (SvcParamKey::Ipv4Hint, SvcParamValue::Ipv4Hint(IpHint(vec![A("192.0.2.50".parse().unwrap())]))),
        (
            SvcParamKey::Ipv6Hint,
            SvcParamValue::Ipv6Hint(IpHint(vec![AAAA("2001:db8:a::50".parse().unwrap())])),
        ),
    ];
    let https = |owner: &str| {
        let svcb = SVCB::new(1, WireName::root(), hints.clone());
        Record::from_rdata(wire(owner), 60, RData::HTTPS(HTTPS(svcb)))
    };
    let answer = parsed(
        "www.shop.example",
        vec![cname("www.shop.example", 20, "cdn.example"), https("cdn.example"), https("other.example")],
    );
    let shown: Vec<_> = answer.hints.iter().map(|l| format!("{}/{}", l.address, l.ttl)).collect();
    assert_eq!(shown, ["192.0.2.50/20", "2001:db8:a::50/20"]);
    assert_eq!(answer.addresses, []);
}

#[test]
fn w_a11_addresses_as_on_the_wire() {
    check("x.example", vec![a("x.example", 5, "64:ff9b::c000:233")], &["64:ff9b::c000:233/5"]);
    check("x.example", vec![a("x.example", 5, "::ffff:192.0.2.1")], &["192.0.2.1/5"]);
    check("x.example", vec![], &[]);
}

#[test]
fn w_a16_srv_is_no_error_and_additional_teaches_nothing() {
    let srv = RData::SRV(SRV::new(0, 0, 27017, wire("s0.cluster0.example")));
    let mut m = message(
        "_db._tcp.cluster0.example",
        vec![Record::from_rdata(wire("_db._tcp.cluster0.example"), 5, srv)],
    );
    m.add_additional(a("s0.cluster0.example", 5, "192.0.2.1"));
    let answer = parse_answer(&m.to_vec().unwrap()).unwrap();
    assert_eq!((answer.addresses.len(), answer.unlinked.len()), (0, 0));
    assert!(answer.question.name.is_some());
}

#[test]
fn errors_and_other_kinds_teach_nothing() {
    let mut m = message("x.example", vec![a("x.example", 5, "192.0.2.1")]);
    m.metadata.response_code = ResponseCode::NXDomain;
    let answer = parse_answer(&m.to_vec().unwrap()).unwrap();
    assert_eq!((answer.rcode, answer.addresses.len()), (3, 0));
    assert_eq!(parse_query(&m.to_vec().unwrap()), Err(ParseError::Kind));
    m.add_query(WireQuery::query(wire("y.example"), RecordType::A));
    assert_eq!(parse_answer(&m.to_vec().unwrap()), Err(ParseError::Question));
    let mut q = Message::query();
    q.add_query(WireQuery::query(wire("X.example"), RecordType::HTTPS));
    let query = parse_query(&q.to_vec().unwrap()).unwrap().question;
    assert_eq!((query.text.as_str(), query.qtype), ("x.example", 65));
}

#[test]
fn w_a14_pointer_loops_and_wild_labels() {
    let with_name = |name: &[u8]| [b"\0\x07\x80\0\0\x01\0\0\0\0\0\0", name, b"\0\x01\0\x01"].concat();
    for bad in [&b"\xc0\x0c"[..], b"\xc0\x0e\xc0\x0c", b"\x05a", b"\x40a\0", b"\xbfa\0", b"\xc0\xff", b"\xc0"]
    {
        assert!(parse_answer(&with_name(bad)).is_err(), "{bad:x?}");
    }
    let odd = parse_answer(&with_name(b"\x03a b\x02\xff.\0")).unwrap().question;
    assert_eq!((odd.name, odd.text.as_str()), (None, "a\\032b.\\255\\."));
    assert_eq!(parse_answer(&with_name(b"\0")).unwrap().question.text, ".");
}

#[test]
fn w_a15_nothing_is_learned_from_a_part() {
    let records: Vec<Record> = (0..20u8).map(|i| a("pool.example.com", 5, &format!("192.0.2.{i}"))).collect();
    let whole = message("pool.example.com", records).to_vec().unwrap();
    for end in 0..whole.len() {
        assert!(parse_answer(&whole[..end]).is_err(), "cut at {end}");
    }
    assert!(parse_answer(&whole).is_ok());
    let mut counts = whole[..60].to_vec();
    counts[4..12].fill(0xff);
    assert_eq!(parse_answer(&counts), Err(ParseError::Short));
    counts[6..12].fill(0);
    assert_eq!(parse_answer(&counts), Err(ParseError::Question));
}

/// `usual` cases, or what `cargo xtask soak` asks for (`EGRET_FUZZ`).
fn cases(usual: u32) -> ProptestConfig {
    let asked = std::env::var("EGRET_FUZZ").ok();
    ProptestConfig::with_cases(asked.map_or(usual, |asked| asked.parse().expect("EGRET_FUZZ is a number")))
}

proptest! {
    #![proptest_config(cases(1024))]

    #[test]
    fn w_a14_mutated_messages_never_panic(edits in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..8), cut in any::<prop::sample::Index>()) {
        let mut bytes = message("h0.example", chain(5)).to_vec().unwrap();
        for (at, value) in edits {
            let at = at.index(bytes.len());
            bytes[at] = value;
        }
        let _ = parse_query(&bytes);
        let _ = parse_answer(&bytes);
        let _ = parse_answer(&bytes[..cut.index(bytes.len())]);
    }

    #[test]
    fn w_a14_noise_never_panics(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        let _ = parse_answer(&bytes);
    }
}
