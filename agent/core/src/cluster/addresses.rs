//! Which pods claim which address, kept as pods come and go.
//!
//! Owns: who has an address that several pods claim. Must not know: nodes, whose addresses no pod can have, but for
//! [`Owners`], which leaves them out.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
};

use super::{Key, Stored, profiles::place};

/// A pod that has the address, or would have it if no newer one did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Claim {
    pub(super) pod: Key,
    /// Where the pod's profile is.
    pub(super) profile: usize,
    /// The later one has it.
    age: (String, u64),
}

impl Claim {
    /// The claim of a pod to each of its addresses.
    pub(super) fn of(pod: &Key, stored: &Stored) -> Self {
        let age = (stored.pod.created.clone(), stored.arrival);
        Self { pod: pod.clone(), profile: place(&stored.profile), age }
    }
}

/// The claims to one address.
#[derive(Debug, Clone)]
struct Contest {
    owner: Claim,
    others: Vec<Claim>,
}

/// All claims.
#[derive(Debug, Clone, Default)]
pub(super) struct Addresses {
    claims: BTreeMap<IpAddr, Contest>,
    /// Those that several pods claim.
    contested: BTreeSet<IpAddr>,
    /// Namespaces with a pod that got or lost an address since somebody asked.
    touched: BTreeSet<String>,
}

impl Addresses {
    /// The pod claims the address; again, if its age or profile is another one now.
    pub(super) fn claim(&mut self, ip: IpAddr, claim: Claim) {
        self.release(ip, &claim.pod);
        self.touched.insert(claim.pod.namespace.clone());
        let Some(contest) = self.claims.get_mut(&ip) else {
            self.claims.insert(ip, Contest { owner: claim, others: Vec::new() });
            return;
        };
        self.contested.insert(ip);
        self.touched.insert(contest.owner.pod.namespace.clone());
        match claim.age < contest.owner.age {
            true => contest.others.push(claim),
            false => contest.others.push(std::mem::replace(&mut contest.owner, claim)),
        }
    }

    /// The pod claims it no more.
    pub(super) fn release(&mut self, ip: IpAddr, pod: &Key) {
        let Some(contest) = self.claims.get_mut(&ip) else { return };
        if contest.owner.pod != *pod {
            contest.others.retain(|other| other.pod != *pod);
        } else {
            self.touched.insert(pod.namespace.clone());
            let newest =
                (0..contest.others.len()).max_by(|a, b| contest.others[*a].age.cmp(&contest.others[*b].age));
            let Some(newest) = newest else {
                self.claims.remove(&ip);
                return;
            };
            contest.owner = contest.others.swap_remove(newest);
            self.touched.insert(contest.owner.pod.namespace.clone());
        }
        if contest.others.is_empty() {
            self.contested.remove(&ip);
        }
    }

    /// The pod that has the address, nodes not counted.
    pub(super) fn owner(&self, ip: IpAddr) -> Option<&Key> {
        self.claims.get(&ip).map(|contest| &contest.owner.pod)
    }

    /// Namespaces with a pod that got or lost an address since the last call.
    pub(super) fn take_touched(&mut self) -> BTreeSet<String> {
        std::mem::take(&mut self.touched)
    }
}

/// Owners of addresses, those of nodes left out.
#[derive(Debug, Clone, Copy)]
pub(super) struct Owners<'a> {
    addresses: &'a Addresses,
    of_nodes: &'a BTreeMap<IpAddr, u32>,
}

impl<'a> Owners<'a> {
    pub(super) fn new(addresses: &'a Addresses, of_nodes: &'a BTreeMap<IpAddr, u32>) -> Self {
        Self { addresses, of_nodes }
    }

    /// All of them, by address.
    pub(super) fn iter(&self) -> impl Iterator<Item = (IpAddr, &'a Claim)> {
        let of_nodes = self.of_nodes;
        let claims = self.addresses.claims.iter().filter(|(ip, _)| !of_nodes.contains_key(ip));
        claims.map(|(ip, contest)| (*ip, &contest.owner))
    }

    /// Whether the pod has the address.
    pub(super) fn has(&self, pod: &Key, ip: IpAddr) -> bool {
        let owner = self.addresses.claims.get(&ip).filter(|contest| contest.owner.pod == *pod);
        owner.is_some() && !self.of_nodes.contains_key(&ip)
    }

    /// Claims in vain, each with what is to be said about it, in the order of pods.
    pub(super) fn losses(&self) -> Vec<(Key, String)> {
        let mut losses = Vec::new();
        let claims = &self.addresses.claims;
        for ip in self.of_nodes.keys() {
            for claim in claims.get(ip).into_iter().flat_map(Contest::by_pod) {
                let message = format!("{ip} is a node's address and stays the node's");
                losses.push(((claim.pod.clone(), *ip), claim.pod.clone(), message));
            }
        }
        for ip in self.addresses.contested.iter().filter(|ip| !self.of_nodes.contains_key(ip)) {
            let mut pods = claims.get(ip).into_iter().flat_map(Contest::by_pod);
            let Some(mut winner) = pods.next() else { continue };
            for claim in pods {
                let (new, loser) = if winner.age > claim.age { (winner, claim) } else { (claim, winner) };
                let message = format!("{ip} is the address of {} now, which is newer", new.pod);
                losses.push(((claim.pod.clone(), *ip), loser.pod.clone(), message));
                winner = new;
            }
        }
        losses.sort();
        losses.into_iter().map(|(_, pod, message)| (pod, message)).collect()
    }
}

impl Contest {
    fn by_pod(&self) -> Vec<&Claim> {
        let mut all: Vec<&Claim> = self.others.iter().chain([&self.owner]).collect();
        all.sort_by_key(|claim| &claim.pod);
        all
    }
}
