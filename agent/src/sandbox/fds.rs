//! Which open files CMD may inherit. A socket made outside is seen by no hook, and a directory opened
//! outside lies on a mount that is still writable: both would be a way out.

use std::io;
use std::os::fd::RawFd;

use super::child::errno;

/// Checks `--keep-fd`: the descriptor must have been inherited. Those that egret opened itself carry
/// `FD_CLOEXEC`, which an inherited one cannot have.
pub fn check_keep(fds: &[RawFd]) -> Result<(), String> {
    for fd in fds {
        // SAFETY: F_GETFD on any number is harmless.
        match unsafe { libc::fcntl(*fd, libc::F_GETFD) } {
            -1 => return Err(format!("file descriptor {fd} is not open")),
            flags if *fd > 2 && flags & libc::FD_CLOEXEC != 0 => {
                return Err(format!("file descriptor {fd} was not inherited"));
            }
            _ => {}
        }
    }
    Ok(())
}

/// For stdin, stdout and stderr: what it is, if it is of a kind that is replaced by `/dev/null`.
/// Files, pipes, terminals and Unix sockets pass.
#[must_use]
pub fn unsafe_stdio(keep: &[RawFd]) -> [Option<&'static str>; 3] {
    [0, 1, 2].map(|fd| if keep.contains(&fd) { None } else { unsafe_kind(fd) })
}

fn unsafe_kind(fd: RawFd) -> Option<&'static str> {
    // SAFETY: an all-zero `stat` is a valid value of a plain C struct.
    let mut st: libc::stat = unsafe { std::mem::zeroed() };
    // SAFETY: `st` is writable; a closed descriptor gives EBADF.
    if unsafe { libc::fstat(fd, &raw mut st) } != 0 {
        // A closed one would be taken by the first file that CMD opens, or by one of ours.
        return (errno() == libc::EBADF).then_some("closed");
    }
    match st.st_mode & libc::S_IFMT {
        libc::S_IFREG | libc::S_IFIFO | libc::S_IFCHR => None,
        libc::S_IFSOCK => match socket_family(fd) {
            Ok(libc::AF_UNIX) => None,
            _ => Some("a network socket"),
        },
        libc::S_IFDIR => Some("a directory"),
        _ => Some("neither file, pipe, terminal nor Unix socket"),
    }
}

fn socket_family(fd: RawFd) -> io::Result<i32> {
    let mut family = 0i32;
    let mut len = size_of::<i32>() as libc::socklen_t;
    // SAFETY: `family` and `len` are valid for the option's four bytes.
    let r = unsafe {
        libc::getsockopt(fd, libc::SOL_SOCKET, libc::SO_DOMAIN, (&raw mut family).cast(), &raw mut len)
    };
    if r == 0 { Ok(family) } else { Err(io::Error::last_os_error()) }
}

/// In the forked child: marks everything from 3 up close-on-exec, then frees what is kept.
pub(super) fn seal(keep: &[RawFd]) -> Result<(), i32> {
    // SAFETY: close_range (kernel 5.9, the flag 5.11) touches descriptors of this process only.
    let r = unsafe { libc::syscall(libc::SYS_close_range, 3u32, u32::MAX, libc::CLOSE_RANGE_CLOEXEC) };
    if r != 0 {
        return Err(errno());
    }
    for fd in keep {
        // SAFETY: fcntl on a descriptor that `check_keep` has seen open.
        if unsafe { libc::fcntl(*fd, libc::F_SETFD, 0) } != 0 {
            return Err(errno());
        }
    }
    Ok(())
}

/// In the forked child: puts `null` in the place of each marked one of 0, 1, 2.
pub(super) fn replace_stdio(marked: [bool; 3], null: RawFd) -> Result<(), i32> {
    for (fd, _) in (0..).zip(marked).filter(|(_, m)| *m) {
        // SAFETY: dup2 onto a standard descriptor of this process.
        if unsafe { libc::dup2(null, fd) } < 0 {
            return Err(errno());
        }
    }
    Ok(())
}
