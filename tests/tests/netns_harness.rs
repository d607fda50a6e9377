//! The harness tests itself: what the scenario tests take for granted holds without Egret, and what they
//! assert would be noticed if it were wrong.

use std::panic::AssertUnwindSafe;
use std::time::{Duration, Instant};

use egret_tests::dnsd::{Action, chunked, handler, raw};
use egret_tests::lab::{Lab, RESOLVER};
use egret_tests::netns::World;
use egret_tests::packet::{self, Ext, L4, Packet};
use egret_tests::probe::UdpMode;
use egret_tests::residue::Residue;
use egret_tests::servers::{Capture, Proto, Seen, dissect};
use egret_tests::traffic::{curl, dig, getent, python_connect};

const SOON: Duration = Duration::from_secs(3);

#[test]
fn a_world_is_made_quickly_and_removed_entirely() {
    if egret_tests::netns::unavailable().is_some() {
        return;
    }
    let start = Instant::now();
    let world = World::standard();
    let took = start.elapsed();
    eprintln!("a world takes {took:?}");
    assert!(took < Duration::from_secs(2), "too slow: {took:?}");
    let name = world.ns("c").name().to_string();
    let dir = world.dir().to_path_buf();
    drop(world);
    assert!(!std::path::Path::new("/run/netns").join(name).exists());
    assert!(!dir.exists());
}

#[test]
fn a_panic_inside_a_world_removes_it_too() {
    if egret_tests::netns::unavailable().is_some() {
        return;
    }
    let caught = std::panic::catch_unwind(|| {
        let world = World::standard();
        let name = world.ns("w").name().to_string();
        world.ns("w").run(|| std::panic::panic_any(name));
    });
    let name = caught.unwrap_err().downcast::<String>().expect("the name");
    assert!(!std::path::Path::new("/run/netns").join(*name).exists());
}

#[test]
fn real_programs_resolve_and_connect_without_egret() {
    let Some(lab) = Lab::start() else { return };
    let place = lab.bare();
    let page = place.run(&curl("http://api.example.com:443/"));
    assert!(page.expect_success().stdout.contains(":443 from "), "{page:?}");
    let both = place.run(&getent("api.example.com"));
    assert!(both.stdout.contains("192.0.2.10") && both.stdout.contains("2001:db8:a::10"), "{both:?}");
    let short = place.run(&dig("10.7.0.53", "api.example.com", &["+short", "+tcp"]));
    assert_eq!(short.stdout.trim(), "192.0.2.10");
    let python = place.run(&python_connect("other.example.com", 8080));
    assert!(python.stdout.starts_with("reached 192.0.2.99:8080"), "{python:?}");
    assert_eq!(lab.hits().count(Proto::Tcp, "192.0.2.99:8080"), 1);
    assert!(lab.queries().count("api.example.com") >= 3);
    assert_eq!(lab.queries().tcp(), (1, 1));
}

#[test]
fn every_kind_of_socket_works_without_egret() {
    let Some(lab) = Lab::start() else { return };
    let mut probe = lab.bare_session();
    for to in ["192.0.2.10:443", "[2001:db8:a::10]:443", "198.51.100.9:80", "[64:ff9b::c000:233]:443"] {
        let conn = probe.tcp(to).allowed();
        assert!(probe.echo(conn, "hello"), "{to}");
        probe.close(conn);
        assert!(lab.hits().wait_for(SOON, Proto::Tcp, to), "{to}");
    }
    probe.connect("192.0.2.11:443", true, None, 0).allowed();
    probe.connect("192.0.2.12:443", false, Some("early"), 40001).allowed();
    assert_eq!(probe.tcp("192.0.2.10:9").result, Err(libc::ECONNREFUSED));
    for mode in [UdpMode::Connected, UdpMode::SendTo, UdpMode::SendMmsg] {
        for (to, mapped) in
            [("192.0.2.10:5000", false), ("192.0.2.10:5000", true), ("[2001:db8:a::10]:5000", false)]
        {
            let sent = probe.datagrams(mode, &[to, to], mapped, &[7; 3000]);
            assert!(sent.iter().all(|d| d.errno == 0 && d.echoed), "{mode:?} {to} {mapped}: {sent:?}");
        }
    }
    assert_eq!(probe.ping("192.0.2.10"), 0);
    assert_eq!(probe.ping("2001:db8:a::10"), 0);
    assert!(probe.finish().success());
}

