//! The peers of a rule: one field at most. Those that name other objects are read in `references`.

use std::collections::BTreeSet;

use egret_common::net::Direction;

use super::{
    super::{
        CidrPeer, Effect, Entity, Peers,
        load::{Context, Mode},
        reader::{Fields, Node, Read},
    },
    endpoints, references,
};
use crate::{
    names::{Pattern, PatternError},
    net::parse_net,
};

/// Peers and the field that they were read from.
#[derive(Debug)]
pub(super) struct ReadPeers<'a> {
    /// One, but for selectors of both pods and reserved identities, and for both networks and groups of them, which are
    /// two kinds.
    pub(super) kinds: Vec<Peers>,
    pub(super) node: Option<Node<'a>>,
}

/// Takes the peers out of a rule. A rule without peers means anybody if it has ports, and nobody if it has none.
pub(super) fn read<'a>(
    fields: &mut Fields<'a>,
    direction: Direction,
    effect: Effect,
    context: Context<'_>,
) -> Read<ReadPeers<'a>> {
    let egress = direction == Direction::Egress;
    let word = if egress { "to" } else { "from" };
    fields.refuse(&[&format!("{word}Groups"), &format!("{word}Requires")])?;
    if context.mode == Mode::Workload {
        fields.refuse(&[&format!("{word}Services"), &format!("{word}Nodes")])?;
    }
    let ported = fields.has("toPorts") || fields.has("icmps");
    let mut found: Option<ReadPeers<'a>> = None;
    for kind in ["FQDNs", "Endpoints", "CIDR", "CIDRSet", "Entities", "Nodes", "Services"] {
        let Some(node) = fields.take(&format!("{word}{kind}"))? else { continue };
        if let Some(ReadPeers { node: Some(other), .. }) = &found {
            return Err(node.problem(format!("cannot be combined with `{}` in one rule", other.path())));
        }
        let kinds = match (kind, context.mode) {
            ("Endpoints", Mode::Cluster) => endpoints::peers(&node, context)?,
            ("CIDRSet", _) => read_cidr_sets(&node, context.mode)?,
            ("Nodes", _) => references::nodes(&node)?,
            ("Services", _) if egress => references::services(&node)?,
            ("Services", _) => return Err(node.problem("unknown field")),
            _ => vec![read_kind(kind, &node, egress, effect)?],
        };
        found = Some(ReadPeers { kinds, node: Some(node) });
    }
    let unsaid = if ported { Peers::Any } else { Peers::Nobody };
    Ok(found.unwrap_or(ReadPeers { kinds: vec![unsaid], node: None }))
}

fn read_kind(kind: &str, node: &Node<'_>, egress: bool, effect: Effect) -> Read<Peers> {
    let items = node.list()?;
    match kind {
        "FQDNs" if !egress => Err(node.problem("unknown field: names are known only for flows that go out")),
        "FQDNs" if effect == Effect::Deny => Err(node.problem(
            "not allowed in a deny rule: a name never denies; leave the name out of the allow rules",
        )),
        _ if items.is_empty() => Ok(Peers::Nobody),
        "FQDNs" => Ok(Peers::Names(items.iter().map(read_fqdn).collect::<Read<_>>()?)),
        "Endpoints" if egress && effect == Effect::Allow => {
            items.iter().try_for_each(|i| i.fields().map(drop))?;
            Ok(Peers::Resolvers)
        }
        "Endpoints" => Err(node.problem("not enforced by Egret: there are no pods for `egret run`")),
        "CIDR" => Ok(Peers::Cidrs(items.iter().map(read_cidr).collect::<Read<_>>()?)),
        _ => Ok(Peers::Entities(items.iter().map(read_entity).collect::<Read<BTreeSet<_>>>()?)),
    }
}

fn read_fqdn(node: &Node<'_>) -> Read<Pattern> {
    let mut patterns = read_name_selector(node)?;
    match (patterns.pop(), patterns.pop()) {
        (Some(pattern), None) => Ok(pattern),
        (None, _) => Err(node.problem("needs matchName or matchPattern")),
        _ => Err(node.problem("takes only one of matchName and matchPattern")),
    }
}

/// `matchName` and `matchPattern`, each at most once: 0 to 2 patterns.
pub(super) fn read_name_selector(node: &Node<'_>) -> Read<Vec<Pattern>> {
    let mut fields = node.fields()?;
    let mut out = Vec::new();
    type Reader = fn(&str) -> Result<Pattern, PatternError>;
    let kinds: [(&str, Reader); 2] =
        [("matchName", Pattern::match_name), ("matchPattern", Pattern::match_pattern)];
    for (name, read) in kinds {
        if let Some(node) = fields.take(name)? {
            out.push(
                read(node.text()?)
                    .map_err(|e| node.problem(format!("`{}`: {e}", short(node.text().unwrap_or("")))))?,
            );
        }
    }
    fields.finish()?;
    Ok(out)
}

fn short(text: &str) -> String {
    text.chars().take(80).collect()
}

fn read_cidr(node: &Node<'_>) -> Read<CidrPeer> {
    Ok(CidrPeer::whole(read_net(node)?))
}

fn read_net(node: &Node<'_>) -> Read<ipnet::IpNet> {
    let text = node.text()?;
    parse_net(text).ok_or_else(|| node.problem(format!("`{}` is no address and no CIDR", short(text))))
}

fn read_cidr_sets(node: &Node<'_>, mode: Mode) -> Read<Vec<Peers>> {
    let (mut nets, mut groups) = (Vec::new(), BTreeSet::new());
    for item in node.list()? {
        let mut fields = item.fields()?;
        if mode == Mode::Workload {
            fields.refuse(&["cidrGroupRef", "cidrGroupSelector"])?;
        }
        match references::cidr_group(&item, &mut fields)? {
            Some(group) => drop(groups.insert(group)),
            None => nets.push(read_cidr_set(&mut fields)?),
        }
        fields.finish()?;
    }
    let mut kinds = Vec::new();
    kinds.extend((!nets.is_empty()).then_some(Peers::Cidrs(nets)));
    kinds.extend((!groups.is_empty()).then_some(Peers::Objects(groups)));
    if kinds.is_empty() {
        kinds.push(Peers::Nobody);
    }
    Ok(kinds)
}

fn read_cidr_set(fields: &mut Fields<'_>) -> Read<CidrPeer> {
    let net = read_net(&fields.need("cidr")?)?;
    let mut except = Vec::new();
    for item in fields.take("except")?.map(|n| n.list()).transpose()?.unwrap_or_default() {
        let inner = read_net(&item)?;
        if !net.contains(&inner) {
            return Err(item.problem(format!("{inner} is not inside {net}")));
        }
        except.push(inner);
    }
    Ok(CidrPeer { net, except, pods: false })
}

fn read_entity(node: &Node<'_>) -> Read<Entity> {
    entity(node, node.text()?)
}

/// The entity of that name; complaints go to the node.
pub(super) fn entity(node: &Node<'_>, name: &str) -> Read<Entity> {
    Ok(match name {
        "all" => Entity::All,
        "world" => Entity::World,
        "cluster" => Entity::Cluster,
        "host" => Entity::Host,
        "remote-node" => Entity::RemoteNode,
        "kube-apiserver" => Entity::KubeApiserver,
        "none" => Entity::None,
        known @ ("cluster-mesh" | "init" | "ingress" | "unmanaged" | "health") => {
            return Err(node.problem(format!("`{known}`: not enforced by Egret")));
        }
        other => return Err(node.problem(format!("`{}` is no entity", short(other)))),
    })
}
