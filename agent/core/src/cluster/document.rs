//! An object as an API server sends it, cut down to what Egret may ask about while it is being taken apart.
//!
//! Owns: which parts are never built. A page of a list is 500 objects, and of a pod nine tenths are volumes, statuses and
//! field managers. Must not know: what the rest means ([`super::read`]).

use std::fmt;

use serde::de::{
    Deserialize, DeserializeSeed, Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Visitor,
};
use serde_yaml_ng::{Mapping, Value};

use super::read::{Contents, read_value};

/// An object, possibly without its `apiVersion` and `kind`, which items of a list do not have.
#[derive(Debug, Clone, PartialEq)]
pub struct Document(Value);

impl Document {
    /// What it says, as an object of this kind.
    #[must_use]
    pub fn read(mut self, api_version: &str, kind: &str) -> Contents {
        if let Value::Mapping(root) = &mut self.0 {
            root.insert("apiVersion".into(), api_version.into());
            root.insert("kind".into(), kind.into());
        }
        read_value(&self.0)
    }

    /// Takes annotations out of it.
    pub fn retain_annotations(&mut self, keep: impl Fn(&str) -> bool) {
        let metadata = self.0.get_mut("metadata");
        let annotations = metadata.and_then(|m| m.get_mut("annotations")).and_then(Value::as_mapping_mut);
        if let Some(annotations) = annotations {
            annotations.retain(|key, _| key.as_str().is_some_and(&keep));
        }
    }

    /// A text of `metadata`; empty if there is none.
    #[must_use]
    pub fn metadata(&self, field: &str) -> &str {
        self.0.get("metadata").and_then(|m| m.get(field)).and_then(Value::as_str).unwrap_or_default()
    }
}

impl<'de> Deserialize<'de> for Document {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Level::Root.deserialize(deserializer).map(Self)
    }
}

/// Where in an object something stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Level {
    Root,
    Metadata,
    Owners,
    Owner,
    Spec,
    Containers,
    Container,
    Status,
    /// Nothing below is cut.
    Whole,
}

impl Level {
    /// Where the field stands; `None`: nobody asks about it.
    fn below(self, field: &str) -> Option<Self> {
        match (self, field) {
            (Self::Root, "metadata") => Some(Self::Metadata),
            (Self::Root, "spec") => Some(Self::Spec),
            (Self::Root, "status") => Some(Self::Status),
            (Self::Metadata, "managedFields")
            | (Self::Spec, "volumes" | "tolerations" | "affinity" | "topologySpreadConstraints")
            | (
                Self::Status,
                "images"
                | "conditions"
                | "containerStatuses"
                | "initContainerStatuses"
                | "ephemeralContainerStatuses"
                | "volumesAttached"
                | "volumesInUse",
            ) => None,
            (Self::Metadata, "ownerReferences") => Some(Self::Owners),
            (Self::Owner, _) => matches!(field, "kind" | "name" | "controller").then_some(Self::Whole),
            (Self::Spec, "containers" | "initContainers") => Some(Self::Containers),
            (Self::Container, _) => {
                matches!(field, "name" | "ports" | "restartPolicy").then_some(Self::Whole)
            }
            _ => Some(Self::Whole),
        }
    }

    fn of_items(self) -> Self {
        match self {
            Self::Owners => Self::Owner,
            Self::Containers => Self::Container,
            _ => Self::Whole,
        }
    }
}

impl<'de> DeserializeSeed<'de> for Level {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Level {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value of an object")
    }

    fn visit_bool<E: Error>(self, value: bool) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_str<E: Error>(self, value: &str) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_unit<E: Error>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
        let mut list = Vec::new();
        while let Some(item) = items.next_element_seed(self.of_items())? {
            list.push(item);
        }
        Ok(Value::Sequence(list))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut fields: A) -> Result<Value, A::Error> {
        let mut map = Mapping::new();
        while let Some(field) = fields.next_key::<String>()? {
            match self.below(&field) {
                Some(level) => drop(map.insert(field.into(), fields.next_value_seed(level)?)),
                None => drop(fields.next_value::<IgnoredAny>()?),
            }
        }
        Ok(Value::Mapping(map))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::{Body, read};

    const POD: &str = r#"{"metadata": {"name": "p", "namespace": "x", "uid": "u", "resourceVersion": "7",
        "labels": {"env": "prod", "volumes": "many"}, "annotations": {"egret.dev/reject": "true", "egret.dev/audit": "true"},
        "managedFields": [{"manager": "kubelet"}],
        "ownerReferences": [{"kind": "DaemonSet", "name": "d", "uid": "of-owner", "controller": true}]},
        "spec": {"nodeName": "n", "volumes": [{"name": "v"}], "containers": [{"name": "c", "image": "i", "env": [{}],
            "ports": [{"name": "http", "containerPort": 8080}]}]},
        "status": {"podIPs": [{"ip": "10.0.0.1"}], "containerStatuses": [{"ready": true}], "phase": "Running"}}"#;

    fn document(text: &str) -> Document {
        // JSON is YAML.
        serde_yaml_ng::from_str(text).expect("an object")
    }

    #[test]
    fn what_nobody_asks_about_is_never_built_and_changes_nothing() {
        let whole: Value = serde_yaml_ng::from_str(POD).expect("an object");
        let cut = document(POD);
        let text = serde_yaml_ng::to_string(&cut.0).expect("text");
        for gone in ["manager", "image", "- name: v", "ready", "of-owner"] {
            assert!(!text.contains(gone), "{gone} in {text}");
        }
        assert_eq!(
            (cut.metadata("resourceVersion"), cut.metadata("uid"), cut.metadata("no")),
            ("7", "u", "")
        );
        assert_eq!(cut.read("v1", "Pod"), Document(whole).read("v1", "Pod"));
    }

    #[test]
    fn labels_and_policies_are_never_cut() {
        let contents = document(POD).read("v1", "Pod");
        let Body::Pod(pod) = &contents.objects[0].body else { panic!("no pod") };
        assert_eq!(pod.labels.get("env").map(String::as_str), Some("prod"));
        assert_eq!(pod.labels.get("volumes").map(String::as_str), Some("many"));
        assert_eq!(pod.ports.len(), 1);
        let policy = "{metadata: {name: a, namespace: x}, spec: {podSelector: {matchLabels: {volumes: a, conditions: b}},
            ingress: [{from: [{podSelector: {matchLabels: {images: c}}}]}]}}";
        let (api, kind) = ("networking.k8s.io/v1", "NetworkPolicy");
        let with_kind = format!("{{apiVersion: {api}, kind: {kind}, {}", &policy[1..]);
        assert_eq!(document(policy).read(api, kind), read(&with_kind));
    }

    #[test]
    fn annotations_that_do_not_count_are_taken_out() {
        let mut pod = document(POD);
        pod.retain_annotations(|key| key == "egret.dev/reject");
        let contents = pod.read("v1", "Pod");
        let Body::Pod(pod) = &contents.objects[0].body else { panic!("no pod") };
        assert_eq!(pod.annotations.keys().collect::<Vec<_>>(), ["egret.dev/reject"]);
    }

    #[test]
    fn no_shape_is_refused_here() {
        for text in [
            "7",
            "[]",
            "null",
            "{metadata: 7}",
            "{spec: {containers: {a: 1}}, status: [x]}",
            "{metadata: {labels: 1.5}}",
        ] {
            let contents = document(text).read("v1", "Pod");
            assert!(contents.objects.is_empty() && !contents.diagnostics.is_empty(), "{text}");
        }
    }
}
