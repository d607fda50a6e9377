//! Whether this host can enforce at all, before anything is made or started.
//!
//! One line per refusal, with cause and remedy; a host that cannot enforce never starts CMD.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};

use caps::{CapSet, Capability};

use super::cgroup::Hierarchy;
use super::mounts;
use crate::datapath::bpf_sys;
use crate::datapath::cgroup_link::CgroupHook;
use crate::exit::{self, Refusal};

/// The lowest kernel that the programs are tested on.
const LOWEST_KERNEL: (u32, u32) = (6, 1);
const BPFFS: &str = "/sys/fs/bpf";

/// What a run needs to know of the host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Preflight {
    /// Where cgroup v2 is.
    pub hierarchy: Hierarchy,
    /// A mounted bpffs.
    pub bpffs: PathBuf,
}

/// Checks the host; mounts bpffs if it is missing.
pub fn check(changes_user: bool) -> Result<Preflight, Refusal> {
    let release = nix::sys::utsname::uname()
        .map(|u| u.release().to_string_lossy().into_owned())
        .map_err(|e| Refusal::new(exit::OS_ERROR, format!("uname: {e}"), "this should not happen"))?;
    check_kernel(&release)?;
    check_capabilities(changes_user)?;
    let hierarchy = Hierarchy::find().map_err(|e| no_cgroup(&e))?;
    check_root_mount()?;
    probe_bpf()?;
    let bpffs = bpffs()?;
    Ok(Preflight { hierarchy, bpffs })
}

fn check_kernel(release: &str) -> Result<(), Refusal> {
    let mut numbers = release.split(|c: char| !c.is_ascii_digit()).map_while(|n| n.parse::<u32>().ok());
    let version = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0));
    if version >= LOWEST_KERNEL {
        return Ok(());
    }
    let (major, minor) = LOWEST_KERNEL;
    Err(Refusal::new(
        exit::UNAVAILABLE,
        format!("kernel {release} is too old"),
        format!("egret needs Linux {major}.{minor} or later"),
    ))
}

fn check_capabilities(changes_user: bool) -> Result<(), Refusal> {
    let have = caps::read(None, CapSet::Effective).unwrap_or_default();
    let mut need = vec![Capability::CAP_NET_ADMIN, Capability::CAP_SYS_ADMIN, Capability::CAP_SETPCAP];
    if changes_user {
        need.extend([Capability::CAP_SETUID, Capability::CAP_SETGID]);
    }
    let mut missing: Vec<String> =
        need.iter().filter(|c| !have.contains(c)).map(ToString::to_string).collect();
    if !have.contains(&Capability::CAP_BPF) && !have.contains(&Capability::CAP_SYS_ADMIN) {
        missing.insert(0, "CAP_BPF".into());
    }
    if missing.is_empty() {
        return Ok(());
    }
    let who = if nix::unistd::Uid::effective().is_root() { "root without" } else { "not root, and without" };
    Err(Refusal::new(
        exit::NO_PERMISSION,
        format!("{who} {}", missing.join(", ")),
        "run it with sudo, or in a container with --privileged and the host's cgroup namespace",
    ))
}

fn no_cgroup(error: &io::Error) -> Refusal {
    Refusal::new(
        exit::UNAVAILABLE,
        format!("no cgroup v2: {error}"),
        "mount it: mount -t cgroup2 none /sys/fs/cgroup, or boot with systemd.unified_cgroup_hierarchy=1",
    )
}

/// In a chroot `/` is no mount, so that what is mounted for CMD could not be kept from the host.
fn check_root_mount() -> Result<(), Refusal> {
    let table = mounts::table().unwrap_or_default();
    if table.iter().any(|m| m.point == Path::new("/")) {
        return Ok(());
    }
    let remedy = "enter the directory with pivot_root or a container engine, not chroot";
    Err(Refusal::new(exit::UNAVAILABLE, "this is a chroot: / is not a mount point", remedy))
}

