//! OpenMetrics 1.0 text: families that begin with their metadata and are not interleaved, names that fit type and unit,
//! no series twice, histograms that add up, and an end.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

/// Name and labels.
pub type Series = (String, BTreeMap<String, String>);

/// What a family's samples are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Only rises.
    Counter,
    /// Anything.
    Gauge,
    /// Buckets, sum and count.
    Histogram,
    /// Labels only.
    Info,
}

/// A family.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Family {
    /// What it means.
    pub help: String,
    /// Its type.
    pub kind: Option<Kind>,
    /// Its unit.
    pub unit: String,
}

/// A page.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Page {
    /// By name.
    pub families: BTreeMap<String, Family>,
    /// Samples.
    pub series: BTreeMap<Series, f64>,
}

/// What is wrong, and where.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem(pub String);

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

type Checked<T> = Result<T, Problem>;

fn no<T>(why: impl Into<String>) -> Checked<T> {
    Err(Problem(why.into()))
}

impl Page {
    /// Reads a page.
    pub fn parse(text: &str) -> Checked<Self> {
        let Some(lines) = text.strip_suffix("# EOF\n") else { return no("it does not end in # EOF") };
        let (mut page, mut current) = (Self::default(), String::new());
        for line in lines.split_terminator('\n') {
            let read = match line.strip_prefix("# ") {
                Some(meta) => page.meta(meta, &mut current),
                None => page.sample(line, &current),
            };
            read.map_err(|Problem(why)| Problem(format!("{why}: {line:?}")))?;
        }
        page.families.iter().try_for_each(|(name, family)| page.check(name, family))?;
        Ok(page)
    }

    /// The value of a series; panics when it is not there.
    #[track_caller]
    pub fn value(&self, name: &str, labels: &[(&str, &str)]) -> f64 {
        let labels = labels.iter().map(|(key, value)| (key.to_string(), value.to_string())).collect();
        let found = self.series.get(&(name.to_owned(), labels)).copied();
        found.unwrap_or_else(|| panic!("no {name} {labels:?}: {:#?}", self.series, labels = self.named(name)))
    }

