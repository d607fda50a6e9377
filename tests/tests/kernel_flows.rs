//! Packets of flows that are already there: how long a flow counts, under which rules, and what a DNS flow may carry.
//! The loaded program and the model must both say what is written here. One test, since loading takes seconds.

use egret_common::{
    conntrack,
    grant::ticks_of_secs,
    maps::{FlowKey, FlowValue},
    net::{Addr, Direction},
    verdict::DropReason,
};
use egret_core::names::Name;
use egret_tests::arena::ENDPOINT;
use egret_tests::dnsd::raw::{self, rtype};
use egret_tests::model::{
    Pair,
    trial::{Case, run_cases},
};
use egret_tests::packet::{L4, Packet, tcp};

/// The cases under the setup "policies".
const CASES: [Case; 8] = [
    ("idle flows", a_flow_that_was_idle_for_too_long_starts_anew),
    ("X-A01 refused packets", x_a01_packets_that_the_new_rules_refuse_do_not_keep_a_flow_alive),
    ("X-A01 passing packets", x_a01_packets_that_the_new_rules_let_through_renew_the_flow),
    ("S-A02 audited flows", s_a02_what_was_only_audited_is_judged_once_it_counts),
    ("T-A01 expired names", t_a01_an_expired_name_closes_no_flow_that_it_had_opened),
    ("P-A02 errors", p_a02_an_error_passes_only_for_a_living_flow_under_todays_rules),
    ("P-A01 queries", p_a01_a_query_in_fragments_is_refused),
    ("W-A08 announcements", w_a08_nothing_is_announced_until_the_announced_message_has_passed),
];

#[test]
fn x_a01_packets_of_known_flows_one_by_one() {
    run_cases("policies", &CASES);
}

#[test]
fn k_a11_policies_may_leave_open_connections_alone() {
    run_cases("kept", &[("K-A11", k_a11_open_connections_go_on)]);
}

/// A flow of 10.0.0.1 with one that the endpoint met first, last seen `age` seconds ago.
fn put(
    pair: &mut Pair,
    port: u16,
    remote: ([u8; 4], u16),
    age: u64,
    value: FlowValue,
) -> (FlowKey, FlowValue) {
    let key = FlowKey {
        local: Addr::from_v4([10, 0, 0, 1]),
        remote: Addr::from_v4(remote.0),
        endpoint: ENDPOINT,
        local_port: port,
        remote_port: remote.1,
        proto: 6,
        pad: 0,
    };
    let clock = pair.arena.clock().expect("read");
    let last_seen = clock.jiffies - age * u64::from(pair.arena.hz());
    let value = FlowValue { last_seen, ..value };
    pair.put_flow(key, value);
    (key, value)
}

/// The kernel's entry.
#[track_caller]
fn flow(pair: &Pair, key: &FlowKey) -> FlowValue {
    let flows = pair.arena.flows();
    flows.into_iter().find(|(other, _)| other == key).expect("the flow").1
}

fn current(pair: &Pair) -> FlowValue {
    let set = pair.model.desired.endpoints[&ENDPOINT].egress_set;
    FlowValue { set, state: conntrack::ESTABLISHED, ..FlowValue::default() }
}

/// Judged by rules that are no longer in force.
fn stale(pair: &Pair) -> FlowValue {
    FlowValue { set: current(pair).set + 1, ..current(pair) }
}

/// The clock cannot be turned, but a flow's last packet can be long ago.
fn a_flow_that_was_idle_for_too_long_starts_anew(pair: &mut Pair) {
    let limits = [
        (conntrack::SYN_SENT, 60),
        (conntrack::ESTABLISHED, 7440),
        (conntrack::CLOSING, 10),
        (conntrack::UNANSWERED, 60),
        (conntrack::ANSWERED, 180),
    ];
    for (index, (state, limit)) in limits.into_iter().enumerate() {
        for (age, alive) in [(limit - 2, true), (limit + 2, false)] {
            let port = 5000 + 2 * index as u16 + u16::from(alive);
            let value = FlowValue { state, ..current(pair) };
            put(pair, port, ([198, 51, 100, 1], 7), age, value);
            // A reply from a peer to whom no ingress rule speaks: only the flow lets it in.
            let reply = Packet::tcp(("198.51.100.1", 7), ("10.0.0.1", port), tcp::ACK).build();
            let outcome = pair.packet(Direction::Ingress, &reply);
            assert_eq!(outcome.value == 1, alive, "state {state}, idle for {age} s");
        }
    }
}

