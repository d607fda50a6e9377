//! `xtask ci` and `xtask lint`: the checks that a change must pass, in order, with the time of each.

use std::time::{Duration, Instant};

use anyhow::{Context, Result};

use crate::{
    cargo::{self, HOST_PACKAGES},
    deploy,
    setup::{self, Toolchain},
    sh, tally,
    tally::Tally,
    test, thin, tidy,
};

type Step = (&'static str, fn(&mut Tally) -> Result<()>);

const STEPS: &[Step] = &[
    ("setup", |_| setup::ensure(&[setup::Tier::Bpf, setup::Tier::Lint, setup::Tier::Test, setup::Tier::Vm])),
    ("format", |_| format()),
    ("tidy", |_| tidy::run()),
    ("deploy", |_| deploy::check(false)),
    ("build", |_| cargo::build_bins(&[]).map(drop)),
    ("clippy", |_| clippy()),
    ("clippy (bpf)", |_| clippy_bpf()),
    ("test unit", |tally| test::run_tier(test::Tier::Unit, &HOST_PACKAGES, &[], tally)),
    ("test kernel", |tally| test::run_tier(test::Tier::Kernel, &HOST_PACKAGES, &[], tally)),
    ("test netns", |tally| test::run_tier(test::Tier::Netns, &HOST_PACKAGES, &[], tally)),
    ("test doc", doc_tests),
    ("test vm (part)", |tally| test::run_tier(test::Tier::Vm, &HOST_PACKAGES, &vm_part(), tally)),
    ("demo", |_| thin::demo(&[])),
];

/// What runs on kernel 6.1 in every CI: that each program loads, within its budget.
/// The rest of `xtask test vm` takes half an hour of emulation.
fn vm_part() -> [String; 2] {
    ["verifier_budget", "every_program_loads"].map(str::to_owned)
}

/// Runs every step; the first failure ends it with that step's exit code.
pub(crate) fn run() -> Result<()> {
    let mut tally = Tally::default();
    let mut times: Vec<(&str, Duration)> = Vec::new();
    let mut result = Ok(());
    for (name, step) in STEPS {
        println!("\n==> {name}");
        let start = Instant::now();
        result = step(&mut tally).with_context(|| format!("step `{name}`"));
        times.push((name, start.elapsed()));
        if result.is_err() {
            break;
        }
    }
    println!();
    for (name, time) in &times {
        println!("{:>7.1} s  {name}", time.as_secs_f64());
    }
    let total: Duration = times.iter().map(|(_, time)| *time).sum();
    println!("{:>7.1} s  total, {} of {} steps", total.as_secs_f64(), times.len(), STEPS.len());
    println!("tests: {tally}");
    result
}

/// Format check, clippy of the host and of the BPF programs.
pub(crate) fn lint() -> Result<()> {
    setup::ensure(&[setup::Tier::Bpf, setup::Tier::Lint])?;
    format()?;
    clippy()?;
    clippy_bpf()
}

fn format() -> Result<()> {
    sh::run(sh::command("cargo").args(["fmt", "--all", "--check"]))
}

fn clippy() -> Result<()> {
    let mut command = sh::command("cargo");
    command.args(["clippy", "--quiet"]).args(HOST_PACKAGES).args(["--all-targets", "--", "-D", "warnings"]);
    sh::run(&mut command)
}

/// Clippy by the driver of the BPF compiler, in the target folder of the BPF build.
fn clippy_bpf() -> Result<()> {
    let toolchain = Toolchain::find()?.context("no BPF toolchain")?;
    let mut command = toolchain.cargo();
    command
        .args(["check", "--quiet", "--release", "--package", "egret-ebpf", "--target", "bpfel-unknown-none"])
        .args(["-Z", "build-std=core", "--target-dir"])
        .arg(sh::target_dir().join("bpf"))
        .env("RUSTC_WORKSPACE_WRAPPER", toolchain.clippy_driver()?)
        // The separator is the one that `cargo clippy` itself uses.
        .env("CLIPPY_ARGS", "-D__CLIPPY_HACKERY__warnings__CLIPPY_HACKERY__");
    sh::run(&mut command)
}

fn doc_tests(tally: &mut Tally) -> Result<()> {
    tally::run(sh::command("cargo").args(["test", "--quiet", "--doc"]).args(HOST_PACKAGES), tally)
}
