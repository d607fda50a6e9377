//! What the machine must have, and putting it there.
//!
//! Idempotent and silent when nothing lacks. Debian 12 as root is installed by itself; elsewhere the missing
//! programs are named with the packages that hold them.

mod apt;
mod bpf;
mod needs;
mod python;

use anyhow::{Result, bail};
use clap::ValueEnum;

pub(crate) use self::{
    bpf::Toolchain,
    python::{Tools, tools},
};
use crate::sh;

/// A group of needs; a task asks for the groups that it uses.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub(crate) enum Tier {
    /// Compiler, core source and linker for the BPF target.
    Bpf,
    /// Clippy of the BPF compiler.
    Lint,
    /// cargo-nextest, enough for pure tests.
    Runner,
    /// The test runner, and the programs that netns tests, the demonstration and benchmarks run.
    Test,
    /// The emulator and what builds an initramfs.
    Vm,
    /// Helm, kubectl and the schemas of Kubernetes, in an environment of their own; a checker of shell scripts.
    Deploy,
}

/// Makes sure that everything of `tiers` is there.
pub(crate) fn ensure(tiers: &[Tier]) -> Result<()> {
    let wants = |tier| tiers.contains(&tier);
    let mut missing = needs::missing(tiers);
    if wants(Tier::Bpf) {
        missing.extend(bpf::missing_packages()?);
    }
    if wants(Tier::Deploy) {
        missing.extend(python::missing_package());
    }
    missing.sort_unstable_by_key(|need| need.package);
    missing.dedup_by_key(|need| need.package);
    if !missing.is_empty() {
        if !apt::can_install() {
            bail!(sh::Failed::new(instructions(&missing), 69));
        }
        apt::install(&missing.iter().map(|need| need.package).collect::<Vec<_>>())?;
        if let Some(still) = needs::missing(tiers).first() {
            bail!("{} is installed, but {} is not there", still.package, still.probe);
        }
    }
    if wants(Tier::Bpf) {
        bpf::install_linker()?;
    }
    if (wants(Tier::Test) || wants(Tier::Runner)) && sh::find("cargo-nextest").is_none() {
        eprintln!("setup: cargo install cargo-nextest (a few minutes, once)");
        sh::run(sh::command("cargo").args(["install", "--quiet", "--locked", "cargo-nextest"]))?;
    }
    if wants(Tier::Deploy) {
        python::tools()?;
    }
    Ok(())
}

/// What to do on a machine that setup does not install on.
fn instructions(missing: &[needs::Need]) -> String {
    let mut text = String::from("this machine lacks:\n");
    for need in missing {
        text += &format!("  {:<28} (Debian package {})\n", need.probe, need.package);
    }
    text += "On Debian 12 run `cargo xtask setup` as root, it installs them. Elsewhere install the like.\n";
    text += "BPF compiler: a rustup nightly with rust-src does too:\n";
    text += "  rustup toolchain install nightly --component rust-src\n";
    text += "BPF linker, against the LLVM of that compiler: cargo install bpf-linker";
    text
}
