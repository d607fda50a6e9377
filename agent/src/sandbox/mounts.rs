//! CMD's view of the mount tree: what is made read-only and what is covered, planned before the fork.
//!
//! The plan is made from `/proc/self/mountinfo` by a pure function; `Op::apply` runs in the forked child
//! and so neither allocates nor locks. Knows nothing of cgroups' contents or of BPF.
//!
//! - The tree is made private: nothing that is mounted outside later shows up inside.
//! - cgroup file systems and sysfs become read-only, whoever CMD is: a cgroup that systemd delegated to
//!   the user would otherwise be a way out, and `release_agent` or `uevent_helper` start root processes.
//! - bpffs is covered, not only made read-only: `BPF_OBJ_GET` on a read-only mount still hands out a
//!   writable map to uid 0, and with it the firewall's tables.
//! - For a CMD that is uid 0, `/proc/sys` (core_pattern, modprobe) and the other writable corners of proc
//!   become read-only. Others cannot write there anyway, and keep the right to mount proc in a namespace
//!   of their own (browsers, bubblewrap).
//! - Sockets that answer name look-ups which no packet shows are covered, so that glibc asks by DNS.

use std::ffi::{CStr, CString};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use super::child::errno;

const CGROUP_MAGIC: i64 = 0x0027_e0eb;
const CGROUP2_MAGIC: i64 = 0x6367_7270;
const BPF_MAGIC: i64 = 0xcafe_4a11;
const SYSFS_MAGIC: i64 = 0x6265_6572;
const AT_RECURSIVE: i32 = 0x8000;
const MOUNT_ATTR_RDONLY: u64 = 1;

/// Sockets through which a resolver library gets names without a packet that egret could see.
const NAME_SOCKETS: [&str; 5] = [
    "/run/systemd/resolve/io.systemd.Resolve",
    "/run/systemd/resolve/io.systemd.Resolve.Monitor",
    "/run/nscd/socket",
    "/var/run/nscd/socket",
    "/run/avahi-daemon/socket",
];
/// Parts of proc that let uid 0 make the kernel act or start a process outside; as container engines do.
const PROC_PARTS: [&str; 5] = ["sys", "sysrq-trigger", "bus", "fs", "irq"];

/// One line of `/proc/self/mountinfo`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mount {
    /// What of the file system is mounted (`/` unless it is a bind mount of a part).
    pub root: PathBuf,
    /// Where, seen from this process's root.
    pub point: PathBuf,
    /// File system type: `cgroup2`, `bpf`, ...
    pub fs_type: String,
}

/// The mounts that this process sees.
pub fn table() -> io::Result<Vec<Mount>> {
    Ok(std::fs::read("/proc/self/mountinfo")?.split(|b| *b == b'\n').filter_map(parse_line).collect())
}

/// `36 35 98:0 /root /point rw,noatime master:1 - ext3 /dev/root rw`, with `\040` for a blank.
fn parse_line(line: &[u8]) -> Option<Mount> {
    let words: Vec<&[u8]> = line.split(|b| *b == b' ').collect();
    let dash = words.iter().position(|w| *w == b"-")?;
    Some(Mount {
        root: unescape(words.get(3)?),
        point: unescape(words.get(4)?),
        fs_type: String::from_utf8_lossy(words.get(dash + 1)?).into_owned(),
    })
}

fn unescape(word: &[u8]) -> PathBuf {
    let mut out = Vec::with_capacity(word.len());
    let mut rest = word;
    while let Some((first, tail)) = rest.split_first() {
        let octal = tail.get(..3).filter(|_| *first == b'\\').and_then(|d| {
            d.iter().try_fold(0u32, |n, c| (b'0'..=b'7').contains(c).then(|| n * 8 + u32::from(c - b'0')))
        });
        match octal {
            Some(byte) => {
                out.push(byte as u8);
                rest = &tail[3..];
            }
            None => {
                out.push(*first);
                rest = tail;
            }
        }
    }
    PathBuf::from(std::ffi::OsStr::from_bytes(&out))
}

/// One change to the child's mount tree.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Op {
    /// `MS_REC | MS_PRIVATE` on `/`.
    Private,
    /// Makes a mount read-only. With a magic number: afterwards no writable file system of that kind
    /// may be left at the path.
    ReadOnly { path: CString, recursive: bool, magic: Option<i64> },
    /// Binds a directory or file over itself and makes that read-only.
    BindReadOnly { path: CString },
    /// An empty read-only tmpfs over a directory. With a magic number: only where such a file system
    /// is what the path shows.
    CoverDir { path: CString, magic: Option<i64> },
    /// `/dev/null` over a file or socket.
    CoverFile { path: CString },
}

