//! Pods that nobody knows yet: which cgroup is above all of them, and what becomes of them there (DESIGN 3.1).
//!
//! Everything that is known is held and bound before the programs come to that cgroup: what runs is not cut off.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use egret_common::maps::{STARTUP_ALLOW, STARTUP_DENY, STARTUP_GUARD, Startup};
use egret_common::net::Direction;
use egret_core::policy::Policy;

use super::keeper::Keeper;
use crate::cli::StartupMode;
use crate::datapath::cgroup_link;

/// Where kubelets keep pods, below the cgroup2 mount: either driver, in a container (kind) or not.
const KUBEPODS: [&str; 4] =
    ["kubepods.slice", "kubepods", "kubelet.slice/kubelet-kubepods.slice", "kubelet/kubepods"];

/// What is in force above all pods.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) enum Guard {
    /// Nobody has looked: an earlier agent may have left something.
    #[default]
    Unknown,
    /// Nothing.
    Off,
    /// This, at the cgroup with this id.
    On { cgroup: u64, startup: Startup },
}

impl Keeper {
    /// Puts the mode in force.
    pub(super) fn guard_pods(&mut self) {
        let root = self.kubepods().filter(|_| self.setting.startup != StartupMode::Allow);
        let Some(root) = root else {
            if self.guard != Guard::Off {
                self.datapath.detach_startup();
                self.guard = Guard::Off;
            }
            return;
        };
        let mode = match self.setting.startup {
            StartupMode::Deny => STARTUP_DENY,
            StartupMode::Selected if self.objects.policies().any(holds_back) => STARTUP_GUARD,
            StartupMode::Selected | StartupMode::Allow => STARTUP_ALLOW,
        };
        if let Err(error) = self.guard_at(&root, mode) {
            self.complain(format!("pods that start are NOT held at {}: {error}", root.display()), 1);
        }
    }

    fn guard_at(&mut self, root: &Path, mode: u32) -> Result<(), String> {
        let text = |error: &dyn std::fmt::Display| error.to_string();
        let (own, mount) = (&self.setting.hierarchy.own, &self.setting.hierarchy.mount);
        let cgroup = std::fs::metadata(root).map_err(|e| text(&e))?.ino();
        if matches!(&self.guard, Guard::On { cgroup: at, startup } if *at == cgroup && startup.mode == mode) {
            return Ok(());
        }
        let level = cgroup_link::level(root, own, mount).map_err(|e| text(&e))?;
        let startup = Startup { mode, level };
        self.datapath.set_startup(startup).map_err(|e| text(&e))?;
        self.datapath.attach_startup(root, mount).map_err(|e| text(&e))?;
        self.guard = Guard::On { cgroup, startup };
        Ok(())
    }

    fn kubepods(&self) -> Option<PathBuf> {
        let mount = &self.setting.hierarchy.mount;
        match &self.setting.kubepods {
            Some(given) => Some(mount.join(given)).filter(|path| path.is_dir()),
            None => KUBEPODS.iter().map(|path| mount.join(path)).find(|path| path.is_dir()),
        }
    }

    /// The mode in force, for display.
    pub(super) fn startup(&self) -> String {
        let Guard::On { startup, .. } = &self.guard else { return "no pods' cgroup is watched".to_owned() };
        match startup.mode {
            STARTUP_ALLOW => "unknown pods pass: no policy holds anything back",
            STARTUP_GUARD => "unknown pods are denied, those on the node's network excepted",
            _ => "unknown pods are denied",
        }
        .to_owned()
    }
}

fn holds_back(policy: &Policy) -> bool {
    [Direction::Egress, Direction::Ingress].iter().any(|direction| policy.may_deny(*direction))
}
