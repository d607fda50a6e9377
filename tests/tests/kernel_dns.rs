//! Random and mutated DNS messages: the loaded programs and the model on the host let through, remember, learn and
//! report the same; and whenever the kernel learned, the full parser finds the same addresses.

use std::net::IpAddr;

use egret::datapath::Sizes;
use egret_common::{
    event::{DNS_ASKED, DNS_LEARNED, DNS_SLOW},
    ids::CLASS_QUERY_ONLY,
    maps::{CONFIG_EVENTS, CONFIG_SLOW_PATTERNS, GrantKey},
    net::{Addr, Direction},
};
use egret_core::{
    compile::addr,
    dns::parse::{Answer, parse_answer},
    names::Name,
};
use egret_tests::arena::ENDPOINT;
use egret_tests::dnsd::raw::{self, rtype};
use egret_tests::model::{
    Outcome, Pair,
    setup::{CLUSTER_DOMAIN, LOCALS, NAMES, Setup},
    trial::{Seen, addresses, change, empty_pair, rounds},
};
use egret_tests::packet::{L4, Packet, Rng, mutate, random_dns, tcp};

/// Questions, each with an answer, under each of the setups, twice.
const EXCHANGES: usize = 1_500;

/// A query for the question of an answer.
fn query_for(answer: &[u8], edns: bool) -> Vec<u8> {
    let end = (12..answer.len()).find(|&at| answer[at] == 0).unwrap_or(12) + 5;
    let mut query = answer[..end.min(answer.len())].to_vec();
    query[2..12].copy_from_slice(&[1, 0, 0, 1, 0, 0, 0, 0, 0, 0]);
    if edns {
        query[11] = 1;
        query.extend([0, 0, 41, 4, 208, 0, 0, 0, 0, 0, 0]);
    }
    query
}

/// An answer as resolvers send it: aliases in any order, every address at the end of the chain, names compressed. Some
/// addresses are ones that no name may open.
fn provable_dns(rng: &mut Rng, id: u16) -> Vec<u8> {
    const FORBIDDEN: [&str; 6] =
        ["127.0.0.1", "169.254.169.254", "203.0.113.1", "224.0.0.9", "::1", "fe80::7"];
    let name = *rng.pick(&NAMES);
    let mut message = raw::Message::new(id, raw::ANSWER).question(name, *rng.pick(&[rtype::A, rtype::AAAA]));
    let mut owner = 12;
    for index in 0..rng.below(5) {
        let target =
            format!("h{index}.{}", rng.pick(&["cdn.test", "example", "a.long.name.of.an.edge.test"]));
        let ttl = rng.next_u64() as u32 >> rng.below(32);
        let at = message.here() + 12;
        message = message.cname(raw::Name::Pointer(owner), ttl, raw::Name::Labels(&target));
        owner = at;
    }
    for _ in 0..rng.below(20) {
        let random = if rng.one_in(2) {
            IpAddr::from((rng.next_u64() as u32).to_be_bytes()).to_string()
        } else {
            format!("2001:db8:{:x}::{:x}", rng.port(), rng.port())
        };
        let address = if rng.one_in(8) { (*rng.pick(&FORBIDDEN)).to_owned() } else { random };
        let ttl = rng.next_u64() as u32 >> rng.below(32);
        message = message.address(raw::Name::Pointer(owner), ttl, &address);
    }
    if rng.one_in(4) {
        let (host, at) = (raw::Name::Labels("ns.example"), message.here() + 12);
        message = message.section(2).record(raw::QNAME, rtype::NS, 60, &host.bytes());
        message = message.section(3).address(raw::Name::Pointer(at), 60, "192.0.2.253");
    }
    if rng.one_in(2) { message.section(3).opt(1232).finish() } else { message.finish() }
}

fn datagram(from: (IpAddr, u16), to: (IpAddr, u16), payload: &[u8]) -> Vec<u8> {
    Packet::between(from.0, to.0, L4::Udp(from.1, to.1, payload.to_vec())).build()
}

/// A TCP segment with this sequence number.
fn segment(from: (IpAddr, u16), to: (IpAddr, u16), flags: u8, seq: u32, payload: &[u8]) -> Vec<u8> {
    let segment = L4::Tcp(from.1, to.1, flags, payload.to_vec());
    Packet::between(from.0, to.0, segment).seq(seq).build()
}

/// A message as it may cross a TCP connection: whole, its length apart, twice, cut, or with a length that lies.
fn stream(rng: &mut Rng, message: &[u8]) -> Vec<(u32, Vec<u8>)> {
    let length = (message.len() as u16).to_be_bytes();
    let whole = [&length, message].concat();
    let cut = rng.below(whole.len());
    match rng.below(8) {
        0 => vec![(1, length.to_vec()), (3, message.to_vec())],
        1 => vec![(1, length.to_vec()), (4, message.to_vec())],
        2 => vec![(1, whole.repeat(2 + rng.below(4)))],
        3 => vec![(1, whole[..cut].to_vec()), (1 + cut as u32, whole[cut..].to_vec())],
        4 => vec![(1, mutate(rng, &whole))],
        _ => vec![(1, whole)],
    }
}

