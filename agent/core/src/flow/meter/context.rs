//! Labels about the ends of a flow: `source`, `destination`, and those of `labelsContext`.

use std::borrow::Cow;

use egret_common::net::Direction;

use super::family::{PodName, Values};
use crate::flow::{Flow, Side};

/// What an end may be called by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum By {
    Identity,
    Namespace,
    /// Namespace and name.
    Pod,
    PodName,
    Dns,
    Ip,
    ReservedIdentity,
    /// Namespace and name.
    Workload,
    WorkloadName,
    WorkloadKind,
    App,
}

/// Words of `sourceContext` and its like.
const WORDS: [(&str, By); 10] = [
    ("identity", By::Identity),
    ("namespace", By::Namespace),
    ("pod", By::Pod),
    ("pod-name", By::PodName),
    ("dns", By::Dns),
    ("ip", By::Ip),
    ("reserved-identity", By::ReservedIdentity),
    ("workload", By::Workload),
    ("workload-name", By::WorkloadName),
    ("app", By::App),
];

/// Labels of `labelsContext`, in the order in which they are shown.
const LABELS: [(&str, Label); 13] = [
    ("source_ip", Label::Source(By::Ip)),
    ("source_pod", Label::Source(By::PodName)),
    ("source_namespace", Label::Source(By::Namespace)),
    ("source_workload", Label::Source(By::WorkloadName)),
    ("source_workload_kind", Label::Source(By::WorkloadKind)),
    ("source_app", Label::Source(By::App)),
    ("destination_ip", Label::Destination(By::Ip)),
    ("destination_pod", Label::Destination(By::PodName)),
    ("destination_namespace", Label::Destination(By::Namespace)),
    ("destination_workload", Label::Destination(By::WorkloadName)),
    ("destination_workload_kind", Label::Destination(By::WorkloadKind)),
    ("destination_app", Label::Destination(By::App)),
    ("traffic_direction", Label::Direction),
];

/// Identity labels that name an application, the first one that is there.
const APPS: [&str; 3] = ["k8s:app.kubernetes.io/name=", "k8s:k8s-app=", "k8s:app="];

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Label {
    Source(By),
    Destination(By),
    Direction,
}

/// How one end is called: the first of these that says something.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
struct Choice {
    any: Vec<By>,
    /// In its place for egress and ingress.
    egress: Option<Vec<By>>,
    ingress: Option<Vec<By>>,
}

/// How the ends are called.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Context {
    source: Choice,
    destination: Choice,
    /// As in [`LABELS`].
    labels: Vec<(&'static str, Label)>,
}

impl Context {
    /// Takes an option; `None`: its name, in lower case, is none of a context.
    pub(super) fn set(&mut self, name: &str, value: &str) -> Option<Result<(), String>> {
        if name == "labelscontext" {
            return Some(labels(value).map(|labels| self.labels = labels));
        }
        let (choice, rest) = match name.strip_prefix("source") {
            Some(rest) => (&mut self.source, rest),
            None => (&mut self.destination, name.strip_prefix("destination")?),
        };
        let read = words(value);
        let place = match rest {
            "context" => return Some(read.map(|words| choice.any = words)),
            "egresscontext" => &mut choice.egress,
            "ingresscontext" => &mut choice.ingress,
            _ => return None,
        };
        Some(read.map(|words| *place = Some(words)))
    }

