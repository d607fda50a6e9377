//! Why a connection passes or does not: the chain from the workload to the verdict, link by link, with the evidence.
//!
//! ```text
//!  endpoint ─> policies ─> resolver ─> query ─> answer ─> rules ─> flows ─> maps      (DESIGN 7)
//!  held?       select it?  reachable?  asked?   told?     decide?  seen?    as they shall be?
//! ```
//! Owns: the order of the links, what breaks one, the sentence with the cause and the one with the remedy. The verdict is
//! [`egret_common::decide`]'s over whatever tables it is given: the kernel's, or those that policy files compile to.
//! Must not know: how maps are read, pods are found, or answers are printed.

mod advice;
mod assumed;
mod case;
mod egress;
mod ingress;
mod judge;
mod names;
mod past;
mod words;
pub mod written;

use egret_common::{decide::Tables, net::Direction, verdict::DropReason};

pub use case::{Case, Held, Known, Local, Now, Owner, Receiver, Target};
pub use words::port as port_text;

/// The whole answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Explanation {
    /// What becomes of a connection that begins now.
    pub outcome: Outcome,
    /// The reason that the kernel would count.
    pub reason: Option<DropReason>,
    /// What was looked at, in order.
    pub links: Vec<Link>,
    /// What decides.
    pub cause: Cause,
    /// The same as a sentence.
    pub sentence: String,
    /// What to do, as a sentence.
    pub remedy: String,
}

/// What becomes of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// It passes.
    Allowed,
    /// It passes, since the endpoint is in audit mode.
    Audited,
    /// It does not pass.
    Denied,
    /// Nobody here knows.
    Unknown,
}

impl Outcome {
    /// The word for it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Allowed => "allowed",
            Self::Audited => "audited",
            Self::Denied => "denied",
            Self::Unknown => "unknown",
        }
    }
}

/// One thing that has to be right.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Link {
    /// At which end.
    pub direction: Direction,
    /// What.
    pub name: &'static str,
    /// Whether it is right.
    pub state: LinkState,
    /// What was found.
    pub evidence: Vec<String>,
}

/// Whether a link holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum LinkState {
    /// It does.
    Ok,
    /// Nobody here knows.
    Unknown,
    /// It does not.
    Broken,
}

impl LinkState {
    /// The word for it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Unknown => "unknown",
            Self::Broken => "broken",
        }
    }
}

