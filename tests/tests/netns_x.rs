//! X: connection tracking.

use std::time::Duration;

use egret_tests::lab::Lab;
use egret_tests::policy::Cnp;
use egret_tests::probe::{UdpMode, is_refusal};
use egret_tests::servers::Proto;
use egret_tests::wait::pass;

const TARGET: &str = "192.0.2.80:443";

#[test]
fn x_a01_smoke_a_syn_is_a_new_connection() {
    let Some(lab) = Lab::start() else { return };
    lab.zone.add("eighty.example", 2, &["192.0.2.80"]);
    let mut probe = lab.egret().allow("eighty.example:443").lifetimes(1, 0, 86400).session();
    // deny, then allow at once: the same five-tuple throughout
    probe.connect(TARGET, false, None, 40000).refused();
    probe.resolve("eighty.example").first();
    let conn = probe.connect(TARGET, false, None, 40000).allowed();
    assert!(probe.echo(conn, "open"));
    probe.close(conn);
    // allow, then deny: the name's lifetime is over
    pass(Duration::from_secs(5));
    probe.connect(TARGET, false, None, 40000).refused();
    assert_eq!(lab.hits().count(Proto::Tcp, TARGET), 1);
    let reasons: Vec<String> = probe.finish().report.denied().into_iter().map(|row| row.reason).collect();
    assert!(reasons.contains(&"NameExpired".into()), "{reasons:?}");
}

#[test]
fn x_a01_another_policy_judges_the_same_five_tuple_afresh() {
    let Some(lab) = Lab::start() else { return };
    let open = Cnp::new().cidr("192.0.2.80/32", &["443/TCP", "5000/UDP"]).text();
    let other = Cnp::new().cidr("192.0.2.81/32", &["443/TCP", "5000/UDP"]).text();
    for (policy, allowed) in [(&open, true), (&other, false), (&open, true)] {
        let mut probe = lab.egret().policy(policy).session();
        let tcp = probe.connect(TARGET, false, None, 40000);
        assert_eq!(tcp.result.is_ok(), allowed, "{tcp:?}");
        let udp = probe.datagrams_from(UdpMode::SendTo, &["192.0.2.80:5000"], false, b"x", 40000);
        assert_eq!((udp[0].echoed, is_refusal(udp[0].errno)), (allowed, !allowed), "{udp:?}");
        probe.finish();
    }
}
