//! The few `bpf(2)` commands that aya 0.14 does not offer: raw system calls with typed arguments.
//!
//! Owns the layout of `union bpf_attr` for those commands (linux/bpf.h, stable ABI). Knows nothing of
//! egret's maps, programs or cgroups' meaning: see `cgroup_link` for that.

use std::ffi::CString;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

const PROG_LOAD: i32 = 5;
const OBJ_PIN: i32 = 6;
const OBJ_GET: i32 = 7;
const PROG_ATTACH: i32 = 8;
const PROG_TEST_RUN: i32 = 10;
const PROG_GET_FD_BY_ID: i32 = 13;
const OBJ_GET_INFO_BY_FD: i32 = 15;
const PROG_QUERY: i32 = 16;
const MAP_LOOKUP_BATCH: i32 = 24;
const MAP_UPDATE_BATCH: i32 = 26;
const MAP_DELETE_BATCH: i32 = 27;
const LINK_CREATE: i32 = 28;
const LINK_UPDATE: i32 = 29;
const LINK_DETACH: i32 = 34;

/// `BPF_F_ALLOW_OVERRIDE`: a program in a descendant cgroup replaces this one there.
pub const F_ALLOW_OVERRIDE: u32 = 1;
/// `BPF_F_ALLOW_MULTI`: programs of this and of descendant cgroups all run.
pub const F_ALLOW_MULTI: u32 = 2;
const F_QUERY_EFFECTIVE: u32 = 1;
/// `BPF_F_BEFORE`: without a relative, in front of everything.
pub const F_BEFORE: u32 = 1 << 3;

/// One `bpf(2)` call. `T` must be the `#[repr(C)]` prefix of `union bpf_attr` for `cmd`, without
/// padding holes; the kernel reads the rest as zero.
fn bpf<T>(cmd: i32, attr: &mut T) -> io::Result<i64> {
    // SAFETY: `attr` is valid for reads and writes of its own size, which is what is passed; pointers
    // inside it were made by the callers below from live borrows.
    let r = unsafe { libc::syscall(libc::SYS_bpf, cmd, std::ptr::from_mut(attr), size_of::<T>()) };
    if r < 0 { Err(io::Error::last_os_error()) } else { Ok(r) }
}

fn bpf_fd<T>(cmd: i32, attr: &mut T) -> io::Result<OwnedFd> {
    let fd = bpf(cmd, attr)?;
    let fd = i32::try_from(fd).map_err(io::Error::other)?;
    // SAFETY: the command returned a new file descriptor (O_CLOEXEC) that nobody else owns.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// `BPF_LINK_CREATE`: attaches `prog` to the cgroup directory `target`. Dropping the link detaches,
/// unless it is pinned. Since kernel 5.7; always of the "multi" kind.
pub fn link_create(prog: BorrowedFd<'_>, target: BorrowedFd<'_>, attach_type: u32) -> io::Result<OwnedFd> {
    bpf_fd(LINK_CREATE, &mut [prog.as_raw_fd() as u32, target.as_raw_fd() as u32, attach_type, 0])
}

/// `BPF_LINK_UPDATE`: puts `prog` in the place of the link's program, without a gap.
/// `ENOLINK`: the cgroup is gone.
pub fn link_update(link: BorrowedFd<'_>, prog: BorrowedFd<'_>) -> io::Result<()> {
    bpf(LINK_UPDATE, &mut [link.as_raw_fd() as u32, prog.as_raw_fd() as u32, 0, 0]).map(drop)
}

/// `BPF_LINK_CREATE` on an interface, in front of all programs of the hook (TCX, since kernel 6.6; before: `EINVAL`).
pub fn link_create_tcx(prog: BorrowedFd<'_>, ifindex: u32, attach_type: u32) -> io::Result<OwnedFd> {
    // Behind the flags: no relative, any revision.
    bpf_fd(LINK_CREATE, &mut [prog.as_raw_fd() as u32, ifindex, attach_type, F_BEFORE, 0, 0, 0, 0])
}

/// `BPF_LINK_DETACH`: takes the program off its hook at once; the link itself goes with its last holder.
pub fn link_detach(link: BorrowedFd<'_>) -> io::Result<()> {
    bpf(LINK_DETACH, &mut [link.as_raw_fd() as u32]).map(drop)
}

/// What a TCX link is attached to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TcxLink {
    /// Id of the program.
    pub program: u32,
    /// The interface; 0 when it is gone, or the link was detached.
    pub ifindex: u32,
    /// `BPF_TCX_INGRESS` or `BPF_TCX_EGRESS`.
    pub attach_type: u32,
}

