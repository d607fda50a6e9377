//! Columns of text. A cell may have several lines.

use crate::tell;

/// Spaces between columns.
const GAP: usize = 3;

/// Rows under a head.
#[derive(Debug)]
pub(super) struct Table<const N: usize> {
    rows: Vec<[Vec<String>; N]>,
}

impl<const N: usize> Table<N> {
    pub(super) fn new(head: [&str; N]) -> Self {
        Self { rows: vec![head.map(|cell| vec![cell.to_owned()])] }
    }

    pub(super) fn row(&mut self, cells: [&str; N]) {
        self.cells(cells.map(|cell| vec![cell.to_owned()]));
    }

    /// A row of cells with any number of lines. Whatever somebody else has written does nothing to a terminal.
    pub(super) fn cells(&mut self, cells: [Vec<String>; N]) {
        self.rows.push(cells.map(|lines| lines.iter().map(|line| tell::plain(line)).collect()));
    }

    pub(super) fn text(&self) -> String {
        let width = |column: usize| {
            let lines = self.rows.iter().flat_map(|row| &row[column]);
            lines.map(|line| line.chars().count()).max().unwrap_or(0) + GAP
        };
        let widths: [usize; N] = std::array::from_fn(width);
        let mut text = String::new();
        for row in &self.rows {
            let height = row.iter().map(Vec::len).max().unwrap_or(0);
            for at in 0..height {
                let cells = row.iter().zip(widths);
                let line: String = cells
                    .map(|(cell, width)| format!("{:width$}", cell.get(at).map_or("", String::as_str)))
                    .collect();
                text += line.trim_end();
                text.push('\n');
            }
        }
        text
    }
}

impl Table<2> {
    /// Names and values, without a head.
    pub(super) fn plain() -> Self {
        Self { rows: Vec::new() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_as_wide_as_their_widest_line() {
        let mut table = Table::new(["A", "B"]);
        table.cells([vec!["1".into()], vec!["x".into(), "longer".into()]]);
        table.row(["22", ""]);
        assert_eq!(table.text(), "A    B\n1    x\n     longer\n22\n");
    }

    #[test]
    fn nothing_in_a_cell_moves_the_cursor() {
        let mut table = Table::plain();
        table.row(["pod", "\u{1b}[2Jx"]);
        assert_eq!(table.text(), "pod   \\u{1b}[2Jx\n");
    }
}
