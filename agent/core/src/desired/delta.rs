//! What changes in the maps, and the order in which it is written: no moment shows half a policy.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use egret_common::{
    ids::{ClassId, EndpointId},
    maps::{Backends, Endpoint, ResolverKey, RuleChunk, RuleKey, ServiceKey, SuffixClasses},
    net::Addr,
};

use super::{CidrPrefix, Desired, Entry, MapOp, Suffix};
use crate::names::Name;

/// Entries of one map by key: their new value, or `None` where they go.
type Changes<K, V> = BTreeMap<K, Option<V>>;

/// The difference between two contents of the maps. Only what differs is here.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Delta {
    pub(crate) endpoints: Changes<EndpointId, Endpoint>,
    pub(crate) identities: Changes<Addr, u32>,
    pub(crate) cidrs: Changes<CidrPrefix, ClassId>,
    pub(crate) name_exact: Changes<Name, ClassId>,
    pub(crate) name_suffix: Changes<Suffix, SuffixClasses>,
    pub(crate) addresses: Changes<Addr, EndpointId>,
    pub(crate) services: Changes<ServiceKey, Backends>,
    pub(crate) rules: Changes<RuleKey, Arc<RuleChunk>>,
    pub(crate) resolvers: BTreeMap<ResolverKey, bool>,
}

impl Delta {
    /// From `old` to `new`.
    pub(crate) fn between(old: &Desired, new: &Desired) -> Self {
        Self {
            endpoints: changes(&old.endpoints, &new.endpoints),
            identities: changes(&old.identities, &new.identities),
            cidrs: changes(&old.cidrs, &new.cidrs),
            name_exact: changes(&old.name_exact, &new.name_exact),
            name_suffix: changes(&old.name_suffix, &new.name_suffix),
            addresses: changes(&old.addresses, &new.addresses),
            services: changes(&old.services, &new.services),
            rules: changes(&old.rules, &new.rules),
            resolvers: resolver_changes(&old.resolvers, &new.resolvers),
        }
    }

    /// The steps from `old`: new rule sets whole, then what the programs find by, then the endpoints, then changed name
    /// classes; what is not needed any more goes in the reverse order.
    pub(crate) fn steps(&self, old: &Desired) -> Vec<MapOp> {
        let rule = |k: &RuleKey, v: &Arc<RuleChunk>| Entry::Rules(*k, v.clone());
        let cidr = |k: &CidrPrefix, v: &ClassId| Entry::Cidr(*k, *v);
        let identity = |k: &Addr, v: &u32| Entry::Identity(*k, *v);
        let service = |k: &ServiceKey, v: &Backends| Entry::Service(*k, Box::new(*v));
        let address = |k: &Addr, v: &EndpointId| Entry::Address(*k, *v);
        let endpoint = |_: &EndpointId, v: &Endpoint| Entry::Endpoint(*v);
        let exact = |k: &Name, v: &ClassId| Entry::NameExact(k.clone(), *v);
        let suffix = |k: &Suffix, v: &SuffixClasses| Entry::NameSuffix(k.clone(), *v);
        let mut ops = Vec::new();
        put(&mut ops, &self.rules, rule);
        put(&mut ops, &self.cidrs, cidr);
        let resolvers = |wanted| self.resolvers.iter().filter(move |(_, put)| **put == wanted);
        ops.extend(resolvers(true).map(|(key, _)| MapOp::Put(Entry::Resolver(*key))));
        put(&mut ops, &self.identities, identity);
        put(&mut ops, &self.services, service);
        put(&mut ops, &self.addresses, address);
        let mut names = Vec::new();
        put(&mut names, &self.name_exact, exact);
        put(&mut names, &self.name_suffix, suffix);
        let (known, fresh): (Vec<_>, Vec<_>) = names.into_iter().partition(|op| is_known(old, op));
        ops.extend(fresh);
        put(&mut ops, &self.endpoints, endpoint);
        ops.extend(known);
        delete(&mut ops, &self.endpoints, &old.endpoints, endpoint);
        delete(&mut ops, &self.name_exact, &old.name_exact, exact);
        delete(&mut ops, &self.name_suffix, &old.name_suffix, suffix);
        delete(&mut ops, &self.addresses, &old.addresses, address);
        delete(&mut ops, &self.services, &old.services, service);
        delete(&mut ops, &self.identities, &old.identities, identity);
        ops.extend(resolvers(false).map(|(key, _)| MapOp::Delete(Entry::Resolver(*key))));
        delete(&mut ops, &self.cidrs, &old.cidrs, cidr);
        delete(&mut ops, &self.rules, &old.rules, rule);
        ops
    }

