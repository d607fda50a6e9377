//! The options of `egret run`.

use std::ffi::OsString;
use std::path::PathBuf;

use caps::Capability;
use clap::error::ErrorKind;
use clap::{Args, ValueEnum};

use super::{Cli, Command, NamesArgs};
use crate::sandbox::caps as sandbox_caps;

const EXAMPLES: &str = "\
Examples:
  sudo egret run --allow api.vendor.example -- curl https://api.vendor.example/
  sudo egret run --allow 'github.com:443' --allow '**.githubusercontent.com:443' -- make fetch
  sudo egret run --policy egress.yaml --fail-on-deny --report denied.txt -- ./ci.sh
  sudo egret run --audit --write-policy egress.yaml -- ./ci.sh     # then: --policy egress.yaml

Loopback and this host's own addresses are always allowed, and so are look-ups of listed names at
the resolvers of /etc/resolv.conf (read once, at the start). An empty list: nothing but loopback.

Exit codes: CMD's own; 128+N if it died of signal N; 126/127 if it could not be executed or found;
64 usage, 65 bad pattern or policy, 66 unreadable policy, 67 no such user, 69 host cannot enforce,
71 system error, 73 report not writable, 77 no permission: in all of these CMD was not started;
--fail-on-deny's code (86) if CMD succeeded and something was denied.";

/// Run one command that can reach only the names on its list.
///
/// CMD and all its descendants are held in a cgroup of their own; the kernel decides every packet.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct RunArgs {
    /// A name that may be reached: NAME[:PORT[/PROTO]]; `*.x` one label, `**.x` one or more
    #[arg(long, value_name = "NAME[:PORT[/PROTO]]", help_heading = "Policy")]
    pub allow: Vec<String>,
    /// A policy file: CiliumNetworkPolicy YAML
    #[arg(long, value_name = "FILE", help_heading = "Policy")]
    pub policy: Vec<PathBuf>,
    /// Change no verdict; report what would have been denied
    #[arg(long, help_heading = "Policy", conflicts_with = "on_deny")]
    pub audit: bool,
    /// How a denial looks to CMD: at once (reject) or as silence (drop)
    #[arg(long, value_enum, default_value_t = OnDeny::Reject, help_heading = "Policy")]
    pub on_deny: OnDeny,
    /// Resolvers and lifetimes.
    #[command(flatten)]
    pub names: NamesArgs,
    /// Print no start lines, and nothing at the end if nothing was denied
    #[arg(long, short, conflicts_with = "verbose", help_heading = "Report")]
    pub quiet: bool,
    /// Print each denial when it happens
    #[arg(long, short, help_heading = "Report")]
    pub verbose: bool,
    /// Leave with CODE (default 86) if CMD succeeds and something was denied
    #[arg(
        long,
        value_name = "CODE",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "86",
        value_parser = clap::value_parser!(u8).range(1..),
        help_heading = "Report"
    )]
    pub fail_on_deny: Option<u8>,
    /// Write the report there as well; `-` is stdout
    #[arg(long, value_name = "FILE|-", value_parser = parse_output, help_heading = "Report")]
    pub report: Option<Output>,
    /// Format of --report
    #[arg(long, value_enum, default_value_t = ReportFormat::Text, requires = "report", help_heading = "Report")]
    pub report_format: ReportFormat,
    /// Write a CiliumNetworkPolicy that allows what CMD used
    #[arg(long, value_name = "FILE", help_heading = "Report")]
    pub write_policy: Option<PathBuf>,
    /// Run CMD as USER (name or UID[:GID]); default behind sudo: the invoking user
    #[arg(long, value_name = "USER[:GROUP]", help_heading = "Confinement")]
    pub user: Option<String>,
    /// Leave CMD a capability that it would lose (a way round the firewall)
    #[arg(long, value_name = "CAP", value_parser = sandbox_caps::parse, help_heading = "Confinement")]
    pub keep_cap: Vec<Capability>,
    /// Let CMD inherit this file descriptor, even if it is a socket that no hook sees
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(i32).range(0..), help_heading = "Confinement")]
    pub keep_fd: Vec<i32>,
    /// Hide a file, socket or directory from CMD
    #[arg(long, value_name = "PATH", help_heading = "Confinement")]
    pub hide: Vec<PathBuf>,
    /// Do not filter system calls: leaves io_uring, vsock and other socket families open
    #[arg(long, help_heading = "Confinement")]
    pub no_syscall_filter: bool,
    /// Attach even where that switches off another tool's program for CMD
    #[arg(long, help_heading = "Confinement")]
    pub accept_override: bool,
    /// Wait for background processes that outlive CMD, instead of ending them
    #[arg(long, help_heading = "Confinement")]
    pub wait_children: bool,
    /// The command and its arguments
    #[arg(last = true, required = true, num_args = 1.., value_name = "CMD")]
    pub command: Vec<OsString>,
}

/// `--on-deny`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum OnDeny {
    /// connect and sendto fail at once with an errno.
    Reject,
    /// Packets vanish.
    Drop,
}

/// `--report-format`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum ReportFormat {
    /// The table that is printed at the end.
    Text,
    /// The same as JSON.
    Json,
}

/// Where a report goes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Output {
    /// `-`
    Stdout,
    /// A file, replaced.
    File(PathBuf),
}

fn parse_output(text: &str) -> Result<Output, std::convert::Infallible> {
    Ok(if text == "-" { Output::Stdout } else { Output::File(text.into()) })
}

/// What clap's own rules cannot say.
pub(super) fn check(command: &mut clap::Command, cli: Cli) -> Result<Cli, clap::Error> {
    let names = match &cli.command {
        Command::Run(run) => &run.names,
        Command::Agent(agent) => &agent.names,
        _ => return Ok(cli),
    };
    match names.lifetimes() {
        None => Err(command.error(ErrorKind::ValueValidation, "--ttl-floor is above --ttl-cap")),
        Some(_) => Ok(cli),
    }
}
