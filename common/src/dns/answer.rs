//! Scanning a whole message: a query for the filter, an answer for the learner.

use super::name::{check_name, read_question};
use super::scratch::{ADDRESS_CAP, EDGE_CAP, Edge};
use super::{Driver, Scratch, Step};
use crate::net::Addr;

/// Records of one message that are scanned; more go to the agent.
const RECORD_CAP: u32 = 160;
/// EDNS options of one message that are walked.
const OPTION_CAP: u32 = 16;
/// Offset of the question's name.
const QNAME: u32 = 12;

/// What a scan found out.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Outcome {
    /// Not a message of this kind, or the question cannot be read.
    Unreadable,
    /// Everything there is to learn is in the scratch: `address_count` addresses, perhaps none.
    Proven,
    /// The agent's full parser has to look.
    Slow,
}

/// Scans a query: one question, nothing else but an OPT record. The question is then in the scratch.
#[inline(always)]
pub fn scan_query<D: Driver>(s: &mut Scratch) -> Outcome {
    if s.len < 17 {
        return Outcome::Unreadable;
    }
    let flags = s.be16(2);
    s.txid = s.be16(0);
    // A response, another operation than QUERY, or not exactly one question.
    if flags & 0xf800 != 0 || s.be16(4) != 1 || !read_question::<D>(s) {
        return Outcome::Unreadable;
    }
    let (answers, authorities, additional) = (s.be16(6), s.be16(8), s.be16(10));
    if answers != 0 || authorities != 0 || additional > 1 {
        return Outcome::Slow;
    }
    let end = if additional == 0 { s.question_end } else { opt_end(s) };
    if end == s.len { Outcome::Proven } else { Outcome::Slow }
}

/// Offset behind the OPT record that follows the question; 0 when there is none.
#[inline(always)]
fn opt_end(s: &Scratch) -> u32 {
    let at = s.question_end;
    if at + 11 > s.len || s.byte(at) != 0 || s.be16(at + 1) != OPT {
        return 0;
    }
    at + 11 + s.be16(at + 9)
}

/// Scans an answer. After `Proven` the addresses are read with [`credited`].
#[inline(always)]
pub fn scan_answer<D: Driver>(s: &mut Scratch) -> Outcome {
    if s.len < 17 {
        return Outcome::Unreadable;
    }
    let flags = s.be16(2);
    s.txid = s.be16(0);
    // Not a response to a QUERY, or not exactly one question.
    if flags & 0xf800 != 0x8000 || s.be16(4) != 1 || !read_question::<D>(s) {
        return Outcome::Unreadable;
    }
    let (answers, authorities, additional) = (s.be16(6), s.be16(8), s.be16(10));
    // The scratch still holds what an earlier message left.
    s.address_count = 0;
    s.edge_count = 0;
    if answers == 0 || flags & 0x000f != 0 {
        return Outcome::Proven;
    }
    if answers + authorities + additional > RECORD_CAP {
        return Outcome::Slow;
    }
    begin_records(s, answers, answers + authorities + additional);
    D::repeat::<Record<D>>(s, RECORD_CAP);
    if s.slow != 0 || s.records_left != 0 || s.at != s.len {
        // The answer section was read and holds no address: there is nothing to learn, whatever stands behind it (the
        // SOA of a name without AAAA records). A full parser may find fault with that, and learns nothing either.
        let nothing = s.slow != 0 && s.answers_left == 0 && s.address_count == 0;
        s.address_count = 0;
        return if nothing { Outcome::Proven } else { Outcome::Slow };
    }
    s.chain_at = QNAME;
    s.chain_index = 0;
    s.chain_hops = 0;
    s.chain_ttl = u32::MAX;
    if s.edge_count != 0 {
        D::repeat::<Chain>(s, (EDGE_CAP * (EDGE_CAP + 2)) as u32);
    }
    // Every alias must be on the chain, and every address at its end.
    if s.chain_hops != s.edge_count || (s.address_count != 0 && s.address_owner != s.chain_at) {
        s.address_count = 0;
        return Outcome::Slow;
    }
    Outcome::Proven
}

#[inline(always)]
fn begin_records(s: &mut Scratch, answers: u32, all: u32) {
    s.at = s.question_end;
    s.slow = 0;
    s.answers_left = answers;
    s.records_left = all;
    s.edge_count = 0;
    s.address_count = 0;
    s.address_owner = 0;
    s.opt_seen = 0;
}

/// Follows pointers from the start of a name to where its first label stands, so that two names that share their
/// bytes have one offset. 0 = too many hops, or a pointer that does not lead backwards.
#[inline(always)]
fn canonical(s: &Scratch, at: u32) -> u32 {
    let mut at = at;
    let mut hops = 0;
    while hops < 4 {
        let c = s.byte(at) as u32;
        if c < 0xc0 {
            return at;
        }
        let target = s.be16(at) & 0x3fff;
        if target >= at || target < QNAME {
            return 0;
        }
        at = target;
        hops += 1;
    }
    0
}

/// One resource record.
struct Record<D>(core::marker::PhantomData<D>);

impl<D: Driver> Step for Record<D> {
    #[inline(always)]
    fn step(s: &mut Scratch) -> bool {
        if s.records_left == 0 {
            return false;
        }
        if !record::<D>(s) {
            s.slow = 1;
            return false;
        }
        s.records_left -= 1;
        s.answers_left = s.answers_left.saturating_sub(1);
        s.records_left != 0
    }
}

