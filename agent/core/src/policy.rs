//! The policy model that every policy language is read into.
//!
//! Owns: what a rule can say, independent of the language it was written in. Must not know: YAML, maps, endpoints'
//! ids. A value of these types is valid: the readers refuse what cannot be enforced.

pub mod cilium;
pub mod write;

mod diagnostic;
mod reader;

use std::{collections::BTreeSet, fmt, net::SocketAddr};

use egret_common::net::Direction;
use ipnet::IpNet;

use crate::{
    allow::{AllowRule, Target},
    names::Pattern,
    net::host_net,
    ports::{PortRange, Ports, Proto},
};

/// The port of DNS over UDP and TCP (RFC 1035 4.2).
pub const DNS_PORT: u16 = 53;

pub use diagnostic::{Diagnostic, Severity};

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
    /// Lets it pass, unless some rule denies it.
    Allow,
    /// Denies it, whatever allows it.
    Deny,
}

/// A CIDR without the parts that its own rule excepts. Another rule may still open those.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct CidrPeer {
    /// The network, canonical.
    pub net: IpNet,
    /// Networks inside `net` that this peer does not mean.
    pub except: Vec<IpNet>,
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

/// Whom a rule means. The kinds exclude one another inside a rule, as in the API.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Peers {
    /// Anybody: the rule has no peers, only ports.
    Any,
    /// Nobody: the rule isolates its direction and opens nothing.
    Nobody,
    /// The addresses learned for these names. Only in egress rules that allow.
    Names(Vec<Pattern>),
    /// Addresses.
    Cidrs(Vec<CidrPeer>),
    /// Entities.
    Entities(BTreeSet<Entity>),
    /// The trusted resolvers: what a selector of DNS pods means where there are no pods.
    Resolvers,
}

/// One rule.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Rule {
    /// The direction of the flow, seen from the workload.
    pub direction: Direction,
    /// Allow or deny.
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
        let allows = self.direction == Direction::Egress && self.effect == Effect::Allow;
        allows && everybody && self.dns.is_none() && self.ports.covers(Proto::Udp.number(), DNS_PORT)
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

/// One policy object.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Policy {
    origin: Origin,
    isolates: Isolation,
    rules: Vec<Rule>,
}

impl Policy {
    /// Puts a policy together; the rules must come from a reader of this crate or hold to [`Rule`]'s limits.
    #[must_use]
    pub fn new(origin: Origin, isolates: Isolation, rules: Vec<Rule>) -> Self {
        Self { origin, isolates, rules }
    }

    /// The policy that a list of `--allow` arguments means: egress is isolated, also when the list is empty
    /// (CASES S-A02).
    #[must_use]
    pub fn from_allow(allow: &[AllowRule]) -> Self {
        let origin = Origin { kind: "egret run".into(), namespace: None, name: "--allow".into() };
        let rules = allow.iter().map(|a| Rule {
            direction: Direction::Egress,
            effect: Effect::Allow,
            peers: match a.target() {
                Target::Name(pattern) => Peers::Names(vec![pattern.clone()]),
                Target::Net(net) => Peers::Cidrs(vec![CidrPeer { net: *net, except: Vec::new() }]),
            },
            ports: a.ports().clone(),
            dns: None,
            path: a.to_string(),
        });
        Self::new(origin, Isolation { egress: true, ingress: false }, rules.collect())
    }

    /// What `egret run` adds by itself: the way to the trusted resolvers. It isolates nothing.
    #[must_use]
    pub fn to_resolvers(resolvers: &BTreeSet<SocketAddr>) -> Self {
        let origin = Origin { kind: "egret run".into(), namespace: None, name: "resolvers".into() };
        let rules = resolvers.iter().map(|r| Rule {
            direction: Direction::Egress,
            effect: Effect::Allow,
            peers: Peers::Cidrs(vec![CidrPeer { net: host_net(r.ip()), except: Vec::new() }]),
            ports: Ports::Only([Proto::Udp, Proto::Tcp].map(|p| PortRange::one(p, r.port())).to_vec()),
            dns: None,
            path: r.to_string(),
        });
        Self::new(origin, Isolation::default(), rules.collect())
    }

    /// The object that the policy was read from.
    #[must_use]
    pub fn origin(&self) -> &Origin {
        &self.origin
    }

    /// In which directions the policy denies what nothing allows.
    #[must_use]
    pub fn isolates(&self) -> Isolation {
        self.isolates
    }

    /// The rules, in the order of the text; the order means nothing.
    #[must_use]
    pub fn rules(&self) -> &[Rule] {
        &self.rules
    }
}
