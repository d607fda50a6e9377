//! The argument of `egret run --allow`: `NAME[:PORT[/PROTO]]`, or an address or CIDR in place of the name.
//!
//! Owns: what a bare name means (CASES S-A06) and the messages a user sees for a bad argument. Must not know:
//! the policy APIs.

use std::{fmt, net::IpAddr};

use ipnet::IpNet;
use thiserror::Error;

use crate::{
    names::{Name, NameError, Pattern, PatternError},
    net::{canonical_net, host_net, parse_net},
    ports::{PortRange, Ports, Proto},
};

/// What is wrong with an `--allow` argument.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum AllowError {
    /// The name part.
    #[error("{0}")]
    Name(#[from] PatternError),
    /// A URL where a host name belongs.
    #[error("this is a URL; write only the host name: `{0}`")]
    Url(String),
    /// A path after the name.
    #[error("a `/` belongs after a port (as in `:53/udp`) or in a CIDR; a path cannot be filtered")]
    Path,
    /// Digits and dots that are no address.
    #[error("`{0}` looks like an address, but is none")]
    NotAnAddress(String),
    /// Several colons without brackets.
    #[error("write an IPv6 address in brackets when a port follows: `[2001:db8::1]:443`")]
    Brackets,
    /// The port part.
    #[error("`{0}` is no port: write a number from 1 to 65535, a range such as 8000-8100, or `*`")]
    Port(String),
    /// A range the wrong way round.
    #[error("port range {0}-{1} ends before it begins")]
    Range(u16, u16),
    /// The protocol part.
    #[error("`{0}` is no protocol: write tcp, udp or sctp")]
    Proto(String),
}

/// Whom an [`AllowRule`] opens.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Target {
    /// The addresses that the workload learns for names of this pattern.
    Name(Pattern),
    /// These addresses, named or not. IPv4-mapped IPv6 is stored as IPv4.
    Net(IpNet),
}

/// One `--allow` argument.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct AllowRule {
    target: Target,
    ports: Ports,
}

impl AllowRule {
    /// Reads `NAME`, `NAME:443`, `NAME:53/udp`, `NAME:8000-8100`, `NAME:*`, `NAME:*/udp`, and the same with
    /// `192.0.2.1`, `10.0.0.0/8`, `[2001:db8::1]` or `[2001:db8::/32]` for the name. Without a port: tcp/443 and
    /// tcp/80. `:*` is every port and protocol.
    ///
    /// # Errors
    /// [`AllowError`], with the remedy in its text.
    pub fn parse(text: &str) -> Result<Self, AllowError> {
        let text = text.trim();
        if let Some((_, rest)) = text.split_once("://") {
            return Err(AllowError::Url(rest.split(['/', ':', '?']).next().unwrap_or("").to_owned()));
        }
        if let Some(net) = parse_net(text) {
            return Ok(Self { target: Target::Net(net), ports: web_ports() });
        }
        let (target, ports) = split_target(text)?;
        Ok(Self { target: parse_target(target)?, ports: ports.map_or(Ok(web_ports()), parse_ports)? })
    }

    /// The argument that would open `proto`/`port` of the peer: by name if one is known, else by address.
    #[must_use]
    pub fn suggest(name: Option<&Name>, address: IpAddr, proto: Proto, port: u16) -> Self {
        let target = match name {
            Some(name) => Target::Name(Pattern::exact(name.clone())),
            None => Target::Net(host_net(address)),
        };
        let ports = match proto {
            Proto::Icmp | Proto::Icmpv6 => Ports::All,
            _ => Ports::ranges([PortRange::one(proto, port)]),
        };
        Self { target, ports }
    }

    /// Whom the rule opens.
    #[must_use]
    pub fn target(&self) -> &Target {
        &self.target
    }

    /// On which ports.
    #[must_use]
    pub fn ports(&self) -> &Ports {
        &self.ports
    }
}

impl fmt::Display for AllowRule {
    /// In the form that [`AllowRule::parse`] reads, except that several ports are joined by commas.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.target {
            Target::Name(pattern) => write!(f, "{pattern}")?,
            Target::Net(net) => {
                let one = net.prefix_len() == net.max_prefix_len();
                let text = if one { net.addr().to_string() } else { net.to_string() };
                match net {
                    IpNet::V4(_) => f.write_str(&text)?,
                    IpNet::V6(_) => write!(f, "[{text}]")?,
                }
            }
        }
        write!(f, ":{}", self.ports)
    }
}

fn web_ports() -> Ports {
    Ports::ranges([443, 80].map(|port| PortRange::one(Proto::Tcp, port)))
}

/// Cuts `TARGET[:PORTS]` at the right colon.
fn split_target(text: &str) -> Result<(&str, Option<&str>), AllowError> {
    if let Some(rest) = text.strip_prefix('[') {
        let (inner, after) = rest.split_once(']').ok_or(AllowError::Brackets)?;
        return match after.strip_prefix(':') {
            Some(ports) => Ok((inner, Some(ports))),
            None if after.is_empty() => Ok((inner, None)),
            None => Err(AllowError::Brackets),
        };
    }
    match text.rsplit_once(':') {
        None => Ok((text, None)),
        Some((head, _)) if head.contains(':') => Err(AllowError::Brackets),
        Some((head, ports)) => Ok((head, Some(ports))),
    }
}

