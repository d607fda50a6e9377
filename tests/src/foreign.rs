//! Another tool's BPF program on a cgroup, made by hand with bpf(2): the neighbour that Egret must live with.

use std::fs::File;
use std::io;
use std::net::Ipv4Addr;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::path::{Path, PathBuf};

const PROG_LOAD: u32 = 5;
const PROG_ATTACH: u32 = 8;
const PROG_DETACH: u32 = 9;
const PROG_QUERY: u32 = 16;
const TYPE_CGROUP_SKB: u32 = 8;
const INET_EGRESS: u32 = 1;

/// How the neighbour attached, as attach_flags of bpf(2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Nobody else on this cgroup or below.
    Exclusive = 0,
    /// Cgroups below may have their own instead.
    Override = 1,
    /// Beside others.
    Multi = 2,
}

/// A cgroup of the test's own with a program that drops what goes to one IPv4 address.
#[derive(Debug)]
pub struct Neighbour {
    path: PathBuf,
    cgroup: File,
    program: OwnedFd,
}

impl Neighbour {
    /// Makes the cgroup `eg-test-NAME-PID` below the cgroup v2 mount and attaches the program.
    pub fn start(name: &str, mode: Mode, drops: Ipv4Addr) -> Self {
        let root = crate::residue::cgroup2().expect("cgroup v2");
        let path = root.join(format!("eg-test-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap_or_else(|error| panic!("{path:?}: {error}"));
        let cgroup = File::open(&path).expect("a cgroup");
        let program = load(drops).expect("load a program");
        let attr = [fd(&cgroup), fd(&program), INET_EGRESS, mode as u32];
        bpf(PROG_ATTACH, &attr).expect("attach a program");
        Self { path, cgroup, program }
    }

    /// The cgroup, to start programs in.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Whether the program is still on its cgroup.
    pub fn is_attached(&self) -> bool {
        let mut ids = [0u32; 64];
        let pointer = (ids.as_mut_ptr() as u64).to_ne_bytes();
        let half = |at: usize| u32::from_ne_bytes(pointer[at..at + 4].try_into().expect("four bytes"));
        // Whole up to `revision`, which the kernel writes since 6.17 however short the attributes are.
        let mut attr = [0; 16];
        attr[..7].copy_from_slice(&[fd(&self.cgroup), INET_EGRESS, 0, 0, half(0), half(4), ids.len() as u32]);
        bpf(PROG_QUERY, &attr).expect("query a cgroup");
        ids.iter().any(|id| *id != 0)
    }
}

impl Drop for Neighbour {
    fn drop(&mut self) {
        let attr = [fd(&self.cgroup), fd(&self.program), INET_EGRESS, 0];
        if let Err(error) = bpf(PROG_DETACH, &attr) {
            eprintln!("detach from {:?}: {error}", self.path);
        }
        let removed =
            crate::wait::until(std::time::Duration::from_secs(3), || std::fs::remove_dir(&self.path).ok());
        if removed.is_none() {
            eprintln!("{:?} cannot be removed", self.path);
        }
    }
}

/// `return destination != drops`, by direct packet access.
fn load(drops: Ipv4Addr) -> io::Result<OwnedFd> {
    let drops = u32::from_ne_bytes(drops.octets());
    let program = [
        op(0x61, 2, 1, 76, 0),    // r2 = skb->data
        op(0x61, 3, 1, 80, 0),    // r3 = skb->data_end
        op(0xbf, 4, 2, 0, 0),     // r4 = r2
        op(0x07, 4, 0, 0, 20),    // r4 += 20
        op(0xb7, 0, 0, 0, 1),     // r0 = 1
        op(0x2d, 4, 3, 3, 0),     // if r4 > r3 goto exit
        op(0x61, 5, 2, 16, 0),    // r5 = destination
        op(0x56, 5, 0, 1, drops), // if w5 != drops goto exit
        op(0xb7, 0, 0, 0, 0),     // r0 = 0
        op(0x95, 0, 0, 0, 0),     // exit
    ];
    let license = c"GPL";
    let (code, text) = (program.as_ptr() as u64, license.as_ptr() as u64);
    let low_high = |pointer: u64| {
        let bytes = pointer.to_ne_bytes();
        let half = |at: usize| u32::from_ne_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
        (half(0), half(4))
    };
    let (code, text) = (low_high(code), low_high(text));
    let mut attr = [0u32; 18];
    attr[..6].copy_from_slice(&[TYPE_CGROUP_SKB, program.len() as u32, code.0, code.1, text.0, text.1]);
    attr[17] = INET_EGRESS;
    let fd = bpf(PROG_LOAD, &attr)?;
    // SAFETY: BPF_PROG_LOAD gave a fresh descriptor.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// One instruction: code, registers, offset, immediate.
fn op(code: u8, destination: u8, source: u8, offset: i16, immediate: u32) -> u64 {
    let offset = offset.to_le_bytes();
    let immediate = immediate.to_le_bytes();
    let registers = source << 4 | destination;
    u64::from_le_bytes([
        code,
        registers,
        offset[0],
        offset[1],
        immediate[0],
        immediate[1],
        immediate[2],
        immediate[3],
    ])
}

fn bpf(command: u32, attr: &[u32]) -> io::Result<i32> {
    // SAFETY: attr is valid for its length; the pointers inside it are to memory that outlives the call.
    let result = unsafe { libc::syscall(libc::SYS_bpf, command, attr.as_ptr(), size_of_val(attr)) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result as i32) }
}

fn fd(file: &impl AsRawFd) -> u32 {
    file.as_raw_fd() as u32
}
