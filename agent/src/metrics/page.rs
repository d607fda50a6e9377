//! The page: every metric with its name and its meaning.

use std::fmt::Error;
use std::sync::Arc;

use egret_common::ABI_VERSION;
use egret_common::net::Direction;
use egret_common::verdict::{DropReason, FORWARDED};
use egret_core::dns::RCODES;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, text};
use prometheus_client::registry::{Registry, Unit};

use super::kernel::Readings;
use super::series::{Family, Labels, Series};
use super::{About, Snapshot};
use crate::datapath::Totals;
use crate::learn::Counts;
use crate::observe::Verdicts;

/// Everything there is to show.
#[derive(Debug)]
pub(super) struct Page {
    pub(super) about: About,
    pub(super) kernel: Readings,
    /// `None`: the agent does not know its objects yet.
    pub(super) snapshot: Option<Arc<Snapshot>>,
}

impl Page {
    /// Appends it to a page of OpenMetrics text.
    pub(super) fn write(self, page: &mut String) -> Result<(), Error> {
        let mut registry = Registry::with_prefix("egret");
        registry.register_collector(Box::new(self));
        text::encode_registry(page, &registry)
    }
}

impl Collector for Page {
    fn encode(&self, encoder: DescriptorEncoder<'_>) -> Result<(), Error> {
        let mut series = Series(encoder);
        let Self { about, kernel, snapshot } = self;
        general(&mut series, about, snapshot.is_some())?;
        if let Some(totals) = &kernel.totals {
            traffic(&mut series, totals)?;
            learned_addresses(&mut series, kernel, totals)?;
        }
        room(&mut series, kernel)?;
        let Some(snapshot) = snapshot else { return Ok(()) };
        objects(&mut series, snapshot)?;
        changes(&mut series, snapshot)?;
        series.counter(
            "kept_grants",
            "Prolonged lives of addresses with an open connection",
            snapshot.kept,
        )?;
        let help = "Flows that were to be exported, and could not be written";
        series.counter("unexported_flows", help, snapshot.unexported)?;
        dns(&mut series, &snapshot.dns)?;
        let help = "From a look-up to its answer, as both passed the workload's interface; of a look-up that was sent \
                    again, from the last time; of resolvers whose answers are learned whoever asks";
        series.durations("dns_latency", help, &snapshot.dns_latency)?;
        verdicts(&mut series, &snapshot.verdicts)
    }
}

fn general(series: &mut Series<'_>, about: &About, ready: bool) -> Result<(), Error> {
    let abi = ABI_VERSION.to_string();
    let build: Labels<'_> = &[("version", env!("CARGO_PKG_VERSION")), ("abi", &abi)];
    series.info("build", "Version of the agent, and of the layout of the kernel's maps", build)?;
    series.moment("start_timestamp", "When this agent began", about.started)?;
    series.gauge("ready", "Whether the newest objects are known and in force (1)", ready.into())?;
    series.gauge("source_synced", "Whether the source has told of every object once (1)", ready.into())?;
    series.gauge(
        "adopted",
        "Whether this agent went on with maps that an earlier one left (1)",
        about.adopted.into(),
    )?;
    series.gauge(
        "audit_mode",
        "Whether the agent holds nothing back (1); annotations of pods may say otherwise for each",
        about.audit.into(),
    )
}

const DIRECTIONS: [(Direction, &str); 2] = [(Direction::Egress, "egress"), (Direction::Ingress, "ingress")];

/// Direction and reason, packets, bytes.
type Drops = ([(&'static str, &'static str); 2], u64, u64);

/// Every direction and reason, those that never happened included: a series that begins at 1 hides the first drop.
fn drops(totals: &Totals) -> Vec<Drops> {
    let mut drops = Vec::new();
    for (direction, name) in DIRECTIONS {
        for reason in DropReason::ALL {
            let (packets, bytes) = counted(totals, direction, |number| number == *reason as u8);
            drops.push(([("direction", name), ("reason", reason.name())], packets, bytes));
        }
        // Of programs that are newer than this agent.
        let unknown = |number| number != FORWARDED && DropReason::from_u8(number).is_none();
        let (packets, bytes) = counted(totals, direction, unknown);
        if packets > 0 {
            drops.push(([("direction", name), ("reason", "Unknown")], packets, bytes));
        }
    }
    drops
}

/// Packets and bytes.
fn counted(totals: &Totals, direction: Direction, reason: impl Fn(u8) -> bool) -> (u64, u64) {
    let rows = totals.rows.iter().filter(|row| row.direction == direction && reason(row.reason));
    rows.fold((0, 0), |sum, row| (sum.0 + row.packets, sum.1 + row.bytes))
}

