//! Writing the agent's maps, one step of a diff at a time.

use std::io;
use std::os::fd::AsFd as _;

use aya::maps::{Array, HashMap, LpmTrie, Map, MapData, MapError, lpm_trie::Key};
use egret_common::{
    maps::{
        Backends, CidrKey, Endpoint, NAME_CAP, ResolverKey, RuleChunk, RuleKey, ServiceKey, SuffixClasses,
    },
    net::Addr,
};
use egret_core::desired::{Entry, MapOp, Suffix};

use super::{ApplyError, Datapath, bpf_sys, load::chain};

impl Datapath {
    /// Performs the steps in their order. A delete of what is not there is done already.
    ///
    /// # Errors
    /// The first step that fails, with its map and key; the steps before it are done, the ones behind it are not.
    pub fn apply(&mut self, ops: &[MapOp]) -> Result<(), ApplyError> {
        for run in ops.chunk_by(is_alike) {
            let batched = if run.len() < FEW { None } else { self.batch(run) };
            let done = batched.unwrap_or_else(|| self.one_by_one(run));
            done.map_err(|(at, error)| {
                let (entry, _) = parts(&run[at.min(run.len() - 1)]);
                ApplyError { map: map_of(entry), entry: entry.to_string(), error }
            })?;
        }
        Ok(())
    }

    fn one_by_one(&mut self, run: &[MapOp]) -> Result<(), (usize, io::Error)> {
        run.iter().enumerate().try_for_each(|(at, op)| {
            let (entry, put) = parts(op);
            self.write(entry, put).map_err(|error| (at, error))
        })
    }

    /// The large maps, many entries at once. `None`: not one of those.
    fn batch(&mut self, run: &[MapOp]) -> Option<Result<(), (usize, io::Error)>> {
        let (first, put) = parts(run.first()?);
        let map = self.ebpf.map(map_of(first))?;
        match (first, map) {
            (Entry::Rules(..), Map::HashMap(data)) => {
                let entries = run.iter().filter_map(|op| match parts(op).0 {
                    Entry::Rules(key, chunk) => Some((*key, **chunk)),
                    _ => None,
                });
                Some(batch(data, entries, put))
            }
            (Entry::Cidr(..), Map::LpmTrie(data)) => {
                let entries = run.iter().filter_map(|op| match parts(op).0 {
                    Entry::Cidr(prefix, class) => Some((Key::new(prefix.bits, prefix.key), *class)),
                    _ => None,
                });
                Some(batch::<Key<CidrKey>, u32>(data, entries, put))
            }
            _ => None,
        }
    }

    fn write(&mut self, entry: &Entry, put: bool) -> io::Result<()> {
        let map = self.ebpf.map_mut(map_of(entry)).ok_or(io::ErrorKind::NotFound)?;
        match entry {
            Entry::Rules(key, chunk) => hash::<RuleKey, RuleChunk>(map, key, put.then_some(&**chunk)),
            Entry::Cidr(prefix, class) => {
                trie::<CidrKey, u32>(map, &Key::new(prefix.bits, prefix.key), put.then_some(class))
            }
            Entry::Resolver(key) => hash::<ResolverKey, u32>(map, key, put.then_some(&1)),
            Entry::Identity(addr, id) => hash::<Addr, u32>(map, addr, put.then_some(id)),
            Entry::NameExact(name, class) => {
                hash::<[u8; NAME_CAP], u32>(map, &name.to_key(), put.then_some(class))
            }
            Entry::NameSuffix(suffix, classes) => {
                trie::<[u8; 256], SuffixClasses>(map, &suffix_key(suffix)?, put.then_some(classes))
            }
            Entry::Address(addr, endpoint) => hash::<Addr, u32>(map, addr, put.then_some(endpoint)),
            Entry::Service(key, backends) => {
                hash::<ServiceKey, Backends>(map, key, put.then_some(backends.as_ref()))
            }
            Entry::Endpoint(endpoint) => {
                self.ledger.knows(endpoint.id);
                let mut array = Array::<_, Endpoint>::try_from(map).map_err(io_error)?;
                let value = if put { *endpoint } else { Endpoint::default() };
                array.set(endpoint.id, value, 0).map_err(io_error)
            }
        }
    }
}