fn x_a01_packets_that_the_new_rules_refuse_do_not_keep_a_flow_alive(pair: &mut Pair) {
    let value = stale(pair);
    let (key, before) = put(pair, 5100, ([198, 51, 100, 1], 7), 100, value);
    let out = Packet::tcp(("10.0.0.1", 5100), ("198.51.100.1", 7), tcp::ACK | tcp::FIN).build();
    let back = Packet::tcp(("198.51.100.1", 7), ("10.0.0.1", 5100), tcp::ACK | tcp::RST).build();
    assert_eq!(pair.packet(Direction::Egress, &out).value, 2);
    assert_eq!(pair.packet(Direction::Ingress, &back).value, 0);
    assert_eq!(flow(pair, &key), before);
}

/// Audit let it pass; nothing but audit does.
fn s_a02_what_was_only_audited_is_judged_once_it_counts(pair: &mut Pair) {
    let value = FlowValue { reason: DropReason::NoRule as u8, ..current(pair) };
    put(pair, 5160, ([198, 51, 100, 1], 7), 1, value);
    let out = Packet::tcp(("10.0.0.1", 5160), ("198.51.100.1", 7), tcp::ACK).build();
    let back = Packet::tcp(("198.51.100.1", 7), ("10.0.0.1", 5160), tcp::ACK).build();
    let sent = Packet::tcp(("10.0.0.1", 5160), ("198.51.100.1", 7), tcp::ACK);
    let error = sent.icmp_error("198.51.100.254", 3, 4, 1400).build();
    assert_eq!(pair.packet(Direction::Ingress, &error).value, 0);
    assert_eq!(pair.packet(Direction::Egress, &out).value, 2);
    assert_eq!(pair.packet(Direction::Ingress, &back).value, 0);
}

/// Other rules, and a name that is still allowed and has expired: what is open stays open, but for what audit let in.
fn t_a01_an_expired_name_closes_no_flow_that_it_had_opened(pair: &mut Pair) {
    let name = Name::parse("api.example").expect("a name");
    let class = pair.model.desired.name_class(&name);
    let over = pair.now() - ticks_of_secs(60);
    assert!(class != 0 && pair.grant(Addr::from_v4([203, 0, 113, 99]), class, over));
    let audited = FlowValue { reason: DropReason::NameExpired as u8, ..stale(pair) };
    for (port, value, passes) in [(5170, stale(pair), true), (5171, audited, false)] {
        put(pair, port, ([203, 0, 113, 99], 443), 1, value);
        let out = Packet::tcp(("10.0.0.1", port), ("203.0.113.99", 443), tcp::ACK).build();
        assert_eq!(pair.packet(Direction::Egress, &out).value == 1, passes, "port {port}");
    }
}

/// As the case above, with open connections kept: TCP goes on, and what begins is refused all the same.
fn k_a11_open_connections_go_on(pair: &mut Pair) {
    let value = stale(pair);
    let (key, before) = put(pair, 5150, ([198, 51, 100, 1], 7), 100, value);
    let out = Packet::tcp(("10.0.0.1", 5150), ("198.51.100.1", 7), tcp::ACK).build();
    let back = Packet::tcp(("198.51.100.1", 7), ("10.0.0.1", 5150), tcp::ACK).build();
    assert_eq!(pair.packet(Direction::Egress, &out).value, 1);
    assert_eq!(pair.packet(Direction::Ingress, &back).value, 1);
    assert!(flow(pair, &key).last_seen > before.last_seen);
    let sent = Packet::tcp(("10.0.0.1", 5150), ("198.51.100.1", 7), tcp::ACK);
    let error = sent.icmp_error("198.51.100.254", 3, 4, 1400).build();
    assert_eq!(pair.packet(Direction::Ingress, &error).value, 1);
    let audited = FlowValue { reason: DropReason::NoRule as u8, ..value };
    put(pair, 5152, ([198, 51, 100, 1], 7), 1, audited);
    let other = Packet::tcp(("10.0.0.1", 5152), ("198.51.100.1", 7), tcp::ACK).build();
    assert_eq!(pair.packet(Direction::Egress, &other).value, 2, "no rule ever opened it");
    let again = Packet::tcp(("10.0.0.1", 5150), ("198.51.100.1", 7), tcp::SYN).build();
    assert_eq!(pair.packet(Direction::Egress, &again).value, 2, "a SYN begins anew");
    let udp = FlowKey { proto: 17, local_port: 5151, ..key };
    pair.put_flow(udp, FlowValue { state: conntrack::ANSWERED, ..before });
    let datagram = Packet::new("10.0.0.1", "198.51.100.1", L4::Udp(5151, 7, vec![1])).build();
    assert_eq!(pair.packet(Direction::Egress, &datagram).value, 2, "UDP has no connections");
}

