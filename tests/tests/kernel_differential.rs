//! Random and mutated packets: the loaded programs and the model on the host return, remember, count and report the
//! same. The first difference is printed with its bytes; seeds are fixed.

use std::net::IpAddr;

use egret_common::{
    maps::CONFIG_SLOW_PATTERNS,
    net::Direction,
    packet::{Parsed, parse},
};
use egret_core::compile::addr;
use egret_tests::model::{
    Pair, Slice,
    setup::{LOCALS, PORTS, REMOTES, Setup, classes},
    trial::{Seen, addresses, change, empty_pair, rounds},
};
use egret_tests::packet::{Packet, Rng, mutate, random_packet};

/// Packets under each of the seven setups, on a real machine.
const PACKETS: usize = 3_200;
/// Packets between two looks at all tables.
const BATCH: usize = 64;

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
                let policies = if (packet / BATCH).is_multiple_of(2) { fewer.spec() } else { setup.spec() };
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