/// A question and the answer to it, both sometimes damaged.
fn question_and_answer(rng: &mut Rng) -> (Vec<u8>, Vec<u8>) {
    let id = rng.port();
    let good = if rng.one_in(3) { random_dns(rng, id, &NAMES) } else { provable_dns(rng, id) };
    let edns = rng.one_in(2);
    let mut query = query_for(&good, edns);
    let mut answer = good.clone();
    if rng.one_in(3) {
        answer = mutate(rng, &good);
    }
    if rng.one_in(4) {
        query = mutate(rng, &query);
    }
    (query, answer)
}

/// One exchange with a resolver.
fn exchange(pair: &mut Pair, rng: &mut Rng, seen: &mut Seen) {
    const RESOLVERS: [(&str, u16); 4] =
        [("10.7.0.53", 53), ("2001:db8:7::53", 53), ("10.7.0.54", 5353), ("198.51.100.7", 53)];
    let (query, answer) = question_and_answer(rng);
    let (resolver, resolver_port) = *rng.pick(&RESOLVERS);
    let resolver: IpAddr = resolver.parse().expect("an address");
    let local =
        addresses(&LOCALS).into_iter().find(|a| a.is_ipv4() == resolver.is_ipv4()).expect("its family");
    let (here, there) = ((local, 40_000 + rng.port() % 4), (resolver, resolver_port));
    let mut way = |pair: &mut Pair, direction, packet: &[u8]| {
        let before = pair.model.forbidden;
        let outcome = pair.packet(direction, packet);
        seen.add(direction, &outcome);
        check_learned(pair, &outcome, pair.model.forbidden - before);
    };
    if rng.one_in(4) {
        way(pair, Direction::Egress, &segment(here, there, tcp::SYN, 0, &[]));
        way(pair, Direction::Ingress, &segment(there, here, tcp::SYN | tcp::ACK, 0, &[]));
        for (seq, piece) in stream(rng, &query) {
            way(pair, Direction::Egress, &segment(here, there, tcp::PSH | tcp::ACK, seq, &piece));
        }
        for (seq, piece) in stream(rng, &answer) {
            way(pair, Direction::Ingress, &segment(there, here, tcp::PSH | tcp::ACK, seq, &piece));
        }
    } else {
        way(pair, Direction::Egress, &datagram(here, there, &query));
        // The second answer to one question, forged or repeated, teaches nothing.
        for _ in 0..1 + rng.below(2) {
            way(pair, Direction::Ingress, &datagram(there, here, &answer));
        }
    }
}

/// Whenever the kernel learned, the full parser finds the same addresses.
fn check_learned(pair: &Pair, outcome: &Outcome, forbidden: u64) {
    for (event, payload) in outcome.dns.iter().filter(|(event, _)| event.flags & DNS_LEARNED != 0) {
        let Ok(parsed) = parse_answer(payload) else {
            // The answer section held no address, or the answer was an error: what is broken stands behind that.
            assert_eq!((event.granted, forbidden), (0, 0), "{event:?} from {payload:02x?}");
            continue;
        };
        assert!(parsed.unlinked.is_empty(), "{parsed:?}");
        if event.class == 0 || event.class & CLASS_QUERY_ONLY != 0 {
            assert_eq!(event.granted, 0, "{event:?}");
            continue;
        }
        assert_eq!(
            parsed.addresses.len() as u64,
            u64::from(event.granted) + forbidden,
            "{parsed:?} {event:?}"
        );
        for learned in &parsed.addresses {
            let remote: Addr = addr(learned.address);
            let key = GrantKey { addr: remote, endpoint: ENDPOINT, pad: 0 };
            let open = pair.model.grants.get(&key).is_some_and(|grants| {
                grants.slots.iter().any(|slot| egret_common::grant::class(*slot) == event.class)
            });
            let owned = pair.model.desired.identities.contains_key(&remote);
            let never = remote.is_forbidden_answer() || (owned && !is_of_the_cluster(&parsed));
            assert_eq!(open, !never, "{learned:?} of {parsed:?}");
        }
    }
}

fn is_of_the_cluster(answer: &Answer) -> bool {
    let domain = Name::parse(CLUSTER_DOMAIN).expect("a name");
    answer.question.name.as_ref().is_some_and(|name| name.prefix_above(&domain).is_some())
}

