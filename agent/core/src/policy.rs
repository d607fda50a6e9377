//! The policy model that every policy language is read into.
//!
//! Owns: what a rule can say, independent of the language it was written in. Must not know: YAML, maps, endpoints'
//! ids. A value of these types is valid: the readers refuse what cannot be enforced.

pub mod cilium;
pub mod write;

mod cluster_network;
mod diagnostic;
mod kubernetes;
pub(crate) mod load;
mod reader;
mod reference;
mod selector;
mod shared;
mod tier;
mod workload;

use std::{collections::BTreeSet, fmt};

use egret_common::net::Direction;
use ipnet::IpNet;

use crate::{
    labels::{Labels, Selector},
    names::Pattern,
    ports::{Ports, Proto},
    tuning::Lifetimes,
};

/// The port of DNS over UDP and TCP (RFC 1035 4.2).
pub const DNS_PORT: u16 = 53;

pub use diagnostic::{Diagnostic, Severity};
pub use load::{Loaded, parse};
pub use reference::Reference;
pub use shared::Policies;
pub(crate) use tier::in_order;
pub use tier::{Standing, Tier};

/// Where a policy comes from: kind, namespace and name of the object.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Origin {
    /// Kind of the object, such as `CiliumNetworkPolicy`.
    pub kind: String,
    /// Namespace, where the kind has one and the object names it.
    pub namespace: Option<String>,
    /// Name of the object.
    pub name: String,
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.namespace {
            Some(ns) => write!(f, "{}/{ns}/{}", self.kind, self.name),
            None => write!(f, "{}/{}", self.kind, self.name),
        }
    }
}

/// What a rule does with the traffic that it matches.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Effect {
    /// Lets it pass: in the Normal tier unless some rule denies it, in the others for good.
    Allow,
    /// Denies it: in the Normal tier whatever allows it, in the others if it comes first.
    Deny,
    /// Leaves it to the next tier. Only in policies of the Admin and Baseline tiers.
    Pass,
}

/// A CIDR without the parts that its own rule excepts. Another rule may still open those.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct CidrPeer {
    /// The network, canonical.
    pub net: IpNet,
    /// Networks inside `net` that this peer does not mean.
    pub except: Vec<IpNet>,
    /// Addresses of pods are meant as well. NetworkPolicy's `ipBlock` says so, CiliumNetworkPolicy's `toCIDR` does not
    /// (CASES K-A10).
    pub pods: bool,
}

impl CidrPeer {
    /// The whole network, without the pods in it.
    #[must_use]
    pub fn whole(net: IpNet) -> Self {
        Self { net, except: Vec::new(), pods: false }
    }
}

/// The `toEntities`/`fromEntities` that Egret enforces.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Entity {
    /// Everybody.
    All,
    /// Every address that nothing in the cluster claims.
    World,
    /// Nodes, API server and pods of the cluster.
    Cluster,
    /// This node.
    Host,
    /// Other nodes.
    RemoteNode,
    /// The API server.
    KubeApiserver,
    /// Nobody.
    None,
}

/// Whose traffic a policy is about.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Subject {
    /// Pods with these identity labels.
    Pods(Selector),
    /// Nodes with these labels: what runs in a node's own network.
    Nodes(Selector),
    /// The one workload of `egret run`, whatever the text selects.
    This,
}

/// Whom a rule means. The kinds exclude one another inside a rule, as in the API.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Peers {
    /// Anybody: the rule has no peers, only ports.
    Any,
    /// Nobody: the rule isolates its direction and opens nothing.
    Nobody,
    /// The addresses learned for these names. Only in egress rules that allow, and not with named ports.
    Names(Vec<Pattern>),
    /// Addresses.
    Cidrs(Vec<CidrPeer>),
    /// Pods whose identity labels one of these selects.
    Pods(Vec<Selector>),
    /// Entities.
    Entities(BTreeSet<Entity>),
    /// The trusted resolvers: what a selector of DNS pods means where there are no pods.
    Resolvers,
    /// Whatever these objects stand for. The compiler takes it for nobody: [`crate::cluster`] has put it in before.
    Objects(BTreeSet<Reference>),
}

/// One rule.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Rule {
    /// The direction of the flow, seen from the workload.
    pub direction: Direction,
    /// What becomes of the traffic.
    pub effect: Effect,
    /// The other side.
    pub peers: Peers,
    /// Ports at the destination.
    pub ports: Ports,
    /// `rules.dns`: names that may be asked for through this rule. Only in egress rules that allow.
    pub dns: Option<Vec<Pattern>>,
    /// Where the rule stands in its object, such as `spec.egress[0].toPorts[1]`.
    pub path: String,
}

impl Rule {
    /// An allow rule that opens UDP port 53 to everybody (or to the whole world) and has no `rules.dns` that would
    /// narrow it: then every name may be asked for.
    #[must_use]
    pub fn opens_dns_to_everybody(&self) -> bool {
        let everybody = match &self.peers {
            Peers::Any => true,
            Peers::Entities(e) => e.contains(&Entity::All) || e.contains(&Entity::World),
            _ => false,
        };
        everybody && self.dns.is_none() && self.opens_dns_to_somebody()
    }