/// Runs that are shorter are written one by one.
const FEW: usize = 16;
/// Entries per system call: a few milliseconds.
const BATCH: usize = 4096;

/// The entry, and whether it is to be there.
fn parts(op: &MapOp) -> (&Entry, bool) {
    match op {
        MapOp::Put(entry) => (entry, true),
        MapOp::Delete(entry) => (entry, false),
    }
}

fn is_alike(a: &MapOp, b: &MapOp) -> bool {
    let ((a, put_a), (b, put_b)) = (parts(a), parts(b));
    map_of(a) == map_of(b) && put_a == put_b
}

fn batch<K: aya::Pod, V: aya::Pod>(
    map: &MapData,
    entries: impl Iterator<Item = (K, V)>,
    put: bool,
) -> Result<(), (usize, io::Error)> {
    let (keys, values): (Vec<K>, Vec<V>) = entries.unzip();
    let mut at = 0;
    while at < keys.len() {
        let end = keys.len().min(at + BATCH);
        let values = put.then(|| &values[at..end]);
        match bpf_sys::map_batch(map.fd().as_fd(), &keys[at..end], values) {
            Ok(()) => at = end,
            // What was not there is gone.
            Err((done, error)) if !put && error.raw_os_error() == Some(libc::ENOENT) => at += done + 1,
            Err((done, error)) => return Err((at + done, error)),
        }
    }
    Ok(())
}

fn map_of(entry: &Entry) -> &'static str {
    match entry {
        Entry::Rules(..) => "RULES",
        Entry::Cidr(..) => "CIDR_CLASSES",
        Entry::Resolver(_) => "TRUSTED_RESOLVERS",
        Entry::Identity(..) => "IDENTITIES",
        Entry::NameExact(..) => "NAME_EXACT",
        Entry::NameSuffix(..) => "NAME_SUFFIX",
        Entry::Address(..) => "ADDRESSES",
        Entry::Service(..) => "SERVICES",
        Entry::Endpoint(_) => "ENDPOINTS",
    }
}

pub(super) fn hash<K: aya::Pod, V: aya::Pod>(map: &mut Map, key: &K, value: Option<&V>) -> io::Result<()> {
    let mut map = HashMap::<_, K, V>::try_from(map).map_err(io_error)?;
    match value {
        Some(value) => map.insert(key, value, 0).map_err(io_error),
        None => gone(map.remove(key)),
    }
}

fn trie<K: aya::Pod, V: aya::Pod>(map: &mut Map, key: &Key<K>, value: Option<&V>) -> io::Result<()> {
    let mut map = LpmTrie::<_, K, V>::try_from(map).map_err(io_error)?;
    match value {
        Some(value) => map.insert(key, value, 0).map_err(io_error),
        None => gone(map.remove(key)),
    }
}

/// A removal's result; what was not there is gone.
fn gone(result: Result<(), MapError>) -> io::Result<()> {
    match result.map_err(io_error) {
        Err(error) if error.raw_os_error() == Some(libc::ENOENT) => Ok(()),
        other => other,
    }
}

fn suffix_key(suffix: &Suffix) -> io::Result<Key<[u8; 256]>> {
    let text = suffix.0.as_bytes();
    let mut data = [0; 256];
    let room = data.get_mut(..text.len()).ok_or(io::ErrorKind::InvalidInput)?;
    room.copy_from_slice(text);
    Ok(Key::new(text.len() as u32 * 8, data))
}

/// The system call's error behind aya's.
pub(super) fn io_error(error: MapError) -> io::Error {
    match error {
        MapError::SyscallError(error) => error.io_error,
        MapError::KeyNotFound => io::Error::from_raw_os_error(libc::ENOENT),
        other => io::Error::other(chain(&other)),
    }
}
