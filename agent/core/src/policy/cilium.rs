//! Reads CiliumNetworkPolicy and CiliumClusterwideNetworkPolicy (cilium.io/v2), for a cluster or for a single workload.
//!
//! Owns: the language as far as Egret enforces it. A field that is not enforced makes the whole object invalid, with the
//! field's path: never half-enforced. Must not know: files, maps.
//!
//! For `egret run --policy` there are no pods: the subject is always the one workload, and a selector of DNS pods means
//! the trusted resolvers.

mod endpoints;
mod icmp;
mod peers;
mod ports;
mod references;

use egret_common::net::Direction;
use serde_yaml_ng::Value;

use super::{
    Effect, Isolation, Loaded, Origin, Peers, Policy, Rule, Subject,
    load::{Context, Mode, Notes, documents, read_object_for},
    reader::{Fields, Node, Problem, Read},
};
use crate::ports::Ports;

/// Reads all documents of a file for a single workload; `kind: List` is unpacked. Never fails as a whole: what is wrong
/// is in the diagnostics, and what is right is in force.
#[must_use]
pub fn parse(text: &str) -> Loaded {
    documents(text, |value, label| read_object_for(Mode::Workload, value, label))
}

/// Reads one object, of which the head is known to be right: a policy per spec, or one for the single workload.
pub(super) fn policies(value: &Value, origin: Origin, mode: Mode, notes: &mut Notes) -> Read<Vec<Policy>> {
    let root = Node::root(value);
    let mut fields = Fields::behind_head(&root)?;
    let specs = match (fields.take("spec")?, fields.take("specs")?) {
        (Some(spec), None) => vec![spec],
        (None, Some(specs)) => specs.list()?,
        (Some(_), Some(specs)) => return Err(specs.problem("cannot stand beside `spec`")),
        (None, None) => return Err(root.problem("has neither `spec` nor `specs`")),
    };
    fields.finish()?;
    let context = Context { mode, namespace: origin.namespace.as_deref() };
    let read: Vec<Spec> = specs.iter().map(|s| read_spec(s, context, notes)).collect::<Read<_>>()?;
    warn_about_dns(&read, mode, notes);
    if mode == Mode::Cluster {
        let policy = |s: Spec| Policy::new(origin.clone(), s.subject, s.isolates, s.rules);
        return Ok(read.into_iter().map(policy).collect());
    }
    let mut isolates = Isolation::default();
    for spec in &read {
        isolates.egress |= spec.isolates.egress;
        isolates.ingress |= spec.isolates.ingress;
    }
    let rules = read.into_iter().flat_map(|s| s.rules).collect();
    Ok(vec![Policy::new(origin, Subject::This, isolates, rules)])
}

/// One of the object's specs.
struct Spec {
    subject: Subject,
    isolates: Isolation,
    rules: Vec<Rule>,
}

fn read_spec(spec: &Node<'_>, context: Context<'_>, notes: &mut Notes) -> Read<Spec> {
    let mut fields = spec.fields()?;
    let subject = read_subject(spec, &mut fields, context, notes)?;
    let default_deny = fields.take("enableDefaultDeny")?;
    let mut rules = Vec::new();
    let mut counts = [0; 2];
    for (field, direction, effect) in [
        ("egress", Direction::Egress, Effect::Allow),
        ("egressDeny", Direction::Egress, Effect::Deny),
        ("ingress", Direction::Ingress, Effect::Allow),
        ("ingressDeny", Direction::Ingress, Effect::Deny),
    ] {
        let Some(list) = fields.take(field)? else { continue };
        for node in list.list()? {
            counts[direction as usize] += 1;
            match read_rule(&node, direction, effect, context) {
                Ok(read) => rules.extend(read),
                Err(problem) => notes.errors.push(problem),
            }
        }
    }
    fields.finish()?;
    if counts == [0, 0] {
        return Err(spec.problem("has no rule in any of egress, egressDeny, ingress, ingressDeny"));
    }
    let asked = default_deny.map(|d| read_default_deny(&d)).transpose()?.unwrap_or_default();
    let isolated = |direction: Direction| asked[direction as usize].unwrap_or(counts[direction as usize] > 0);
    let isolates = Isolation { egress: isolated(Direction::Egress), ingress: isolated(Direction::Ingress) };
    Ok(Spec { subject, isolates, rules })
}

