//! The steps from one content of the maps to another, in an order in which no moment shows half a policy.

use std::{
    collections::BTreeMap,
    fmt::{self, Debug},
};

use egret_common::{
    ids::{ClassId, EndpointId},
    maps::{Backends, Endpoint, ResolverKey, RuleChunk, RuleKey, ServiceKey, SuffixClasses},
    net::Addr,
};

use super::{CidrPrefix, Desired, Suffix};
use crate::names::Name;

/// One entry of one map.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Entry {
    /// `RULES`.
    Rules(RuleKey, Box<RuleChunk>),
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

/// The steps from `old` to `new`: new rule sets whole, then what the programs find by, then the endpoints, then
/// changed name classes; what is not needed any more goes in the reverse order.
#[must_use]
pub fn diff(old: &Desired, new: &Desired) -> Vec<MapOp> {
    let mut ops = Vec::new();
    put(&mut ops, &old.rules, &new.rules, |k, v| Entry::Rules(*k, Box::new(*v)));
    put(&mut ops, &old.cidrs, &new.cidrs, |k, v| Entry::Cidr(*k, *v));
    ops.extend(new.resolvers.difference(&old.resolvers).map(|r| MapOp::Put(Entry::Resolver(*r))));
    put(&mut ops, &old.identities, &new.identities, |k, v| Entry::Identity(*k, *v));
    put(&mut ops, &old.services, &new.services, |k, v| Entry::Service(*k, Box::new(*v)));
    put(&mut ops, &old.addresses, &new.addresses, |k, v| Entry::Address(*k, *v));
    let mut changed_names = names(old, new);
    let (known, fresh): (Vec<_>, Vec<_>) = changed_names.drain(..).partition(|op| is_known(old, op));
    ops.extend(fresh);
    put(&mut ops, &old.endpoints, &new.endpoints, |_, v| Entry::Endpoint(*v));
    ops.extend(known);
    delete(&mut ops, &old.endpoints, &new.endpoints, |_, v| Entry::Endpoint(*v));
    delete(&mut ops, &old.name_exact, &new.name_exact, |k, v| Entry::NameExact(k.clone(), *v));
    delete(&mut ops, &old.name_suffix, &new.name_suffix, |k, v| Entry::NameSuffix(k.clone(), *v));
    delete(&mut ops, &old.addresses, &new.addresses, |k, v| Entry::Address(*k, *v));
    delete(&mut ops, &old.services, &new.services, |k, v| Entry::Service(*k, Box::new(*v)));
    delete(&mut ops, &old.identities, &new.identities, |k, v| Entry::Identity(*k, *v));
    ops.extend(old.resolvers.difference(&new.resolvers).map(|r| MapOp::Delete(Entry::Resolver(*r))));
    delete(&mut ops, &old.cidrs, &new.cidrs, |k, v| Entry::Cidr(*k, *v));
    delete(&mut ops, &old.rules, &new.rules, |k, v| Entry::Rules(*k, Box::new(*v)));
    ops
}

fn names(old: &Desired, new: &Desired) -> Vec<MapOp> {
    let mut ops = Vec::new();
    put(&mut ops, &old.name_exact, &new.name_exact, |k, v| Entry::NameExact(k.clone(), *v));
    put(&mut ops, &old.name_suffix, &new.name_suffix, |k, v| Entry::NameSuffix(k.clone(), *v));
    ops
}

/// Whether a put of a name replaces an entry that answers are being learned by.
fn is_known(old: &Desired, op: &MapOp) -> bool {
    match op {
        MapOp::Put(Entry::NameExact(name, _)) => old.name_exact.contains_key(name),
        MapOp::Put(Entry::NameSuffix(suffix, _)) => old.name_suffix.contains_key(suffix),
        _ => false,
    }
}

fn put<K: Ord, V: PartialEq>(
    ops: &mut Vec<MapOp>,
    old: &BTreeMap<K, V>,
    new: &BTreeMap<K, V>,
    entry: impl Fn(&K, &V) -> Entry,
) {
    let changed = new.iter().filter(|(k, v)| old.get(k) != Some(v));
    ops.extend(changed.map(|(k, v)| MapOp::Put(entry(k, v))));
}

fn delete<K: Ord, V>(
    ops: &mut Vec<MapOp>,
    old: &BTreeMap<K, V>,
    new: &BTreeMap<K, V>,
    entry: impl Fn(&K, &V) -> Entry,
) {
    let gone = old.iter().filter(|(k, _)| !new.contains_key(k));
    ops.extend(gone.map(|(k, v)| MapOp::Delete(entry(k, v))));
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
