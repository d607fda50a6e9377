//! Ways out, tried for real. Runs inside the sandbox (and, as the control, outside of it): each attempt in a
//! forked child of its own, one line of result each: `NAME refused|ESCAPED DETAIL`.

use std::fs::OpenOptions;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use egret::datapath::bpf_sys;
use egret::sandbox::mounts;

/// Ok: it worked, which is an escape. Err: why not.
type Attempt = fn() -> io::Result<()>;

/// Every attempt by name. `escape` names those that must work for root outside.
pub(super) const ATTEMPTS: &[(&str, Attempt)] = &[
    ("cgroup.procs of any visible mount", move_by_visible_mounts),
    ("cgroup.procs through /proc/1/root", move_by_init_root),
    ("cgroup.procs through a victim's root", move_by_victim_root),
    ("mount cgroup2", mount_cgroup2),
    ("remount cgroup2 writable", remount_cgroup2),
    ("umount the covers", umount_covers),
    ("setns to init's mount namespace", || enter_mounts(1)),
    ("setns to a victim's mount namespace", || enter_mounts(victim())),
    ("raw socket", || socket(libc::AF_INET, libc::SOCK_RAW, libc::IPPROTO_ICMP)),
    ("packet socket", || socket(libc::AF_PACKET, libc::SOCK_RAW, 0x0300)),
    ("vsock socket", || socket(libc::AF_VSOCK, libc::SOCK_STREAM, 0)),
    ("io_uring", io_uring),
    ("load a BPF program", load_bpf),
    ("open the pin", open_pin),
    ("see the pin", || std::fs::metadata(std::env::var_os("EGRET_PIN").expect("EGRET_PIN")).map(drop)),
    ("ptrace init", || ptrace(1)),
    ("ptrace a victim", || ptrace(victim())),
    ("read a victim's memory map", || open_read(format!("/proc/{}/mem", victim()))),
    ("steal a victim's descriptor", steal_descriptor),
    ("signal a victim", signal_victim),
    ("open core_pattern", || open_write("/proc/sys/kernel/core_pattern")),
    ("open modprobe", || open_write("/proc/sys/kernel/modprobe")),
    ("open sysrq-trigger", || open_write("/proc/sysrq-trigger")),
    ("open uevent_helper", || open_write("/sys/kernel/uevent_helper")),
    ("open release_agent", open_release_agent),
    ("open by handle", open_by_handle),
    ("make a block device", make_device),
    ("type into the terminal", type_into_terminal),
    ("request-key upcall", request_key),
    ("abstract socket of a process outside", connect_abstract),
    ("namespace: cgroup2 beyond our own", || in_user_namespace(namespace_cgroup2)),
    ("namespace: remount writable", || in_user_namespace(remount_cgroup2)),
    ("namespace: umount the covers", || in_user_namespace(umount_covers)),
    ("namespace: raw socket of the host's network", || {
        in_user_namespace(|| socket(libc::AF_INET, libc::SOCK_RAW, libc::IPPROTO_ICMP))
    }),
    ("namespace: ptrace a victim", || in_user_namespace(|| ptrace(victim()))),
    ("namespace: core_pattern by a fresh proc", || in_user_namespace(fresh_proc)),
];

pub(super) fn run_all() {
    let path = std::env::var_os("EGRET_PROBE").expect("where to write");
    let mut out = OpenOptions::new().append(true).create(true).open(path).expect("result file");
    for (name, attempt) in ATTEMPTS {
        // SAFETY: glibc's fork leaves the child a usable heap; the other threads only wait.
        let pid = unsafe { libc::fork() };
        if pid == 0 {
            let line = match attempt() {
                Ok(()) => format!("{name}: ESCAPED\n"),
                Err(e) => format!("{name}: refused ({e})\n"),
            };
            let written = out.write_all(line.as_bytes());
            // SAFETY: ends the forked copy without running the test harness's exit code.
            unsafe { libc::_exit(i32::from(written.is_err())) };
        }
        // SAFETY: waits for the child just made.
        unsafe { libc::waitpid(pid, std::ptr::null_mut(), 0) };
    }
}

