//! `toPorts` and `icmps`: what a rule covers at its peers, and the names that may be asked for through it.

use egret_common::net::Direction;

use super::super::{
    DNS_PORT, Effect,
    reader::{Fields, Node, Read},
};
use super::peers::read_name_selector;
use crate::{
    names::Pattern,
    ports::{PortRange, Ports, Proto},
};

/// The API's limit for one `toPorts` or `icmps` entry.
const MAX_ENTRIES: usize = 40;

/// One entry of `toPorts` (or all of `icmps`).
#[derive(Debug)]
pub(super) struct Block {
    pub(super) ports: Ports,
    pub(super) dns: Option<Vec<Pattern>>,
    pub(super) path: String,
}

/// Takes the ports out of a rule; empty if it has none, which means all.
pub(super) fn read(fields: &mut Fields<'_>, direction: Direction, effect: Effect) -> Read<Vec<Block>> {
    let (to_ports, icmps) = (fields.take("toPorts")?, fields.take("icmps")?);
    match (to_ports, icmps) {
        (Some(_), Some(icmps)) => Err(icmps.problem("cannot be combined with toPorts in one rule")),
        (Some(node), None) => entries(&node)?.iter().map(|n| read_block(n, direction, effect)).collect(),
        (None, Some(node)) => {
            let mut ranges = Vec::new();
            for item in entries(&node)? {
                ranges.extend(read_icmp(&item)?);
            }
            Ok(vec![Block { ports: Ports::Only(ranges), dns: None, path: node.path().to_owned() }])
        }
        (None, None) => Ok(Vec::new()),
    }
}

/// Why a rule with `toEndpoints` is more than the way to the resolvers, if it is.
pub(super) fn only_dns(blocks: &[Block]) -> Result<(), String> {
    let dns = |b: &Block| {
        let usual = |r: &PortRange| r.lo() == DNS_PORT && r.hi() == DNS_PORT;
        b.dns.is_some() && matches!(&b.ports, Ports::Only(ranges) if ranges.iter().all(usual))
    };
    if !blocks.is_empty() && blocks.iter().all(dns) {
        return Ok(());
    }
    Err("not enforced by Egret: there are no pods for `egret run`; only port 53 with rules.dns is understood, as \
         the trusted resolvers"
        .to_owned())
}

/// A list that is there must say something: empty, it would silently mean "all ports" to some readers and "none" to
/// others.
fn entries<'a>(node: &Node<'a>) -> Read<Vec<Node<'a>>> {
    let items = node.list()?;
    match items.len() {
        0 => Err(node.problem("is empty; remove the field to cover everything")),
        n if n > MAX_ENTRIES => Err(node.problem(format!("has {n} entries, the limit is {MAX_ENTRIES}"))),
        _ => Ok(items),
    }
}

fn read_block(node: &Node<'_>, direction: Direction, effect: Effect) -> Read<Block> {
    let mut fields = node.fields()?;
    fields.refuse(&["terminatingTLS", "originatingTLS", "serverNames", "listener"])?;
    let ports = fields.need("ports")?;
    let mut ranges = Vec::new();
    for entry in entries(&ports)? {
        ranges.extend(read_port(&entry)?);
    }
    let rules = fields.take("rules")?;
    fields.finish()?;
    let dns = rules.map(|r| read_rules(&r, direction, effect)).transpose()?.flatten();
    if dns.is_some() {
        check_dns_ports(&ports, &ranges)?;
    }
    Ok(Block { ports: Ports::Only(ranges), dns, path: node.path().to_owned() })
}

fn read_rules(node: &Node<'_>, direction: Direction, effect: Effect) -> Read<Option<Vec<Pattern>>> {
    let mut fields = node.fields()?;
    fields.refuse(&["http", "kafka", "l7", "l7proto"])?;
    let Some(dns) = fields.take("dns")? else {
        fields.finish()?;
        return Ok(None);
    };
    fields.finish()?;
    if direction == Direction::Ingress || effect == Effect::Deny {
        return Err(dns.problem("only allowed in egress rules that allow"));
    }
    let mut patterns = Vec::new();
    for item in dns.list()? {
        let both = read_name_selector(&item)?;
        if both.is_empty() {
            return Err(item.problem("needs matchName or matchPattern"));
        }
        patterns.extend(both);
    }
    if patterns.is_empty() {
        return Err(dns.problem("is empty; list the names that may be asked for"));
    }
    Ok(Some(patterns))
}

/// `rules.dns` asks for single ports of TCP, UDP or ANY.
fn check_dns_ports(ports: &Node<'_>, ranges: &[PortRange]) -> Read<()> {
    if ranges.iter().any(|r| r.lo() != r.hi()) {
        return Err(ports.problem("rules.dns takes neither port 0 nor a range"));
    }
    let datagram = |proto| ranges.iter().any(|r| r.proto() == proto);
    if datagram(Proto::Sctp) && !(datagram(Proto::Udp) || datagram(Proto::Tcp)) {
        return Err(ports.problem("rules.dns takes protocol TCP, UDP or ANY"));
    }
    Ok(())
}

