//! A whole DNS message, read by a full parser: what the kernel's scanner cannot prove is decided here.
//!
//! Owns: which addresses of an answer belong to its question. All or nothing per message: an error anywhere means
//! that nothing was learned (CASES W-A14, W-A15). Must not know: which names are allowed.

mod chain;

use std::net::IpAddr;

use hickory_proto::{
    op::{Message, MessageType, OpCode},
    rr::{DNSClass, Name as WireName, RData, Record, rdata::svcb::SvcParamValue},
};
use thiserror::Error;

use crate::names::Name;
use chain::Chain;

/// Bytes of the fixed header (RFC 1035 4.1.1).
const HEADER: usize = 12;
/// Bytes of the shortest record: root owner, type, class, TTL, length.
const SHORTEST_RECORD: usize = 11;

/// Why a message teaches nothing.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum ParseError {
    /// Cut short, or its counts promise more than its bytes can hold.
    #[error("the message is cut short")]
    Short,
    /// Not exactly one question.
    #[error("the message does not have exactly one question")]
    Question,
    /// A query where an answer was expected, or the other way round, or another operation than QUERY.
    #[error("the message is of the wrong kind")]
    Kind,
    /// The parser's complaint.
    #[error("the message is malformed: {0}")]
    Malformed(String),
}

/// What a message asks or answers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Question {
    /// The name for display: lower case, octets that no host name holds escaped as `\DDD`, without the final dot.
    pub text: String,
    /// The name, if it is one that a policy can name.
    pub name: Option<Name>,
    /// Record type (1 = A, 28 = AAAA, 65 = HTTPS).
    pub qtype: u16,
}

/// A query.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Query {
    /// Transaction id.
    pub id: u16,
    /// The question.
    pub question: Question,
}

/// An address with its lifetime.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Learned {
    /// The address; IPv4-mapped is IPv4.
    pub address: IpAddr,
    /// Seconds: the least TTL of the record and of the aliases before it.
    pub ttl: u32,
}

/// An answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answer {
    /// Transaction id.
    pub id: u16,
    /// The question that it repeats.
    pub question: Question,
    /// Response code, EDNS bits included (0 = no error, 3 = no such name, 5 = refused).
    pub rcode: u16,
    /// The server had more to say (TC).
    pub truncated: bool,
    /// A and AAAA records of the answer section that belong to the question, in their order.
    pub addresses: Vec<Learned>,
    /// Address hints of HTTPS and SVCB records that belong to the question (RFC 9460 7.3).
    pub hints: Vec<Learned>,
    /// Addresses whose owner is not on the chain, with that owner: not learned (CASES W-A05).
    pub unlinked: Vec<(String, IpAddr)>,
    /// Alias targets from the question on, in the order of the chain.
    pub aliases: Vec<String>,
    /// The question's own alias, if a policy can name it.
    first_alias: Option<Name>,
}

impl Answer {
    /// The bare name of a server-side search path ("autopath", CASES W-A03): the question is this name with one of
    /// the client's search domains appended, and the answer begins with an alias to it.
    #[must_use]
    pub fn autopath(&self, search: &[Name]) -> Option<&Name> {
        let (asked, alias) = (self.question.name.as_ref()?, self.first_alias.as_ref()?);
        search.iter().any(|domain| asked.prefix_above(domain) == Some(alias.as_str())).then_some(alias)
    }
}

/// Reads a query.
///
/// # Errors
/// [`ParseError`].
pub fn parse_query(bytes: &[u8]) -> Result<Query, ParseError> {
    let message = read(bytes, MessageType::Query)?;
    Ok(Query { id: message.metadata.id, question: question(&message)? })
}

/// Reads an answer. Work and memory are bounded by the number of bytes.
///
/// # Errors
/// [`ParseError`]; then nothing in the message may be believed.
pub fn parse_answer(bytes: &[u8]) -> Result<Answer, ParseError> {
    let message = read(bytes, MessageType::Response)?;
    let rcode = u16::from(message.metadata.response_code);
    let mut answer = Answer {
        id: message.metadata.id,
        question: question(&message)?,
        rcode,
        truncated: message.metadata.truncation,
        addresses: Vec::new(),
        hints: Vec::new(),
        unlinked: Vec::new(),
        aliases: Vec::new(),
        first_alias: None,
    };
    let records: Vec<&Record> = message.answers.iter().filter(|r| r.dns_class == DNSClass::IN).collect();
    let chain = message.queries.first().map(|q| Chain::new(&q.name, &records)).unwrap_or_default();
    answer.aliases = chain.aliases().map(text).collect();
    answer.first_alias = chain.aliases().next().and_then(host_name);
    if rcode == 0 {
        collect(&mut answer, &chain, &records);
    }
    Ok(answer)
}

