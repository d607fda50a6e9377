//! The kernel's side, as the agent sees it: loading, attaching, pinning, maps. Only this module knows aya.

pub mod bpf_sys;
pub mod cgroup_link;
