//! Writes a CiliumNetworkPolicy from what a workload used, for `egret run --write-policy`.
//!
//! Owns: the text and its order, which depend on the uses alone. Must not know: how uses are observed.

mod text;

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
};

pub use text::{Draft, DraftName, DraftPeer, DraftRule, PortCounts, PortSet, sanitised};

use super::DNS_PORT;
use crate::{
    labels::{Labels, POD_NAMESPACE},
    names::{Name, Pattern},
    ports::Proto,
};

/// What a policy that was written here says about itself.
pub(crate) const DESCRIPTION: &str = "Written by egret from what was used";

/// Whom the workload talked to.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum UsedPeer {
    /// An address that was learned for this name.
    Name(Name),
    /// An address without a name.
    Address(IpAddr),
}

/// One destination of a workload.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Use {
    /// The other side.
    pub peer: UsedPeer,
    /// Protocol.
    pub proto: Proto,
    /// Destination port; ICMP: type << 8 | code.
    pub port: u16,
}

/// A policy that opens exactly `uses`, and the questions for their names and for the names in `asked`. `name` becomes
/// the object's name. What the language cannot say stands in a comment.
#[must_use]
pub fn write(name: &str, uses: &BTreeSet<Use>, asked: &BTreeSet<Name>) -> String {
    let mut by_peer: BTreeMap<DraftPeer, PortCounts> = BTreeMap::new();
    let mut names: BTreeSet<&Name> = asked.iter().collect();
    for u in uses {
        let peer = match &u.peer {
            UsedPeer::Name(name) => {
                names.insert(name);
                DraftPeer::Name(DraftName::Exact(name.clone()))
            }
            UsedPeer::Address(ip) => DraftPeer::Address(ip.to_canonical()),
        };
        by_peer.entry(peer).or_default().insert((u.proto, u.port), 0);
    }
    let (names, odd): (Vec<&Name>, Vec<&Name>) = names.into_iter().partition(|name| is_writable(name));
    by_peer.retain(|peer, _| match peer {
        DraftPeer::Name(DraftName::Exact(name)) => is_writable(name),
        _ => true,
    });
    let dns = (!names.is_empty()).then(|| {
        let names = names.into_iter().map(|name| (DraftName::Exact(name.clone()), String::new()));
        dns_rule(vec![(DraftPeer::Pods(cluster_dns()), String::new())], DNS_PORT, names.collect())
    });
    let rules = DraftRule::grouped(by_peer, |_, _| String::new());
    let draft = Draft {
        head: Vec::new(),
        name: name.to_owned(),
        namespace: None,
        description: DESCRIPTION,
        subject: Labels::new(),
        remarks: odd.into_iter().map(unwritable).collect(),
        egress: Some(dns.into_iter().chain(rules).collect()),
        ingress: None,
    };
    draft.text()
}

/// Whether a policy can name it: a name as DNS has it may be none that the language takes.
pub(crate) fn is_writable(name: &Name) -> bool {
    Pattern::match_name(name.as_str()).is_ok()
}

/// The comment about a name that is not [`is_writable`].
pub(crate) fn unwritable(name: &Name) -> String {
    format!("not written, since no policy can name it: {name}")
}

/// Labels of the pods of the cluster's DNS, as everybody calls them.
pub(crate) fn cluster_dns() -> Labels {
    let labels = [(POD_NAMESPACE, "kube-system"), ("k8s-app", "kube-dns")];
    labels.map(|(key, value)| (key.to_owned(), value.to_owned())).into()
}

/// The rule by which resolvers may be asked for names: by UDP, and by TCP for answers that do not fit.
pub(crate) fn dns_rule(
    peers: Vec<(DraftPeer, String)>,
    port: u16,
    names: Vec<(DraftName, String)>,
) -> DraftRule {
    let ports = [Proto::Udp, Proto::Tcp].map(|proto| (proto, port)).into();
    DraftRule { peers, ports, names, remarks: Vec::new() }
}

#[cfg(test)]
mod tests;
