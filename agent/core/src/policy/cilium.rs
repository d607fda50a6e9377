//! Reads CiliumNetworkPolicy and CiliumClusterwideNetworkPolicy (cilium.io/v2) for a single workload.
//!
//! Owns: the language as far as `egret run --policy` enforces it. A field that is not enforced makes the whole object
//! invalid, with the field's path: never half-enforced. Must not know: files, maps. There are no pods here, so the
//! subject is always the one workload, and a selector of DNS pods means the trusted resolvers.

mod peers;
mod ports;

use egret_common::net::Direction;
use serde::Deserialize;
use serde_yaml_ng::{Deserializer, Value};

use super::{
    Diagnostic, Effect, Isolation, Origin, Peers, Policy, Rule, Severity,
    reader::{Fields, Node, Problem, Read},
};

/// What a file yielded. An object with an error yields no policy.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Loaded {
    /// The valid objects.
    pub policies: Vec<Policy>,
    /// Everything to tell about the others, and warnings.
    pub diagnostics: Vec<Diagnostic>,
}

impl Loaded {
    /// Whether some object is invalid.
    #[must_use]
    pub fn has_errors(&self) -> bool {
        self.diagnostics.iter().any(|d| d.severity == Severity::Error)
    }
}

/// Reads all documents of a file; `kind: List` is unpacked. Never fails as a whole: what is wrong is in the
/// diagnostics, and what is right is in force.
#[must_use]
pub fn parse(text: &str) -> Loaded {
    let mut loaded = Loaded::default();
    let mut objects = 0;
    for (i, document) in Deserializer::from_str(text).enumerate() {
        let label = format!("document {}", i + 1);
        match Value::deserialize(document) {
            Ok(Value::Null) => {}
            Ok(value) => objects += load(&value, &label, &mut loaded),
            Err(e) => {
                // Where the reader stands now is not known; what follows would be read out of its context.
                let message = format!("{e}; this document and those after it are not read");
                loaded.diagnostics.push(error(label, String::new(), message));
                return loaded;
            }
        }
    }
    if objects == 0 {
        loaded.diagnostics.push(error("file".to_owned(), String::new(), "holds no policy object".to_owned()));
    }
    loaded
}

fn error(object: String, path: String, message: String) -> Diagnostic {
    Diagnostic { severity: Severity::Error, object, path, message }
}

/// Loads one object or the items of a list; returns how many.
fn load(value: &Value, label: &str, loaded: &mut Loaded) -> usize {
    if value.get("kind").and_then(Value::as_str) == Some("List")
        && let Some(items) = value.get("items").and_then(Value::as_sequence)
    {
        for (i, item) in items.iter().enumerate() {
            load_object(item, &format!("{label} items[{i}]"), loaded);
        }
        return items.len();
    }
    load_object(value, label, loaded);
    1
}

fn load_object(value: &Value, label: &str, loaded: &mut Loaded) {
    let mut notes = Notes::default();
    let origin = origin(value);
    let object = origin.as_ref().map_or_else(|_| label.to_owned(), ToString::to_string);
    match origin.and_then(|origin| policy(value, origin, &mut notes)) {
        Ok(policy) if notes.errors.is_empty() => loaded.policies.push(policy),
        Ok(_) => {}
        Err(problem) => notes.errors.push(problem),
    }
    let with = |severity, problems: Vec<Problem>| {
        let object = object.clone();
        problems.into_iter().map(move |p| Diagnostic {
            severity,
            object: object.clone(),
            path: p.path,
            message: p.message,
        })
    };
    loaded.diagnostics.extend(with(Severity::Error, notes.errors));
    loaded.diagnostics.extend(with(Severity::Warning, notes.warnings));
}

/// What was found while reading one object: one error per rule, so that a file is mended in one go.
#[derive(Debug, Default)]
struct Notes {
    errors: Vec<Problem>,
    warnings: Vec<Problem>,
}

fn origin(value: &Value) -> Read<Origin> {
    let mut fields = Node::root(value).fields()?;
    let api = fields.need("apiVersion")?;
    if api.text()? != "cilium.io/v2" {
        return Err(api.problem(format!("`{}` is not supported; expected cilium.io/v2", api.text()?)));
    }
    let kind = fields.need("kind")?;
    let clusterwide = match kind.text()? {
        "CiliumNetworkPolicy" => false,
        "CiliumClusterwideNetworkPolicy" => true,
        other => return Err(kind.problem(format!("`{other}` is not supported"))),
    };
    let mut metadata = fields.need("metadata")?.fields()?;
    let name = metadata.need("name")?.text()?.to_owned();
    let namespace = metadata.take("namespace")?.map(|n| n.text().map(str::to_owned)).transpose()?;
    Ok(Origin { kind: kind.text()?.to_owned(), namespace: namespace.filter(|_| !clusterwide), name })
}

