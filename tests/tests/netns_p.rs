//! P: packets that are not plain, from real sockets.

use std::time::Duration;

use egret_tests::exec::Cmd;
use egret_tests::lab::Lab;
use egret_tests::packet::{Ext, L4, Packet, tcp};
use egret_tests::policy::Cnp;
use egret_tests::probe::{UdpMode, is_refusal};
use egret_tests::servers::Proto;

const SOON: Duration = Duration::from_secs(3);
const MODES: [UdpMode; 3] = [UdpMode::Connected, UdpMode::SendTo, UdpMode::SendMmsg];

#[test]
fn p_a01_fragments_follow_their_first() {
    let Some(lab) = Lab::start() else { return };
    let policy = Cnp::new().cidr("192.0.2.70/32", &["5000/UDP"]).cidr("2001:db8:a::70/128", &["5000/UDP"]);
    let mut probe = lab.egret().policy(&policy.text()).session();
    let capture = lab.capture();
    // Every 8 bytes spell source and destination port 5000, so the second fragment does too.
    let spelled: Vec<u8> = std::iter::repeat_n([0x13, 0x88], 1500).flatten().collect();
    for (allowed, denied) in
        [("192.0.2.70:5000", "192.0.2.71:5000"), ("[2001:db8:a::70]:5000", "[2001:db8:a::71]:5000")]
    {
        assert!(probe.datagrams(UdpMode::SendTo, &[allowed], false, &spelled)[0].echoed, "{allowed}");
        assert!(
            is_refusal(probe.datagrams(UdpMode::SendTo, &[denied], false, &spelled)[0].errno),
            "{denied}"
        );
    }
    assert!(is_refusal(probe.datagrams(UdpMode::SendTo, &["192.0.2.70:5001"], false, &spelled)[0].errno));
    assert_eq!((capture.count_to("192.0.2.71"), capture.count_to("2001:db8:a::71")), (0, 0));
    assert!(capture.count_to("192.0.2.70") >= 3 && capture.count_to("2001:db8:a::70") >= 3);
    assert_eq!(probe.finish().report.reason("udp", "192.0.2.71:5000"), "NoRule");
}

#[test]
fn p_a02_fragmentation_needed_comes_through() {
    let Some(lab) = Lab::start() else { return };
    lab.world.ip("r", "link set vw mtu 1300");
    // The servers know the narrow link, and still announce segments that do not fit: only the client has to find
    // out. Without this their own full-sized packets vanish in the narrow end of the link, with no ICMP at all.
    lab.world.ip("w", "route change default via 10.7.1.1 mtu 1300 advmss 1460");
    lab.world.ip("w", "route change default via 2001:db8:71::1 mtu 1300 advmss 1440");
    let policy = Cnp::new().cidr("192.0.2.10/32", &["443/TCP"]).cidr("2001:db8:a::10/128", &["443/TCP"]);
    let mut probe = lab.egret().policy(&policy.text()).session();
    probe.held();
    for target in ["192.0.2.10:443", "[2001:db8:a::10]:443"] {
        let conn = probe.tcp(target).allowed();
        assert!(probe.upload(conn, 1 << 20, Duration::from_secs(5)), "{target}");
    }
    for address in ["192.0.2.10", "2001:db8:a::10"] {
        let route = lab.bare().run(&Cmd::new(["ip", "route", "get", address]));
        assert!(route.stdout.contains("mtu 1300"), "the path was not learned: {}", route.stdout);
    }
    probe.finish().report.nothing_denied();
}

#[test]
fn p_a04_extension_headers_are_walked() {
    let Some(lab) = Lab::start() else { return };
    let policy = Cnp::new().cidr("2001:db8:a::/48", &["443/TCP"]).text();
    let mut probe = lab.egret().policy(&policy).args(&["--keep-cap", "CAP_NET_RAW"]).session();
    let capture = lab.capture();
    let syn = |port| Packet::tcp(("2001:db8:7::2", 41000), ("2001:db8:a::4", port), tcp::SYN);
    let walked = |port| syn(port).ext(Ext::HopByHop(0)).ext(Ext::Destination(1));
    for (what, packet, passes) in [
        ("plain, other port", syn(80), false),
        ("options, other port", walked(80), false),
        ("unknown header", syn(443).ext(Ext::Unknown(253)), false),
        ("more headers than the bound", (0..40).fold(syn(443), |p, _| p.ext(Ext::Destination(0))), false),
        ("plain", syn(443), true),
        ("options", walked(443), true),
    ] {
        let before = capture.count_to("2001:db8:a::4");
        assert!(passes || before == 0, "what must not pass comes first");
        assert_eq!(probe.raw(&packet) == 0, passes, "{what}");
        let more = || (capture.count_to("2001:db8:a::4") > before).then_some(());
        assert!(!passes || egret_tests::wait::until(SOON, more).is_some(), "{what}");
    }
    let rows = probe.finish().report.denied();
    assert!(rows.iter().any(|row| row.reason == "ExtensionHeaders"), "{rows:?}");
}

