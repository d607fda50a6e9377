//! The kernel's side, as the agent sees it: loading, attaching, pinning, maps. Only this module knows aya.
//!
//! Owns the file names under bpffs, the order in which things are loaded and attached, and every write to a map that
//! is the agent's. Must not know: policies, names, what an entry means. The links are ours and pinned: dropping a
//! [`Datapath`] changes nothing for traffic, removing the pins ends it.

mod apply;
mod attach;
pub mod bpf_sys;
mod cgroup;
pub mod cgroup_link;
mod content;
mod error;
mod grant;
mod hz;
mod interface;
mod live;
mod load;
mod pins;
mod purge;
mod read;
mod reader;
mod ring;
mod sizes;
mod startup;
pub mod tc;
mod test_run;
mod testing;

pub use error::{ApplyError, AttachError, LoadError, Mismatch, RunError};
pub use live::Live;
pub use load::{Datapath, Options, POD};
pub use pins::{Instance, ROOT, instances, remove};
pub use read::{CounterRow, Lost, MapFill};
pub use reader::{Grants, Reader, Totals};
pub use ring::{DnsRecord, Record, Ring};
pub use sizes::Sizes;
pub use test_run::TestRun;
