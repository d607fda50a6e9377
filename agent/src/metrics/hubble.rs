//! Hubble's metrics as text: names and labels are those that dashboards for Hubble ask for.

use std::fmt::Error;

use egret_core::flow::{Family as Counted, Meter, Row};
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, text};
use prometheus_client::registry::Registry;

use super::series::{Family, Labels, Series};
use crate::observe::Meters;

/// All of them.
#[derive(Debug)]
struct Hubble(Meters);

/// Appends them to a page.
pub(super) fn write(page: &mut String, meters: &Meters) -> Result<(), Error> {
    let mut registry = Registry::with_prefix("hubble");
    registry.register_collector(Box::new(Hubble(meters.clone())));
    text::encode_registry(page, &registry)
}

impl Collector for Hubble {
    fn encode(&self, encoder: DescriptorEncoder<'_>) -> Result<(), Error> {
        self.0.read(|meter| show(&mut Series(encoder), meter))
    }
}

fn show(series: &mut Series<'_>, meter: &Meter) -> Result<(), Error> {
    for family in meter.families() {
        let rows: Vec<Row<'_>> = family.rows().collect();
        // A family without series is none.
        if !rows.is_empty() {
            let rows = rows.iter().map(|(labels, count)| (&labels[..], *count));
            series.counters(&Family(family.name(), None, family.help()), rows)?;
        }
    }
    let lost = meter.lost().map(|(source, count)| ([("source", source)], count));
    let help = "Events that were lost on their way from the kernel, and inside the agent";
    series.counters(&Family("lost_events", None, help), lost.iter().map(|(labels, n)| (&labels[..], *n)))?;
    let uncounted: Vec<_> = meter.families().map(uncounted).collect();
    let help = "Flows that a metric did not count, since it has as many series as it may have";
    let rows =
        uncounted.iter().map(|(name, count)| ([("metric", name.as_str())], *count)).collect::<Vec<_>>();
    let rows = rows.iter().map(|(labels, count)| (&labels[..] as Labels<'_>, *count));
    // None is configured that could count anything.
    if uncounted.is_empty() { Ok(()) } else { series.counters(&Family("uncounted_flows", None, help), rows) }
}

fn uncounted(family: &Counted) -> (String, u64) {
    (format!("hubble_{}_total", family.name()), family.uncounted())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page(config: &str) -> String {
        let mut page = String::new();
        write(&mut page, &Meters::new(&config.parse().expect("valid"))).expect("written");
        page
    }

    #[test]
    fn before_anything_was_counted_there_are_losses_and_bounds() {
        let text = page("drop http");
        let samples: Vec<&str> = text.lines().filter(|line| !line.starts_with('#')).collect();
        assert_eq!(
            samples,
            [
                "hubble_lost_events_total{source=\"perf_event_ring_buffer\"} 0",
                "hubble_lost_events_total{source=\"observer_events_queue\"} 0",
                "hubble_uncounted_flows_total{metric=\"hubble_drop_total\"} 0",
            ]
        );
        assert!(!page("kafka").contains("uncounted"));
    }
}
