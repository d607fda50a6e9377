//! What a judgement is, and what its steps hand on. Words instead of enumerations, and zeros that are loaded instead
//! of written: the verifier follows every combination of what it knows, so here it knows as little as possible.

use crate::decide::{Decision, What};
use crate::maps::{ENDPOINT_AUDIT, Endpoint, FlowKey};
use crate::net::{Addr, Direction};
use crate::packet::Parsed;
use crate::verdict::{DropReason, Verdict};

/// What became of a packet. Words, not enumerations, as the module says. What the branches write as constants stands in
/// the second half of eight bytes: the verifier of 6.1 remembers numbers that begin such a slot, and would follow each
/// combination of them to the end (three times the instructions).
#[repr(C, align(8))]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Judgement {
    /// Why: the reason (0 = forwarded), and the class and rule that decided.
    pub decision: Decision,
    /// `FLOW_*` bits of its flow.
    pub flow_flags: u32,
    /// [`Verdict`] as a number.
    pub verdict: u32,
    /// Zero, in front of what follows.
    pub(crate) filler: u32,
    /// 1 when the packet started a flow or was denied: the moments for an event.
    pub fresh: u16,
    /// 1 when the packet goes in the direction of the flow's first packet.
    pub forward: u16,
}

impl Judgement {
    pub(crate) const PASS: Self = Self {
        verdict: Verdict::Forwarded as u32,
        fresh: 0,
        flow_flags: 0,
        forward: 1,
        filler: 0,
        decision: Decision { reason: 0, class: 0, cookie: 0, age: 0 },
    };

    /// Not let through, for this reason.
    #[inline(always)]
    #[must_use]
    pub fn denied(endpoint: &Endpoint, reason: DropReason) -> Self {
        let decision = Decision { reason: reason as u32, class: 0, cookie: 0, age: 0 };
        Self { verdict: refusal(endpoint) as u32, fresh: 1, decision, ..Self::PASS }
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
        DropReason::from_u8(self.decision.reason as u8)
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
    /// The result.
    pub judgement: Judgement,
    /// The way the packet goes.
    pub direction: Direction,
    /// What is asked about the flow when [`crate::judge::track`] says so.
    pub(crate) what: What,
    /// Not 0: the flow is known, but another rule set judged it, or only audit had let it pass.
    pub(crate) rejudge: u16,
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
            judgement: Judgement {
                verdict: zero + Verdict::Forwarded as u32,
                fresh: zero as u16,
                flow_flags: zero,
                forward: zero as u16 + 1,
                filler: zero,
                decision: Decision { reason: zero, class: zero, cookie: zero, age: zero },
            },
            direction,
            what: What { port: zero as u16, proto: zero as u8, egress: zero as u8 },
            rejudge: zero as u16,
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
        judgement.decision.reason = judgement.decision.reason.wrapping_add(zero);
        judgement.fresh = judgement.fresh.wrapping_add(zero as u16);
        judgement.flow_flags = judgement.flow_flags.wrapping_add(zero);
        judgement.decision.class = judgement.decision.class.wrapping_add(zero);
        judgement.decision.cookie = judgement.decision.cookie.wrapping_add(zero);
        judgement.decision.age = judgement.decision.age.wrapping_add(zero);
        judgement.forward = judgement.forward.wrapping_add(zero as u16);
        self.key.local_port = self.key.local_port.wrapping_add(zero as u16);
        self.key.remote_port = self.key.remote_port.wrapping_add(zero as u16);
        self.key.proto = self.key.proto.wrapping_add(zero);
        self.what.port = self.what.port.wrapping_add(zero as u16);
        self.what.proto = self.what.proto.wrapping_add(zero as u8);
        self.what.egress = self.what.egress.wrapping_add(zero as u8);
        self.rejudge = self.rejudge.wrapping_add(zero as u16);
    }
}
