//! What DNS records say: names of refused queries, lessons from answers, and who was told what, for reports.
//!
//! Owns the [`State`] of a run or of the agent. Everything is an effect that the caller performs: nothing here touches
//! the kernel. Bounded in every direction, since workloads decide what is asked.

mod asked;
mod counts;
#[cfg(test)]
pub(crate) mod fixture;
mod told;

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};

use egret_common::event::{DNS_ASKED, DNS_LEARNED, DNS_REFUSED, DNS_SEGMENT, DnsEvent};
use egret_common::grant::{GrantTime, ticks};
use egret_common::ids::EndpointId;
use egret_common::net::{Addr, Direction, proto};
use egret_core::compile::CompileError;
use egret_core::desired::MapOp;
use egret_core::dns::journal::{Answered, Asked as Query, Journal};
use egret_core::dns::parse::{Answer, ParseError, Question, parse_answer, parse_query};
use egret_core::dns::tcp::Reassembly;
use egret_core::names::Name;
use egret_core::state::{Grant, KernelDid, Lesson, State};

use asked::{Asked, Flow};
pub use counts::Counts;
pub use told::Told;

/// TCP streams that are followed at once.
const STREAMS: usize = 256;
/// Names that are remembered: refused ones, and asked ones.
const NAMES: usize = 16_384;
/// Lines that are kept for the report.
const NOTES: usize = 32;

/// What follows from a record: first the steps, then the grants.
#[derive(Debug, Default)]
pub struct Effects {
    /// Steps.
    pub ops: Vec<MapOp>,
    /// Grants that the kernel did not make.
    pub grants: Vec<Grant>,
}

/// A query that was refused, or would have been.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refused {
    /// The name for display.
    pub text: String,
    /// The name, if a policy can name it.
    pub name: Option<Name>,
}

/// Everything that DNS has taught.
#[derive(Debug)]
pub struct Learner {
    state: State,
    /// The only workload that counts; `None`: every one.
    endpoint: Option<EndpointId>,
    streams: Reassembly<Flow>,
    datagrams: Reassembly<Flow>,
    asked: Asked,
    journal: Journal,
    refused: BTreeMap<u64, Refused>,
    refused_texts: BTreeSet<String>,
    allowed: BTreeSet<Name>,
    told: Told,
    notes: BTreeSet<String>,
    counts: Counts,
}

impl Learner {
    /// Begins with compiled policies; records of other workloads than `endpoint` are passed over.
    #[must_use]
    pub fn new(state: State, endpoint: Option<EndpointId>) -> Self {
        Self {
            state,
            endpoint,
            streams: Reassembly::new(STREAMS),
            datagrams: Reassembly::new(STREAMS),
            asked: Asked::default(),
            journal: Journal::default(),
            refused: BTreeMap::new(),
            refused_texts: BTreeSet::new(),
            allowed: BTreeSet::new(),
            told: Told::default(),
            notes: BTreeSet::new(),
            counts: Counts::default(),
        }
    }

    /// Takes one record of `DNS_EVENTS`.
    ///
    /// # Errors
    /// [`CompileError`]: a name's rules do not fit into the maps; the name stays closed.
    pub fn see(&mut self, event: &DnsEvent, payload: &[u8]) -> Result<Effects, CompileError> {
        self.see_and(event, payload, &mut |_| {})
    }

    /// [`Learner::see`], which also hands on every whole message.
    ///
    /// # Errors
    /// As there.
    pub fn see_and(
        &mut self,
        event: &DnsEvent,
        payload: &[u8],
        hear: &mut dyn FnMut(&[u8]),
    ) -> Result<Effects, CompileError> {
        if self.endpoint.is_some_and(|only| only != event.endpoint) {
            return Ok(Effects::default());
        }
        let segment = event.flags & DNS_SEGMENT != 0;
        if !segment {
            hear(payload);
        }
        if event.direction == Direction::Egress as u8 {
            if segment {
                return Ok(Effects::default());
            }
            self.counts.query(event);
            return self.query(event, payload);
        }
        let mut effects = Effects::default();
        if !segment {
            if event.flags & DNS_ASKED != 0 {
                self.answer(event, payload, &mut effects)?;
            } else {
                self.counts.unasked += 1;
            }
            self.follow(event, payload);
            return Ok(effects);
        }
        for message in self.assemble(event, payload) {
            hear(&message);
            self.answer(event, &message, &mut effects)?;
        }
        Ok(effects)
    }

    /// The compiled policies and the cache.
    #[must_use]
    pub fn state(&self) -> &State {
        &self.state
    }

    /// As [`Learner::state`], to change it.
    pub fn state_mut(&mut self) -> &mut State {
        &mut self.state
    }

    /// Who asked for what, and what came of it.
    #[must_use]
    pub fn journal(&self) -> &Journal {
        &self.journal
    }

    /// These workloads are gone.
    pub fn forget(&mut self, endpoints: &[EndpointId]) {
        self.journal.forget(endpoints);
    }

    /// The refused query with this hash.
    #[must_use]
    pub fn refused(&self, hash: u64) -> Option<&Refused> {
        self.refused.get(&hash)
    }

    /// Whether queries for this name were refused (or, in audit mode, would have been).
    #[must_use]
    pub fn is_refused(&self, text: &str) -> bool {
        self.refused_texts.contains(text)
    }

    /// What it has seen so far.
    #[must_use]
    pub fn counts(&self) -> Counts {
        self.counts
    }

