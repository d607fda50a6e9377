//! For tests: records as the kernel writes them, and a learner that has seen some.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use egret_common::event::{DNS_ASKED, DNS_REFUSED, DnsEvent};
use egret_common::ids::EndpointId;
use egret_common::maps::{Destination, DestinationKey};
use egret_common::net::{Direction, proto};
use egret_common::verdict::DropReason;
use egret_core::allow::AllowRule;
use egret_core::compile::{EndpointSpec, NamesAsk, World, addr};
use egret_core::dns::cache::Limits;
use egret_core::dns::lifetime::Lifetime;
use egret_core::names::Name;
use egret_core::policy::Policy;
use egret_core::state::State;

use super::{Effects, Learner};

pub(crate) const ENDPOINT: EndpointId = 1;

pub(crate) fn learner(allow: &[&str], search: &[Name]) -> Learner {
    let rules: Vec<_> = allow.iter().map(|a| AllowRule::parse(a).expect("valid")).collect();
    let world = World {
        search: search.to_vec(),
        cluster_domain: None,
        resolvers: BTreeSet::from(["10.7.0.53:53".parse().expect("valid")]),
        identities: BTreeMap::new(),
        peers: BTreeMap::new(),
        names_ask: NamesAsk::Yes,
        seen_names: BTreeSet::new(),
    };
    let policies = vec![Policy::from_allow(&rules)].into();
    let spec = EndpointSpec {
        id: ENDPOINT,
        identity: 1,
        flags: 0,
        lifetime: Lifetime::default(),
        ports: BTreeMap::new(),
        policies,
    };
    Learner::new(State::new(world, vec![spec], Limits::default()).expect("compiles"), Some(ENDPOINT))
}

pub(crate) fn name(text: &str) -> Name {
    Name::parse(text).expect("valid")
}

/// A query for an A record.
pub(crate) fn query(id: u16, text: &str) -> Vec<u8> {
    let mut m = Vec::from(id.to_be_bytes());
    m.extend([1, 0, 0, 1, 0, 0, 0, 0, 0, 0]);
    m.extend(name(text).to_wire());
    m.extend([0, 1, 0, 1]);
    m
}

/// Its answer, with TTL 60.
pub(crate) fn answer(id: u16, text: &str, addresses: &[[u8; 4]]) -> Vec<u8> {
    let mut m = query(id, text);
    m[2] = 0x81;
    m[7] = addresses.len() as u8;
    for address in addresses {
        m.extend([0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 60, 0, 4]);
        m.extend(address);
    }
    m
}

/// Head of a record at `time` ns.
pub(crate) fn event(direction: Direction, protocol: u8, time: u64) -> DnsEvent {
    DnsEvent {
        time,
        local: addr("10.7.0.2".parse().expect("valid")),
        remote: addr("10.7.0.53".parse().expect("valid")),
        endpoint: ENDPOINT,
        local_port: 40_000,
        remote_port: 53,
        proto: protocol,
        direction: direction as u8,
        ..DnsEvent::default()
    }
}

/// Query and answer pass. `hash`: the query was refused, under that number.
pub(crate) fn exchange(
    learner: &mut Learner,
    text: &str,
    address: [u8; 4],
    time: u64,
    hash: Option<u64>,
) -> Effects {
    let flags = if hash.is_some() { DNS_REFUSED } else { 0 };
    let asked = DnsEvent { flags, question: hash.unwrap_or(1), ..event(Direction::Egress, proto::UDP, time) };
    learner.see(&asked, &query(7, text)).expect("compiles");
    let told = DnsEvent { flags: DNS_ASKED, ..event(Direction::Ingress, proto::UDP, time) };
    learner.see(&told, &answer(7, text, &[address])).expect("compiles")
}

/// One entry of `DESTINATIONS`.
pub(crate) fn destination(
    address: &str,
    port: u16,
    reason: Option<DropReason>,
    first: u64,
    hash: u64,
) -> (DestinationKey, Destination) {
    let key = DestinationKey {
        remote: addr(address.parse::<IpAddr>().expect("valid")),
        endpoint: ENDPOINT,
        port,
        proto: if hash == 0 { proto::TCP } else { proto::DNS_QUERY },
        reason: reason.map_or(0, |r| r as u8),
        pid: 100,
        direction: 0,
        name: hash,
    };
    let comm = *b"curl\0\0\0\0\0\0\0\0\0\0\0\0";
    (key, Destination { count: 1, first, last: first, class: 0, cookie: 0, age: 0, held: 0, comm })
}
