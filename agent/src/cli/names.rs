//! What both `egret run` and `egret agent` are told about learning names.

use std::net::{IpAddr, SocketAddr};

use clap::{ArgAction, Args};
use egret_core::policy::DNS_PORT;
use egret_core::tuning::Lifetimes;

/// Resolvers and lifetimes.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Names")]
pub struct NamesArgs {
    /// A resolver whose answers are learned, beside those that are known (resolv.conf, the cluster's)
    #[arg(long, value_name = "IP[:PORT]", value_parser = parse_resolver)]
    pub trusted_resolver: Vec<SocketAddr>,
    /// Shortest lifetime of a learned address, in seconds [default: 5]
    #[arg(long, value_name = "SECS")]
    ttl_floor: Option<u32>,
    /// Longest lifetime of a learned address, in seconds [default: 86400]
    #[arg(long, value_name = "SECS")]
    ttl_cap: Option<u32>,
    /// Seconds that a learned address outlives its TTL, for programs that cache answers [default: 30]
    #[arg(long, value_name = "SECS")]
    grace: Option<u32>,
    /// Keep an address open for new connections while there is one to it
    #[arg(long, value_name = "BOOL", default_value_t = true, action = ArgAction::Set)]
    pub keep_in_use: bool,
}

impl NamesArgs {
    /// The lifetimes that are given; `None`: the floor is above the cap, which the command line refuses.
    #[must_use]
    pub fn lifetimes(&self) -> Option<Lifetimes> {
        Lifetimes::new(self.ttl_floor, self.ttl_cap, self.grace)
    }
}

pub(super) fn parse_resolver(text: &str) -> Result<SocketAddr, String> {
    let bare = text.strip_prefix('[').and_then(|t| t.strip_suffix(']')).unwrap_or(text);
    match bare.parse::<IpAddr>() {
        Ok(ip) => Ok(SocketAddr::new(ip, DNS_PORT)),
        Err(_) => text.parse().map_err(|_| "write IP, IP:PORT or [IPv6]:PORT".to_owned()),
    }
}
