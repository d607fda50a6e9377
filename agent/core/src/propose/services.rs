//! What is behind Services.
//!
//! A packet to a Service is judged by what is behind it, at the port there; a flow tells neither.

use std::{collections::BTreeMap, net::IpAddr};

use super::Peer;
use crate::{
    policy::{DNS_PORT, write::cluster_dns},
    ports::Proto,
};

/// What is behind each port of each Service.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Services(BTreeMap<(IpAddr, Proto, u16), Vec<Backend>>);

/// One of those behind a Service. It may stand for others with the same identity.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Backend {
    /// Who it is.
    pub peer: Peer,
    /// Its address.
    pub ip: IpAddr,
    /// Its port.
    pub port: u16,
}

impl Services {
    /// Adds one port of a Service.
    pub fn insert(&mut self, vip: IpAddr, proto: Proto, port: u16, backends: Vec<Backend>) {
        self.0.insert((vip.to_canonical(), proto, port), backends);
    }

    /// What is behind a port; `None`: that is not known.
    #[must_use]
    pub fn at(&self, vip: IpAddr, proto: Proto, port: u16) -> Option<&[Backend]> {
        self.0.get(&(vip, proto, port)).map(Vec::as_slice)
    }

    /// The pods of the cluster's DNS, if they are known.
    pub(super) fn cluster_dns(&self) -> impl Iterator<Item = &Backend> {
        let wanted = cluster_dns();
        let is_dns = move |backend: &&Backend| match &backend.peer {
            Peer::Pod(labels, _) => wanted.iter().all(|(key, value)| labels.get(key) == Some(value)),
            _ => false,
        };
        let asked = |(_, proto, port): &(IpAddr, Proto, u16)| *proto == Proto::Udp && *port == DNS_PORT;
        let there = self.0.iter().filter(move |(key, _)| asked(key));
        there.flat_map(|(_, backends)| backends).filter(is_dns)
    }

    /// All of them.
    pub fn iter(&self) -> impl Iterator<Item = (IpAddr, Proto, u16, &[Backend])> {
        self.0.iter().map(|((vip, proto, port), backends)| (*vip, *proto, *port, backends.as_slice()))
    }
}
