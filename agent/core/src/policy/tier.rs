//! The tiers of policies, and where a policy stands in its tier.
//!
//! Owns: the order in which policies are asked. Must not know: which language a policy was written in.

use std::fmt;

use super::{Origin, Policy, Rule};

/// Who is asked first. What one tier decides, no later one changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub enum Tier {
    /// ClusterNetworkPolicy before all others.
    Admin,
    /// NetworkPolicy and CiliumNetworkPolicy: no order among them, deny beats allow.
    #[default]
    Normal,
    /// ClusterNetworkPolicy for what no other policy decides.
    Baseline,
}

impl fmt::Display for Tier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Tier::Admin => "Admin",
            Tier::Normal => "Normal",
            Tier::Baseline => "Baseline",
        })
    }
}

/// Tier and place in it. In the Admin and Baseline tiers the first rule that matches decides, by priority, then by
/// the object's name, then by the order of the text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct Standing {
    /// The tier.
    pub tier: Tier,
    /// 0 to 1000, the lowest first; 0 in [`Tier::Normal`], where it means nothing.
    pub priority: u16,
}

/// The rules of the Admin and Baseline tiers in the order in which they are asked, Admin first.
pub(crate) fn in_order<'a>(policies: impl Iterator<Item = &'a Policy>) -> Vec<(Tier, &'a Origin, &'a Rule)> {
    let mut tiered: Vec<&Policy> = policies.filter(|p| p.standing().tier != Tier::Normal).collect();
    tiered.sort_by_key(|p| (p.standing(), p.origin()));
    let rules = |p: &'a Policy| p.rules().iter().map(|rule| (p.standing().tier, p.origin(), rule));
    tiered.into_iter().flat_map(rules).collect()
}
