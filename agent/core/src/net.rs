//! Small address arithmetic: canonical networks and the special ranges that names may never open.
//!
//! Owns: how a CIDR is read and normalised. Must not know: rules, maps.

use std::net::{IpAddr, Ipv6Addr};

use ipnet::{IpNet, Ipv4Net, Ipv6Net};

/// Reads an address or a CIDR (host bits are cut off); IPv4-mapped IPv6 becomes IPv4. `None` if it is neither.
#[must_use]
pub fn parse_net(text: &str) -> Option<IpNet> {
    if let Ok(addr) = text.parse::<IpAddr>() {
        return Some(host_net(addr));
    }
    text.parse::<IpNet>().ok().map(|net| canonical_net(net.trunc()))
}

/// The network of one address.
#[must_use]
pub fn host_net(addr: IpAddr) -> IpNet {
    IpNet::from(addr.to_canonical())
}

/// The same network, without host bits, as IPv4 if it lies in `::ffff:0:0/96`.
#[must_use]
pub fn canonical_net(net: IpNet) -> IpNet {
    if let IpNet::V6(v6) = net
        && v6.prefix_len() >= 96
        && let Some(v4) = v6.addr().to_ipv4_mapped()
        && let Ok(v4) = Ipv4Net::new(v4, v6.prefix_len() - 96)
    {
        return IpNet::V4(v4.trunc());
    }
    net.trunc()
}

/// The form of an IPv4 network behind a NAT64 gateway with the well-known prefix (RFC 6052 2.1).
#[must_use]
pub fn nat64(net: Ipv4Net) -> Ipv6Net {
    let [a, b, c, d] = net.addr().octets();
    let addr =
        Ipv6Addr::new(0x64, 0xff9b, 0, 0, 0, 0, u16::from_be_bytes([a, b]), u16::from_be_bytes([c, d]));
    Ipv6Net::new_assert(addr, 96 + net.prefix_len())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, want: &str) {
        assert_eq!(parse_net(text).map(|n| n.to_string()).as_deref(), Some(want));
    }

    #[test]
    fn p_a07_mapped_is_ipv4() {
        check("::ffff:203.0.113.9", "203.0.113.9/32");
        check("::ffff:203.0.113.0/120", "203.0.113.0/24");
        check("::/0", "::/0");
        check("10.1.2.3/8", "10.0.0.0/8");
        assert_eq!(parse_net("10.0.0.0/33"), None);
        assert_eq!(parse_net("example.com"), None);
    }

    #[test]
    fn w_a11_nat64_form() {
        assert_eq!(nat64("192.0.2.0/24".parse().unwrap()).to_string(), "64:ff9b::c000:200/120");
    }
}