    /// Every series of this name.
    pub fn named<'a>(&'a self, name: &str) -> BTreeMap<&'a BTreeMap<String, String>, f64> {
        self.series
            .iter()
            .filter(|((n, _), _)| n == name)
            .map(|((_, labels), value)| (labels, *value))
            .collect()
    }

    /// What only rises: counters, and the counts of histograms.
    pub fn counters(&self) -> impl Iterator<Item = (&Series, &f64)> {
        let rises = |name: &str| {
            let kind = |family: &str| self.families.get(family).and_then(|family| family.kind);
            let of = |suffix: &str| name.strip_suffix(suffix).and_then(kind);
            of("_total") == Some(Kind::Counter)
                || [of("_bucket"), of("_count"), of("_sum")].contains(&Some(Kind::Histogram))
        };
        self.series.iter().filter(move |((name, _), _)| rises(name))
    }

    fn meta(&mut self, meta: &str, current: &mut String) -> Checked<()> {
        let (what, rest) = meta.split_once(' ').unwrap_or((meta, ""));
        let Some((name, value)) = rest.split_once(' ') else { return no("metadata without a value") };
        if name != current {
            if !is_name(name) || self.families.contains_key(name) {
                return no("no name, or a family that was there before");
            }
            name.clone_into(current);
        }
        let family = self.families.entry(name.to_owned()).or_default();
        match what {
            "HELP" if family.help.is_empty() && is_escaped(value) => value.clone_into(&mut family.help),
            "UNIT" if family.unit.is_empty() && name.ends_with(&format!("_{value}")) => {
                value.clone_into(&mut family.unit);
            }
            "TYPE" if family.kind.is_none() => {
                family.kind = Some(match value {
                    "counter" => Kind::Counter,
                    "gauge" => Kind::Gauge,
                    "histogram" => Kind::Histogram,
                    "info" => Kind::Info,
                    _ => return no("another type"),
                });
            }
            _ => return no("twice, or not as it should be"),
        }
        Ok(())
    }

    fn sample(&mut self, line: &str, current: &str) -> Checked<()> {
        let end = line.find(['{', ' ']).unwrap_or(line.len());
        let (name, rest) = line.split_at(end);
        let kind = self.families.get(current).and_then(|family| family.kind);
        let suffixes: &[&str] = match kind {
            Some(Kind::Counter) => &["_total"],
            Some(Kind::Gauge) => &[""],
            Some(Kind::Histogram) => &["_bucket", "_sum", "_count"],
            Some(Kind::Info) => &["_info"],
            None => return no("a sample before its type"),
        };
        if !name.strip_prefix(current).is_some_and(|suffix| suffixes.contains(&suffix)) {
            return no("a sample of another family, or with another suffix than its type has");
        }
        let (labels, value) = match rest.strip_prefix('{') {
            Some(rest) => labels(rest)?,
            None => (BTreeMap::new(), rest),
        };
        let value = value.strip_prefix(' ').and_then(|value| value.parse::<f64>().ok());
        let Some(value) = value.filter(|value| value.is_finite()) else { return no("no finite value") };
        if kind == Some(Kind::Counter) && value < 0.0 || kind == Some(Kind::Info) && value != 1.0 {
            return no("not a value of its type");
        }
        match self.series.insert((name.to_owned(), labels), value) {
            None => Ok(()),
            Some(_) => no("a series that was there before"),
        }
    }

    fn check(&self, name: &str, family: &Family) -> Checked<()> {
        let is_theirs = |series: &str| series.strip_prefix(name).is_some_and(|rest| rest.len() < 9);
        if family.help.is_empty() || family.kind.is_none() || !self.series.keys().any(|(n, _)| is_theirs(n)) {
            return no(format!("{name} lacks its meaning, its type or samples"));
        }
        if family.kind != Some(Kind::Histogram) {
            return Ok(());
        }
        let buckets = self.named(&format!("{name}_bucket"));
        let bound =
            |labels: &BTreeMap<String, String>| labels.get("le").and_then(|le| le.parse::<f64>().ok());
        let mut steps =
            buckets.iter().map(|(labels, n)| Some((bound(labels)?, *n))).collect::<Option<Vec<_>>>();
        let Some(steps) = &mut steps else { return no(format!("{name}: a bucket without a bound")) };
        steps.sort_by(|a, b| a.0.total_cmp(&b.0));
        let rising = steps.is_sorted_by(|a, b| a.0 < b.0 && a.1 <= b.1);
        let count = self.named(&format!("{name}_count")).values().copied().sum::<f64>();
        match steps.last() {
            Some(last) if rising && *last == (f64::INFINITY, count) => Ok(()),
            _ => no(format!("{name}: the buckets do not add up: {steps:?}, {count}")),
        }
    }
}

/// Labels up to the brace, and what is behind it.
fn labels(mut rest: &str) -> Checked<(BTreeMap<String, String>, &str)> {
    let (mut labels, mut names) = (BTreeMap::new(), BTreeSet::new());
    loop {
        let Some((name, value)) = rest.split_once("=\"") else { return no("no label") };
        let Some((value, behind)) = unescaped(value) else {
            return no("a label without an end, or an escape that is none");
        };
        if !is_name(name) || name.contains(':') || !names.insert(name) {
            return no("a bad label");
        }
        labels.insert(name.to_owned(), value);
        match behind.split_at_checked(1) {
            Some((",", behind)) => rest = behind,
            Some(("}", behind)) => return Ok((labels, behind)),
            _ => return no("no end of labels"),
        }
    }
}

