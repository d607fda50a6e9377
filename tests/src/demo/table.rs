//! Prints the rows: as a table, or as JSON.

use std::fmt::Write;

use serde_json::{Value, json};

use super::stage::Outcome;

/// The table, the drop counters and a closing line.
pub(super) fn text(outcome: &Outcome) -> String {
    let rows: Vec<[&str; 4]> =
        outcome.rows.iter().map(|row| [&*row.step, &*row.command, &*row.expected, &*row.seen]).collect();
    let head = ["step", "egret run", "expected", "seen"];
    let first_line = |text: &str| text.lines().next().unwrap_or_default().chars().count();
    let width = |column: usize| {
        rows.iter().chain([&head]).map(|row| first_line(row[column])).max().unwrap_or_default()
    };
    let widths = [0, 1, 2].map(width);
    let mut out = String::new();
    let mut line = |mark: &str, row: &[&str; 4]| {
        let _ = write!(out, "{mark:<4}");
        for (text, width) in row.iter().zip(widths) {
            let _ = write!(out, "  {text:<width$}");
        }
        let _ = writeln!(out, "  {}", row[3]);
    };
    line("", &head);
    for (row, cells) in outcome.rows.iter().zip(&rows) {
        line(if row.ok { "ok" } else { "FAIL" }, cells);
    }
    let drops: Vec<String> =
        outcome.drops.iter().map(|(reason, count)| format!("{reason} {count}")).collect();
    let drops = if drops.is_empty() { "none".to_string() } else { drops.join(", ") };
    let good = outcome.rows.iter().filter(|row| row.ok).count();
    let _ = writeln!(out, "\nkernel drop counters: {drops}");
    let _ = writeln!(
        out,
        "{good} of {} rows as expected, kernel {}, {:.1} s",
        outcome.rows.len(),
        kernel(),
        outcome.seconds
    );
    out
}

/// The same as one JSON object.
pub(super) fn json(outcome: &Outcome) -> Value {
    let rows: Vec<Value> = outcome
        .rows
        .iter()
        .map(|row| {
            json!({
                "step": row.step,
                "command": row.command,
                "expected": row.expected,
                "seen": row.seen,
                "ok": row.ok,
            })
        })
        .collect();
    json!({
        "ok": outcome.passed(),
        "kernel": kernel(),
        "seconds": outcome.seconds,
        "rows": rows,
        "drops": outcome.drops,
    })
}

fn kernel() -> String {
    let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    release.trim().to_string()
}

#[cfg(test)]
mod tests {
    use super::super::stage::Row;
    use super::*;

    fn row(step: &str, ok: bool) -> Row {
        let text = |text: &str| text.to_string();
        Row { step: text(step), command: text("c"), expected: text("e"), seen: text("s"), ok }
    }

    #[test]
    fn rows_are_aligned_and_counted() {
        let mut outcome = Outcome { rows: vec![row("a", true), row("longer", false)], ..Outcome::default() };
        outcome.drops.insert("NoRule".into(), 3);
        let text = text(&outcome);
        assert!(text.contains("ok    a       c          e         s\n"), "{text}");
        assert!(text.contains("FAIL  longer  c          e         s\n"), "{text}");
        assert!(text.contains("kernel drop counters: NoRule 3\n1 of 2 rows"), "{text}");
        assert_eq!(json(&outcome)["ok"], false);
        assert_eq!(json(&Outcome::default())["ok"], false, "no row is no success");
    }
}