fn x_a01_packets_that_the_new_rules_let_through_renew_the_flow(pair: &mut Pair) {
    let value = stale(pair);
    let (key, before) = put(pair, 5200, ([192, 0, 2, 70], 443), 100, value);
    let out = Packet::tcp(("10.0.0.1", 5200), ("192.0.2.70", 443), tcp::ACK | tcp::FIN).build();
    assert_eq!(pair.packet(Direction::Egress, &out).value, 1);
    let after = flow(pair, &key);
    assert!(after.last_seen > before.last_seen);
    assert_eq!((after.set, after.state), (current(pair).set, conntrack::CLOSING));
}

fn p_a02_an_error_passes_only_for_a_living_flow_under_todays_rules(pair: &mut Pair) {
    let (now, old) = (current(pair), stale(pair));
    for (port, value, age, passes) in
        [(5300, now, 100, true), (5301, now, 7500, false), (5302, old, 100, false)]
    {
        put(pair, port, ([192, 0, 2, 70], 443), age, value);
        let sent = Packet::tcp(("10.0.0.1", port), ("192.0.2.70", 443), tcp::ACK);
        let error = sent.icmp_error("198.51.100.254", 3, 4, 1400).build();
        assert_eq!(pair.packet(Direction::Ingress, &error).value == 1, passes, "port {port}");
    }
}

fn p_a01_a_query_in_fragments_is_refused(pair: &mut Pair) {
    let query = raw::query(7, "api.example", rtype::A);
    let whole = Packet::new("10.0.0.1", "10.7.0.53", L4::Udp(5400, 53, query));
    assert_eq!(pair.packet(Direction::Egress, &whole.build()).value, 1);
    let fragments = whole.fragments(16, 90);
    assert!(fragments.len() > 2);
    for fragment in fragments {
        let outcome = pair.packet(Direction::Egress, &fragment.build());
        assert_eq!(outcome.flow.map(|event| event.reason), Some(DropReason::QueryRefused as u8));
        assert_eq!(outcome.value, 2);
    }
}

fn w_a08_nothing_is_announced_until_the_announced_message_has_passed(pair: &mut Pair) {
    let message = |name| raw::query(7, name, rtype::A);
    let size = |message: &[u8]| (message.len() as u16).to_be_bytes().to_vec();
    let (good, bad) = (message("api.example"), message("other.test"));
    let (length, other) = (size(&good), size(&bad[1..]));
    let len = good.len() as u32;
    let framed = [length.clone(), good.clone()].concat();
    let both = [framed.clone(), framed.clone()].concat();
    // Sequence numbers pass zero on the way.
    let start = u32::MAX - 20;
    let (first, second, third) = (start, start.wrapping_add(2 + len), start.wrapping_add(4 + 2 * len));
    let syn = Packet::tcp(("10.0.0.1", 5500), ("10.7.0.53", 53), tcp::SYN).build();
    assert_eq!(pair.packet(Direction::Egress, &syn).value, 1);
    for (what, seq, payload, passes) in [
        ("a length of nothing", first, vec![0, 0], false),
        ("a length", first, length.clone(), true),
        ("again", first, length.clone(), true),
        ("another in its place", first, other.clone(), false),
        ("another in the message's place", first.wrapping_add(2), length.clone(), false),
        ("another behind the message", second, length.clone(), false),
        ("the message", first.wrapping_add(2), good.clone(), true),
        ("the message again", first.wrapping_add(2), good.clone(), true),
        ("both again, in one segment", first, framed.clone(), true),
        ("another length inside the message", first.wrapping_add(4), other.clone(), false),
        ("the next length", second, length.clone(), true),
        ("a message that is refused", second.wrapping_add(2), bad, false),
        ("a length behind it", third, length.clone(), false),
        ("the message that passes", second.wrapping_add(2), good.clone(), true),
        ("two in one segment", third, both, true),
        ("a length after them", third.wrapping_add(4 + 2 * len), length.clone(), true),
    ] {
        let segment = L4::Tcp(5500, 53, tcp::ACK | tcp::PSH, payload);
        let packet = Packet::new("10.0.0.1", "10.7.0.53", segment).seq(seq).build();
        assert_eq!(pair.packet(Direction::Egress, &packet).value == 1, passes, "{what}");
        pair.settle();
    }
}
