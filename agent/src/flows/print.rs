//! How flows look.
//!
//! Everything that a flow says may have been written by a pod, a DNS zone or a server: it is made harmless before it is
//! printed, in every format. Losses are shown in every format as well.

mod paint;
mod words;

use std::io::{self, Write};

use super::when;
use crate::cli::{FlowFormat, StyleArgs};
use crate::observe::json;
use crate::observe::proto::flow::{Flow, LostEvent, LostEventSource};
use crate::observe::proto::observer::GetFlowsResponse;
use crate::observe::proto::observer::get_flows_response::ResponseTypes;
use crate::observe::proto::relay::NodeStatusEvent;
use crate::tell::{self, plain};
use paint::{Cell, Paint};

/// Rows that columns are made for at once.
const ROWS: usize = 65_535;
/// Between two columns.
const GAP: usize = 3;

/// Prints answers one by one.
#[derive(Debug)]
pub(super) struct Printer<W> {
    out: W,
    style: StyleArgs,
    paint: Paint,
    /// Of a table, until it is printed.
    rows: Vec<Vec<Cell>>,
    /// Nothing was printed so far.
    fresh: bool,
}

impl<W: Write> Printer<W> {
    pub(super) fn new(out: W, style: &StyleArgs, colours: bool) -> Self {
        Self { out, style: style.clone(), paint: Paint(colours), rows: Vec::new(), fresh: true }
    }

    /// Prints an answer, or keeps it for the table.
    pub(super) fn print(&mut self, answer: &GetFlowsResponse) -> io::Result<()> {
        match (&answer.response_types, self.style.output) {
            (Some(ResponseTypes::NodeStatus(status)), _) => {
                node_status(status);
                Ok(())
            }
            (Some(_), FlowFormat::Json | FlowFormat::Jsonpb) => {
                writeln!(self.out, "{}", json::response(answer))
            }
            (Some(ResponseTypes::Flow(flow)), FlowFormat::Compact) => self.compact(flow),
            (Some(ResponseTypes::Flow(flow)), FlowFormat::Dict) => self.dict(flow),
            (Some(ResponseTypes::Flow(flow)), FlowFormat::Table) => self.row(flow),
            (Some(ResponseTypes::LostEvents(lost)), _) => self.lost(answer, lost),
            (None, _) => Ok(()),
        }
    }

    /// Prints what was kept.
    pub(super) fn end(&mut self) -> io::Result<()> {
        self.table()?;
        self.out.flush()
    }

    fn compact(&mut self, flow: &Flow) -> io::Result<()> {
        let (mut source, mut destination) = self.hosts(flow);
        let mut ids = (self.identity(flow.source.as_ref()), self.identity(flow.destination.as_ref()));
        let arrow = match flow.is_reply {
            None => "<>",
            Some(false) => "->",
            Some(true) => {
                std::mem::swap(&mut source, &mut destination);
                ids = (ids.1, ids.0);
                "<-"
            }
        };
        let node =
            if self.style.print_node_name { format!(" [{}]", self.node(flow).text) } else { String::new() };
        let (time, kind) = (self.time(flow), plain(&words::kind(flow)));
        let (verdict, summary) = (self.verdict(flow).text, plain(&words::summary(flow)));
        writeln!(
            self.out,
            "{time}{node}: {} {} {arrow} {} {} {kind} {verdict} ({summary})",
            source.text, ids.0.text, destination.text, ids.1.text
        )?;
        self.causes(flow).into_iter().try_for_each(|cause| writeln!(self.out, "    {cause}"))
    }

    fn dict(&mut self, flow: &Flow) -> io::Result<()> {
        if !std::mem::take(&mut self.fresh) {
            writeln!(self.out, "------------")?;
        }
        for (name, cell) in self.cells(flow) {
            writeln!(self.out, "{name:>11}: {}", cell.text)?;
        }
        Ok(())
    }

