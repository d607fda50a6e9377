//! What can go wrong between the agent and the kernel, by cause.

use std::{io, path::PathBuf};

use super::{cgroup_link, tc::TcError};

/// Why the datapath could not be loaded.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// Built with `EGRET_SKIP_BPF=1`, or by clippy without a BPF toolchain.
    #[error("this build of egret holds no BPF programs (EGRET_SKIP_BPF): build it again without")]
    NoObject,
    /// The directory for the pins could not be made.
    #[error("cannot make {path} (is a BPF file system mounted there?): {error}")]
    Directory {
        /// The directory.
        path: PathBuf,
        /// What the kernel said.
        error: io::Error,
    },
    /// The kernel's tick rate could not be measured.
    #[error("cannot measure the kernel's tick rate: {0}")]
    Hz(io::Error),
    /// The embedded object, or the creation of a map.
    #[error("cannot create the maps: {0}")]
    Object(String),
    /// The kernel does not take a program.
    #[error("the kernel refuses program {program}: {error}\n{verifier}")]
    Refused {
        /// The program.
        program: String,
        /// What the kernel said.
        error: String,
        /// The last lines of the verifier's log.
        verifier: String,
    },
    /// The object lacks a program or map, or it is of another type.
    #[error("the embedded BPF object has no {kind} {name} as this agent expects it")]
    Missing {
        /// "map" or "program".
        kind: &'static str,
        /// Its name.
        name: &'static str,
    },
    /// A pinned map was made by a build with other sizes.
    #[error("the pinned map {name} has {found} entries, this build wants {wanted}")]
    Shape {
        /// The map.
        name: &'static str,
        /// Its entries.
        found: u32,
        /// The entries it should have.
        wanted: u32,
    },
    /// Something could not be pinned.
    #[error("cannot pin {path}: {error}")]
    Pin {
        /// The file.
        path: PathBuf,
        /// What the kernel said.
        error: io::Error,
    },
}

/// Why the programs could not be attached to a cgroup or an interface. What was attached before the error stays pinned: remove the
/// instance.
#[derive(Debug, thiserror::Error)]
pub enum AttachError {
    /// A foreign program is in the way, or the kernel refuses.
    #[error(transparent)]
    Link(#[from] cgroup_link::AttachError),
    /// A link could not be pinned.
    #[error("cannot pin {path}: {error}")]
    Pin {
        /// The file.
        path: PathBuf,
        /// What the kernel said.
        error: io::Error,
    },
    /// A program is not in its place on an interface.
    #[error("interface {ifindex} ({hook}): {error}")]
    Interface {
        /// The interface.
        ifindex: u32,
        /// The hook.
        hook: &'static str,
        /// Why.
        error: TcError,
    },
    /// The programs for a cgroup of this level could not be loaded.
    #[error(transparent)]
    Load(#[from] LoadError),
    /// Attached, but the kernel does not show it.
    #[error(transparent)]
    Mismatch(#[from] Mismatch),
}

/// What is on a hook, or behind it, is not what was put there (CASES L-A02).
#[derive(Debug, thiserror::Error)]
pub enum Mismatch {
    /// The hook could not be asked.
    #[error("cannot see what is attached to {cgroup} ({hook}): {error}")]
    Unknown {
        /// The cgroup directory.
        cgroup: PathBuf,
        /// The hook.
        hook: &'static str,
        /// What the kernel said.
        error: io::Error,
    },
    /// Our program is not on the hook.
    #[error("{hook} of {cgroup} does not run egret's program {expected}: it runs {found:?}")]
    NotAttached {
        /// The cgroup directory.
        cgroup: PathBuf,
        /// The hook.
        hook: &'static str,
        /// Id of our program.
        expected: u32,
        /// Ids of the programs there.
        found: Vec<u32>,
    },
    /// The program uses other maps than the ones that the agent writes.
    #[error(
        "program {program} uses maps {found:?}; {map} (id {expected}), which egret writes, is not among them"
    )]
    OtherMap {
        /// The program.
        program: String,
        /// The map.
        map: &'static str,
        /// Its id.
        expected: u32,
        /// Ids of the program's maps.
        found: Vec<u32>,
    },
}

/// A map did not take an entry.
#[derive(Debug, thiserror::Error)]
#[error("{map} does not take {entry}: {error}")]
pub struct ApplyError {
    /// The map.
    pub map: &'static str,
    /// The entry, or its key.
    pub entry: String,
    /// What the kernel said; a full map is E2BIG (hash) or ENOSPC (prefix trie).
    pub error: io::Error,
}

/// A program that the agent runs itself did not run.
#[derive(Debug, thiserror::Error)]
#[error("running {program} failed: {error}")]
pub struct RunError {
    /// The program.
    pub program: &'static str,
    /// What the kernel said, or what the program returned.
    pub error: String,
}
