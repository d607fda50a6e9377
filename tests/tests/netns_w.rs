//! W: shapes of DNS answers, by real programs under `egret run`. What concerns the wire alone (sizes,
//! transports, broken messages) is in `netns_w_wire.rs`.

use std::time::Duration;

use egret_tests::dnsd::raw::{self, ANSWER, Message, Name, QNAME, rtype};
use egret_tests::dnsd::{Action, Query, handler};
use egret_tests::lab::{Lab, RESOLVER};
use egret_tests::policy::Cnp;
use egret_tests::servers::Proto;
use egret_tests::traffic::getent;
use egret_tests::wait::pass;

const SECOND: Duration = Duration::from_secs(1);

#[test]
fn w_a01_smoke_chain_of_six_lives_as_long_as_its_shortest_ttl() {
    let Some(lab) = Lab::start() else { return };
    let ttls = [900, 3600, 3, 900, 300, 900];
    lab.zone.cname("api.svc.example", ttls[0], "h1.example");
    for (n, ttl) in ttls.iter().enumerate().skip(1) {
        lab.zone.cname(&format!("h{n}.example"), *ttl, &format!("h{}.example", n + 1));
    }
    lab.zone.add("h6.example", 10, &["192.0.2.10"]);
    let mut probe = lab.egret().allow("api.svc.example:443").lifetimes(1, 0, 86400).session();
    assert_eq!(probe.resolve("api.svc.example").first(), "192.0.2.10");
    let conn = probe.tcp("192.0.2.10:443").allowed();
    probe.tcp("192.0.2.10:80").refused();
    probe.close(conn);
    pass(4 * SECOND);
    probe.tcp("192.0.2.10:443").refused();
    let run = probe.finish();
    assert_eq!(run.report.reason("tcp", "192.0.2.10:80"), "NamePortMismatch");
    assert_eq!(run.report.reason("tcp", "192.0.2.10:443"), "NameExpired");
    assert_eq!(lab.hits().count(Proto::Tcp, "192.0.2.10:443"), 1);
}

#[test]
fn w_a01_chain_of_sixteen_and_a_loop() {
    let Some(lab) = Lab::start() else { return };
    for n in 0..16 {
        lab.zone.cname(&format!("h{n}.example"), 60, &format!("h{}.example", n + 1));
    }
    lab.zone.add("h16.example", 60, &["192.0.2.16"]);
    lab.zone.cname("loop.example", 60, "pool.example").cname("pool.example", 60, "loop.example");
    let mut probe = lab.egret().allow("h0.example").allow("loop.example").allow("api.example.com").session();
    probe.held();
    probe.resolve("loop.example").failed();
    assert_eq!(probe.resolve("h0.example").first(), "192.0.2.16");
    probe.tcp_patient("192.0.2.16:443").allowed();
    assert!(probe.resolve("api.example.com").elapsed < 2 * SECOND, "a loop must hold up nothing");
    probe.finish().report.nothing_denied();
}

#[test]
fn w_a02_only_the_queried_name_counts() {
    let Some(lab) = Lab::start() else { return };
    lab.zone.cname("database.example.com", 60, "host.example.com");
    lab.zone.add("host.example.com", 60, &["192.0.2.20"]);
    let policy = Cnp::new().queries("*").fqdn("host.example.com", &["443/TCP"]);
    let mut probe = lab.egret().policy(&policy.text()).session();
    assert_eq!(probe.resolve("database.example.com").first(), "192.0.2.20");
    probe.tcp("192.0.2.20:443").refused();
    probe.resolve("host.example.com").first();
    probe.tcp("192.0.2.20:443").allowed();
    let row = probe.finish().report.row("tcp", "192.0.2.20:443");
    assert_eq!((row.name.as_str(), row.count), ("database.example.com", 1), "{row:?}");
}

