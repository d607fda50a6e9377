//! The report of a run: what CMD was denied, why, and what would open it. The same content as a table and as JSON.
//!
//! The JSON's fields are stable: within `version` 1 fields are added, never renamed or removed.

mod explain;
pub mod rows;
mod text;
mod time;

use serde::Serialize;

use crate::datapath::{CounterRow, Lost};
use egret_common::verdict::DropReason;
use rows::Row;

pub use text::table;
pub use time::rfc3339;

/// Version of the JSON's fields.
pub const VERSION: u32 = 1;

/// The JSON document of `--report`.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Report {
    /// [`VERSION`].
    pub version: u32,
    /// CMD and its arguments; bytes that are no UTF-8 are replaced.
    pub command: Vec<String>,
    /// `enforce` or `audit`.
    pub mode: &'static str,
    /// CMD's exit code, 128 + N if signal N ended it; not the code that egret leaves with.
    pub exit_code: u8,
    /// The signal that ended CMD.
    pub signal: Option<i32>,
    /// When CMD was started: RFC 3339, UTC.
    pub started: String,
    /// How long CMD ran.
    pub duration_ms: u64,
    /// What was open, one line per rule, as the start lines print it.
    pub allowed: Vec<String>,
    /// What was denied; in audit mode what would have been.
    pub denied: Vec<Row>,
    /// Packets by direction and reason.
    pub counters: Vec<CounterLine>,
    /// What did not fit into the kernel's buffers.
    pub lost: LostLine,
    /// What else is worth knowing.
    pub warnings: Vec<String>,
}

/// Packets, connects and queries with one outcome.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct CounterLine {
    /// `egress` or `ingress`.
    pub direction: &'static str,
    /// Name of a drop reason, or `Forwarded`.
    pub reason: &'static str,
    /// Packets, connects or queries.
    pub packets: u64,
    /// Bytes from the network header on; 0 for connects.
    pub bytes: u64,
}

/// Records that were lost. Verdicts and counts in the report never are: they do not come from records.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct LostLine {
    /// Records of verdicts (`--verbose`).
    pub flow_events: u64,
    /// DNS messages: names may be missing in the report.
    pub dns_events: u64,
    /// Queries that could not be scanned, and were refused.
    pub scratch: u64,
    /// Events held back by the rate limit.
    pub suppressed: u64,
}

impl LostLine {
    /// From the kernel's counts.
    #[must_use]
    pub fn new(lost: Lost, counters: &[CounterRow]) -> Self {
        let Lost { flow_events, dns_events, scratch } = lost;
        let suppressed = counters.iter().map(|c| c.events_suppressed).sum();
        Self { flow_events, dns_events, scratch, suppressed }
    }
}

impl From<&CounterRow> for CounterLine {
    fn from(row: &CounterRow) -> Self {
        Self {
            direction: row.direction.name(),
            reason: DropReason::from_u8(row.reason).map_or("Forwarded", DropReason::name),
            packets: row.packets,
            bytes: row.bytes,
        }
    }
}

impl Report {
    /// As a JSON text with a final line break.
    #[must_use]
    pub fn json(&self) -> String {
        serde_json::to_string_pretty(self).unwrap_or_default() + "\n"
    }

    /// The table, or the line that nothing was denied.
    #[must_use]
    pub fn text(&self) -> String {
        table(&self.denied, self.mode == "audit")
    }
}
