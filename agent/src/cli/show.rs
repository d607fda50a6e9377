//! The commands that ask the agent, and `policy check`.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};

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
