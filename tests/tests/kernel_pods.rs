//! The programs at a pod's interface, packet by packet: what passes, and what answers they make. One test for all cases,
//! since loading takes seconds; a failure names its case.

use std::collections::BTreeMap;
use std::net::IpAddr;

use egret::datapath::{Sizes, TestRun};
use egret_common::{
    ids::identity,
    maps::{
        Backend, Backends, CONFIG_EVENTS, CONFIG_SERVICES, ENDPOINT_DNS_NXDOMAIN, ENDPOINT_POD,
        ENDPOINT_QUERY_FILTER, ENDPOINT_REJECT, ENDPOINT_SERVICES, Endpoint, SET_ISOLATED, ServiceKey,
    },
    verdict::DropReason,
};
use egret_core::{
    compile::addr,
    desired::{Desired, diff},
};
use egret_tests::arena::{Arena, ENDPOINT};
use egret_tests::dnsd::raw::{self, rtype};
use egret_tests::model::setup::Setup;
use egret_tests::packet::{Ext, Frame, L4, Packet, is_sound, tcp};

/// Runs happen at the loopback device.
const LOOPBACK: u32 = 1;
const POD_V4: &str = "10.0.0.1";
const POD_V6: &str = "2001:db8::1";
/// `TC_ACT_UNSPEC`, `TC_ACT_SHOT`, `TC_ACT_REDIRECT`.
const PASS: u32 = u32::MAX;
const DROP: u32 = 2;
const REDIRECT: u32 = 7;