    /// An allow rule that opens UDP port 53 to a peer that needs no name.
    #[must_use]
    pub fn opens_dns_to_somebody(&self) -> bool {
        let allows = self.direction == Direction::Egress && self.effect == Effect::Allow;
        let reached = !matches!(self.peers, Peers::Names(_) | Peers::Nobody);
        allows && reached && self.ports.covers(Proto::Udp.number(), DNS_PORT)
    }
}

/// The directions in which a policy denies what nothing allows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct Isolation {
    /// For flows that the workload begins.
    pub egress: bool,
    /// For flows that others begin.
    pub ingress: bool,
}

impl Isolation {
    /// The direction's switch.
    #[must_use]
    pub fn of(self, direction: Direction) -> bool {
        match direction {
            Direction::Egress => self.egress,
            Direction::Ingress => self.ingress,
        }
    }
}

/// One policy object, or one of the `specs` of an object.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Policy {
    origin: Origin,
    subject: Subject,
    standing: Standing,
    isolates: Isolation,
    rules: Vec<Rule>,
    lifetimes: Lifetimes,
}

impl Policy {
    /// Puts a policy of the Normal tier together; the rules must come from a reader of this crate or hold to [`Rule`]'s
    /// limits.
    #[must_use]
    pub fn new(origin: Origin, subject: Subject, isolates: Isolation, rules: Vec<Rule>) -> Self {
        let (standing, lifetimes) = (Standing::default(), Lifetimes::default());
        Self { origin, subject, standing, isolates, rules, lifetimes }
    }

    /// Puts a policy of another tier together, which isolates nothing. The order of its rules counts.
    #[must_use]
    pub fn tiered(origin: Origin, subject: Subject, standing: Standing, rules: Vec<Rule>) -> Self {
        Self { standing, ..Self::new(origin, subject, Isolation::default(), rules) }
    }

    /// The same policy with other rules.
    #[must_use]
    pub fn with_rules(&self, rules: Vec<Rule>) -> Self {
        Self { rules, ..self.clone() }
    }

    /// The object that the policy was read from.
    #[must_use]
    pub fn origin(&self) -> &Origin {
        &self.origin
    }

    /// Whose traffic the policy is about.
    #[must_use]
    pub fn subject(&self) -> &Subject {
        &self.subject
    }

    /// Whether the policy is about a pod with these identity labels. Never true of a policy for nodes; the policies of
    /// `egret run` are about everything that they are given to.
    #[must_use]
    pub fn selects(&self, labels: &Labels) -> bool {
        match &self.subject {
            Subject::Pods(selector) => selector.matches(labels),
            Subject::Nodes(_) => false,
            Subject::This => true,
        }
    }

    /// [`Policy::selects`] for a pod that may be on its node's network: a ClusterNetworkPolicy is never about those.
    #[must_use]
    pub fn selects_pod(&self, labels: &Labels, host_network: bool) -> bool {
        (!host_network || self.standing.tier == Tier::Normal) && self.selects(labels)
    }

    /// Whether the policy is about a node with these labels.
    #[must_use]
    pub fn selects_node(&self, labels: &Labels) -> bool {
        matches!(&self.subject, Subject::Nodes(selector) if selector.matches(labels))
    }

    /// The tier and the place in it.
    #[must_use]
    pub fn standing(&self) -> Standing {
        self.standing
    }

    /// In which directions the policy denies what nothing allows.
    #[must_use]
    pub fn isolates(&self) -> Isolation {
        self.isolates
    }

    /// The same policy with other lifetimes of what its workloads learn.
    #[must_use]
    pub fn lasting(self, lifetimes: Lifetimes) -> Self {
        Self { lifetimes, ..self }
    }

    /// Lifetimes of what its workloads learn, as far as its object says something about them.
    #[must_use]
    pub fn lifetimes(&self) -> Lifetimes {
        self.lifetimes
    }

    /// The same policy, its entities changed.
    #[must_use]
    pub fn with_entities(&self, change: impl Fn(&BTreeSet<Entity>) -> BTreeSet<Entity>) -> Self {
        let mut changed = self.clone();
        for rule in &mut changed.rules {
            if let Peers::Entities(entities) = &mut rule.peers {
                *entities = change(entities);
            }
        }
        changed
    }

    /// Whether the policy may be the reason that a flow in this direction is denied.
    #[must_use]
    pub fn may_deny(&self, direction: Direction) -> bool {
        let denies = |rule: &Rule| rule.direction == direction && rule.effect == Effect::Deny;
        self.isolates.of(direction) || self.rules.iter().any(denies)
    }

    /// The rules, in the order of the text, which counts only in the Admin and Baseline tiers.
    #[must_use]
    pub fn rules(&self) -> &[Rule] {
        &self.rules
    }
}
