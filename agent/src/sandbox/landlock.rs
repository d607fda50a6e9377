//! A Landlock domain around CMD, for one reason: no process in it can ptrace one outside, which
//! `/proc/PID/root`, `pidfd_getfd` and `process_vm_writev` are subject to as well. Without it, a CMD
//! that runs as a user could take over another process of that user.
//!
//! - ABI 6 (kernel 6.12) and later: nothing but scopes, so that signals and abstract Unix sockets stay
//!   inside as well; the file system is not touched.
//! - Earlier: a domain must handle some file-system right. The one taken is making block devices, which
//!   CMD cannot do anyway; the price is that the kernel refuses mounts inside (bubblewrap, podman).

use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};

const CREATE_RULESET_VERSION: u32 = 1;
const RULE_PATH_BENEATH: i32 = 1;
const FS_MAKE_BLOCK: u64 = 1 << 11;
const FS_REFER: u64 = 1 << 13;
const SCOPE_ABSTRACT_UNIX_SOCKET: u64 = 1;
const SCOPE_SIGNAL: u64 = 2;

/// A rule set that the child enters before exec.
#[derive(Debug)]
pub struct Ruleset {
    fd: OwnedFd,
    /// Whether signals and abstract Unix sockets are held inside as well.
    pub scoped: bool,
}

/// The Landlock ABI of the running kernel; 0 if it is not there or switched off.
#[must_use]
pub fn abi() -> i64 {
    let none = std::ptr::null::<u64>();
    // SAFETY: the version query takes a null attribute of size 0.
    unsafe { libc::syscall(libc::SYS_landlock_create_ruleset, none, 0usize, CREATE_RULESET_VERSION) }.max(0)
}

/// Makes the rule set; `None` if the kernel has no Landlock.
pub fn prepare() -> io::Result<Option<Ruleset>> {
    match abi() {
        0 => Ok(None),
        1..=5 => prepare_by_file_system().map(Some),
        _ => {
            let fd = create(&[0, 0, SCOPE_ABSTRACT_UNIX_SOCKET | SCOPE_SIGNAL])?;
            Ok(Some(Ruleset { fd, scoped: true }))
        }
    }
}

fn prepare_by_file_system() -> io::Result<Ruleset> {
    // Renames across directories are refused by every domain that handles files (ABI 2), unless allowed.
    let refer = if abi() >= 2 { FS_REFER } else { 0 };
    let fd = create(&[FS_MAKE_BLOCK | refer])?;
    if refer != 0 {
        #[repr(C, packed)]
        struct PathBeneath {
            allowed: u64,
            parent: i32,
        }
        let root = File::open("/")?;
        let rule = PathBeneath { allowed: refer, parent: root.as_raw_fd() };
        // SAFETY: `rule` has the packed layout of `landlock_path_beneath_attr`.
        let r = unsafe {
            let rule = &raw const rule;
            libc::syscall(libc::SYS_landlock_add_rule, fd.as_raw_fd(), RULE_PATH_BENEATH, rule, 0u32)
        };
        if r != 0 {
            return Err(io::Error::last_os_error());
        }
    }
    Ok(Ruleset { fd, scoped: false })
}

fn create(attr: &[u64]) -> io::Result<OwnedFd> {
    // SAFETY: `attr` is a prefix of `struct landlock_ruleset_attr` (u64 fields) with its size.
    let r =
        unsafe { libc::syscall(libc::SYS_landlock_create_ruleset, attr.as_ptr(), size_of_val(attr), 0u32) };
    let fd = i32::try_from(r).map_err(io::Error::other)?;
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: a new descriptor (close-on-exec) that nobody else owns.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

impl Ruleset {
    pub(super) fn raw(&self) -> RawFd {
        self.fd.as_raw_fd()
    }
}

/// Puts the calling thread into the domain, in the forked child. Needs no_new_privs.
pub(super) fn enter(ruleset: RawFd) -> Result<(), i32> {
    // SAFETY: plain system call on an open descriptor.
    let r = unsafe { libc::syscall(libc::SYS_landlock_restrict_self, ruleset, 0u32) };
    if r == 0 { Ok(()) } else { Err(super::child::errno()) }
}
