//! Reading the kernel's maps from another thread than the one that owns the [`Datapath`]: sums over all endpoints, and how
//! full maps are. Has its own handles; never waits for the owner, who never waits for it.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::SeqCst};
use std::time::Duration;

use aya::maps::{HashMap, Map, MapData, PerCpuArray};
use egret_common::{
    ABI_VERSION,
    grant::{self, GrantTime},
    ids::EndpointId,
    maps::{self, Counter, EndpointState, GrantKey, counter_index},
    net::Direction,
    verdict::REASON_SLOTS,
};

use super::{CounterRow, Datapath, Lost, MapFill, Sizes, apply::io_error, bpf_sys, read, read::HASHES};

/// Counters of one endpoint.
const SLOTS: usize = 2 * REASON_SLOTS as usize;
/// Endpoints whose counters are read with one system call.
const AT_ONCE: usize = 32;
/// How often sums are tried that are overtaken by a move of counts, which takes a millisecond.
const TRIES: u32 = 50;

/// What the owner of the maps lets readers know.
#[derive(Debug, Default)]
pub(super) struct Ledger {
    /// Odd while counts move from one endpoint to another.
    turn: AtomicU64,
    /// The highest number that an endpoint had.
    highest: AtomicU32,
}

impl Ledger {
    /// There is, or was, an endpoint with this number.
    pub(super) fn knows(&self, id: EndpointId) {
        self.highest.fetch_max(id, SeqCst);
    }

    /// Sums that are read meanwhile do not count.
    pub(super) fn moving(&self, act: impl FnOnce()) {
        self.turn.fetch_add(1, SeqCst);
        act();
        self.turn.fetch_add(1, SeqCst);
    }

    /// What `read` gives between two moves. `None`: there was always one.
    fn between<T>(&self, mut read: impl FnMut() -> io::Result<T>) -> io::Result<Option<T>> {
        for _ in 0..TRIES {
            let before = self.turn.load(SeqCst);
            if before.is_multiple_of(2) {
                let value = read()?;
                if self.turn.load(SeqCst) == before {
                    return Ok(Some(value));
                }
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        Ok(None)
    }
}

/// Sums over all endpoints, those that are gone and what belongs to none included. They never go back.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Totals {
    /// A row per direction and reason, those without a packet left out.
    pub rows: Vec<CounterRow>,
    /// Addresses that `GRANTS` had no room for.
    pub no_room: u64,
    /// Addresses in answers that no name may open.
    pub forbidden: u64,
}

/// Entries of `GRANTS`, each name class of an address by itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Grants {
    /// They open new connections.
    pub live: u64,
    /// They are remembered to explain denials.
    pub expired: u64,
}

/// The handles.
#[derive(Debug)]
pub struct Reader {
    maps: BTreeMap<&'static str, Map>,
    sizes: Sizes,
    ledger: std::sync::Arc<Ledger>,
    cpus: usize,
    /// Endpoints below this number have been seen to count; 0: nobody has looked.
    seen: u32,
}

impl Datapath {
    /// Handles of their own to the maps that are read for metrics.
    ///
    /// # Errors
    /// A pin that cannot be opened.
    pub fn reader(&self) -> io::Result<Reader> {
        let dir = self.dir().join(format!("v{ABI_VERSION}"));
        let open = |name: &'static str| {
            let map = MapData::from_pin(dir.join(name)).and_then(Map::from_map_data);
            Ok((name, map.map_err(io_error)?))
        };
        let names = ["COUNTERS", "ENDPOINT_STATE", "LOST"].into_iter().chain(HASHES);
        let maps = names.map(open).collect::<io::Result<_>>()?;
        let cpus = aya::util::nr_cpus().map_err(|(_, error)| error)?;
        Ok(Reader { maps, sizes: self.sizes, ledger: self.ledger.clone(), cpus, seen: 0 })
    }
}

