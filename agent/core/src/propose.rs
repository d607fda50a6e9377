//! Proposes policies from flows, and says of flows what policies would do with them: `egret learn`.
//!
//! ```text
//!  Flow ──Collected::see──> Need: who, with whom, what, how often ──propose──> CiliumNetworkPolicy, with comments
//!                                        └──replay (policies)──> Denied: what the kernel's decision would stop
//! ```
//! Owns: what of a flow becomes a rule. Names before addresses, labels before both, ports as they are; nothing is made wider
//! than what was seen unless it is asked for. Must not know: where flows come from.
//!
//! A workload that is being learned from may send what it likes, and may be told any name. So everything here is bounded,
//! too much of it is an error rather than a part, and no text of a flow reaches the policy but as a name, a label or a
//! comment without control characters.

mod asked;
mod collect;
mod dns;
mod draft;
mod made;
mod peers;
mod replay;
mod seen;
mod services;
mod who;
mod wild;

pub use collect::{Choice, Collected, Need, Tally};
pub use draft::{Options, Proposal, propose};
pub use replay::{Denied, Replayed, replay};
pub use seen::{Act, Seen};
pub use services::{Backend, Services};
pub use who::{Node, Peer, Subject, peer};

use std::collections::BTreeSet;

use thiserror::Error;

use crate::{compile::CompileError, names::Name};

/// Why there is no policy.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum ProposeError {
    /// No flow of the chosen workloads.
    #[error("no flow of these workloads was seen")]
    Nothing,
    /// Flows, but none that says whose it is.
    #[error("the flows carry no labels: whose they are is not known")]
    NoLabels,
    /// Only flows of pods that no selector tells from others.
    #[error("no policy can be about these pods alone: {0}")]
    Unlabelled(String),
    /// More than a policy should hold.
    #[error("more than {limit} {what}")]
    TooMany {
        /// Of what.
        what: &'static str,
        /// The limit.
        limit: usize,
    },
    /// What was written is not read back: a bug.
    #[error("the policy that was written cannot be read: {0}")]
    Unreadable(String),
    /// The policies cannot be put into maps.
    #[error(transparent)]
    Compile(#[from] CompileError),
}

/// The domains that the resolvers of pods in these namespaces append to names.
fn search<'a>(namespaces: impl Iterator<Item = &'a str>, domain: &Name) -> Vec<Name> {
    let namespaces: BTreeSet<&str> = namespaces.collect();
    let below = namespaces.into_iter().map(|namespace| format!("{namespace}.svc.{domain}"));
    let below = below.chain([format!("svc.{domain}")]);
    below.filter_map(|name| Name::parse(&name).ok()).chain([domain.clone()]).collect()
}

#[cfg(test)]
mod tests;