/// `BPF_OBJ_GET_INFO_BY_FD` for a TCX link.
pub fn tcx_link(link: BorrowedFd<'_>) -> io::Result<TcxLink> {
    // Layout: type, id, program, pad, then ifindex and attach type.
    let mut info = [0u32; 8];
    info_by_fd(link, info.as_mut_ptr() as u64, size_of_val(&info) as u32)?;
    Ok(TcxLink { program: info[2], ifindex: info[4], attach_type: info[5] })
}

#[repr(C)]
struct ObjAttr {
    pathname: u64,
    fd: u32,
    flags: u32,
}

/// `BPF_OBJ_PIN`: pins a link, program or map under bpffs. File names must not contain a dot.
pub fn pin(object: BorrowedFd<'_>, path: &Path) -> io::Result<()> {
    let path = CString::new(path.as_os_str().as_bytes())?;
    let mut attr = ObjAttr { pathname: path.as_ptr() as u64, fd: object.as_raw_fd() as u32, flags: 0 };
    bpf(OBJ_PIN, &mut attr).map(drop)
}

/// `BPF_OBJ_GET`: opens what is pinned at `path`.
pub fn get(path: &Path) -> io::Result<OwnedFd> {
    let path = CString::new(path.as_os_str().as_bytes())?;
    bpf_fd(OBJ_GET, &mut ObjAttr { pathname: path.as_ptr() as u64, fd: 0, flags: 0 })
}

#[repr(C)]
struct BatchAttr {
    in_batch: u64,
    out_batch: u64,
    keys: u64,
    values: u64,
    count: u32,
    map: u32,
    elem_flags: u64,
    flags: u64,
}

/// `BPF_MAP_UPDATE_BATCH`, or without values `BPF_MAP_DELETE_BATCH` (hashes since kernel 5.6, tries since 5.13).
///
/// # Errors
/// The first entry that fails; those before it are done.
pub fn map_batch<K: aya::Pod, V: aya::Pod>(
    map: BorrowedFd<'_>,
    keys: &[K],
    values: Option<&[V]>,
) -> Result<(), (usize, io::Error)> {
    let given = keys.len().min(values.map_or(keys.len(), <[V]>::len));
    let mut attr = BatchAttr {
        in_batch: 0,
        out_batch: 0,
        keys: keys.as_ptr() as u64,
        values: values.map_or(0, |values| values.as_ptr() as u64),
        count: given as u32,
        map: map.as_raw_fd() as u32,
        elem_flags: 0,
        flags: 0,
    };
    let cmd = if values.is_some() { MAP_UPDATE_BATCH } else { MAP_DELETE_BATCH };
    let done = bpf(cmd, &mut attr);
    // What the kernel does not take at all leaves the count alone.
    let count = if attr.count as usize == given { 0 } else { attr.count as usize };
    done.map(drop).map_err(|error| (count, error))
}