    fn row(&mut self, flow: &Flow) -> io::Result<()> {
        let cells = self.cells(flow);
        if self.rows.is_empty() {
            self.rows.push(cells.iter().map(|(name, _)| Cell::of(*name)).collect());
        }
        self.rows.push(cells.into_iter().map(|(_, cell)| cell).collect());
        if self.rows.len() > ROWS { self.table() } else { Ok(()) }
    }

    /// The columns, with the names and in the order that `hubble` has for them.
    fn cells(&self, flow: &Flow) -> Vec<(&'static str, Cell)> {
        let (source, destination) = self.hosts(flow);
        let mut cells = vec![("TIMESTAMP", Cell::of(self.time(flow)))];
        if self.style.print_node_name {
            cells.push(("NODE", self.node(flow)));
        }
        cells.extend([
            ("SOURCE", source),
            ("DESTINATION", destination),
            ("TYPE", Cell::of(plain(&words::kind(flow)))),
            ("VERDICT", self.verdict(flow)),
            ("SUMMARY", Cell::of(plain(&words::summary(flow)))),
        ]);
        if self.style.why {
            cells.push(("WHY", Cell::of(self.causes(flow).join(" "))));
        }
        cells
    }

    fn table(&mut self) -> io::Result<()> {
        let rows = std::mem::take(&mut self.rows);
        let width = |at: usize| rows.iter().filter_map(|row| row.get(at)).map(|cell| cell.width).max();
        let widths: Vec<usize> = (0..).map_while(width).collect();
        for row in &rows {
            let mut line = String::new();
            for (cell, width) in row.iter().zip(&widths) {
                line.push_str(&cell.text);
                line.extend(std::iter::repeat_n(' ', width - cell.width + GAP));
            }
            writeln!(self.out, "{}", line.trim_end())?;
        }
        Ok(())
    }

    /// What it was denied for, in words.
    fn causes(&self, flow: &Flow) -> Vec<String> {
        if !self.style.why {
            return Vec::new();
        }
        flow.policy_log.iter().map(|text| plain(text)).collect()
    }

    fn hosts(&self, flow: &Flow) -> (Cell, Cell) {
        let names = self.style.ip_translation && !self.style.numeric;
        let [source, destination] = words::hosts(flow, names);
        (self.paint.host(&source), self.paint.host(&destination))
    }

    fn identity(&self, end: Option<&crate::observe::proto::flow::Endpoint>) -> Cell {
        self.paint.identity(&words::identity(end.map_or(0, |end| end.identity)))
    }

    fn verdict(&self, flow: &Flow) -> Cell {
        let mut cell = self.paint.verdict(flow.verdict, words::verdict(flow));
        if self.style.print_policy_names {
            cell.append(&plain(&words::policies(flow)));
        }
        cell
    }

    fn node(&self, flow: &Flow) -> Cell {
        Cell::of(plain(&flow.node_name))
    }

    fn time(&self, flow: &Flow) -> String {
        when::text(flow.time.as_ref(), self.style.time_format)
    }

    fn lost(&mut self, answer: &GetFlowsResponse, lost: &LostEvent) -> io::Result<()> {
        let format = self.style.time_format;
        let source = LostEventSource::try_from(lost.source).unwrap_or_default().as_str_name();
        let mut line = format!("{} EVENTS LOST: {source}", when::text(answer.time.as_ref(), format));
        if let Some(cpu) = lost.cpu {
            line.push_str(&format!(" CPU({cpu})"));
        }
        line.push_str(&format!(" {}", lost.num_events_lost));
        if lost.first.is_some() || lost.last.is_some() {
            let (first, last) =
                (when::text(lost.first.as_ref(), format), when::text(lost.last.as_ref(), format));
            line.push_str(&format!(" (first: {first}, last: {last})"));
        }
        writeln!(self.out, "{line}")
    }
}

/// What a relay says of its nodes is not a flow.
fn node_status(status: &NodeStatusEvent) {
    let message = if status.message.is_empty() { String::new() } else { format!(": {}", status.message) };
    let state = status.state_change().as_str_name();
    tell::line(plain(&format!("{state} {}{message}", status.node_names.join(", "))));
}

#[cfg(test)]
mod tests;