fn read_port(node: &Node<'_>) -> Read<Vec<PortRange>> {
    let mut fields = node.fields()?;
    let port_node = fields.need("port")?;
    let lo = read_port_number(&port_node)?;
    let end = fields.take("endPort")?;
    let protocol = fields.take("protocol")?;
    fields.finish()?;
    let hi = match &end {
        None => lo,
        Some(end) => match read_port_number(end)? {
            hi if hi >= lo && lo > 0 => hi,
            _ => return Err(end.problem("must not be less than port, which must not be 0")),
        },
    };
    let (lo, hi) = if lo == 0 { (0, u16::MAX) } else { (lo, hi) };
    let protos = match protocol.as_ref().map(|p| p.text()).transpose()? {
        None => Proto::WITH_PORTS.to_vec(),
        Some(text) if text.eq_ignore_ascii_case("ANY") => Proto::WITH_PORTS.to_vec(),
        Some(text) => match (Proto::with_ports_from_str(text), &protocol) {
            (Some(proto), _) => vec![proto],
            (None, node) => {
                let node = node.as_ref().unwrap_or(&port_node);
                return Err(
                    node.problem(format!("`{text}` is not enforced by Egret; TCP, UDP, SCTP and ANY are"))
                );
            }
        },
    };
    Ok(protos.into_iter().filter_map(|p| PortRange::new(p, lo, hi)).collect())
}

fn read_port_number(node: &Node<'_>) -> Read<u16> {
    let text = node.text_or_number()?;
    if text.is_empty() || !text.bytes().all(|b| b.is_ascii_digit()) {
        return Err(
            node.problem(format!("`{text}` is no number: named ports belong to pods, not to `egret run`"))
        );
    }
    text.parse().map_err(|_| node.problem(format!("`{text}` is no port number")))
}

fn read_icmp(node: &Node<'_>) -> Read<Vec<PortRange>> {
    let mut fields = node.fields()?;
    let list = fields.need("fields")?;
    fields.finish()?;
    entries(&list)?.iter().map(read_icmp_field).collect()
}

fn read_icmp_field(node: &Node<'_>) -> Read<PortRange> {
    let mut fields = node.fields()?;
    let proto = match fields.take("family")? {
        None => Proto::Icmp,
        Some(family) => match family.text()? {
            "IPv4" => Proto::Icmp,
            "IPv6" => Proto::Icmpv6,
            other => return Err(family.problem(format!("`{other}` is neither IPv4 nor IPv6"))),
        },
    };
    let kind = fields.need("type")?;
    fields.finish()?;
    let text = kind.text_or_number()?;
    let number = text.parse::<u8>().ok().or_else(|| icmp_type(proto, &text));
    let number = number.ok_or_else(|| kind.problem(format!("`{text}` is no ICMP type of this family")))?;
    Ok(PortRange::icmp(proto, number))
}

/// Names of the API for ICMP types (IANA icmp-parameters, icmpv6-parameters).
fn icmp_type(proto: Proto, name: &str) -> Option<u8> {
    Some(match (proto, name) {
        (Proto::Icmp, "EchoReply") => 0,
        (Proto::Icmp, "DestinationUnreachable") => 3,
        (Proto::Icmp, "Redirect") => 5,
        (Proto::Icmp, "Echo" | "EchoRequest") => 8,
        (Proto::Icmp, "RouterAdvertisement") => 9,
        (Proto::Icmp, "RouterSelection") => 10,
        (Proto::Icmp, "TimeExceeded") => 11,
        (Proto::Icmp, "ParameterProblem") => 12,
        (Proto::Icmp, "Timestamp") => 13,
        (Proto::Icmp, "TimestampReply") => 14,
        (Proto::Icmpv6, "DestinationUnreachable") => 1,
        (Proto::Icmpv6, "PacketTooBig") => 2,
        (Proto::Icmpv6, "TimeExceeded") => 3,
        (Proto::Icmpv6, "ParameterProblem") => 4,
        (Proto::Icmpv6, "EchoRequest") => 128,
        (Proto::Icmpv6, "EchoReply") => 129,
        (Proto::Icmpv6, "MulticastListenerQuery") => 130,
        (Proto::Icmpv6, "MulticastListenerReport") => 131,
        (Proto::Icmpv6, "MulticastListenerDone") => 132,
        (Proto::Icmpv6, "RouterSolicitation") => 133,
        (Proto::Icmpv6, "RouterAdvertisement") => 134,
        (Proto::Icmpv6, "NeighborSolicitation") => 135,
        (Proto::Icmpv6, "NeighborAdvertisement") => 136,
        (Proto::Icmpv6, "RedirectMessage") => 137,
        _ => return None,
    })
}