    /// Makes `desired` what it shall be.
    pub(crate) fn enter(self, desired: &mut Desired) {
        enter(self.endpoints, &mut desired.endpoints);
        enter(self.identities, &mut desired.identities);
        enter(self.cidrs, &mut desired.cidrs);
        enter(self.name_exact, &mut desired.name_exact);
        enter(self.name_suffix, &mut desired.name_suffix);
        enter(self.addresses, &mut desired.addresses);
        enter(self.services, &mut desired.services);
        enter(self.rules, &mut desired.rules);
        for (key, put) in self.resolvers {
            match put {
                true => desired.resolvers.insert(key),
                false => desired.resolvers.remove(&key),
            };
        }
    }
}

/// What differs between two maps, by one walk over both.
pub(crate) fn changes<K: Ord + Clone, V: PartialEq + Clone>(
    old: &BTreeMap<K, V>,
    new: &BTreeMap<K, V>,
) -> Changes<K, V> {
    let mut out = Vec::new();
    let mut before = old.iter().peekable();
    for (key, value) in new {
        while let Some((gone, _)) = before.next_if(|(old_key, _)| *old_key < key) {
            out.push((gone.clone(), None));
        }
        let known = before.next_if(|(old_key, _)| *old_key == key);
        if known.is_none_or(|(_, old_value)| old_value != value) {
            out.push((key.clone(), Some(value.clone())));
        }
    }
    out.extend(before.map(|(gone, _)| (gone.clone(), None)));
    out.into_iter().collect()
}

pub(crate) fn resolver_changes(
    old: &BTreeSet<ResolverKey>,
    new: &BTreeSet<ResolverKey>,
) -> BTreeMap<ResolverKey, bool> {
    old.symmetric_difference(new).map(|key| (*key, new.contains(key))).collect()
}

/// Whether a put of a name replaces an entry that answers are being learned by.
fn is_known(old: &Desired, op: &MapOp) -> bool {
    match op {
        MapOp::Put(Entry::NameExact(name, _)) => old.name_exact.contains_key(name),
        MapOp::Put(Entry::NameSuffix(suffix, _)) => old.name_suffix.contains_key(suffix),
        _ => false,
    }
}

fn put<K, V>(ops: &mut Vec<MapOp>, changes: &Changes<K, V>, entry: impl Fn(&K, &V) -> Entry) {
    let put = changes.iter().filter_map(|(k, v)| Some((k, v.as_ref()?)));
    ops.extend(put.map(|(k, v)| MapOp::Put(entry(k, v))));
}

/// A delete carries the entry that goes.
fn delete<K: Ord, V>(
    ops: &mut Vec<MapOp>,
    changes: &Changes<K, V>,
    old: &BTreeMap<K, V>,
    entry: impl Fn(&K, &V) -> Entry,
) {
    let gone = changes.iter().filter(|(_, v)| v.is_none()).filter_map(|(k, _)| old.get_key_value(k));
    ops.extend(gone.map(|(k, v)| MapOp::Delete(entry(k, v))));
}

fn enter<K: Ord, V>(changes: Changes<K, V>, to: &mut BTreeMap<K, V>) {
    for (key, value) in changes {
        match value {
            Some(value) => drop(to.insert(key, value)),
            None => drop(to.remove(&key)),
        }
    }
}