fn read(bytes: &[u8], kind: MessageType) -> Result<Message, ParseError> {
    let count =
        |at: usize| bytes.get(at..at + 2).map_or(0, |b| usize::from(u16::from_be_bytes([b[0], b[1]])));
    let records = count(6) + count(8) + count(10);
    if bytes.len() < HEADER || records * SHORTEST_RECORD > bytes.len() - HEADER {
        return Err(ParseError::Short);
    }
    if count(4) != 1 {
        return Err(ParseError::Question);
    }
    let message = Message::from_vec(bytes).map_err(|e| ParseError::Malformed(e.to_string()))?;
    if message.metadata.message_type != kind || message.metadata.op_code != OpCode::Query {
        return Err(ParseError::Kind);
    }
    Ok(message)
}

fn question(message: &Message) -> Result<Question, ParseError> {
    match message.queries.as_slice() {
        [q] => Ok(Question { text: text(&q.name), name: host_name(&q.name), qtype: u16::from(q.query_type) }),
        _ => Err(ParseError::Question),
    }
}

fn collect(answer: &mut Answer, chain: &Chain<'_>, records: &[&Record]) {
    for record in records {
        let on_chain = chain.ttl_to(&record.name);
        let learned = |address: IpAddr, ttl: u32| Learned { address: address.to_canonical(), ttl };
        let address = match &record.data {
            RData::A(a) => IpAddr::V4(a.0),
            RData::AAAA(a) => IpAddr::V6(a.0),
            RData::HTTPS(https) => {
                answer.hints.extend(on_chain.into_iter().flat_map(|ttl| {
                    hints(&https.0.svc_params).map(move |h| learned(h, ttl.min(seconds(record.ttl))))
                }));
                continue;
            }
            RData::SVCB(svcb) => {
                answer.hints.extend(on_chain.into_iter().flat_map(|ttl| {
                    hints(&svcb.svc_params).map(move |h| learned(h, ttl.min(seconds(record.ttl))))
                }));
                continue;
            }
            _ => continue,
        };
        match on_chain {
            Some(ttl) => answer.addresses.push(learned(address, ttl.min(seconds(record.ttl)))),
            None => answer.unlinked.push((text(&record.name), address)),
        }
    }
}

fn hints<K>(params: &[(K, SvcParamValue)]) -> impl Iterator<Item = IpAddr> + '_ {
    params.iter().flat_map(|(_, value)| -> Vec<IpAddr> {
        match value {
            SvcParamValue::Ipv4Hint(hint) => hint.0.iter().map(|a| IpAddr::V4(a.0)).collect(),
            SvcParamValue::Ipv6Hint(hint) => hint.0.iter().map(|a| IpAddr::V6(a.0)).collect(),
            _ => Vec::new(),
        }
    })
}

/// A TTL with the top bit set counts as 0 (RFC 2181 8).
fn seconds(ttl: u32) -> u32 {
    if ttl >> 31 == 0 { ttl } else { 0 }
}

fn host_name(name: &WireName) -> Option<Name> {
    let mut wire = Vec::with_capacity(name.len());
    for label in name.iter() {
        wire.push(u8::try_from(label.len()).ok()?);
        wire.extend_from_slice(label);
    }
    Name::from_wire(&wire).ok()
}

fn text(name: &WireName) -> String {
    let mut out = String::new();
    for (i, label) in name.iter().enumerate() {
        if i > 0 {
            out.push('.');
        }
        for &b in label {
            match b {
                b'.' | b'\\' => out.extend(['\\', char::from(b)]),
                b'!'..=b'~' => out.push(char::from(b.to_ascii_lowercase())),
                _ => out.push_str(&format!("\\{b:03}")),
            }
        }
    }
    if out.is_empty() { ".".to_owned() } else { out }
}

#[cfg(test)]
mod tests;
