//! R: the resolver's path. R-A01 to R-A04 need pods and Services and come with them.

use std::time::Duration;

use egret_tests::dnsd::raw::{self, rtype};
use egret_tests::lab::{Lab, RESOLVER};
use egret_tests::probe::is_refusal;
use egret_tests::servers::{Capture, Proto};
use egret_tests::traffic::{curl, dig};

const STUB: &str = "nameserver 127.0.0.53\noptions edns0 trust-ad\nsearch .\n";

#[test]
fn r_a05_encrypted_dns_is_no_way_round() {
    let Some(lab) = Lab::start() else { return };
    lab.zone.add("resolver.example", 60, &["192.0.2.53"]);
    let mut probe = lab.egret().allow("resolver.example:443").session();
    probe.tcp("192.0.2.53:853").refused();
    assert!(is_refusal(probe.udp("192.0.2.53:853").errno));
    probe.tcp("192.0.2.53:443").refused();
    probe.resolve("resolver.example").first();
    let doh = probe.tcp("192.0.2.53:443").allowed();
    assert!(probe.echo(doh, "a question that nobody can read"));
    probe.tcp("203.0.113.99:443").refused();
    let report = probe.finish().report;
    assert_eq!(report.reason("tcp", "203.0.113.99:443"), "NameUnresolved");
    assert_eq!(lab.hits().count(Proto::Tcp, "192.0.2.53:853"), 0);
}

#[test]
fn r_a06_the_local_stub_is_observed_and_its_cache_counts() {
    let Some(lab) = Lab::start() else { return };
    let stub = lab.stub();
    let egret = lab.egret().place(|place| place.resolv_conf(STUB)).allow("api.example.com");
    let allowed = [(); 2].map(|()| {
        let run = egret.run(&curl("http://api.example.com/"));
        assert!(run.outcome.expect_success().stdout.contains("reached"));
        run.report.nothing_denied();
        run.outcome.elapsed
    });
    assert_eq!(lab.queries().count("api.example.com"), 2, "the second run was served by the cache");
    let run = egret.run(&curl("http://other.example.com/"));
    // Nothing waits for a resolver that does not answer: that would be five seconds.
    let at_once = run.outcome.elapsed < allowed[0].max(allowed[1]) + Duration::from_secs(4);
    assert!(!run.outcome.success() && at_once, "{:?}", run.outcome);
    assert_eq!(stub.log().count("other.example.com"), 0, "it does not even reach the stub");
    assert_eq!(run.report.row_of_name("other.example.com").reason, "QueryRefused");
}

#[test]
fn r_a06_the_stub_by_tcp_and_ipv6() {
    let Some(lab) = Lab::start() else { return };
    let _stub = lab.stub();
    let mut probe = lab.egret().place(|place| place.resolv_conf(STUB)).allow("api.example.com:443").session();
    let query = [raw::query(1, "api.example.com", rtype::AAAA)];
    assert_eq!(probe.dns("127.0.0.53:53", true, &query, 1).0.len(), 1);
    probe.tcp_patient("[2001:db8:a::10]:443").allowed();
    probe.tcp("192.0.2.10:443").refused();
    assert_eq!(
        probe.dns("127.0.0.53:53", false, &[raw::query(2, "api.example.com", rtype::A)], 1).0.len(),
        1
    );
    probe.tcp("192.0.2.10:443").allowed();
}

#[test]
fn r_a07_smoke_names_outside_the_list_never_leave() {
    let Some(lab) = Lab::start() else { return };
    let name = "c2VjcmV0.x.attacker.example";
    let capture = Capture::start(lab.world.ns("d"));
    let mut probe = lab.egret().allow("api.example.com").session();
    for (id, qtype) in
        [rtype::A, rtype::AAAA, rtype::TXT, rtype::NULL, rtype::ANY, rtype::HTTPS].iter().enumerate()
    {
        let query = [raw::query(id as u16, name, *qtype)];
        let (answers, errno) = probe.dns(RESOLVER, false, &query, 1);
        assert!(answers.is_empty() || answers[0][3] & 15 == 5, "type {qtype}: {answers:?}");
        assert!(!answers.is_empty() || is_refusal(errno), "type {qtype}: errno {errno}");
    }
    let (_, stdout, _) = probe.exec(&dig("10.7.0.53", name, &["TXT", "+tcp"]));
    assert!(!stdout.contains("NXDOMAIN"), "no answer from the resolver: {stdout}");
    let (_, stdout, _) = probe.exec(&dig("2001:db8:7::53", name, &["NULL"]));
    assert!(!stdout.contains("NXDOMAIN"), "{stdout}");
    assert_eq!(probe.finish().report.row_of_name(name).reason, "QueryRefused");
    lab.queries().assert_silent_about("attacker");
    let leaked = |bytes: &[u8]| bytes.windows(8).any(|part| part.eq_ignore_ascii_case(b"attacker"));
    assert!(!capture.all().iter().any(|seen| leaked(&seen.bytes)), "on the wire");
    let (answers, _) = lab.bare_session().dns(RESOLVER, false, &[raw::query(1, name, rtype::A)], 1);
    assert_eq!((answers.len(), lab.queries().count(name)), (1, 1), "negative control");
}
