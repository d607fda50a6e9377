//! Where a pod is on this host: its interface, or its cgroup.
//!
//! ```text
//!  annotations ──wish──> Wish ──┐
//!  uid ──kubepods──> cgroup ──> processes ──> network namespace ──netns──> interface on the host's side
//! ```
//! `wish` and `kubepods` are text in, values out; `look` and `netns` ask the host. Nothing here changes anything, and
//! nothing knows policies, programs or maps.

pub mod kubepods;
mod look;
pub mod netns;
pub mod wish;

use std::path::PathBuf;

pub use look::{Host, LookError, Sought};
pub use wish::{Wish, WishError};

/// Where packets of a pod are seen.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Spot {
    /// The host's side of its interface.
    Interface {
        /// Its number in the agent's network namespace.
        ifindex: u32,
        /// Its name now.
        name: String,
    },
    /// A cgroup directory: a pod in the host's network namespace, or a service of a plain host.
    Cgroup(PathBuf),
}

impl std::fmt::Display for Spot {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Interface { ifindex, name } => write!(f, "interface {name} ({ifindex})"),
            Self::Cgroup(path) => write!(f, "cgroup {}", path.display()),
        }
    }
}
