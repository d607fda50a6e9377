//! The commands that ask the agent, and `policy check`.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};
use egret_core::explain::written::{self, WrittenError};

use super::agent::SOCKET;

/// How an answer is printed, and whom to ask.
#[derive(Debug, Clone, Args)]
pub struct View {
    /// Format
    #[arg(long, short, value_enum, default_value_t = Format::Table)]
    pub output: Format,
    /// The agent's socket
    #[arg(long, value_name = "PATH", default_value = SOCKET)]
    pub socket: PathBuf,
}

/// `egret status`.
#[derive(Debug, Clone, Args)]
pub struct StatusArgs {
    /// For the probes of a kubelet: print one line, and exit with 0 or 1
    #[arg(long, value_enum)]
    pub probe: Option<Probe>,
    /// Format and socket.
    #[command(flatten)]
    pub view: View,
}

/// `--probe`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Probe {
    /// The agent answers
    Live,
    /// What it was told of the cluster is in force
    Ready,
}

/// `--output`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// Columns.
    Table,
    /// JSON.
    Json,
}

/// `egret endpoint`.
#[derive(Debug, Subcommand)]
pub enum EndpointCommand {
    /// All of them
    List(View),
    /// One, with everything that is known about it
    Get(Get),
}

/// `egret endpoint get`.
#[derive(Debug, Args)]
pub struct Get {
    /// Its number in `egret endpoint list`
    pub id: u32,
    /// Format and socket.
    #[command(flatten)]
    pub view: View,
}

/// `egret identity`.
#[derive(Debug, Subcommand)]
pub enum IdentityCommand {
    /// All of them
    List(View),
}

/// `egret fqdn`.
#[derive(Debug, Subcommand)]
pub enum FqdnCommand {
    /// Names and addresses that workloads were told
    #[command(subcommand)]
    Cache(CacheCommand),
}

/// `egret fqdn cache`.
#[derive(Debug, Subcommand)]
pub enum CacheCommand {
    /// All of them
    List {
        /// Of this endpoint only
        #[arg(long, short, value_name = "ID")]
        endpoint: Option<u32>,
        /// Names that match, such as `*.example.com`
        #[arg(long, short = 'p', value_name = "PATTERN")]
        matchpattern: Option<String>,
        /// Format and socket.
        #[command(flatten)]
        view: View,
    },
}

/// `egret policy`.
#[derive(Debug, Subcommand)]
pub enum PolicyCommand {
    /// The policies in force, and what is wrong with those that are not
    Get(View),
    /// Read policy files without an agent: what each selects, every warning; 65 if an object is bad
    Check(PolicyCheck),
    /// Why a connection passes or does not: every link of the chain, with the evidence, the cause and the remedy
    #[command(after_help = EXPLAIN_NOTES)]
    Explain(PolicyExplain),
}

const EXPLAIN_NOTES: &str = "\
The agent of the node on which FROM or TO runs is asked, and judges by the kernel's own maps. With --policies and --pods files
are judged instead, without an agent: what is known only at run time is told as unknown.

Exit codes: 0 explained, whatever the verdict (with --exit-code: 1 unless it passes); 64 usage; 65 nobody here has that name, or
an object is bad; 66 a file cannot be read; 69 no agent answers.";

/// `egret policy explain`.
#[derive(Debug, Args)]
pub struct PolicyExplain {
    /// Who begins the connection: a pod (NAMESPACE/NAME), a cgroup (/PATH, as `endpoint list` shows it), the number of an
    /// endpoint, or an address
    #[arg(long, value_name = "POD|CGROUP|IP", value_parser = parse_from)]
    pub from: String,
    /// To whom: a name as the workload looks it up, an address, or a pod; an IPv6 address before a port in brackets. Without a
    /// port that of the last flow counts, else 443/tcp
    #[arg(long, value_name = "NAME|IP|POD[:PORT[/PROTO]]", value_parser = parse_to)]
    pub to: String,
    /// Without an agent: policies, and other objects, of this folder
    #[arg(long, value_name = "DIR", requires = "pods", help_heading = "Without an agent")]
    pub policies: Option<PathBuf>,
    /// Without an agent: pods, namespaces, Services and nodes of this file
    #[arg(long, value_name = "FILE", requires = "policies", help_heading = "Without an agent")]
    pub pods: Vec<PathBuf>,
    /// Without an agent: a resolver whose answers are learned, beside the Service kube-dns of those files
    #[arg(
        long,
        value_name = "IP[:PORT]",
        requires = "policies",
        value_parser = super::names::parse_resolver,
        help_heading = "Without an agent"
    )]
    pub trusted_resolver: Vec<std::net::SocketAddr>,
    /// Where the agent pins
    #[arg(long, hide = true, value_name = "DIR", default_value = super::agent::PINS)]
    pub pins: PathBuf,
    /// Leave with 1 unless the connection passes
    #[arg(long)]
    pub exit_code: bool,
    /// Format and socket.
    #[command(flatten)]
    pub view: View,
}

/// `egret policy check`.
#[derive(Debug, Args)]
pub struct PolicyCheck {
    /// Files of Kubernetes YAML; pods and namespaces among them are what policies select from
    #[arg(required = true, value_name = "FILE")]
    pub files: Vec<PathBuf>,
    /// Format
    #[arg(long, short, value_enum, default_value_t = Format::Table)]
    pub output: Format,
}

fn parse_from(text: &str) -> Result<String, WrittenError> {
    written::from(text).map(|_| text.to_owned())
}

fn parse_to(text: &str) -> Result<String, WrittenError> {
    written::to(text).map(|_| text.to_owned())
}

/// `egret bpf`.
#[derive(Debug, Subcommand)]
pub enum BpfCommand {
    /// Entries of the maps, as far as they are the agent's or say what was learned
    Dump(BpfDump),
}

/// `egret bpf dump`.
#[derive(Debug, Args)]
pub struct BpfDump {
    /// Only this map
    #[arg(value_name = "MAP")]
    pub map: Option<String>,
    /// Format and socket.
    #[command(flatten)]
    pub view: View,
}
