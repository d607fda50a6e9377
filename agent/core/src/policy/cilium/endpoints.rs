//! Selectors of pods and nodes: the subject of a spec, and `toEndpoints`, `fromEndpoints`.
//!
//! Owns: which namespace a selector implies, and the sources that stand before a label's key (`k8s:`, `any:`,
//! `reserved:`). Must not know: which pods there are.

use std::collections::BTreeSet;

use super::{
    super::{
        Entity, Peers, Subject,
        load::Context,
        reader::{Fields, Node, Problem, Read},
        selector,
    },
    peers::entity,
};
use crate::labels::{Condition, Labels, NAMESPACE_LABELS, POD_NAMESPACE, Requirement, Selector};

/// Before the name of a reserved identity.
const RESERVED: &str = "reserved:";

/// `endpointSelector` or `nodeSelector`: exactly one, and nodes only in an object without namespace.
pub(super) fn subject(spec: &Node<'_>, fields: &mut Fields<'_>, context: Context<'_>) -> Read<Subject> {
    let (pods, nodes) = (fields.take("endpointSelector")?, fields.take("nodeSelector")?);
    match (pods, nodes) {
        (Some(node), None) => Ok(Subject::Pods(subject_pods(&node, context)?)),
        (None, Some(node)) if context.namespace.is_some() => {
            Err(node.problem("only allowed in a CiliumClusterwideNetworkPolicy"))
        }
        (None, Some(node)) => Ok(Subject::Nodes(Selector::all_of(selector::read(&node, key)?))),
        (Some(_), Some(node)) => Err(node.problem("cannot stand beside `endpointSelector`")),
        (None, None) => Err(spec.problem("needs endpointSelector or nodeSelector")),
    }
}

/// Pods of the object's namespace, whatever the selector says; of any namespace if the object has none.
fn subject_pods(node: &Node<'_>, context: Context<'_>) -> Read<Selector> {
    let selector = Selector::all_of(selector::read(node, key)?);
    let Some(namespace) = context.namespace else { return Ok(selector) };
    let own = Labels::from([(POD_NAMESPACE.to_owned(), namespace.to_owned())]);
    if selector.requirements().any(|r| r.key() == POD_NAMESPACE && !r.matches(&own)) {
        let message = format!("selects another namespace; the object is about pods of `{namespace}` only");
        return Err(node.problem(message));
    }
    Ok(selector.and(Requirement::is(POD_NAMESPACE, namespace)))
}

/// The kinds of peers that a list of selectors means: pods, reserved identities, or both. An empty list is nobody.
pub(super) fn peers(node: &Node<'_>, context: Context<'_>) -> Read<Vec<Peers>> {
    let (mut pods, mut entities) = (Vec::new(), BTreeSet::new());
    for item in node.list()? {
        // Reserved names are kept in the keys until it is known that they stand alone.
        let any_key = |text: &str| if text.starts_with(RESERVED) { Ok(text.to_owned()) } else { key(text) };
        let requirements = selector::read(&item, any_key)?;
        if requirements.iter().any(|r| r.key().starts_with(RESERVED)) {
            entities.insert(reserved(&item, &requirements)?);
        } else {
            pods.push(with_namespace(requirements, context));
        }
    }
    let mut kinds = Vec::new();
    kinds.extend((!pods.is_empty()).then_some(Peers::Pods(pods)));
    kinds.extend((!entities.is_empty()).then_some(Peers::Entities(entities)));
    if kinds.is_empty() {
        kinds.push(Peers::Nobody);
    }
    Ok(kinds)
}

/// A selector that names no namespace means the object's own; that of a clusterwide object means every pod.
fn with_namespace(requirements: BTreeSet<Requirement>, context: Context<'_>) -> Selector {
    let said = requirements.iter().any(|r| r.key() == POD_NAMESPACE || r.key().starts_with(NAMESPACE_LABELS));
    let selector = Selector::all_of(requirements);
    match context.namespace {
        Some(namespace) if !said => selector.and(Requirement::is(POD_NAMESPACE, namespace)),
        _ => selector,
    }
}

/// The entity that a selector of one reserved label means.
fn reserved(node: &Node<'_>, requirements: &BTreeSet<Requirement>) -> Read<Entity> {
    let alone: Vec<&Requirement> = requirements.iter().collect();
    let [requirement] = alone[..] else {
        return Err(node.problem("a reserved label stands alone in its selector"));
    };
    let present = match requirement.condition() {
        Condition::In(values) => values.iter().all(String::is_empty),
        Condition::Exists => true,
        _ => false,
    };
    let name = requirement.key().trim_start_matches(RESERVED);
    if !present {
        let message = format!("`{RESERVED}{name}` can only be there, with an empty value");
        return Err(node.problem(message));
    }
    entity(node, name).map_err(|p| Problem { path: p.path, message: format!("reserved label {}", p.message) })
}

/// A label's key without its source. Labels of other sources belong to nothing that Egret sees.
pub(super) fn key(text: &str) -> Result<String, String> {
    let bare = match text.split_once(':') {
        None => text,
        Some(("k8s" | "any", bare)) => bare,
        Some((source, _)) => return Err(format!("labels of source `{source}` are not enforced by Egret")),
    };
    if bare.is_empty() { Err("is no label".to_owned()) } else { Ok(bare.to_owned()) }
}
