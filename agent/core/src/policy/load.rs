//! From text to objects to policies: documents, lists, kinds, and what to tell about each object.
//!
//! Owns: which kinds there are and who reads them. Must not know: what stands in a spec.

use serde::Deserialize;
use serde_yaml_ng::{Deserializer, Value};

use super::{
    Diagnostic, Origin, Policy, Severity, cilium, cluster_network, kubernetes,
    reader::{Fields, Node, Problem, Read},
};
use crate::{
    labels::Labels,
    tuning::{self, Lifetimes},
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

    fn append(&mut self, more: Loaded) {
        self.policies.extend(more.policies);
        self.diagnostics.extend(more.diagnostics);
    }
}

/// For whom policies are read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Mode {
    /// One command: there are no pods, the subject is always this workload, DNS pods are the trusted resolvers.
    Workload,
    /// The pods and nodes of a cluster.
    Cluster,
}

/// Where an object is read.
#[derive(Debug, Clone, Copy)]
pub(super) struct Context<'a> {
    pub(super) mode: Mode,
    /// The object's namespace, which its selectors imply. `None`: the object is clusterwide.
    pub(super) namespace: Option<&'a str>,
}

/// What was found while reading one object: one error per rule, so that a file is mended in one go.
#[derive(Debug, Default)]
pub(super) struct Notes {
    pub(super) errors: Vec<Problem>,
    pub(super) warnings: Vec<Problem>,
}

/// The namespace of an object that names none.
const DEFAULT_NAMESPACE: &str = "default";

/// Reads all documents of a file as policies of a cluster; `kind: List` is unpacked. Never fails as a whole: what is
/// wrong is in the diagnostics, and what is right is in force.
#[must_use]
pub fn parse(text: &str) -> Loaded {
    documents(text, read_object)
}

/// Reads one object as a policy of a cluster. `label` names it in diagnostics as long as its own name is not known.
pub(crate) fn read_object(value: &Value, label: &str) -> Loaded {
    read_object_for(Mode::Cluster, value, label)
}

/// [`parse`] with either reader of objects.
pub(super) fn documents(text: &str, read: impl Fn(&Value, &str) -> Loaded) -> Loaded {
    let mut loaded = Loaded::default();
    let mut objects = 0;
    for (i, document) in Deserializer::from_str(text).enumerate() {
        let label = format!("document {}", i + 1);
        match Value::deserialize(document) {
            Ok(Value::Null) => {}
            Ok(value) => objects += load(&value, &label, &read, &mut loaded),
            Err(e) => {
                // Where the reader stands now is not known; what follows would be read out of its context.
                let message = format!("{e}; this document and those after it are not read");
                loaded.diagnostics.push(error(label, message));
                return loaded;
            }
        }
    }
    if objects == 0 {
        loaded.diagnostics.push(error("file".to_owned(), "holds no policy object".to_owned()));
    }
    loaded
}

fn error(object: String, message: String) -> Diagnostic {
    Diagnostic { severity: Severity::Error, object, path: String::new(), message }
}

/// Loads one object or the items of a list; returns how many.
fn load(value: &Value, label: &str, read: impl Fn(&Value, &str) -> Loaded, loaded: &mut Loaded) -> usize {
    if value.get("kind").and_then(Value::as_str) == Some("List")
        && let Some(items) = value.get("items").and_then(Value::as_sequence)
    {
        for (i, item) in items.iter().enumerate() {
            loaded.append(read(item, &format!("{label} items[{i}]")));
        }
        return items.len();
    }
    loaded.append(read(value, label));
    1
}

