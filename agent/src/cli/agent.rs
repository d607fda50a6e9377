//! The options of `egret agent`.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::{Args, ValueEnum};
use egret_core::names::Name;

use super::{HubbleArgs, NamesArgs, OnDeny};

/// Where the agent answers.
pub(super) const SOCKET: &str = "/run/egret/egret.sock";
/// Where the agent pins.
pub(super) const PINS: &str = "/sys/fs/bpf/egret/agent";

const NOTES: &str = "\
Where a pod is, its object may say by an annotation:
  egret.dev/interface: NAME   the host's side of its interface
  egret.dev/netns: NAME|PATH  its network namespace
  egret.dev/cgroup: PATH      its cgroup, below the cgroup2 mount: any service of a plain host
Otherwise the pod's uid leads to it, through the kubelet's cgroups. Other annotations of pods overrule the options above:
  egret.dev/audit, egret.dev/reject: true|false
  egret.dev/ttl-floor, egret.dev/ttl-cap, egret.dev/grace: SECS   also of policies, for the pods that they select

SIGTERM ends the agent and leaves everything in force; the next agent goes on. `egret uninstall` ends it.";

/// Hold the pods of this node to their policies.
#[derive(Debug, Clone, Args)]
#[command(after_help = NOTES)]
pub struct AgentArgs {
    /// Where pods, namespaces, services, nodes and policies come from: a folder of Kubernetes YAML, watched, or an API
    /// server
    #[arg(long, value_name = "dir:PATH|k8s", value_parser = parse_source)]
    pub source: Source,
    /// Where that API server is, and as whom to ask it; default: $KUBECONFIG, ~/.kube/config, or the service account of
    /// the pod that this runs in
    #[arg(long, value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,
    /// Let annotations of pods on an API server overrule the options; otherwise egret.dev/reject alone counts there,
    /// since whoever may make a pod writes its annotations
    #[arg(long, help_heading = "Policy")]
    pub trust_annotations: bool,
    /// With an API server: take this taint off the node once its pods are held
    #[arg(long, value_name = "KEY")]
    pub remove_taint: Option<String>,
    /// With an API server: write an Event about a pod when packets of it are dropped, at most one per pod in five minutes
    #[arg(long)]
    pub drop_events: bool,
    /// Serve metrics for Prometheus at /metrics, and /livez and /readyz; default: nowhere. They are for everybody who can
    /// reach the address
    #[arg(long, value_name = "IP:PORT", group = "places")]
    pub metrics: Option<SocketAddr>,
    /// This node's name in those objects; default: the host's name
    #[arg(long, value_name = "NAME")]
    pub node: Option<String>,
    /// Where `egret status` and the others ask
    #[arg(long, value_name = "PATH", default_value = SOCKET)]
    pub socket: PathBuf,
    /// Where programs and maps are pinned
    #[arg(long, hide = true, value_name = "DIR", default_value = PINS)]
    pub pins: PathBuf,
    /// What the next agent must know; default: beside the socket
    #[arg(long, hide = true, value_name = "FILE")]
    pub state: Option<PathBuf>,
    /// Change no verdict; count and report what would have been denied
    #[arg(long, help_heading = "Policy")]
    pub audit: bool,
    /// How a denial looks to a pod: at once (reject) or as silence (drop)
    #[arg(long, value_enum, default_value_t = OnDeny::Drop, help_heading = "Policy")]
    pub on_deny: OnDeny,
    /// What a policy change does to open TCP connections: judge them again (strict) or let them go on (keep)
    #[arg(long, value_enum, default_value_t = Established::Strict, help_heading = "Policy")]
    pub established: Established,
    /// What becomes of a pod that starts before it is known
    #[arg(long, value_enum, default_value_t = StartupMode::Selected, help_heading = "Policy")]
    pub startup: StartupMode,
    /// The cgroup above all pods, below the cgroup2 mount; default: where kubelets have it
    #[arg(long, value_name = "PATH", help_heading = "Policy")]
    pub kubepods: Option<PathBuf>,
    /// How a refused look-up is answered
    #[arg(long, value_enum, default_value_t = DnsReject::Refused, help_heading = "Policy")]
    pub dns_reject: DnsReject,
    /// The cluster's own domain: names below it may stand for addresses of the cluster
    #[arg(long, value_name = "NAME", default_value = "cluster.local", value_parser = parse_name, help_heading = "Names")]
    pub cluster_domain: Name,
    /// Resolvers and lifetimes.
    #[command(flatten)]
    pub names: NamesArgs,
    /// Flows.
    #[command(flatten)]
    pub hubble: HubbleArgs,
}

/// `--established`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Established {
    /// They are judged again.
    Strict,
    /// They go on.
    Keep,
}

/// `--startup`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum StartupMode {
    /// Denied while some policy holds pods back, those on the node's own network excepted
    Selected,
    /// Denied
    Deny,
    /// Let through
    Allow,
}

/// `--dns-reject`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum DnsReject {
    /// REFUSED: resolvers that search a list of domains may give up at once.
    Refused,
    /// NXDOMAIN: they try the next one.
    Nxdomain,
}

/// `--source`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Source {
    /// A folder of Kubernetes YAML.
    Folder(PathBuf),
    /// A Kubernetes API server.
    K8s,
}

fn parse_name(text: &str) -> Result<Name, String> {
    Name::parse(text).map_err(|error| error.to_string())
}

fn parse_source(text: &str) -> Result<Source, String> {
    match text.strip_prefix("dir:") {
        Some(path) if !path.is_empty() => Ok(Source::Folder(path.into())),
        None if text == "k8s" => Ok(Source::K8s),
        _ => Err("write dir:PATH, or k8s".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use crate::cli::{Command, Source, parse_from};
    use crate::exit;

    #[test]
    fn a_source_is_needed() {
        let cli =
            parse_from(["egret", "agent", "--source", "dir:/etc/egret", "--node", "n1"]).expect("valid");
        let Command::Agent(args) = cli.command else { panic!("not an agent") };
        assert_eq!((args.source, args.metrics), (Source::Folder("/etc/egret".into()), None));
        let cli = parse_from(["egret", "agent", "--source", "k8s", "--kubeconfig", "a"]).expect("valid");
        let Command::Agent(args) = cli.command else { panic!("not an agent") };
        assert_eq!((args.source, args.trust_annotations), (Source::K8s, false));
        for bad in [
            &[][..],
            &["--source", "/etc/egret"],
            &["--source", "dir:"],
            &["--source", "k8s:x"],
            &["--source", "k8s", "--metrics", "9964"],
            &["--source", "dir:x", "--ttl-floor", "9", "--ttl-cap", "8"],
        ] {
            let args = ["egret", "agent"].iter().chain(bad).copied();
            assert_eq!(parse_from(args).err(), Some(exit::USAGE), "{bad:?}");
        }
    }
}
