//! What one workload was told: name -> addresses with expiry, and address -> names.
//!
//! Owns: the agent's mirror of the grants, for flow logs, reports and explanations. Bounded in every direction. Must
//! not know: policies; an entry here opens nothing.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
};

use egret_common::grant::GrantTime;

use crate::names::Name;

/// How much one workload may make the agent remember.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Names.
    pub names: usize,
    /// Addresses per name. NPEP-133 asks for at least 100.
    pub addresses: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self { names: 16_384, addresses: 1_024 }
    }
}

/// What did not fit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Overflow {
    /// Dead addresses and names that made room.
    pub evicted: u64,
    /// Addresses that found no room, since everything else was live.
    pub refused: u64,
}

/// The cache of one workload.
#[derive(Debug, Clone, Default)]
pub struct Cache {
    limits: Limits,
    names: BTreeMap<Name, BTreeMap<IpAddr, GrantTime>>,
    by_address: BTreeMap<IpAddr, BTreeSet<Name>>,
    overflow: Overflow,
    /// Counts what has changed.
    revision: u64,
    /// When there was no room for a name, all were live until then.
    full_until: GrantTime,
}

impl Cache {
    /// An empty cache.
    #[must_use]
    pub fn new(limits: Limits) -> Self {
        Self { limits, ..Self::default() }
    }

    /// Notes that `name` has `address` until `expires`. A later expiry replaces an earlier one. When there is no
    /// room, the dead go first, longest dead before others; the live are never displaced. False: refused.
    pub fn learn(&mut self, name: &Name, address: IpAddr, expires: GrantTime, now: GrantTime) -> bool {
        let address = address.to_canonical();
        if let Some(known) = self.names.get_mut(name).and_then(|a| a.get_mut(&address)) {
            self.revision += u64::from(expires > *known);
            *known = expires.max(*known);
            return true;
        }
        if !self.make_room(name, now) {
            self.overflow.refused += 1;
            return false;
        }
        self.full_until = self.full_until.min(expires);
        self.revision += 1;
        self.names.entry(name.clone()).or_default().insert(address, expires);
        self.by_address.entry(address).or_default().insert(name.clone());
        true
    }

    /// Every name that the address is or was known under, with its expiry.
    pub fn names_of(&self, address: IpAddr) -> impl Iterator<Item = (&Name, GrantTime)> {
        let address = address.to_canonical();
        let names = self.by_address.get(&address).into_iter().flatten();
        names.filter_map(move |name| Some((name, *self.names.get(name)?.get(&address)?)))
    }