#[test]
fn the_resolver_sends_what_it_is_given() {
    let scripted = handler(|query| match query.name_lower().as_str() {
        "silent.test" => vec![],
        "cut.test" => chunked(&raw::Message::reply(query, raw::ANSWER).finish(), 1, Duration::ZERO),
        "first.test" => vec![Action::AfterNext(raw::Message::reply(query, raw::ANSWER).finish())],
        _ => vec![Action::Send(raw::Message::reply(query, raw::ANSWER).finish())],
    });
    let Some(lab) = Lab::scripted(scripted) else { return };
    let mut probe = lab.bare_session();
    let ask = |id, name| raw::query(id, name, raw::rtype::A);
    let (answers, errno) = probe.dns(RESOLVER, false, &[ask(1, "silent.test"), ask(2, "Loud.Test")], 1);
    assert_eq!((answers.len(), errno), (1, 0));
    assert_eq!(answers[0][12..22], *b"\x04Loud\x04Test");
    let messages = [ask(1, "first.test"), ask(2, "second.test"), ask(3, "cut.test")];
    let (answers, _) = probe.dns(RESOLVER, true, &messages, 3);
    let ids: Vec<u8> = answers.iter().map(|answer| answer[1]).collect();
    assert_eq!(ids, [2, 1, 3], "the first was held back");
    assert_eq!(lab.queries().tcp(), (3, 1));
    lab.queries().assert_silent_about("attacker");
    let caught = std::panic::catch_unwind(AssertUnwindSafe(|| lab.queries().assert_silent_about("silent")));
    assert!(caught.is_err(), "the log would notice");
}

#[test]
fn the_zone_truncates_rotates_and_changes() {
    let Some(lab) = Lab::start() else { return };
    let many: Vec<String> = (1..=60).map(|n| format!("198.51.100.{n}")).collect();
    let many: Vec<&str> = many.iter().map(String::as_str).collect();
    lab.zone.add("pool.example.com", 60, &many).tc_above(Some(512));
    lab.zone.rotate("turn.example.com", 5, &[&["192.0.2.1"], &["192.0.2.2"]]);
    let mut probe = lab.bare_session();
    assert_eq!(probe.resolve("pool.example.com").addresses.len(), 60);
    assert!(lab.queries().tcp().0 > 0, "by TCP after a truncated answer");
    assert_eq!(probe.resolve("turn.example.com").first(), "192.0.2.1");
    assert_eq!(probe.resolve("turn.example.com").first(), "192.0.2.2");
    lab.zone.cname("alias.example.com", 5, "turn.example.com").set("turn.example.com", 5, &["192.0.2.3"]);
    assert_eq!(probe.resolve("alias.example.com").first(), "192.0.2.3");
    probe.resolve("nowhere.example.com").failed();
}

#[test]
fn the_local_stub_answers_from_its_cache() {
    let Some(lab) = Lab::start() else { return };
    let stub = lab.stub();
    let place = lab.bare().resolv_conf("nameserver 127.0.0.53\noptions edns0 trust-ad\nsearch .\n");
    for _ in 0..2 {
        place.run(&curl("http://api.example.com/")).expect_success();
    }
    assert_eq!(stub.log().count("api.example.com"), 4);
    assert_eq!(stub.forwarded(), 2, "A and AAAA once each");
    assert_eq!(lab.queries().count("api.example.com"), 2);
}

#[test]
fn a_place_has_its_own_resolv_conf_and_cgroup() {
    let Some(lab) = Lab::start() else { return };
    let Some(root) = egret_tests::residue::cgroup2() else { return };
    let group = root.join(format!("eg-test-{}", std::process::id()));
    std::fs::create_dir_all(&group).expect("a cgroup");
    let place = lab.bare().resolv_conf("nameserver 192.0.2.1\n").cgroup(&group);
    let seen = place.run(&egret_tests::exec::Cmd::sh("cat /etc/resolv.conf; grep ^0:: /proc/self/cgroup"));
    std::fs::remove_dir(&group).expect("an empty cgroup");
    assert!(seen.stdout.contains("nameserver 192.0.2.1") && seen.stdout.contains("/eg-test-"), "{seen:?}");
    assert_ne!(std::fs::read_to_string("/etc/resolv.conf").unwrap_or_default(), "nameserver 192.0.2.1\n");
}

