//! Hubble's metrics: flows counted by what [`Config`] asks for.
//!
//! ```text
//!  text ──Config──> Handler: Metric (which flows, which labels), Context (who the ends are)
//!  Flow ──Meter::count──> Family: labels -> count ──rows──> whoever shows them
//! ```
//! Owns: names, labels and bounds of these metrics. Must not know: the text format they are shown in, clocks (time is an
//! argument, in nanoseconds since 1970), which pods there are.
//!
//! What labels say is decided by pods and by whoever answers them, so there is a bound on everything: series of a metric,
//! the length of a value, and no value holds a control character. A flow for which there is no room is counted as such.

mod config;
mod context;
mod family;
mod metric;

pub use config::{Config, ConfigError};
pub use family::{Family, Row};

use super::{Flow, Lost, LostSource};
use context::Context;
use metric::Metric;

/// A metric that is asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Handler {
    metric: Metric,
    context: Context,
}

/// Everything that is counted.
#[derive(Debug)]
pub struct Meter {
    handlers: Vec<(Handler, Vec<Family>)>,
    /// Events that were lost on their way from the kernel, and inside the agent.
    lost: [u64; 2],
    /// Values of the flow that is being counted.
    values: family::Values,
}

impl Meter {
    /// Begins with nothing counted.
    #[must_use]
    pub fn new(config: &Config) -> Self {
        let families = |handler: &Handler| {
            let of_context = handler.context.labels();
            let with_context = |(name, help, labels): metric::Described| {
                Family::new(name, help, labels.into_iter().chain(of_context.iter().copied()).collect())
            };
            handler.metric.families().into_iter().map(with_context).collect()
        };
        let handlers = config.handlers().iter().map(|handler| (handler.clone(), families(handler))).collect();
        Self { handlers, lost: [0; 2], values: family::Values::default() }
    }

    /// Counts a flow.
    pub fn count(&mut self, flow: &Flow) {
        let values = &mut self.values;
        for (Handler { metric, context }, families) in &mut self.handlers {
            let pods = context.pods(flow);
            metric.rows(flow, &mut |family, own| {
                values.clear();
                own.iter().for_each(|value| values.push(value));
                context.values(flow, values);
                families[family].add(values, pods);
            });
        }
    }

    /// Counts losses.
    pub fn count_lost(&mut self, lost: &Lost) {
        match lost.source {
            LostSource::Kernel => self.lost[0] += lost.count,
            LostSource::Queue => self.lost[1] += lost.count,
            // Of a reader, not of everybody.
            LostSource::Ring => {}
        }
    }

    /// Forgets what names a pod (namespace, name) that has not been there for a minute.
    pub fn forget(&mut self, now: u64, is_there: impl Fn(&str, &str) -> bool) {
        let families = self.handlers.iter_mut().flat_map(|(_, families)| families);
        families.for_each(|family| family.forget(now, &is_there));
    }

    /// The metrics, those that never counted anything among them.
    pub fn families(&self) -> impl Iterator<Item = &Family> {
        self.handlers.iter().flat_map(|(_, families)| families)
    }

    /// Events that were lost, by source in Hubble's words.
    #[must_use]
    pub fn lost(&self) -> [(&'static str, u64); 2] {
        let [kernel, queue] = self.lost;
        [("perf_event_ring_buffer", kernel), ("observer_events_queue", queue)]
    }
}

#[cfg(test)]
mod tests;