fn check(result: i64) -> io::Result<()> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

fn no(reason: &str) -> io::Error {
    io::Error::other(reason.to_owned())
}

fn victim() -> i32 {
    std::env::var("EGRET_VICTIM").ok().and_then(|v| v.parse().ok()).expect("EGRET_VICTIM")
}

fn cgroup_mounts() -> Vec<PathBuf> {
    let table = mounts::table().unwrap_or_default();
    table.into_iter().filter(|m| m.fs_type == "cgroup2").map(|m| m.point).collect()
}

/// Moving oneself out is what matters: the root of the hierarchy is never ours.
fn join(dir: &Path) -> io::Result<()> {
    OpenOptions::new().write(true).open(dir.join("cgroup.procs"))?.write_all(b"0")
}

fn move_by_visible_mounts() -> io::Result<()> {
    let mut last = Err(no("no mount is visible"));
    for mount in cgroup_mounts() {
        last = join(&mount);
        if last.is_ok() {
            break;
        }
    }
    last
}

fn under(root: &str) -> io::Result<()> {
    let mount = cgroup_mounts().into_iter().next().ok_or_else(|| no("no mount is visible"))?;
    join(&Path::new(root).join(mount.strip_prefix("/").unwrap_or(&mount)))
}

fn move_by_init_root() -> io::Result<()> {
    under("/proc/1/root")
}

fn move_by_victim_root() -> io::Result<()> {
    let root = format!("/proc/{}/root", victim());
    std::fs::metadata(format!("{root}/"))?;
    under(&root)
}

fn mount_at(source: &str, fs: &str, flags: u64) -> io::Result<PathBuf> {
    // Beside the result file, which goes with the test's directory.
    let result = PathBuf::from(std::env::var_os("EGRET_PROBE").expect("EGRET_PROBE"));
    let dir = result.with_file_name(format!("mount-{}", std::process::id()));
    std::fs::create_dir_all(&dir)?;
    let c = |s: &str| std::ffi::CString::new(s).expect("no zero byte");
    let target = c(dir.to_str().unwrap_or_default());
    // SAFETY: C strings that live through the call.
    let r =
        unsafe { libc::mount(c(source).as_ptr(), target.as_ptr(), c(fs).as_ptr(), flags, std::ptr::null()) };
    let error = io::Error::last_os_error();
    if r == 0 {
        return Ok(dir);
    }
    std::fs::remove_dir(&dir)?;
    Err(error)
}

fn unmount(dir: &Path) -> io::Result<()> {
    let c = std::ffi::CString::new(dir.to_str().unwrap_or_default()).expect("no zero byte");
    // SAFETY: a C string.
    check(unsafe { libc::umount2(c.as_ptr(), libc::MNT_DETACH) }.into())
}

fn mount_cgroup2() -> io::Result<()> {
    let dir = mount_at("none", "cgroup2", 0)?;
    unmount(&dir)?;
    std::fs::remove_dir(dir)
}

fn remount_cgroup2() -> io::Result<()> {
    let mount = cgroup_mounts().into_iter().next().ok_or_else(|| no("no mount is visible"))?;
    let c = std::ffi::CString::new(mount.to_str().unwrap_or_default()).expect("no zero byte");
    let none = std::ptr::null();
    let flags = libc::MS_REMOUNT | libc::MS_BIND;
    // SAFETY: C strings and null pointers.
    let r = unsafe { libc::mount(none, c.as_ptr(), none, flags, none.cast()) };
    check(r.into())?;
    join(&mount)
}

fn umount_covers() -> io::Result<()> {
    // Outside nothing is covered: taking a bpffs away would hurt the host, so only covers are tried.
    let table = mounts::table().unwrap_or_default();
    let mut covers = table.iter().filter(|m| m.fs_type == "tmpfs" && m.point.ends_with("fs/bpf"));
    let cover = covers.next_back().ok_or_else(|| no("no cover"))?;
    unmount(&cover.point)
}