#[test]
fn w_a03_search_domain_added_by_the_resolver() {
    let Some(lab) = Lab::start() else { return };
    let asked = "api.partner.example.shop.svc.cluster.local";
    lab.zone.cname(asked, 60, "api.partner.example").add("api.partner.example", 60, &["192.0.2.30"]);
    lab.zone.cname("api.partner.example.evil.example", 60, "api.partner.example");
    let text = "search shop.svc.cluster.local svc.cluster.local\nnameserver 10.7.0.53\noptions ndots:5\n";
    let egret = lab.egret().place(|place| place.resolv_conf(text));
    let policy = Cnp::new().queries("*").fqdn("api.partner.example", &["443/TCP"]).text();
    let mut control = egret.clone().policy(&policy).session();
    control.resolve("api.partner.example.evil.example.").first();
    control.tcp("192.0.2.30:443").refused();
    let mut probe = egret.allow("api.partner.example").session();
    assert_eq!(probe.resolve("api.partner.example").first(), "192.0.2.30");
    probe.tcp_patient("192.0.2.30:443").allowed();
    assert_eq!(lab.queries().count("api.partner.example"), 0, "the bare name is never asked");
}

#[test]
fn w_a04_case_makes_no_difference_and_is_kept() {
    let odd_owner = handler(|query: &Query| {
        let upper = query.name().to_ascii_uppercase();
        let number: u8 = query.name_lower()[1..2].parse().unwrap_or(0);
        let owner = if number.is_multiple_of(2) { Name::Labels(&upper) } else { QNAME };
        let reply = Message::reply(query, ANSWER).address(owner, 60, &format!("192.0.2.{number}"));
        vec![Action::Send(reply.finish())]
    });
    let Some(lab) = Lab::scripted(odd_owner) else { return };
    for policy in ["*.example.com:443", "*.Example.COM:443"] {
        let mut probe = lab.egret().allow(policy).session();
        probe.held();
        for (name, address) in [
            ("a1.example.com", "192.0.2.1:443"),
            ("a2.example.com", "192.0.2.2:443"),
            ("a3.eXaMple.Com", "192.0.2.3:443"),
            ("A4.eXaMple.Com", "192.0.2.4:443"),
        ] {
            let (answers, _) = probe.dns(RESOLVER, false, &[raw::query(9, name, rtype::A)], 1);
            assert_eq!(answers[0][12..28], raw::wire_name(name), "the question comes back as it was");
            probe.tcp_patient(address).allowed();
        }
        probe.finish().report.nothing_denied();
    }
}

#[test]
fn w_a05_an_owner_outside_the_chain_is_not_learned() {
    let foreign = handler(|query: &Query| {
        let reply = Message::reply(query, ANSWER);
        vec![Action::Send(reply.address(Name::Labels("node7.pool.example.net"), 60, "192.0.2.40").finish())]
    });
    let Some(lab) = Lab::scripted(foreign) else { return };
    let mut probe = lab.egret().allow("svc.example.com").session();
    let query = raw::query(1, "svc.example.com", rtype::A);
    let (answers, _) = probe.dns(RESOLVER, false, std::slice::from_ref(&query), 1);
    let (bare, _) = lab.bare_session().dns(RESOLVER, false, &[query], 1);
    assert_eq!(answers, bare, "the client gets the answer unchanged");
    // While the agent's own parser looks at the answer the kernel may be silent instead of refusing.
    probe.tcp_patient("192.0.2.40:443").denied();
    assert_eq!(probe.finish().report.reason("tcp", "192.0.2.40:443"), "NameUnresolved");
}

#[test]
fn w_a10_smoke_hints_of_https_records_open_the_queried_name_only() {
    let Some(lab) = Lab::start() else { return };
    lab.zone.https("www.shop.example", 60, &["192.0.2.50", "2001:db8:a::50"]);
    let query = [raw::query(1, "www.shop.example", rtype::HTTPS)];
    let egret = lab.egret();
    let mut probe = egret.clone().allow("www.shop.example:443").allow("www.shop.example:443/udp").session();
    assert_eq!(probe.dns(RESOLVER, false, &query, 1).0.len(), 1);
    probe.tcp_patient("192.0.2.50:443").allowed();
    probe.tcp_patient("[2001:db8:a::50]:443").allowed();
    assert!(probe.udp("192.0.2.50:443").echoed);
    let policy = Cnp::new().queries("*").fqdn("other.example", &["443/TCP"]).text();
    let mut control = egret.policy(&policy).session();
    assert_eq!(control.dns(RESOLVER, false, &query, 1).0.len(), 1);
    control.tcp_patient("192.0.2.50:443").denied();
}

