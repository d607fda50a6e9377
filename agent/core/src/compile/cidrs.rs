//! From the CIDR peers of one set to the classes of the longest-prefix table.
//!
//! The table returns one entry per address, so the class of a prefix is everything that holds on it: the peers
//! whose network encloses it, minus those that except it.
//!
//! The identity of a pod does not keep its address out of the table: the table is asked for it as for any other
//! address. So the `ipBlock` of a NetworkPolicy, which means pods as well, needs nothing more. Where a rule does not mean
//! pods (`toCIDR`), or names a port, which each pod resolves for itself, the pod's address gets an entry of its own, with
//! a class of just the rules that mean it. Such entries exist only for pods inside such CIDRs, and only where they say
//! something else than the prefix around them.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
};

use egret_common::{
    ids::{CLASS_CIDR_BASE, ClassId, SetId},
    maps::CidrKey,
    net::Addr,
};
use ipnet::{IpNet, Ipv4Net, Ipv6Net};

use crate::{
    net::{host_net, nat64},
    policy::{CidrPeer, Effect},
};

/// A peer of the rule with this index.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Peer {
    rule: usize,
    net: IpNet,
    except: Vec<IpNet>,
    /// Addresses of pods are meant as well.
    pods: bool,
}

impl Peer {
    /// The peer as written, and for a denied IPv4 network also behind NAT64 (CASES W-A11).
    pub(super) fn of_rule(rule: usize, effect: Effect, peer: &CidrPeer) -> Vec<Self> {
        let pods = peer.pods;
        let mut peers = vec![Self { rule, net: peer.net, except: peer.except.clone(), pods }];
        if let (Effect::Deny, IpNet::V4(net)) = (effect, peer.net) {
            let except = peer.except.iter().filter_map(|e| match e {
                IpNet::V4(e) => Some(IpNet::V6(nat64(*e))),
                IpNet::V6(_) => None,
            });
            peers.push(Self { rule, net: IpNet::V6(nat64(net)), except: except.collect(), pods });
        }
        peers
    }

    pub(super) fn rule(&self) -> usize {
        self.rule
    }

    pub(super) fn net(&self) -> IpNet {
        self.net
    }

    pub(super) fn means_pods(&self) -> bool {
        self.pods
    }

    fn holds_on(&self, prefix: &IpNet) -> bool {
        self.net.contains(prefix) && !self.except.iter().any(|e| e.contains(prefix))
    }
}

/// The prefixes of a set with their classes, and which rules each class stands for.
#[derive(Debug, Clone, Default)]
pub(super) struct CidrClasses {
    pub(super) prefixes: BTreeMap<IpNet, ClassId>,
    pub(super) classes: BTreeMap<ClassId, BTreeSet<usize>>,
}

impl CidrClasses {
    pub(super) fn new(peers: &[Peer]) -> Self {
        let mut nets: BTreeSet<IpNet> =
            peers.iter().flat_map(|p| p.except.iter().copied().chain([p.net])).collect();
        if nets.iter().any(covers_mapped) {
            // An IPv6 network that encloses ::ffff:0:0/96 must not reach the IPv4 addresses kept there.
            nets.insert(IpNet::V4(Ipv4Net::default()));
        }
        let mut out = Self::default();
        let mut numbers: BTreeMap<BTreeSet<usize>, ClassId> = BTreeMap::new();
        for net in nets {
            let rules: BTreeSet<usize> = peers.iter().filter(|p| p.holds_on(&net)).map(|p| p.rule).collect();
            let next = CLASS_CIDR_BASE + numbers.len() as ClassId + 1;
            let class = *numbers.entry(rules.clone()).or_insert(next);
            out.prefixes.insert(net, class);
            out.classes.insert(class, rules);
        }
        out
    }
}

/// What the peers say about an address of a pod.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct OnPod {
    /// The rules that mean it.
    pub(super) rules: BTreeSet<usize>,
    /// Whether they are fewer than those that mean another address at its place.
    pub(super) fewer: bool,
}