/// The fields that say whom and what for.
fn read_subject(
    spec: &Node<'_>,
    fields: &mut Fields<'_>,
    context: Context<'_>,
    notes: &mut Notes,
) -> Read<Subject> {
    if let Some(log) = fields.take("log")? {
        notes.warnings.push(log.problem("ignored: flows name the rule itself"));
    }
    fields.ignore("description");
    fields.ignore("labels");
    if context.mode == Mode::Cluster {
        return endpoints::subject(spec, fields, context);
    }
    // The one workload of the run is the subject, whatever the text says.
    if let Some(selector) = fields.take("endpointSelector")? {
        selector.fields()?;
        if !selector.is_empty_object() {
            let note = "ignored: the policy is applied to the command that is run";
            notes.warnings.push(selector.problem(note));
        }
    }
    fields.refuse(&["nodeSelector"])?;
    Ok(Subject::This)
}

/// Egress, ingress: the default of a direction is "as soon as it has a rule".
fn read_default_deny(node: &Node<'_>) -> Read<[Option<bool>; 2]> {
    let mut fields = node.fields()?;
    let egress = fields.take("egress")?.map(|n| n.boolean()).transpose()?;
    let ingress = fields.take("ingress")?.map(|n| n.boolean()).transpose()?;
    fields.finish()?;
    Ok([egress, ingress])
}

/// One entry of a rule list: a [`Rule`] per kind of peer and per entry of its `toPorts`, since each has its own
/// `rules.dns`.
fn read_rule(node: &Node<'_>, direction: Direction, effect: Effect, context: Context<'_>) -> Read<Vec<Rule>> {
    let mut fields = node.fields()?;
    let peers = peers::read(&mut fields, direction, effect, context)?;
    let blocks = ports::read(&mut fields, direction, effect, context.mode)?;
    fields.refuse(&["authentication"])?;
    fields.finish()?;
    if peers.kinds == [Peers::Resolvers] {
        let node = peers.node.as_ref().unwrap_or(node);
        ports::only_dns(&blocks).map_err(|why| node.problem(why))?;
    }
    let named = matches!(peers.kinds[..], [Peers::Names(_)]);
    if let (true, Some(block)) = (named, blocks.iter().find(|b| b.dns.is_some())) {
        return Err(Problem {
            path: block.path.clone() + ".rules.dns",
            message: "cannot be combined with toFQDNs: a resolver is not reached by name".to_owned(),
        });
    }
    if let (true, Some(block)) = (named, blocks.iter().find(|b| b.ports.names().next().is_some())) {
        return Err(Problem {
            path: block.path.clone() + ".ports",
            message: "named ports belong to pods: with toFQDNs, write numbers".to_owned(),
        });
    }
    if effect == Effect::Deny && peers.kinds == [Peers::Nobody] {
        return Err(node.problem("denies nothing; write toEntities or fromEntities: [all] to deny everybody"));
    }
    let blocks = match blocks.is_empty() {
        true => vec![ports::Block { ports: Ports::All, dns: None, path: node.path().to_owned() }],
        false => blocks,
    };
    let rule = |kind: &Peers, block: &ports::Block| Rule {
        direction,
        effect,
        peers: kind.clone(),
        ports: block.ports.clone(),
        dns: block.dns.clone(),
        path: block.path.clone(),
    };
    Ok(peers.kinds.iter().flat_map(|kind| blocks.iter().map(move |b| rule(kind, b))).collect())
}

/// Names that nobody may ask for stay closed for ever. In `egret run` DNS is implied, so this is only a hint for the
/// day when the same file goes into a cluster (CASES R-A04).
fn warn_about_dns(specs: &[Spec], mode: Mode, notes: &mut Notes) {
    let rules = || specs.iter().flat_map(|s| &s.rules);
    let named = rules().find(|r| matches!(r.peers, Peers::Names(_)));
    let opens_dns = |r: &Rule| match mode {
        Mode::Workload => r.opens_dns_to_everybody(),
        Mode::Cluster => r.opens_dns_to_somebody(),
    };
    let dns = rules().any(|r| r.dns.is_some() || opens_dns(r));
    let elsewhere = match mode {
        Mode::Workload => "`egret run` adds one for the trusted resolvers, a cluster does not",
        Mode::Cluster => "unless another policy of the same pods has one, the names are never known",
    };
    if let (Some(rule), false) = (named, dns) {
        notes.warnings.push(Problem {
            path: rule.path.clone(),
            message: format!("toFQDNs without a rule that lets DNS through: {elsewhere}"),
        });
    }
}

#[cfg(test)]
mod cluster_tests;
#[cfg(test)]
mod reference_tests;
#[cfg(test)]
mod tests;
