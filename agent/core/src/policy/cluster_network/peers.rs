//! `to` and `from`: each entry is one kind of peer, and any of the entries may match.

use std::collections::BTreeSet;

use egret_common::net::Direction;

use super::{
    super::{
        CidrPeer, Effect, Peers, Reference, Tier, kubernetes,
        reader::{Node, Read as ReadResult},
        selector,
    },
    member::{items, only},
    namespaced, pods_of,
};
use crate::{labels::Selector, names::Pattern};

/// The longest network as text.
const MAX_CIDR: usize = 43;

/// What the entries mean together.
#[derive(Debug, Default)]
pub(super) struct Read {
    /// One of each kind at most.
    pub(super) kinds: Vec<Peers>,
    /// A field of peers that have no named ports.
    pub(super) without_names: Option<&'static str>,
    /// Path of an entry that says nothing known.
    pub(super) unknown: Option<String>,
}

pub(super) fn read(node: &Node<'_>, direction: Direction, effect: Effect, tier: Tier) -> ReadResult<Read> {
    let known: &[&'static str] = match direction {
        Direction::Egress => &["namespaces", "pods", "nodes", "networks", "domainNames"],
        Direction::Ingress => &["namespaces", "pods"],
    };
    let mut out = Read::default();
    let (mut pods, mut nets, mut nodes, mut names) = (Vec::new(), Vec::new(), BTreeSet::new(), Vec::new());
    for item in items(node, 1)? {
        let Some((kind, value)) = only(&item, known)? else {
            out.unknown.get_or_insert_with(|| item.path().to_owned());
            continue;
        };
        match kind {
            "namespaces" => pods.push(namespaced(&value)?),
            "pods" => pods.push(pods_of(&value)?),
            "nodes" => {
                nodes.insert(Reference::Nodes(Selector::all_of(selector::read(&value, selector::plain)?)));
            }
            "networks" => nets.extend(distinct(&value, read_network)?),
            _ => names.extend(domain_names(&value, effect, tier)?),
        }
        if !matches!(kind, "namespaces" | "pods") {
            out.without_names.get_or_insert(kind);
        }
    }
    out.kinds.extend((!pods.is_empty()).then_some(Peers::Pods(pods)));
    out.kinds.extend((!nets.is_empty()).then_some(Peers::Cidrs(nets)));
    out.kinds.extend((!nodes.is_empty()).then_some(Peers::Objects(nodes)));
    out.kinds.extend((!names.is_empty()).then_some(Peers::Names(names)));
    Ok(out)
}

/// The items of a list that the API takes for a set.
fn distinct<T>(node: &Node<'_>, read: impl Fn(&Node<'_>) -> ReadResult<T>) -> ReadResult<Vec<T>> {
    let mut seen = BTreeSet::new();
    let mut out = Vec::new();
    for item in items(node, 1)? {
        if !seen.insert(item.text()?) {
            return Err(item.problem("stands in the list twice"));
        }
        out.push(read(&item)?);
    }
    Ok(out)
}

/// Every address of the network, those of pods among them (CASES K-A10).
fn read_network(node: &Node<'_>) -> ReadResult<CidrPeer> {
    if node.text()?.len() > MAX_CIDR {
        return Err(node.problem(format!("is longer than {MAX_CIDR} characters")));
    }
    Ok(CidrPeer { pods: true, ..CidrPeer::whole(kubernetes::read_cidr(node)?) })
}

/// A name can only open: what is not asked for, and so not known, could neither be denied nor passed.
fn domain_names(node: &Node<'_>, effect: Effect, tier: Tier) -> ReadResult<Vec<Pattern>> {
    if effect != Effect::Allow {
        return Err(node.problem("only allowed in Accept rules"));
    }
    if tier != Tier::Admin {
        return Err(node.problem("only allowed in the Admin tier"));
    }
    distinct(node, |item| {
        let text = item.text()?;
        let shown = || text.chars().take(80).collect::<String>();
        Pattern::domain_name(text).map_err(|e| item.problem(format!("`{}`: {e}", shown())))
    })
}
