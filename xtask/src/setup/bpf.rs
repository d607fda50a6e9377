//! The BPF toolchain: a compiler with the source of `core`, and bpf-linker.
//!
//! `agent/build.rs` makes the same choice when it builds; it must stand alone, so the rule is there too:
//! `EGRET_BPF_TOOLCHAIN` = `debian` or `rustup`, otherwise Debian's pair first.

use std::{path::PathBuf, process::Command};

use anyhow::{Context, Result, bail};

use super::{Tier, needs::Need};
use crate::sh;

const LINKER_VERSION: &str = "0.13.0";
const LLVM: &str = "/usr/lib/llvm-22";
/// The oldest compiler that the workspace takes (`rust-version`).
const OLDEST: (u32, u32) = (1, 87);

/// Which compiler builds the programs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Toolchain {
    /// Debian's rustc-web with rust-web-src.
    Debian,
    /// A rustup nightly with rust-src.
    Rustup,
}

impl Toolchain {
    /// The toolchain that is there and allowed by `EGRET_BPF_TOOLCHAIN`.
    pub(crate) fn find() -> Result<Option<Self>> {
        let candidates: &[Self] = match std::env::var("EGRET_BPF_TOOLCHAIN").as_deref() {
            Err(_) | Ok("") => &[Self::Debian, Self::Rustup],
            Ok("debian") => &[Self::Debian],
            Ok("rustup") => &[Self::Rustup],
            Ok(other) => bail!("EGRET_BPF_TOOLCHAIN={other}: debian or rustup is known"),
        };
        Ok(candidates.iter().copied().find(|toolchain| toolchain.is_there()))
    }

    fn rustc(self) -> Command {
        let mut command = Command::new(if self == Self::Debian { "/usr/bin/rustc" } else { "rustup" });
        command.env_remove("RUSTUP_TOOLCHAIN");
        if self == Self::Rustup {
            command.args(["run", "nightly", "rustc"]);
        }
        command
    }

    fn is_there(self) -> bool {
        let print = |args: &[&str]| {
            let output = self.rustc().args(args).output().ok().filter(|o| o.status.success())?;
            Some(String::from_utf8_lossy(&output.stdout).trim().to_owned())
        };
        let source = |sysroot: String| {
            PathBuf::from(sysroot).join("lib/rustlib/src/rust/library/core/src/lib.rs").is_file()
        };
        print(&["--print", "sysroot"]).is_some_and(source)
            && print(&["--version"]).and_then(|v| parse_version(&v)).is_some_and(|v| v >= OLDEST)
    }

    /// `cargo` set up to build or check for the BPF target; the caller adds the subcommand.
    pub(crate) fn cargo(self) -> Command {
        match self {
            Self::Debian => {
                let mut command = sh::command("cargo");
                command.env("RUSTC", "/usr/bin/rustc").env("RUSTC_BOOTSTRAP", "1");
                command
            }
            Self::Rustup => {
                let mut command = sh::command("rustup");
                command.env_remove("RUSTUP_TOOLCHAIN").args(["run", "nightly", "cargo"]);
                command
            }
        }
    }

    /// The clippy driver that belongs to this compiler.
    pub(crate) fn clippy_driver(self) -> Result<PathBuf> {
        if self == Self::Debian {
            return Ok("/usr/bin/clippy-driver".into());
        }
        let sysroot = sh::stdout(self.rustc().args(["--print", "sysroot"]))?;
        Ok(PathBuf::from(sysroot.trim()).join("bin/clippy-driver"))
    }
}

fn parse_version(text: &str) -> Option<(u32, u32)> {
    let mut numbers = text.split_whitespace().nth(1)?.split('.');
    Some((numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?))
}

/// Debian's packages for what no installed toolchain gives.
pub(crate) fn missing_packages() -> Result<Vec<Need>> {
    let mut missing = Vec::new();
    if Toolchain::find()?.is_none() {
        missing.push(Need::new(Tier::Bpf, "/usr/bin/rustc", "rustc-web"));
        missing.push(Need::new(Tier::Bpf, "/usr/lib/rustlib/src/rust", "rust-web-src"));
    }
    if sh::find("bpf-linker").is_none() && !PathBuf::from(LLVM).join("include/llvm-c/Core.h").exists() {
        missing.push(Need::new(Tier::Bpf, "/usr/lib/llvm-22/bin/llvm-config", "llvm-22-dev"));
    }
    Ok(missing)
}

/// Clippy of Debian's compiler, if that is the one that builds the programs.
pub(crate) fn lint_need() -> Option<Need> {
    let debian = Toolchain::find().ok()? != Some(Toolchain::Rustup);
    debian.then(|| Need::new(Tier::Lint, "/usr/bin/clippy-driver", "rust-web-clippy"))
}

/// Installs bpf-linker if it lacks, and checks that the compiler is one that works.
pub(crate) fn install_linker() -> Result<()> {
    if Toolchain::find()?.is_none() {
        bail!(
            "the packages are installed, but no compiler of at least {OLDEST:?} with the source of core is there"
        );
    }
    if sh::find("bpf-linker").is_some() {
        return Ok(());
    }
    eprintln!("setup: cargo install bpf-linker {LINKER_VERSION} (about two minutes, once)");
    let mut command = sh::command("cargo");
    command
        .env("LLVM_PREFIX", LLVM)
        .args(["install", "--quiet", "bpf-linker", "--version", LINKER_VERSION])
        .args(["--no-default-features", "--features", "llvm-22"]);
    sh::run(&mut command).context("installing bpf-linker")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_compare() {
        assert_eq!(parse_version("rustc 1.96.0 (ac68faa20 2026-05-25)"), Some((1, 96)));
        assert_eq!(parse_version("rustc 1.97.0-nightly (e50aa6fba)"), Some((1, 97)));
        assert!(parse_version("rustc 1.63.0").unwrap() < OLDEST);
        assert_eq!(parse_version(""), None);
    }
}