#[test]
fn the_capture_sees_what_nobody_listens_to() {
    let Some(lab) = Lab::start() else { return };
    let capture = lab.capture();
    let mut probe = lab.bare_session();
    probe.datagrams(UdpMode::SendTo, &["203.0.113.7:4242"], false, &[1; 3000]);
    let udp = |seen: &Seen| seen.protocol == 17 && seen.fragment_offset > 0;
    assert!(capture.wait_for(SOON, udp).is_some(), "the fragments of a datagram");
    assert!(capture.count_to("203.0.113.7") >= 3);
    assert_eq!(capture.count_to("203.0.113.8"), 0);
}

#[test]
fn the_residue_scan_detects() {
    let Some(lab) = Lab::exclusive() else { return };
    let Some(root) = egret_tests::residue::cgroup2() else { return };
    let before = Residue::snapshot();
    before.assert_clean(Duration::ZERO);
    let group = root.join("egret-residue-test");
    std::fs::create_dir(&group).expect("a cgroup");
    std::fs::create_dir_all("/sys/fs/bpf/egret/residue-test").expect("a directory of bpffs");
    let left = Residue::snapshot().new_since(&before);
    std::fs::remove_dir(&group).expect("an empty cgroup");
    std::fs::remove_dir("/sys/fs/bpf/egret/residue-test").expect("an empty directory");
    let _ = std::fs::remove_dir("/sys/fs/bpf/egret");
    assert!(left.iter().any(|line| line.starts_with("cgroup")), "{left:?}");
    assert!(left.iter().any(|line| line.starts_with("pin")), "{left:?}");
    assert!(!Residue::snapshot().of_kind("netns").is_empty());
    before.assert_clean(SOON);
    drop(lab);
}

#[test]
fn packets_by_hand_have_right_checksums() {
    let Some(lab) = Lab::start() else { return };
    // Packets from raw sockets are checked by the kernel that receives them: it answers only right ones.
    let (v4, v6) = (("10.7.0.2", "192.0.2.77"), ("2001:db8:7::2", "2001:db8:a::77"));
    let echo = |kind| L4::Icmp(kind, 0, vec![0, 7, 0, 1, 9]);
    let syn = packet::tcp::SYN;
    let packets = [
        Packet::new(v4.0, v4.1, echo(8)),
        Packet::tcp((v4.0, 41000), (v4.1, 443), syn).options(&[1, 1, 1]),
        Packet::udp((v4.0, 41001), (v4.1, 5000), b"odd"),
        Packet::new(v6.0, v6.1, echo(128)),
        Packet::tcp((v6.0, 41002), (v6.1, 443), syn).ext(Ext::Destination(1)),
        Packet::udp((v6.0, 41003), (v6.1, 5000), b"even").ext(Ext::HopByHop(0)).ext(Ext::Destination(0)),
    ];
    let answers = Capture::start(lab.world.ns("c"));
    lab.world.ns("c").run(|| packets.iter().for_each(|packet| send_raw(&packet.build())));
    for (source, protocol, ports) in [
        (v4.1, 1, None),
        (v4.1, 6, Some((443, 41000))),
        (v4.1, 17, Some((5000, 41001))),
        (v6.1, 58, None),
        (v6.1, 6, Some((443, 41002))),
        (v6.1, 17, Some((5000, 41003))),
    ] {
        let source: std::net::IpAddr = source.parse().expect("an address");
        let wanted = |seen: &Seen| (seen.source, seen.protocol, seen.ports) == (source, protocol, ports);
        assert!(answers.wait_for(SOON, wanted).is_some(), "{source} protocol {protocol}");
    }
}

/// Sends a whole IP packet as it is.
fn send_raw(bytes: &[u8]) {
    use nix::sys::socket::*;
    use std::os::fd::AsRawFd;
    let to = dissect(bytes.to_vec()).expect("an IP packet").destination;
    let family = if to.is_ipv4() { AddressFamily::Inet } else { AddressFamily::Inet6 };
    let raw = socket(family, SockType::Raw, SockFlag::SOCK_CLOEXEC, SockProtocol::Raw).expect("a raw socket");
    let to = SockaddrStorage::from(std::net::SocketAddr::new(to, 0));
    sendto(raw.as_raw_fd(), bytes, &to, MsgFlags::empty()).expect("send a raw packet");
}
