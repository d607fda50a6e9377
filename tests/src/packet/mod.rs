//! Packets byte by byte for the tests that hand them to a program: IPv4 with options and fragments, IPv6
//! with extension headers, TCP, UDP, SCTP, ICMP with right checksums. And a seeded source of random and
//! mutated ones. Needs no socket.

mod build;
mod checksum;
mod ext;
mod random;

pub use build::{Frame, L4, Packet, tcp};
pub use checksum::{internet, is_sound};
pub use ext::Ext;
pub use random::{Rng, mutate, random_bytes, random_dns, random_packet};
