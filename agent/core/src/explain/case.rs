//! What is known when somebody asks.

use std::{collections::BTreeSet, net::IpAddr, sync::Arc};

use egret_common::{decide::Tables, ids::EndpointId, maps::Endpoint, net::Direction, verdict::DropReason};

use crate::{dns::journal::Journal, flow::Flow, names::Name, policy::Policies, state::State};

/// The connection, and all that is known around it.
#[derive(Debug, Clone, Copy)]
pub struct Case<'a, T: Tables, K: Known> {
    /// Where the verdict comes from.
    pub tables: &'a T,
    /// Policies as they were compiled, and what workloads were told.
    pub state: &'a State,
    /// Look-ups that were seen; `None`: nobody was looking.
    pub journal: Option<&'a Journal>,
    /// Flows of the two ends, the newest first; `None`: nobody was looking.
    pub flows: Option<&'a [Arc<Flow>]>,
    /// Whose addresses are whose.
    pub known: &'a K,
    /// IP protocol.
    pub proto: u8,
    /// Destination port; ICMP: type << 8 | code.
    pub port: u16,
    /// The moment.
    pub now: Now,
}

/// One moment on two clocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Now {
    /// Boot time in nanoseconds.
    pub boot: u64,
    /// Nanoseconds since 1970.
    pub wall: u64,
}

/// Answers about addresses.
pub trait Known {
    /// Who has this address.
    fn owner(&self, address: IpAddr) -> Owner;
    /// Where the kernel's maps, as far as they were read, are not as they shall be.
    fn differences(&self) -> Vec<String>;
}

/// Who has an address.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Owner {
    /// In words: `pod shop/api`, `world`, `this node`.
    pub name: String,
    /// Number of the identity; 0: a Service, which is nobody itself.
    pub identity: u32,
    /// A pod's or a Service's.
    pub is_of_cluster: bool,
    /// Identity labels with their source.
    pub labels: Vec<String>,
    /// Pods that are on the network of the node that has the address.
    pub host_pods: Vec<String>,
}

/// One end as it was written.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Target {
    /// For display.
    pub text: String,
    /// A name, to be resolved by the workload.
    pub name: Option<Name>,
    /// Addresses that are meant, beside those that the workload was told for the name.
    pub addresses: BTreeSet<IpAddr>,
}

/// A workload of this node that the connection may come to.
#[derive(Debug, Clone)]
pub struct Receiver<'a> {
    /// The workload.
    pub local: Local<'a>,
    /// The port there: a Service may have another.
    pub port: u16,
}

impl Target {
    /// Whether it has an address of this family, or none that is known.
    pub(super) fn sends_to(&self, ip: IpAddr) -> bool {
        self.addresses.is_empty() || self.addresses.iter().any(|own| own.is_ipv6() == ip.is_ipv6())
    }

    /// Without the addresses of families that the other end has none of: nobody sends from the one to the other.
    pub(super) fn of_families_of(&self, other: &Self) -> Self {
        let addresses = self.addresses.iter().copied().filter(|ip| other.sends_to(*ip)).collect();
        Self { addresses, ..self.clone() }
    }
}

/// A workload of this node.
#[derive(Debug, Clone)]
pub struct Local<'a> {
    /// For display.
    pub name: String,
    /// Its number.
    pub id: EndpointId,
    /// Its entry in the maps; a free one (id 0) if there is none.
    pub endpoint: Endpoint,
    /// Its identity labels with their source.
    pub labels: Vec<String>,
    /// Where it is held.
    pub held: Held,
    /// It is on its node's network.
    pub host_network: bool,
    /// The agent runs in it.
    pub spared: bool,
    /// The policies that select it.
    pub policies: &'a Policies,
    /// Packets by direction and reason; no reason: forwarded.
    pub counters: Vec<(Direction, Option<DropReason>, u64)>,
}

/// Whether a workload is held to its policies.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Held {
    /// At this place.
    Ready(String),
    /// Not, and why.
    Not(String),
    /// The question is about files.
    Assumed,
}

impl Local<'_> {
    /// The policies that deny in this direction what nothing allows.
    pub(super) fn isolating(&self, direction: Direction) -> Vec<String> {
        let isolating = self.policies.each().filter(|policy| policy.isolates().of(direction));
        isolating.map(|policy| policy.origin().to_string()).collect()
    }
}
