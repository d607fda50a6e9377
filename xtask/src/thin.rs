//! Wrappers around programs that others own: demonstration, benchmarks, verifier budget.

use anyhow::{Context, Result};

use crate::{cargo, setup, sh, tally, tally::Tally};

/// Runs the binary `demo` of the test crate against a fresh `egret`.
pub(crate) fn demo(args: &[String]) -> Result<()> {
    setup::ensure(&[setup::Tier::Bpf, setup::Tier::Test])?;
    let built = cargo::build_bins(&[])?;
    run_bin("demo", &built, args)
}

/// Runs the binary `bench` of the test crate, optimised.
pub(crate) fn bench(args: &[String]) -> Result<()> {
    setup::ensure(&[setup::Tier::Bpf, setup::Tier::Test])?;
    let built = cargo::build_some(&["egret", "bench"], &["--release"])?;
    run_bin("bench", &built, args)
}

/// Runs the test that compares verified instructions with `tests/golden/verifier-budget.txt`.
pub(crate) fn verify(update: bool) -> Result<()> {
    setup::ensure(&[setup::Tier::Bpf, setup::Tier::Test])?;
    let built = cargo::build_bins(&[])?;
    let mut command = sh::command("cargo");
    command.args(["nextest", "run"]).args(cargo::HOST_PACKAGES).args([
        "--filterset",
        "package(egret-tests) & test(/verifier_budget/)",
        "--success-output=immediate",
    ]);
    if update {
        command.env("EGRET_UPDATE_GOLDEN", "1");
    }
    cargo::with_egret(&mut command, &built)?;
    tally::run(&mut command, &mut Tally::default())
}

fn run_bin(name: &str, built: &[cargo::Executable], args: &[String]) -> Result<()> {
    let program = cargo::binary(built, name)
        .with_context(|| format!("the workspace has no binary `{name}` (tests/src/bin/{name}.rs)"))?;
    let mut command = sh::command(&program.path.to_string_lossy());
    command.args(args);
    cargo::with_egret(&mut command, built)?;
    sh::run(&mut command)
}