impl Reader {
    /// The sums; exact for what was counted before. `None`: counts moved all the time.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn totals(&mut self) -> io::Result<Option<Totals>> {
        let ledger = self.ledger.clone();
        ledger.between(|| self.sum())
    }

    fn sum(&mut self) -> io::Result<Totals> {
        let mut sums = vec![(0, 0); SLOTS];
        let mut totals = Totals::default();
        // An earlier agent may have left counts under any number: the first time all are looked at.
        let known = self.seen.max(self.ledger.highest.load(SeqCst) + 1);
        let end = if self.seen == 0 { self.sizes.endpoints } else { known.min(self.sizes.endpoints) };
        let gone = self.sizes.gone();
        let (mut first, mut seen) = (0, 1);
        while first < end {
            let count = (end - first).min(AT_ONCE as u32);
            let last = self.add(first, count, &mut sums)?;
            let last = last.filter(|last| gone.is_none_or(|gone| *last < gone));
            seen = seen.max(last.map_or(0, |last| last + 1));
            self.add_state(first, count, &mut totals)?;
            first += count;
        }
        if let Some(gone) = gone.filter(|gone| *gone >= end) {
            self.add(gone, 1, &mut sums)?;
            self.add_state(gone, 1, &mut totals)?;
        }
        self.seen = self.seen.max(seen);
        totals.rows = rows(&sums);
        Ok(totals)
    }

    /// Adds the counters of some endpoints; gives the last one of them that has counted.
    fn add(&self, first: u32, count: u32, sums: &mut [(u64, u64)]) -> io::Result<Option<u32>> {
        let mut values = vec![Counter::default(); count as usize * SLOTS * self.cpus];
        let index = counter_index(first, Direction::Egress, 0);
        let read = bpf_sys::array_batch(self.fd("COUNTERS")?, index, &mut values, self.cpus)?;
        let mut last = None;
        for (at, counters) in values.chunks(self.cpus).take(read).enumerate() {
            for counter in counters.iter().filter(|counter| counter.packets != 0) {
                let (packets, bytes) = &mut sums[at % SLOTS];
                *packets += counter.packets;
                *bytes += counter.bytes;
                last = Some(first + (at / SLOTS) as u32);
            }
        }
        Ok(last)
    }

    fn add_state(&self, first: u32, count: u32, totals: &mut Totals) -> io::Result<()> {
        let mut states = vec![EndpointState::default(); count as usize];
        let read = bpf_sys::array_batch(self.fd("ENDPOINT_STATE")?, first, &mut states, 1)?;
        for state in &states[..read] {
            totals.no_room += state.map_full;
            totals.forbidden += state.forbidden;
        }
        Ok(())
    }

    /// What was lost since the maps were made.
    #[must_use]
    pub fn lost(&self) -> Lost {
        let sum = |index: u32| {
            let map = PerCpuArray::<&MapData, u64>::try_from(self.maps.get("LOST")?).ok()?;
            Some(map.get(&index, 0).ok()?.iter().sum())
        };
        let sum = |index| sum(index).unwrap_or_default();
        Lost { flow_events: sum(0), dns_events: sum(1), scratch: sum(2) }
    }

    /// How full the maps are whose size is a limit. Walks all of them.
    #[must_use]
    pub fn fill(&self) -> Vec<MapFill> {
        read::fill(&self.sizes, |name| self.maps.get(name))
    }

    /// How many grants there are. Walks all of them; one that changes meanwhile may be seen twice or not at all.
    #[must_use]
    pub fn grants(&self, now: GrantTime) -> Grants {
        let mut grants = Grants::default();
        let map = self.maps.get("GRANTS");
        let map = map.and_then(|map| HashMap::<&MapData, GrantKey, maps::Grants>::try_from(map).ok());
        let walk = map.iter().flat_map(|map| map.iter().take(self.sizes.grants as usize));
        for slot in walk.filter_map(Result::ok).flat_map(|(_, grants)| grants.slots) {
            let live = slot != 0 && grant::expires(slot) > now;
            grants.live += u64::from(live);
            grants.expired += u64::from(slot != 0 && !live);
        }
        grants
    }

    fn fd(&self, name: &str) -> io::Result<std::os::fd::BorrowedFd<'_>> {
        match self.maps.get(name) {
            Some(Map::Array(data) | Map::PerCpuArray(data)) => Ok(data.fd().as_fd()),
            _ => Err(io::Error::new(io::ErrorKind::NotFound, name.to_owned())),
        }
    }
}

fn rows(sums: &[(u64, u64)]) -> Vec<CounterRow> {
    let directions = [Direction::Egress, Direction::Ingress].into_iter();
    let all = directions.flat_map(|d| (0..REASON_SLOTS as u8).map(move |reason| (d, reason)));
    let row = |(direction, reason)| {
        let (packets, bytes) = sums[counter_index(0, direction, reason) as usize];
        CounterRow { direction, reason, packets, bytes, events_suppressed: 0 }
    };
    all.map(row).filter(|row| row.packets != 0).collect()
}