#[test]
fn differential_dns() {
    let mut seen = Seen::default();
    // The same policies and messages with and without patterns that only the agent can match.
    for flags in [CONFIG_SLOW_PATTERNS, 0] {
        exchanges(&mut empty_pair(flags), &mut seen);
    }
    eprintln!("{} exchanges: {seen:?}", 16 * rounds(EXCHANGES));
    let with =
        |bits: u8| seen.dns.iter().filter(|(flags, _)| **flags & bits == bits).map(|(_, n)| n).sum::<usize>();
    let enough = rounds(16 * EXCHANGES) / 10;
    assert!(with(DNS_ASKED | DNS_LEARNED) > enough && with(DNS_ASKED | DNS_SLOW) > enough, "{seen:?}");
}

fn exchanges(pair: &mut Pair, seen: &mut Seen) {
    for (index, setup) in Setup::all().iter().enumerate() {
        change(pair, setup);
        let mut rng = Rng::new(0xd25_0000 + index as u64);
        for round in 0..rounds(EXCHANGES) {
            if round % 16 == 0 {
                pair.settle_and_clear();
            }
            exchange(pair, &mut rng, seen);
        }
        pair.settle();
    }
}

/// An answer with an alias, addresses of both families and EDNS.
fn complete_answer(id: u16) -> Vec<u8> {
    let message = raw::Message::new(id, raw::ANSWER).question("api.example", rtype::A);
    let target = message.here() + 12;
    let mut message = message.cname(raw::QNAME, 60, raw::Name::Labels("edge.cdn.test"));
    for n in 1..20 {
        message = message.address(raw::Name::Pointer(target), 300, &format!("192.0.2.{n}"));
    }
    message.address(raw::Name::Pointer(target), 300, "2001:db8:c::1").section(3).opt(1232).finish()
}

fn ask(pair: &mut Pair, answer_to: &[u8]) {
    let (local, resolver) = ("10.0.0.1".parse().expect("v4"), "10.7.0.53".parse().expect("v4"));
    let outcome = pair
        .packet(Direction::Egress, &datagram((local, 40_000), (resolver, 53), &query_for(answer_to, true)));
    assert_eq!(outcome.value, 1, "the query passes");
}

fn hear(pair: &mut Pair, payload: &[u8]) -> Outcome {
    let (local, resolver) = ("10.0.0.1".parse().expect("v4"), "10.7.0.53".parse().expect("v4"));
    pair.packet(Direction::Ingress, &datagram((resolver, 53), (local, 40_000), payload))
}

#[test]
fn w_a14_w_a15_odd_answers_teach_nothing() {
    let state = Setup::named("run").state();
    let mut pair = Pair::new(state.desired().clone(), CONFIG_EVENTS, Sizes::run());
    a_cut_answer_teaches_nothing_at_any_length(&mut pair);
    wild_names_teach_nothing(&mut pair);
}

fn a_cut_answer_teaches_nothing_at_any_length(pair: &mut Pair) {
    let whole = complete_answer(7);
    assert!(whole.len() > 380, "{}", whole.len());
    for length in 0..=whole.len() {
        ask(pair, &whole);
        let outcome = hear(pair, &whole[..length]);
        assert_eq!(outcome.value, 1, "the packet itself passes");
        let granted = pair.model.grants.len();
        assert_eq!(granted, if length == whole.len() { 20 } else { 0 }, "{length} bytes");
        pair.settle_and_clear();
    }
    // Counts that the bytes cannot hold.
    for counts in [[1, 65_535, 0, 0], [1, 20, 65_535, 1], [1, 20, 0, 65_535], [65_535; 4], [2, 20, 0, 1]] {
        ask(pair, &whole);
        let mut lying = whole.clone();
        for (index, count) in counts.iter().enumerate() {
            lying[4 + 2 * index..6 + 2 * index].copy_from_slice(&u16::to_be_bytes(*count));
        }
        hear(pair, &lying);
        assert!(pair.model.grants.is_empty(), "{counts:?}");
        pair.settle_and_clear();
    }
}

fn wild_names_teach_nothing(pair: &mut Pair) {
    let whole = complete_answer(9);
    // The first record's owner, the alias' target, an address' owner.
    let places = [29usize, 41, 56];
    assert_eq!(
        (&whole[29..31], &whole[41..43], &whole[56..58]),
        (&[0xc0, 12][..], &[4, b'e'][..], &[0xc0, 41][..])
    );
    for at in places {
        let wild: [&[u8]; 8] = [
            &[0xc0, at as u8],
            &[0xc0, 0],
            &[0xc0, 200],
            &[0xff, 0xff],
            &[0x40, 1],
            &[0x80, 1],
            &[0xbf, 0xbf],
            &[63],
        ];
        for bytes in wild {
            ask(pair, &whole);
            let mut message = whole.clone();
            message[at..at + bytes.len()].copy_from_slice(bytes);
            assert_eq!(hear(pair, &message).value, 1, "the packet itself passes");
            assert!(pair.model.grants.is_empty(), "{bytes:02x?} at {at}: {:?}", pair.model.grants);
            pair.settle_and_clear();
        }
    }
}
