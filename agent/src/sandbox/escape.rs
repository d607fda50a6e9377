//! What stays possible: ways to have work done outside the cgroup that egret cannot close without breaking
//! ordinary jobs. Found by looking at the host before CMD starts; each is printed with a remedy.
//!
//! The cgroup holds CMD and its descendants, not a program elsewhere that does what CMD asks for.

use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use super::user::UserSpec;
use super::{landlock, mounts};

/// One way round that stays open.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Warning {
    /// What was found.
    pub what: String,
    /// What CMD could do with it.
    pub why: String,
    /// How to close it.
    pub remedy: String,
}

/// As whom CMD will run, for judging what it can reach.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Subject {
    /// User id.
    pub uid: u32,
    /// Primary and supplementary groups.
    pub groups: Vec<u32>,
    /// Home directory, if known.
    pub home: Option<PathBuf>,
}

impl Subject {
    /// The subject for a chosen user, or for this process's own.
    #[must_use]
    pub fn new(user: Option<&UserSpec>) -> Self {
        match user {
            Some(u) => Self { uid: u.uid, groups: u.groups.clone(), home: Some(u.home.clone()) },
            None => Self {
                uid: nix::unistd::Uid::effective().as_raw(),
                groups: nix::unistd::getgroups()
                    .unwrap_or_default()
                    .into_iter()
                    .chain([nix::unistd::Gid::effective()])
                    .map(nix::unistd::Gid::as_raw)
                    .collect(),
                home: std::env::var_os("HOME").map(PathBuf::from),
            },
        }
    }
}

const ENGINE: &str = "starts containers, which run outside this cgroup";
/// `%u` is the user id, `%h` the home directory.
const SOCKETS: [(&str, &str, &str); 20] = [
    ("Docker", "/run/docker.sock", ENGINE),
    ("Docker (rootless)", "/run/user/%u/docker.sock", ENGINE),
    ("Docker Desktop", "%h/.docker/run/docker.sock", ENGINE),
    ("Podman", "/run/podman/podman.sock", ENGINE),
    ("Podman (user)", "/run/user/%u/podman/podman.sock", ENGINE),
    ("containerd", "/run/containerd/containerd.sock", ENGINE),
    ("containerd (k3s)", "/run/k3s/containerd/containerd.sock", ENGINE),
    ("CRI-O", "/run/crio/crio.sock", ENGINE),
    ("BuildKit", "/run/buildkit/buildkitd.sock", ENGINE),
    ("LXD", "/var/lib/lxd/unix.socket", ENGINE),
    ("LXD (snap)", "/var/snap/lxd/common/lxd/unix.socket", ENGINE),
    ("Incus", "/var/lib/incus/unix.socket", ENGINE),
    ("libvirt", "/run/libvirt/libvirt-sock", "starts virtual machines outside this cgroup"),
    ("snapd", "/run/snapd.socket", "starts snap services outside this cgroup"),
    ("systemd", "/run/systemd/private", "starts units outside this cgroup (systemctl, systemd-run)"),
    (
        "D-Bus (system)",
        "/run/dbus/system_bus_socket",
        "reaches services outside, systemd-run among them where polkit allows it",
    ),
    ("D-Bus (user)", "/run/user/%u/bus", "systemd-run --user starts processes outside this cgroup"),
    (
        "systemd (user)",
        "/run/user/%u/systemd/private",
        "systemd-run --user starts processes outside this cgroup",
    ),
    ("tmux", "/tmp/tmux-%u/default", "runs commands in a terminal outside this cgroup"),
    ("screen", "/run/screen/S-%u", "runs commands in a terminal outside this cgroup"),
];
/// Services on loopback (which is always allowed) that carry connections further.
const LOOPBACK: [(u16, &str); 8] = [
    (22, "ssh: a login on this machine runs outside this cgroup"),
    (2375, "Docker's TCP socket: starts containers outside this cgroup"),
    (1080, "a SOCKS proxy: connects on CMD's behalf"),
    (3128, "an HTTP proxy: connects on CMD's behalf"),
    (8118, "an HTTP proxy: connects on CMD's behalf"),
    (8888, "possibly an HTTP proxy: connects on CMD's behalf"),
    (9050, "Tor: connects on CMD's behalf"),
    (8001, "possibly kubectl proxy: reaches the cluster's API"),
];
const NETWORK_FS: [&str; 9] =
    ["nfs", "nfs4", "cifs", "smb3", "ceph", "glusterfs", "fuse.glusterfs", "fuse.sshfs", "afs"];

