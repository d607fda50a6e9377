//! DNS messages byte by byte: any counts, any pointers, any lie. Checks nothing.

use std::net::IpAddr;

use super::Query;

/// QR, RD, RA: an ordinary answer.
pub const ANSWER: u16 = 0x8180;
/// An answer that is cut short.
pub const TRUNCATED: u16 = 0x8380;
/// RD: an ordinary query.
pub const QUERY: u16 = 0x0100;
/// A pointer to the question's name.
pub const QNAME: Name<'static> = Name::Pointer(12);

/// Type numbers that tests use.
pub mod rtype {
    #![expect(missing_docs, reason = "the names are those of the registry")]
    pub const A: u16 = 1;
    pub const NS: u16 = 2;
    pub const CNAME: u16 = 5;
    pub const SOA: u16 = 6;
    pub const NULL: u16 = 10;
    pub const PTR: u16 = 12;
    pub const TXT: u16 = 16;
    pub const AAAA: u16 = 28;
    pub const SRV: u16 = 33;
    pub const DNAME: u16 = 39;
    pub const OPT: u16 = 41;
    pub const SVCB: u16 = 64;
    pub const HTTPS: u16 = 65;
    pub const ANY: u16 = 255;
}

/// How an owner or a target is written.
#[derive(Clone, Copy, Debug)]
pub enum Name<'a> {
    /// Labels of a dotted name, uncompressed.
    Labels(&'a str),
    /// A compression pointer to an offset.
    Pointer(u16),
    /// Labels, then a pointer.
    Prefix(&'a str, u16),
    /// Any bytes.
    Raw(&'a [u8]),
}

impl Name<'_> {
    /// Its bytes.
    pub fn bytes(&self) -> Vec<u8> {
        match self {
            Self::Labels(text) => wire_name(text),
            Self::Pointer(offset) => pointer(*offset).to_vec(),
            Self::Prefix(text, offset) => {
                let mut bytes = wire_name(text);
                bytes.pop();
                bytes.extend(pointer(*offset));
                bytes
            }
            Self::Raw(bytes) => bytes.to_vec(),
        }
    }
}

/// A dotted name in wire form; a final dot makes no difference.
pub fn wire_name(text: &str) -> Vec<u8> {
    let mut bytes = Vec::new();
    for label in text.split('.').filter(|label| !label.is_empty()) {
        bytes.push(label.len() as u8);
        bytes.extend_from_slice(label.as_bytes());
    }
    bytes.push(0);
    bytes
}

/// A query with one question and EDNS0 (4096 bytes).
pub fn query(id: u16, name: &str, qtype: u16) -> Vec<u8> {
    Message::new(id, QUERY).question(name, qtype).section(3).opt(4096).finish()
}

/// A message under construction. Counts follow what is added unless they are set by hand.
#[derive(Clone, Debug)]
pub struct Message {
    bytes: Vec<u8>,
    counts: [u16; 4],
    section: usize,
}

impl Message {
    /// A header only.
    pub fn new(id: u16, flags: u16) -> Self {
        let mut bytes = Vec::from(id.to_be_bytes());
        bytes.extend(flags.to_be_bytes());
        bytes.extend([0; 8]);
        Self { bytes, counts: [0; 4], section: 1 }
    }

    /// The header and the question of an answer to `query`, the question's bytes as they came.
    pub fn reply(query: &Query, flags: u16) -> Self {
        let mut message = Self::new(query.id(), flags);
        message.bytes.extend_from_slice(query.question());
        message.counts[0] = 1;
        message
    }

    /// Adds a question of class IN.
    #[must_use]
    pub fn question(mut self, name: &str, qtype: u16) -> Self {
        self.bytes.extend(wire_name(name));
        self.bytes.extend(qtype.to_be_bytes());
        self.bytes.extend(1u16.to_be_bytes());
        self.counts[0] += 1;
        self
    }

    /// Following records go to section 1 answer, 2 authority, 3 additional.
    #[must_use]
    pub fn section(mut self, section: usize) -> Self {
        self.section = section;
        self
    }

    /// Adds a record of class IN.
    #[must_use]
    pub fn record(mut self, owner: Name<'_>, rtype: u16, ttl: u32, rdata: &[u8]) -> Self {
        self.bytes.extend(owner.bytes());
        self.bytes.extend(rtype.to_be_bytes());
        self.bytes.extend(1u16.to_be_bytes());
        self.bytes.extend(ttl.to_be_bytes());
        self.bytes.extend((rdata.len() as u16).to_be_bytes());
        self.bytes.extend_from_slice(rdata);
        self.counts[self.section] += 1;
        self
    }

    /// Adds an A or AAAA record.
    #[must_use]
    pub fn address(self, owner: Name<'_>, ttl: u32, address: &str) -> Self {
        match address.parse().unwrap_or_else(|_| panic!("{address} is no address")) {
            IpAddr::V4(v4) => self.record(owner, rtype::A, ttl, &v4.octets()),
            IpAddr::V6(v6) => self.record(owner, rtype::AAAA, ttl, &v6.octets()),
        }
    }

    /// Adds a CNAME record.
    #[must_use]
    pub fn cname(self, owner: Name<'_>, ttl: u32, target: Name<'_>) -> Self {
        self.record(owner, rtype::CNAME, ttl, &target.bytes())
    }

    /// Adds an OPT record that offers `size` bytes.
    #[must_use]
    pub fn opt(mut self, size: u16) -> Self {
        self.bytes.extend([0]);
        self.bytes.extend(rtype::OPT.to_be_bytes());
        self.bytes.extend(size.to_be_bytes());
        self.bytes.extend([0; 6]);
        self.counts[self.section] += 1;
        self
    }

    /// Adds any bytes.
    #[must_use]
    pub fn raw(mut self, bytes: &[u8]) -> Self {
        self.bytes.extend_from_slice(bytes);
        self
    }

    /// Where the next byte will stand, for pointers to it.
    pub fn here(&self) -> u16 {
        self.bytes.len() as u16
    }

    /// Claims these counts, whatever the message holds.
    #[must_use]
    pub fn counts(mut self, counts: [u16; 4]) -> Self {
        self.counts = counts;
        self
    }

    /// The bytes.
    pub fn finish(mut self) -> Vec<u8> {
        for (index, count) in self.counts.iter().enumerate() {
            self.bytes[4 + 2 * index..6 + 2 * index].copy_from_slice(&count.to_be_bytes());
        }
        self.bytes
    }
}

fn pointer(offset: u16) -> [u8; 2] {
    (0xc000 | offset).to_be_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hickory_reads_what_is_built() {
        let message = Message::new(9, ANSWER)
            .question("a.example", rtype::A)
            .cname(QNAME, 30, Name::Prefix("b", 14))
            .address(Name::Labels("b.example"), 60, "192.0.2.1")
            .finish();
        let read = hickory_proto::op::Message::from_vec(&message).expect("a good message");
        assert_eq!(read.answers.len(), 2);
        assert_eq!(read.answers[0].to_string(), "a.example. 30 IN CNAME b.example.");
        assert_eq!(read.answers[1].to_string(), "b.example. 60 IN A 192.0.2.1");
    }
}
