//! Writing metrics without registering them: each value is there once it is asked for.

use std::fmt::Error;
use std::time::{SystemTime, UNIX_EPOCH};

use prometheus_client::encoding::{
    DescriptorEncoder, EncodeCounterValue, EncodeGaugeValue, EncodeMetric, NoLabelSet,
};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::Unit;

use super::Histogram;

/// A series' label and its value, or two of them.
pub(super) type Labels<'a> = &'a [(&'static str, &'a str)];

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
            ConstCounter::new(value).encode(metric.encode_family(&labels)?)?;
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
            ConstGauge::new(value).encode(metric.encode_family(&labels)?)?;
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
        metric.encode_info(&labels)
    }
}
