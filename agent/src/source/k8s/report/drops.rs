//! Events about pods whose packets are dropped, for those who look with `kubectl describe pod`.
//!
//! Owns how often: one per pod in five minutes, and so many per minute in all. Counters are exact, events are a hint.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use k8s_openapi::api::core::v1::Pod;
use kube::runtime::events::{Event, EventType, Recorder, Reporter};
use kube::{Api, Client, Resource};

use crate::source::Drops;

/// Between two events about one pod.
const PAUSE: Duration = Duration::from_secs(300);
/// Events of this node per minute.
const PER_MINUTE: usize = 20;
const MINUTE: Duration = Duration::from_secs(60);

/// What was said so far.
pub(super) struct Events {
    client: Client,
    reporter: Reporter,
    said: Said,
}

/// Which drops were said of, and when.
#[derive(Debug, Default)]
struct Said {
    pods: BTreeMap<(String, String), SaidOfPod>,
    /// What was dropped before this agent began is not news.
    begun: bool,
    minute: Option<Instant>,
    events: usize,
}

/// What was said of a pod last.
#[derive(Debug, Default)]
struct SaidOfPod {
    drops: BTreeMap<String, u64>,
    /// `None`: of an earlier agent, or nothing.
    at: Option<Instant>,
}

impl Events {
    pub(super) fn new(client: Client, reporter: Reporter) -> Self {
        Self { client, reporter, said: Said::default() }
    }

    /// Says what is new about drops.
    pub(super) async fn write(&mut self, drops: &Drops) -> kube::Result<()> {
        for ((namespace, name), note) in self.said.due(drops, Instant::now()) {
            let pods: Api<Pod> = Api::namespaced(self.client.clone(), &namespace);
            let Some(pod) = pods.get_opt(&name).await? else { continue };
            let event = Event {
                type_: EventType::Warning,
                reason: "PacketsDropped".to_owned(),
                note: Some(note),
                action: "Drop".to_owned(),
                secondary: None,
            };
            // A recorder of its own: the library would repeat an earlier note.
            let recorder = Recorder::new(self.client.clone(), self.reporter.clone());
            recorder.publish(&event, &pod.object_ref(&())).await?;
        }
        Ok(())
    }
}

impl Said {
    /// The pods about which something is to be said now, with the text.
    fn due(&mut self, drops: &Drops, now: Instant) -> Vec<((String, String), String)> {
        if !std::mem::replace(&mut self.begun, true) {
            let before = |reasons: &BTreeMap<String, u64>| SaidOfPod { drops: reasons.clone(), at: None };
            self.pods = drops.iter().map(|(pod, reasons)| (pod.clone(), before(reasons))).collect();
            return Vec::new();
        }
        self.pods.retain(|pod, _| drops.contains_key(pod));
        if self.minute.is_none_or(|since| now.duration_since(since) >= MINUTE) {
            (self.minute, self.events) = (Some(now), 0);
        }
        let mut due = Vec::new();
        for (pod, reasons) in drops {
            let said = self.pods.entry(pod.clone()).or_default();
            let grown = |(reason, count): (&String, &u64)| {
                let more = count.saturating_sub(said.drops.get(reason).copied().unwrap_or(0));
                (more > 0).then(|| format!("{more} {reason}"))
            };
            let news: Vec<String> = reasons.iter().filter_map(grown).collect();
            let rests = said.at.is_some_and(|last| now.duration_since(last) < PAUSE);
            if news.is_empty() || rests || self.events >= PER_MINUTE {
                continue;
            }
            self.events += 1;
            *said = SaidOfPod { drops: reasons.clone(), at: Some(now) };
            due.push((pod.clone(), format!("packets dropped by policy: {}", news.join(", "))));
        }
        due
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn drops(pods: &[(&str, u64)]) -> Drops {
        let row = |(name, count): &(&str, u64)| {
            (("x".to_owned(), (*name).to_owned()), BTreeMap::from([("NoRule".to_owned(), *count)]))
        };
        pods.iter().map(row).collect()
    }

    #[test]
    fn one_event_per_pod_and_pause_with_what_came_since() {
        let (mut said, begin) = (Said::default(), Instant::now());
        let mut at = |seconds: u64, pods: &[(&str, u64)]| {
            let due = said.due(&drops(pods), begin + Duration::from_secs(seconds));
            due.into_iter().map(|((_, name), note)| format!("{name}: {note}")).collect::<Vec<_>>()
        };
        assert_eq!(at(0, &[("b", 7)]), [] as [&str; 0], "of an earlier agent");
        assert_eq!(at(0, &[("a", 0), ("b", 9)]), ["b: packets dropped by policy: 2 NoRule"]);
        assert_eq!(at(1, &[("a", 1), ("b", 16)]), ["a: packets dropped by policy: 1 NoRule"]);
        assert_eq!(at(299, &[("a", 1), ("b", 17)]), [] as [&str; 0]);
        assert_eq!(at(300, &[("a", 1), ("b", 17)]), ["b: packets dropped by policy: 8 NoRule"]);
        assert_eq!(at(900, &[("a", 1), ("b", 17)]), [] as [&str; 0]);
    }

    #[test]
    fn a_node_says_so_much_per_minute() {
        let (mut said, begin) = (Said::default(), Instant::now());
        let many: Drops = (0..50).flat_map(|n| drops(&[(&format!("p{n}"), 1)])).collect();
        assert_eq!(said.due(&Drops::new(), begin), []);
        assert_eq!(said.due(&many, begin).len(), PER_MINUTE);
        assert_eq!(said.due(&many, begin + Duration::from_secs(59)).len(), 0);
        assert_eq!(said.due(&many, begin + MINUTE).len(), PER_MINUTE, "those that were left");
    }
}
