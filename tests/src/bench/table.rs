//! Lines of figures: measured, floor, multiple, budget, verdict.

use std::fmt;

/// A heading and its lines.
#[derive(Clone, Debug, Default)]
pub(crate) struct Table {
    title: String,
    head: [&'static str; 6],
    rows: Vec<[String; 6]>,
    notes: Vec<String>,
}

/// What the design allows.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Budget {
    /// Nanoseconds on the machine of the design.
    pub(crate) ns: u64,
    /// Multiple of the floor, which holds on any machine.
    pub(crate) times: Option<f64>,
}

impl Table {
    /// A table of nanoseconds.
    pub(crate) fn of_ns(title: &str) -> Self {
        Self {
            title: title.into(),
            head: ["path", "ns", "floor", "multiple", "budget", "verdict"],
            ..Self::default()
        }
    }

    /// A table with other columns.
    pub(crate) fn new(title: &str, head: [&'static str; 6]) -> Self {
        Self { title: title.into(), head, ..Self::default() }
    }

    /// A line that is measured in ns, against its floor and its budget, as far as there are any.
    pub(crate) fn ns(&mut self, path: &str, ns: u64, floor: Option<u64>, budget: Option<Budget>) {
        let multiple = floor.map(|floor| ns as f64 / floor.max(1) as f64);
        let allowed = budget.map(|b| match b.times {
            Some(times) => format!("{} = {times:.1}x", b.ns),
            None => b.ns.to_string(),
        });
        let text = |value: Option<String>| value.unwrap_or_else(|| "-".into());
        self.rows.push([
            path.into(),
            ns.to_string(),
            text(floor.map(|floor| floor.to_string())),
            text(multiple.map(|multiple| format!("{multiple:.2}"))),
            text(allowed),
            text(budget.map(|budget| verdict(ns, multiple, budget))),
        ]);
    }

    /// A line of texts.
    pub(crate) fn row(&mut self, cells: [String; 6]) {
        self.rows.push(cells);
    }

    /// A remark below the lines.
    pub(crate) fn note(&mut self, text: impl Into<String>) {
        self.notes.push(text.into());
    }
}

/// By nanoseconds, and where the floor is known also by its multiple: another machine shifts the first only.
fn verdict(ns: u64, multiple: Option<f64>, budget: Budget) -> String {
    let word = |good: bool| if good { "met" } else { "over" };
    let by_ns = word(ns <= budget.ns);
    match (multiple, budget.times) {
        (Some(multiple), Some(times)) if word(multiple <= times) != by_ns => {
            format!("{by_ns} in ns, {} in floors", word(multiple <= times))
        }
        _ => by_ns.into(),
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let head = self.head.map(String::from);
        let lines: Vec<&[String; 6]> = std::iter::once(&head).chain(&self.rows).collect();
        let widths: Vec<usize> = (0..6)
            .map(|column| lines.iter().map(|line| line[column].chars().count()).max().unwrap_or(0))
            .collect();
        writeln!(f, "{}", self.title)?;
        for line in lines {
            write!(f, "  {:<width$}", line[0], width = widths[0])?;
            for column in 1..6 {
                write!(f, "  {:>width$}", line[column], width = widths[column])?;
            }
            writeln!(f)?;
        }
        self.notes.iter().try_for_each(|note| writeln!(f, "  {note}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn verdicts_tell_machine_from_program() {
        let budget = Budget { ns: 170, times: Some(2.0) };
        assert_eq!(verdict(160, Some(1.8), budget), "met");
        assert_eq!(verdict(200, Some(2.4), budget), "over");
        assert_eq!(verdict(200, Some(1.9), budget), "over in ns, met in floors");
        assert_eq!(verdict(100, None, Budget { ns: 170, times: None }), "met");
    }

    #[test]
    fn columns_are_aligned() {
        let mut table = Table::of_ns("T");
        table.ns("a", 10, Some(4), None);
        assert!(table.to_string().contains("  a     10      4      2.50       -        -\n"), "{table}");
    }
}
