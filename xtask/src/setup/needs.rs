//! The table of programs: where one finds it, which Debian package brings it, who needs it.

use super::Tier;
use crate::sh;

/// A program or file and the package that brings it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Need {
    /// A program's name, or a file's full path.
    pub(crate) probe: &'static str,
    /// The Debian 12 package.
    pub(crate) package: &'static str,
    tier: Tier,
}

impl Need {
    /// A row of the table.
    pub(crate) const fn new(tier: Tier, probe: &'static str, package: &'static str) -> Self {
        Self { probe, package, tier }
    }

    fn is_met(&self) -> bool {
        if self.probe.starts_with('/') {
            std::path::Path::new(self.probe).exists()
        } else {
            sh::find(self.probe).is_some()
        }
    }
}

/// Everything but the BPF compiler, which has alternatives (see `bpf`).
const NEEDS: &[Need] = &[
    // bpf-linker and the crates' build scripts link with cc.
    Need::new(Tier::Bpf, "cc", "gcc"),
    // Worlds: namespaces, links, qdiscs, sockets, foreign firewalls, offloads.
    Need::new(Tier::Test, "ip", "iproute2"),
    Need::new(Tier::Test, "nft", "nftables"),
    Need::new(Tier::Test, "ethtool", "ethtool"),
    Need::new(Tier::Test, "bpftool", "bpftool"),
    Need::new(Tier::Test, "capsh", "libcap2-bin"),
    // Real clients.
    Need::new(Tier::Test, "curl", "curl"),
    Need::new(Tier::Test, "dig", "bind9-dnsutils"),
    Need::new(Tier::Test, "/usr/bin/python3", "python3"),
    Need::new(Tier::Test, "musl-gcc", "musl-tools"),
    // Real resolvers, and load for benchmarks.
    Need::new(Tier::Test, "dnsmasq", "dnsmasq-base"),
    Need::new(Tier::Test, "unbound", "unbound"),
    Need::new(Tier::Test, "dnsperf", "dnsperf"),
    Need::new(Tier::Test, "iperf3", "iperf3"),
    Need::new(Tier::Deploy, "shellcheck", "shellcheck"),
    // The VM and its initramfs.
    Need::new(Tier::Vm, "qemu-system-x86_64", "qemu-system-x86"),
    Need::new(Tier::Vm, "cpio", "cpio"),
    Need::new(Tier::Vm, "strip", "binutils"),
    Need::new(Tier::Vm, "dpkg-deb", "dpkg"),
    Need::new(Tier::Vm, "/bin/busybox", "busybox-static"),
    Need::new(Tier::Vm, "ip", "iproute2"),
    Need::new(Tier::Vm, "curl", "curl"),
    Need::new(Tier::Vm, "dig", "bind9-dnsutils"),
    Need::new(Tier::Vm, "/usr/bin/python3", "python3"),
    // Rules for alerts.
    Need::new(Tier::Deploy, "promtool", "prometheus"),
];

/// What `tiers` need and this machine lacks.
pub(crate) fn missing(tiers: &[Tier]) -> Vec<Need> {
    let mut missing: Vec<Need> =
        NEEDS.iter().filter(|n| tiers.contains(&n.tier) && !n.is_met()).copied().collect();
    let clippy = super::bpf::lint_need();
    if tiers.contains(&Tier::Lint) && clippy.is_some_and(|need| !need.is_met()) {
        missing.extend(clippy);
    }
    missing
}
