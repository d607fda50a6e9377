//! Writing the agent's maps, one step of a diff at a time.

use std::io;

use aya::maps::{Array, HashMap, LpmTrie, Map, MapError, lpm_trie::Key};
use egret_common::{
    maps::{
        Backends, CidrKey, Endpoint, NAME_CAP, ResolverKey, RuleChunk, RuleKey, ServiceKey, SuffixClasses,
    },
    net::Addr,
};
use egret_core::desired::{Entry, MapOp, Suffix};

use super::{ApplyError, Datapath, load::chain};

impl Datapath {
    /// Performs the steps in their order. A delete of what is not there is done already.
    ///
    /// # Errors
    /// The first step that fails, with its map and key; the steps before it are done, the ones behind it are not.
    pub fn apply(&mut self, ops: &[MapOp]) -> Result<(), ApplyError> {
        ops.iter().try_for_each(|op| {
            let (entry, put) = match op {
                MapOp::Put(entry) => (entry, true),
                MapOp::Delete(entry) => (entry, false),
            };
            self.write(entry, put).map_err(|error| ApplyError {
                map: map_of(entry),
                entry: entry.to_string(),
                error,
            })
        })
    }

    fn write(&mut self, entry: &Entry, put: bool) -> io::Result<()> {
        let map = self.ebpf.map_mut(map_of(entry)).ok_or(io::ErrorKind::NotFound)?;
        match entry {
            Entry::Rules(key, chunk) => hash::<RuleKey, RuleChunk>(map, key, put.then_some(chunk)),
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
                let mut array = Array::<_, Endpoint>::try_from(map).map_err(io_error)?;
                let value = if put { *endpoint } else { Endpoint::default() };
                array.set(endpoint.id, value, 0).map_err(io_error)
            }
        }
    }
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