/// `BPF_MAP_LOOKUP_BATCH` on an array, per CPU or not (since kernel 5.13): the values from index `first` on, as many as
/// `values` has room for; of an array per CPU, `cpus` in a row belong to one index. Gives how many indexes were read.
pub fn array_batch<V: aya::Pod>(
    map: BorrowedFd<'_>,
    first: u32,
    values: &mut [V],
    cpus: usize,
) -> io::Result<usize> {
    let mut keys = vec![0u32; values.len() / cpus.max(1)];
    // The kernel goes on behind the index that it is given.
    let (before, mut last) = (first.wrapping_sub(1), 0u32);
    let mut attr = BatchAttr {
        in_batch: if first == 0 { 0 } else { &raw const before as u64 },
        out_batch: &raw mut last as u64,
        keys: keys.as_mut_ptr() as u64,
        values: values.as_mut_ptr() as u64,
        count: keys.len() as u32,
        map: map.as_raw_fd() as u32,
        elem_flags: 0,
        flags: 0,
    };
    match bpf(MAP_LOOKUP_BATCH, &mut attr) {
        // The array ended before the room did.
        Err(error) if error.raw_os_error() != Some(libc::ENOENT) => Err(error),
        _ => Ok(attr.count as usize),
    }
}

/// What hangs on one hook of a cgroup.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Query {
    /// The cgroup's own flags for the hook (0 = exclusive). Zero for an effective query.
    pub flags: u32,
    /// Program ids in the order in which they run.
    pub programs: Vec<u32>,
}

#[repr(C)]
#[derive(Default)]
struct QueryAttr {
    target: u32,
    attach_type: u32,
    query_flags: u32,
    attach_flags: u32,
    prog_ids: u64,
    prog_cnt: u32,
    pad: u32,
    prog_attach_flags: u64,
    link_ids: u64,
    link_attach_flags: u64,
    /// Written by the kernel (TCX, and cgroups since 6.17) however short the caller's attributes are.
    revision: u64,
}

/// `BPF_PROG_QUERY` on a cgroup directory. `effective`: everything that runs for the cgroup,
/// ancestors' programs included; otherwise only what is attached to it.
pub fn query(cgroup: BorrowedFd<'_>, attach_type: u32, effective: bool) -> io::Result<Query> {
    let flags = if effective { F_QUERY_EFFECTIVE } else { 0 };
    query_target(cgroup.as_raw_fd() as u32, attach_type, flags)
}

/// `BPF_PROG_QUERY` on an interface of this network namespace (TCX). `EINVAL` before kernel 6.6.
pub fn query_tcx(ifindex: u32, attach_type: u32) -> io::Result<Query> {
    query_target(ifindex, attach_type, 0)
}

fn query_target(target: u32, attach_type: u32, query_flags: u32) -> io::Result<Query> {
    let mut ids = vec![0u32; 64];
    loop {
        let mut attr = QueryAttr {
            target,
            attach_type,
            query_flags,
            prog_ids: ids.as_mut_ptr() as u64,
            prog_cnt: ids.len() as u32,
            ..QueryAttr::default()
        };
        match bpf(PROG_QUERY, &mut attr) {
            Ok(_) => {
                ids.truncate(attr.prog_cnt as usize);
                return Ok(Query { flags: attr.attach_flags, programs: ids });
            }
            Err(e) if e.raw_os_error() == Some(libc::ENOSPC) => ids.resize(ids.len() * 4, 0),
            Err(e) => return Err(e),
        }
    }
}

/// The part of `struct bpf_prog_info` that names a program.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProgInfo {
    /// Kernel-wide id; reused after the program is gone.
    pub id: u32,
    /// `BPF_PROG_TYPE_*`.
    pub prog_type: u32,
    /// Up to 15 bytes; empty if the loader gave none.
    pub name: String,
}

/// `BPF_OBJ_GET_INFO_BY_FD` for a program.
pub fn prog_info(prog: BorrowedFd<'_>) -> io::Result<ProgInfo> {
    // Layout: type, id, tag[8], 2 x u32, 3 x u64, 2 x u32, u64, name[16] at 64.
    let mut info = [0u8; 80];
    info_by_fd(prog, info.as_mut_ptr() as u64, 80)?;
    let word = |at: usize| u32::from_ne_bytes([info[at], info[at + 1], info[at + 2], info[at + 3]]);
    let name = info[64..80].split(|b| *b == 0).next().unwrap_or_default();
    Ok(ProgInfo { id: word(4), prog_type: word(0), name: String::from_utf8_lossy(name).into_owned() })
}

