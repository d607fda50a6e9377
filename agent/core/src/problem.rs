//! What is wrong with a YAML value, and in which field: shared by the readers of policies and of core objects, which
//! differ in what they make of null and of unknown fields.

use serde_yaml_ng::Value;

/// What is wrong, and in which field.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Problem {
    pub(crate) path: String,
    pub(crate) message: String,
}

/// What was read, or why not.
pub(crate) type Read<T> = Result<T, Problem>;

impl Problem {
    pub(crate) fn at(path: &str, message: impl ToString) -> Self {
        Self { path: path.to_owned(), message: message.to_string() }
    }

    /// Another kind of value was wanted; `None`: there is none.
    pub(crate) fn other_kind(path: &str, want: &str, got: Option<&Value>) -> Self {
        let got = match got {
            None => "nothing",
            Some(Value::Null) => "null",
            Some(Value::Bool(_)) => "a boolean",
            Some(Value::Number(_)) => "a number",
            Some(Value::String(_)) => "a string",
            Some(Value::Sequence(_)) => "a list",
            Some(Value::Mapping(_)) => "an object",
            Some(Value::Tagged(_)) => "a tagged value",
        };
        Self::at(path, format!("expected {want}, found {got}"))
    }
}