macro_rules! causes {
    ($($(#[doc = $doc:literal])+ $name:ident = $code:literal;)+) => {
        /// What decides, in a word that does not change.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
        pub enum Cause { $($(#[doc = $doc])+ $name,)+ }

        impl Cause {
            /// Every cause.
            pub const ALL: &'static [Self] = &[$(Self::$name,)+];

            /// The word.
            #[must_use]
            pub fn code(self) -> &'static str { match self { $(Self::$name => $code,)+ } }
        }
    };
}

causes! {
    /// A rule allows it.
    RuleAllows = "rule-allows";
    /// Nothing holds the workload back in this direction.
    NoPolicy = "no-policy";
    /// It is allowed since the address is open under another name.
    SharedAddress = "shared-address";
    /// Its node lets its own pods be reached (probes), and a workload reaches itself.
    Exempt = "exempt";
    /// The pod is known but its place was not found: nothing enforces its policies.
    Unmanaged = "unmanaged";
    /// The pod is another node's: its agent knows.
    OtherNode = "other-node";
    /// The agent enforces nothing on the pod that it runs in.
    AgentItself = "agent-itself";
    /// No agent answers.
    AgentDown = "agent-down";
    /// No rule lets the workload reach a resolver.
    DnsForgotten = "dns-forgotten";
    /// The workload asks a resolver whose answers are not learned.
    UntrustedResolver = "untrusted-resolver";
    /// `rules.dns` does not list the name: the query is refused.
    QueryRefused = "query-refused";
    /// The workload has not asked for an allowed name of this address, or not for this name.
    NeverAsked = "never-asked";
    /// It asked, and there was no answer.
    NoAnswer = "no-answer";
    /// The resolver says that there is no such name, or that it cannot tell.
    AnswerError = "answer-error";
    /// The answer holds no address that a name may open.
    ForbiddenAddress = "forbidden-address";
    /// What it was told has expired.
    Expired = "expired";
    /// The address was told to it under another name, which no rule allows.
    OtherName = "other-name";
    /// The name's rules open other ports.
    WrongPort = "wrong-port";
    /// A deny rule matches.
    DenyRule = "deny-rule";
    /// Labels have changed since it last passed.
    LabelChanged = "label-changed";
    /// The other side is a pod on its node's network: it has the node's identity, and selectors of pods do not mean it.
    HostNetwork = "host-network";
    /// A backend of the Service is not allowed.
    ServiceBackend = "service-backend";
    /// The kernel's table of learned addresses has no room.
    MapFull = "map-full";
    /// No rule is about it.
    NoRule = "no-rule";
    /// The kernel's maps are not what they shall be.
    MapsDiffer = "maps-differ";
}

/// What is left of a chain: the verdict and what makes it.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Finding {
    outcome: Outcome,
    reason: Option<DropReason>,
    cause: Cause,
    sentence: String,
    remedy: String,
}

impl Finding {
    fn denied(reason: DropReason, cause: Cause, sentence: String, remedy: String) -> Self {
        Self { outcome: Outcome::Denied, reason: Some(reason), cause, sentence, remedy }
    }

    fn allowed(cause: Cause, sentence: String, remedy: String) -> Self {
        Self { outcome: Outcome::Allowed, reason: None, cause, sentence, remedy }
    }

    fn unknown(cause: Cause, sentence: String, remedy: String) -> Self {
        Self { outcome: Outcome::Unknown, reason: None, cause, sentence, remedy }
    }
}

/// Explains a connection from `from` to `to`: what the one may send, if it is an endpoint of this node, and what those of the
/// other end may receive that are. At least one of them has to be.
pub fn explain<T: Tables, K: Known>(
    case: &Case<'_, T, K>,
    (from, sender): (&Target, Option<&Local<'_>>),
    (to, receivers): (&Target, &[Receiver<'_>]),
) -> Explanation {
    let mut links = Vec::new();
    let mut findings = Vec::new();
    let (from, to) = (&from.of_families_of(to), &to.of_families_of(from));
    if let Some(local) = sender {
        findings.push(egress::walk(case, local, to, from, &mut links));
    }
    for receiver in receivers {
        let case = Case { port: receiver.port, ..*case };
        findings.push(ingress::walk(&case, &receiver.local, from, &mut links));
    }
    let differing = case.known.differences();
    if !differing.is_empty() {
        let direction = if sender.is_some() { Direction::Egress } else { Direction::Ingress };
        links.push(Link { direction, name: "maps", state: LinkState::Broken, evidence: differing });
    }
    let mut whole = worst(findings);
    if links.last().is_some_and(|link| link.name == "maps") {
        whole.cause = Cause::MapsDiffer;
        whole.sentence = "the kernel's maps are not what the policies compile to".into();
        whole.remedy =
            "see `egret status` for what could not be written; a restart of the agent mends what differs"
                .into();
    }
    let Finding { outcome, reason, cause, sentence, remedy } = whole;
    Explanation { outcome, reason, links, cause, sentence, remedy }
}

/// What fails first decides: a packet has to get out before it can get in.
fn worst(findings: Vec<Finding>) -> Finding {
    let rank = |finding: &Finding| match finding.outcome {
        Outcome::Denied => 4,
        Outcome::Unknown => 3,
        Outcome::Audited => 2,
        // A rule says more than that nothing isolates.
        Outcome::Allowed => u8::from(finding.cause != Cause::NoPolicy),
    };
    let nobody = || {
        let sentence = "neither end is a workload of this node".to_owned();
        Finding::unknown(
            Cause::OtherNode,
            sentence,
            "ask the agent of the node that one of them is on".into(),
        )
    };
    // Of equals the first.
    findings.into_iter().rev().max_by_key(rank).unwrap_or_else(nobody)
}

#[cfg(test)]
mod tests;
