//! Random and mutated packets and DNS messages: the loaded programs and the model on the host return, remember,
//! learn, count and report the same. The first difference is printed with its bytes; seeds are fixed.

use std::collections::BTreeMap;
use std::net::IpAddr;

use egret::datapath::Sizes;
use egret_common::{
    event::{DNS_ASKED, DNS_LEARNED, DNS_SLOW},
    ids::CLASS_QUERY_ONLY,
    maps::{CONFIG_EVENTS, CONFIG_SLOW_PATTERNS, GrantKey},
    net::{Addr, Direction},
    packet::{Parsed, parse},
};
use egret_core::{compile::addr, desired::Desired, dns::parse::parse_answer, state::State};
use egret_tests::arena::ENDPOINT;
use egret_tests::dnsd::raw::{self, rtype};
use egret_tests::model::{
    Outcome, Pair, Slice,
    setup::{LOCALS, NAMES, PORTS, REMOTES, Setup, classes},
};
use egret_tests::packet::{L4, Packet, Rng, mutate, random_dns, random_packet};

/// Packets under each of the seven setups, on a real machine.
const PACKETS: usize = 3_200;
/// Packets between two looks at all tables.
const BATCH: usize = 64;
/// Questions, each with an answer, under each of the setups, twice.
const EXCHANGES: usize = 1_600;

/// All of them, or an eighth in an emulated machine, which is ten times slower (`cargo xtask test vm`).
fn rounds(all: usize) -> usize {
    if std::env::var_os("EGRET_VM").is_some() { all / 8 } else { all }
}

fn addresses(texts: &[&str]) -> Vec<IpAddr> {
    texts.iter().map(|text| text.parse().expect("an address")).collect()
}

/// Without policies yet: each of the setups follows in the same maps, since loading takes seconds.
fn empty_pair(config_flags: u32) -> Pair {
    Pair::new(Desired::default(), config_flags | CONFIG_EVENTS, Sizes::run())
}

/// From one setup to the next, whose numbers mean other things.
fn change(pair: &mut Pair, setup: &Setup) -> State {
    pair.settle_and_clear();
    pair.switch(Desired::default());
    let state = setup.state();
    pair.switch(state.desired().clone());
    state
}

/// What came of all packets, so that a generator gone dull is noticed.
#[derive(Debug, Default)]
struct Seen {
    values: BTreeMap<(&'static str, u32), usize>,
    reasons: BTreeMap<u8, usize>,
    dns: BTreeMap<u8, usize>,
}

impl Seen {
    fn add(&mut self, direction: Direction, outcome: &Outcome) {
        let way = if direction == Direction::Egress { "egress" } else { "ingress" };
        *self.values.entry((way, outcome.value)).or_default() += 1;
        if let Some(event) = &outcome.flow {
            *self.reasons.entry(event.reason).or_default() += 1;
        }
        for (event, _) in &outcome.dns {
            *self.dns.entry(event.flags).or_default() += 1;
        }
    }
}

/// Random packets, and ones that follow from those before: replies, next segments, errors that quote them.
struct Traffic {
    rng: Rng,
    locals: Vec<IpAddr>,
    remotes: Vec<IpAddr>,
    history: Vec<(Direction, Packet)>,
}

impl Traffic {
    fn new(seed: u64) -> Self {
        let (locals, remotes) = (addresses(&LOCALS), addresses(&REMOTES));
        Self { rng: Rng::new(seed), locals, remotes, history: Vec::new() }
    }

    fn next(&mut self) -> (Direction, Vec<u8>) {
        let old = (!self.history.is_empty()).then(|| self.rng.pick(&self.history).clone());
        let (direction, bytes) = match (self.rng.below(8), old) {
            (0..2, Some((direction, packet))) => (other(direction), reply(&mut self.rng, packet.build())),
            (2, Some((direction, packet))) => (direction, reply_flags(&mut self.rng, packet.build())),
            (3, Some((direction, packet))) => (other(direction), self.error(&packet)),
            _ => self.fresh(),
        };
        let mutated = self.rng.one_in(4);
        let bytes = if mutated { mutate(&mut self.rng, &bytes) } else { bytes };
        // The kernel gives no program an empty packet.
        (direction, if bytes.is_empty() { vec![0x45] } else { bytes })
    }

    fn fresh(&mut self) -> (Direction, Vec<u8>) {
        let ingress = self.rng.one_in(3);
        let (from, to) = if ingress { (&self.remotes, &self.locals) } else { (&self.locals, &self.remotes) };
        let packet = random_packet(&mut self.rng, from, to, &PORTS);
        let direction = if ingress { Direction::Ingress } else { Direction::Egress };
        let bytes = packet.build();
        self.history.push((direction, packet));
        if self.history.len() > BATCH {
            self.history.remove(0);
        }
        (direction, bytes)
    }

