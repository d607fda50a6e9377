//! A received query, read by hand so that odd ones can be looked at too.

use std::net::SocketAddr;
use std::time::Instant;

/// How a query came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transport {
    /// One datagram.
    Udp,
    /// A message on a TCP connection.
    Tcp,
}

/// A query as it arrived.
#[derive(Clone, Debug)]
pub struct Query {
    /// How it came.
    pub transport: Transport,
    /// Who sent it.
    pub from: SocketAddr,
    /// The address of ours that it was sent to.
    pub to: SocketAddr,
    /// The message, without TCP's length prefix.
    pub bytes: Vec<u8>,
    /// Number of the TCP connection within this server; 0 for UDP.
    pub connection: u64,
    /// When it arrived.
    pub at: Instant,
}

impl Query {
    /// The transaction id, 0 if there is none.
    pub fn id(&self) -> u16 {
        self.u16_at(0)
    }

    /// The first question's name as sent: dotted, case kept, no final dot, `.` for the root.
    pub fn name(&self) -> String {
        let labels: Vec<String> =
            self.labels().iter().map(|label| String::from_utf8_lossy(label).into_owned()).collect();
        if labels.is_empty() { ".".into() } else { labels.join(".") }
    }

    /// The name in lower case.
    pub fn name_lower(&self) -> String {
        self.name().to_ascii_lowercase()
    }

    /// The first question's name in wire form, case kept.
    pub fn name_bytes(&self) -> &[u8] {
        let question = self.question();
        &question[..question.len().saturating_sub(4)]
    }

    /// The first question's type.
    pub fn qtype(&self) -> u16 {
        self.u16_at(12 + self.name_bytes().len())
    }

    /// The first question's bytes: name, type, class; empty if it is cut off.
    pub fn question(&self) -> &[u8] {
        let end = 12 + self.labels().iter().map(|label| label.len() + 1).sum::<usize>() + 1 + 4;
        self.bytes.get(12..end).unwrap_or(&[])
    }

    fn labels(&self) -> Vec<&[u8]> {
        let mut labels = Vec::new();
        let mut at = 12;
        while let Some(&length @ 1..=63) = self.bytes.get(at) {
            let Some(label) = self.bytes.get(at + 1..at + 1 + usize::from(length)) else { break };
            labels.push(label);
            at += 1 + usize::from(length);
        }
        labels
    }

    fn u16_at(&self, at: usize) -> u16 {
        self.bytes.get(at..at + 2).map_or(0, |bytes| u16::from_be_bytes([bytes[0], bytes[1]]))
    }

    #[cfg(test)]
    pub(crate) fn for_test(bytes: Vec<u8>, transport: Transport) -> Self {
        let here = SocketAddr::from(([127, 0, 0, 1], 53));
        Self { transport, from: here, to: here, bytes, connection: 0, at: Instant::now() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dnsd::raw;

    #[test]
    fn reads_a_query_and_survives_a_cut_one() {
        let bytes = raw::query(7, "aPi.Example", 28);
        let query = Query::for_test(bytes.clone(), Transport::Udp);
        assert_eq!((query.id(), query.name().as_str(), query.qtype()), (7, "aPi.Example", 28));
        assert_eq!(query.name_bytes(), b"\x03aPi\x07Example\0");
        for cut in 0..bytes.len() {
            let query = Query::for_test(bytes[..cut].to_vec(), Transport::Udp);
            let _ = (query.name(), query.qtype(), query.question().len());
        }
    }
}
