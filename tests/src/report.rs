//! The one place that knows the field names of Egret's JSON report (agent/src/run/report.rs).

use std::net::IpAddr;
use std::path::Path;

use serde_json::Value;

/// What [`crate::probe::Session::held`] tries: a target that no test allows.
pub const CONTROL: &str = "203.0.113.250:443";

/// A report as parsed JSON; `Null` inside if there was none.
#[derive(Clone, Debug, Default)]
pub struct Report(pub Value);

/// One row of what was denied, or would have been.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Denied {
    /// Name if known, else empty.
    pub name: String,
    /// Address, if the row is about one (a refused query is not).
    pub address: Option<IpAddr>,
    /// Destination port, 0 if none.
    pub port: u16,
    /// `tcp`, `udp`, `icmp`, ... in lower case.
    pub protocol: String,
    /// Process that tried.
    pub process: String,
    /// How often.
    pub count: u64,
    /// Name of the drop reason.
    pub reason: String,
    /// The argument that would open it.
    pub suggestion: String,
    /// Audit mode, a query that would have been refused: what followed, as `tcp 192.0.2.1:443`.
    pub then: Vec<String>,
}

impl Report {
    /// Reads the file; no file or bad JSON gives an empty report.
    pub fn read(path: &Path) -> Self {
        let text = std::fs::read_to_string(path).unwrap_or_default();
        Self(serde_json::from_str(&text).unwrap_or_default())
    }

    /// No report was written.
    pub fn is_missing(&self) -> bool {
        self.0.is_null()
    }

    /// All rows of denials.
    pub fn denied(&self) -> Vec<Denied> {
        self.0["denied"].as_array().into_iter().flatten().map(Denied::read).collect()
    }

    /// What the kernel counted: (drop reason, packets), both directions together.
    pub fn drop_counters(&self) -> Vec<(String, u64)> {
        let mut sums = std::collections::BTreeMap::<String, u64>::new();
        for row in self.0["counters"].as_array().into_iter().flatten() {
            match (row["reason"].as_str(), row["packets"].as_u64()) {
                (Some("Forwarded") | None, _) | (_, None) => {}
                (Some(reason), Some(packets)) => *sums.entry(reason.into()).or_default() += packets,
            }
        }
        sums.into_iter().collect()
    }

    /// The first row about `address:port` of the protocol; panics with all rows if there is none.
    #[track_caller]
    pub fn row(&self, protocol: &str, target: &str) -> Denied {
        let target: std::net::SocketAddr = target.parse().expect("address:port");
        let matches = |row: &Denied| {
            row.protocol == protocol
                && row.address.map(|address| address.to_canonical()) == Some(target.ip())
                && row.port == target.port()
        };
        let found = self.denied().into_iter().find(matches);
        found.unwrap_or_else(|| panic!("no row for {protocol} {target}: {:#}", self.0))
    }

    /// The reason of the row about `address:port`.
    #[track_caller]
    pub fn reason(&self, protocol: &str, target: &str) -> String {
        self.row(protocol, target).reason
    }

    /// The first row about a name; panics with all rows if there is none.
    #[track_caller]
    pub fn row_of_name(&self, name: &str) -> Denied {
        let found = self.denied().into_iter().find(|row| row.name.eq_ignore_ascii_case(name));
        found.unwrap_or_else(|| panic!("no row for {name}: {:#}", self.0))
    }

    /// Panics if anything was denied but the [`CONTROL`].
    #[track_caller]
    pub fn nothing_denied(&self) {
        assert!(!self.is_missing(), "no report was written");
        let control: std::net::SocketAddr = CONTROL.parse().expect("address:port");
        let others = self.denied().into_iter().filter(|row| row.address != Some(control.ip()));
        let others: Vec<Denied> = others.collect();
        assert!(others.is_empty(), "denied: {others:#?}");
    }

    /// The set of (protocol, address, port, name, reason), to compare two runs.
    pub fn targets(&self) -> Vec<(String, String, u16, String)> {
        let address = |row: &Denied| row.address.map(|ip| ip.to_string()).unwrap_or_default();
        let row = |row: Denied| (row.protocol.clone(), address(&row), row.port, row.reason.clone());
        let mut rows: Vec<_> = self.denied().into_iter().map(row).collect();
        rows.sort();
        rows.dedup();
        rows
    }
}

impl Denied {
    fn read(row: &Value) -> Self {
        let text = |key: &str| row[key].as_str().unwrap_or_default().to_string();
        let number = |key: &str| row[key].as_u64().unwrap_or_default();
        Self {
            name: text("name").trim_end_matches('.').to_string(),
            address: row["address"].as_str().and_then(|address| address.parse().ok()),
            port: number("port") as u16,
            protocol: text("protocol").to_ascii_lowercase(),
            process: text("process"),
            count: number("count"),
            reason: text("reason"),
            suggestion: text("suggestion"),
            then: row["then"].as_array().into_iter().flatten().map(then).collect(),
        }
    }
}

fn then(row: &Value) -> String {
    let address = row["address"].as_str().unwrap_or_default();
    format!("{} {address}:{}", row["protocol"].as_str().unwrap_or_default(), row["port"])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_found_by_target_and_by_name() {
        let report = Report(serde_json::json!({"denied": [
            {"name": "bad.example", "address": null, "protocol": "dns", "reason": "QueryRefused", "count": 2},
            {"name": "", "address": "192.0.2.9", "port": 443, "protocol": "tcp", "reason": "NoRule"},
        ]}));
        assert_eq!(report.reason("tcp", "192.0.2.9:443"), "NoRule");
        assert_eq!(report.row_of_name("BAD.example").count, 2);
        assert_eq!(report.targets().len(), 2);
        assert!(Report::read(Path::new("/nonexistent")).is_missing());
    }
}
