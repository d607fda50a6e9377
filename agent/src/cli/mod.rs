//! The command line: clap definitions and nothing else. What NAME[:PORT[/PROTO]] means is `egret_core`'s
//! business; here it is text.

mod agent;
mod hubble;
mod learn;
mod names;
mod observe;
mod run;
mod server;
mod show;

use std::path::PathBuf;

use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};

pub use agent::{AgentArgs, DnsReject, Established, Source, StartupMode};
pub use hubble::HubbleArgs;
pub use learn::LearnArgs;
pub use names::NamesArgs;
pub use observe::{
    ColorWhen, FilterArgs, FlowFormat, Given, ObserveArgs, SelectionArgs, StyleArgs, TimeFormat,
};
pub use run::{OnDeny, Output, ReportFormat, RunArgs};
pub use server::ServerArgs;
pub use show::{
    BpfCommand, BpfDump, CacheCommand, EndpointCommand, Format, FqdnCommand, Get, IdentityCommand,
    PolicyCheck, PolicyCommand, Probe, StatusArgs, View,
};

use crate::exit;

/// Identity- and name-aware egress firewall in eBPF.
#[derive(Debug, Parser)]
#[command(name = "egret", version, max_term_width = 100)]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// The subcommands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Run one command that can reach only the names on its list
    Run(Box<RunArgs>),
    /// Hold the pods of this node to their policies
    Agent(Box<AgentArgs>),
    /// Tell how the agent is
    Status(StatusArgs),
    /// The pods and cgroups that are held
    #[command(subcommand)]
    Endpoint(EndpointCommand),
    /// Label sets and their numbers
    #[command(subcommand)]
    Identity(IdentityCommand),
    /// What workloads were told by DNS
    #[command(subcommand)]
    Fqdn(FqdnCommand),
    /// Policies in force, or in files
    #[command(subcommand)]
    Policy(PolicyCommand),
    /// Show flows, with the reason of each denial
    Observe(Box<ObserveArgs>),
    /// Write a policy for workloads out of what they did, or replay that against a policy
    Learn(Box<LearnArgs>),
    /// The kernel's maps
    #[command(subcommand)]
    Bpf(BpfCommand),
    /// Remove what the agent and ended runs have left: programs, pins and empty cgroups
    Uninstall(UninstallArgs),
}

/// `egret uninstall`.
#[derive(Debug, clap::Args)]
pub struct UninstallArgs {
    /// Print what would be removed and remove nothing
    #[arg(long)]
    pub dry_run: bool,
    /// Where the agent pins
    #[arg(long, hide = true, value_name = "DIR", default_value = agent::PINS)]
    pub pins: PathBuf,
    /// The agent's socket
    #[arg(long, value_name = "PATH", default_value = agent::SOCKET)]
    pub socket: PathBuf,
}

/// Parses the process's arguments. `Err` is the exit code: 0 after `--help`, 64 (EX_USAGE) after a usage
/// error, which has been printed.
pub fn parse() -> Result<Cli, u8> {
    parse_from(std::env::args_os())
}

/// As `parse`, from given arguments.
pub fn parse_from<I, T>(args: I) -> Result<Cli, u8>
where
    I: IntoIterator<Item = T>,
    T: Into<std::ffi::OsString> + Clone,
{
    let mut command = Cli::command();
    let parsed = command
        .try_get_matches_from_mut(args)
        .and_then(|m| Cli::from_arg_matches(&m))
        .and_then(|cli| run::check(&mut command, cli));
    parsed.map_err(|error| {
        // A closed stdout or stderr changes nothing about the code.
        let _ = error.print();
        if error.use_stderr() { exit::USAGE } else { 0 }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(args: &[&str]) -> Result<RunArgs, u8> {
        match parse_from(["egret", "run"].iter().chain(args))?.command {
            Command::Run(run) => Ok(*run),
            _ => Err(1),
        }
    }

    #[test]
    fn definitions_hold() {
        Cli::command().debug_assert();
    }

    #[test]
    fn options_of_a_run() {
        let args =
            run(&["--allow", "a.example:443", "--fail-on-deny", "--report", "-", "--", "curl", "--allow"]);
        let args = args.expect("valid");
        assert_eq!(args.allow, ["a.example:443"]);
        assert_eq!(args.fail_on_deny, Some(exit::DENIED));
        assert_eq!(args.report, Some(Output::Stdout));
        assert_eq!(args.command, ["curl", "--allow"]);
        assert!(args.names.keep_in_use);
        assert_eq!(run(&["--fail-on-deny=3", "--", "x"]).expect("valid").fail_on_deny, Some(3));
    }

    #[test]
    fn resolvers_with_and_without_a_port() {
        let args = ["192.0.2.53", "192.0.2.53:5353", "2001:db8::53", "[2001:db8::53]:5353", "[2001:db8::53]"];
        let args: Vec<&str> =
            args.iter().flat_map(|a| ["--trusted-resolver", *a]).chain(["--", "x"]).collect();
        let shown: Vec<String> =
            run(&args).expect("valid").names.trusted_resolver.iter().map(ToString::to_string).collect();
        let v6 = "[2001:db8::53]:53";
        assert_eq!(shown, ["192.0.2.53:53", "192.0.2.53:5353", v6, "[2001:db8::53]:5353", v6]);
    }

    #[test]
    fn usage_errors_leave_with_64() {
        for bad in [
            &["--audit", "--on-deny", "drop", "--", "x"][..],
            &["--fail-on-deny=0", "--", "x"],
            &["--keep-cap", "root", "--", "x"],
            &["--ttl-floor", "10", "--ttl-cap", "5", "--", "x"],
            &["--trusted-resolver", "one", "--", "x"],
            &["--report-format", "json", "--", "x"],
            &["--allow", "a.example"],
            &["curl"],
        ] {
            assert_eq!(run(bad).err(), Some(exit::USAGE), "{bad:?}");
        }
        assert_eq!(parse_from(["egret", "run", "--help"]).err(), Some(0));
    }
}
