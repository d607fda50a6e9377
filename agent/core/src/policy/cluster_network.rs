//! Reads ClusterNetworkPolicy (policy.networking.k8s.io/v1alpha2; v1beta1 has the same fields).
//!
//! Owns: the language, as the API's types and the rules of its CRD describe it. Must not know: files, maps, pods.
//!
//! The first rule that matches decides, so a [`Rule`] stays where its text stands; the kinds of peers of one text rule
//! follow one another and do the same. A peer or protocol that is not known comes from a newer version of the API, and
//! the API says what to do: an Accept rule matches nothing then, a Deny or Pass rule denies everything.

mod member;
mod peers;
mod protocols;

use egret_common::net::Direction;
use serde_yaml_ng::Value;

use super::{
    Effect, Origin, Peers, Policy, Rule, Standing, Subject, Tier,
    load::Notes,
    reader::{Fields, Node, Problem, Read},
    selector,
};
use crate::{labels::Selector, ports::Ports};
use member::{items, only};

/// The API's limit for most of its lists.
const MAX_ITEMS: usize = 25;
/// The longest name of a rule.
const MAX_NAME: usize = 100;
/// The last priority.
const MAX_PRIORITY: u64 = 1000;

/// Reads one object, of which the head is known to be right.
pub(super) fn policy(value: &Value, origin: Origin, notes: &mut Notes) -> Read<Policy> {
    let mut fields = Fields::of_spec(&Node::root(value))?;
    let standing =
        Standing { tier: tier(&fields.need("tier")?)?, priority: priority(&fields.need("priority")?)? };
    let subject = Subject::Pods(subject(&fields.need("subject")?)?);
    let mut rules = Vec::new();
    for (field, direction) in [("egress", Direction::Egress), ("ingress", Direction::Ingress)] {
        let Some(list) = fields.take(field)? else { continue };
        for node in items(&list, 0)? {
            match rule(&node, standing.tier, direction, notes) {
                Ok(read) => rules.extend(read),
                Err(problem) => notes.errors.push(problem),
            }
        }
    }
    fields.finish()?;
    Ok(Policy::tiered(origin, subject, standing, rules))
}

fn tier(node: &Node<'_>) -> Read<Tier> {
    match node.text()? {
        "Admin" => Ok(Tier::Admin),
        "Baseline" => Ok(Tier::Baseline),
        other => Err(node.problem(format!("`{other}` is neither Admin nor Baseline"))),
    }
}

fn priority(node: &Node<'_>) -> Read<u16> {
    let number = node.number().filter(|n| *n <= MAX_PRIORITY);
    let number = number.and_then(|n| u16::try_from(n).ok());
    number.ok_or_else(|| node.problem(format!("is no priority from 0 to {MAX_PRIORITY}")))
}

fn subject(node: &Node<'_>) -> Read<Selector> {
    match only(node, &["namespaces", "pods"])? {
        Some(("namespaces", namespaces)) => namespaced(&namespaces),
        Some((_, pods)) => pods_of(&pods),
        None => Err(node.problem("needs namespaces or pods")),
    }
}

/// All pods in namespaces with these labels.
fn namespaced(namespaces: &Node<'_>) -> Read<Selector> {
    Ok(Selector::all_of(selector::pods(None, Some(namespaces))?))
}

/// Pods with these labels in namespaces with those; of any namespace if the selector of namespaces is absent.
fn pods_of(node: &Node<'_>) -> Read<Selector> {
    let mut fields = node.fields()?;
    let namespaces = fields.take("namespaceSelector")?;
    let pods = fields.need("podSelector")?;
    fields.finish()?;
    Ok(Selector::all_of(selector::pods(Some(&pods), namespaces.as_ref())?))
}

/// One entry: a [`Rule`] per kind of peer.
fn rule(node: &Node<'_>, tier: Tier, direction: Direction, notes: &mut Notes) -> Read<Vec<Rule>> {
    let mut fields = node.fields()?;
    let name = fields.take("name")?.map(|name| rule_name(&name)).transpose()?.unwrap_or_default();
    let effect = effect(&fields.need("action")?)?;
    let peers = fields.need(if direction == Direction::Egress { "to" } else { "from" })?;
    let peers = peers::read(&peers, direction, effect, tier)?;
    let protocols = match fields.take("protocols")? {
        Some(node) => protocols::read(&node)?,
        None => protocols::Read { ports: Ports::All, named: None, unknown: None },
    };
    fields.finish()?;
    if let (Some(named), Some(unnamed)) = (&protocols.named, &peers.without_names) {
        let message = format!("only pods have named ports, and `{unnamed}` are not only pods");
        return Err(Problem { path: named.clone(), message });
    }
    let path = format!("{}{name}", node.path());
    let rule = |effect, peers, ports| Rule { direction, effect, peers, ports, dns: None, path: path.clone() };
    let Some(unknown) = peers.unknown.or(protocols.unknown) else {
        let kinds = peers.kinds.into_iter();
        return Ok(kinds.map(|kind| rule(effect, kind, protocols.ports.clone())).collect());
    };
    let (closed, message) = match effect {
        Effect::Allow => (rule(effect, Peers::Nobody, Ports::All), "the rule accepts nothing"),
        _ => (rule(Effect::Deny, Peers::Any, Ports::All), "the rule denies everything"),
    };
    let message = format!("says nothing that Egret knows, perhaps of a newer version of the API: {message}");
    notes.warnings.push(Problem { path: unknown, message });
    Ok(vec![closed])
}

fn effect(node: &Node<'_>) -> Read<Effect> {
    match node.text()? {
        "Accept" => Ok(Effect::Allow),
        "Deny" => Ok(Effect::Deny),
        "Pass" => Ok(Effect::Pass),
        other => Err(node.problem(format!("`{other}` is none of Accept, Deny and Pass"))),
    }
}

/// The rule's name as it is shown behind its path.
fn rule_name(node: &Node<'_>) -> Read<String> {
    let text = node.text()?;
    if text.chars().count() > MAX_NAME {
        return Err(node.problem(format!("is longer than {MAX_NAME} characters")));
    }
    let shown: String = text.chars().filter(|c| !c.is_control()).collect();
    Ok(if shown.is_empty() { shown } else { format!(" ({shown})") })
}

#[cfg(test)]
mod tests;
