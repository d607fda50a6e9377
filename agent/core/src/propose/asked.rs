//! By which name a workload came to an address.
//!
//! Owns: when each name was asked for and which addresses the answers carried, with a bound on both. Must not know: what is
//! made of the name.
//!
//! Any zone may point a name at anybody's address. So of several names only one counts: that which was asked for last.

use std::{collections::BTreeMap, net::IpAddr};

use super::{
    Peer, Seen, Subject,
    who::{MAX_NAMES, is_forbidden},
};
use crate::{flow::Dns, names::Name};

/// Names, and addresses of names, that are remembered at most.
const MAX_ASKED: usize = 16_384;

/// When names were asked for, and what was answered.
#[derive(Debug, Clone, Default)]
pub(super) struct Asked {
    asked: BTreeMap<(Name, Subject), u64>,
    told: BTreeMap<(Name, Subject, IpAddr), u64>,
}

impl Asked {
    /// A workload asked for a name.
    pub(super) fn ask(&mut self, name: &Name, subject: &Subject, time: u64) {
        latest(&mut self.asked, (name.clone(), subject.clone()), time);
    }

    /// A workload got an answer; whether it says anything.
    pub(super) fn tell(&mut self, dns: &Dns, subject: &Subject, time: u64) -> bool {
        let Ok(name) = Name::from_dns(&dns.query) else { return false };
        for ip in dns.ips.iter().take(MAX_NAMES) {
            latest(&mut self.told, (name.clone(), subject.clone(), ip.to_canonical()), time);
        }
        !dns.ips.is_empty()
    }

    /// The only name of an address, or that which was asked for last before it was used. Of two that were asked for at once
    /// it is that of the later answer with this address.
    pub(super) fn name(&self, seen: &Seen, time: u64) -> Option<Name> {
        let Peer::World { ip, names } = &seen.peer else { return None };
        if is_forbidden(*ip) {
            return None;
        }
        if names.len() == 1 {
            return names.first().cloned();
        }
        let before = |at: Option<&u64>| at.copied().filter(|at| *at <= time);
        let subject = || seen.subject.clone();
        let times = names.iter().filter_map(|name| {
            let asked = before(self.asked.get(&(name.clone(), subject())))?;
            Some((asked, before(self.told.get(&(name.clone(), subject(), *ip))), name))
        });
        times.max().map(|(.., name)| name.clone())
    }
}

/// What has no room is forgotten: then no name is known, or the time of the answer does not count.
fn latest<K: Ord>(times: &mut BTreeMap<K, u64>, key: K, time: u64) {
    if times.len() < MAX_ASKED || times.contains_key(&key) {
        let at = times.entry(key).or_default();
        *at = time.max(*at);
    }
}
