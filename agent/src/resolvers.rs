//! Whom this host asks for names: /etc/resolv.conf, read once. The command of `egret run` may be able to write that file,
//! so what it says later is not believed.

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use egret_core::names::Name;
use egret_core::policy::DNS_PORT;

const PATH: &str = "/etc/resolv.conf";

/// What resolv.conf(5) says.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Resolvers {
    /// The name servers.
    pub servers: BTreeSet<SocketAddr>,
    /// Domains that the client appends to a name.
    pub search: Vec<Name>,
    /// Dots from which on a name is tried as it is first.
    pub ndots: u8,
}

/// Reads /etc/resolv.conf as this process sees it. As the C library does, a missing file means a name server on
/// this host.
#[must_use]
pub fn read() -> Resolvers {
    let text = std::fs::read(PATH).unwrap_or_default();
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    parse(&String::from_utf8_lossy(&text), host.trim())
}

/// As [`read`], from a text and the host's name, whose domain is searched where the text names none.
#[must_use]
pub fn parse(text: &str, host: &str) -> Resolvers {
    let mut out = Resolvers { ndots: 1, ..Resolvers::default() };
    let mut search: Option<Vec<&str>> = None;
    for line in text.lines() {
        let mut words = line.split_whitespace();
        let keyword = words.next().unwrap_or_default();
        match keyword {
            "nameserver" => out.servers.extend(words.next().and_then(server)),
            "search" | "domain" => search = Some(words.collect()),
            "options" => {
                let ndots = words.filter_map(|w| w.strip_prefix("ndots:")?.parse::<u8>().ok()).next_back();
                out.ndots = ndots.unwrap_or(out.ndots);
            }
            _ => {}
        }
    }
    if out.servers.is_empty() {
        out.servers.insert(SocketAddr::new(Ipv4Addr::LOCALHOST.into(), DNS_PORT));
    }
    let domains =
        search.unwrap_or_else(|| host.split_once('.').map(|(_, domain)| domain).into_iter().collect());
    for name in domains.into_iter().filter_map(|d| Name::parse(d).ok()) {
        if !out.search.contains(&name) {
            out.search.push(name);
        }
    }
    out
}

fn server(text: &str) -> Option<SocketAddr> {
    let address = text.split_once('%').map_or(text, |(address, _)| address);
    address.parse::<IpAddr>().ok().map(|ip| SocketAddr::new(ip.to_canonical(), DNS_PORT))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, servers: &[&str], search: &[&str], ndots: u8) {
        let got = parse(text, "host.corp.example");
        let shown: Vec<String> = got.servers.iter().map(ToString::to_string).collect();
        assert_eq!(shown, servers, "{text}");
        assert_eq!(got.search.iter().map(Name::as_str).collect::<Vec<_>>(), search, "{text}");
        assert_eq!(got.ndots, ndots, "{text}");
    }

    #[test]
    fn as_the_c_library_reads_it() {
        check("nameserver 10.7.0.53\n", &["10.7.0.53:53"], &["corp.example"], 1);
        check("", &["127.0.0.1:53"], &["corp.example"], 1);
        check(
            "# nameserver 192.0.2.1\nnameserver fe80::1%eth0\nnameserver ::ffff:10.0.0.1\nsearch a.b  A.B. c\n\
             options timeout:1 ndots:5\n",
            &["10.0.0.1:53", "[fe80::1]:53"],
            &["a.b", "c"],
            5,
        );
        check("domain x\nsearch y\nnameserver nobody\n", &["127.0.0.1:53"], &["y"], 1);
        check("search .\n", &["127.0.0.1:53"], &[], 1);
    }
}
