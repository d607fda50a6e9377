//! Attaching egret's programs to a cgroup beside other tools' programs.
//!
//! Owns the check that no foreign program is in the way, or would be switched off by ours, and the
//! wording when one is. Never detaches anything that is not egret's. Works on file descriptors only:
//! loading programs is the loader's business.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

use super::bpf_sys::{self, ProgInfo};

/// The cgroup hooks that egret uses.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum CgroupHook {
    /// `cgroup_skb/ingress`
    SkbIngress,
    /// `cgroup_skb/egress`
    SkbEgress,
    /// `cgroup/sock_create`
    SockCreate,
    /// `cgroup/connect4`
    Connect4,
    /// `cgroup/connect6`
    Connect6,
    /// `cgroup/sendmsg4`
    SendMsg4,
    /// `cgroup/sendmsg6`
    SendMsg6,
}

impl CgroupHook {
    /// Every hook, in the order in which they are attached: the boundary first.
    pub const ALL: [Self; 7] = [
        Self::SkbEgress,
        Self::SkbIngress,
        Self::SockCreate,
        Self::Connect4,
        Self::Connect6,
        Self::SendMsg4,
        Self::SendMsg6,
    ];

    /// `enum bpf_attach_type` of linux/bpf.h; also the program's expected attach type.
    #[must_use]
    pub fn attach_type(self) -> u32 {
        match self {
            Self::SkbIngress => 0,
            Self::SkbEgress => 1,
            Self::SockCreate => 2,
            Self::Connect4 => 10,
            Self::Connect6 => 11,
            Self::SendMsg4 => 14,
            Self::SendMsg6 => 15,
        }
    }

    /// `enum bpf_prog_type` of linux/bpf.h.
    #[must_use]
    pub fn prog_type(self) -> u32 {
        match self {
            Self::SkbIngress | Self::SkbEgress => 8,
            Self::SockCreate => 9,
            Self::Connect4 | Self::Connect6 | Self::SendMsg4 | Self::SendMsg6 => 18,
        }
    }

    /// The hook's name in messages and in pin paths (no dot: bpffs refuses dots).
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::SkbIngress => "skb_ingress",
            Self::SkbEgress => "skb_egress",
            Self::SockCreate => "sock_create",
            Self::Connect4 => "connect4",
            Self::Connect6 => "connect6",
            Self::SendMsg4 => "sendmsg4",
            Self::SendMsg6 => "sendmsg6",
        }
    }
}

/// A program of another tool.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Foreign {
    /// Name and id, as far as the kernel tells them.
    pub program: ProgInfo,
    /// The cgroup it is attached to.
    pub cgroup: PathBuf,
    /// The hook.
    pub hook: CgroupHook,
}

impl std::fmt::Display for Foreign {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let name = if self.program.name.is_empty() { "(unnamed)" } else { &self.program.name };
        let (id, hook) = (self.program.id, self.hook.name());
        write!(f, "program {name} id {id} at {} ({hook})", self.cgroup.display())
    }
}

/// Why a program could not be attached.
#[derive(Debug, thiserror::Error)]
pub enum AttachError {
    /// The kernel would say EPERM: an exclusive program on this cgroup or the nearest ancestor that
    /// has one, or an overridable one on this very cgroup.
    #[error(
        "EPERM: {0} is attached exclusively; detach it, or have its owner attach it with BPF_F_ALLOW_MULTI"
    )]
    Exclusive(Foreign),
    /// The kernel would accept, and silently stop running that program for our cgroup.
    #[error(
        "{0} is attached with BPF_F_ALLOW_OVERRIDE: attaching below would switch it off for this run; have its owner attach it with BPF_F_ALLOW_MULTI, or accept that"
    )]
    WouldOverride(Foreign),
    /// The kernel refused for a reason that the check did not see.
    #[error("cannot attach {hook} to {cgroup}: {error}")]
    Kernel {
        /// The hook's name.
        hook: &'static str,
        /// The cgroup directory.
        cgroup: PathBuf,
        /// What the kernel said.
        error: io::Error,
    },
}

/// Attaches `prog` to the cgroup directory `cgroup` below the cgroup2 mount `mount`. The link detaches
/// when it is closed, unless it is pinned (`bpf_sys::pin`). With `accept_override` a foreign program
/// that ours would switch off is no obstacle.
pub fn attach(
    prog: BorrowedFd<'_>,
    cgroup: &Path,
    mount: &Path,
    hook: CgroupHook,
    accept_override: bool,
) -> Result<OwnedFd, AttachError> {
    match obstacle(cgroup, mount, hook) {
        Ok(None) => {}
        Ok(Some(AttachError::WouldOverride(_))) if accept_override => {}
        Ok(Some(error)) => return Err(error),
        Err(error) => return Err(kernel_error(cgroup, hook, error)),
    }
    let dir = File::open(cgroup).map_err(|e| kernel_error(cgroup, hook, e))?;
    bpf_sys::link_create(prog, dir.as_fd(), hook.attach_type()).map_err(|e| kernel_error(cgroup, hook, e))
}

