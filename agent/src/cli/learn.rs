//! The options of `egret learn`.

use std::path::PathBuf;

use clap::{ArgGroup, Args};

use super::ServerArgs;
use super::agent::SOCKET;

const NOTES: &str = "\
Examples:
  sudo egret learn --pod shop/web-0 --since 1h --output web.yaml
  sudo egret learn -n shop -l app=web --for 10m --record web.json > web.yaml
  egret learn --check web.yaml --input-file web.json

A pod that nothing holds back shows its needs, and so does one in audit mode (egret.dev/audit, or `egret agent --audit`): then
what a policy would deny passes, and counts. An agent keeps its newest flows only (--flow-buffer); --for goes on with what
comes. Nothing is made wider than what was seen, unless --wildcard asks for it.

Exit codes: 0; 1 when --check finds what would be denied; 64 usage, 65 a bad policy, a file without flows, flows or pods without
labels, or too much for one policy, 66 unreadable file, 69 no answer, or no flow of these workloads, 73 file that cannot be
written, 77 no permission.";

/// Write a policy for workloads out of what they did, or replay that against a policy.
#[derive(Debug, Clone, Args)]
#[command(after_help = NOTES)]
#[command(group = ArgGroup::new("who").args(["pod", "namespace", "workload", "all_namespaces"]))]
#[command(group = ArgGroup::new("when").args(["since", "last"]))]
pub struct LearnArgs {
    /// Replay flows against these policies instead, and tell what they would deny
    #[arg(long, value_name = "POLICY", num_args = 1.., conflicts_with_all = ["name", "output", "wildcard", "no_addresses"])]
    pub check: Vec<PathBuf>,

    /// This pod
    #[arg(long, value_name = "NS/NAME", help_heading = "Workloads")]
    pub pod: Option<String>,
    /// Pods of this namespace; without --selector, a policy for each kind of them
    #[arg(long, short, value_name = "NS", help_heading = "Workloads")]
    pub namespace: Option<String>,
    /// Those with these labels: key=value, several with commas
    #[arg(long, short = 'l', value_name = "SELECTOR", requires = "namespace", help_heading = "Workloads")]
    pub selector: Option<String>,
    /// Pods of a Deployment, DaemonSet or the like, as flows name it: `shop/Deployment/web`
    #[arg(long, value_name = "NS/KIND/NAME", help_heading = "Workloads")]
    pub workload: Option<String>,
    /// Every pod; with --check that is the default
    #[arg(long, short = 'A', help_heading = "Workloads")]
    pub all_namespaces: bool,

    /// From then on: a time such as 2006-01-02T15:04:05Z, or how long ago, such as 1h30m; default: all that is kept
    #[arg(long, value_name = "TIME", help_heading = "Window")]
    pub since: Option<String>,
    /// The newest N
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..), help_heading = "Window")]
    pub last: Option<u64>,
    /// Go on with what comes, for so long, such as 10m; Ctrl-C ends it earlier
    #[arg(long = "for", value_name = "DURATION", help_heading = "Window")]
    pub duration: Option<String>,

    /// The policy's name; default: made of a label
    #[arg(long, value_name = "NAME", help_heading = "Policy")]
    pub name: Option<String>,
    /// Where it is written; default: stdout
    #[arg(long, value_name = "FILE", help_heading = "Policy")]
    pub output: Option<PathBuf>,
    /// One pattern *.x for N names or more that are one label below x, where x has two labels or more
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(2..), help_heading = "Policy")]
    pub wildcard: Option<u64>,
    /// What others begin as well; with --check too
    #[arg(long, help_heading = "Policy")]
    pub ingress: bool,
    /// Leave out addresses of which no name is known; they stand in comments
    #[arg(long, help_heading = "Policy")]
    pub no_addresses: bool,
    /// What was dropped counts as well
    #[arg(long, help_heading = "Policy")]
    pub include_dropped: bool,
    /// The cluster's own domain
    #[arg(long, value_name = "NAME", default_value = "cluster.local", help_heading = "Policy")]
    pub cluster_domain: String,

    /// Who is asked for flows.
    #[command(flatten)]
    pub server: ServerArgs,
    /// The agent's socket: it knows what is behind Services
    #[arg(long, value_name = "PATH", default_value = SOCKET, help_heading = "Source")]
    pub socket: PathBuf,
    /// Read flows from a file of JSON, such as --record and `egret observe -o json` write, instead; `-` is standard input
    #[arg(long, value_name = "FILE", help_heading = "Source", conflicts_with_all = ["server", "duration", "last", "record"])]
    pub input_file: Option<PathBuf>,
    /// Write down the flows that count, and what is behind Services; a file of your own, no link
    #[arg(long, value_name = "FILE", help_heading = "Source")]
    pub record: Option<PathBuf>,
}
