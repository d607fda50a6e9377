//! `toPorts`: what a rule covers at its peers, and the names that may be asked for through it.

use egret_common::net::Direction;

use super::{
    super::{
        DNS_PORT, Effect,
        load::Mode,
        reader::{Fields, Node, Read},
    },
    icmp::read_icmp,
    peers::read_name_selector,
};
use crate::{
    names::Pattern,
    ports::{PortRange, PortSpec, Ports, Proto},
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
pub(super) fn read(
    fields: &mut Fields<'_>,
    direction: Direction,
    effect: Effect,
    mode: Mode,
) -> Read<Vec<Block>> {
    let (to_ports, icmps) = (fields.take("toPorts")?, fields.take("icmps")?);
    match (to_ports, icmps) {
        (Some(_), Some(icmps)) => Err(icmps.problem("cannot be combined with toPorts in one rule")),
        (Some(node), None) => {
            entries(&node)?.iter().map(|n| read_block(n, direction, effect, mode)).collect()
        }
        (None, Some(node)) => {
            let mut ranges = Vec::new();
            for item in entries(&node)? {
                ranges.extend(read_icmp(&item)?);
            }
            Ok(vec![Block { ports: Ports::ranges(ranges), dns: None, path: node.path().to_owned() }])
        }
        (None, None) => Ok(Vec::new()),
    }
}

/// Why a rule with `toEndpoints` is more than the way to the resolvers, if it is.
pub(super) fn only_dns(blocks: &[Block]) -> Result<(), String> {
    let dns = |b: &Block| {
        let usual =
            |s: &PortSpec| matches!(s, PortSpec::Range(r) if r.lo() == DNS_PORT && r.hi() == DNS_PORT);
        b.dns.is_some() && matches!(&b.ports, Ports::Only(specs) if specs.iter().all(usual))
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
pub(super) fn entries<'a>(node: &Node<'a>) -> Read<Vec<Node<'a>>> {
    let items = node.list()?;
    match items.len() {
        0 => Err(node.problem("is empty; remove the field to cover everything")),
        n if n > MAX_ENTRIES => Err(node.problem(format!("has {n} entries, the limit is {MAX_ENTRIES}"))),
        _ => Ok(items),
    }
}

fn read_block(node: &Node<'_>, direction: Direction, effect: Effect, mode: Mode) -> Read<Block> {
    let mut fields = node.fields()?;
    fields.refuse(&["terminatingTLS", "originatingTLS", "serverNames", "listener"])?;
    let ports = fields.need("ports")?;
    let mut specs = Vec::new();
    for entry in entries(&ports)? {
        specs.extend(read_port(&entry, mode)?);
    }
    let rules = fields.take("rules")?;
    fields.finish()?;
    let dns = rules.map(|r| read_rules(&r, direction, effect)).transpose()?.flatten();
    if dns.is_some() {
        check_dns_ports(&ports, &specs)?;
    }
    Ok(Block { ports: Ports::Only(specs), dns, path: node.path().to_owned() })
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
fn check_dns_ports(ports: &Node<'_>, specs: &[PortSpec]) -> Read<()> {
    let mut ranges = Vec::new();
    for spec in specs {
        match spec {
            PortSpec::Range(range) => ranges.push(*range),
            PortSpec::Named(..) => return Err(ports.problem("rules.dns takes numbers, not named ports")),
        }
    }
    if ranges.iter().any(|r| r.lo() != r.hi()) {
        return Err(ports.problem("rules.dns takes neither port 0 nor a range"));
    }
    let datagram = |proto| ranges.iter().any(|r| r.proto() == proto);
    if datagram(Proto::Sctp) && !(datagram(Proto::Udp) || datagram(Proto::Tcp)) {
        return Err(ports.problem("rules.dns takes protocol TCP, UDP or ANY"));
    }
    Ok(())
}

fn read_port(node: &Node<'_>, mode: Mode) -> Read<Vec<PortSpec>> {
    let mut fields = node.fields()?;
    let port = fields.need("port")?;
    let end = fields.take("endPort")?;
    let protocol = fields.take("protocol")?;
    fields.finish()?;
    if mode == Mode::Cluster
        && let Some(name) = read_port_name(&port)?
    {
        if let Some(end) = end {
            return Err(end.problem("cannot stand beside a named port"));
        }
        let proto = protocol.as_ref().map(read_protocol).transpose()?.flatten();
        return Ok(vec![PortSpec::Named(proto, name)]);
    }
    let lo = read_port_number(&port, mode)?;
    let hi = match &end {
        None => lo,
        Some(end) => match read_port_number(end, mode)? {
            hi if hi >= lo && lo > 0 => hi,
            _ => return Err(end.problem("must not be less than port, which must not be 0")),
        },
    };
    let (lo, hi) = if lo == 0 { (0, u16::MAX) } else { (lo, hi) };
    let protos = match protocol.as_ref().map(read_protocol).transpose()?.flatten() {
        None => Proto::WITH_PORTS.to_vec(),
        Some(proto) => vec![proto],
    };
    Ok(protos.into_iter().filter_map(|p| PortRange::new(p, lo, hi)).map(PortSpec::from).collect())
}

/// A protocol; `None` for any of those that have ports.
fn read_protocol(node: &Node<'_>) -> Read<Option<Proto>> {
    let text = node.text()?;
    if text.eq_ignore_ascii_case("ANY") {
        return Ok(None);
    }
    let proto = Proto::with_ports_from_str(text).map(Some);
    proto
        .ok_or_else(|| node.problem(format!("`{text}` is not enforced by Egret; TCP, UDP, SCTP and ANY are")))
}

/// A service name (RFC 6335 5.1), in lower case; `None` if it cannot be one, being a number.
fn read_port_name(node: &Node<'_>) -> Read<Option<String>> {
    let text = node.text_or_number()?;
    let letter = text.bytes().any(|b| b.is_ascii_alphabetic());
    let alphabet = text.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-');
    let hyphens = text.starts_with('-') || text.ends_with('-') || text.contains("--");
    Ok((letter && alphabet && !hyphens && text.len() <= 15).then(|| text.to_ascii_lowercase()))
}

fn read_port_number(node: &Node<'_>, mode: Mode) -> Read<u16> {
    let text = node.text_or_number()?;
    if text.is_empty() || !text.bytes().all(|b| b.is_ascii_digit()) {
        let why = match mode {
            Mode::Workload => "is no number: named ports belong to pods, not to `egret run`",
            Mode::Cluster => "is neither a number nor a port's name",
        };
        return Err(node.problem(format!("`{text}` {why}")));
    }
    text.parse().map_err(|_| node.problem(format!("`{text}` is no port number")))
}
