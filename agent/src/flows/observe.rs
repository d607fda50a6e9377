//! `egret observe`: flows from a server or a file, sieved and printed.

use std::io::{self, BufRead, IsTerminal};
use std::path::Path;
use std::time::Duration;

use jiff::Timestamp;
use tokio::time::timeout;

use super::client::{Client, Flows};
use super::filters::Wanted;
use super::input::Input;
use super::print::Printer;
use super::select::{Keep, Selection};
use super::target::{target, usage};
use crate::cli::{ColorWhen, FlowFormat, ObserveArgs, ServerArgs, StyleArgs};
use crate::exit::{self, Refusal};
use crate::observe::json;
use crate::observe::proto::observer::GetFlowsResponse;
use crate::observe::proto::observer::get_flows_response::ResponseTypes;
use crate::tell;

/// A stream that is silent for so long has come to the present, and so has one that brings what is newer than the question:
/// where numbers are counted here, what was held back is shown then.
const PRESENT: Duration = Duration::from_millis(300);

/// Shows what is asked for.
pub fn observe(args: &ObserveArgs) -> Result<u8, Refusal> {
    if args.selection.follow && args.style.output == FlowFormat::Table {
        return Err(usage("columns are as wide as all lines need: -o table cannot follow".to_owned()));
    }
    let wanted = Wanted::read(&args.filters.given).map_err(usage)?;
    let selection = Selection::read(&args.selection, args.input_file.is_some()).map_err(usage)?;
    if args.style.print_raw_filters {
        return said(print_raw(&wanted)).map(|_| 0);
    }
    let printer = Printer::new(io::stdout().lock(), &args.style, colours(&args.style));
    match &args.input_file {
        Some(path) => from_file(path, wanted, &selection, printer),
        None => from_server(&args.server, &wanted, &selection, printer),
    }
}

/// Whether there is colour.
fn colours(style: &StyleArgs) -> bool {
    match style.color {
        ColorWhen::Always => true,
        ColorWhen::Never => false,
        ColorWhen::Auto => {
            let unwanted = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
            !unwanted && io::stdout().is_terminal()
        }
    }
}

/// As `hubble` prints them.
fn print_raw(wanted: &Wanted) -> io::Result<()> {
    use std::io::Write;
    let mut out = io::stdout().lock();
    for (name, list) in [("allowlist", &wanted.white), ("denylist", &wanted.black)] {
        if !list.is_empty() {
            writeln!(out, "{name}:")?;
        }
        for filter in list {
            // A quote inside is written twice in YAML.
            writeln!(out, "    - '{}'", json::filter(filter).replace('\'', "''"))?;
        }
    }
    Ok(())
}

/// Whether there is anybody left to tell; a reader that has seen enough is no error.
fn said(result: io::Result<()>) -> Result<bool, Refusal> {
    match result {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(false),
        Err(error) => {
            Err(Refusal::new(exit::OS_ERROR, format!("cannot print: {error}"), "nothing else was changed"))
        }
    }
}

fn from_file<W: io::Write>(
    path: &Path,
    wanted: Wanted,
    selection: &Selection,
    mut printer: Printer<W>,
) -> Result<u8, Refusal> {
    let unreadable = |error: io::Error| {
        let cause = format!("cannot read {}: {error}", path.display());
        Refusal::new(exit::NO_INPUT, cause, "give a file of flows as JSON")
    };
    let lines: Box<dyn BufRead> = Input::open(path).map_err(unreadable)?;
    let mut input = Input::new(lines, wanted, selection).map_err(usage)?;
    let mut keep = selection.keep();
    while !keep.is_full()
        && let Some(answer) = input.next().map_err(unreadable)?
    {
        if let Some(answer) = keep.take(answer)
            && !said(printer.print(&answer))?
        {
            return Ok(0);
        }
    }
    said(show(keep.release(), &mut printer).and_then(|()| printer.end()))?;
    match input.complaint() {
        Some((complaint, true)) => {
            let cause = format!("{}: {}", path.display(), tell::plain(&complaint));
            Err(Refusal::new(exit::DATA_ERROR, cause, "give a file of flows as JSON"))
        }
        Some((complaint, false)) => {
            tell::line(tell::plain(&complaint));
            Ok(0)
        }
        None => Ok(0),
    }
}

fn show<W: io::Write>(
    answers: impl IntoIterator<Item = GetFlowsResponse>,
    printer: &mut Printer<W>,
) -> io::Result<()> {
    answers.into_iter().try_for_each(|answer| printer.print(&answer))
}

fn from_server<W: io::Write>(
    args: &ServerArgs,
    wanted: &Wanted,
    selection: &Selection,
    mut printer: Printer<W>,
) -> Result<u8, Refusal> {
    let (server, tls) = target(args)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_io().enable_time().build();
    let runtime = runtime.map_err(|error| {
        Refusal::new(exit::OS_ERROR, format!("cannot start the event loop: {error}"), "try again")
    })?;
    runtime.block_on(async {
        let client = Client::connect(&server, tls.as_ref()).await?;
        let flows = client.flows(selection.request(wanted)).await?;
        let keep = if wanted.reasons.is_empty() { Keep::All } else { selection.keep() };
        let ended = Stream { flows, wanted, keep, follow: selection.follow }.show(&mut printer).await;
        // What came before an error is shown as well.
        let going = said(printer.end())?;
        match ended? {
            End::Reader => Ok(0),
            End::Server if selection.follow && going => {
                let cause = format!("{server} is gone: it ended the stream");
                Err(Refusal::new(exit::UNAVAILABLE, cause, "is `egret agent` running?"))
            }
            End::Server => Ok(0),
        }
    })
}

/// Who had enough.
enum End {
    Reader,
    Server,
}

/// What comes, and what of it is shown.
struct Stream<'a> {
    flows: Flows,
    wanted: &'a Wanted,
    keep: Keep,
    follow: bool,
}

impl Stream<'_> {
    async fn show<W: io::Write>(mut self, printer: &mut Printer<W>) -> Result<End, Refusal> {
        let begun = Timestamp::now();
        while !self.keep.is_full() {
            let holds = self.follow && matches!(self.keep, Keep::Last { .. });
            let next = match holds {
                true => timeout(PRESENT, self.flows.next()).await.ok().transpose()?,
                false => Some(self.flows.next().await?),
            };
            let is_new = match &next {
                Some(Some(answer)) => answer.time.is_some_and(|time| time.seconds > begun.as_second()),
                Some(None) | None => true,
            };
            if (holds || matches!(next, Some(None))) && is_new && !said(show(self.keep.release(), printer))? {
                return Ok(End::Reader);
            }
            let answer = match next {
                Some(Some(answer)) => answer,
                Some(None) => return Ok(End::Server),
                None => continue,
            };
            if let Some(answer) = self.sieve(answer)
                && !said(printer.print(&answer))?
            {
                return Ok(End::Reader);
            }
        }
        Ok(End::Reader)
    }

    fn sieve(&mut self, answer: GetFlowsResponse) -> Option<GetFlowsResponse> {
        match &answer.response_types {
            Some(ResponseTypes::Flow(flow)) if !self.wanted.has_reason(flow) => None,
            _ => self.keep.take(answer),
        }
    }
}
