//! The two ends as somebody writes them.

use std::net::IpAddr;

use thiserror::Error;

use crate::{names::Name, ports::Proto};

/// One end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum End {
    /// A pod by namespace and name; an empty namespace: whichever has a pod of this name.
    Pod(String, String),
    /// A cgroup, by its path or the end of it.
    Cgroup(String),
    /// An endpoint by its number.
    Endpoint(u32),
    /// An address.
    Address(IpAddr),
    /// A name.
    Name(Name),
}

/// What cannot be understood.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum WrittenError {
    /// Not an end.
    #[error("{0:?} is no pod (NAMESPACE/NAME), cgroup (/PATH), endpoint number or address")]
    From(String),
    /// Not an end.
    #[error("{0:?} is no name, address or pod (NAMESPACE/NAME): {1}")]
    To(String, String),
    /// Not a port.
    #[error("{0:?} is no port: write PORT, PORT/tcp, PORT/udp, PORT/sctp or TYPE/icmp")]
    Port(String),
}

/// Reads `POD|CGROUP|ENDPOINT|IP`.
///
/// # Errors
/// [`WrittenError`].
pub fn from(text: &str) -> Result<End, WrittenError> {
    let bad = || WrittenError::From(text.to_owned());
    if let Ok(ip) = text.parse::<IpAddr>() {
        return Ok(End::Address(ip.to_canonical()));
    }
    if let Ok(id) = text.parse() {
        return Ok(End::Endpoint(id));
    }
    match text.split_once('/') {
        Some(("", rest)) if !rest.trim_matches('/').is_empty() => {
            Ok(End::Cgroup(text.trim_end_matches('/').to_owned()))
        }
        Some((namespace, name)) => pod(namespace, name).ok_or_else(bad),
        None => pod("", text).ok_or_else(bad),
    }
}

/// Reads `NAME|IP|POD[:PORT[/PROTO]]`, with an IPv6 address before a port in brackets; gives IP protocol and port.
///
/// # Errors
/// [`WrittenError`].
pub fn to(text: &str) -> Result<(End, Option<(u8, u16)>), WrittenError> {
    if let Ok(ip) = text.parse::<IpAddr>() {
        return Ok((End::Address(ip.to_canonical()), None));
    }
    let (end, port) = match text.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        Some((end, "")) => (end, None),
        Some((end, port)) => (end, Some(port.strip_prefix(':').unwrap_or(port))),
        None => match text.rsplit_once(':') {
            Some((end, port)) => (end, Some(port)),
            None => (text, None),
        },
    };
    let port = port.map(self::port).transpose()?;
    let bad = |why: String| WrittenError::To(text.to_owned(), why);
    if let Ok(ip) = end.parse::<IpAddr>() {
        return Ok((End::Address(ip.to_canonical()), port));
    }
    if let Some((namespace, name)) = end.split_once('/') {
        let pod = pod(namespace, name).ok_or_else(|| bad("not NAMESPACE/NAME".into()))?;
        return Ok((pod, port));
    }
    let name = Name::parse(end).map_err(|error| bad(error.to_string()))?;
    Ok((End::Name(name), port))
}

fn port(text: &str) -> Result<(u8, u16), WrittenError> {
    let bad = || WrittenError::Port(text.to_owned());
    let (number, proto) = text.split_once('/').unwrap_or((text, "tcp"));
    let proto = proto.to_ascii_lowercase();
    let icmp = match proto.as_str() {
        "icmp" => Some(Proto::Icmp),
        "icmpv6" => Some(Proto::Icmpv6),
        _ => None,
    };
    if let Some(icmp) = icmp {
        let kind: u8 = number.parse().map_err(|_| bad())?;
        return Ok((icmp.number(), u16::from(kind) << 8));
    }
    let proto = Proto::with_ports_from_str(&proto).ok_or_else(bad)?;
    let number: u16 = number.parse().map_err(|_| bad())?;
    if number == 0 {
        return Err(bad());
    }
    Ok((proto.number(), number))
}

/// Names of objects have no other characters (RFC 1123).
fn pod(namespace: &str, name: &str) -> Option<End> {
    let good =
        |text: &str| text.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'.' | b'_'));
    let pod = good(namespace) && good(name) && !name.is_empty();
    pod.then(|| End::Pod(namespace.to_owned(), name.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(text: &str) -> End {
        End::Name(Name::parse(text).expect("a name"))
    }

    fn pod(namespace: &str, name: &str) -> End {
        End::Pod(namespace.into(), name.into())
    }

    #[test]
    fn the_one_end() {
        let ip = |text: &str| End::Address(text.parse().expect("an address"));
        for (text, want) in [
            ("shop/web-0", pod("shop", "web-0")),
            ("web-0", pod("", "web-0")),
            ("/system.slice/a.service/", End::Cgroup("/system.slice/a.service".into())),
            ("17", End::Endpoint(17)),
            ("192.0.2.1", ip("192.0.2.1")),
            ("::ffff:192.0.2.1", ip("192.0.2.1")),
        ] {
            assert_eq!(from(text), Ok(want), "{text}");
        }
        for bad in ["", "/", "//", "a/b/c", "a b", "shop/"] {
            assert_eq!(from(bad), Err(WrittenError::From(bad.into())), "{bad}");
        }
    }

    #[test]
    fn the_other_end_with_its_port() {
        let ip = |text: &str| End::Address(text.parse().expect("an address"));
        for (text, want) in [
            ("api.vendor.example", (name("api.vendor.example"), None)),
            ("API.vendor.example.:443", (name("api.vendor.example"), Some((6, 443)))),
            ("a.example:53/udp", (name("a.example"), Some((17, 53)))),
            ("a.example:53/UDP", (name("a.example"), Some((17, 53)))),
            ("192.0.2.1", (ip("192.0.2.1"), None)),
            ("192.0.2.1:80/tcp", (ip("192.0.2.1"), Some((6, 80)))),
            ("2001:db8::1", (ip("2001:db8::1"), None)),
            ("[2001:db8::1]", (ip("2001:db8::1"), None)),
            ("[2001:db8::1]:80", (ip("2001:db8::1"), Some((6, 80)))),
            ("shop/api:8080", (pod("shop", "api"), Some((6, 8080)))),
            ("shop/api", (pod("shop", "api"), None)),
            ("192.0.2.1:8/icmp", (ip("192.0.2.1"), Some((1, 8 << 8)))),
        ] {
            assert_eq!(to(text), Ok(want), "{text}");
        }
        for bad in ["a.example:0", "a.example:x", "a.example:80/x", "a.example:65536", "[2001:db8::1]80x"] {
            assert!(matches!(to(bad), Err(WrittenError::Port(_))), "{bad}");
        }
        for bad in ["", "a b", "2001:db8::1:80000:1:2:3:4:5", "*.example", "a/b/c"] {
            assert!(to(bad).is_err(), "{bad}");
        }
    }
}
