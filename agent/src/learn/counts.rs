//! How many look-ups and answers a learner has seen, and what became of them. Every answer counts once.

use egret_common::event::{DNS_REFUSED, DnsEvent};
use egret_core::dns::RCODES;
use egret_core::dns::parse::Answer;
use egret_core::state::Lesson;

/// Counts since the learner began.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counts {
    /// Look-ups that passed.
    pub passed: u64,
    /// Look-ups that were refused, or in audit mode would have been.
    pub refused: u64,
    /// Answers by the place in [`RCODES`], each counted by itself; the last one is for all other codes.
    pub rcodes: [u64; RCODES.len() + 1],
    /// Messages that answered no open question.
    pub unasked: u64,
    /// Messages that could not be read.
    pub malformed: u64,
    /// Answers whose addresses the kernel opened.
    pub by_kernel: u64,
    /// Answers of which the agent opened addresses.
    pub by_agent: u64,
    /// Answers that opened nothing, since no name may open their addresses or they were not the question's.
    pub barred: u64,
    /// Answers that opened nothing since no rule speaks of the name, or that held no address.
    pub idle: u64,
}

impl Counts {
    pub(super) fn query(&mut self, event: &DnsEvent) {
        match event.flags & DNS_REFUSED {
            0 => self.passed += 1,
            _ => self.refused += 1,
        }
    }

    pub(super) fn answer(&mut self, event: &DnsEvent, answer: &Answer, lesson: &Lesson) {
        let rcode = usize::from(answer.rcode).min(RCODES.len());
        self.rcodes[rcode] += 1;
        let count = match () {
            () if !lesson.grants.is_empty() => &mut self.by_agent,
            () if event.granted > 0 => &mut self.by_kernel,
            () if !lesson.forbidden.is_empty() || !answer.unlinked.is_empty() => &mut self.barred,
            () => &mut self.idle,
        };
        *count += 1;
    }
}
