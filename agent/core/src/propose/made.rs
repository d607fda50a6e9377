//! The rules of one object, from the needs of its workloads.
//!
//! Owns: which need becomes which rule, what is said beside it, and the limits. Must not know: other objects.

use std::collections::{BTreeMap, BTreeSet};

use egret_common::net::Direction;

use super::{
    Act, Need, Options, Peer, ProposeError, Services, Tally,
    dns::{Lookups, times},
    peers::{Meant, assumed_resolver, carries_dns, listed, meant},
    search,
    who::Node,
    wild,
};
use crate::{
    labels::Labels,
    names::Name,
    policy::{
        DNS_PORT,
        write::{DESCRIPTION, Draft, DraftName, DraftPeer, DraftRule, PortCounts, sanitised},
    },
    ports::Proto,
};

/// Names that one policy may ask for at most.
const MAX_NAMES: usize = 1_000;
/// Peers of one policy at most.
const MAX_PEERS: usize = 1_000;
/// Ports of one peer at most: what a map holds.
const MAX_PORTS: usize = 120;
/// Lines about what could not be written, per policy.
const MAX_REMARKS: usize = 50;

/// Rules in the making.
#[derive(Debug, Default)]
pub(super) struct Made {
    lookups: Lookups,
    search: Vec<Name>,
    egress: BTreeMap<DraftPeer, PortCounts>,
    ingress: BTreeMap<DraftPeer, PortCounts>,
    /// What a reader may want to know about a peer.
    remarks: BTreeMap<DraftPeer, BTreeSet<String>>,
    /// What no rule was made for.
    lacks: BTreeSet<String>,
    /// Other names of an address that one of these names was used for.
    shares: BTreeMap<Name, BTreeSet<Name>>,
    flows: Tally,
}

impl Made {
    pub(super) fn new(
        needs: &[(&Need, Tally)],
        services: &Services,
        options: &Options,
    ) -> Result<Self, ProposeError> {
        let mut made = Self::default();
        let namespaces = needs.iter().map(|(need, _)| need.seen.subject.namespace.as_str());
        made.search = search(namespaces, &options.cluster_domain);
        // Look-ups first: they say who is a resolver.
        let asks = |need: &Need| matches!(need.seen.act, Act::Ask(..));
        let (asking, others): (Vec<_>, Vec<_>) = needs.iter().partition(|(need, _)| asks(need));
        for (need, tally) in asking.into_iter().chain(others) {
            made.flows.count = made.flows.count.saturating_add(tally.count);
            made.flows.audited = made.flows.audited.saturating_add(tally.audited);
            match meant(need, services) {
                Ok(list) => made.add(need, &list, tally.count, options),
                Err(why) => drop(made.lacks.insert(why)),
            }
        }
        if let Some((need, _)) = needs.first().filter(|_| made.lookups.resolvers.is_empty()) {
            made.lookups.reach(&assumed_resolver(&need.seen.subject, services));
        }
        made.open_resolvers();
        made.check()?;
        Ok(made)
    }

    fn add(&mut self, need: &Need, list: &[Meant], count: u64, options: &Options) {
        let (proto, dns) = match &need.seen.act {
            Act::Ask(_, _, name) => return self.lookups.ask(list, name, count),
            Act::Connect(proto, port) => (*proto, carries_dns(*proto) && *port == DNS_PORT),
            Act::Odd(_) => return,
        };
        let egress = need.seen.direction == Direction::Egress;
        let own_node = matches!(need.seen.peer, Peer::Entity(Node::Host, _));
        if !egress && own_node {
            // A node may always begin with its own pods.
            return;
        }
        if let Some(name) = need.name.as_ref().filter(|_| egress) {
            self.lookups.names.entry(name.clone()).or_default();
            self.share(name, &need.seen.peer);
        }
        if egress && dns {
            self.lookups.reach(list);
        }
        for one in list {
            if !options.addresses && matches!(one.peer, DraftPeer::Address(_)) {
                self.lacks.insert(format!("left out, an address without a name: {}", place(one, proto)));
                continue;
            }
            let side = if egress { &mut self.egress } else { &mut self.ingress };
            let seen = side.entry(one.peer.clone()).or_default().entry((proto, one.port)).or_default();
            *seen = seen.saturating_add(count);
            if !one.remark.is_empty() && egress {
                self.remarks.entry(one.peer.clone()).or_default().insert(one.remark.clone());
            }
        }
    }

    /// Any zone may give a name to anybody's address: of several the one that was asked for counts.
    fn share(&mut self, name: &Name, peer: &Peer) {
        let Peer::World { names, .. } = peer else { return };
        let others: Vec<Name> = names.iter().filter(|other| *other != name).cloned().collect();
        if !others.is_empty() {
            self.shares.entry(name.clone()).or_default().extend(others);
        }
    }