/// A value up to its quotation mark, as it is meant, and what is behind that.
fn unescaped(text: &str) -> Option<(String, &str)> {
    let (mut value, mut chars) = (String::new(), text.chars());
    loop {
        match chars.next()? {
            '"' => return Some((value, chars.as_str())),
            '\\' => value.push(match chars.next()? {
                'n' => '\n',
                c @ ('\\' | '"') => c,
                _ => return None,
            }),
            c => value.push(c),
        }
    }
}

fn is_name(name: &str) -> bool {
    let first = name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_' || c == ':');
    first && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_' || c == ':')
}

fn is_escaped(text: &str) -> bool {
    !text.is_empty() && !text.contains(['\\', '"'])
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = "\
# HELP a Means a.
# TYPE a counter
a_total{x=\"1\",y=\"2\"} 3
a_total{x=\"2\",y=\"2\"} 0
a_total{x=\"3\",y=\"\"} 0
a_total{x=\"4\",y=\"\\\"} 9\\n\\\\\"} 0
# HELP b_seconds Means b.
# TYPE b_seconds histogram
# UNIT b_seconds seconds
b_seconds_sum 0.5
b_seconds_count 2
b_seconds_bucket{le=\"0.5\"} 1
b_seconds_bucket{le=\"+Inf\"} 2
# HELP c Means c.
# TYPE c gauge
c -1.5
# EOF
";

    #[test]
    fn a_right_page_is_read_whole() {
        let page = Page::parse(GOOD).expect("right");
        assert_eq!((page.families.len(), page.series.len()), (3, 9));
        assert_eq!(page.value("a_total", &[("y", "2"), ("x", "1")]), 3.0);
        assert_eq!(page.value("a_total", &[("x", "4"), ("y", "\"} 9\n\\")]), 0.0);
        assert_eq!(page.value("c", &[]), -1.5);
        let rising: BTreeSet<&str> = page.counters().map(|((name, _), _)| name.as_str()).collect();
        assert_eq!(rising, ["a_total", "b_seconds_bucket", "b_seconds_count", "b_seconds_sum"].into());
    }

    #[test]
    fn every_wrong_one_is_refused() {
        for (from, to) in [
            ("# EOF\n", ""),
            ("# EOF\n", "# EOF"),
            ("a_total{x=\"1\"", "a{x=\"1\""),
            ("a_total{x=\"2\"", "a_total{x=\"1\""),
            ("x=\"1\",", "x=\"1\",x=\"2\","),
            ("x=\"1\",", "x=\"1\""),
            ("x=\"1\",", "x=\"\\1\","),
            ("x=\"1\",", "x=\"1\\\","),
            ("x=\"1\",", "x=\"1\"2\","),
            ("x=\"1\",", "0x=\"1\","),
            ("y=\"2\"} 3", "y=\"2\"} -3"),
            ("y=\"2\"} 3", "y=\"2\"} NaN"),
            ("y=\"2\"} 3", "y=\"2\"}3"),
            ("# TYPE a counter\n", ""),
            ("# HELP a Means a.\n", ""),
            ("# TYPE a counter", "# TYPE a count"),
            ("# TYPE c gauge", "# TYPE c gauge\n# TYPE c gauge"),
            ("# UNIT b_seconds seconds", "# UNIT b_seconds bytes"),
            ("bucket{le=\"0.5\"} 1", "bucket{le=\"0.5\"} 3"),
            ("b_seconds_count 2", "b_seconds_count 3"),
            ("bucket{le=\"+Inf\"} 2\n", "bucket{le=\"9\"} 2\n"),
            ("c -1.5\n", ""),
            ("c -1.5\n", "c -1.5\n\n"),
            ("c -1.5\n", "c -1.5\na_total{x=\"3\",y=\"2\"} 1\n"),
            ("c -1.5\n", "c -1.5\n# HELP a Again.\n# TYPE a counter\na_total 1\n"),
        ] {
            let bad = GOOD.replacen(from, to, 1);
            assert!(bad != GOOD && Page::parse(&bad).is_err(), "{from:?} -> {to:?}");
        }
    }
}
