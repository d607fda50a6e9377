//! The internet checksum (RFC 1071) and SCTP's CRC32c (RFC 9260).

use std::net::IpAddr;

/// Folded one's complement sum of `bytes`, complemented.
pub fn internet(bytes: &[u8]) -> u16 {
    !fold(sum(bytes))
}

/// Checksum of a transport segment with its pseudo-header.
pub(super) fn transport(source: IpAddr, destination: IpAddr, protocol: u8, segment: &[u8]) -> u16 {
    let addresses = sum(&octets(source)) + sum(&octets(destination));
    let total = addresses + u32::from(protocol) + segment.len() as u32 + sum(segment);
    !fold(total)
}

/// Whether the checksums of an IP packet (IPv4 without options, or IPv6 without extension headers) and of its TCP, UDP
/// or ICMP part are right.
pub fn is_sound(packet: &[u8]) -> bool {
    let Some(seen) = crate::servers::dissect(packet.to_vec()) else { return false };
    let at = if seen.source.is_ipv4() { 20 } else { 40 };
    let Some((header, segment)) = packet.split_at_checked(at) else { return false };
    let upper = match seen.protocol {
        1 => internet(segment),
        protocol => transport(seen.source, seen.destination, protocol, segment),
    };
    upper == 0 && (seen.source.is_ipv6() || internet(header) == 0)
}

/// CRC32c as SCTP sends it: least significant byte first.
pub(super) fn crc32c(bytes: &[u8]) -> [u8; 4] {
    let mut crc = !0u32;
    for &byte in bytes {
        crc ^= u32::from(byte);
        for _ in 0..8 {
            crc = (crc >> 1) ^ (0x82f6_3b78 & (crc & 1).wrapping_neg());
        }
    }
    (!crc).to_le_bytes()
}

pub(super) fn octets(address: IpAddr) -> Vec<u8> {
    match address {
        IpAddr::V4(v4) => v4.octets().to_vec(),
        IpAddr::V6(v6) => v6.octets().to_vec(),
    }
}

fn sum(bytes: &[u8]) -> u32 {
    let word = |pair: &[u8]| u32::from(pair[0]) << 8 | u32::from(*pair.get(1).unwrap_or(&0));
    bytes.chunks(2).map(word).sum()
}

fn fold(mut total: u32) -> u16 {
    while total >> 16 != 0 {
        total = (total & 0xffff) + (total >> 16);
    }
    total as u16
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_sums() {
        // RFC 1071 section 3.
        assert_eq!(internet(&[0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7]), !0xddf2);
        // The check value of CRC-32C.
        assert_eq!(crc32c(b"123456789"), 0xe306_9283u32.to_le_bytes());
    }
}
