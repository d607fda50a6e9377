//! IPv6 extension headers.

/// An IPv6 extension header.
#[derive(Clone, Debug)]
pub enum Ext {
    /// Hop-by-hop options (0), so many 8-byte units beyond the first.
    HopByHop(u8),
    /// Destination options (60).
    Destination(u8),
    /// Routing (43) of a type, no segments left.
    Routing(u8),
    /// Fragment (44): offset in bytes, more, identification.
    Fragment(u16, bool, u32),
    /// Authentication (51) with so many 4-byte units of check value.
    Auth(u8),
    /// A header of any number in the common layout.
    Unknown(u8),
}

impl Ext {
    /// Its number, and its bytes with `next` behind it.
    pub(super) fn bytes(&self, next: u8) -> (u8, Vec<u8>) {
        let options = |units: u8| {
            // RFC 4727's experimental option, skipped by who does not know it: Linux takes no padding above
            // seven bytes.
            let mut bytes = vec![next, units, 0x1e, 4 + 8 * units];
            bytes.resize(8 + 8 * usize::from(units), 0);
            bytes
        };
        match self {
            Self::HopByHop(units) => (0, options(*units)),
            Self::Destination(units) => (60, options(*units)),
            Self::Routing(kind) => (43, vec![next, 0, *kind, 0, 0, 0, 0, 0]),
            Self::Fragment(offset, more, id) => {
                let mut bytes = vec![next, 0];
                bytes.extend((offset & 0xfff8 | u16::from(*more)).to_be_bytes());
                bytes.extend(id.to_be_bytes());
                (44, bytes)
            }
            Self::Auth(units) => {
                let mut bytes = vec![next, 1 + units, 0, 0, 0, 0, 0, 1, 0, 0, 0, 1];
                bytes.resize(12 + 4 * usize::from(*units), 0);
                (51, bytes)
            }
            Self::Unknown(number) => (*number, options(0)),
        }
    }
}