#[test]
fn w_a11_ipv6_only_and_nat64() {
    let Some(lab) = Lab::start() else { return };
    lab.zone.add("v6only.example", 60, &["64:ff9b::c000:233"]);
    let target = "[64:ff9b::c000:233]:443";
    lab.egret().allow("other.example").session().tcp(target).refused();
    let mut probe = lab.egret().allow("v6only.example").session();
    assert_eq!(probe.resolve("v6only.example").first(), "64:ff9b::c000:233");
    probe.tcp(target).allowed();
    probe.finish().report.nothing_denied();
    let policy = Cnp::new().fqdn("v6only.example", &["443/TCP"]).queries("*").deny_cidr("192.0.2.0/24");
    let mut denied = lab.egret().policy(&policy.text()).session();
    denied.resolve("v6only.example").first();
    denied.tcp(target).refused();
    assert_eq!(denied.finish().report.reason("tcp", target), "DenyRule");
}

#[test]
fn w_a12_search_lists_do_not_slow_an_allowed_name() {
    let Some(lab) = Lab::start() else { return };
    let text = "search a.corp.test b.corp.test corp.test\nnameserver 10.7.0.53\noptions ndots:5\n";
    let egret = lab.egret().place(|place| place.resolv_conf(text)).allow("api.example.com");
    let run = egret.run(&getent("api.example.com"));
    assert!(run.outcome.expect_success().stdout.contains("192.0.2.10"));
    let mut probe = egret.session();
    // Less than the five seconds after which a resolver's silence makes getaddrinfo ask again.
    assert!(probe.resolve("api.example.com").elapsed < 4 * SECOND);
    let refused = probe.resolve("secret.example.com");
    assert!(refused.addresses.is_empty() && refused.elapsed < SECOND, "{refused:?}");
    lab.queries().assert_silent_about("secret");
}

#[test]
fn w_a13_ttl_zero_lives_for_the_floor() {
    let Some(lab) = Lab::start() else { return };
    lab.zone.add("zero.example", 0, &["192.0.2.60"]).add("one.example", 1, &["192.0.2.61"]);
    let mut probe = lab.egret().allow("zero.example").allow("one.example").lifetimes(2, 0, 86400).session();
    assert_eq!(probe.resolve("one.example").first(), "192.0.2.61");
    assert_eq!(probe.resolve("zero.example").first(), "192.0.2.60");
    let first = probe.tcp("192.0.2.60:443").allowed();
    probe.close(first);
    pass(Duration::from_millis(400));
    let kept = probe.tcp("192.0.2.61:443").allowed();
    let again = probe.tcp("192.0.2.60:443").allowed();
    probe.close(again);
    pass(Duration::from_millis(2700));
    probe.tcp("192.0.2.60:443").refused();
    assert!(probe.echo(kept, "still here"), "an open connection outlives its name");
    assert_eq!(probe.finish().report.reason("tcp", "192.0.2.60:443"), "NameExpired");
}

#[test]
fn w_a16_srv_records_open_nothing_their_targets_do() {
    let Some(lab) = Lab::start() else { return };
    for (n, address) in ["192.0.2.70", "192.0.2.71", "192.0.2.72"].iter().enumerate() {
        let target = format!("s{n}.cluster0.example");
        lab.zone.add(&target, 60, &[address]).srv("_db._tcp.cluster0.example", 60, 27017, &target);
    }
    let mut probe = lab.egret().allow("**.cluster0.example:27017").session();
    let query = raw::query(1, "_db._tcp.cluster0.example", rtype::SRV);
    assert_eq!(probe.dns(RESOLVER, false, &[query], 1).0.len(), 1);
    probe.tcp("192.0.2.70:27017").denied();
    for n in 0..3 {
        probe.resolve(&format!("s{n}.cluster0.example")).first();
        probe.tcp(&format!("192.0.2.7{n}:27017")).allowed();
    }
    probe.tcp("192.0.2.70:22").denied();
    assert_eq!(probe.finish().report.reason("tcp", "192.0.2.70:22"), "NamePortMismatch");
}