    /// Names that were asked for and allowed.
    #[must_use]
    pub fn allowed(&self) -> &BTreeSet<Name> {
        &self.allowed
    }

    /// Every refused name that a policy can name.
    pub fn refused_names(&self) -> impl Iterator<Item = &Name> {
        self.refused.values().filter_map(|r| r.name.as_ref())
    }

    /// Who was told what.
    #[must_use]
    pub fn told(&self) -> &Told {
        &self.told
    }

    /// What is worth telling about answers.
    pub fn notes(&self) -> impl Iterator<Item = &String> {
        self.notes.iter()
    }

    fn query(&mut self, event: &DnsEvent, payload: &[u8]) -> Result<Effects, CompileError> {
        let Ok(query) = parse_query(payload) else { return Ok(Effects::default()) };
        self.asked.put(Flow::of(event), query.id, &query.question);
        let Question { text, name, .. } = query.question;
        if let Some(name) = &name {
            let (resolver, refused) =
                (socket(event.remote, event.remote_port), event.flags & DNS_REFUSED != 0);
            self.journal.ask(event.endpoint, name, Query { time: event.time, resolver, refused });
        }
        if event.flags & DNS_REFUSED != 0 {
            if self.refused.len() < NAMES {
                self.refused_texts.insert(text.clone());
                self.refused.entry(event.question).or_insert(Refused { text, name });
            }
            return Ok(Effects::default());
        }
        let Some(name) = name else { return Ok(Effects::default()) };
        let ops = self.state.see_query(&name)?;
        if self.allowed.len() < NAMES {
            self.allowed.insert(name);
        }
        Ok(Effects { ops, grants: Vec::new() })
    }

    /// A whole message.
    fn answer(
        &mut self,
        event: &DnsEvent,
        payload: &[u8],
        effects: &mut Effects,
    ) -> Result<(), CompileError> {
        let answer = match parse_answer(payload) {
            Ok(answer) => answer,
            Err(error) => {
                self.counts.malformed += 1;
                self.malformed(event, &error);
                return Ok(());
            }
        };
        // The kernel has checked whole messages; of a stream it only saw pieces.
        let open = self.asked.close(Flow::of(event), answer.id, &answer.question);
        if event.flags & DNS_SEGMENT != 0 && !open {
            self.counts.unasked += 1;
            return Ok(());
        }
        self.told.learn(&answer, event.time);
        if let Some(name) = &answer.question.name {
            let answered = Answered {
                time: event.time,
                resolver: socket(event.remote, event.remote_port),
                rcode: answer.rcode,
                addresses: answer.addresses.len(),
            };
            self.journal.answer(event.endpoint, name, answer.question.qtype, answered);
        }
        let learned = event.flags & DNS_LEARNED != 0;
        let kernel = KernelDid { learned, class: event.class };
        let lesson = self.state.see_answer(event.endpoint, &answer, kernel, ticks(event.time))?;
        self.counts.answer(event, &answer, &lesson);
        self.note(&answer, &lesson);
        effects.ops.extend(lesson.ops);
        effects.grants.extend(lesson.grants);
        Ok(())
    }

    fn note(&mut self, answer: &Answer, lesson: &Lesson) {
        let name = &answer.question.text;
        for address in &lesson.forbidden {
            self.say(format!("{name} was answered with {address}, which no name may open"));
        }
        for (owner, address) in &answer.unlinked {
            self.say(format!("{name} was answered with {address} of {owner}, which is not on its chain of aliases: not learned"));
        }
        if lesson.refused > 0 {
            self.say(format!("{name} has more addresses than are remembered"));
        }
    }

    fn malformed(&mut self, event: &DnsEvent, error: &ParseError) {
        let resolver = socket(event.remote, event.remote_port);
        self.say(format!("an answer of {resolver} taught nothing: {error}"));
    }

    fn say(&mut self, note: String) {
        if self.notes.len() < NOTES {
            self.notes.insert(note);
        }
    }

    /// Keeps a stream whole of which some messages came by themselves.
    fn follow(&mut self, event: &DnsEvent, payload: &[u8]) {
        if event.proto == proto::TCP {
            let length = (payload.len() as u16).to_be_bytes();
            self.streams.push(&Flow::of(event), event.seq, &[&length, payload].concat(), true);
        }
    }

    /// The messages that a piece completes.
    fn assemble(&mut self, event: &DnsEvent, payload: &[u8]) -> Vec<Vec<u8>> {
        let flow = Flow::of(event);
        if event.proto == proto::TCP {
            return self.streams.push(&flow, event.seq, payload, true);
        }
        // A datagram in pieces, put together as a stream of one message. Its pieces come one after the other.
        if event.seq == 0 {
            self.datagrams.end(&flow);
            let Ok(length) = u16::try_from(event.full_len) else { return Vec::new() };
            self.datagrams.push(&flow, 0, &length.to_be_bytes(), true);
        }
        self.datagrams.push(&flow, event.seq.wrapping_add(2), payload, true)
    }
}

/// An address of a record.
#[must_use]
pub fn ip(addr: Addr) -> IpAddr {
    IpAddr::from(addr.octets()).to_canonical()
}

/// Address and port of a record.
#[must_use]
pub fn socket(addr: Addr, port: u16) -> SocketAddr {
    SocketAddr::new(ip(addr), port)
}

/// Now, in the ticks of grants.
#[must_use]
pub fn now() -> GrantTime {
    ticks(crate::host::boot_ns())
}

#[cfg(test)]
mod tests;
