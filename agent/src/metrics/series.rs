//! Writing metrics without registering them: each value is there once it is asked for.
//!
//! The one place where values of labels become text. Workloads name what they look up, and whoever writes policies names
//! those: what ends a value in the format is escaped here, since the library does not.

use std::fmt::{Error, Write};
use std::time::{SystemTime, UNIX_EPOCH};

use prometheus_client::encoding::{
    DescriptorEncoder, EncodeCounterValue, EncodeGaugeValue, EncodeLabel, EncodeLabelSet, EncodeLabelValue,
    EncodeMetric, LabelSetEncoder, LabelValueEncoder, NoLabelSet,
};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::Unit;

use super::Histogram;

/// A series' label and its value, or two of them.
pub(super) type Labels<'a> = &'a [(&'static str, &'a str)];

/// Labels whose values are anything.
struct Set<'a>(Labels<'a>);

impl EncodeLabelSet for Set<'_> {
    fn encode(&self, encoder: &mut LabelSetEncoder<'_>) -> Result<(), Error> {
        self.0.iter().try_for_each(|(name, value)| (*name, Escaped(value)).encode(encoder.encode_label()))
    }
}

/// A value, which ends where it ends (OpenMetrics 1.0, `escaped-string`).
struct Escaped<'a>(&'a str);

impl EncodeLabelValue for Escaped<'_> {
    fn encode(&self, encoder: &mut LabelValueEncoder<'_>) -> Result<(), Error> {
        self.0.chars().try_for_each(|c| match c {
            '\\' => encoder.write_str("\\\\"),
            '"' => encoder.write_str("\\\""),
            '\n' => encoder.write_str("\\n"),
            c => encoder.write_char(c),
        })
    }
}

/// Name, unit that ends it, and what it means. Ends without a dot, as other exporters have it.
pub(super) struct Family(pub(super) &'static str, pub(super) Option<Unit>, pub(super) &'static str);

/// Writes families of metrics, one after the other.
pub(super) struct Series<'a>(pub(super) DescriptorEncoder<'a>);

impl Series<'_> {
    /// A counter with a series per set of labels.
    pub(super) fn counters<'l, N: EncodeCounterValue>(
        &mut self,
        family: &Family,
        rows: impl IntoIterator<Item = (Labels<'l>, N)>,
    ) -> Result<(), Error> {
        let Family(name, unit, help) = family;
        let mut metric = self.0.encode_descriptor(name, help, unit.as_ref(), MetricType::Counter)?;
        for (labels, value) in rows {
            ConstCounter::new(value).encode(metric.encode_family(&Set(labels))?)?;
        }
        Ok(())
    }

    /// A gauge with a series per set of labels.
    pub(super) fn gauges<'l, N: EncodeGaugeValue>(
        &mut self,
        family: &Family,
        rows: impl IntoIterator<Item = (Labels<'l>, N)>,
    ) -> Result<(), Error> {
        let Family(name, unit, help) = family;
        let mut metric = self.0.encode_descriptor(name, help, unit.as_ref(), MetricType::Gauge)?;
        for (labels, value) in rows {
            ConstGauge::new(value).encode(metric.encode_family(&Set(labels))?)?;
        }
        Ok(())
    }

    /// A counter of one series.
    pub(super) fn counter(&mut self, name: &str, help: &str, value: u64) -> Result<(), Error> {
        let metric = self.0.encode_descriptor(name, help, None, MetricType::Counter)?;
        ConstCounter::new(value).encode(metric)
    }

    /// A gauge of one series.
    pub(super) fn gauge(&mut self, name: &str, help: &str, value: u64) -> Result<(), Error> {
        let metric = self.0.encode_descriptor(name, help, None, MetricType::Gauge)?;
        ConstGauge::new(value).encode(metric)
    }

    /// A moment.
    pub(super) fn moment(&mut self, name: &str, help: &str, at: SystemTime) -> Result<(), Error> {
        let seconds = at.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64();
        let unit = Unit::Seconds;
        let metric = self.0.encode_descriptor(name, help, Some(&unit), MetricType::Gauge)?;
        ConstGauge::new(seconds).encode(metric)
    }

    /// Durations.
    pub(super) fn durations(&mut self, name: &str, help: &str, of: &Histogram) -> Result<(), Error> {
        let unit = Unit::Seconds;
        let mut metric = self.0.encode_descriptor(name, help, Some(&unit), MetricType::Histogram)?;
        metric.encode_histogram::<NoLabelSet>(of.sum(), of.count(), &of.buckets(), None)
    }

    /// What never changes.
    pub(super) fn info(&mut self, name: &str, help: &str, labels: Labels<'_>) -> Result<(), Error> {
        let mut metric = self.0.encode_descriptor(name, help, None, MetricType::Info)?;
        metric.encode_info(&Set(labels))
    }
}

#[cfg(test)]
mod tests {
    use prometheus_client::collector::Collector;
    use prometheus_client::encoding::text;
    use prometheus_client::registry::Registry;

    use super::*;

    /// Values, each in a series of every type that has labels.
    #[derive(Debug)]
    struct Values(&'static [&'static str]);

    impl Collector for Values {
        fn encode(&self, encoder: DescriptorEncoder<'_>) -> Result<(), Error> {
            let mut series = Series(encoder);
            let labels: Vec<_> = self.0.iter().map(|value| [("a", *value), ("b", "")]).collect();
            let rows = || labels.iter().map(|labels| (&labels[..], 1_u64));
            series.counters(&Family("counter", None, "One"), rows())?;
            series.gauges(&Family("gauge", None, "Two"), rows())?;
            labels.iter().try_for_each(|labels| series.info("info", "Three", labels))
        }
    }

    fn samples(value: &'static [&'static str]) -> Vec<String> {
        let (mut registry, mut page) = (Registry::default(), String::new());
        registry.register_collector(Box::new(Values(value)));
        text::encode_registry(&mut page, &registry).expect("written");
        page.lines().filter(|line| !line.starts_with('#')).map(str::to_owned).collect()
    }

    #[test]
    fn no_value_ends_before_its_end() {
        for (value, text) in [
            (&["plain, {b=1} \u{e9}"], "plain, {b=1} \u{e9}"),
            (&["a\"b.example."], r#"a\"b.example."#),
            (&["at the end\\"], r"at the end\\"),
            (&["\\\"\n\n\"\\"], r#"\\\"\n\n\"\\"#),
            (&["\"} 1\n# EOF\nx{y=\"\\n"], r#"\"} 1\n# EOF\nx{y=\"\\n"#),
            (&[""], ""),
        ] {
            let want =
                ["counter_total", "gauge", "info_info"].map(|n| format!("{n}{{a=\"{text}\",b=\"\"}} 1"));
            assert_eq!(samples(value), want);
        }
    }
}
