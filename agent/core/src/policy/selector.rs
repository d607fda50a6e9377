//! Reads a Kubernetes `LabelSelector`.
//!
//! Owns: its fields and operators, and what a selector of pods and one of their namespaces mean together. Must not know:
//! what else a key may mean; the caller translates it.

use std::collections::BTreeSet;

use super::reader::{Node, Read};
use crate::labels::{Condition, NAMESPACE_LABELS, Requirement};

/// The requirements of pods with these labels in namespaces with those; an absent selector requires nothing.
pub(super) fn pods(pods: Option<&Node<'_>>, namespaces: Option<&Node<'_>>) -> Read<BTreeSet<Requirement>> {
    let read = |node: Option<&Node<'_>>, prefix: &str| {
        node.map(|node| read(node, |key| plain(key).map(|key| format!("{prefix}{key}")))).transpose()
    };
    let mut requirements = read(pods, "")?.unwrap_or_default();
    requirements.extend(read(namespaces, NAMESPACE_LABELS)?.unwrap_or_default());
    Ok(requirements)
}

/// A key that means what it says.
pub(super) fn plain(key: &str) -> Result<String, String> {
    if key.is_empty() { Err("is no label".to_owned()) } else { Ok(key.to_owned()) }
}

/// The requirements of a selector. `key` translates a key as written into one of the identity labels' space, or says
/// why it cannot.
pub(super) fn read(
    node: &Node<'_>,
    key: impl Fn(&str) -> Result<String, String>,
) -> Read<BTreeSet<Requirement>> {
    let mut out = BTreeSet::new();
    let mut fields = node.fields()?;
    if let Some(labels) = fields.take("matchLabels")? {
        for (name, value) in labels.entries()? {
            let key = key(name).map_err(|why| value.problem(why))?;
            out.insert(Requirement::is(key, value.text()?));
        }
    }
    if let Some(expressions) = fields.take("matchExpressions")? {
        for expression in expressions.list()? {
            out.insert(read_expression(&expression, &key)?);
        }
    }
    fields.finish()?;
    Ok(out)
}

fn read_expression(node: &Node<'_>, key: impl Fn(&str) -> Result<String, String>) -> Read<Requirement> {
    let mut fields = node.fields()?;
    let key_node = fields.need("key")?;
    let key = key(key_node.text()?).map_err(|why| key_node.problem(why))?;
    let operator = fields.need("operator")?;
    let values_node = fields.take("values")?;
    fields.finish()?;
    let mut values = BTreeSet::new();
    for value in values_node.as_ref().map(Node::list).transpose()?.unwrap_or_default() {
        values.insert(value.text()?.to_owned());
    }
    let condition = match (operator.text()?, values.is_empty()) {
        ("In", false) => Condition::In(values),
        ("NotIn", false) => Condition::NotIn(values),
        ("Exists", true) => Condition::Exists,
        ("DoesNotExist", true) => Condition::DoesNotExist,
        ("In" | "NotIn", true) => return Err(operator.problem("needs values")),
        ("Exists" | "DoesNotExist", false) => {
            return Err(values_node.unwrap_or(operator).problem("must be empty for this operator"));
        }
        (other, _) => {
            let known = "In, NotIn, Exists and DoesNotExist are";
            return Err(operator.problem(format!("`{other}` is no operator; {known}")));
        }
    };
    Ok(Requirement::new(key, condition))
}