/// [`read_object`] for either mode.
pub(super) fn read_object_for(mode: Mode, value: &Value, label: &str) -> Loaded {
    let mut loaded = Loaded::default();
    let mut notes = Notes::default();
    let head = head(value, mode);
    let lifetimes = lifetimes(value).unwrap_or_else(|problem| {
        notes.errors.push(problem);
        Lifetimes::default()
    });
    let object = head.as_ref().map_or_else(|_| label.to_owned(), |(_, origin)| origin.to_string());
    match head.and_then(|(kind, origin)| policies(value, kind, origin, mode, &mut notes)) {
        Ok(policies) if notes.errors.is_empty() => {
            loaded.policies.extend(policies.into_iter().map(|p| p.lasting(lifetimes)));
        }
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
    loaded
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Network,
    ClusterNetwork,
    Cilium,
    CiliumClusterwide,
}

fn policies(value: &Value, kind: Kind, origin: Origin, mode: Mode, notes: &mut Notes) -> Read<Vec<Policy>> {
    match kind {
        Kind::Network => Ok(vec![kubernetes::policy(value, origin, notes)?]),
        Kind::ClusterNetwork => Ok(vec![cluster_network::policy(value, origin, notes)?]),
        Kind::Cilium | Kind::CiliumClusterwide => cilium::policies(value, origin, mode, notes),
    }
}

/// What the annotations say.
fn lifetimes(value: &Value) -> Read<Lifetimes> {
    let annotations = value.get("metadata").and_then(|m| m.get("annotations")).and_then(Value::as_mapping);
    let text = |(key, value): (&Value, &Value)| {
        let key = key.as_str().filter(|key| key.starts_with(tuning::ANNOTATIONS))?;
        let path = format!("metadata.annotations[{key}]");
        let wrong = || Problem::other_kind(&path, "a string", Some(value));
        Some(value.as_str().ok_or_else(wrong).map(|value| (key.to_owned(), value.to_owned())))
    };
    Lifetimes::read(&annotations.into_iter().flatten().filter_map(text).collect::<Read<Labels>>()?)
}

fn head(value: &Value, mode: Mode) -> Read<(Kind, Origin)> {
    let mut fields = Node::root(value).fields()?;
    let kind = kind(&mut fields, mode)?;
    let text = fields.need("kind")?.text()?.to_owned();
    let mut metadata = fields.need("metadata")?.fields()?;
    let name = metadata.need("name")?.text()?.to_owned();
    let namespace = metadata.take("namespace")?.map(|n| n.text().map(str::to_owned)).transpose()?;
    let namespace = match (kind, mode) {
        (Kind::CiliumClusterwide | Kind::ClusterNetwork, _) => None,
        (_, Mode::Workload) => namespace,
        (_, Mode::Cluster) => Some(namespace.unwrap_or_else(|| DEFAULT_NAMESPACE.to_owned())),
    };
    Ok((kind, Origin { kind: text, namespace, name }))
}

/// Looks at `apiVersion` and `kind`; the kind stays for who comes next.
fn kind(fields: &mut Fields<'_>, mode: Mode) -> Read<Kind> {
    let api = fields.need("apiVersion")?;
    let kinds: &[(&str, Kind)] = match (api.text()?, mode) {
        ("cilium.io/v2", _) => &[
            ("CiliumNetworkPolicy", Kind::Cilium),
            ("CiliumClusterwideNetworkPolicy", Kind::CiliumClusterwide),
        ],
        ("networking.k8s.io/v1", Mode::Cluster) => &[("NetworkPolicy", Kind::Network)],
        // Both versions say the same.
        ("policy.networking.k8s.io/v1alpha2" | "policy.networking.k8s.io/v1beta1", Mode::Cluster) => {
            &[("ClusterNetworkPolicy", Kind::ClusterNetwork)]
        }
        (other, Mode::Workload) => {
            return Err(api.problem(format!("`{other}` is not supported; expected cilium.io/v2")));
        }
        (other, Mode::Cluster) => {
            let expected =
                "expected networking.k8s.io/v1, cilium.io/v2 or policy.networking.k8s.io/v1alpha2 or v1beta1";
            return Err(api.problem(format!("`{other}` is not supported; {expected}")));
        }
    };
    let kind = fields.peek("kind")?;
    let text = kind.text()?;
    let found = kinds.iter().find(|(name, _)| *name == text).map(|(_, kind)| *kind);
    found.ok_or_else(|| kind.problem(format!("`{text}` is not supported")))
}
