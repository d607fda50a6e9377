//! Policies in words, for the start lines and the report.

use egret_common::net::Direction;
use egret_core::policy::{CidrPeer, Effect, Entity, Peers, Policy, Rule};
use egret_core::ports::{PortRange, PortSpec, Ports, Proto};

/// One line per rule.
#[must_use]
pub(super) fn policies(policies: &[Policy]) -> Vec<String> {
    policies.iter().flat_map(Policy::rules).filter(|r| r.peers != Peers::Nobody).map(rule).collect()
}

/// `api.vendor.example: tcp/443, tcp/80`.
#[must_use]
pub(super) fn rule(rule: &Rule) -> String {
    let verb = match (rule.effect, rule.direction) {
        (Effect::Allow, Direction::Egress) => "",
        (Effect::Deny, Direction::Egress) => "never ",
        (Effect::Allow, Direction::Ingress) => "from ",
        (Effect::Deny, Direction::Ingress) => "never from ",
        (Effect::Pass, _) => "left to the next tier: ",
    };
    let mut line = format!("{verb}{}: {}", peers(&rule.peers), ports(&rule.ports));
    if let Some(patterns) = &rule.dns {
        line.push_str(&format!(", to look up {}", list(patterns)));
    }
    line
}

fn peers(peers: &Peers) -> String {
    match peers {
        Peers::Any => "every address".into(),
        Peers::Nobody => "nobody".into(),
        Peers::Names(patterns) => list(patterns),
        Peers::Cidrs(cidrs) => cidrs.iter().map(cidr).collect::<Vec<_>>().join(", "),
        Peers::Pods(_) => "pods, which are none here".into(),
        Peers::Entities(entities) => entities.iter().map(|e| entity(*e)).collect::<Vec<_>>().join(", "),
        Peers::Resolvers => "the trusted resolvers".into(),
        Peers::Objects(references) => {
            references.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
        }
    }
}

fn cidr(peer: &CidrPeer) -> String {
    if peer.except.is_empty() {
        peer.net.to_string()
    } else {
        format!("{} except {}", peer.net, list(&peer.except))
    }
}

fn entity(entity: Entity) -> &'static str {
    match entity {
        Entity::All => "everybody",
        Entity::World => "the world outside this host",
        Entity::Cluster => "the cluster",
        Entity::Host => "this host",
        Entity::RemoteNode => "other nodes",
        Entity::KubeApiserver => "the API server",
        Entity::None => "nobody",
    }
}

fn ports(ports: &Ports) -> String {
    match ports {
        Ports::All => "every port and protocol".into(),
        Ports::Only(specs) => specs.iter().map(spec).collect::<Vec<_>>().join(", "),
    }
}

fn spec(spec: &PortSpec) -> String {
    match spec {
        PortSpec::Range(ports) => range(*ports),
        PortSpec::Named(..) => format!("the port named {spec}"),
    }
}

fn range(range: PortRange) -> String {
    let proto = range.proto();
    match (proto, range.lo(), range.hi()) {
        (Proto::Icmp | Proto::Icmpv6, lo, _) => format!("{proto} type {}", lo >> 8),
        (_, 0, u16::MAX) => format!("{proto}/*"),
        (_, lo, hi) if lo == hi => format!("{proto}/{lo}"),
        (_, lo, hi) => format!("{proto}/{lo}-{hi}"),
    }
}

fn list<T: ToString>(items: &[T]) -> String {
    items.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use egret_core::allow::AllowRule;

    fn check(allow: &str, want: &str) {
        let policy = Policy::from_allow(&[AllowRule::parse(allow).expect(allow)]);
        assert_eq!(policies(&[policy]), [want]);
    }

    #[test]
    fn s_a06_what_an_argument_opens_is_said() {
        check("api.vendor.example", "api.vendor.example: tcp/443, tcp/80");
        check("*.x.example:53/udp", "*.x.example: udp/53");
        check("x.example:8000-8100", "x.example: tcp/8000-8100");
        check("x.example:*", "x.example: every port and protocol");
        check("10.0.0.0/8:*/udp", "10.0.0.0/8: udp/*");
    }
}
