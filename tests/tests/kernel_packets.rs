//! Packets one by one: what each must come to is written here, and the loaded program and the model must both say so.
//! One test for all cases, since loading the programs takes seconds; a failure names its case.

use egret::datapath::CounterRow;
use egret_common::{
    ids::identity,
    net::{Addr, Direction},
    verdict::DropReason,
};
use egret_core::desired::Desired;
use egret_tests::arena::Arena;
use egret_tests::model::{
    Pair,
    setup::Setup,
    trial::{Case, run_cases},
};
use egret_tests::packet::{Ext, L4, Packet, tcp};

/// The cases under the setup "policies".
const CASES: [Case; 4] = [
    ("P-A01 fragments", p_a01_later_fragments_follow_the_first_ones_ports_and_nothing_else),
    ("P-A01 source routes and lengths", p_a01_source_routes_and_lying_lengths_are_invalid),
    ("P-A04", p_a04_the_port_behind_extension_headers_counts),
    ("P-A07", p_a07_a_mapped_address_is_its_ipv4_address),
];

#[test]
fn p_a01_p_a04_p_a07_packets_one_by_one() {
    let mut pair = run_cases("policies", &CASES);
    eprintln!("no policies, no endpoint");
    without_policies_everything_passes_and_is_remembered(&mut pair);
    a_cgroup_that_nobody_knows_sends_and_receives_nothing(&mut pair.arena);
}

const PASS: Result<(), DropReason> = Ok(());

/// Egress under a setup: silence is a drop, too.
#[track_caller]
fn check(pair: &mut Pair, packet: &Packet, want: Result<(), DropReason>) {
    check_bytes(pair, Direction::Egress, &packet.build(), want);
}

#[track_caller]
fn check_bytes(pair: &mut Pair, direction: Direction, bytes: &[u8], want: Result<(), DropReason>) {
    let outcome = pair.packet(direction, bytes);
    let got = match outcome.value {
        1 => Ok(()),
        _ => Err(outcome.flow.and_then(|event| DropReason::from_u8(event.reason))),
    };
    assert_eq!(got, want.map_err(Some), "{bytes:02x?}");
    pair.settle();
}

fn p_a01_later_fragments_follow_the_first_ones_ports_and_nothing_else(pair: &mut Pair) {
    // UDP 5353 to 192.0.2.0/25 is open, 5354 is not.
    let open = Packet::new("10.0.0.1", "192.0.2.70", L4::Udp(4000, 5353, vec![7; 3000]));
    for fragment in open.fragments(1480, 77) {
        check(pair, &fragment, PASS);
    }
    // The second fragment's first bytes spell an open port.
    let payload = [[0x0f, 0xa0, 0x14, 0xe9]; 750].concat();
    let closed = Packet::new("10.0.0.1", "192.0.2.71", L4::Udp(4000, 5354, payload));
    for fragment in closed.fragments(1480, 78) {
        check(pair, &fragment, Err(DropReason::NoRule));
    }
    // A fragment whose first one never came, and one of another datagram between the same hosts.
    let stray =
        |id| Packet::new("10.0.0.1", "192.0.2.70", L4::Other(17, vec![0x14; 64])).fragment(1480, false, id);
    check(pair, &stray(79), Err(DropReason::FragmentUnknown));
    check(pair, &stray(77), PASS);
    // Overlapping the ports: offset 8 bytes, so that reassembly would rewrite them (RFC 1858).
    let overlap = Packet::new("10.0.0.1", "192.0.2.70", L4::Other(17, vec![0; 64])).fragment(8, false, 80);
    check(pair, &overlap, Err(DropReason::FragmentUnknown));
    let tiny = Packet::new("10.0.0.1", "192.0.2.70", L4::Other(17, vec![0; 7])).fragment(0, true, 81);
    check(pair, &tiny, Err(DropReason::InvalidPacket));
    let v6 = Packet::new("2001:db8::2", "2001:db8:c::1", L4::Udp(4000, 5353, vec![7; 3000]));
    for fragment in v6.fragments(1448, 82) {
        check(pair, &fragment, PASS);
    }
    let closed = Packet::new("2001:db8::2", "2001:db8:c::1", L4::Udp(4000, 5354, vec![7; 3000]));
    for fragment in closed.fragments(1448, 83) {
        check(pair, &fragment, Err(DropReason::NoRule));
    }
}

