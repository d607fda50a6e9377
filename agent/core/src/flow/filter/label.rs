//! Label selectors as `kubectl -l` writes them, over labels with a source: `k8s:app=web`, `reserved:world`.

/// Conditions that must all be met.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Selector(Vec<Requirement>);

#[derive(Debug, Clone, PartialEq, Eq)]
struct Requirement {
    /// `None`: whatever the source is.
    source: Option<String>,
    key: String,
    ask: Ask,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Ask {
    Exists,
    Missing,
    In(Vec<String>),
    NotIn(Vec<String>),
    Greater(i64),
    Less(i64),
}

impl Selector {
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        let parts = split(text)?;
        parts.into_iter().map(Requirement::parse).collect::<Result<_, _>>().map(Self)
    }

    pub(super) fn matches(&self, labels: &[String]) -> bool {
        self.0.iter().all(|requirement| requirement.matches(labels))
    }
}

/// At commas outside brackets.
fn split(text: &str) -> Result<Vec<&str>, String> {
    if text.trim().is_empty() {
        return Ok(Vec::new());
    }
    let (mut parts, mut depth, mut from) = (Vec::new(), 0_i32, 0);
    for (at, c) in text.char_indices() {
        match c {
            '(' => depth += 1,
            ')' => depth -= 1,
            ',' if depth == 0 => {
                parts.push(&text[from..at]);
                from = at + 1;
            }
            _ => {}
        }
        if !(0..=1).contains(&depth) {
            return Err("brackets do not match".into());
        }
    }
    if depth != 0 {
        return Err("brackets do not match".into());
    }
    parts.push(&text[from..]);
    Ok(parts)
}

impl Requirement {
    fn parse(text: &str) -> Result<Self, String> {
        let text = text.trim();
        if let Some(key) = text.strip_prefix('!') {
            return Self::new(key, Ask::Missing);
        }
        if let Some((head, list)) = text.strip_suffix(')').and_then(|text| text.split_once('(')) {
            let values = list.split(',').map(|value| value.trim().to_owned()).collect();
            let head = head.trim();
            return match (strip_word(head, "notin"), strip_word(head, "in")) {
                (Some(key), _) => Self::new(key, Ask::NotIn(values)),
                (None, Some(key)) => Self::new(key, Ask::In(values)),
                (None, None) => Err("write KEY in (A, B) or KEY notin (A, B)".into()),
            };
        }
        for (sign, equal) in [("!=", false), ("==", true), ("=", true)] {
            if let Some((key, value)) = text.split_once(sign) {
                let values = vec![value.trim().to_owned()];
                return Self::new(key, if equal { Ask::In(values) } else { Ask::NotIn(values) });
            }
        }
        for (sign, ask) in [(">", Ask::Greater as fn(i64) -> Ask), ("<", Ask::Less)] {
            if let Some((key, value)) = text.split_once(sign) {
                let number = value.trim().parse().map_err(|_| format!("{value:?} is no number"))?;
                return Self::new(key, ask(number));
            }
        }
        Self::new(text, Ask::Exists)
    }

    fn new(key: &str, ask: Ask) -> Result<Self, String> {
        let key = key.trim();
        let (source, key) = match key.split_once(':') {
            Some((source, key)) => (Some(source), key),
            None => (None, key),
        };
        if key.is_empty() || key.contains([' ', '(', ')', '!']) {
            return Err("no label's key".into());
        }
        let source = source.filter(|source| *source != "any" && !source.is_empty()).map(str::to_owned);
        Ok(Self { source, key: key.to_owned(), ask })
    }

    fn matches(&self, labels: &[String]) -> bool {
        let mut values = labels.iter().filter_map(|label| self.value(label));
        match &self.ask {
            Ask::Exists => values.next().is_some(),
            Ask::Missing => values.next().is_none(),
            Ask::In(wanted) => values.any(|value| wanted.iter().any(|w| w == value)),
            Ask::NotIn(unwanted) => !values.any(|value| unwanted.iter().any(|w| w == value)),
            Ask::Greater(than) => values.any(|value| value.parse::<i64>().is_ok_and(|v| v > *than)),
            Ask::Less(than) => values.any(|value| value.parse::<i64>().is_ok_and(|v| v < *than)),
        }
    }

    /// The label's value, if it is this key's.
    fn value<'a>(&self, label: &'a str) -> Option<&'a str> {
        let (name, value) = label.split_once('=').unwrap_or((label, ""));
        let (source, key) = name.split_once(':').unwrap_or(("", name));
        let same = key == self.key && self.source.as_deref().is_none_or(|wanted| wanted == source);
        same.then_some(value)
    }
}

fn strip_word<'a>(text: &'a str, word: &str) -> Option<&'a str> {
    text.strip_suffix(word).filter(|rest| rest.ends_with(char::is_whitespace))
}
