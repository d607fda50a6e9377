//! What a judgement is, and what its steps hand on. Words instead of enumerations, and zeros that are loaded instead
//! of written: the verifier follows every combination of what it knows, so here it knows as little as possible.

use crate::decide::{Decision, Question};
use crate::maps::{ENDPOINT_AUDIT, Endpoint, FlowKey};
use crate::net::{Addr, Direction};
use crate::packet::Parsed;
use crate::verdict::{DropReason, Verdict};

/// What became of a packet. Words, not enumerations, as the module says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Judgement {
    /// [`Verdict`] as a number.
    pub verdict: u32,
    /// [`DropReason`] as a number; 0 = forwarded.
    pub reason: u32,
    /// 1 when the packet started a flow or was denied: the moments for an event.
    pub fresh: u32,
    /// `FLOW_*` bits of its flow.
    pub flow_flags: u32,
    /// Class that decided.
    pub class: u32,
    /// Rule that decided.
    pub cookie: u32,
    /// NameExpired: seconds.
    pub age: u32,
    /// 1 when the packet goes in the direction of the flow's first packet.
    pub forward: u32,
}

impl Judgement {
    pub(crate) const PASS: Self = Self {
        verdict: Verdict::Forwarded as u32,
        reason: 0,
        fresh: 0,
        flow_flags: 0,
        class: 0,
        cookie: 0,
        age: 0,
        forward: 1,
    };

    /// Not let through, for this reason.
    #[inline(always)]
    #[must_use]
    pub fn denied(endpoint: &Endpoint, reason: DropReason) -> Self {
        Self { verdict: refusal(endpoint) as u32, reason: reason as u32, fresh: 1, ..Self::PASS }
    }

    /// The verdict.
    #[must_use]
    pub const fn verdict(&self) -> Verdict {
        match self.verdict {
            2 => Verdict::Dropped,
            4 => Verdict::Audited,
            _ => Verdict::Forwarded,
        }
    }

    /// Why the packet was not let through.
    #[must_use]
    pub const fn reason(&self) -> Option<DropReason> {
        DropReason::from_u8(self.reason as u8)
    }

    /// True for a packet that is held back.
    #[inline(always)]
    #[must_use]
    pub const fn is_drop(&self) -> bool {
        self.verdict == Verdict::Dropped as u32
    }
}

/// The verdict on what is not allowed: dropped, or in audit mode let through.
#[inline(always)]
#[must_use]
pub const fn refusal(endpoint: &Endpoint) -> Verdict {
    if endpoint.flags & ENDPOINT_AUDIT != 0 { Verdict::Audited } else { Verdict::Dropped }
}

/// What the steps of a judgement hand on.
#[derive(Clone, Copy, Debug)]
pub struct Work {
    /// The packet's headers; filled also when the verdict is a drop.
    pub parsed: Parsed,
    /// Its flow.
    pub key: FlowKey,
    /// Asked of [`crate::decide::decide`] when [`crate::judge::track`] says so.
    pub question: Question,
    /// Its answer.
    pub decision: Decision,
    /// The result.
    pub judgement: Judgement,
    /// The way the packet goes.
    pub direction: Direction,
    /// The flow is known, but another rule set judged it.
    pub(crate) rejudge: u32,
}

impl Work {
    /// For a packet of `endpoint` that goes this way. The zeros come from [`Endpoint::zero`]: constants would become a
    /// call that clears byte by byte.
    #[inline(always)]
    #[must_use]
    pub fn new(endpoint: &Endpoint, direction: Direction) -> Self {
        let zero = endpoint.zero;
        let nowhere = Addr { hi: zero as u64, lo: zero as u64 };
        Self {
            parsed: Parsed {
                src: nowhere,
                dst: nowhere,
                l4: zero as u16,
                l4_len: zero,
                seq: zero,
                sport: zero as u16,
                dport: zero as u16,
                icmp_id: zero as u16,
                tcp_flags: zero as u8,
                proto: zero as u8,
                hops: zero as u8,
                version: zero as u16,
                tcp_header: zero as u8,
                fragment: zero as u16,
            },
            key: FlowKey {
                local: nowhere,
                remote: nowhere,
                endpoint: endpoint.id,
                local_port: zero as u16,
                remote_port: zero as u16,
                proto: zero,
                pad: zero,
            },
            question: Question { remote: nowhere, direction, proto: zero as u8, port: zero as u16 },
            decision: Decision { deny: zero, class: zero, cookie: zero, age: zero },
            judgement: Judgement {
                verdict: zero + Verdict::Forwarded as u32,
                reason: zero,
                fresh: zero,
                flow_flags: zero,
                class: zero,
                cookie: zero,
                age: zero,
                forward: zero + 1,
            },
            direction,
            rejudge: zero,
        }
    }

    /// Adds 0 to everything. The verifier remembers what each branch wrote, and follows every combination of branches
    /// on its own; a sum with a number that it does not know is unknown, so all branches are one state again.
    #[inline(always)]
    pub(crate) fn settle(&mut self, zero: u32) {
        let parsed = &mut self.parsed;
        parsed.l4 = parsed.l4.wrapping_add(zero as u16);
        parsed.l4_len = parsed.l4_len.wrapping_add(zero);
        parsed.seq = parsed.seq.wrapping_add(zero);
        parsed.sport = parsed.sport.wrapping_add(zero as u16);
        parsed.dport = parsed.dport.wrapping_add(zero as u16);
        parsed.icmp_id = parsed.icmp_id.wrapping_add(zero as u16);
        parsed.tcp_flags = parsed.tcp_flags.wrapping_add(zero as u8);
        parsed.proto = parsed.proto.wrapping_add(zero as u8);
        parsed.hops = parsed.hops.wrapping_add(zero as u8);
        parsed.version = parsed.version.wrapping_add(zero as u16);
        parsed.tcp_header = parsed.tcp_header.wrapping_add(zero as u8);
        parsed.fragment = parsed.fragment.wrapping_add(zero as u16);
        let judgement = &mut self.judgement;
        judgement.verdict = judgement.verdict.wrapping_add(zero);
        judgement.reason = judgement.reason.wrapping_add(zero);
        judgement.fresh = judgement.fresh.wrapping_add(zero);
        judgement.flow_flags = judgement.flow_flags.wrapping_add(zero);
        judgement.class = judgement.class.wrapping_add(zero);
        judgement.cookie = judgement.cookie.wrapping_add(zero);
        judgement.age = judgement.age.wrapping_add(zero);
        judgement.forward = judgement.forward.wrapping_add(zero);
        self.key.local_port = self.key.local_port.wrapping_add(zero as u16);
        self.key.remote_port = self.key.remote_port.wrapping_add(zero as u16);
        self.key.proto = self.key.proto.wrapping_add(zero);
        self.question.port = self.question.port.wrapping_add(zero as u16);
        self.rejudge = self.rejudge.wrapping_add(zero);
    }
}