fn p_a04_the_port_behind_extension_headers_counts(pair: &mut Pair) {
    let syn = |port| Packet::tcp(("2001:db8::2", 4000), ("2001:db8:c::1", port), tcp::SYN);
    let chains: [&[Ext]; 6] = [
        &[],
        &[Ext::HopByHop(0), Ext::Destination(1)],
        &[Ext::HopByHop(3), Ext::Routing(4), Ext::Destination(0)],
        &[Ext::Auth(3)],
        &[Ext::Fragment(0, false, 9)],
        &[Ext::Destination(0), Ext::Destination(1), Ext::Destination(2), Ext::Destination(3), Ext::Auth(1)],
    ];
    for chain in chains {
        let behind = |port| chain.iter().cloned().fold(syn(port), Packet::ext);
        check(pair, &behind(443), PASS);
        check(pair, &behind(444), Err(DropReason::NoRule));
    }
    check(pair, &syn(443).ext(Ext::Unknown(253)), Err(DropReason::ExtensionHeaders));
    check(pair, &syn(443).ext(Ext::Destination(0)).ext(Ext::Unknown(254)), Err(DropReason::ExtensionHeaders));
    let long = (0..9).fold(syn(443), |packet, _| packet.ext(Ext::Destination(0)));
    check(pair, &long, Err(DropReason::ExtensionHeaders));
    // A routing header with segments left: the packet goes elsewhere.
    let mut rerouted = syn(443).ext(Ext::Routing(0)).build();
    rerouted[43] = 1;
    check_bytes(pair, Direction::Egress, &rerouted, Err(DropReason::ExtensionHeaders));
}

fn p_a01_source_routes_and_lying_lengths_are_invalid(pair: &mut Pair) {
    let syn = || Packet::tcp(("10.0.0.1", 4000), ("192.0.2.70", 443), tcp::SYN);
    check(pair, &syn(), PASS);
    check(pair, &syn().options(&[1, 1, 1, 0]), PASS);
    check(pair, &syn().options(&[7, 7, 4, 0, 0, 0, 0]), PASS);
    for route in [131, 137] {
        check(pair, &syn().options(&[1, route, 7, 4, 198, 51, 100, 9]), Err(DropReason::InvalidPacket));
    }
    check(pair, &syn().options(&[7, 1, 0, 0]), Err(DropReason::InvalidPacket));
    let mut short = syn().build();
    short.truncate(39);
    check_bytes(pair, Direction::Egress, &short, Err(DropReason::InvalidPacket));
    let mut lying = syn().build();
    lying[2..4].copy_from_slice(&[0, 41]);
    check_bytes(pair, Direction::Egress, &lying, Err(DropReason::InvalidPacket));
    check_bytes(pair, Direction::Egress, &[0x45], Err(DropReason::InvalidPacket));
    check_bytes(pair, Direction::Egress, &[0x50; 60], Err(DropReason::UnsupportedProtocol));
}

/// The endpoint is in no map any more.
fn a_cgroup_that_nobody_knows_sends_and_receives_nothing(arena: &mut Arena) {
    arena.clear("FLOWS");
    let packets = |arena: &Arena| arena.counters(0).iter().map(|row| row.packets).sum::<u64>();
    let before = packets(arena);
    let syn = Packet::tcp(("10.0.0.1", 4000), ("192.0.2.70", 443), tcp::SYN).build();
    assert_eq!(arena.run("egret_egress", &syn), 0);
    assert_eq!(arena.run("egret_ingress", &syn), 0);
    assert_eq!(packets(arena), before + 2);
    let unknown = |row: &CounterRow| row.reason == DropReason::UnknownEndpoint as u8;
    assert!(arena.counters(0).iter().all(unknown), "{:?}", arena.counters(0));
    let cgroup = arena.cgroup().to_owned();
    arena.bind_cgroup(&cgroup, 9_999).expect("bound");
    assert_eq!(arena.run("egret_egress", &syn), 0, "an id outside the table");
    assert!(arena.flows().is_empty());
}

fn p_a07_a_mapped_address_is_its_ipv4_address(pair: &mut Pair) {
    let syn = |to: &str| Packet::tcp(("::ffff:10.0.0.1", 4000), (to, 443), tcp::SYN);
    check(pair, &syn("::ffff:192.0.2.70"), PASS);
    check(pair, &syn("::ffff:192.0.2.170"), Err(DropReason::NameUnresolved));
    let key = pair.model.flows.borrow().keys().next().copied().expect("a flow");
    assert_eq!((key.local, key.remote), (Addr::from_v4([10, 0, 0, 1]), Addr::from_v4([192, 0, 2, 70])));
    assert_eq!(pair.model.desired.identities.values().filter(|id| **id == identity::HOST).count(), 1);
}

fn without_policies_everything_passes_and_is_remembered(pair: &mut Pair) {
    pair.switch(Desired::default());
    pair.switch(Setup::named("nothing").state().desired().clone());
    check(pair, &Packet::tcp(("10.0.0.1", 1), ("198.51.100.9", 99), tcp::SYN), PASS);
    assert_eq!(pair.model.flows.borrow().len(), 1);
    pair.switch(Desired::default());
    let again = Packet::tcp(("10.0.0.1", 1), ("198.51.100.9", 99), tcp::ACK).build();
    assert_eq!(pair.packet(Direction::Egress, &again).value, 0, "an endpoint that is gone sends nothing");
}
