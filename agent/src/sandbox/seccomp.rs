//! A small system-call filter for what neither cgroup hooks, mounts nor capabilities can hold.
//!
//! | refused | why |
//! |---|---|
//! | `socket` of a family other than unix, inet, inet6, netlink, packet, alg | vsock, RDS, Bluetooth, ... leave the machine past every cgroup hook; packet sockets are left to CAP_NET_RAW |
//! | `io_uring_setup` (ENOSYS) | makes sockets of any family without a system call that a filter sees |
//! | `ioctl` TIOCSTI, TIOCLINUX | types into the shared terminal, to be read by the shell outside |
//! | `request_key` with call-out data | the kernel starts /sbin/request-key as root outside; `dns_resolver` sends a query |
//! | `bpf` | opens the firewall's own objects; kept with CAP_BPF or CAP_SYS_ADMIN |
//! | `socketcall(SYS_SOCKET)`, x32 and unknown ABIs | 32-bit programs hide the family behind a pointer |
//!
//! Everything else passes. Ptrace and signals are Landlock's business (`landlock`).

use libc::sock_filter;

const RET_ALLOW: u32 = 0x7fff_0000;
const RET_ERRNO: u32 = 0x0005_0000;
const LD_ABS: u16 = 0x20;
const JEQ: u16 = 0x15;
const JGE: u16 = 0x35;
const RET: u16 = 0x06;
const OFFSET_NR: u32 = 0;
const OFFSET_ARCH: u32 = 4;
const X32_BIT: u32 = 0x4000_0000;

const TIOCSTI: u32 = 0x5412;
const TIOCLINUX: u32 = 0x541c;
const FAMILIES: [i32; 6] =
    [libc::AF_UNIX, libc::AF_INET, libc::AF_INET6, libc::AF_NETLINK, libc::AF_PACKET, libc::AF_ALG];

/// The numbers of one ABI.
struct Abi {
    arch: u32,
    socket: u32,
    ioctl: u32,
    request_key: u32,
    bpf: u32,
    /// i386 only.
    socketcall: Option<u32>,
    x32: bool,
}

/// Same on every ABI.
const IO_URING_SETUP: u32 = 425;

#[cfg(target_arch = "x86_64")]
const ABIS: [Abi; 2] = [
    Abi { arch: 0xc000_003e, socket: 41, ioctl: 16, request_key: 249, bpf: 321, socketcall: None, x32: true },
    Abi {
        arch: 0x4000_0003,
        socket: 359,
        ioctl: 54,
        request_key: 287,
        bpf: 357,
        socketcall: Some(102),
        x32: false,
    },
];
#[cfg(target_arch = "aarch64")]
const ABIS: [Abi; 2] = [
    Abi {
        arch: 0xc000_00b7,
        socket: 198,
        ioctl: 29,
        request_key: 218,
        bpf: 280,
        socketcall: None,
        x32: false,
    },
    Abi {
        arch: 0x4000_0028,
        socket: 281,
        ioctl: 54,
        request_key: 310,
        bpf: 386,
        socketcall: None,
        x32: false,
    },
];
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
const ABIS: [Abi; 0] = [];

/// The filter as classic BPF; `None` on an architecture whose numbers are not known here.
#[must_use]
pub fn program(keep_bpf: bool) -> Option<Vec<sock_filter>> {
    if ABIS.is_empty() {
        return None;
    }
    let mut out = vec![op(LD_ABS, OFFSET_ARCH)];
    for abi in &ABIS {
        let body = section(abi, keep_bpf);
        out.push(jump(JEQ, abi.arch, 0, body.len() as u8));
        out.extend(body);
    }
    out.push(deny(libc::ENOSYS));
    Some(out)
}

/// The rules of one ABI. Each ends in a return or falls through with the number still loaded.
fn section(abi: &Abi, keep_bpf: bool) -> Vec<sock_filter> {
    let mut out = vec![op(LD_ABS, OFFSET_NR)];
    if abi.x32 {
        out.extend([jump(JGE, X32_BIT, 0, 1), deny(libc::ENOSYS)]);
    }
    on(&mut out, IO_URING_SETUP, vec![deny(libc::ENOSYS)]);
    if !keep_bpf {
        on(&mut out, abi.bpf, vec![deny(libc::EPERM)]);
    }
    let mut family = vec![op(LD_ABS, argument(0))];
    for known in FAMILIES {
        family.extend([jump(JEQ, known as u32, 0, 1), op(RET, RET_ALLOW)]);
    }
    family.push(deny(libc::EAFNOSUPPORT));
    on(&mut out, abi.socket, family);
    if let Some(socketcall) = abi.socketcall {
        let first =
            [op(LD_ABS, argument(0)), jump(JEQ, 1, 0, 1), deny(libc::EAFNOSUPPORT), op(RET, RET_ALLOW)];
        on(&mut out, socketcall, first.to_vec());
    }
    on(
        &mut out,
        abi.ioctl,
        vec![
            op(LD_ABS, argument(1)),
            jump(JEQ, TIOCSTI, 1, 0),
            jump(JEQ, TIOCLINUX, 0, 1),
            deny(libc::EPERM),
            op(RET, RET_ALLOW),
        ],
    );
    on(
        &mut out,
        abi.request_key,
        vec![
            op(LD_ABS, argument(2)),
            jump(JEQ, 0, 0, 2),
            op(LD_ABS, argument(2) + 4),
            jump(JEQ, 0, 1, 0),
            deny(libc::EPERM),
            op(RET, RET_ALLOW),
        ],
    );
    out.push(op(RET, RET_ALLOW));
    out
}

fn on(out: &mut Vec<sock_filter>, number: u32, body: Vec<sock_filter>) {
    out.push(jump(JEQ, number, 0, body.len() as u8));
    out.extend(body);
}

/// Offset of the low half of an argument (both architectures are little endian).
fn argument(index: u32) -> u32 {
    16 + 8 * index
}

fn deny(errno: i32) -> sock_filter {
    op(RET, RET_ERRNO | errno as u32)
}

fn op(code: u16, k: u32) -> sock_filter {
    sock_filter { code, jt: 0, jf: 0, k }
}

fn jump(code: u16, k: u32, jt: u8, jf: u8) -> sock_filter {
    sock_filter { code, jt, jf, k }
}

/// Installs the filter in the calling thread, in the forked child. Needs no_new_privs.
pub(super) fn install(filter: &[sock_filter]) -> Result<(), i32> {
    let program = libc::sock_fprog { len: filter.len() as u16, filter: filter.as_ptr().cast_mut() };
    // SAFETY: `program` describes a live slice, which the kernel copies.
    let r = unsafe { libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &raw const program) };
    if r == 0 { Ok(()) } else { Err(super::child::errno()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_jump_stays_inside_and_the_end_returns() {
        let program = program(false).expect("a known architecture");
        for (at, insn) in program.iter().enumerate() {
            if insn.code & 7 == 5 {
                let far = usize::from(insn.jt.max(insn.jf));
                assert!(at + 1 + far < program.len(), "instruction {at}");
            }
        }
        assert_eq!(program.last().map(|i| i.code), Some(RET));
    }
}