    fn error(&mut self, about: &Packet) -> Vec<u8> {
        let (router, kinds) = if about.destination().is_ipv4() {
            ("198.51.100.254", [3, 4, 11, 12, 5])
        } else {
            ("2001:db8:ffff::1", [1, 2, 3, 4, 137])
        };
        about.icmp_error(router, *self.rng.pick(&kinds), self.rng.byte() % 5, 1300).build()
    }
}

fn other(direction: Direction) -> Direction {
    if direction == Direction::Egress { Direction::Ingress } else { Direction::Egress }
}

/// The packet turned round, with other TCP flags.
fn reply(rng: &mut Rng, mut bytes: Vec<u8>) -> Vec<u8> {
    let mut parsed = Parsed::default();
    if parse(&Slice(&bytes), &mut parsed).is_err() {
        return bytes;
    }
    let (at, len) = if parsed.version == 4 { (12, 4) } else { (8, 16) };
    bytes[at..at + 2 * len].rotate_left(len);
    let l4 = parsed.l4 as usize;
    match parsed.proto {
        6 | 17 | 132 => bytes[l4..l4 + 4].rotate_left(2),
        1 if bytes[l4] == 8 => bytes[l4] = 0,
        58 if bytes[l4] == 128 => bytes[l4] = 129,
        _ => {}
    }
    reply_flags(rng, bytes)
}

fn reply_flags(rng: &mut Rng, mut bytes: Vec<u8>) -> Vec<u8> {
    let mut parsed = Parsed::default();
    let parsed = parse(&Slice(&bytes), &mut parsed).map(|()| parsed);
    if let Ok(Parsed { proto: 6, l4, fragment: 0, .. }) = parsed {
        bytes[l4 as usize + 13] = *rng.pick(&[0x12, 0x10, 0x18, 0x11, 0x04, 0x02, 0x14]);
    }
    bytes
}

/// Addresses that are known under names: live, expired, several at once.
fn seed_grants(pair: &mut Pair, rng: &mut Rng, known: &[u32]) {
    if known.is_empty() {
        return;
    }
    for remote in addresses(&REMOTES) {
        for _ in 0..rng.below(3) {
            let now = pair.now();
            let expires = if rng.one_in(3) { now.saturating_sub(40) } else { now + 10_000 };
            pair.grant(addr(remote), *rng.pick(known), expires);
        }
    }
}

#[test]
fn differential_packets() {
    let mut seen = Seen::default();
    let mut pair = empty_pair(CONFIG_SLOW_PATTERNS);
    for (index, setup) in Setup::all().iter().enumerate() {
        let mut state = change(&mut pair, setup);
        let fewer = setup.clone().with_fewer();
        let known: Vec<u32> = classes(&state).into_iter().collect();
        let mut traffic = Traffic::new(0x5eed_0000 + index as u64);
        for packet in 0..rounds(PACKETS) {
            if packet % BATCH == 0 {
                pair.settle_and_clear();
                seed_grants(&mut pair, &mut traffic.rng, &known);
            }
            if packet % BATCH == BATCH / 2 {
                pair.settle();
                // Another rule set: open flows are judged again.
                let policies = if packet / BATCH % 2 == 0 { fewer.spec() } else { setup.spec() };
                let now = pair.now();
                state.replace(vec![policies], now).expect("compiled");
                pair.switch(state.desired().clone());
            }
            let (direction, bytes) = traffic.next();
            seen.add(direction, &pair.packet(direction, &bytes));
        }
        pair.settle();
    }
    eprintln!("{} packets: {seen:?}", 7 * rounds(PACKETS));
    for reason in [0, 1, 2, 3, 4, 5, 7, 8, 10, 12, 13, 14] {
        assert!(seen.reasons.contains_key(&reason), "no packet met reason {reason}: {seen:?}");
    }
    for value in [("egress", 0), ("egress", 1), ("egress", 2), ("ingress", 0), ("ingress", 1)] {
        assert!(seen.values.contains_key(&value), "no packet met {value:?}: {seen:?}");
    }
}

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

/// One exchange with a resolver; the answer that the kernel and the model learned from, if they did.
fn exchange(pair: &mut Pair, rng: &mut Rng, seen: &mut Seen) {
    let (id, port) = (rng.port(), 40_000 + rng.port() % 4);
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
    let resolvers = [("10.7.0.53", 53), ("2001:db8:7::53", 53), ("10.7.0.54", 5353), ("198.51.100.7", 53)];
    let (resolver, resolver_port) = *rng.pick(&resolvers);
    let resolver: IpAddr = resolver.parse().expect("an address");
    let local =
        addresses(&LOCALS).into_iter().find(|a| a.is_ipv4() == resolver.is_ipv4()).expect("of the family");
    let out = datagram((local, port), (resolver, resolver_port), &query);
    seen.add(Direction::Egress, &pair.packet(Direction::Egress, &out));
    for _ in 0..1 + rng.below(2) {
        let back = datagram((resolver, resolver_port), (local, port), &answer);
        let before = pair.model.forbidden;
        let outcome = pair.packet(Direction::Ingress, &back);
        seen.add(Direction::Ingress, &outcome);
        check_learned(pair, &outcome, pair.model.forbidden - before);
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
            let never = remote.is_forbidden_answer() || pair.model.desired.identities.contains_key(&remote);
            assert_eq!(open, !never, "{learned:?} of {parsed:?}");
        }
    }
}

#[test]
fn differential_dns() {
    let mut seen = Seen::default();
    // The same policies and messages with and without patterns that only the agent can match.
    for flags in [CONFIG_SLOW_PATTERNS, 0] {
        exchanges(&mut empty_pair(flags), &mut seen);
    }
    eprintln!("{} exchanges: {seen:?}", 14 * rounds(EXCHANGES));
    let with =
        |bits: u8| seen.dns.iter().filter(|(flags, _)| **flags & bits == bits).map(|(_, n)| n).sum::<usize>();
    let enough = rounds(14 * EXCHANGES) / 10;
    assert!(with(DNS_ASKED | DNS_LEARNED) > enough && with(DNS_ASKED | DNS_SLOW) > enough, "{seen:?}");
}

fn exchanges(pair: &mut Pair, seen: &mut Seen) {
    for (index, setup) in Setup::all().iter().enumerate() {
        change(pair, setup);
        let mut rng = Rng::new(0xd25_0000 + index as u64);
        for round in 0..rounds(EXCHANGES) {
            if round % 4 == 0 {
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
        pair.settle();
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
        pair.settle();
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
            pair.settle();
            assert!(pair.model.grants.is_empty(), "{bytes:02x?} at {at}: {:?}", pair.model.grants);
            pair.settle_and_clear();
        }
    }
}
