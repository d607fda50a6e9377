//! `xtask test`: picks tests by tier and runs them under nextest.
//!
//! | tier | what | needs |
//! |---|---|---|
//! | unit | `egret-common`, `egret-core`, `egret-tables`, `xtask` | nothing |
//! | kernel | the library tests of `egret` and `egret-tests`, `tests/tests/kernel_*.rs` and every file without a tier | root, BPF |
//! | netns | `tests/tests/netns_*.rs` | root, network namespaces |
//! | vm | the kernel tier and a part of netns on kernel 6.1 (see `vm`) | qemu |
//!
//! Together unit, kernel and netns cover every test of the workspace: a new file can land in no gap.

use anyhow::{Result, bail};
use clap::ValueEnum;

use crate::{cargo, setup, sh, tally, tally::Tally, vm};

/// A tier of tests.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub(crate) enum Tier {
    /// Pure tests, no root.
    Unit,
    /// Tests against the running kernel.
    Kernel,
    /// Worlds of network namespaces.
    Netns,
    /// Kernel 6.1 in a VM.
    Vm,
    /// All of them.
    All,
}

const PURE_PACKAGES: [&str; 8] =
    ["-p", "egret-common", "-p", "egret-core", "-p", "egret-tables", "-p", "xtask"];
const PURE: &str = "(package(egret-common) + package(egret-core) + package(egret-tables) + package(xtask))";
const NETNS: &str = "(package(egret-tests) & binary(/^netns_/))";

impl Tier {
    /// nextest's filter for this tier.
    fn filter(self) -> String {
        match self {
            Self::Unit => PURE.to_owned(),
            Self::Kernel => format!("not ({PURE} + {NETNS})"),
            Self::Netns => NETNS.to_owned(),
            Self::Vm | Self::All => unreachable!("not a nextest tier"),
        }
    }
}

/// Runs `tiers` (none: unit, kernel, netns), limited to tests whose name contains one of `names`.
pub(crate) fn run(tiers: &[Tier], names: &[String]) -> Result<()> {
    let tiers: &[Tier] = match tiers {
        [] => &[Tier::Unit, Tier::Kernel, Tier::Netns],
        t if t.contains(&Tier::All) => &[Tier::Unit, Tier::Kernel, Tier::Netns, Tier::Vm],
        t => t,
    };
    let mut tally = Tally::default();
    // The pure packages alone build without the BPF toolchain; with other tiers, one build serves all.
    let packages: &[&str] = if tiers == [Tier::Unit] { &PURE_PACKAGES } else { &cargo::HOST_PACKAGES };
    let result = tiers.iter().try_for_each(|tier| run_tier(*tier, packages, names, &mut tally));
    println!("tests: {tally}");
    result
}

/// Runs one tier, built as part of `packages`, and adds to `tally`.
pub(crate) fn run_tier(tier: Tier, packages: &[&str], names: &[String], tally: &mut Tally) -> Result<()> {
    match tier {
        Tier::All => unreachable!("taken apart by the caller"),
        Tier::Vm => {
            setup::ensure(&[setup::Tier::Bpf, setup::Tier::Test, setup::Tier::Vm])?;
            vm::run_tests(names, tally)
        }
        Tier::Unit => {
            setup::ensure(&[setup::Tier::Runner])?;
            if packages == cargo::HOST_PACKAGES {
                setup::ensure(&[setup::Tier::Bpf])?;
            }
            tally::run(nextest(tier, names).args(packages), tally)
        }
        Tier::Kernel | Tier::Netns => {
            if !sh::is_root() {
                bail!(sh::Failed::new(
                    format!("the {tier:?} tests load programs and make namespaces: run them as root"),
                    77
                ));
            }
            setup::ensure(&[setup::Tier::Bpf, setup::Tier::Test, setup::Tier::Deploy])?;
            let built = cargo::build_bins(&[])?;
            let mut command = nextest(tier, names);
            command.args(packages).env("EGRET_KUBECTL", setup::tools()?.kubectl);
            cargo::with_egret(&mut command, &built)?;
            tally::run(&mut command, tally)
        }
    }
}

/// Runs the tests that have a length, at the given one.
pub(crate) fn soak(messages: u32, seconds: u32) -> Result<()> {
    setup::ensure(&[setup::Tier::Bpf, setup::Tier::Test])?;
    let built = cargo::build_bins(&[])?;
    let mut command = sh::command("cargo");
    command.args(["nextest", "run", "--profile", "soak", "--success-output", "immediate"]);
    command
        .args(cargo::HOST_PACKAGES)
        .args(["--filterset", "test(/w_a14_.*never/) + test(/t_a03_/) + test(/l_a03_/)"]);
    command.env("EGRET_FUZZ", messages.to_string()).env("EGRET_SOAK", seconds.to_string());
    cargo::with_egret(&mut command, &built)?;
    let mut tally = Tally::default();
    let result = tally::run(&mut command, &mut tally);
    println!("tests: {tally}");
    result
}

fn nextest(tier: Tier, names: &[String]) -> std::process::Command {
    let mut command = sh::command("cargo");
    command.args(["nextest", "run", "--filterset", &tier.filter()]);
    // A filter by name may leave a tier without tests; a tier that has none at all is an error.
    if !names.is_empty() {
        command.arg("--no-tests=pass");
    }
    command.args(names);
    command
}
