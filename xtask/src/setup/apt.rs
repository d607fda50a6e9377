//! Debian's package manager, used only when something lacks.

use std::{fs, path::Path};

use anyhow::{Context, Result};

use crate::sh;

/// Whether packages can be installed here: Debian 12, as root.
pub(crate) fn can_install() -> bool {
    let release = fs::read_to_string("/etc/os-release").unwrap_or_default();
    is_bookworm(&release) && sh::is_root()
}

fn is_bookworm(os_release: &str) -> bool {
    let has = |wanted: &str| os_release.lines().any(|line| line.replace('"', "") == wanted);
    has("ID=debian") && has("VERSION_ID=12")
}

/// Installs `packages` without recommendations and without starting their services.
pub(crate) fn install(packages: &[&str]) -> Result<()> {
    eprintln!("setup: apt-get install {}", packages.join(" "));
    let _quiet = NoServices::begin()?;
    let apt = || {
        let mut command = sh::command("apt-get");
        command.env("DEBIAN_FRONTEND", "noninteractive").args(["-qq", "-o", "DPkg::Lock::Timeout=300"]);
        command
    };
    // A third-party source that does not answer must not stop an install from Debian's own.
    if let Err(error) = sh::run_quiet(apt().arg("update")) {
        eprintln!("setup: {error:#}; going on with the lists that are there");
    }
    sh::run_quiet(apt().args(["install", "-y", "--no-install-recommends"]).args(packages))
        .with_context(|| format!("installing {}", packages.join(" ")))
}

/// While it lives, packages do not start their services (unbound would take port 53).
struct NoServices {
    ours: bool,
}

const POLICY: &str = "/usr/sbin/policy-rc.d";

impl NoServices {
    fn begin() -> Result<Self> {
        use std::os::unix::fs::PermissionsExt;
        if Path::new(POLICY).exists() {
            return Ok(Self { ours: false });
        }
        fs::write(POLICY, "#!/bin/sh\nexit 101\n").with_context(|| format!("writing {POLICY}"))?;
        let guard = Self { ours: true };
        fs::set_permissions(POLICY, fs::Permissions::from_mode(0o755))?;
        Ok(guard)
    }
}

impl Drop for NoServices {
    fn drop(&mut self) {
        if self.ours {
            // Nothing better can be done with an error here.
            drop(fs::remove_file(POLICY));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn release_is_told_apart() {
        assert!(is_bookworm("ID=debian\nVERSION_ID=\"12\"\n"));
        assert!(!is_bookworm("ID=debian\nVERSION_ID=\"13\"\n"));
        assert!(!is_bookworm("ID=ubuntu\nID_LIKE=debian\nVERSION_ID=\"12\"\n"));
    }
}
