//! Protocols and port ranges, as policies write them and as flows carry them.
//!
//! Owns: the closed list of protocols a rule can name. Must not know: peers, rules, maps.

use std::fmt;

use crate::identity::NamedPorts;

/// A protocol that a rule can name. There is no catch-all member: "any" is [`Ports::All`] or a list.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Proto {
    /// TCP, 6.
    Tcp,
    /// UDP, 17.
    Udp,
    /// SCTP, 132. Never stands in for TCP (CASES K-A05).
    Sctp,
    /// ICMP for IPv4, 1; its "port" is `type << 8 | code`.
    Icmp,
    /// ICMPv6, 58; its "port" is `type << 8 | code`.
    Icmpv6,
}

impl Proto {
    /// The three protocols that have ports: what `ANY` beside a port means.
    pub const WITH_PORTS: [Proto; 3] = [Proto::Tcp, Proto::Udp, Proto::Sctp];

    /// The IP protocol number.
    #[must_use]
    pub fn number(self) -> u8 {
        match self {
            Proto::Icmp => 1,
            Proto::Tcp => 6,
            Proto::Udp => 17,
            Proto::Icmpv6 => 58,
            Proto::Sctp => 132,
        }
    }

    /// The protocol with this IP number, if a rule can name it.
    #[must_use]
    pub fn from_number(number: u8) -> Option<Self> {
        [Proto::Tcp, Proto::Udp, Proto::Sctp, Proto::Icmp, Proto::Icmpv6]
            .into_iter()
            .find(|p| p.number() == number)
    }

    /// Reads `tcp`, `UDP`, `sctp`; nothing else, and never a default.
    #[must_use]
    pub fn with_ports_from_str(text: &str) -> Option<Self> {
        Self::WITH_PORTS.into_iter().find(|p| p.to_string().eq_ignore_ascii_case(text))
    }
}

impl fmt::Display for Proto {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Proto::Tcp => "tcp",
            Proto::Udp => "udp",
            Proto::Sctp => "sctp",
            Proto::Icmp => "icmp",
            Proto::Icmpv6 => "icmpv6",
        })
    }
}

/// An inclusive range of ports of one protocol; `lo <= hi`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PortRange {
    proto: Proto,
    lo: u16,
    hi: u16,
}

impl PortRange {
    /// `lo..=hi` of `proto`; `None` if the range is empty.
    #[must_use]
    pub fn new(proto: Proto, lo: u16, hi: u16) -> Option<Self> {
        (lo <= hi).then_some(Self { proto, lo, hi })
    }

    /// One port.
    #[must_use]
    pub fn one(proto: Proto, port: u16) -> Self {
        Self { proto, lo: port, hi: port }
    }

    /// Every port of `proto`.
    #[must_use]
    pub fn whole(proto: Proto) -> Self {
        Self { proto, lo: 0, hi: u16::MAX }
    }

    /// Every code of an ICMP type.
    #[must_use]
    pub fn icmp(proto: Proto, icmp_type: u8) -> Self {
        let lo = u16::from(icmp_type) << 8;
        Self { proto, lo, hi: lo | 0xff }
    }

    /// The protocol.
    #[must_use]
    pub fn proto(self) -> Proto {
        self.proto
    }

    /// First port.
    #[must_use]
    pub fn lo(self) -> u16 {
        self.lo
    }

    /// Last port.
    #[must_use]
    pub fn hi(self) -> u16 {
        self.hi
    }

    /// Whether a packet of IP protocol `proto` to `port` is in the range.
    #[must_use]
    pub fn covers(self, proto: u8, port: u16) -> bool {
        self.proto.number() == proto && (self.lo..=self.hi).contains(&port)
    }
}

impl fmt::Display for PortRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.lo, self.hi) {
            (0, u16::MAX) => write!(f, "*/{}", self.proto),
            (lo, hi) if lo == hi => write!(f, "{lo}/{}", self.proto),
            (lo, hi) => write!(f, "{lo}-{hi}/{}", self.proto),
        }
    }
}

/// What one entry of a rule's ports means.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum PortSpec {
    /// These numbers.
    Range(PortRange),
    /// The port that the destination calls so, of this protocol; `None`: of any. Who has no such port, has none that
    /// is meant.
    Named(Option<Proto>, String),
}