fn enter_mounts(pid: i32) -> io::Result<()> {
    let ns = std::fs::File::open(format!("/proc/{pid}/ns/mnt"))?;
    // SAFETY: setns on an open descriptor.
    check(unsafe { libc::setns(std::os::fd::AsRawFd::as_raw_fd(&ns), libc::CLONE_NEWNS) }.into())
}

fn socket(family: i32, kind: i32, protocol: i32) -> io::Result<()> {
    // SAFETY: plain system call; the process ends soon after.
    check(unsafe { libc::socket(family, kind, protocol) }.into())
}

fn io_uring() -> io::Result<()> {
    let mut params = [0u8; 120];
    // SAFETY: `params` has the size of `struct io_uring_params`.
    check(unsafe { libc::syscall(libc::SYS_io_uring_setup, 4u32, params.as_mut_ptr()) })
}

fn load_bpf() -> io::Result<()> {
    bpf_sys::prog_load(8, 1, "escape", &bpf_sys::return_program(1)).map(drop)
}

fn open_pin() -> io::Result<()> {
    bpf_sys::get(Path::new(&std::env::var_os("EGRET_PIN").expect("EGRET_PIN"))).map(drop)
}

fn ptrace(pid: i32) -> io::Result<()> {
    // SAFETY: PTRACE_SEIZE does not stop the process; it is released when this one ends.
    check(unsafe { libc::ptrace(libc::PTRACE_SEIZE, pid, 0usize, 0usize) })
}

fn open_read(path: String) -> io::Result<()> {
    std::fs::File::open(path).map(drop)
}

fn open_write(path: &str) -> io::Result<()> {
    OpenOptions::new().write(true).open(path).map(drop)
}

fn open_release_agent() -> io::Result<()> {
    let table = mounts::table().unwrap_or_default();
    let mut v1 = table.iter().filter(|m| m.fs_type == "cgroup");
    let mount = v1.next().ok_or_else(|| no("no cgroup v1"))?;
    open_write(mount.point.join("release_agent").to_str().unwrap_or_default())
}

fn steal_descriptor() -> io::Result<()> {
    // SAFETY: plain system calls.
    unsafe {
        let pidfd = libc::syscall(libc::SYS_pidfd_open, victim(), 0);
        check(pidfd)?;
        check(libc::syscall(libc::SYS_pidfd_getfd, pidfd, 0, 0))
    }
}

fn signal_victim() -> io::Result<()> {
    // SAFETY: signal 0 only asks.
    check(unsafe { libc::kill(victim(), 0) }.into())
}

fn open_by_handle() -> io::Result<()> {
    #[repr(C)]
    struct Handle {
        bytes: u32,
        kind: i32,
        data: [u8; 128],
    }
    let mut handle = Handle { bytes: 128, kind: 0, data: [0; 128] };
    let mut mount = 0i32;
    let mount_fd = std::fs::File::open("/")?;
    // SAFETY: `handle` has room for the 128 bytes that it claims.
    unsafe {
        let h = &raw mut handle;
        check(libc::syscall(
            libc::SYS_name_to_handle_at,
            libc::AT_FDCWD,
            c"/etc".as_ptr(),
            h,
            &raw mut mount,
            0,
        ))?;
        let fd = std::os::fd::AsRawFd::as_raw_fd(&mount_fd);
        check(libc::syscall(libc::SYS_open_by_handle_at, fd, h, libc::O_RDONLY))
    }
}

fn make_device() -> io::Result<()> {
    let path = std::env::temp_dir().join(format!("egret-device-{}", std::process::id()));
    let c = std::ffi::CString::new(path.to_str().unwrap_or_default()).expect("no zero byte");
    // SAFETY: a C string; device 1:1 is a RAM disk that nobody opens.
    check(unsafe { libc::mknod(c.as_ptr(), libc::S_IFBLK | 0o600, libc::makedev(1, 1)) }.into())?;
    std::fs::remove_file(path)
}

