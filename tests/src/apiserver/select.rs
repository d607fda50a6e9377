//! Which objects a request means: namespace, labels and fields. Knows nothing of versions.

use super::kinds::Kind;
use super::object::Object;
use super::reply::Failure;

/// The objects that a list or a watch asks for.
#[derive(Clone, Debug, Default)]
pub(super) struct Filter {
    /// `namespace/`, or empty for all.
    pub(super) prefix: String,
    labels: Vec<Requirement>,
    fields: Vec<(Field, bool, String)>,
}

#[derive(Clone, Debug)]
enum Field {
    Name,
    Namespace,
    /// By its place in [`Kind::fields`].
    Other(usize),
}

#[derive(Clone, Debug)]
struct Requirement {
    key: String,
    test: Test,
}

#[derive(Clone, Debug)]
enum Test {
    Exists,
    Missing,
    In(Vec<String>),
    NotIn(Vec<String>),
}

impl Filter {
    /// From the two selectors of a request.
    pub(super) fn new(kind: &Kind, namespace: &str, labels: &str, fields: &str) -> Result<Self, Failure> {
        let prefix = if namespace.is_empty() { String::new() } else { format!("{namespace}/") };
        let labels = split(labels).into_iter().map(requirement).collect::<Result<_, _>>()?;
        let terms = fields.split(',').map(str::trim).filter(|term| !term.is_empty());
        let fields = terms.map(|term| field(kind, term)).collect::<Result<_, _>>()?;
        Ok(Self { prefix, labels, fields })
    }

    /// Whether nothing but the namespace matters.
    pub(super) fn is_plain(&self) -> bool {
        self.labels.is_empty() && self.fields.is_empty()
    }

    pub(super) fn matches(&self, object: &Object) -> bool {
        object.key.starts_with(&self.prefix)
            && self.labels.iter().all(|requirement| requirement.holds(object))
            && self.fields.iter().all(|(field, equal, value)| (field.of(object) == value) == *equal)
    }
}

impl Field {
    fn of<'a>(&self, object: &'a Object) -> &'a str {
        let (namespace, name) = object.key.split_once('/').unwrap_or(("", &object.key));
        match self {
            Self::Name => name,
            Self::Namespace => namespace,
            Self::Other(place) => &object.fields[*place],
        }
    }
}

impl Requirement {
    fn holds(&self, object: &Object) -> bool {
        let value = object.labels.iter().find(|(key, _)| **key == *self.key).map(|(_, value)| &**value);
        let among = |values: &[String]| value.is_some_and(|value| values.iter().any(|one| one == value));
        match &self.test {
            Test::Exists => value.is_some(),
            Test::Missing => value.is_none(),
            Test::In(values) => among(values),
            Test::NotIn(values) => !among(values),
        }
    }
}

/// `a=b`, `a==b` or `a!=b`.
fn field(kind: &Kind, term: &str) -> Result<(Field, bool, String), Failure> {
    let (key, equal, value) = match (term.split_once("!="), term.split_once('=')) {
        (Some((key, value)), _) => (key, false, value),
        (None, Some((key, value))) => (key, true, value.strip_prefix('=').unwrap_or(value)),
        (None, None) => return Err(Failure::bad_request(format!("no field selector: {term:?}"))),
    };
    let field = match key {
        "metadata.name" => Field::Name,
        "metadata.namespace" => Field::Namespace,
        _ => match kind.fields.iter().position(|known| *known == key) {
            Some(place) => Field::Other(place),
            None => return Err(Failure::bad_request(format!("field label not supported: {key}"))),
        },
    };
    Ok((field, equal, value.into()))
}

/// `a`, `!a`, `a=b`, `a!=b`, `a in (b,c)` or `a notin (b,c)`.
fn requirement(term: &str) -> Result<Requirement, Failure> {
    let (key, test) = if let Some((key, values)) = term.split_once('(') {
        let values = values.strip_suffix(')').ok_or_else(|| unparsable(term))?;
        let values = values.split(',').map(|value| value.trim().to_owned()).collect();
        match key.trim().rsplit_once(' ') {
            Some((key, "in")) => (key, Test::In(values)),
            Some((key, "notin")) => (key, Test::NotIn(values)),
            _ => return Err(unparsable(term)),
        }
    } else if let Some((key, value)) = term.split_once("!=") {
        (key, Test::NotIn(vec![value.trim().into()]))
    } else if let Some((key, value)) = term.split_once('=') {
        (key, Test::In(vec![value.trim_start_matches('=').trim().into()]))
    } else if let Some(key) = term.strip_prefix('!') {
        (key, Test::Missing)
    } else {
        (term, Test::Exists)
    };
    let key = key.trim();
    let known = |c: char| c.is_ascii_alphanumeric() || "-_./".contains(c);
    if key.is_empty() || !key.chars().all(known) {
        return Err(unparsable(term));
    }
    Ok(Requirement { key: key.into(), test })
}

fn unparsable(term: &str) -> Failure {
    Failure::bad_request(format!("unable to parse requirement: {term:?}"))
}

/// The terms of a label selector: commas inside parentheses do not part them.
fn split(selector: &str) -> Vec<&str> {
    let (mut terms, mut start, mut depth) = (Vec::new(), 0, 0);
    for (at, c) in selector.char_indices() {
        match c {
            '(' => depth += 1,
            ')' => depth -= 1,
            ',' if depth == 0 => {
                terms.push(&selector[start..at]);
                start = at + 1;
            }
            _ => {}
        }
    }
    terms.push(&selector[start..]);
    terms.into_iter().map(str::trim).filter(|term| !term.is_empty()).collect()
}