/// `info` points to `len` writable bytes.
fn info_by_fd(object: BorrowedFd<'_>, info: u64, len: u32) -> io::Result<()> {
    #[repr(C)]
    struct Attr {
        fd: u32,
        len: u32,
        info: u64,
    }
    bpf(OBJ_GET_INFO_BY_FD, &mut Attr { fd: object.as_raw_fd() as u32, len, info }).map(drop)
}

/// Opens a program by id and describes it. Needs CAP_SYS_ADMIN.
pub fn prog_info_by_id(id: u32) -> io::Result<ProgInfo> {
    use std::os::fd::AsFd;
    let fd = bpf_fd(PROG_GET_FD_BY_ID, &mut [id, 0, 0])?;
    prog_info(fd.as_fd())
}

/// `BPF_PROG_ATTACH` in the old way, with flags: only for tests that play a foreign tool.
#[doc(hidden)]
pub fn prog_attach_legacy(
    prog: BorrowedFd<'_>,
    cgroup: BorrowedFd<'_>,
    attach_type: u32,
    flags: u32,
) -> io::Result<()> {
    let mut attr = [cgroup.as_raw_fd() as u32, prog.as_raw_fd() as u32, attach_type, flags];
    bpf(PROG_ATTACH, &mut attr).map(drop)
}

#[repr(C)]
#[derive(Default)]
struct LoadAttr {
    prog_type: u32,
    insn_cnt: u32,
    insns: u64,
    license: u64,
    log_level: u32,
    log_size: u32,
    log_buf: u64,
    kern_version: u32,
    prog_flags: u32,
    prog_name: [u8; 16],
    prog_ifindex: u32,
    expected_attach_type: u32,
}

/// `BPF_PROG_LOAD` of hand-assembled instructions: the privilege probe of `preflight`, and tests.
pub fn prog_load(prog_type: u32, attach_type: u32, name: &str, insns: &[u64]) -> io::Result<OwnedFd> {
    let mut attr = LoadAttr {
        prog_type,
        insn_cnt: insns.len() as u32,
        insns: insns.as_ptr() as u64,
        license: c"Dual MIT/GPL".as_ptr() as u64,
        expected_attach_type: attach_type,
        ..LoadAttr::default()
    };
    for (to, from) in attr.prog_name.iter_mut().take(15).zip(name.bytes()) {
        *to = from;
    }
    bpf_fd(PROG_LOAD, &mut attr)
}

#[repr(C)]
#[derive(Default)]
struct TestRunAttr {
    prog_fd: u32,
    retval: u32,
    data_size_in: u32,
    data_size_out: u32,
    data_in: u64,
    data_out: u64,
    repeat: u32,
    duration: u32,
}

/// `BPF_PROG_TEST_RUN` on a dummy Ethernet frame; gives the program's return value.
/// `bpf_skb_ancestor_cgroup_id` sees the calling process's cgroup.
pub fn test_run(prog: BorrowedFd<'_>) -> io::Result<u32> {
    let mut frame = [0u8; 64];
    frame[12] = 0x08; // IPv4
    frame[14] = 0x45;
    let mut attr = TestRunAttr {
        prog_fd: prog.as_raw_fd() as u32,
        data_size_in: frame.len() as u32,
        data_in: frame.as_ptr() as u64,
        repeat: 1,
        ..TestRunAttr::default()
    };
    bpf(PROG_TEST_RUN, &mut attr)?;
    Ok(attr.retval)
}

/// `mov64 r0, imm; exit`: the smallest program that returns `imm`.
#[must_use]
pub fn return_program(imm: u32) -> [u64; 2] {
    [u64::from(imm) << 32 | 0xb7, 0x95]
}