fn policy(value: &Value, origin: Origin, notes: &mut Notes) -> Read<Policy> {
    let root = Node::root(value);
    let mut fields = root.fields()?;
    for known in ["apiVersion", "kind", "metadata", "status"] {
        fields.ignore(known);
    }
    let specs = match (fields.take("spec")?, fields.take("specs")?) {
        (Some(spec), None) => vec![spec],
        (None, Some(specs)) => specs.list()?,
        (Some(_), Some(specs)) => return Err(specs.problem("cannot stand beside `spec`")),
        (None, None) => return Err(root.problem("has neither `spec` nor `specs`")),
    };
    fields.finish()?;
    let mut isolates = Isolation::default();
    let mut rules = Vec::new();
    for spec in specs {
        let isolation = read_spec(&spec, &mut rules, notes)?;
        isolates.egress |= isolation.egress;
        isolates.ingress |= isolation.ingress;
    }
    warn_about_dns(&rules, notes);
    Ok(Policy::new(origin, isolates, rules))
}

fn read_spec(spec: &Node<'_>, rules: &mut Vec<Rule>, notes: &mut Notes) -> Read<Isolation> {
    let mut fields = spec.fields()?;
    read_subject(&mut fields, notes)?;
    let default_deny = fields.take("enableDefaultDeny")?;
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
            match read_rule(&node, direction, effect) {
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
    Ok(Isolation { egress: isolated(Direction::Egress), ingress: isolated(Direction::Ingress) })
}

/// The fields that say whom and what for: the one workload of the run is the subject, whatever they say.
fn read_subject(fields: &mut Fields<'_>, notes: &mut Notes) -> Read<()> {
    if let Some(selector) = fields.take("endpointSelector")? {
        selector.fields()?;
        if !selector.is_empty_object() {
            let note = "ignored: the policy is applied to the command that is run";
            notes.warnings.push(selector.problem(note));
        }
    }
    fields.refuse(&["nodeSelector"])?;
    if let Some(log) = fields.take("log")? {
        notes.warnings.push(log.problem("ignored: flows name the rule itself"));
    }
    fields.ignore("description");
    fields.ignore("labels");
    Ok(())
}

/// Egress, ingress: the default of a direction is "as soon as it has a rule".
fn read_default_deny(node: &Node<'_>) -> Read<[Option<bool>; 2]> {
    let mut fields = node.fields()?;
    let egress = fields.take("egress")?.map(|n| n.boolean()).transpose()?;
    let ingress = fields.take("ingress")?.map(|n| n.boolean()).transpose()?;
    fields.finish()?;
    Ok([egress, ingress])
}

/// One entry of a rule list: a [`Rule`] per entry of its `toPorts`, since each has its own `rules.dns`.
fn read_rule(node: &Node<'_>, direction: Direction, effect: Effect) -> Read<Vec<Rule>> {
    let mut fields = node.fields()?;
    let peers = peers::read(&mut fields, direction, effect)?;
    let blocks = ports::read(&mut fields, direction, effect)?;
    fields.refuse(&["authentication"])?;
    fields.finish()?;
    if peers.peers == Peers::Resolvers {
        let node = peers.node.as_ref().unwrap_or(node);
        ports::only_dns(&blocks).map_err(|why| node.problem(why))?;
    }
    let named = matches!(peers.peers, Peers::Names(_));
    if let (true, Some(block)) = (named, blocks.iter().find(|b| b.dns.is_some())) {
        return Err(Problem {
            path: block.path.clone() + ".rules.dns",
            message: "cannot be combined with toFQDNs: a resolver is not reached by name".to_owned(),
        });
    }
    if effect == Effect::Deny && peers.peers == Peers::Nobody {
        return Err(node.problem("denies nothing; write toEntities or fromEntities: [all] to deny everybody"));
    }
    let rule = |ports, dns, path| Rule { direction, effect, peers: peers.peers.clone(), ports, dns, path };
    if blocks.is_empty() {
        return Ok(vec![rule(super::Ports::All, None, node.path().to_owned())]);
    }
    Ok(blocks.into_iter().map(|b| rule(b.ports, b.dns, b.path)).collect())
}

/// Names that nobody may ask for stay closed for ever. In `egret run` DNS is implied, so this is only a hint for the
/// day when the same file goes into a cluster (CASES R-A04).
fn warn_about_dns(rules: &[Rule], notes: &mut Notes) {
    let named = rules.iter().find(|r| matches!(r.peers, Peers::Names(_)));
    let dns = rules.iter().any(|r| r.dns.is_some() || r.opens_dns_to_everybody());
    if let (Some(rule), false) = (named, dns) {
        notes.warnings.push(Problem {
            path: rule.path.clone(),
            message: "toFQDNs without a rule that lets DNS through: `egret run` adds one for the trusted \
                      resolvers, a cluster does not"
                .to_owned(),
        });
    }
}

#[cfg(test)]
mod tests;
