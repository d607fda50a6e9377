//! Addresses and protocol numbers. An address is always 16 bytes; IPv4 is carried v4-mapped, so that
//! `::ffff:192.0.2.1` and `192.0.2.1` are one value in every map and hook (P-A07).

/// 16 address bytes in wire order, as two words so that the compiler copies and compares words, not bytes.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, Default)]
pub struct Addr {
    /// Bytes 0 to 7, loaded in host order from wire bytes.
    pub hi: u64,
    /// Bytes 8 to 15, loaded in host order from wire bytes.
    pub lo: u64,
}

/// Bytes 8..12 of a v4-mapped address.
const MAPPED: u32 = u32::from_ne_bytes([0, 0, 0xff, 0xff]);

impl Addr {
    /// From the 16 bytes of an IPv6 address in wire order.
    #[inline(always)]
    #[must_use]
    pub const fn from_octets(o: [u8; 16]) -> Self {
        Self {
            hi: u64::from_ne_bytes([o[0], o[1], o[2], o[3], o[4], o[5], o[6], o[7]]),
            lo: u64::from_ne_bytes([o[8], o[9], o[10], o[11], o[12], o[13], o[14], o[15]]),
        }
    }

    /// From the four bytes of an IPv4 address in wire order.
    #[inline(always)]
    #[must_use]
    pub const fn from_v4(o: [u8; 4]) -> Self {
        Self { hi: 0, lo: u64::from_ne_bytes([0, 0, 0xff, 0xff, o[0], o[1], o[2], o[3]]) }
    }

    /// The 16 bytes in wire order.
    #[inline(always)]
    #[must_use]
    pub const fn octets(&self) -> [u8; 16] {
        let (h, l) = (self.hi.to_ne_bytes(), self.lo.to_ne_bytes());
        [h[0], h[1], h[2], h[3], h[4], h[5], h[6], h[7], l[0], l[1], l[2], l[3], l[4], l[5], l[6], l[7]]
    }

    /// The address as four words of wire bytes, the form of the prefix tries.
    #[inline(always)]
    #[must_use]
    pub const fn words(&self) -> [u32; 4] {
        let (h, l) = (self.hi.to_ne_bytes(), self.lo.to_ne_bytes());
        [
            u32::from_ne_bytes([h[0], h[1], h[2], h[3]]),
            u32::from_ne_bytes([h[4], h[5], h[6], h[7]]),
            u32::from_ne_bytes([l[0], l[1], l[2], l[3]]),
            u32::from_ne_bytes([l[4], l[5], l[6], l[7]]),
        ]
    }

    /// True for an IPv4 address (v4-mapped form).
    #[inline(always)]
    #[must_use]
    pub const fn is_v4(&self) -> bool {
        self.hi == 0 && self.words()[2] == MAPPED
    }

    /// The IPv4 bytes as a number (192.0.2.1 = 0xC0000201); only meaningful when [`Self::is_v4`].
    #[inline(always)]
    #[must_use]
    pub const fn v4_bits(&self) -> u32 {
        u32::from_be(self.words()[3])
    }

    /// 127.0.0.0/8 or ::1.
    #[inline(always)]
    #[must_use]
    pub const fn is_loopback(&self) -> bool {
        if self.is_v4() { self.v4_bits() >> 24 == 127 } else { self.hi == 0 && self.lo == 1u64.to_be() }
    }

    /// Addresses that no DNS answer may open: loopback, link-local (cloud metadata), multicast, broadcast,
    /// unspecified, 0.0.0.0/8, and IPv6 forms that embed IPv4 in ways the host may rewrite (::/96).
    #[inline(always)]
    #[must_use]
    pub const fn is_forbidden_answer(&self) -> bool {
        let words = self.words();
        // NAT64 (RFC 6052): 64:ff9b::/96 reaches the IPv4 address in its last four bytes.
        let nat64 = words[0] == u32::from_ne_bytes([0, 0x64, 0xff, 0x9b]) && words[1] == 0 && words[2] == 0;
        if nat64 || self.is_v4() {
            let bits = self.v4_bits();
            let top = bits >> 24;
            return top == 127 || top == 0 || bits >> 16 == 0xa9fe || top >> 4 == 14 || bits == u32::MAX;
        }
        let first = u32::from_be(words[0]);
        // ::/96: unspecified, loopback and IPv4-compatible; fe80::/10; ff00::/8.
        (self.hi == 0 && self.words()[2] == 0) || first >> 22 == 0xfe80 >> 6 || first >> 24 == 0xff
    }
}

/// IP protocol numbers that Egret knows (IANA).
pub mod proto {
    /// ICMP for IPv4.
    pub const ICMP: u8 = 1;
    /// TCP.
    pub const TCP: u8 = 6;
    /// UDP.
    pub const UDP: u8 = 17;
    /// ICMP for IPv6.
    pub const ICMPV6: u8 = 58;
    /// SCTP.
    pub const SCTP: u8 = 132;
    /// In a rule: every protocol (IP protocol 0 is IPv6 hop-by-hop, never an upper layer).
    pub const ANY: u8 = 0;
    /// In a rule: the right to *ask* a resolver for the names of this class (255 is reserved by IANA).
    pub const DNS_QUERY: u8 = 255;
}

/// TCP flag bits (RFC 9293 3.1).
pub mod tcp {
    /// No more data from the sender.
    pub const FIN: u8 = 1;
    /// Synchronise sequence numbers.
    pub const SYN: u8 = 2;
    /// Reset the connection.
    pub const RST: u8 = 4;
    /// Acknowledgement field is significant.
    pub const ACK: u8 = 16;
}

/// The way a packet goes, seen from the endpoint.
#[repr(u8)]
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash, PartialOrd, Ord)]
pub enum Direction {
    /// From the endpoint.
    Egress = 0,
    /// To the endpoint.
    Ingress = 1,
}

impl Direction {
    /// The word for it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Egress => "egress",
            Self::Ingress => "ingress",
        }
    }
}
