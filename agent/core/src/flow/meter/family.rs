//! The series of one metric.

use std::collections::BTreeMap;

/// Series of a metric at most.
const SERIES: usize = 2_000;
/// Bytes of a value at most.
const LENGTH: usize = 512;
/// For so many nanoseconds the series of a pod outlive it.
const MINUTE: u64 = 60_000_000_000;
/// Behind each value of a key. No value holds it.
const END: char = '\0';

/// A series: names and values of its labels, and its count.
pub type Row<'a> = (Vec<(&'static str, &'a str)>, u64);

/// Namespace and name.
pub(super) type PodName<'a> = (&'a str, &'a str);

/// The values of a series' labels in their order, made over and over in the same place.
#[derive(Debug, Default)]
pub(super) struct Values(String);

impl Values {
    pub(super) fn clear(&mut self) {
        self.0.clear();
    }

    /// The next value.
    pub(super) fn push(&mut self, value: &str) {
        let is_end = |at: &usize| value.is_char_boundary(*at);
        let end = (0..=value.len().min(LENGTH)).rev().find(is_end).unwrap_or(0);
        self.0.extend(value[..end].chars().map(|c| if c.is_control() { '?' } else { c }));
        self.0.push(END);
    }
}

/// A metric.
#[derive(Debug)]
pub struct Family {
    name: &'static str,
    help: &'static str,
    labels: Vec<&'static str>,
    /// By their values.
    series: BTreeMap<String, Series>,
    uncounted: u64,
}

#[derive(Debug)]
struct Series {
    count: u64,
    /// The pods that its values name.
    pods: [Option<(String, String)>; 2],
    /// Since when one of them is known to be gone.
    gone: Option<u64>,
}

impl Family {
    pub(super) fn new(name: &'static str, help: &'static str, labels: Vec<&'static str>) -> Self {
        Self { name, help, labels, series: BTreeMap::new(), uncounted: 0 }
    }

    /// Its name, without `hubble_` and `_total`.
    #[must_use]
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// What it means.
    #[must_use]
    pub fn help(&self) -> &'static str {
        self.help
    }

    /// Its series.
    pub fn rows(&self) -> impl Iterator<Item = Row<'_>> {
        let labels = |key| self.labels.iter().copied().zip(str::split(key, END)).collect();
        self.series.iter().map(move |(key, series)| (labels(key), series.count))
    }

    /// Flows that it did not count, since it has as many series as it may have.
    #[must_use]
    pub fn uncounted(&self) -> u64 {
        self.uncounted
    }

    pub(super) fn add(&mut self, Values(key): &Values, pods: [Option<PodName<'_>>; 2]) {
        debug_assert_eq!(key.matches(END).count(), self.labels.len(), "{key:?} for {}", self.name);
        if let Some(series) = self.series.get_mut(key.as_str()) {
            series.count += 1;
            series.name(pods);
        } else if self.series.len() < SERIES {
            let mut series = Series { count: 1, pods: [None, None], gone: None };
            series.name(pods);
            self.series.insert(key.clone(), series);
        } else {
            self.uncounted += 1;
        }
    }

    pub(super) fn forget(&mut self, now: u64, is_there: &impl Fn(&str, &str) -> bool) {
        self.series.retain(|_, series| {
            let all_there = series.pods.iter().flatten().all(|(namespace, name)| is_there(namespace, name));
            series.gone = if all_there { None } else { series.gone.or(Some(now)) };
            series.gone.is_none_or(|since| now.saturating_sub(since) < MINUTE)
        });
    }
}

impl Series {
    /// Its values name these pods now: an address may be another pod's.
    fn name(&mut self, pods: [Option<PodName<'_>>; 2]) {
        for (known, pod) in self.pods.iter_mut().zip(pods) {
            let same = known.as_ref().map(|(namespace, name)| (namespace.as_str(), name.as_str())) == pod;
            if !same {
                *known = pod.map(|(namespace, name)| (namespace.to_owned(), name.to_owned()));
            }
        }
    }
}
