//! `xtask test`: picks tests by tier and runs them under nextest.
//!
//! | tier | what | needs |
//! |---|---|---|
//! | unit | `egret-common`, `egret-core`, `egret-tables`, `xtask` | nothing |
//! | kernel | the library tests of `egret` and `egret-tests`, `tests/tests/kernel_*.rs` and every file without a tier | root, BPF |
//! | netns | `tests/tests/netns_*.rs` | root, network namespaces |
//! | cluster | `tests/tests/cluster_*.rs`, against the API server of `KUBECONFIG` | root, BPF, a server that one may write to |
//! | vm | the kernel tier and a part of netns on kernel 6.1 (see `vm`) | qemu |
//!
//! Together unit, kernel, netns and cluster cover every test of the workspace: a new file can land in no gap. What runs in
//! the cluster tier runs in the netns tier too, against a double of that server.

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
    /// Any API server, by KUBECONFIG.
    Cluster,
    /// Kernel 6.1 in a VM.
    Vm,
    /// All of them that need no cluster.
    All,
}

const PURE_PACKAGES: [&str; 8] =
    ["-p", "egret-common", "-p", "egret-core", "-p", "egret-tables", "-p", "xtask"];
const PURE: &str = "(package(egret-common) + package(egret-core) + package(egret-tables) + package(xtask))";
const NETNS: &str = "(package(egret-tests) & binary(/^netns_/))";
const CLUSTER: &str = "(package(egret-tests) & binary(/^cluster_/))";
/// By which the tests of the cluster tier know their server.
const SERVER: &str = "EGRET_KUBECONFIG";

impl Tier {
    /// nextest's filter for this tier.
    fn filter(self) -> String {
        match self {
            Self::Unit => PURE.to_owned(),
            Self::Kernel => format!("not ({PURE} + {NETNS} + {CLUSTER})"),
            Self::Netns => NETNS.to_owned(),
            Self::Cluster => CLUSTER.to_owned(),
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
    if tiers.contains(&Tier::Cluster) {
        // Before an hour of other tests.
        server(std::env::var("KUBECONFIG").ok())?;
    }
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
        Tier::Kernel | Tier::Netns | Tier::Cluster => {
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
            // Whoever has a kubeconfig does not want every test to write to that cluster.
            command.env_remove(SERVER);
            if tier == Tier::Cluster {
                command.env(SERVER, server(std::env::var("KUBECONFIG").ok())?);
            }
            tally::run(&mut command, tally)
        }
    }
}

/// What `KUBECONFIG` says; nothing is guessed, since the tests write.
fn server(kubeconfig: Option<String>) -> Result<String> {
    let Some(list) = kubeconfig.filter(|list| !list.is_empty()) else {
        bail!(sh::Failed::new(
            "which cluster? KUBECONFIG is not set. The tests make and remove namespaces, objects in them and rights of their \
             own there: `KUBECONFIG=FILE cargo xtask test cluster`",
            64
        ));
    };
    // The tests start elsewhere.
    let files =
        std::env::split_paths(&list).map(|file| std::env::current_dir().unwrap_or_default().join(file));
    let files: Vec<_> = files.collect();
    if let Some(missing) = files.iter().find(|file| !file.is_file()) {
        bail!(sh::Failed::new(format!("KUBECONFIG: no file {}", missing.display()), 64));
    }
    Ok(std::env::join_paths(files)?.to_string_lossy().into_owned())
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_server_is_guessed() {
        for (given, said) in
            [(None, "is not set"), (Some(""), "is not set"), (Some("/nowhere/config"), "no file /nowhere")]
        {
            let error = server(given.map(str::to_owned)).unwrap_err();
            assert!(sh::exit_code(&error) == 64 && error.to_string().contains(said), "{given:?}: {error}");
        }
        assert_eq!(
            server(Some("Cargo.toml".into())).unwrap(),
            std::env::current_dir().unwrap().join("Cargo.toml").to_string_lossy()
        );
    }

    #[test]
    fn tests_of_a_cluster_are_in_no_other_tier() {
        assert!(Tier::Kernel.filter().starts_with("not (") && Tier::Kernel.filter().contains(CLUSTER));
        assert!(!Tier::Netns.filter().contains("cluster") && Tier::Cluster.filter() == CLUSTER);
    }
}