fn type_into_terminal() -> io::Result<()> {
    // Without a terminal the ioctl fails as well, but not with EPERM: that is the filter's answer.
    // SAFETY: a pointer to one byte, as TIOCSTI reads it.
    let r = unsafe { libc::ioctl(0, libc::TIOCSTI, c"x".as_ptr()) };
    match io::Error::last_os_error() {
        e if r < 0 && e.raw_os_error() == Some(libc::EPERM) => Err(e),
        _ => Ok(()),
    }
}

fn request_key() -> io::Result<()> {
    // The `user` type with call-out data: without a helper the kernel answers ENOKEY after the upcall.
    // SAFETY: C strings.
    let r = unsafe {
        libc::syscall(libc::SYS_request_key, c"user".as_ptr(), c"egret:x".as_ptr(), c"x".as_ptr(), 0)
    };
    match io::Error::last_os_error() {
        e if r < 0 && e.raw_os_error() == Some(libc::EPERM) => Err(e),
        _ => Ok(()),
    }
}

fn connect_abstract() -> io::Result<()> {
    use std::os::linux::net::SocketAddrExt;
    let name = std::env::var("EGRET_ABSTRACT").expect("EGRET_ABSTRACT");
    let address = std::os::unix::net::SocketAddr::from_abstract_name(name)?;
    std::os::unix::net::UnixStream::connect_addr(&address).map(drop)
}

/// Runs an attempt as root of a new user, mount and cgroup namespace.
fn in_user_namespace(attempt: Attempt) -> io::Result<()> {
    // SAFETY: the forked child is single-threaded, as unshare(CLONE_NEWUSER) asks.
    let (uid, gid) = unsafe { (libc::getuid(), libc::getgid()) };
    // SAFETY: as above.
    check(unsafe { libc::unshare(libc::CLONE_NEWUSER | libc::CLONE_NEWNS | libc::CLONE_NEWCGROUP) }.into())?;
    std::fs::write("/proc/self/setgroups", "deny")?;
    std::fs::write("/proc/self/uid_map", format!("0 {uid} 1"))?;
    std::fs::write("/proc/self/gid_map", format!("0 {gid} 1"))?;
    attempt()
}

/// A cgroup2 mounted in an own cgroup namespace is writable, but its root must be our own cgroup.
fn namespace_cgroup2() -> io::Result<()> {
    let dir = mount_at("none", "cgroup2", 0)?;
    let id = std::os::unix::fs::MetadataExt::ino(&std::fs::metadata(&dir)?);
    let above = std::fs::read_dir(dir.join(".."))?.flatten().any(|e| e.file_name() == "cgroup.procs");
    if std::env::var("EGRET_CGROUP_ID").ok() == Some(id.to_string()) && !above {
        return Err(no("its root is our own cgroup"));
    }
    Ok(())
}

fn fresh_proc() -> io::Result<()> {
    // SAFETY: plain system call; the next child would be in the new namespace, and so is the mount.
    check(unsafe { libc::unshare(libc::CLONE_NEWPID) }.into())?;
    // SAFETY: this process has one thread.
    let pid = unsafe { libc::fork() };
    if pid == 0 {
        let open = mount_at("proc", "proc", 0)
            .and_then(|dir| open_write(dir.join("sys/kernel/core_pattern").to_str().unwrap_or_default()));
        // SAFETY: ends the copy; 0 = escaped.
        unsafe { libc::_exit(i32::from(open.is_err())) };
    }
    let mut status = 0;
    // SAFETY: waits for the child just made.
    unsafe { libc::waitpid(pid, &raw mut status, 0) };
    if status == 0 { Ok(()) } else { Err(no("proc cannot be mounted, or core_pattern not opened")) }
}
