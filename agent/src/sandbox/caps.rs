//! Which capabilities CMD loses, and why each would be a way round the firewall.
//!
//! Owns the list and the arithmetic; `child` applies the result. What is not listed stays (chown, setuid,
//! net_bind_service, sys_chroot, kill, ...): a root CMD in a CI job must go on to work.

use std::collections::BTreeSet;
use std::str::FromStr;

use caps::{CapSet, Capability};

/// What CMD loses, with the way out that each one opens.
pub const DROPPED: [(Capability, &str); 15] = [
    (Capability::CAP_NET_RAW, "packet sockets send frames that no cgroup hook sees"),
    (Capability::CAP_NET_ADMIN, "addresses, routes, tunnels and filters of the host"),
    (Capability::CAP_SYS_ADMIN, "mounts, joining other namespaces, moving between cgroups"),
    (Capability::CAP_BPF, "writes the firewall's own maps"),
    (Capability::CAP_PERFMON, "loads tracing programs that read and alter other processes"),
    (Capability::CAP_SYS_MODULE, "loads code into the kernel"),
    (Capability::CAP_SYS_PTRACE, "takes over a process outside, or its sockets and its root directory"),
    (Capability::CAP_SYS_RAWIO, "writes physical memory and device registers"),
    (Capability::CAP_DAC_READ_SEARCH, "opens files outside its mounts by handle"),
    (Capability::CAP_MKNOD, "makes a device node for any disk or memory"),
    (Capability::CAP_SYS_BOOT, "kexec starts a kernel without the firewall"),
    (Capability::CAP_CHECKPOINT_RESTORE, "chooses process ids, reads other processes' maps"),
    (Capability::CAP_MAC_ADMIN, "rewrites the policy of security modules"),
    (Capability::CAP_MAC_OVERRIDE, "ignores the policy of security modules"),
    (Capability::CAP_SYS_TTY_CONFIG, "redefines keys so that a later keystroke types a command outside"),
];

/// Parses `--keep-cap`: `CAP_NET_RAW` or `net_raw`, any case.
pub fn parse(text: &str) -> Result<Capability, String> {
    let upper = text.to_ascii_uppercase();
    let name = if upper.starts_with("CAP_") { upper } else { format!("CAP_{upper}") };
    Capability::from_str(&name).map_err(|_| format!("{text:?} is no capability; see capabilities(7)"))
}

/// Why keeping `cap` is dangerous; `None` if CMD would not lose it anyway.
#[must_use]
pub fn danger(cap: Capability) -> Option<&'static str> {
    DROPPED.iter().find(|(c, _)| *c == cap).map(|(_, why)| *why)
}

/// What the forked child has to set, as bit masks and numbers: no allocation is needed to apply it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Plan {
    /// To be dropped from the bounding set.
    pub bounding_drop: Vec<u8>,
    /// Permitted and effective.
    pub permitted: u64,
    /// Inheritable and ambient: only what a CMD that is not root was given by `--keep-cap`.
    pub ambient: u64,
}

/// The plan for a CMD that is root or not, from this process's own sets.
pub fn plan(root_child: bool, keep: &[Capability]) -> Result<Plan, caps::errors::CapsError> {
    let own: u64 = caps::read(None, CapSet::Permitted)?.iter().map(|c| 1u64 << c.index()).sum();
    Ok(compute(own, root_child, keep))
}

fn compute(own: u64, root_child: bool, keep: &[Capability]) -> Plan {
    let kept: BTreeSet<u8> = keep.iter().map(|c| c.index()).collect();
    let bounding_drop: Vec<u8> =
        DROPPED.iter().map(|(c, _)| c.index()).filter(|c| !kept.contains(c)).collect();
    let gone: u64 = bounding_drop.iter().map(|c| 1u64 << c).sum();
    let kept_mask: u64 = kept.iter().map(|c| 1u64 << c).sum();
    if root_child {
        Plan { bounding_drop, permitted: own & !gone, ambient: 0 }
    } else {
        Plan { bounding_drop, permitted: own & kept_mask, ambient: own & kept_mask }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn root_keeps_the_rest_and_a_user_keeps_nothing() {
        let raw = Capability::CAP_NET_RAW;
        let root = compute(u64::MAX >> 23, true, &[]);
        assert_eq!(root.permitted >> Capability::CAP_SYS_ADMIN.index() & 1, 0);
        assert_eq!(root.permitted >> Capability::CAP_CHOWN.index() & 1, 1);
        assert_eq!(root.bounding_drop.len(), DROPPED.len());
        assert_eq!(compute(u64::MAX >> 23, false, &[]).permitted, 0);
        let kept = compute(u64::MAX >> 23, false, &[raw]);
        assert_eq!(kept.ambient, 1 << raw.index());
        assert!(!kept.bounding_drop.contains(&raw.index()));
    }

    #[test]
    fn names_in_any_case() {
        assert_eq!(parse("net_raw"), Ok(Capability::CAP_NET_RAW));
        assert_eq!(parse("CAP_NET_RAW"), Ok(Capability::CAP_NET_RAW));
        assert!(parse("root").is_err());
        assert!(danger(Capability::CAP_CHOWN).is_none());
    }
}