/// [`OnPod`] of one address.
pub(super) fn on_pod(peers: &[Peer], address: IpAddr) -> OnPod {
    let host = host_net(address);
    let holding = || peers.iter().filter(|p| p.holds_on(&host));
    let rules: BTreeSet<usize> = holding().filter(|p| p.pods).map(|p| p.rule).collect();
    let fewer = holding().any(|p| !rules.contains(&p.rule));
    OnPod { rules, fewer }
}

fn covers_mapped(net: &IpNet) -> bool {
    let mapped = Ipv6Net::new_assert(std::net::Ipv4Addr::UNSPECIFIED.to_ipv6_mapped(), 96);
    matches!(net, IpNet::V6(v6) if v6.contains(&mapped))
}

/// Prefix length in bits (the set included) and key of a network in `CIDR_CLASSES`.
pub(super) fn key(set: SetId, net: IpNet) -> (u32, CidrKey) {
    let (bits, addr) = match net {
        IpNet::V4(v4) => (96 + v4.prefix_len(), Addr::from_v4(v4.network().octets())),
        IpNet::V6(v6) => (v6.prefix_len(), Addr::from_octets(v6.network().octets())),
    };
    (32 + u32::from(bits), CidrKey { set, addr: addr.words() })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn peer(rule: usize, net: &str, except: &[&str]) -> Peer {
        let except = except.iter().map(|e| e.parse().unwrap()).collect();
        Peer { rule, net: net.parse().unwrap(), except, pods: false }
    }

    /// Which rules hold on each address, by the longest prefix alone.
    fn check(peers: &[Peer], table: &[(&str, &[usize])]) {
        let classes = CidrClasses::new(peers);
        for (addr, want) in table {
            let ip: IpAddr = addr.parse().unwrap();
            let hit =
                classes.prefixes.iter().filter(|(n, _)| n.contains(&ip)).max_by_key(|(n, _)| n.prefix_len());
            let got: Vec<usize> =
                hit.map(|(_, c)| classes.classes[c].iter().copied().collect()).unwrap_or_default();
            assert_eq!(&got, want, "{addr}");
        }
    }

    #[test]
    fn k_a01_except_and_its_edges() {
        check(
            &[peer(0, "0.0.0.0/0", &["169.254.169.254/32", "10.0.0.0/8"])],
            &[
                ("169.254.169.254", &[]),
                ("169.254.169.253", &[0]),
                ("169.254.169.255", &[0]),
                ("10.0.0.0", &[]),
                ("10.1.1.1", &[]),
                ("10.255.255.255", &[]),
                ("11.0.0.0", &[0]),
                ("9.255.255.255", &[0]),
                ("2001:db8::1", &[]),
            ],
        );
        check(
            &[peer(0, "2001:db8::/32", &["2001:db8:1::/48", "2001:db8:1:2::/64"])],
            &[
                ("2001:db8::", &[0]),
                ("2001:db8:1::", &[]),
                ("2001:db8:1:2::5", &[]),
                ("2001:db8:2::", &[0]),
                ("2001:db9::", &[]),
            ],
        );
        check(&[peer(0, "10.0.0.0/8", &["10.0.0.0/8"])], &[("10.1.1.1", &[])]);
    }

    #[test]
    fn k_a02_rules_do_not_cut_one_another() {
        check(
            &[
                peer(0, "0.0.0.0/0", &[]),
                peer(1, "0.0.0.0/0", &["10.0.0.0/8", "172.16.0.0/12"]),
                peer(2, "172.16.0.0/12", &[]),
            ],
            &[("10.0.0.53", &[0]), ("172.16.9.9", &[0, 2]), ("203.0.113.9", &[0, 1])],
        );
    }

    #[test]
    fn p_a07_ipv6_default_does_not_reach_ipv4() {
        check_keys(&[peer(0, "::/0", &[])], 0);
        check_keys(&[peer(0, "::/0", &[]), peer(1, "0.0.0.0/0", &[])], 1);
    }

    fn check_keys(peers: &[Peer], want: usize) {
        let classes = CidrClasses::new(peers);
        let v4 = IpNet::V4(Ipv4Net::default());
        assert_eq!(classes.classes[&classes.prefixes[&v4]].len(), want);
        assert_eq!(key(7, v4).0, 128);
        assert_eq!(key(7, "::/0".parse().unwrap()).0, 32);
    }
}
