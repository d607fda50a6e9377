//! A pod cut into the texts that all pods share and the few that differ, so that another one is a matter of
//! microseconds: a benchmark must not measure how its cluster is made.

use std::sync::LazyLock;

use serde_json::{Map, Value};

use super::pod;
use crate::apiserver::kinds::{KINDS, Kind};
use crate::apiserver::object::Draft;

/// Cut at the marks of [`pod::MARKS`]: each text is followed by a value, but for the last one.
struct Text(Vec<(String, Option<usize>)>);

impl Text {
    fn cut(mut rest: &str) -> Self {
        let mut pieces = Vec::new();
        let next = |text: &str| {
            let found =
                pod::MARKS.iter().enumerate().filter_map(|(mark, name)| Some((text.find(name)?, mark)));
            found.min()
        };
        while let Some((at, mark)) = next(rest) {
            pieces.push((rest[..at].to_owned(), Some(mark)));
            rest = &rest[at + pod::MARKS[mark].len()..];
        }
        pieces.push((rest.to_owned(), None));
        Self(pieces)
    }

    fn fill(&self, values: &pod::Values) -> String {
        let length =
            |(text, mark): &(String, Option<usize>)| text.len() + mark.map_or(0, |mark| values[mark].len());
        let mut out = String::with_capacity(self.0.iter().map(length).sum());
        for (text, mark) in &self.0 {
            out.push_str(text);
            out.push_str(mark.map_or("", |mark| &values[mark]));
        }
        out
    }
}

/// The mould of all pods.
pub(super) struct Mould {
    whole: Text,
    key: Text,
    labels: Vec<(Box<str>, Text)>,
    fields: Vec<Text>,
    rest: Text,
}

/// The number of pods in the store.
pub(super) static PODS: LazyLock<usize> =
    LazyLock::new(|| KINDS.iter().position(|kind| kind.kind == "Pod").expect("in the table"));

static MOULD: LazyLock<Mould> = LazyLock::new(|| {
    let object: Map<String, Value> = pod::object().as_object().cloned().expect("an object");
    let kind: &Kind = &KINDS[*PODS];
    let draft = Draft::new(kind, &object);
    Mould {
        whole: Text::cut(&Value::Object(object).to_string()),
        key: Text::cut(&draft.key),
        labels: draft.labels.into_iter().map(|(key, value)| (key, Text::cut(&value))).collect(),
        fields: draft.fields.iter().map(|value| Text::cut(value)).collect(),
        rest: Text::cut(std::str::from_utf8(&draft.rest).expect("JSON")),
    }
});

/// A pod, ready to be stored.
pub(super) fn draft(values: &pod::Values) -> Draft {
    let small = |text: &Text| text.fill(values).into_boxed_str();
    Draft {
        key: MOULD.key.fill(values),
        labels: MOULD.labels.iter().map(|(key, value)| (key.clone(), small(value))).collect(),
        fields: MOULD.fields.iter().map(small).collect(),
        rest: MOULD.rest.fill(values).into_bytes(),
    }
}

/// A pod as an object.
pub(super) fn object(values: &pod::Values) -> Value {
    serde_json::from_str(&MOULD.whole.fill(values)).expect("as it was cut")
}
