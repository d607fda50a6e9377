//! The table for people.

use std::fmt::Write;

use egret_common::verdict::DropReason;

use super::rows::Row;

const HEAD: [&str; 7] = ["NAME", "ADDRESS", "PORT", "PROCESS", "COUNT", "REASON", "TO ALLOW IT"];
/// A name is not cut shorter than it is; other columns neither: the last one is copied and pasted.
const GAP: &str = "  ";

/// The rows as a table, each reason with its meaning below; or one line if there are none.
#[must_use]
pub fn table(rows: &[Row], audit: bool) -> String {
    let (none, some) = match audit {
        true => {
            ("nothing would have been denied", "would have been denied (audit mode: nothing was held back)")
        }
        false => ("nothing was denied", "denied"),
    };
    if rows.is_empty() {
        return format!("egret: {none}\n");
    }
    let mut out = format!("egret: {some}:\n");
    let cells: Vec<[String; 7]> = rows.iter().map(cells).collect();
    let width =
        |i: usize| cells.iter().map(|c| c[i].chars().count()).chain([HEAD[i].len()]).max().unwrap_or(0);
    let widths: [usize; 7] = std::array::from_fn(width);
    line(&mut out, &HEAD.map(str::to_owned), &widths);
    cells.iter().for_each(|cells| line(&mut out, cells, &widths));
    let mut told: Vec<&str> = Vec::new();
    for row in rows {
        if !told.contains(&row.explanation.as_str()) {
            told.push(&row.explanation);
            let _ = writeln!(out, "egret: {}: {}", row.reason, row.explanation);
        }
    }
    out
}

fn cells(row: &Row) -> [String; 7] {
    let query = row.reason == DropReason::QueryRefused.name();
    let dash = || "-".to_owned();
    let port = match row.protocol.as_str() {
        "dns" => "dns".into(),
        "icmp" | "icmpv6" => format!("{} type {}", row.protocol, row.port >> 8),
        protocol => format!("{}/{protocol}", row.port),
    };
    let used: Vec<String> = row.then.iter().map(|t| format!("{}/{}", t.port, t.protocol)).collect();
    let port = if used.is_empty() { port } else { format!("{port} then {}", used.join(",")) };
    let pid = row.pid.map(|pid| format!("[{pid}]")).unwrap_or_default();
    let from = if row.direction == "ingress" { "from " } else { "" };
    [
        row.name.clone().map_or_else(dash, printable),
        row.address.filter(|_| !query).map_or_else(dash, |a| format!("{from}{a}")),
        port,
        if row.process.is_empty() { dash() } else { printable(row.process.clone() + &pid) },
        row.count.to_string(),
        row.reason.to_owned(),
        row.suggestion.clone().unwrap_or_else(dash),
    ]
}

/// Names come from outside: no control characters on a terminal.
fn printable(text: String) -> String {
    text.chars().map(|c| if c.is_control() { '?' } else { c }).collect()
}

fn line(out: &mut String, cells: &[String; 7], widths: &[usize; 7]) {
    let mut text = String::new();
    for (cell, width) in cells.iter().zip(widths) {
        let _ = write!(text, "{GAP}{cell:<width$}");
    }
    out.push_str(text.trim_end());
    out.push('\n');
}