/// Plans the child's mount tree. `root_child`: CMD is uid 0 or keeps a capability. `hide`: further
/// paths to cover (`--hide`).
pub(super) fn plan(table: &[Mount], root_child: bool, hide: &[PathBuf]) -> io::Result<Vec<Op>> {
    let mut ops = vec![Op::Private];
    for mount in table {
        ops.extend(plan_mount(mount, root_child)?);
    }
    let existing = NAME_SOCKETS.iter().map(Path::new).filter(|p| p.exists());
    for path in existing.chain(hide.iter().map(PathBuf::as_path)) {
        // Links are resolved here: /var/run is one on most systems.
        let real =
            path.canonicalize().map_err(|e| io::Error::new(e.kind(), format!("{}: {e}", path.display())))?;
        let c = c_path(&real)?;
        ops.push(if real.is_dir() {
            Op::CoverDir { path: c, magic: None }
        } else {
            Op::CoverFile { path: c }
        });
    }
    dedup(&mut ops);
    Ok(ops)
}

fn plan_mount(mount: &Mount, root_child: bool) -> io::Result<Vec<Op>> {
    let path = c_path(&mount.point)?;
    let read_only = |recursive, magic| vec![Op::ReadOnly { path: path.clone(), recursive, magic }];
    Ok(match mount.fs_type.as_str() {
        "bpf" if mount.point.is_dir() => vec![Op::CoverDir { path, magic: Some(BPF_MAGIC) }],
        "bpf" => vec![Op::CoverFile { path }],
        "cgroup" => read_only(false, Some(CGROUP_MAGIC)),
        "cgroup2" => read_only(false, Some(CGROUP2_MAGIC)),
        "sysfs" => read_only(true, Some(SYSFS_MAGIC)),
        "debugfs" | "tracefs" | "securityfs" | "configfs" | "efivarfs" | "binfmt_misc" => {
            read_only(false, None)
        }
        "proc" if root_child && mount.root == Path::new("/") => {
            let parts = PROC_PARTS.iter().map(|p| mount.point.join(p)).filter(|p| p.exists());
            parts.map(|p| Ok(Op::BindReadOnly { path: c_path(&p)? })).collect::<io::Result<_>>()?
        }
        "proc" if root_child => read_only(false, None),
        _ => Vec::new(),
    })
}

fn dedup(ops: &mut Vec<Op>) {
    let mut seen = Vec::new();
    ops.retain(|op| {
        let new = !seen.contains(op);
        if new {
            seen.push(op.clone());
        }
        new
    });
}

fn c_path(path: &Path) -> io::Result<CString> {
    Ok(CString::new(path.as_os_str().as_bytes())?)
}

impl Op {
    /// Carries the change out, in the forked child: no allocation, no lock. Gives errno.
    pub(super) fn apply(&self) -> Result<(), i32> {
        match self {
            Self::Private => mount(None, c"/", None, libc::MS_REC | libc::MS_PRIVATE, None),
            Self::ReadOnly { path, recursive, magic } => {
                let done = set_read_only(path, *recursive);
                read_only_reached(path, *magic, done)
            }
            Self::BindReadOnly { path } => {
                mount(Some(path), path, None, libc::MS_BIND | libc::MS_REC, None)?;
                set_read_only(path, true)
            }
            Self::CoverDir { path, magic } => {
                if magic.is_some_and(|m| stat_fs(path).map(|s| s.0) != Ok(m)) {
                    return Ok(()); // something else is mounted over it: it cannot be reached
                }
                let flags = libc::MS_RDONLY | libc::MS_NOSUID | libc::MS_NODEV | libc::MS_NOEXEC;
                mount(Some(c"egret"), path, Some(c"tmpfs"), flags, Some(c"size=4k,mode=0555"))
            }
            Self::CoverFile { path } => match mount(Some(c"/dev/null"), path, None, libc::MS_BIND, None) {
                Err(libc::ENOENT) => Ok(()), // gone since the plan was made
                other => other,
            },
        }
    }
}