    /// Names of the labels.
    pub(super) fn labels(&self) -> Vec<&'static str> {
        let ends = [(&self.source, "source"), (&self.destination, "destination")];
        let ends = ends.into_iter().filter(|(choice, _)| choice.is_asked()).map(|(_, name)| name);
        self.labels.iter().map(|(name, _)| *name).chain(ends).collect()
    }

    /// Their values, in the same order.
    pub(super) fn values(&self, flow: &Flow, values: &mut Values) {
        for (_, label) in &self.labels {
            match label {
                Label::Source(by) => values.push(&by.text(&flow.source)),
                Label::Destination(by) => values.push(&by.text(&flow.destination)),
                Label::Direction => values.push(flow.direction.name()),
            }
        }
        for (choice, side) in [(&self.source, &flow.source), (&self.destination, &flow.destination)] {
            if choice.is_asked() {
                let mut texts = choice.words(flow.direction).iter().map(|by| by.text(side));
                values.push(&texts.find(|text| !text.is_empty()).unwrap_or_default());
            }
        }
    }

    /// The pods that the values may name.
    pub(super) fn pods<'a>(&self, flow: &'a Flow) -> [Option<PodName<'a>>; 2] {
        let of_labels = |source: bool| {
            self.labels.iter().any(|(_, label)| match label {
                Label::Source(by) => source && by.names_pod(),
                Label::Destination(by) => !source && by.names_pod(),
                Label::Direction => false,
            })
        };
        let ends = [(&self.source, &flow.source, true), (&self.destination, &flow.destination, false)];
        ends.map(|(choice, side, source)| {
            let named = choice.words(flow.direction).iter().any(|by| by.names_pod()) || of_labels(source);
            (named && !side.pod.is_empty()).then_some((side.namespace.as_str(), side.pod.as_str()))
        })
    }
}

impl Choice {
    fn is_asked(&self) -> bool {
        !self.any.is_empty() || self.egress.is_some() || self.ingress.is_some()
    }

    fn words(&self, direction: Direction) -> &[By] {
        let own = match direction {
            Direction::Egress => &self.egress,
            Direction::Ingress => &self.ingress,
        };
        own.as_ref().unwrap_or(&self.any)
    }
}

impl By {
    /// Whether pods that come and go have values of their own.
    fn names_pod(self) -> bool {
        matches!(self, Self::Pod | Self::PodName | Self::Ip)
    }

    fn text(self, side: &Side) -> Cow<'_, str> {
        let workload = side.workloads.first();
        let name = workload.map_or("", |workload| workload.name.as_str());
        match self {
            Self::Identity => side.labels.join(",").into(),
            Self::Namespace => side.namespace.as_str().into(),
            Self::Pod => qualified(&side.namespace, &side.pod),
            Self::PodName => side.pod.as_str().into(),
            Self::Dns => side.names.join(",").into(),
            Self::Ip => side.ip.map(|ip| ip.to_string()).unwrap_or_default().into(),
            Self::ReservedIdentity => reserved(&side.labels).into(),
            Self::Workload => qualified(&side.namespace, name),
            Self::WorkloadName => name.into(),
            Self::WorkloadKind => workload.map_or("", |workload| workload.kind.as_str()).into(),
            Self::App => app(&side.labels).into(),
        }
    }
}

/// Nothing is in no namespace.
fn qualified<'a>(namespace: &str, name: &'a str) -> Cow<'a, str> {
    if namespace.is_empty() || name.is_empty() { name.into() } else { format!("{namespace}/{name}").into() }
}

/// The API server is something in the world as well.
fn reserved(labels: &[String]) -> &str {
    let reserved = || labels.iter().filter(|label| label.starts_with("reserved:"));
    let api = reserved().find(|label| *label == "reserved:kube-apiserver");
    api.or_else(|| reserved().next()).map_or("", String::as_str)
}

fn app(labels: &[String]) -> &str {
    let value = |key: &&str| labels.iter().find_map(|label| label.strip_prefix(*key));
    APPS.iter().find_map(|key| value(key).filter(|value| !value.is_empty())).unwrap_or_default()
}

fn words(value: &str) -> Result<Vec<By>, String> {
    let word = |text: &str| {
        let known = WORDS.into_iter().find(|(word, _)| text.eq_ignore_ascii_case(word)).map(|(_, by)| by);
        known.ok_or_else(|| {
            let words = WORDS.map(|(word, _)| word).join(", ");
            format!("{text:?} is none of {words}")
        })
    };
    value.split('|').map(word).collect()
}

/// In their own order, whatever the order in the text.
fn labels(value: &str) -> Result<Vec<(&'static str, Label)>, String> {
    let wanted: Vec<&str> = value.split(',').collect();
    if let Some(bad) = wanted.iter().find(|name| !LABELS.iter().any(|(known, _)| known == *name)) {
        let known = LABELS.map(|(name, _)| name).join(", ");
        return Err(format!("{bad:?} is none of {known}"));
    }
    Ok(LABELS.into_iter().filter(|(name, _)| wanted.contains(name)).collect())
}