/// What would keep a program from being attached to `cgroup`, found by the kernel's own rule
/// (`hierarchy_allows_attach`): on the cgroup itself any program that is not "multi"; above it only
/// the nearest cgroup that has programs counts.
pub fn obstacle(cgroup: &Path, mount: &Path, hook: CgroupHook) -> io::Result<Option<AttachError>> {
    let own = attached(cgroup, hook)?;
    if !own.programs.is_empty() {
        let multi = own.flags & bpf_sys::F_ALLOW_MULTI != 0;
        return Ok((!multi).then(|| AttachError::Exclusive(foreign(cgroup, hook, &own))));
    }
    for ancestor in cgroup.ancestors().skip(1).take_while(|a| a.starts_with(mount)) {
        let there = attached(ancestor, hook)?;
        if there.programs.is_empty() {
            continue;
        }
        if there.flags & bpf_sys::F_ALLOW_MULTI != 0 {
            return Ok(None);
        }
        let it = foreign(ancestor, hook, &there);
        let overridable = there.flags & bpf_sys::F_ALLOW_OVERRIDE != 0;
        return Ok(Some(if overridable {
            AttachError::WouldOverride(it)
        } else {
            AttachError::Exclusive(it)
        }));
    }
    Ok(None)
}

/// Ids of all programs that run for `cgroup` on `hook`, in order, ancestors' included.
pub fn effective(cgroup: &Path, hook: CgroupHook) -> io::Result<Vec<u32>> {
    let dir = File::open(cgroup)?;
    Ok(bpf_sys::query(dir.as_fd(), hook.attach_type(), true)?.programs)
}

/// The programs attached to `cgroup` itself, and its flags for the hook.
pub fn attached(cgroup: &Path, hook: CgroupHook) -> io::Result<bpf_sys::Query> {
    let dir = File::open(cgroup)?;
    bpf_sys::query(dir.as_fd(), hook.attach_type(), false)
}

fn foreign(cgroup: &Path, hook: CgroupHook, found: &bpf_sys::Query) -> Foreign {
    let id = found.programs.first().copied().unwrap_or_default();
    // The id may be gone again by now; the id alone is still worth printing.
    let program = bpf_sys::prog_info_by_id(id).unwrap_or_else(|_| ProgInfo {
        id,
        prog_type: hook.prog_type(),
        name: String::new(),
    });
    Foreign { program, cgroup: cgroup.to_owned(), hook }
}

fn kernel_error(cgroup: &Path, hook: CgroupHook, error: io::Error) -> AttachError {
    AttachError::Kernel { hook: hook.name(), cgroup: cgroup.to_owned(), error }
}

/// The level of the cgroup directory `cgroup` for `bpf_skb_ancestor_cgroup_id`; the root has level 0.
/// `own` is this process's cgroup. Where the mount shows the whole hierarchy (its root has id 1) that is
/// the depth. Inside a cgroup namespace only the kernel knows how deep the visible root lies, and a program
/// that compares ids finds out.
pub fn level(cgroup: &Path, own: &Path, mount: &Path) -> io::Result<u32> {
    use std::os::unix::fs::MetadataExt;
    let depth =
        |p: &Path| p.strip_prefix(mount).map(|r| r.components().count() as u32).map_err(io::Error::other);
    if std::fs::metadata(mount)?.ino() == 1 {
        return depth(cgroup);
    }
    let own_level = probe_level(std::fs::metadata(own)?.ino())?;
    Ok((own_level + depth(cgroup)?).saturating_sub(depth(own)?))
}

/// The level at which this process's ancestor is `id`, asked of the kernel by test runs.
pub fn probe_level(id: u64) -> io::Result<u32> {
    for level in 0..64 {
        let hook = CgroupHook::SkbIngress;
        let insns = ancestor_program(level, id);
        let prog = bpf_sys::prog_load(hook.prog_type(), hook.attach_type(), "egret_level", &insns)?;
        if bpf_sys::test_run(prog.as_fd())? == 1 {
            return Ok(level);
        }
    }
    Err(io::Error::new(io::ErrorKind::NotFound, "the level of the own cgroup cannot be found"))
}

/// `return bpf_skb_ancestor_cgroup_id(ctx, level) == id`.
fn ancestor_program(level: u32, id: u64) -> [u64; 9] {
    let imm = |value: u32| u64::from(value) << 32;
    [
        imm(level) | 0x02b7,     // r2 = level
        imm(83) | 0x85,          // call bpf_skb_ancestor_cgroup_id
        imm(id as u32) | 0x0118, // r1 = id, low half
        imm((id >> 32) as u32),  // high half
        2 << 16 | 0x1000 | 0x1d, // if r0 == r1 goto +2
        0xb7,                    // r0 = 0
        0x95,                    // exit
        imm(1) | 0xb7,           // r0 = 1
        0x95,                    // exit
    ]
}
