//! The policies that `egret run` makes itself: from `--allow` arguments, and the way to the resolvers.
//!
//! Owns: what an argument means as a policy. Must not know: how arguments are read.

use std::{collections::BTreeSet, net::SocketAddr};

use egret_common::net::Direction;

use super::{CidrPeer, Effect, Isolation, Origin, Peers, Policy, Rule, Subject};
use crate::{
    allow::{AllowRule, Target},
    net::host_net,
    ports::{PortRange, Ports, Proto},
};

impl Policy {
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
                Target::Net(net) => Peers::Cidrs(vec![CidrPeer::whole(*net)]),
            },
            ports: a.ports().clone(),
            dns: None,
            path: a.to_string(),
        });
        Self::new(origin, Subject::This, Isolation { egress: true, ingress: false }, rules.collect())
    }

    /// What `egret run` adds by itself: the way to the trusted resolvers. It isolates nothing.
    #[must_use]
    pub fn to_resolvers(resolvers: &BTreeSet<SocketAddr>) -> Self {
        let origin = Origin { kind: "egret run".into(), namespace: None, name: "resolvers".into() };
        let rules = resolvers.iter().map(|r| Rule {
            direction: Direction::Egress,
            effect: Effect::Allow,
            peers: Peers::Cidrs(vec![CidrPeer::whole(host_net(r.ip()))]),
            ports: Ports::ranges([Proto::Udp, Proto::Tcp].map(|p| PortRange::one(p, r.port()))),
            dns: None,
            path: r.to_string(),
        });
        Self::new(origin, Subject::This, Isolation::default(), rules.collect())
    }
}
