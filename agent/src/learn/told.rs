//! Which addresses CMD was told, under which names, and when: what a report calls an address by. Nothing here opens
//! anything.

use std::collections::BTreeMap;
use std::net::IpAddr;

use egret_core::dns::parse::Answer;

/// (Address, name) pairs that are remembered.
const MOST: usize = 65_536;

/// The answers of a run.
#[derive(Debug, Default)]
pub struct Told {
    by_address: BTreeMap<IpAddr, BTreeMap<String, u64>>,
    unlinked: BTreeMap<IpAddr, String>,
    size: usize,
}

impl Told {
    /// Remembers what an answer said at `time` (boot time, ns).
    pub fn learn(&mut self, answer: &Answer, time: u64) {
        for learned in answer.addresses.iter().chain(&answer.hints) {
            if self.size >= MOST {
                return;
            }
            let names = self.by_address.entry(learned.address).or_default();
            names.entry(answer.question.text.clone()).or_insert_with(|| {
                self.size += 1;
                time
            });
        }
        for (owner, address) in &answer.unlinked {
            if self.unlinked.len() < MOST {
                let text = format!("{} (owned by {owner}, which is not on its chain)", answer.question.text);
                self.unlinked.entry(address.to_canonical()).or_insert(text);
            }
        }
    }

    /// Every name of an address, with the time (boot time, ns) at which CMD was told first.
    pub fn names(&self, address: IpAddr) -> impl Iterator<Item = (&str, u64)> {
        let names = self.by_address.get(&address.to_canonical()).into_iter().flatten();
        names.map(|(name, time)| (name.as_str(), *time))
    }

    /// The answer in which the address stood without belonging to the question.
    #[must_use]
    pub fn unlinked(&self, address: IpAddr) -> Option<&str> {
        self.unlinked.get(&address.to_canonical()).map(String::as_str)
    }
}
