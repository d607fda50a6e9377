//! Random and mutated input from a seed, so that a failure can be repeated.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::{Ext, L4, Packet};
use crate::dnsd::raw::{self, Message, Name, rtype};

/// SplitMix64: small, even, the same on every machine and with every version of every library.
#[derive(Clone, Debug)]
pub struct Rng(u64);

impl Rng {
    /// From a seed; print it when a test fails.
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// The next 64 bits.
    pub fn next_u64(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `bound` (0 for a bound of 0).
    pub fn below(&mut self, bound: usize) -> usize {
        ((u128::from(self.next_u64()) * bound as u128) >> 64) as usize
    }

    /// True once in `n` times.
    pub fn one_in(&mut self, n: usize) -> bool {
        self.below(n) == 0
    }

    /// One of the items.
    pub fn pick<'a, T>(&mut self, items: &'a [T]) -> &'a T {
        &items[self.below(items.len())]
    }

    /// A byte.
    pub fn byte(&mut self) -> u8 {
        self.next_u64() as u8
    }

    /// A 16-bit number.
    pub fn port(&mut self) -> u16 {
        self.next_u64() as u16
    }
}

/// So many random bytes.
pub fn random_bytes(rng: &mut Rng, count: usize) -> Vec<u8> {
    (0..count).map(|_| rng.byte()).collect()
}

/// Damages `bytes` in one to four places: bits, interesting bytes, cuts, repeats, insertions.
pub fn mutate(rng: &mut Rng, bytes: &[u8]) -> Vec<u8> {
    const INTERESTING: [u8; 12] = [0, 1, 0x0c, 0x3f, 0x40, 0x7f, 0x80, 0xbf, 0xc0, 0xc1, 0xfe, 0xff];
    let mut bytes = bytes.to_vec();
    for _ in 0..1 + rng.below(4) {
        let at = rng.below(bytes.len());
        match rng.below(7) {
            0 if !bytes.is_empty() => bytes[at] ^= 1 << rng.below(8),
            1 if !bytes.is_empty() => bytes[at] = *rng.pick(&INTERESTING),
            2 if !bytes.is_empty() => bytes[at] = rng.byte(),
            3 => bytes.truncate(at),
            4 => bytes.insert(at, rng.byte()),
            5 => {
                let part = bytes[at..(at + rng.below(40)).min(bytes.len())].to_vec();
                bytes.splice(at..at, part);
            }
            _ => {
                let end = (at + rng.below(8)).min(bytes.len());
                bytes.drain(at..end);
            }
        }
    }
    bytes
}

/// A well-formed packet of any kind from `sources` to `destinations` (both families mixed), to the given or to
/// other ports.
pub fn random_packet(rng: &mut Rng, sources: &[IpAddr], destinations: &[IpAddr], ports: &[u16]) -> Packet {
    let destination = if rng.one_in(4) { random_address(rng) } else { *rng.pick(destinations) };
    let same_family: Vec<IpAddr> =
        sources.iter().copied().filter(|source| source.is_ipv4() == destination.is_ipv4()).collect();
    let source = match same_family.is_empty() || rng.one_in(16) {
        true if destination.is_ipv4() => Ipv4Addr::from(rng.next_u64() as u32).into(),
        true => Ipv6Addr::from(u128::from(rng.next_u64())).into(),
        false => *rng.pick(&same_family),
    };
    let port = if rng.one_in(4) { rng.port() } else { *rng.pick(ports) };
    let l4 = random_l4(rng, port);
    let packet = Packet::between(source, destination, l4);
    if destination.is_ipv4() { decorate_v4(rng, packet) } else { decorate_v6(rng, packet) }
}

fn random_l4(rng: &mut Rng, port: u16) -> L4 {
    let length = rng.below(60);
    let body = random_bytes(rng, length);
    match rng.below(10) {
        0..4 => L4::Tcp(rng.port(), port, *rng.pick(&[2, 16, 17, 18, 4, 20, 24, 0, 255]), body),
        4..7 => L4::Udp(rng.port(), port, body),
        7 => L4::Sctp(rng.port(), port, 1),
        8 => L4::Icmp(*rng.pick(&[0, 3, 8, 11, 1, 2, 128, 129, 133, 135, 136, 143]), rng.byte() % 5, body),
        _ => L4::Other(rng.byte(), body),
    }
}

