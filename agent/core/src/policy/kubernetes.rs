//! Reads NetworkPolicy (networking.k8s.io/v1).
//!
//! Owns: the language, as the API's types and its validation describe it. Must not know: files, maps, pods.
//!
//! A selector becomes a [`Selector`] over identity labels: keys of a `podSelector` stay, keys of a `namespaceSelector`
//! get [`crate::labels::NAMESPACE_LABELS`] before them, and a peer without `namespaceSelector` implies the policy's own
//! namespace.
//! What is absent and what is empty differ: no `from` is everybody, an empty `podSelector` is every pod of the
//! namespace, an absent one is not part of the peer.

use egret_common::net::Direction;
use serde_yaml_ng::Value;

use super::{
    CidrPeer, Effect, Isolation, Origin, Peers, Policy, Rule, Subject,
    load::Notes,
    reader::{Fields, Node, Problem, Read},
    selector,
};
use crate::{
    labels::{POD_NAMESPACE, Requirement, Selector},
    net::parse_net,
    ports::{PortRange, PortSpec, Ports, Proto},
};

/// Reads one object, of which the head is known to be right.
pub(super) fn policy(value: &Value, origin: Origin, notes: &mut Notes) -> Read<Policy> {
    let mut fields = Fields::of_spec(&Node::root(value))?;
    let namespace = origin.namespace.clone().unwrap_or_default();
    let pods = fields.take("podSelector")?;
    let subject = peer_selector(pods.as_ref(), None, &namespace)?;
    let lists = [("egress", Direction::Egress), ("ingress", Direction::Ingress)];
    let [egress, ingress] =
        lists.map(|(field, direction)| read_rules(&mut fields, field, direction, &namespace, notes));
    let (egress, ingress) = (egress?, ingress?);
    let isolates = isolation(&mut fields, !egress.is_empty())?;
    fields.finish()?;
    let mut rules = Vec::new();
    for (list, (field, direction)) in [egress, ingress].into_iter().zip(lists) {
        if isolates.of(direction) {
            rules.extend(list);
        } else if !list.is_empty() {
            let message = "has no effect: policyTypes does not list this direction".to_owned();
            notes.warnings.push(Problem { path: format!("spec.{field}"), message });
        }
    }
    Ok(Policy::new(origin, Subject::Pods(subject), isolates, rules))
}

/// `policyTypes`, or what the API server puts there: ingress always, egress if there is an egress rule.
fn isolation(fields: &mut Fields<'_>, egress_rules: bool) -> Read<Isolation> {
    let mut isolates = Isolation::default();
    let types = fields.take("policyTypes")?.map(|n| n.list()).transpose()?.unwrap_or_default();
    for node in &types {
        match node.text()? {
            "Ingress" => isolates.ingress = true,
            "Egress" => isolates.egress = true,
            other => return Err(node.problem(format!("`{other}` is neither Ingress nor Egress"))),
        }
    }
    if types.is_empty() {
        return Ok(Isolation { egress: egress_rules, ingress: true });
    }
    Ok(isolates)
}

fn read_rules(
    fields: &mut Fields<'_>,
    field: &str,
    direction: Direction,
    namespace: &str,
    notes: &mut Notes,
) -> Read<Vec<Rule>> {
    let mut rules = Vec::new();
    for node in fields.take(field)?.map(|n| n.list()).transpose()?.unwrap_or_default() {
        match read_rule(&node, direction, namespace, notes) {
            Ok(read) => rules.extend(read),
            Err(problem) => notes.errors.push(problem),
        }
    }
    Ok(rules)
}

/// One entry: a [`Rule`] per kind of peer, since a list may name pods and networks.
fn read_rule(node: &Node<'_>, direction: Direction, namespace: &str, notes: &mut Notes) -> Read<Vec<Rule>> {
    let mut fields = node.fields()?;
    let word = if direction == Direction::Egress { "to" } else { "from" };
    let peers = entries(&mut fields, word, "everybody", notes)?;
    let ports = entries(&mut fields, "ports", "every port", notes)?;
    fields.finish()?;
    let (mut pods, mut cidrs) = (Vec::new(), Vec::new());
    for peer in &peers {
        match read_peer(peer, namespace)? {
            Peer::Pods(selector) => pods.push(selector),
            Peer::Block(cidr) => cidrs.push(cidr),
        }
    }
    let ports = match ports.is_empty() {
        true => Ports::All,
        false => Ports::Only(ports.iter().map(read_port).collect::<Read<_>>()?),
    };
    let mut kinds = Vec::new();
    kinds.extend((!pods.is_empty()).then_some(Peers::Pods(pods)));
    kinds.extend((!cidrs.is_empty()).then_some(Peers::Cidrs(cidrs)));
    kinds.extend(peers.is_empty().then_some(Peers::Any));
    let rule = |peers| Rule {
        direction,
        effect: Effect::Allow,
        peers,
        ports: ports.clone(),
        dns: None,
        path: node.path().to_owned(),
    };
    Ok(kinds.into_iter().map(rule).collect())
}