    /// Names that are left out since another one was meant.
    fn shared(&self) -> impl Iterator<Item = String> {
        let written =
            |name: &&Name| self.egress.contains_key(&DraftPeer::Name(DraftName::Exact((*name).clone())));
        self.shares.iter().filter_map(move |(name, others)| {
            let others = listed(others.iter().filter(|other| !written(other)));
            (!others.is_empty())
                .then(|| format!("{name} shares its address with {others}, which is not written"))
        })
    }

    /// What goes to a resolver is opened with the names that it may be asked for.
    fn open_resolvers(&mut self) {
        let lookups = &self.lookups;
        self.egress.retain(|peer, ports| {
            ports.retain(|(proto, port), _| {
                let one = Meant { peer: peer.clone(), port: *port, remark: String::new() };
                !carries_dns(*proto) || !lookups.opens(&one)
            });
            !ports.is_empty()
        });
    }

    fn check(&self) -> Result<(), ProposeError> {
        let ports = self.egress.values().chain(self.ingress.values()).map(BTreeMap::len).max();
        for (what, count, limit) in [
            ("names of one policy", self.lookups.names.len(), MAX_NAMES),
            ("peers of one policy", self.egress.len() + self.ingress.len(), MAX_PEERS),
            ("ports of one peer", ports.unwrap_or_default(), MAX_PORTS),
        ] {
            if count > limit {
                return Err(ProposeError::TooMany { what, limit });
            }
        }
        Ok(())
    }

    /// What no rule was made for, and what else somebody should know.
    pub(super) fn notes(&self) -> impl Iterator<Item = String> {
        self.lacks.iter().cloned().chain(self.shared())
    }

    pub(super) fn draft(
        &self,
        (namespace, labels): &(String, Labels),
        name: String,
        lost: u64,
        options: &Options,
    ) -> Draft {
        let mut remarks: Vec<String> = self.lacks.iter().map(|lack| format!("Not written: {lack}")).collect();
        remarks.extend(self.shared());
        remarks.truncate(MAX_REMARKS);
        let mut egress = self.lookups.rules(&self.search, options.wildcard, &mut remarks);
        let comment = |peer: &DraftPeer, count| {
            let seen = format!("seen {}", times(count));
            let more = self.remarks.get(peer).into_iter().flatten().cloned();
            std::iter::once(seen).chain(more).collect::<Vec<_>>().join("; ")
        };
        egress.extend(DraftRule::grouped(collapsed(&self.egress, options.wildcard), comment));
        let ingress = options
            .ingress
            .then(|| DraftRule::grouped(self.ingress.clone(), |_, count| format!("seen {}", times(count))));
        let mut head = vec![format!(
            "Learned from flows: {}, of them by audit only: {}",
            self.flows.count, self.flows.audited
        )];
        if lost > 0 {
            head.push(format!("{lost} flows were lost: the policy may lack rules"));
        }
        Draft {
            head,
            name,
            namespace: Some(namespace.clone()),
            description: DESCRIPTION,
            subject: labels.clone(),
            remarks,
            egress: Some(egress),
            ingress,
        }
    }
}

fn place(meant: &Meant, proto: Proto) -> String {
    let DraftPeer::Address(ip) = &meant.peer else { return String::new() };
    sanitised(&format!("{ip} port {}/{proto}", meant.port))
}

/// Names that share their ports become patterns.
fn collapsed(
    peers: &BTreeMap<DraftPeer, PortCounts>,
    least: Option<usize>,
) -> BTreeMap<DraftPeer, PortCounts> {
    let mut out = BTreeMap::new();
    let mut by_ports: BTreeMap<BTreeSet<&(Proto, u16)>, BTreeSet<Name>> = BTreeMap::new();
    for (peer, ports) in peers {
        match peer {
            DraftPeer::Name(DraftName::Exact(name)) => {
                by_ports.entry(ports.keys().collect()).or_default().insert(name.clone());
            }
            _ => {
                out.insert(peer.clone(), ports.clone());
            }
        }
    }
    for names in by_ports.values() {
        for (name, members) in wild::collapsed(names, least) {
            let sum = out.entry(DraftPeer::Name(name)).or_default();
            for member in members {
                let counts = peers.get(&DraftPeer::Name(DraftName::Exact(member)));
                for (port, count) in counts.into_iter().flatten() {
                    let seen: &mut u64 = PortCounts::entry(sum, *port).or_default();
                    *seen = seen.saturating_add(*count);
                }
            }
        }
    }
    out
}