/// Loads the smallest program there is: the only sure test of what lockdown, security modules, container
/// filters and user namespaces leave.
fn probe_bpf() -> Result<(), Refusal> {
    let hook = CgroupHook::SkbEgress;
    let loaded =
        bpf_sys::prog_load(hook.prog_type(), hook.attach_type(), "probe", &bpf_sys::return_program(1));
    let Err(error) = loaded else { return Ok(()) };
    let lockdown = std::fs::read_to_string("/sys/kernel/security/lockdown").unwrap_or_default();
    let locked = lockdown.contains("[confidentiality]") || lockdown.contains("[integrity]");
    Err(match error.raw_os_error() {
        Some(libc::ENOSYS) => Refusal::new(
            exit::UNAVAILABLE,
            "the kernel has no bpf(2)",
            "use a kernel with CONFIG_BPF_SYSCALL and CONFIG_CGROUP_BPF",
        ),
        Some(libc::EPERM) if locked => Refusal::new(
            exit::UNAVAILABLE,
            format!("BPF is refused by kernel lockdown ({})", lockdown.trim()),
            "switch lockdown off, or use a host without it",
        ),
        Some(libc::EPERM | libc::EACCES) => Refusal::new(
            exit::NO_PERMISSION,
            "the kernel refuses to load BPF programs (EPERM)",
            "a container's seccomp profile, a user namespace or a security module forbids bpf(2): run on the host or with --privileged",
        ),
        _ => Refusal::new(
            exit::UNAVAILABLE,
            format!("the kernel does not take a cgroup BPF program: {error}"),
            "use a kernel with CONFIG_CGROUP_BPF",
        ),
    })
}

/// A bpffs from the mount table, or one mounted at the usual place.
fn bpffs() -> Result<PathBuf, Refusal> {
    let failed = |e: io::Error| {
        Refusal::new(
            exit::UNAVAILABLE,
            format!("no bpffs, and it cannot be mounted at {BPFFS}: {e}"),
            format!("mount it: mount -t bpf bpf {BPFFS}"),
        )
    };
    if let Some(found) = mounted_bpffs() {
        return Ok(found);
    }
    // Two runs that start together must not mount twice: the second would hide the first one's pins.
    let point = File::open(BPFFS).map_err(failed)?;
    // SAFETY: flock on a descriptor that is open; it is released when `point` is dropped.
    if unsafe { libc::flock(point.as_raw_fd(), libc::LOCK_EX) } != 0 {
        return Err(failed(io::Error::last_os_error()));
    }
    if let Some(found) = mounted_bpffs() {
        return Ok(found);
    }
    mount_bpffs(Path::new(BPFFS)).map_err(|e| failed(e.into()))?;
    Ok(BPFFS.into())
}

fn mounted_bpffs() -> Option<PathBuf> {
    let table = mounts::table().ok()?;
    let whole: Vec<_> = table
        .into_iter()
        .filter(|m| m.fs_type == "bpf" && m.root == Path::new("/"))
        .map(|m| m.point)
        .collect();
    whole.iter().find(|p| p.as_path() == Path::new(BPFFS)).or_else(|| whole.first()).cloned()
}

fn mount_bpffs(at: &Path) -> nix::Result<()> {
    use nix::mount::MsFlags;
    let flags = MsFlags::MS_NOSUID | MsFlags::MS_NODEV | MsFlags::MS_NOEXEC;
    nix::mount::mount(Some("bpf"), at, Some("bpf"), flags, Some("mode=0700"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kernel_versions() {
        for good in ["6.1.0-18-amd64", "6.18.44-fc-v782", "7.0.0", "6.10"] {
            assert_eq!(check_kernel(good), Ok(()), "{good}");
        }
        for bad in ["5.15.0-91-generic", "6.0.19", "4.19", "?"] {
            assert_eq!(check_kernel(bad).expect_err(bad).code, exit::UNAVAILABLE);
        }
    }
}
