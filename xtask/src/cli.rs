//! The command line: parses and hands over, decides nothing.

use std::{path::PathBuf, time::Duration};

use anyhow::Result;
use clap::{Parser, Subcommand};

use crate::{cargo, ci, deploy, image, kind, setup, test, thin, tidy, vm};

/// Tasks of the Egret repository.
#[derive(Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask", disable_help_subcommand = true)]
struct Cli {
    #[command(subcommand)]
    task: Task,
}

#[derive(Subcommand)]
enum Task {
    /// Install what this machine lacks (Debian 12 as root), or say what it lacks.
    Setup {
        /// Which needs to look at.
        #[arg(value_enum, default_values_t = [setup::Tier::Bpf, setup::Tier::Lint, setup::Tier::Test, setup::Tier::Vm])]
        tiers: Vec<setup::Tier>,
    },
    /// Build the BPF object and every binary.
    Build {
        /// Arguments for cargo build, such as --release.
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        args: Vec<String>,
    },
    /// Run tests; without a tier: unit, kernel and netns. The tier cluster needs KUBECONFIG, and writes to that cluster.
    Test {
        /// What to run.
        #[arg(value_enum)]
        tiers: Vec<test::Tier>,
        /// Names, or parts of names, of the tests to run.
        #[arg(last = true)]
        filter: Vec<String>,
    },
    /// Run one command inside the VM that `test vm` uses.
    Vm {
        /// Seconds until the VM is ended.
        #[arg(long, default_value_t = 300)]
        timeout: u64,
        /// A file that the command needs, copied to the same path (a program with its libraries).
        #[arg(long)]
        file: Vec<PathBuf>,
        /// The command; it is copied into the VM with its libraries.
        #[arg(trailing_var_arg = true, allow_hyphen_values = true, required = true)]
        command: Vec<String>,
    },
    /// Compare each program's verified instructions with the checked-in budget.
    Verify {
        /// Write the budget anew.
        #[arg(long)]
        update: bool,
    },
    /// The tests that CI shortens, at full length: a million mutated DNS messages, ten minutes of rotating addresses.
    Soak {
        /// Messages per property.
        #[arg(long, default_value_t = 1_000_000)]
        messages: u32,
        /// Seconds of rotating addresses.
        #[arg(long, default_value_t = 600)]
        seconds: u32,
    },
    /// Run the benchmarks.
    Bench {
        /// Arguments for the benchmark program.
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        args: Vec<String>,
    },
    /// Run the demonstration: real programs under `egret run`, and in pods under `egret agent`, in network namespaces.
    Demo {
        /// Arguments for the demonstration program, such as --json or --only pods.
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        args: Vec<String>,
    },
    /// Make the container image as an OCI layout in a tar file, without a container engine.
    Image {
        /// The statically linked binary; default: build it.
        #[arg(long, value_name = "PATH")]
        binary: Option<PathBuf>,
        /// Where to; default: egret-image.tar in the target folder.
        #[arg(long, value_name = "FILE")]
        output: Option<PathBuf>,
        /// The name to import it under; default: localhost/egret:VERSION.
        #[arg(long)]
        name: Option<String>,
        /// Start the agent of the image in namespaces of its own, and wait for its readiness probe; needs root.
        #[arg(long = "try")]
        try_it: bool,
    },
    /// Install the chart on a new cluster of kind and try it end to end; needs Docker, kind, kubectl and helm.
    Kind,
    /// The Helm chart and the manifests.
    #[command(subcommand)]
    Deploy(Deploy),
    /// Check the conventions that no compiler checks.
    Tidy,
    /// Format check and clippy, the BPF programs included.
    Lint,
    /// Everything that a change must pass.
    Ci,
}

#[derive(Subcommand)]
enum Deploy {
    /// Lint and render the chart, compare with what is checked in, validate all of it and the samples.
    Check {
        /// Write what is checked in anew.
        #[arg(long)]
        update: bool,
    },
}

/// Parses the command line and does the task.
pub(crate) fn run() -> Result<()> {
    match Cli::parse().task {
        Task::Setup { tiers } => setup::ensure(&tiers),
        Task::Build { args } => {
            setup::ensure(&[setup::Tier::Bpf])?;
            cargo::build_bins(&args).map(drop)
        }
        Task::Test { tiers, filter } => test::run(&tiers, &filter),
        Task::Vm { timeout, file, command } => vm::run_command(&command, &file, Duration::from_secs(timeout)),
        Task::Verify { update } => thin::verify(update),
        Task::Soak { messages, seconds } => test::soak(messages, seconds),
        Task::Bench { args } => thin::bench(&args),
        Task::Demo { args } => thin::demo(&args),
        Task::Image { binary, output, name, try_it } => {
            image::run(binary.as_deref(), output.as_deref(), name.as_deref(), try_it)
        }
        Task::Kind => kind::run(),
        Task::Deploy(Deploy::Check { update }) => deploy::check(update),
        Task::Tidy => tidy::run(),
        Task::Lint => ci::lint(),
        Task::Ci => ci::run(),
    }
}