    /// The addresses of a name with their expiry.
    pub fn addresses_of(&self, name: &Name) -> impl Iterator<Item = (IpAddr, GrantTime)> + '_ {
        self.names.get(name).into_iter().flatten().map(|(ip, expires)| (*ip, *expires))
    }

    /// Everything, by name.
    pub fn iter(&self) -> impl Iterator<Item = (&Name, IpAddr, GrantTime)> {
        self.names.iter().flat_map(|(name, addresses)| addresses.iter().map(move |(ip, e)| (name, *ip, *e)))
    }

    /// Drops what has been dead since `before`; what died later stays, to explain denials.
    pub fn forget(&mut self, before: GrantTime) {
        let dead: Vec<(Name, IpAddr)> =
            self.iter().filter(|(.., expires)| *expires < before).map(|(n, ip, _)| (n.clone(), ip)).collect();
        for (name, address) in dead {
            self.remove(&name, address);
        }
    }

    /// Another number whenever something has changed.
    #[must_use]
    pub fn revision(&self) -> u64 {
        self.revision
    }

    /// What did not fit so far.
    #[must_use]
    pub fn overflow(&self) -> Overflow {
        self.overflow
    }

    /// Names and (name, address) pairs held.
    #[must_use]
    pub fn size(&self) -> (usize, usize) {
        (self.names.len(), self.names.values().map(BTreeMap::len).sum())
    }

    fn make_room(&mut self, name: &Name, now: GrantTime) -> bool {
        if let Some(addresses) = self.names.get(name) {
            if addresses.len() < self.limits.addresses {
                return true;
            }
            let dead =
                addresses.iter().filter(|(_, e)| **e <= now).min_by_key(|(_, e)| **e).map(|(ip, _)| *ip);
            return dead.is_some_and(|ip| self.evict(&name.clone(), ip));
        }
        if self.limits.addresses == 0 || self.limits.names == 0 {
            return false;
        }
        if self.names.len() < self.limits.names {
            return true;
        }
        self.evict_names(now)
    }

    /// Drops the names that have been dead for longest, several at a time: looking for them takes a walk over all.
    fn evict_names(&mut self, now: GrantTime) -> bool {
        if now < self.full_until {
            return false;
        }
        let last_end = |a: &BTreeMap<IpAddr, GrantTime>| a.values().copied().max().unwrap_or(0);
        let mut ends: Vec<(GrantTime, Name)> =
            self.names.iter().map(|(n, a)| (last_end(a), n.clone())).collect();
        ends.sort_unstable();
        ends.truncate(self.limits.names / 16 + 1);
        self.full_until = ends.first().map_or(0, |(end, _)| *end);
        let mut made_room = false;
        for (_, name) in ends.into_iter().filter(|(end, _)| *end <= now) {
            let addresses: Vec<IpAddr> =
                self.names.get(&name).into_iter().flat_map(|a| a.keys().copied()).collect();
            addresses.into_iter().for_each(|ip| {
                self.evict(&name, ip);
            });
            made_room = true;
        }
        made_room
    }

    fn evict(&mut self, name: &Name, address: IpAddr) -> bool {
        self.overflow.evicted += 1;
        self.remove(name, address);
        true
    }

    fn remove(&mut self, name: &Name, address: IpAddr) {
        self.revision += 1;
        if let Some(addresses) = self.names.get_mut(name) {
            addresses.remove(&address);
            if addresses.is_empty() {
                self.names.remove(name);
            }
        }
        if let Some(names) = self.by_address.get_mut(&address) {
            names.remove(name);
            if names.is_empty() {
                self.by_address.remove(&address);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(n: &str) -> Name {
        Name::parse(n).unwrap()
    }

    fn ip(n: u8) -> IpAddr {
        IpAddr::from([192, 0, 2, n])
    }

    fn check(cache: &Cache, address: IpAddr, want: &[(&str, GrantTime)]) {
        let got: Vec<_> = cache.names_of(address).map(|(n, e)| (n.as_str(), e)).collect();
        assert_eq!(got, want);
    }

    #[test]
    fn t_a04_an_address_has_all_its_names() {
        let mut c = Cache::new(Limits::default());
        assert!(c.learn(&name("ok.example"), ip(5), 100, 0));
        assert!(c.learn(&name("bad.example"), "::ffff:192.0.2.5".parse().unwrap(), 50, 0));
        assert!(c.learn(&name("ok.example"), ip(5), 90, 0), "an earlier expiry does not shorten");
        check(&c, ip(5), &[("bad.example", 50), ("ok.example", 100)]);
        assert_eq!(c.addresses_of(&name("ok.example")).collect::<Vec<_>>(), [(ip(5), 100)]);
        c.forget(60);
        check(&c, ip(5), &[("ok.example", 100)]);
        c.forget(101);
        assert_eq!(c.size(), (0, 0));
        check(&c, ip(5), &[]);
    }

    #[test]
    fn t_a03_the_dead_make_room_and_the_live_never_do() {
        let mut c = Cache::new(Limits { names: 2, addresses: 2 });
        assert!(c.learn(&name("a"), ip(1), 10, 0) && c.learn(&name("a"), ip(2), 20, 0));
        assert!(!c.learn(&name("a"), ip(3), 30, 5), "both live");
        assert!(c.learn(&name("a"), ip(3), 30, 10), "the first is dead");
        check(&c, ip(1), &[]);
        assert!(c.learn(&name("b"), ip(4), 25, 10));
        assert!(!c.learn(&name("c"), ip(5), 40, 20), "a and b live");
        assert!(c.learn(&name("c"), ip(5), 40, 25), "b is dead, a is not");
        assert_eq!(c.size(), (2, 3));
        assert_eq!(c.overflow(), Overflow { evicted: 2, refused: 2 });
    }

    #[test]
    fn l_a03_memory_is_flat() {
        let mut c = Cache::new(Limits { names: 8, addresses: 8 });
        for i in 0..20_000u32 {
            let address = IpAddr::from((0x0a00_0000 + i).to_be_bytes());
            c.learn(&name(&format!("n{}.example", i % 13)), address, i + 5, i);
            assert!(c.size().0 <= 8 && c.size().1 <= 64 && c.by_address.len() <= 64);
        }
        assert!(c.overflow().evicted > 1000);
    }
}
