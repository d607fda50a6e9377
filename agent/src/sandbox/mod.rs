//! Holding one command: its cgroup, its process, what is taken from it, and what stays possible.
//!
//! Owns everything about CMD that is not the network: who it runs as, what it inherits, which ways out of
//! its cgroup are closed. Knows nothing of policies, maps or packets. The walk of a run:
//!
//! `preflight::check` -> `user::choose` -> `Hierarchy::create` -> (programs attached) -> `escape::detect`
//! -> `child::spawn` -> `signals::supervise` -> `Cgroup::terminate` -> `Cgroup::remove`
//!
//! What holds CMD, by layer:
//! - *cgroup*: entered before the first instruction; a child inherits it, however it daemonises.
//! - *mounts* (`mounts`): no cgroup file system is writable, no bpffs is reachable.
//! - *capabilities* (`caps`) and no_new_privs: no raw sockets, mounts, modules; setuid programs gain nothing.
//! - *Landlock* (`landlock`): no ptrace of a process outside, so none of its sockets or mounts either.
//! - *system calls* (`seccomp`): no socket families that leave the machine past the hooks.
//! - *descriptors* (`fds`): no socket and no directory from outside.

pub mod caps;
pub mod cgroup;
pub mod child;
mod confine;
mod empty;
pub mod escape;
pub mod fds;
pub mod landlock;
pub mod mounts;
pub mod preflight;
pub mod process;
pub mod seccomp;
pub mod signals;
mod stage;
pub mod user;
