//! Who there is in the world of a replay.

use std::{collections::BTreeMap, net::IpAddr, sync::Arc};

use super::super::Peer;
use crate::{
    identity::{Identity, IdentityBook, NamedPorts, Profile},
    labels::Labels,
};

/// Who there is.
#[derive(Default)]
pub(super) struct People {
    book: IdentityBook,
    pub(super) numbers: BTreeMap<Labels, u32>,
    pub(super) peers: BTreeMap<u32, Arc<Identity>>,
    pub(super) addresses: BTreeMap<IpAddr, u32>,
}

impl People {
    pub(super) fn number(&mut self, labels: &Labels) -> u32 {
        let profile = Profile { labels: labels.clone(), ports: NamedPorts::new() };
        let number = self.book.number(&profile);
        self.numbers.insert(labels.clone(), number);
        let identity = Identity { number, labels: profile.labels, ports: profile.ports };
        self.peers.insert(number, Arc::new(identity));
        number
    }

    /// `at`: an address of a backend, which counts more than that of a flow long ago.
    pub(super) fn meet(&mut self, peer: &Peer, at: Option<IpAddr>) {
        let number = match peer {
            Peer::Pod(labels, _) => self.number(labels),
            Peer::Entity(node, _) => node.number(),
            Peer::Service { .. } | Peer::World { .. } | Peer::Unknown(_) => return,
        };
        if let Some(at) = at.or(peer.address()) {
            self.addresses.insert(at.to_canonical(), number);
        }
    }
}