/// Everything that was found. `hidden`: paths that `--hide` covers.
#[must_use]
pub fn detect(subject: &Subject, hidden: &[PathBuf]) -> Vec<Warning> {
    let mut out: Vec<Warning> = SOCKETS.iter().filter_map(|s| socket(subject, hidden, s)).collect();
    let listening = std::fs::read_to_string("/proc/net/tcp").unwrap_or_default()
        + &std::fs::read_to_string("/proc/net/tcp6").unwrap_or_default();
    out.extend(loopback(&listeners(&listening)));
    out.extend(mounts::table().unwrap_or_default().iter().filter_map(network_fs));
    if landlock::abi() == 0 {
        out.push(Warning {
            what: "the kernel has no Landlock (or it is switched off)".into(),
            why: "CMD can take over other processes of its user, outside this cgroup, by ptrace".into(),
            remedy: "boot with lsm=landlock,..., or set kernel.yama.ptrace_scope=2".into(),
        });
    }
    if subject.uid == 0 {
        out.push(Warning {
            what: "CMD runs as root".into(),
            why: "it can write files that other programs read or run later: cron and at jobs, units, shells' start files"
                .into(),
            remedy: "run it as a user: --user NAME (behind sudo the invoking user is the default)".into(),
        });
    }
    out
}

fn socket(subject: &Subject, hidden: &[PathBuf], entry: &(&str, &str, &str)) -> Option<Warning> {
    let (name, pattern, why) = entry;
    let home = subject.home.as_ref().and_then(|h| h.to_str()).unwrap_or("/");
    let path = PathBuf::from(pattern.replace("%u", &subject.uid.to_string()).replace("%h", home));
    let real = path.canonicalize().ok()?;
    let covered = hidden.iter().filter_map(|h| h.canonicalize().ok()).any(|h| real.starts_with(h));
    let kind = real.metadata().ok()?.file_type();
    if covered || !(kind.is_socket() || kind.is_dir()) || !reachable(&real, subject) {
        return None;
    }
    Some(Warning {
        what: format!("{name}: {} is reachable", path.display()),
        why: (*why).into(),
        remedy: format!("--hide {}", path.display()),
    })
}

/// By mode bits only; an ACL may allow or forbid more. Root passes everywhere (CAP_DAC_OVERRIDE stays).
fn reachable(path: &Path, subject: &Subject) -> bool {
    let directories = path.ancestors().skip(1).all(|dir| permits(dir, subject, 1));
    directories && permits(path, subject, 2)
}

fn permits(path: &Path, subject: &Subject, bit: u32) -> bool {
    let Ok(meta) = path.metadata() else { return false };
    let shift = match (meta.uid() == subject.uid, subject.groups.contains(&meta.gid())) {
        (true, _) => 6,
        (false, true) => 3,
        (false, false) => 0,
    };
    subject.uid == 0 || meta.mode() >> shift & bit != 0
}

/// Ports in state LISTEN on a loopback or wildcard address, from the text of /proc/net/tcp and tcp6.
fn listeners(text: &str) -> Vec<u16> {
    let mut ports: Vec<u16> = text.lines().filter_map(listener).collect();
    ports.sort_unstable();
    ports.dedup();
    ports
}

fn listener(line: &str) -> Option<u16> {
    let mut words = line.split_whitespace().skip(1);
    let (local, _, state) = (words.next()?, words.next()?, words.next()?);
    let (address, port) = local.split_once(':')?;
    let wildcard = address.bytes().all(|b| b == b'0');
    // 127.x.y.z and ::1 in the kernel's word-wise little-endian print.
    let loopback = (address.len() == 8 && address.ends_with("7F")) || address.ends_with("01000000");
    (state == "0A" && (wildcard || loopback)).then(|| u16::from_str_radix(port, 16).ok())?
}

fn loopback(ports: &[u16]) -> Vec<Warning> {
    let known = LOOPBACK.iter().filter(|(port, _)| ports.contains(port));
    known
        .map(|(port, why)| Warning {
            what: format!("port {port} listens on loopback, which is always allowed"),
            why: (*why).into(),
            remedy: "stop that service, or make it ask for a credential that CMD does not have".into(),
        })
        .collect()
}

fn network_fs(mount: &mounts::Mount) -> Option<Warning> {
    NETWORK_FS.contains(&mount.fs_type.as_str()).then(|| Warning {
        what: format!("{} is a network file system ({})", mount.point.display(), mount.fs_type),
        why: "the kernel carries what CMD writes there to another machine by sockets of its own".into(),
        remedy: format!("--hide {}", mount.point.display()),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn listeners_on_loopback_and_wildcard_only() {
        let line = |local: &str, state: &str| format!("  0: {local} 00000000:0000 {state} 0 0\n");
        let text = line("0100007F:0016", "0A")
            + &line("00000000:0C38", "0A")
            + &line("0A00000A:0438", "0A")
            + &line("0100007F:1F90", "01")
            + &line("00000000000000000000000001000000:235A", "0A");
        assert_eq!(listeners(&text), [22, 3128, 9050]);
    }

    #[test]
    fn mode_bits_decide_for_a_user_and_never_for_root() {
        let dir = std::env::temp_dir().join(format!("egret-escape-{}", std::process::id()));
        std::fs::create_dir_all(&dir).expect("dir");
        let path = dir.join("socket");
        let _socket = std::os::unix::net::UnixListener::bind(&path).expect("bind");
        let stranger = Subject { uid: 54_321, groups: vec![54_321], home: None };
        assert!(!permits(&path, &stranger, 2));
        assert!(permits(&path, &Subject { uid: 0, ..stranger }, 2));
        std::fs::remove_dir_all(&dir).expect("clean up");
    }
}
