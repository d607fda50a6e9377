//! Prints the rows: as a table, or as JSON.

use std::fmt::Write;

use serde_json::{Value, json};

use super::stage::{Outcome, Part, Row};

/// A table with its drop counters for each part, and a closing line.
pub(super) fn text(outcome: &Outcome) -> String {
    let mut out = outcome.parts.iter().map(part).collect::<Vec<_>>().join("\n");
    let good = outcome.rows().filter(|row| row.ok).count();
    let _ = writeln!(
        out,
        "{good} of {} rows as expected, kernel {}, {:.1} s",
        outcome.rows().count(),
        kernel(),
        outcome.parts.iter().map(|part| part.seconds).sum::<f64>()
    );
    out
}

fn part(part: &Part) -> String {
    let rows: Vec<[&str; 4]> =
        part.rows.iter().map(|row| [&*row.step, &*row.command, &*row.expected, &*row.seen]).collect();
    let head = ["step", part.title, "expected", "seen"];
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
    for (row, cells) in part.rows.iter().zip(&rows) {
        line(if row.ok { "ok" } else { "FAIL" }, cells);
    }
    let drops: Vec<String> = part.drops.iter().map(|(reason, count)| format!("{reason} {count}")).collect();
    let drops = if drops.is_empty() { "none".to_string() } else { drops.join(", ") };
    let _ = writeln!(out, "\nkernel drop counters: {drops}");
    out
}

/// The same as one JSON object.
pub(super) fn json(outcome: &Outcome) -> Value {
    let row = |row: &Row| {
        json!({
            "step": row.step,
            "command": row.command,
            "expected": row.expected,
            "seen": row.seen,
            "ok": row.ok,
        })
    };
    let part = |part: &Part| {
        json!({
            "command": part.title,
            "seconds": part.seconds,
            "rows": part.rows.iter().map(row).collect::<Vec<_>>(),
            "drops": part.drops,
        })
    };
    json!({
        "ok": outcome.passed(),
        "kernel": kernel(),
        "parts": outcome.parts.iter().map(part).collect::<Vec<_>>(),
    })
}

fn kernel() -> String {
    let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    release.trim().to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(step: &str, ok: bool) -> Row {
        let text = |text: &str| text.to_string();
        Row { step: text(step), command: text("c"), expected: text("e"), seen: text("s"), ok }
    }

    #[test]
    fn rows_are_aligned_and_counted() {
        let mut part =
            Part { title: "run", rows: vec![row("a", true), row("longer", false)], ..Part::default() };
        part.drops.insert("NoRule".into(), 3);
        let fine = Part { title: "agent", rows: vec![row("b", true)], ..Part::default() };
        let mut outcome = Outcome { parts: vec![part, fine] };
        let text = text(&outcome);
        assert!(
            text.contains("      step    run  expected  seen\nok    a       c    e         s\n"),
            "{text}"
        );
        assert!(
            text.contains("FAIL  longer  c    e         s\n\nkernel drop counters: NoRule 3\n\n      step"),
            "{text}"
        );
        assert!(text.contains("kernel drop counters: none\n2 of 3 rows"), "{text}");
        assert_eq!(json(&outcome)["ok"], false);
        outcome.parts.remove(0);
        assert_eq!(
            (json(&outcome)["ok"].as_bool(), &json(&outcome)["parts"][0]["command"]),
            (Some(true), &"agent".into())
        );
        assert_eq!(json(&Outcome::default())["ok"], false, "no row is no success");
    }
}
