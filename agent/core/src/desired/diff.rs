//! The steps from one content of the maps to another, as values that can be performed and shown.

use std::{fmt, sync::Arc};

use egret_common::{
    ids::{ClassId, EndpointId},
    maps::{Backends, Endpoint, ResolverKey, RuleChunk, RuleKey, ServiceKey, SuffixClasses},
    net::Addr,
};

use super::{CidrPrefix, Delta, Desired, Suffix};
use crate::names::Name;

/// One entry of one map.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Entry {
    /// `RULES`.
    Rules(RuleKey, Arc<RuleChunk>),
    /// `CIDR_CLASSES`.
    Cidr(CidrPrefix, ClassId),
    /// `TRUSTED_RESOLVERS`.
    Resolver(ResolverKey),
    /// `IDENTITIES`.
    Identity(Addr, u32),
    /// `NAME_EXACT`.
    NameExact(Name, ClassId),
    /// `NAME_SUFFIX`.
    NameSuffix(Suffix, SuffixClasses),
    /// `ADDRESSES`.
    Address(Addr, EndpointId),
    /// `SERVICES`.
    Service(ServiceKey, Box<Backends>),
    /// `ENDPOINTS`, at the endpoint's id.
    Endpoint(Endpoint),
}

/// One write to one map. A delete carries the entry that goes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MapOp {
    /// Insert or replace.
    Put(Entry),
    /// Remove.
    Delete(Entry),
}

/// The steps from `old` to `new`.
#[must_use]
pub fn diff(old: &Desired, new: &Desired) -> Vec<MapOp> {
    Delta::between(old, new).steps(old)
}

impl fmt::Display for MapOp {
    /// `+ MAP key -> value` or `- MAP key`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            MapOp::Put(entry) => write!(f, "+ {entry}"),
            MapOp::Delete(entry) => write!(f, "- {entry}"),
        }
    }
}

impl fmt::Display for Entry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Entry::Rules(k, v) => {
                write!(f, "RULES set {} class {:#x} chunk {} ->", k.set, k.class, k.chunk)?;
                v.rules.iter().take(v.count as usize).try_for_each(|r| {
                    let outcome = ["none", "allow", "deny", "pass"][usize::from(r.normal & 3)];
                    write!(f, " {}:{}-{} {outcome} by {:#x};", r.proto, r.lo, r.hi, r.cookie)
                })
            }
            Entry::Cidr(p, class) => {
                let octets = p.key.addr.map(u32::to_ne_bytes).concat();
                let ip = std::net::Ipv6Addr::from(<[u8; 16]>::try_from(octets).unwrap_or_default());
                write!(f, "CIDR_CLASSES set {} {ip}/{} -> {class:#x}", p.key.set, p.bits - 32)
            }
            Entry::Resolver(r) => write!(f, "TRUSTED_RESOLVERS {} port {}", ip(&r.addr), r.port),
            Entry::Identity(a, id) => write!(f, "IDENTITIES {} -> {id}", ip(a)),
            Entry::NameExact(name, class) => write!(f, "NAME_EXACT {name} -> {class:#x}"),
            Entry::NameSuffix(s, c) => {
                let text: String = s.0.chars().rev().collect();
                write!(f, "NAME_SUFFIX *{text} -> one {:#x}, more {:#x}", c.one, c.more)
            }
            Entry::Address(a, endpoint) => write!(f, "ADDRESSES {} -> {endpoint}", ip(a)),
            Entry::Service(k, backends) => {
                write!(f, "SERVICES {} port {} protocol {} ->", ip(&k.addr), k.port, k.proto)?;
                let backends = backends.slots.iter().take(backends.count as usize);
                backends.into_iter().try_for_each(|b| write!(f, " {} port {};", ip(&b.addr), b.port))
            }
            Entry::Endpoint(e) => write!(
                f,
                "ENDPOINTS {} -> egress set {} ({:#x}), ingress set {} ({:#x}), flags {:#x}",
                e.id, e.egress_set, e.egress_features, e.ingress_set, e.ingress_features, e.flags
            ),
        }
    }
}

fn ip(addr: &Addr) -> std::net::IpAddr {
    std::net::IpAddr::from(addr.octets()).to_canonical()
}