impl PortSpec {
    /// The numbers that the entry means at a destination with these named ports.
    pub fn resolve<'a>(&'a self, names: &'a NamedPorts) -> impl Iterator<Item = PortRange> + 'a {
        let (number, called) = match self {
            PortSpec::Range(range) => (Some(*range), None),
            PortSpec::Named(proto, name) => (None, Some((*proto, name))),
        };
        let named = called.into_iter().flat_map(move |(proto, name)| {
            let meant = move |p: Proto| proto.is_none_or(|want| want == p);
            let ports = names.iter().filter(move |((n, p), _)| n == name && meant(*p));
            ports.map(|((_, p), port)| PortRange::one(*p, *port))
        });
        number.into_iter().chain(named)
    }
}

impl From<PortRange> for PortSpec {
    fn from(range: PortRange) -> Self {
        PortSpec::Range(range)
    }
}

impl fmt::Display for PortSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PortSpec::Range(range) => range.fmt(f),
            PortSpec::Named(Some(proto), name) => write!(f, "{name}/{proto}"),
            PortSpec::Named(None, name) => write!(f, "{name}/any"),
        }
    }
}

/// The ports that a rule covers.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Ports {
    /// Every protocol, with or without ports.
    All,
    /// These only; an empty list covers nothing.
    Only(Vec<PortSpec>),
}

impl Ports {
    /// These ranges only.
    #[must_use]
    pub fn ranges(ranges: impl IntoIterator<Item = PortRange>) -> Self {
        Ports::Only(ranges.into_iter().map(PortSpec::Range).collect())
    }

    /// Whether a packet of IP protocol `proto` to `port` is covered, where ports have no names.
    #[must_use]
    pub fn covers(&self, proto: u8, port: u16) -> bool {
        self.covers_at(proto, port, &NamedPorts::new())
    }

    /// Whether a packet of IP protocol `proto` to `port` is covered at a destination with these named ports.
    #[must_use]
    pub fn covers_at(&self, proto: u8, port: u16, names: &NamedPorts) -> bool {
        match self {
            Ports::All => true,
            Ports::Only(specs) => {
                specs.iter().any(|s| s.resolve(names).any(|range| range.covers(proto, port)))
            }
        }
    }

    /// The names that stand for ports.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        let specs = match self {
            Ports::All => &[][..],
            Ports::Only(specs) => specs.as_slice(),
        };
        specs.iter().filter_map(|s| match s {
            PortSpec::Range(_) => None,
            PortSpec::Named(_, name) => Some(name.as_str()),
        })
    }
}

impl fmt::Display for Ports {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Ports::All => f.write_str("*"),
            Ports::Only(specs) => {
                let texts: Vec<String> = specs.iter().map(ToString::to_string).collect();
                f.write_str(&texts.join(","))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn k_a04_a_name_means_the_ports_of_the_destination() {
        let names = |ports: &[(&str, Proto, u16)]| -> NamedPorts {
            ports.iter().map(|(n, proto, port)| (((*n).to_owned(), *proto), *port)).collect()
        };
        let check = |proto, at: &NamedPorts, number: u8, port, want| {
            let ports = Ports::Only(vec![PortSpec::Named(proto, "web".to_owned())]);
            assert_eq!(ports.covers_at(number, port, at), want, "{ports} {number} {port}");
        };
        let p1 = names(&[("web", Proto::Tcp, 80), ("other", Proto::Tcp, 81)]);
        let p2 = names(&[("web", Proto::Tcp, 8080), ("web", Proto::Udp, 53)]);
        check(Some(Proto::Tcp), &p1, 6, 80, true);
        check(Some(Proto::Tcp), &p1, 6, 81, false);
        check(Some(Proto::Tcp), &p1, 17, 80, false);
        check(Some(Proto::Tcp), &p2, 6, 80, false);
        check(Some(Proto::Tcp), &p2, 6, 8080, true);
        check(Some(Proto::Tcp), &p2, 17, 53, false);
        check(None, &p2, 17, 53, true);
        check(None, &p2, 6, 8080, true);
        check(None, &p2, 6, 53, false);
        check(None, &NamedPorts::new(), 6, 80, false);
    }
}