/// Reads the record at `at`; false when the scan proves nothing.
#[inline(always)]
fn record<D: Driver>(s: &mut Scratch) -> bool {
    let start = s.at;
    let in_answer = s.answers_left != 0;
    if start >= s.len {
        return false;
    }
    let first = s.byte(start);
    let owner_end = match first {
        0 => start + 1,
        // The question's own name, valid already: the usual owner.
        0xc0 if s.byte(start + 1) as u32 == QNAME => start + 2,
        _ => check_name::<D>(s, start),
    };
    if owner_end == 0 || owner_end + 10 > s.len {
        return false;
    }
    let kind = s.be16(owner_end);
    let class = s.be16(owner_end + 2);
    let ttl = seconds(s.be32(owner_end + 4));
    let data = owner_end + 10;
    let data_len = s.be16(owner_end + 8);
    let end = data + data_len;
    if end > s.len {
        return false;
    }
    let known = match kind {
        OPT => !in_answer && s.answers_left == 0 && first == 0 && opt::<D>(s, data, end),
        _ if class != 1 => false,
        A => data_len == 4 && address(s, in_answer, start, data),
        AAAA => data_len == 16 && address(s, in_answer, start, data | 0x8000),
        CNAME => check_name::<D>(s, data) == end && (!in_answer || alias(s, start, data, ttl)),
        NS if !in_answer => check_name::<D>(s, data) == end,
        _ => false,
    };
    s.at = end;
    known
}

const A: u32 = 1;
const NS: u32 = 2;
const CNAME: u32 = 5;
const AAAA: u32 = 28;
const OPT: u32 = 41;

#[inline(always)]
fn address(s: &mut Scratch, in_answer: bool, owner: u32, data: u32) -> bool {
    if !in_answer {
        return true;
    }
    let owner = canonical(s, owner);
    let count = s.address_count;
    if owner == 0 || count >= ADDRESS_CAP as u32 || (count != 0 && s.address_owner != owner) {
        return false;
    }
    s.address_owner = owner;
    s.addresses[(count & (ADDRESS_CAP as u32 - 1)) as usize] = data as u16;
    s.address_count = count + 1;
    true
}

#[inline(always)]
fn alias(s: &mut Scratch, owner: u32, target: u32, ttl: u32) -> bool {
    let (from, to) = (canonical(s, owner), canonical(s, target));
    let count = s.edge_count;
    if from == 0 || to == 0 || count >= EDGE_CAP as u32 {
        return false;
    }
    s.edges[(count & (EDGE_CAP as u32 - 1)) as usize] = Edge { from: from as u16, to: to as u16, ttl };
    s.edge_count = count + 1;
    true
}

/// An OPT record: options must fill its data exactly; only ones without inner structure are taken.
#[inline(always)]
fn opt<D: Driver>(s: &mut Scratch, data: u32, end: u32) -> bool {
    if s.opt_seen != 0 {
        return false;
    }
    s.opt_seen = 1;
    if data == end {
        return true;
    }
    s.at = data;
    s.options_end = end;
    s.name_done = 0;
    D::repeat::<EdnsOption>(s, OPTION_CAP);
    s.name_done != 0
}

/// One EDNS option: cookie, padding or keepalive.
struct EdnsOption;

impl Step for EdnsOption {
    #[inline(always)]
    fn step(s: &mut Scratch) -> bool {
        let (at, end) = (s.at, s.options_end);
        if at == end {
            s.name_done = 1;
            return false;
        }
        if at + 4 > end {
            return false;
        }
        let code = s.be16(at);
        s.at = at + 4 + s.be16(at + 2);
        s.at <= end && matches!(code, 10..=12 | 15)
    }
}

/// One comparison of the walk along the aliases: does the chain go on at this edge?
struct Chain;

impl Step for Chain {
    #[inline(always)]
    fn step(s: &mut Scratch) -> bool {
        let index = s.chain_index;
        // One hop more than there are aliases: a loop.
        if index >= s.edge_count || s.chain_hops > s.edge_count {
            return false;
        }
        let edge = s.edges[(index & (EDGE_CAP as u32 - 1)) as usize];
        if edge.from as u32 == s.chain_at {
            s.chain_at = edge.to as u32;
            s.chain_hops += 1;
            s.chain_index = 0;
            if edge.ttl < s.chain_ttl {
                s.chain_ttl = edge.ttl;
            }
        } else {
            s.chain_index = index + 1;
        }
        true
    }
}

/// One address that belongs to the question.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Credited {
    /// The address.
    pub addr: Addr,
    /// Least TTL of its record and of the aliases before it, s.
    pub ttl: u32,
}

/// The address at `index` (below `address_count`) after a `Proven` scan.
#[inline(always)]
#[must_use]
pub fn credited(s: &Scratch, index: u32) -> Credited {
    let entry = s.addresses[(index & (ADDRESS_CAP as u32 - 1)) as usize] as u32;
    let data = entry & 0x7fff;
    let addr = if entry & 0x8000 == 0 {
        Addr::from_v4(s.bytes::<4>(data))
    } else {
        Addr::from_octets(s.bytes::<16>(data))
    };
    let own = seconds(s.be32(data.wrapping_sub(6)));
    Credited { addr, ttl: if own < s.chain_ttl { own } else { s.chain_ttl } }
}

/// RFC 2181 8: a TTL with the top bit set counts as 0.
#[inline(always)]
const fn seconds(ttl: u32) -> u32 {
    if ttl >> 31 == 0 { ttl } else { 0 }
}
