//! Worlds of network namespaces: made per test, unique, removed on drop even when the test panics.
//! Knows addresses and routes; knows nothing of DNS, of servers or of Egret.

mod builder;
mod ip;
mod ns;
mod orphans;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

pub use builder::WorldBuilder;
pub use ns::Ns;

use crate::exec::Place;
use crate::lock::Lock;

/// Client's addresses in the standard world.
pub const CLIENT_V4: &str = "10.7.0.2";
/// Client's IPv6 address.
pub const CLIENT_V6: &str = "2001:db8:7::2";
/// Resolver's addresses in the standard world.
pub const RESOLVER_V4: &str = "10.7.0.53";
/// Resolver's IPv6 address.
pub const RESOLVER_V6: &str = "2001:db8:7::53";

/// A set of network namespaces with the links between them.
#[derive(Debug)]
pub struct World {
    namespaces: BTreeMap<String, Arc<Ns>>,
    dir: PathBuf,
    _lock: Lock,
}

impl World {
    /// The world of CASES.md: `c`, `d` and `w` around the router `r`.
    pub fn standard() -> Self {
        WorldBuilder::standard().build()
    }

    /// The standard world, with no other world beside it on this machine.
    pub fn exclusive() -> Self {
        WorldBuilder::standard().exclusive().build()
    }

    /// The namespace that the builder called `name`.
    pub fn ns(&self, name: &str) -> &Arc<Ns> {
        self.namespaces.get(name).unwrap_or_else(|| panic!("this world has no namespace {name}"))
    }

    /// A place for processes: namespace `name`, resolv.conf pointing to the standard resolver.
    pub fn place(&self, name: &str) -> Place {
        Place::new(self.ns(name), &self.dir)
    }

    /// A directory of this world alone, removed with it.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Runs one `ip` command inside a namespace (`world.ip("r", "link set vw mtu 1300")`).
    pub fn ip(&self, name: &str, command: &str) {
        ip::batch(Some(self.ns(name).name()), &[command.to_string()]);
    }
}

impl Drop for World {
    fn drop(&mut self) {
        let names: Vec<&str> = self.namespaces.values().map(|ns| ns.name()).collect();
        orphans::delete(&names);
        let _ = std::fs::remove_dir_all(&self.dir);
    }
}

/// Why worlds cannot be made here, or `None` where they can.
pub fn unavailable() -> Option<String> {
    if !nix::unistd::geteuid().is_root() {
        return Some("not root: network namespaces need it".into());
    }
    let found = std::env::var_os("PATH")
        .is_some_and(|path| std::env::split_paths(&path).any(|dir| dir.join("ip").exists()));
    (!found).then(|| "no `ip` (iproute2) in PATH".into())
}