/// Name and steps.
type Case = (&'static str, fn(&mut World));

const CASES: [Case; 11] = [
    ("frames", frames_that_are_not_ip),
    ("P-A05 tags", p_a05_one_tag_is_looked_through),
    ("sources", a_pod_sends_from_its_own_addresses_only),
    ("K-A06 probes", k_a06_the_node_may_always_begin),
    ("replies", replies_pass_without_a_rule),
    ("silence", a_denied_packet_gets_no_answer_by_default),
    ("resets", a_denied_connect_is_reset_where_that_is_wanted),
    ("errors", a_denied_datagram_gets_an_icmp_error_where_that_is_wanted),
    ("W-A12 refusals", w_a12_a_refused_query_is_answered),
    ("learning", an_answer_opens_its_address_before_it_is_delivered),
    ("Services", r_a01_a_service_is_judged_by_its_backends),
];

/// The programs with a pod behind the loopback device, under the setup "policies".
struct World {
    arena: Arena,
    desired: Desired,
}

#[test]
fn p_a05_k_a06_k_a12_w_a12_r_a01_packets_at_a_pods_interface() {
    let state = Setup::named("policies").state();
    let mut arena = Arena::load_pods(
        state.config_flags() | CONFIG_EVENTS | CONFIG_SERVICES,
        Sizes { services: 16, interfaces: 4, ..Sizes::run() },
    );
    let mut desired = state.desired().clone();
    desired.addresses = [POD_V4, POD_V6].iter().map(|ip| (addr(parse(ip)), ENDPOINT)).collect();
    arena.apply(&diff(&Desired::default(), &desired)).expect("written");
    arena.bind_interface(LOOPBACK, Some(ENDPOINT)).expect("bound");
    let mut world = World { arena, desired };
    for (name, case) in CASES {
        eprintln!("{name}");
        world.set_flags(ENDPOINT_POD | ENDPOINT_QUERY_FILTER);
        case(&mut world);
        for map in ["FLOWS", "DNS_QUERIES", "GRANTS"] {
            world.arena.clear(map);
        }
    }
    world.arena.bind_interface(LOOPBACK, None).expect("unbound");
    assert_eq!(world.sent(&syn(POD_V4, "192.0.2.70", 443)), DROP, "an interface that is nobody's");
}

impl World {
    fn set_flags(&mut self, flags: u32) {
        let mut changed = self.desired.clone();
        let endpoint: &mut Endpoint = changed.endpoints.get_mut(&ENDPOINT).expect("the endpoint");
        endpoint.flags = flags;
        self.switch(changed);
    }

    fn switch(&mut self, desired: Desired) {
        self.arena.apply(&diff(&self.desired, &desired)).expect("written");
        self.desired = desired;
    }

    fn run(&self, program: &'static str, frame: &[u8]) -> TestRun {
        self.arena.test_run(program, frame, 1).unwrap_or_else(|error| panic!("{error}: {frame:02x?}"))
    }

    fn sent(&self, packet: &Packet) -> u32 {
        self.run("egret_from_pod", &packet.frame(Frame::Ethernet)).value
    }

    fn received(&self, packet: &Packet) -> u32 {
        self.run("egret_to_pod", &packet.frame(Frame::Ethernet)).value
    }

    /// Sends; the answer without its Ethernet header, which must be the packet's turned round.
    #[track_caller]
    fn answer(&self, packet: &Packet) -> Vec<u8> {
        let frame = packet.frame(Frame::Ethernet);
        let run = self.run("egret_from_pod", &frame);
        assert_eq!(run.value, REDIRECT);
        let (head, packet) = run.packet.split_at(14);
        assert_eq!(head, [&frame[6..12], &frame[..6], &frame[12..14]].concat());
        assert!(is_sound(packet), "{packet:02x?}");
        packet.to_vec()
    }

    fn count(&self, reason: DropReason) -> u64 {
        let rows = self.arena.counters(ENDPOINT);
        rows.iter().filter(|row| row.reason == reason as u8).map(|row| row.packets).sum()
    }
}

fn parse(ip: &str) -> IpAddr {
    ip.parse().expect("an address")
}

fn syn(from: &str, to: &str, port: u16) -> Packet {
    Packet::tcp((from, 4000), (to, port), tcp::SYN).seq(77)
}

fn frames_that_are_not_ip(world: &mut World) {
    let frame = |kind: [u8; 2]| [&[2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1][..], &kind, &[0; 46]].concat();
    assert_eq!(world.run("egret_from_pod", &frame([0x08, 0x06])).value, PASS, "ARP");
    assert_eq!(world.run("egret_to_pod", &frame([0x08, 0x06])).value, PASS, "ARP");
    let before = world.count(DropReason::UnsupportedProtocol);
    assert_eq!(world.run("egret_from_pod", &frame([0x88, 0xb5])).value, DROP);
    assert_eq!(world.count(DropReason::UnsupportedProtocol), before + 1);
}

fn p_a05_one_tag_is_looked_through(world: &mut World) {
    let tagged = |packet: &Packet, tags: usize| {
        let mut frame = packet.frame(Frame::Ethernet);
        for _ in 0..tags {
            frame.splice(12..12, [0x81, 0, 0, 7]);
        }
        frame
    };
    let (open, closed) = (syn(POD_V4, "192.0.2.70", 443), syn(POD_V4, "192.0.2.70", 444));
    assert_eq!(world.run("egret_from_pod", &tagged(&open, 1)).value, PASS);
    assert_eq!(world.run("egret_from_pod", &tagged(&closed, 1)).value, DROP);
    assert_eq!(world.run("egret_from_pod", &tagged(&open, 2)).value, DROP, "two tags are not IP");
}

fn a_pod_sends_from_its_own_addresses_only(world: &mut World) {
    assert_eq!(world.sent(&syn(POD_V4, "192.0.2.70", 443)), PASS);
    assert_eq!(world.sent(&syn(POD_V6, "2001:db8:c::1", 443)), PASS);
    let before = world.count(DropReason::InvalidSource);
    assert_eq!(world.sent(&syn("10.0.0.2", "192.0.2.70", 443)), DROP);
    assert_eq!(world.sent(&syn("2001:db8::2", "2001:db8:c::1", 443)), DROP);
    assert_eq!(world.sent(&syn("fe80::7", "2001:db8:c::1", 443)), DROP);
    assert_eq!(world.count(DropReason::InvalidSource), before + 3);
    // Duplicate address detection has no source yet (RFC 4862 5.4.2).
    let solicitation = Packet::new("::", "ff02::1:ff00:1", L4::Icmp(135, 0, vec![0; 20])).ttl(255);
    assert_eq!(world.sent(&solicitation), PASS);
}

fn k_a06_the_node_may_always_begin(world: &mut World) {
    let node = world.desired.identities.iter().find(|(_, id)| **id == identity::HOST).expect("a node").0;
    let node = IpAddr::from(node.octets()).to_canonical().to_string();
    let before = world.desired.clone();
    let mut closed = before.clone();
    let endpoint: &mut Endpoint = closed.endpoints.get_mut(&ENDPOINT).expect("the endpoint");
    // A set without a single rule.
    (endpoint.ingress_set, endpoint.ingress_features) = (999, SET_ISOLATED);
    world.switch(closed);
    assert_eq!(world.received(&syn(&node, POD_V4, 9999)), PASS);
    assert_eq!(world.received(&syn("203.0.113.99", POD_V4, 9999)), DROP);
    assert_eq!(world.sent(&syn(POD_V4, &node, 9999)), PASS, "a rule of the setup");
    world.switch(before);
}

fn replies_pass_without_a_rule(world: &mut World) {
    let reply = Packet::tcp(("192.0.2.70", 443), (POD_V4, 4000), tcp::SYN | tcp::ACK);
    assert_eq!(world.received(&reply), DROP, "an answer to nothing");
    assert_eq!(world.sent(&syn(POD_V4, "192.0.2.70", 443)), PASS);
    assert_eq!(world.received(&reply), PASS);
    assert_eq!(world.received(&syn("192.0.2.70", POD_V4, 4000)), DROP, "a flow of the peer's own");
}

fn a_denied_packet_gets_no_answer_by_default(world: &mut World) {
    assert_eq!(world.sent(&syn(POD_V4, "192.0.2.70", 444)), DROP);
    assert_eq!(world.sent(&Packet::udp((POD_V4, 4000), ("198.51.100.1", 444), b"hello")), DROP);
}

fn a_denied_connect_is_reset_where_that_is_wanted(world: &mut World) {
    world.set_flags(ENDPOINT_POD | ENDPOINT_REJECT);
    for (from, to, header) in [(POD_V4, "198.51.100.1", 20), (POD_V6, "2001:db8:ffff::1", 40)] {
        let answer = world.answer(&syn(from, to, 444));
        assert_eq!(answer.len(), header + 20);
        let tcp_part = &answer[header..];
        assert_eq!(tcp_part[..4], [444u16.to_be_bytes(), 4000u16.to_be_bytes()].concat());
        // SYN without ACK: sequence number 0, everything acknowledged (RFC 9293 3.5.2).
        assert_eq!(tcp_part[4..12], [0u32.to_be_bytes(), 78u32.to_be_bytes()].concat());
        assert_eq!(tcp_part[13], tcp::RST | tcp::ACK);
        let data = L4::Tcp(4000, 444, tcp::ACK | tcp::PSH, vec![7; 100]);
        let answer = world.answer(&Packet::new(from, to, data).seq(500));
        assert_eq!(answer.len(), header + 20);
        assert_eq!((answer[header + 13], &answer[header + 4..header + 8]), (tcp::RST, &[0; 4][..]));
        assert_eq!(
            world.sent(&Packet::tcp((from, 4000), (to, 444), tcp::RST)),
            DROP,
            "never a RST for a RST"
        );
    }
    let options = syn(POD_V4, "198.51.100.1", 444).options(&[1, 1, 1, 0]);
    let run = world.run("egret_from_pod", &options.frame(Frame::Ethernet));
    assert_eq!((run.value, run.packet.len()), (REDIRECT, 14 + 24 + 20));
}

fn a_denied_datagram_gets_an_icmp_error_where_that_is_wanted(world: &mut World) {
    world.set_flags(ENDPOINT_POD | ENDPOINT_REJECT);
    for (from, to, header, kind) in
        [(POD_V4, "198.51.100.1", 20, [3, 13]), (POD_V6, "2001:db8:ffff::1", 40, [1, 1])]
    {
        for size in [0, 1, 7, 400] {
            let packet = Packet::udp((from, 4000), (to, 444), &vec![0x5a; size]);
            let answer = world.answer(&packet);
            assert_eq!(answer[header..header + 2], kind);
            assert_eq!(answer[header + 8..], packet.build(), "quoted whole");
        }
        let long = Packet::udp((from, 4000), (to, 444), &[1; 1300]);
        assert_eq!(world.sent(&long), DROP, "too long to be quoted whole");
    }
    let echo = Packet::new(POD_V4, "198.51.100.1", L4::Icmp(8, 0, vec![1, 2, 3, 4]));
    assert_eq!(world.answer(&echo)[20..22], [3, 13]);
    let error = Packet::new(POD_V4, "198.51.100.1", L4::Icmp(3, 1, vec![0; 32]));
    assert_eq!(world.sent(&error), DROP, "never an error about an error");
    assert_eq!(world.sent(&Packet::new(POD_V4, "198.51.100.1", L4::Sctp(4000, 444, 1))), DROP);
    let chain = Packet::udp((POD_V6, 4000), ("2001:db8:ffff::1", 444), b"x").ext(Ext::Destination(0));
    assert_eq!(world.sent(&chain), DROP, "behind extension headers there is no answer");
}

fn w_a12_a_refused_query_is_answered(world: &mut World) {
    for (from, to, header) in [(POD_V4, "10.7.0.53", 20), (POD_V6, "2001:db8:7::53", 40)] {
        let query = |name| Packet::udp((from, 4000), (to, 53), &raw::query(0x1234, name, rtype::A));
        assert_eq!(world.sent(&query("api.example")), PASS);
        let refused = query("other.test");
        let answer = world.answer(&refused);
        let dns = &answer[header + 8..];
        assert_eq!(dns[..4], [0x12, 0x34, 0x81, 0x85], "response, RD, RA, REFUSED");
        assert_eq!(dns[4..], raw::query(0x1234, "other.test", rtype::A)[4..]);
        assert_eq!(answer[header..header + 4], [53u16.to_be_bytes(), 4000u16.to_be_bytes()].concat());
        world.set_flags(ENDPOINT_POD | ENDPOINT_QUERY_FILTER | ENDPOINT_DNS_NXDOMAIN);
        assert_eq!(world.answer(&refused)[header + 11], 0x83);
        world.set_flags(ENDPOINT_POD | ENDPOINT_QUERY_FILTER);
        let message = raw::query(1, "other.test", rtype::A);
        let framed = [(message.len() as u16).to_be_bytes().to_vec(), message].concat();
        assert_eq!(world.sent(&syn(from, to, 53)), PASS);
        let answer = world.answer(&Packet::new(from, to, L4::Tcp(4000, 53, tcp::ACK | tcp::PSH, framed)));
        assert_eq!(answer[header + 13] & tcp::RST, tcp::RST, "over TCP the connection is reset");
    }
}

fn an_answer_opens_its_address_before_it_is_delivered(world: &mut World) {
    let connect = syn(POD_V4, "198.51.100.77", 443);
    assert_eq!(world.sent(&connect), DROP);
    let query = raw::query(9, "api.example", rtype::A);
    assert_eq!(world.sent(&Packet::udp((POD_V4, 4000), ("10.7.0.53", 53), &query)), PASS);
    let message = raw::Message::new(9, raw::ANSWER).question("api.example", rtype::A);
    let answer = message.address(raw::QNAME, 60, "198.51.100.77").finish();
    assert_eq!(world.received(&Packet::udp(("10.7.0.53", 53), (POD_V4, 4000), &answer)), PASS);
    assert_eq!(world.sent(&connect), PASS);
    assert_eq!(world.sent(&syn(POD_V4, "198.51.100.77", 444)), DROP);
}

fn r_a01_a_service_is_judged_by_its_backends(world: &mut World) {
    let backends = |list: &[(&str, u32)]| {
        let mut value = Backends { count: list.len() as u32, ..Backends::default() };
        for (slot, (ip, port)) in value.slots.iter_mut().zip(list) {
            *slot = Backend { addr: addr(parse(ip)), port: *port, pad: 0 };
        }
        value
    };
    let open = ("192.0.2.70", 443);
    let cases = BTreeMap::from([
        ("10.96.0.1", (backends(&[open]), PASS)),
        ("10.96.0.2", (backends(&[open, ("192.0.2.71", 8080)]), PASS)),
        ("10.96.0.3", (backends(&[open, ("192.0.2.71", 444)]), DROP)),
        ("10.96.0.4", (backends(&[("198.51.100.1", 443), open]), DROP)),
        ("10.96.0.5", (backends(&[]), DROP)),
        ("10.96.0.6", (backends(&[open; 8]), PASS)),
        // K-A12: a pod cannot block itself, whatever stands before and after.
        ("10.96.0.7", (backends(&[(POD_V4, 8080)]), PASS)),
        ("10.96.0.8", (backends(&[(POD_V4, 8080), open]), PASS)),
        ("10.96.0.9", (backends(&[open, (POD_V4, 8080)]), PASS)),
        ("10.96.0.10", (backends(&[(POD_V4, 8080), ("192.0.2.71", 444)]), DROP)),
        ("10.96.0.11", (backends(&[("192.0.2.71", 444), (POD_V4, 8080)]), DROP)),
    ]);
    let mut desired = with_flags(&world.desired, ENDPOINT_POD | ENDPOINT_SERVICES);
    for (vip, (value, _)) in &cases {
        desired.services.insert(ServiceKey { addr: addr(parse(vip)), port: 80, proto: 6 }, *value);
    }
    world.switch(desired);
    let before = world.count(DropReason::ServiceBackendDenied);
    for (vip, (_, wanted)) in &cases {
        assert_eq!(world.sent(&syn(POD_V4, vip, 80)), *wanted, "{vip}");
    }
    assert_eq!(world.count(DropReason::ServiceBackendDenied), before + 5);
    assert_eq!(world.sent(&syn(POD_V4, "10.96.0.1", 81)), DROP, "a port that the Service does not have");
    let mut without = with_flags(&world.desired, ENDPOINT_POD | ENDPOINT_QUERY_FILTER);
    without.services.clear();
    world.switch(without);
}

fn with_flags(desired: &Desired, flags: u32) -> Desired {
    let mut desired = desired.clone();
    desired.endpoints.get_mut(&ENDPOINT).expect("the endpoint").flags = flags;
    desired
}