fn decorate_v4(rng: &mut Rng, mut packet: Packet) -> Packet {
    if rng.one_in(5) {
        let length = rng.below(41);
        packet = packet.options(&random_bytes(rng, length));
    }
    if rng.one_in(5) {
        packet = packet.fragment(8 * (rng.below(4) as u16), rng.one_in(2), rng.port() & 3);
    }
    packet.ttl(rng.byte())
}

fn decorate_v6(rng: &mut Rng, mut packet: Packet) -> Packet {
    while rng.one_in(3) {
        packet = packet.ext(match rng.below(6) {
            0 => Ext::HopByHop(rng.below(4) as u8),
            1 => Ext::Destination(rng.below(4) as u8),
            2 => Ext::Routing(rng.byte() & 3),
            3 => Ext::Fragment(8 * (rng.below(4) as u16), rng.one_in(2), rng.next_u64() as u32 & 3),
            4 => Ext::Auth(rng.below(5) as u8),
            _ => Ext::Unknown(rng.byte()),
        });
    }
    packet.ttl(rng.byte())
}

fn random_address(rng: &mut Rng) -> IpAddr {
    if rng.one_in(2) {
        Ipv4Addr::from(rng.next_u64() as u32).into()
    } else {
        Ipv6Addr::from(u128::from(rng.next_u64()) << 64 | u128::from(rng.next_u64())).into()
    }
}

/// A well-formed answer to a question for one of `names`: chains, mixed owners, several types, compression in
/// every style.
pub fn random_dns(rng: &mut Rng, id: u16, names: &[&str]) -> Vec<u8> {
    let name = *rng.pick(names);
    let qtype = *rng.pick(&[rtype::A, rtype::AAAA, rtype::HTTPS, rtype::ANY, rtype::CNAME]);
    let mut message = Message::new(id, raw::ANSWER).question(name, qtype);
    let mut owner = (12u16, name.to_string());
    for index in 0..rng.below(4) {
        let target = format!("h{index}.{}", rng.pick(names));
        let ttl = rng.below(4000) as u32;
        let written = match rng.below(3) {
            0 => Name::Pointer(owner.0),
            _ => Name::Labels(&owner.1),
        };
        // The target's bytes begin after owner, type, class, TTL and length.
        let at = message.here() + written.bytes().len() as u16 + 10;
        message = message.cname(written, ttl, Name::Labels(&target));
        owner = (at, target);
    }
    for _ in 0..rng.below(12) {
        let other = format!("x.{}", rng.pick(names));
        let written = match rng.below(8) {
            0 => Name::Labels(&other),
            1..4 => Name::Labels(&owner.1),
            _ => Name::Pointer(owner.0),
        };
        let address = random_address(rng).to_string();
        message = match rng.below(8) {
            0 => message.record(written, rtype::TXT, 60, b"\x04text"),
            _ => message.address(written, rng.next_u64() as u32, &address),
        };
    }
    if rng.one_in(3) {
        message = message.section(2).address(Name::Labels("ns.example"), 60, "192.0.2.253");
    }
    if rng.one_in(2) {
        message = message.section(3).opt(1232);
    }
    message.finish()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::servers::dissect;

    #[test]
    fn the_same_seed_gives_the_same_bytes() {
        let run = |seed| random_bytes(&mut Rng::new(seed), 32);
        assert_eq!(run(7), run(7));
        assert_ne!(run(7), run(8));
    }

    #[test]
    fn random_packets_can_be_dissected_and_mutated() {
        let mut rng = Rng::new(1);
        let addresses: Vec<IpAddr> = vec!["10.0.0.1".parse().unwrap(), "2001:db8::1".parse().unwrap()];
        for _ in 0..2000 {
            let packet = random_packet(&mut rng, &addresses, &addresses, &[53, 443]).build();
            assert!(dissect(packet.clone()).is_some());
            let _ = dissect(mutate(&mut rng, &packet));
        }
        assert!(mutate(&mut rng, &[]).len() < 16);
    }

    #[test]
    fn random_answers_are_well_formed() {
        let mut rng = Rng::new(2);
        for round in 0..2000 {
            let bytes = random_dns(&mut rng, round, &["a.example", "b.c.example"]);
            hickory_proto::op::Message::from_vec(&bytes).expect("well-formed");
        }
    }
}