fn parse_target(text: &str) -> Result<Target, AllowError> {
    if let Some(net) = parse_net(text) {
        return Ok(Target::Net(canonical_net(net)));
    }
    let last = text.trim_end_matches('.').rsplit('.').next().unwrap_or("");
    let numeric = !last.is_empty() && last.bytes().all(|b| b.is_ascii_digit());
    if numeric || text.contains(':') || text.split('/').next().is_some_and(|a| a.parse::<IpAddr>().is_ok()) {
        return Err(AllowError::NotAnAddress(text.to_owned()));
    }
    match Pattern::match_pattern(text) {
        Err(PatternError::Name(NameError::BadChar('/'))) => Err(AllowError::Path),
        other => Ok(Target::Name(other?)),
    }
}

fn parse_ports(text: &str) -> Result<Ports, AllowError> {
    let (range, proto) = match text.split_once('/') {
        Some((range, proto)) => (
            range,
            Some(Proto::with_ports_from_str(proto).ok_or_else(|| AllowError::Proto(proto.to_owned()))?),
        ),
        None => (text, None),
    };
    if range == "*" {
        return Ok(proto.map_or(Ports::All, |p| Ports::ranges([PortRange::whole(p)])));
    }
    let (lo, hi) = match range.split_once('-') {
        Some((lo, hi)) => (parse_port(lo)?, parse_port(hi)?),
        None => (parse_port(range)?, parse_port(range)?),
    };
    let range = PortRange::new(proto.unwrap_or(Proto::Tcp), lo, hi).ok_or(AllowError::Range(lo, hi))?;
    Ok(Ports::ranges([range]))
}

fn parse_port(text: &str) -> Result<u16, AllowError> {
    match text.parse::<u16>() {
        Ok(port) if port > 0 && text.bytes().all(|b| b.is_ascii_digit()) => Ok(port),
        _ => Err(AllowError::Port(text.to_owned())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, want: &str) {
        assert_eq!(AllowRule::parse(text).map(|r| r.to_string()), Ok(want.to_owned()), "{text}");
    }

    fn check_err(text: &str, want: &str) {
        let err = AllowRule::parse(text).expect_err(text).to_string();
        assert!(err.contains(want), "{text}: {err}");
    }

    #[test]
    fn s_a06_what_an_argument_opens() {
        check("api.vendor.example", "api.vendor.example:443/tcp,80/tcp");
        check("API.vendor.example.:443", "api.vendor.example:443/tcp");
        check("ns.example:53/udp", "ns.example:53/udp");
        check("ns.example:53/UDP", "ns.example:53/udp");
        check("x.example:*", "x.example:*");
        check("x.example:*/udp", "x.example:*/udp");
        check("x.example:8000-8100", "x.example:8000-8100/tcp");
        check("*.x.example", "*.x.example:443/tcp,80/tcp");
        check("**.x.example:5432", "**.x.example:5432/tcp");
        check("*", "*:443/tcp,80/tcp");
        check("postgres:5432", "postgres:5432/tcp");
    }

    #[test]
    fn s_a06_addresses_and_cidrs() {
        check("192.0.2.1", "192.0.2.1:443/tcp,80/tcp");
        check("192.0.2.1:22", "192.0.2.1:22/tcp");
        check("10.0.0.0/8:5432", "10.0.0.0/8:5432/tcp");
        check("10.1.2.3/8:53/udp", "10.0.0.0/8:53/udp");
        check("10.0.0.0/8", "10.0.0.0/8:443/tcp,80/tcp");
        check("[2001:db8::1]:443", "[2001:db8::1]:443/tcp");
        check("[2001:db8::/32]:443", "[2001:db8::/32]:443/tcp");
        check("2001:db8::1", "[2001:db8::1]:443/tcp,80/tcp");
        check("2001:db8::/32", "[2001:db8::/32]:443/tcp,80/tcp");
        check("[::ffff:192.0.2.1]:443", "192.0.2.1:443/tcp");
        check("0.0.0.0/0:*", "0.0.0.0/0:*");
    }

    #[test]
    fn s_a06_messages() {
        check_err("https://x.example/path", "only the host name: `x.example`");
        check_err("x.example/path", "a path cannot be filtered");
        check_err("x.example:0", "is no port");
        check_err("x.example:+1", "is no port");
        check_err("x.example:70000", "is no port");
        check_err("x.example:", "is no port");
        check_err("x.example:90-80", "ends before it begins");
        check_err("x.example:53/icmp", "is no protocol");
        check_err("2001:db8::1:443/tcp", "in brackets");
        check_err("[2001:db8::1", "in brackets");
        check_err("300.1.1.1", "looks like an address");
        check_err("10.0.0.0/33:1", "looks like an address");
        check_err("", "empty");
        check_err("x.example.*", "anybody can register");
        check_err("a b", "not allowed in a name");
    }

    #[test]
    fn s_a05_suggestion_is_a_valid_argument() {
        let addr: IpAddr = "2001:db8::7".parse().unwrap();
        let name = Name::parse("assets.cdn.example").unwrap();
        for rule in [
            AllowRule::suggest(Some(&name), addr, Proto::Tcp, 443),
            AllowRule::suggest(None, addr, Proto::Udp, 443),
            AllowRule::suggest(None, addr, Proto::Icmpv6, 0x8000),
        ] {
            assert_eq!(AllowRule::parse(&rule.to_string()).as_ref(), Ok(&rule));
        }
    }
}
