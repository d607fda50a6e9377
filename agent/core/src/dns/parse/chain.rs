//! The chain of aliases that begins at the question. The order of the records carries no meaning.

use std::collections::BTreeMap;

use hickory_proto::rr::{Name as WireName, RData, Record};

use super::seconds;

/// The names that the question leads to, the question first, each with the least TTL of the aliases before it.
#[derive(Debug, Default)]
pub(super) struct Chain<'a> {
    links: Vec<(&'a WireName, u32)>,
}

impl<'a> Chain<'a> {
    /// Follows the CNAME records. A loop, or a name with two different aliases, proves nothing: then the chain is
    /// empty and no address belongs to the question.
    pub(super) fn new(question: &'a WireName, records: &[&'a Record]) -> Self {
        let mut aliases: BTreeMap<&WireName, (&'a WireName, u32)> = BTreeMap::new();
        for record in records {
            let RData::CNAME(target) = &record.data else { continue };
            let ttl = seconds(record.ttl);
            let (known, least) = aliases.entry(&record.name).or_insert((&target.0, ttl));
            if **known != target.0 {
                return Self::default();
            }
            *least = ttl.min(*least);
        }
        let mut links = vec![(question, u32::MAX)];
        let (mut at, mut least) = (question, u32::MAX);
        while let Some((target, ttl)) = aliases.get(at) {
            if links.len() > aliases.len() {
                return Self::default();
            }
            least = least.min(*ttl);
            links.push((target, least));
            at = target;
        }
        Self { links }
    }

    /// The alias targets in order.
    pub(super) fn aliases(&self) -> impl Iterator<Item = &'a WireName> {
        self.links.iter().skip(1).map(|(name, _)| *name)
    }

    /// Least TTL on the way to `name`; `None` if it is not on the chain. The question itself limits nothing.
    pub(super) fn ttl_to(&self, name: &WireName) -> Option<u32> {
        self.links.iter().find(|(link, _)| *link == name).map(|(_, ttl)| *ttl)
    }
}