/// Judges a read-only attempt by its result: a mount that is hidden under another one cannot be set,
/// and need not be.
fn read_only_reached(path: &CStr, magic: Option<i64>, done: Result<(), i32>) -> Result<(), i32> {
    match (stat_fs(path), magic) {
        (Err(libc::ENOENT | libc::ENOTDIR), _) => Ok(()),
        (Ok((found, _)), Some(wanted)) if found != wanted => Ok(()),
        (Ok((_, true)), Some(_)) => Ok(()),
        (Ok((_, false)), Some(_)) => Err(done.err().unwrap_or(libc::EROFS)),
        (Ok(_), None) if done == Err(libc::EINVAL) => Ok(()),
        (Ok(_), None) => done,
        (Err(e), _) => Err(e),
    }
}

/// True when the working directory lies inside a bpffs, which a cover would not hide from it.
pub(super) fn cwd_in_bpffs() -> bool {
    stat_fs(c".").is_ok_and(|(magic, _)| magic == BPF_MAGIC)
}

/// Magic number of the file system at `path`, and whether its mount is read-only. A raw call, since libc
/// hides `f_flags`.
fn stat_fs(path: &CStr) -> Result<(i64, bool), i32> {
    // `struct statfs` on 64-bit architectures: 15 words, f_type first, f_flags the eleventh.
    let mut st = [0i64; 15];
    // SAFETY: `path` is a C string and `st` has the structure's size.
    if unsafe { libc::syscall(libc::SYS_statfs, path.as_ptr(), st.as_mut_ptr()) } != 0 {
        return Err(errno());
    }
    Ok((st[0], st[10] as u64 & libc::ST_RDONLY != 0))
}

fn mount(
    source: Option<&CStr>,
    target: &CStr,
    fs: Option<&CStr>,
    flags: libc::c_ulong,
    data: Option<&CStr>,
) -> Result<(), i32> {
    let ptr = |s: Option<&CStr>| s.map_or(std::ptr::null(), CStr::as_ptr);
    // SAFETY: every pointer is null or a C string that lives through the call.
    let r = unsafe { libc::mount(ptr(source), target.as_ptr(), ptr(fs), flags, ptr(data).cast()) };
    if r == 0 { Ok(()) } else { Err(errno()) }
}

/// `mount_setattr(2)` (kernel 5.12): sets one flag and keeps the others, unlike a remount.
fn set_read_only(path: &CStr, recursive: bool) -> Result<(), i32> {
    let attr = [MOUNT_ATTR_RDONLY, 0, 0, 0];
    let flags = if recursive { AT_RECURSIVE } else { 0 };
    // SAFETY: `attr` has the layout of `struct mount_attr` (four u64) and its size is passed.
    let r = unsafe {
        libc::syscall(
            libc::SYS_mount_setattr,
            libc::AT_FDCWD,
            path.as_ptr(),
            flags,
            attr.as_ptr(),
            size_of_val(&attr),
        )
    };
    if r == 0 { Ok(()) } else { Err(errno()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mountinfo_lines() {
        let line = b"41 31 0:38 /a\\040b /sys/fs/cgroup/unified rw,relatime shared:4 - cgroup2 cgroup2 rw";
        let mount = parse_line(line).expect("a mount");
        assert_eq!(mount.root, Path::new("/a b"));
        assert_eq!(mount.point, Path::new("/sys/fs/cgroup/unified"));
        assert_eq!(mount.fs_type, "cgroup2");
        assert_eq!(parse_line(b""), None);
        assert_eq!(unescape(b"x\\9"), Path::new("x\\9"));
    }

    #[test]
    fn cgroups_are_read_only_for_everybody_and_proc_only_for_root() {
        let at = |point: &str, fs: &str| Mount { root: "/".into(), point: point.into(), fs_type: fs.into() };
        let table =
            [at("/proc", "proc"), at("/cg", "cgroup2"), at("/sys/fs/bpf", "bpf"), at("/cg", "cgroup2")];
        let user = plan(&table, false, &[]).expect("plan");
        let root = plan(&table, true, &[]).expect("plan");
        let cg = Op::ReadOnly { path: c"/cg".into(), recursive: false, magic: Some(CGROUP2_MAGIC) };
        assert_eq!(user.iter().filter(|o| **o == cg).count(), 1);
        let sys = Op::BindReadOnly { path: c"/proc/sys".into() };
        assert!(!user.contains(&sys) && root.contains(&sys));
    }
}