/// The items of a list whose absence and emptiness mean the same. Who wrote it empty is told so.
fn entries<'a>(fields: &mut Fields<'a>, field: &str, all: &str, notes: &mut Notes) -> Read<Vec<Node<'a>>> {
    let Some(node) = fields.take(field)? else { return Ok(Vec::new()) };
    let items = node.list()?;
    if items.is_empty() {
        notes.warnings.push(node.problem(format!("is empty, which means {all}")));
    }
    Ok(items)
}

enum Peer {
    Pods(Selector),
    Block(CidrPeer),
}

fn read_peer(node: &Node<'_>, namespace: &str) -> Read<Peer> {
    let mut fields = node.fields()?;
    let pods = fields.take("podSelector")?;
    let namespaces = fields.take("namespaceSelector")?;
    let block = fields.take("ipBlock")?;
    fields.finish()?;
    match (&pods, &namespaces, block) {
        (None, None, None) => Err(node.problem("needs podSelector, namespaceSelector or ipBlock")),
        (None, None, Some(block)) => Ok(Peer::Block(read_block(&block)?)),
        (_, _, Some(block)) => Err(block.problem("cannot stand beside a selector")),
        _ => Ok(Peer::Pods(peer_selector(pods.as_ref(), namespaces.as_ref(), namespace)?)),
    }
}

/// Pods with these labels in namespaces with those; without namespace selector, in the policy's own.
fn peer_selector(pods: Option<&Node<'_>>, namespaces: Option<&Node<'_>>, own: &str) -> Read<Selector> {
    let mut requirements = selector::pods(pods, namespaces)?;
    if namespaces.is_none() {
        requirements.insert(Requirement::is(POD_NAMESPACE, own));
    }
    Ok(Selector::all_of(requirements))
}

fn read_block(node: &Node<'_>) -> Read<CidrPeer> {
    let mut fields = node.fields()?;
    let net = read_cidr(&fields.need("cidr")?)?;
    let mut except = Vec::new();
    for item in fields.take("except")?.map(|n| n.list()).transpose()?.unwrap_or_default() {
        let inner = read_cidr(&item)?;
        if !net.contains(&inner) {
            return Err(item.problem(format!("{inner} is not inside {net}")));
        }
        except.push(inner);
    }
    fields.finish()?;
    Ok(CidrPeer { net, except, pods: true })
}

/// A network; unlike in a CiliumNetworkPolicy, an address alone is none.
pub(super) fn read_cidr(node: &Node<'_>) -> Read<ipnet::IpNet> {
    let text = node.text()?;
    let net = text.contains('/').then(|| parse_net(text)).flatten();
    net.ok_or_else(|| node.problem(format!("`{}` is no CIDR", text.chars().take(80).collect::<String>())))
}

fn read_port(node: &Node<'_>) -> Read<PortSpec> {
    let mut fields = node.fields()?;
    let protocol = fields.take("protocol")?;
    let port = fields.take("port")?;
    let end = fields.take("endPort")?;
    fields.finish()?;
    let proto = match &protocol {
        None => Proto::Tcp,
        Some(node) => match node.text()? {
            "TCP" => Proto::Tcp,
            "UDP" => Proto::Udp,
            "SCTP" => Proto::Sctp,
            other => return Err(node.problem(format!("`{other}` is none of TCP, UDP and SCTP"))),
        },
    };
    let Some(port) = port else {
        return match end {
            Some(end) => Err(end.problem("needs `port`")),
            None => Ok(PortRange::whole(proto).into()),
        };
    };
    if port.number().is_none() {
        let name = read_port_name(&port)?;
        return match end {
            Some(end) => Err(end.problem("cannot stand beside a named port")),
            None => Ok(PortSpec::Named(Some(proto), name)),
        };
    }
    let lo = read_port_number(&port)?;
    let hi = end.as_ref().map(read_port_number).transpose()?.unwrap_or(lo);
    let range = PortRange::new(proto, lo, hi).map(PortSpec::from);
    range.ok_or_else(|| end.unwrap_or(port).problem("must not be less than port"))
}

pub(super) fn read_port_number(node: &Node<'_>) -> Read<u16> {
    let number = node.number().and_then(|n| u16::try_from(n).ok()).filter(|n| *n > 0);
    number.ok_or_else(|| node.problem("is no port number from 1 to 65535"))
}

/// A container port's name (RFC 6335 5.1): 1 to 15 lower-case letters, digits and single inner hyphens, with a letter.
pub(super) fn read_port_name(node: &Node<'_>) -> Read<String> {
    let text = node.text()?;
    let alphabet = text.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-');
    let letter = text.bytes().any(|b| b.is_ascii_lowercase());
    let hyphens = text.starts_with('-') || text.ends_with('-') || text.contains("--");
    if alphabet && letter && !hyphens && text.len() <= 15 {
        return Ok(text.to_owned());
    }
    Err(node.problem(format!("`{}` is no port name", text.chars().take(80).collect::<String>())))
}

#[cfg(test)]
mod tests;
