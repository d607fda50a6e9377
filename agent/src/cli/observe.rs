//! The options of `egret observe`. Those that say which flows are wanted are kept as they were given, in their order, since
//! `--not` is about the one that follows; what they mean is `flows`' business.

use std::path::PathBuf;

use clap::{Arg, ArgAction, ArgMatches, Args, Command, FromArgMatches, ValueEnum, value_parser};

use super::ServerArgs;

const NOTES: &str = "\
Examples:
  sudo egret observe --pod shop/web --verdict DROPPED --why
  sudo egret observe --follow --protocol dns
  sudo egret observe --reason NameExpired --since 1h -o json

Values of one option are alternatives; several options must all be met. An option without from- or to- is met by either end.
Times are in UTC.

Exit codes: 0 when all was shown, 64 usage, 65 nothing in the file can be read, 66 unreadable
file, 69 no answer, or the server went away, 77 no permission.";

/// Show flows: who wanted to reach what, what became of it and why.
#[derive(Debug, Clone, Args)]
#[command(after_help = NOTES)]
pub struct ObserveArgs {
    /// Which.
    #[command(flatten)]
    pub filters: FilterArgs,
    /// How many.
    #[command(flatten)]
    pub selection: SelectionArgs,
    /// How they look.
    #[command(flatten)]
    pub style: StyleArgs,
    /// Where they are.
    #[command(flatten)]
    pub server: ServerArgs,
    /// Read flows from a file of earlier JSON, such as an export, instead of a server; `-` is standard input
    #[arg(long, value_name = "FILE", help_heading = "Source", conflicts_with_all = ["server", "follow"])]
    pub input_file: Option<PathBuf>,
}

/// An option about which flows are wanted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Given {
    /// Its name.
    pub name: &'static str,
    /// What stands with it; empty if nothing does.
    pub value: String,
}

/// The options about which flows are wanted, in their order.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct FilterArgs {
    /// All of them.
    pub given: Vec<Given>,
}

