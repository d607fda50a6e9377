//! Our programs on an interface, beside other tools' programs: first in the chain, and found there again.
//!
//! ```text
//!  kernel >= 6.6  TCX: a pinned link per hook; the program in it is replaced, the link stays
//!  before         clsact: a filter at a fixed priority and handle, which is its name
//! ```
//! Owns which way is taken, and what "in its place" means. Never detaches a program that is not ours. Works on file
//! descriptors: loading programs is the loader's business. An interface is one of this thread's network namespace.

mod clsact;
mod tcx;

use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

use super::bpf_sys::{self, ProgInfo};

pub use clsact::{GUARD_HANDLE, HANDLE, PRIORITY};

/// `BPF_PROG_TYPE_SCHED_CLS`.
const SCHED_CLS: u32 = 3;
/// `TC_ACT_SHOT`.
const DROP: u32 = 2;
/// First part of the names of our programs.
const OURS: &str = "egret_";

/// The two hooks of a pod's interface on the host's side.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum TcHook {
    /// Packets that the pod sends: ingress of the interface.
    FromPod,
    /// Packets that the pod receives: egress of the interface.
    ToPod,
}

impl TcHook {
    /// Both, in the order in which they are attached.
    pub const ALL: [Self; 2] = [Self::FromPod, Self::ToPod];

    /// The hook's name in messages and pin paths.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::FromPod => "from_pod",
            Self::ToPod => "to_pod",
        }
    }

    /// The program that belongs there.
    #[must_use]
    pub fn program(self) -> &'static str {
        match self {
            Self::FromPod => "egret_from_pod",
            Self::ToPod => "egret_to_pod",
        }
    }
}

/// How programs are attached.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Method {
    /// Links (kernel 6.6 and later).
    Tcx,
    /// Filters of a clsact qdisc.
    Clsact,
}

impl std::fmt::Display for Method {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Tcx => "tcx",
            Self::Clsact => "clsact",
        })
    }
}

impl Method {
    /// What this kernel can do.
    pub fn of_kernel() -> Self {
        // Loopback is interface 1 of every network namespace. A kernel without TCX does not know the hook.
        match tcx::query(1, TcHook::FromPod) {
            Err(error) if error.raw_os_error() == Some(libc::EINVAL) => Self::Clsact,
            _ => Self::Tcx,
        }
    }
}

/// One program of a hook's chain.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Member {
    /// Its id; 0 for a filter that is no BPF program.
    pub id: u32,
    /// Its name, or the kind of filter.
    pub name: String,
    /// clsact: priority and handle.
    pub filter: Option<(u16, u32)>,
}

impl std::fmt::Display for Member {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let name = if self.name.is_empty() { "(unnamed)" } else { &self.name };
        write!(f, "{name}")?;
        if self.id != 0 {
            write!(f, " id {}", self.id)?;
        }
        self.filter.map_or(Ok(()), |(priority, handle)| write!(f, " pref {priority} handle {handle:#x}"))
    }
}

/// What was done, or found.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Placed {
    /// Nothing: our program was first already.
    Already,
    /// It was put there, or took the place of an older one of ours.
    Attached,
    /// It was there behind another tool's program, and was moved in front. For some microseconds packets were dropped.
    Moved,
}

/// Why a program is not in its place.
#[derive(Debug, thiserror::Error)]
pub enum TcError {
    /// The kernel lacks what clsact needs.
    #[error("the kernel has no {0}: load it (modprobe {0})")]
    NoModule(&'static str),
    /// A filter of another kind, or for one protocol, holds the first priority.
    #[error("{0} is in front and cannot be joined: have its owner give it another priority than 1")]
    Occupied(Member),
    /// Another tool uses the handle that is ours.
    #[error("{0} has the handle that egret uses: have its owner give it another one")]
    Foreign(Member),
    /// Our program was attached and is not where it was put.
    #[error("another tool puts its program in front again and again: {0}")]
    Contested(Member),
    /// A pin could not be made or removed.
    #[error("{path}: {error}")]
    Pin {
        /// The file.
        path: PathBuf,
        /// What the kernel said.
        error: io::Error,
    },
    /// The kernel refuses.
    #[error("{what}: {error}")]
    Kernel {
        /// What was tried.
        what: &'static str,
        /// What it said.
        error: io::Error,
    },
}

/// A hook of an interface, and where its link is pinned.
#[derive(Debug, Clone, Copy)]
pub struct Place<'a> {
    /// The interface.
    pub ifindex: u32,
    /// The hook.
    pub hook: TcHook,
    /// TCX: directory of the pins.
    pub pins: &'a Path,
    /// The way.
    pub method: Method,
}

impl Place<'_> {
    /// Puts `program` there, first in the chain. An older program of ours is replaced in one step: no packet passes
    /// unseen.
    pub fn put(&self, program: BorrowedFd<'_>) -> Result<Placed, TcError> {
        let id = id_of(program)?;
        let before = self.chain()?;
        if before.first().is_some_and(|first| first.id == id) && self.is_held() {
            return Ok(Placed::Already);
        }
        match self.method {
            Method::Tcx => tcx::put(self, program)?,
            Method::Clsact => clsact::put(self, program)?,
        }
        if self.first()?.is_some_and(|first| first.id == id) {
            return Ok(Placed::Attached);
        }
        match self.method {
            Method::Tcx => tcx::to_front(self, program)?,
            Method::Clsact => clsact::to_front(self, program)?,
        }
        match self.first()? {
            Some(first) if first.id != id => Err(TcError::Contested(first)),
            _ => Ok(Placed::Moved),
        }
    }

    /// Takes our program off. What is gone already is no error.
    pub fn take_off(&self) -> Result<(), TcError> {
        match self.method {
            Method::Tcx => tcx::take_off(self),
            Method::Clsact => clsact::take_off(self),
        }
    }

    /// The chain in the order in which it runs. TCX programs run before clsact filters, which are not shown then.
    pub fn chain(&self) -> Result<Vec<Member>, TcError> {
        match self.method {
            Method::Tcx => tcx::chain(self.ifindex, self.hook),
            Method::Clsact => clsact::chain(self.ifindex, self.hook),
        }
    }

    fn first(&self) -> Result<Option<Member>, TcError> {
        Ok(self.chain()?.into_iter().next())
    }

    /// Whether the program stays when this process goes.
    fn is_held(&self) -> bool {
        self.method == Method::Clsact || tcx::pin_path(self).exists()
    }
}

/// Removes the pins of links whose interface is gone. Gives their number.
pub fn sweep(pins: &Path) -> usize {
    tcx::sweep(pins)
}

fn id_of(program: BorrowedFd<'_>) -> Result<u32, TcError> {
    bpf_sys::prog_info(program).map(|info| info.id).map_err(kernel("asking for a program's id"))
}

fn kernel(what: &'static str) -> impl Fn(io::Error) -> TcError {
    move |error| TcError::Kernel { what, error }
}

/// A program that drops everything: it stands in front while ours is moved.
fn guard() -> Result<OwnedFd, TcError> {
    let program = bpf_sys::prog_load(SCHED_CLS, 0, "egret_guard", &bpf_sys::return_program(DROP));
    program.map_err(kernel("loading the program that stands in"))
}

/// The program with this id; it may be gone again by now.
fn describe(id: u32) -> ProgInfo {
    bpf_sys::prog_info_by_id(id).unwrap_or(ProgInfo { id, prog_type: SCHED_CLS, name: String::new() })
}