#[test]
fn p_a04_a_port_behind_options_is_the_port_that_counts() {
    let Some(lab) = Lab::start() else { return };
    let policy = Cnp::new().cidr("2001:db8:a::/48", &["5000/UDP"]).text();
    let mut probe = lab.egret().policy(&policy).args(&["--keep-cap", "CAP_NET_RAW"]).session();
    let capture = lab.capture();
    let udp = |port| Packet::udp(("2001:db8:7::2", 41001), ("2001:db8:a::5", port), b"hello");
    assert_ne!(probe.raw(&udp(5001).ext(Ext::Destination(0))), 0);
    assert_eq!(capture.count_to("2001:db8:a::5"), 0);
    assert_eq!(probe.raw(&udp(5000).ext(Ext::HopByHop(0)).ext(Ext::Destination(0))), 0);
    assert!(lab.hits().wait_for(SOON, Proto::Udp, "[2001:db8:a::5]:5000"));
    let other = Packet::new("2001:db8:7::2", "2001:db8:a::5", L4::Other(200, vec![0; 16]));
    assert_ne!(probe.raw(&other), 0, "a protocol that no rule can name");
}

#[test]
fn p_a06_quic_fails_at_once_where_only_tcp_is_listed() {
    let Some(lab) = Lab::start() else { return };
    let mut probe = lab.egret().allow("api.example.com:443").session();
    probe.resolve("api.example.com").first();
    for target in ["192.0.2.10:443", "[2001:db8:a::10]:443"] {
        let start = std::time::Instant::now();
        assert!(is_refusal(probe.udp(target).errno), "{target}");
        probe.tcp(target).allowed();
        assert!(start.elapsed() < Duration::from_millis(300), "{target}: {:?}", start.elapsed());
    }
    assert_eq!(probe.finish().report.reason("udp", "192.0.2.10:443"), "NamePortMismatch");
    let mut listed = lab.egret().allow("api.example.com:443/udp").session();
    listed.resolve("api.example.com").first();
    assert!(listed.udp("192.0.2.10:443").echoed);
}

#[test]
fn p_a07_smoke_mapped_destinations_are_ipv4() {
    let Some(lab) = Lab::start() else { return };
    lab.zone.add("nine.example", 60, &["203.0.113.9"]);
    let mut probe = lab.egret().allow("nine.example:443").allow("nine.example:5000/udp").session();
    probe.connect("203.0.113.9:443", true, None, 0).refused();
    for mode in MODES {
        let denied = probe.datagrams(mode, &["203.0.113.9:5000"], true, b"x");
        assert!(is_refusal(denied[0].errno), "{mode:?} {denied:?}");
    }
    assert!(lab.hits().all().is_empty());
    probe.resolve("nine.example").first();
    probe.connect("203.0.113.9:443", true, None, 0).allowed();
    probe.connect("203.0.113.9:22", true, None, 0).refused();
    for mode in MODES {
        let allowed = probe.datagrams(mode, &["203.0.113.9:5000"], true, b"x");
        assert!(allowed[0].echoed, "{mode:?} {allowed:?}");
        let denied = probe.datagrams(mode, &["203.0.113.8:5000"], true, b"x");
        assert!(is_refusal(denied[0].errno), "{mode:?} {denied:?}");
    }
    assert_eq!(probe.finish().report.reason("udp", "203.0.113.8:5000"), "NameUnresolved");
}

#[test]
fn p_a08_every_datagram_is_judged_on_its_own() {
    let Some(lab) = Lab::start() else { return };
    let policy = Cnp::new().cidr("192.0.2.70/32", &["5000/UDP"]).cidr("2001:db8:a::70/128", &["5000/UDP"]);
    let mut probe = lab.egret().policy(&policy.text()).session();
    let (yes, no, port) = ("192.0.2.70:5000", "192.0.2.71:5000", "192.0.2.70:5001");
    let (yes6, no6) = ("[2001:db8:a::70]:5000", "[2001:db8:a::71]:5000");
    for mode in [UdpMode::SendTo, UdpMode::SendMmsg] {
        for targets in [vec![yes, no, yes, port, no, yes], vec![no, yes, no], vec![yes6, no6, yes6]] {
            let sent = probe.datagrams(mode, &targets, false, b"mixed");
            for (target, datagram) in targets.iter().zip(&sent) {
                let allowed = [yes, yes6].contains(target);
                let seen = (datagram.echoed, is_refusal(datagram.errno));
                assert_eq!(seen, (allowed, !allowed), "{mode:?} {targets:?}: {sent:?}");
            }
        }
    }
    assert_eq!(lab.hits().count(Proto::Udp, no) + lab.hits().count(Proto::Udp, port), 0);
    // Four by sendto. sendmmsg gives up behind datagrams that were sent without telling the error of the next one: the
    // probe tries that one again, and Egret counts both tries, six in all.
    assert_eq!(probe.finish().report.row("udp", no).count, 4 + 6);
}

#[test]
fn p_fast_open_and_ping_are_judged_too() {
    let Some(lab) = Lab::start() else { return };
    let policy = Cnp::new().cidr("192.0.2.70/32", &["443/TCP"]).text();
    let mut probe = lab.egret().policy(&policy).session();
    let capture = lab.capture();
    probe.connect("192.0.2.71:443", false, Some("early"), 0).refused();
    assert!(is_refusal(probe.ping("192.0.2.71")), "no rule opens ICMP");
    assert_eq!(capture.count_to("192.0.2.71"), 0);
    probe.connect("192.0.2.70:443", false, Some("early"), 0).allowed();
}