fn traffic(series: &mut Series<'_>, totals: &Totals) -> Result<(), Error> {
    let drops = drops(totals);
    let passed = DIRECTIONS.map(|(direction, name)| {
        ([("direction", name)], counted(totals, direction, |number| number == FORWARDED))
    });
    let help = "Packets, connects, look-ups and learned addresses that were denied, or in audit mode would have been";
    series.counters(&Family("drops", None, help), drops.iter().map(|(l, n, _)| (&l[..], *n)))?;
    let help = "Bytes of what was denied, from the network header on; connects and look-ups have none";
    let family = Family("dropped", Some(Unit::Bytes), help);
    series.counters(&family, drops.iter().map(|(l, _, n)| (&l[..], *n)))?;
    let help = "Packets and connects that were let through";
    series.counters(&Family("forwards", None, help), passed.iter().map(|(l, (n, _))| (&l[..], *n)))?;
    let help = "Bytes that were let through, from the network header on";
    let family = Family("forwarded", Some(Unit::Bytes), help);
    series.counters(&family, passed.iter().map(|(l, (_, n))| (&l[..], *n)))
}

fn learned_addresses(series: &mut Series<'_>, kernel: &Readings, totals: &Totals) -> Result<(), Error> {
    let help = "Addresses that are open under a name (live), or were and explain denials (expired)";
    let (live, expired) = (kernel.grants.live, kernel.grants.expired);
    let rows: [(Labels<'_>, u64); 2] = [(&[("state", "live")], live), (&[("state", "expired")], expired)];
    series.gauges(&Family("grants", None, help), rows)?;
    let help = "Addresses that were not opened: no room in the kernel's map, or one that no name may open";
    let rows: [(Labels<'_>, u64); 2] =
        [(&[("cause", "no-room")], totals.no_room), (&[("cause", "forbidden")], totals.forbidden)];
    series.counters(&Family("refused_grants", None, help), rows)
}

fn room(series: &mut Series<'_>, kernel: &Readings) -> Result<(), Error> {
    let maps: Vec<_> = kernel.fill.iter().map(|map| ([("map", map.name)], map)).collect();
    let help = "Entries in a kernel map; those of FLOWS, FRAGMENTS and DNS_QUERIES make room for new ones by themselves";
    let rows = maps.iter().map(|(labels, map)| (&labels[..], map.entries as u64));
    series.gauges(&Family("map_entries", None, help), rows)?;
    let rows = maps.iter().map(|(labels, map)| (&labels[..], map.capacity as u64));
    series.gauges(&Family("map_capacity_entries", None, "Entries that fit into a kernel map"), rows)?;
    let lost = kernel.lost;
    let help = "Records that did not fit into a ring, and look-ups for which no scratch memory was free";
    let rows: [(Labels<'_>, u64); 3] = [
        (&[("kind", "flow-events")], lost.flow_events),
        (&[("kind", "dns-events")], lost.dns_events),
        (&[("kind", "scratch")], lost.scratch),
    ];
    series.counters(&Family("lost_records", None, help), rows)
}

fn objects(series: &mut Series<'_>, snapshot: &Snapshot) -> Result<(), Error> {
    let (endpoints, objects) = (snapshot.endpoints, snapshot.objects);
    let help = "Pods and services of this node by state: ready is held, of every other nothing is enforced";
    let rows: [(Labels<'_>, u64); 4] = [
        (&[("state", "ready")], endpoints.ready),
        (&[("state", "not-ready")], endpoints.not_ready),
        (&[("state", "waiting")], endpoints.waiting),
        (&[("state", "crowded-out")], endpoints.crowded_out),
    ];
    series.gauges(&Family("endpoints", None, help), rows)?;
    series.gauge("identities", "Identities that pods have", objects.identities)?;
    series.gauge("policies", "Policies in force", objects.policies)?;
    let help = "Objects and files whose newest version is bad; their last good version stays in force";
    series.gauge("bad_objects", help, objects.bad)?;
    let help =
        "Whether something stands between the source and its newest state (1); what was told stays in force";
    series.gauge("source_trouble", help, snapshot.source_trouble.into())
}

fn changes(series: &mut Series<'_>, snapshot: &Snapshot) -> Result<(), Error> {
    series.counter("changes", "Changes of what is enforced since this agent began", snapshot.changes)?;
    let help = "When the last change was put in force";
    series.moment("last_change_timestamp", help, snapshot.changed)?;
    let help = "Whether the newest policies cannot be compiled (1); the last ones stay in force";
    series.gauge("compile_failed", help, snapshot.compile_failed.into())?;
    let help = "Whether the kernel's maps did not take everything (1); it is tried again";
    series.gauge("maps_incomplete", help, snapshot.maps_incomplete.into())?;
    let help = "From resolved objects to steps for the kernel's maps";
    series.durations("compile_duration", help, &snapshot.compile)?;
    let help = "Writing these steps to the kernel's maps, and before that what the next agent must know";
    series.durations("apply_duration", help, &snapshot.apply)
}

fn dns(series: &mut Series<'_>, counts: &Counts) -> Result<(), Error> {
    let help = "Look-ups that the agent saw whole in a packet; refused: or in audit mode would have been";
    let rows: [(Labels<'_>, u64); 2] =
        [(&[("verdict", "forwarded")], counts.passed), (&[("verdict", "refused")], counts.refused)];
    series.counters(&Family("dns_queries", None, help), rows)?;
    let codes = RCODES.into_iter().chain(["other"]).map(|name| [("rcode", name)]).collect::<Vec<_>>();
    let help = "Answers to open questions that the agent saw, by response code";
    let rows = codes.iter().zip(counts.rcodes).map(|(labels, count)| (&labels[..], count));
    series.counters(&Family("dns_answers", None, help), rows)?;
    let help = "DNS messages to workloads that taught nothing: no open question, or not readable";
    let rows: [(Labels<'_>, u64); 2] =
        [(&[("cause", "unasked")], counts.unasked), (&[("cause", "malformed")], counts.malformed)];
    series.counters(&Family("dns_ignored_answers", None, help), rows)?;
    let help = "Answers by what they opened: by the kernel, by the agent; barred: addresses that no name may open, or \
                not the question's; nothing: no address, or no rule speaks of the name";
    let rows: [(Labels<'_>, u64); 4] = [
        (&[("outcome", "kernel")], counts.by_kernel),
        (&[("outcome", "agent")], counts.by_agent),
        (&[("outcome", "barred")], counts.barred),
        (&[("outcome", "nothing")], counts.idle),
    ];
    series.counters(&Family("learned_answers", None, help), rows)
}

/// What a policy never did has no series; the count that policies share is always there.
fn verdicts(series: &mut Series<'_>, verdicts: &Verdicts) -> Result<(), Error> {
    let mut rows = Vec::new();
    for (policy, counts, whole) in [("other", verdicts.other(), true)]
        .into_iter()
        .chain(verdicts.policies().map(|(policy, counts)| (policy, counts, false)))
    {
        for ((_, direction), counts) in DIRECTIONS.iter().zip(counts) {
            for (action, count) in ["forwarded", "dropped", "audited"].into_iter().zip(*counts) {
                let labels = [("policy", policy), ("direction", *direction), ("action", action)];
                rows.extend((whole || count > 0).then_some((labels, count)));
            }
        }
    }
    let help = "First packets of connections by the policy that decided, as far as they are shown as flows: the kernel \
                tells of 100 denials per second, endpoint, reason and CPU; where several policies deny by default, each \
                is counted";
    series.counters(
        &Family("policy_verdicts", None, help),
        rows.iter().map(|(labels, count)| (&labels[..], *count)),
    )
}

#[cfg(test)]
mod tests {
    use std::time::UNIX_EPOCH;

    use super::*;
    use crate::datapath::CounterRow;

    #[test]
    fn numbers_that_this_agent_has_no_name_for_are_not_lost() {
        let row = |direction, reason, packets| CounterRow {
            direction,
            reason,
            packets,
            bytes: 10 * packets,
            events_suppressed: 0,
        };
        let rows = vec![
            row(Direction::Egress, DropReason::NoRule as u8, 3),
            row(Direction::Egress, 30, 1),
            row(Direction::Egress, 31, 4),
            row(Direction::Ingress, FORWARDED, 7),
        ];
        let totals = Some(Totals { rows, no_room: 2, forbidden: 0 });
        let kernel = Readings { totals, ..Readings::default() };
        let about = About { started: UNIX_EPOCH, adopted: false, audit: true };
        let mut text = String::new();
        Page { about, kernel, snapshot: None }.write(&mut text).expect("written");
        for line in [
            "egret_drops_total{direction=\"egress\",reason=\"NoRule\"} 3",
            "egret_drops_total{direction=\"ingress\",reason=\"NoRule\"} 0",
            "egret_drops_total{direction=\"egress\",reason=\"Unknown\"} 5",
            "egret_dropped_bytes_total{direction=\"egress\",reason=\"Unknown\"} 50",
            "egret_forwards_total{direction=\"ingress\"} 7",
            "egret_refused_grants_total{cause=\"no-room\"} 2",
            "egret_ready 0",
            "egret_audit_mode 1",
        ] {
            assert!(text.lines().any(|l| l == line), "{line} is not in {text}");
        }
        assert!(!text.contains("egret_endpoints"), "what is not known yet is not there");
    }
}