/// An option as it is defined: name, short form, the value's name (empty: it has none), help.
type Definition = (&'static str, Option<char>, &'static str, &'static str);

/// All of them.
const FILTERS: &[Definition] = &[
    (
        "not",
        None,
        "",
        "Leave out what the next option asks for; options after several --not must all be met to leave a flow out",
    ),
    ("namespace", Some('n'), "NS", "Pods of this namespace; with --pod or --service: theirs"),
    ("from-namespace", None, "NS", "The same of the sender"),
    ("to-namespace", None, "NS", "The same of the receiver"),
    ("all-namespaces", Some('A'), "", "Pods of any namespace"),
    ("pod", None, "[NS/]PREFIX", "A pod, by the beginning of its name; without NS: of `default`"),
    ("from-pod", None, "[NS/]PREFIX", "The same of the sender"),
    ("to-pod", None, "[NS/]PREFIX", "The same of the receiver"),
    ("service", None, "[NS/]PREFIX", "A Service, by the beginning of its name"),
    ("from-service", None, "[NS/]PREFIX", "The same of the sender"),
    ("to-service", None, "[NS/]PREFIX", "The same of the receiver"),
    ("workload", None, "[KIND/]NAME", "What pods belong to; `KIND/` for all of a kind"),
    ("from-workload", None, "[KIND/]NAME", "The same of the sender"),
    ("to-workload", None, "[KIND/]NAME", "The same of the receiver"),
    ("label", Some('l'), "SELECTOR", "Identity labels, as with `kubectl -l`; `reserved:world`"),
    ("from-label", None, "SELECTOR", "The same of the sender"),
    ("to-label", None, "SELECTOR", "The same of the receiver"),
    ("identity", None, "ID", "An identity by number, or a reserved one by name, such as `world`"),
    ("from-identity", None, "ID", "The same of the sender"),
    ("to-identity", None, "ID", "The same of the receiver"),
    ("ip", None, "ADDR|CIDR", "An address"),
    ("from-ip", None, "ADDR|CIDR", "The same of the sender"),
    ("to-ip", None, "ADDR|CIDR", "The same of the receiver"),
    ("fqdn", None, "NAME", "A name that the other end was told for the address; `*` is any part of it"),
    ("from-fqdn", None, "NAME", "The same of the sender"),
    ("to-fqdn", None, "NAME", "The same of the receiver"),
    ("port", None, "PORT", "A port"),
    ("from-port", None, "PORT", "The same of the sender"),
    ("to-port", None, "PORT", "The same of the receiver"),
    ("cluster", None, "NAME", "Pods of this cluster; Egret's own is `default`"),
    ("from-cluster", None, "NAME", "The same of the sender"),
    ("to-cluster", None, "NAME", "The same of the receiver"),
    ("protocol", None, "NAME", "tcp, udp, sctp, icmp, icmpv4, icmpv6, igmp, vrrp, dns"),
    ("verdict", None, "VERDICT", "FORWARDED, DROPPED, AUDIT, or another one of Hubble's"),
    (
        "reason",
        None,
        "NAME",
        "Why it was denied, or would have been: one of Egret's own reasons, such as NameExpired",
    ),
    (
        "drop-reason-desc",
        None,
        "NAME",
        "The same in Hubble's words, such as POLICY_DENY; of dropped flows only",
    ),
    ("type", Some('t'), "TYPE[:SUB]", "drop, policy-verdict, l7, trace, capture, trace-sock, or a number"),
    ("traffic-direction", None, "DIRECTION", "ingress or egress, as seen by the pod"),
    ("tcp-flags", None, "FLAG[,FLAG..]", "TCP flags that are all set"),
    ("ip-version", None, "4|6", "The version of IP"),
    ("ipv4", Some('4'), "", "IPv4 alone"),
    ("ipv6", Some('6'), "", "IPv6 alone"),
    ("node-name", None, "[CLUSTER/]PATTERN", "Seen on this node; `*` is any part of the name"),
    ("node-label", None, "SELECTOR", "Seen on a node with these labels"),
    ("uuid", None, "ID", "The flow with this id"),
    ("interface", None, "NAME", "Seen at this interface"),
    (
        "allowlist",
        None,
        "JSON",
        "Also what this filter of Hubble's API asks for; several may follow each other",
    ),
    ("denylist", None, "JSON", "Leave out what this filter of Hubble's API asks for"),
];

impl Args for FilterArgs {
    fn augment_args(command: Command) -> Command {
        FILTERS.iter().fold(command, |command, (name, short, value, help)| {
            let mut arg =
                Arg::new(*name).long(*name).help(*help).help_heading("Filters").action(ArgAction::Append);
            arg = match value.is_empty() {
                true => arg.num_args(0).default_missing_value(""),
                false => arg.value_name(*value),
            };
            if let Some(short) = short {
                arg = arg.short(*short);
            }
            command.arg(arg.value_parser(value_parser!(String)))
        })
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl FromArgMatches for FilterArgs {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let mut given = Vec::new();
        for (name, ..) in FILTERS {
            let places = matches.indices_of(name).into_iter().flatten();
            let values = matches.get_many::<String>(name).into_iter().flatten();
            given.extend(places.zip(values).map(|(at, value)| (at, Given { name, value: value.clone() })));
        }
        given.sort_by_key(|(at, _)| *at);
        Ok(Self { given: given.into_iter().map(|(_, given)| given).collect() })
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

/// Which of the flows that pass the filters.
#[derive(Debug, Clone, Default, Args)]
#[command(next_help_heading = "Selection")]
pub struct SelectionArgs {
    /// The newest N; default: 20, unless --follow, --since, --until or --input-file is given
    #[arg(long, value_name = "N", conflicts_with_all = ["first", "all"])]
    pub last: Option<u64>,
    /// The oldest N
    #[arg(long, value_name = "N", conflicts_with_all = ["all", "follow"])]
    pub first: Option<u64>,
    /// All that are kept
    #[arg(long)]
    pub all: bool,
    /// Go on with what comes
    #[arg(long, short)]
    pub follow: bool,
    /// From then on: a time such as 2006-01-02T15:04:05Z, or how long ago, such as 1h30m
    #[arg(long, value_name = "TIME")]
    pub since: Option<String>,
    /// Up to then; without effect with --follow
    #[arg(long, value_name = "TIME")]
    pub until: Option<String>,
}

/// How flows look.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Output")]
pub struct StyleArgs {
    /// Format
    #[arg(long, short, value_enum, default_value_t = FlowFormat::Compact)]
    pub output: FlowFormat,
    /// Tell the cause of each denial in words as well
    #[arg(long)]
    pub why: bool,
    /// Show the node's name
    #[arg(long)]
    pub print_node_name: bool,
    /// Show the policies that decided
    #[arg(long)]
    pub print_policy_names: bool,
    /// Show pods, Services and names instead of addresses
    #[arg(
        long,
        value_name = "BOOL",
        default_value_t = true,
        action = ArgAction::Set,
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "true"
    )]
    pub ip_translation: bool,
    /// Show addresses: --ip-translation=false
    #[arg(long)]
    pub numeric: bool,
    /// How times are written
    #[arg(long, value_name = "FORMAT", value_enum, ignore_case = true, default_value_t = TimeFormat::StampMilli)]
    pub time_format: TimeFormat,
    /// When there are colours
    #[arg(long, value_name = "WHEN", value_enum, default_value_t = ColorWhen::Auto)]
    pub color: ColorWhen,
    /// Show what would be asked of the server, and ask nothing
    #[arg(long)]
    pub print_raw_filters: bool,
}

/// `--output`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum FlowFormat {
    /// A line each
    Compact,
    /// Names and values
    Dict,
    /// JSON, a line each
    Json,
    /// The same
    Jsonpb,
    /// Columns
    #[value(alias = "tab")]
    Table,
}

/// `--time-format`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum TimeFormat {
    /// Jan  2 15:04:05.000
    #[value(name = "StampMilli")]
    StampMilli,
    /// 2006-01-02T15:04:05Z
    #[value(name = "RFC3339")]
    Rfc3339,
    /// 2006-01-02T15:04:05.000Z
    #[value(name = "RFC3339Milli")]
    Rfc3339Milli,
    /// 2006-01-02T15:04:05.000000Z
    #[value(name = "RFC3339Micro")]
    Rfc3339Micro,
    /// 2006-01-02T15:04:05.000000000Z
    #[value(name = "RFC3339Nano")]
    Rfc3339Nano,
    /// Mon, 02 Jan 2006 15:04:05 +0000
    #[value(name = "RFC1123Z")]
    Rfc1123z,
}

/// `--color`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum ColorWhen {
    /// On a terminal, unless NO_COLOR is set
    Auto,
    /// Always
    Always,
    /// Never
    Never,
}
