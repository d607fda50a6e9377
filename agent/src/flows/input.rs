//! Flows out of a file: a line of JSON each, as `observe -o json` and exports write them.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::path::Path;

use egret_core::flow::Filters;

use super::filters::Wanted;
use super::read;
use super::select::Selection;
use crate::cli::SelectionArgs;
use crate::observe::json;
use crate::observe::proto::observer::GetFlowsResponse;
use crate::observe::proto::observer::get_flows_response::ResponseTypes;

/// Bytes of a line at most.
const LINE: u64 = 1 << 20;

/// What a line may be.
pub(crate) enum Line {
    /// A flow, or a loss, that is wanted.
    Answer(Box<GetFlowsResponse>),
    /// JSON about something else.
    Other(String),
}

/// Lines of a file.
pub(crate) struct Input {
    lines: Box<dyn BufRead>,
    filters: Filters,
    wanted: Wanted,
    since: u64,
    until: u64,
    /// Lines so far.
    number: u64,
    /// Lines that could be read.
    good: u64,
    /// Those that could not, and the first of them.
    bad: u64,
    first_bad: Option<String>,
}

impl Input {
    /// Opens the file; `-` is standard input.
    pub(crate) fn open(path: &Path) -> io::Result<Box<dyn BufRead>> {
        if path == Path::new("-") {
            return Ok(Box::new(io::stdin().lock()));
        }
        Ok(Box::new(BufReader::new(File::open(path)?)))
    }

    /// Every line.
    pub(crate) fn whole(lines: Box<dyn BufRead>) -> Result<Self, String> {
        let all = SelectionArgs { all: true, ..SelectionArgs::default() };
        Self::new(lines, Wanted::default(), &Selection::read(&all, true)?)
    }

    /// What of the lines is wanted.
    pub(super) fn new(
        lines: Box<dyn BufRead>,
        wanted: Wanted,
        selection: &Selection,
    ) -> Result<Self, String> {
        let filters = wanted.filters()?;
        let since = selection.since.as_ref().map_or(0, read::nanoseconds);
        let until = selection.until.as_ref().map_or(u64::MAX, read::nanoseconds);
        Ok(Self { lines, filters, wanted, since, until, number: 0, good: 0, bad: 0, first_bad: None })
    }

    /// The next answer that is wanted.
    pub(crate) fn next(&mut self) -> io::Result<Option<GetFlowsResponse>> {
        loop {
            match self.next_line()? {
                Some(Line::Answer(answer)) => return Ok(Some(*answer)),
                Some(Line::Other(_)) => {}
                None => return Ok(None),
            }
        }
    }

    /// The next line that is wanted, or is about something else.
    pub(crate) fn next_line(&mut self) -> io::Result<Option<Line>> {
        let mut line = Vec::new();
        loop {
            line.clear();
            if self.lines.by_ref().take(LINE).read_until(b'\n', &mut line)? == 0 {
                return Ok(None);
            }
            self.number += 1;
            if line.len() as u64 == LINE && line.last() != Some(&b'\n') {
                skip(&mut self.lines)?;
                self.pass_over("it is too long".to_owned());
                continue;
            }
            if line.iter().all(u8::is_ascii_whitespace) {
                continue;
            }
            let text = std::str::from_utf8(&line).map_err(|_| "it is no text".to_owned());
            match text
                .and_then(json::read_response)
                .and_then(|answer| self.is_wanted(&answer).map(|w| (answer, w)))
            {
                Ok((answer, wanted)) => {
                    self.good += 1;
                    if wanted {
                        return Ok(Some(Line::Answer(Box::new(answer))));
                    }
                    if answer.response_types.is_none() {
                        return Ok(Some(Line::Other(String::from_utf8_lossy(&line).into_owned())));
                    }
                }
                Err(error) => self.pass_over(error),
            }
        }
    }

    fn is_wanted(&self, answer: &GetFlowsResponse) -> Result<bool, String> {
        let message = match &answer.response_types {
            Some(ResponseTypes::Flow(message)) => message,
            Some(_) => return Ok(true),
            // An event of an agent stands there.
            None => return Ok(false),
        };
        let time = message.time.as_ref().map_or(0, read::nanoseconds);
        if time < self.since || time > self.until {
            return Ok(false);
        }
        if self.wanted == Wanted::default() {
            return Ok(true);
        }
        let flow = read::flow(message).map_err(|error| format!("no filter can be asked about {error}"))?;
        Ok(self.filters.pass(&flow) && self.wanted.has_reason(message))
    }

    fn pass_over(&mut self, error: String) {
        self.bad += 1;
        self.first_bad.get_or_insert_with(|| format!("line {}: {error}", self.number));
    }

    /// What was passed over, and whether that was everything.
    pub(crate) fn complaint(&self) -> Option<(String, bool)> {
        let first = self.first_bad.as_ref()?;
        Some((format!("{} lines were passed over; {first}", self.bad), self.good == 0))
    }
}

/// To the end of the line.
fn skip(lines: &mut impl BufRead) -> io::Result<()> {
    loop {
        let buffer = lines.fill_buf()?;
        let end = buffer.iter().position(|byte| *byte == b'\n');
        let length = end.map_or(buffer.len(), |end| end + 1);
        lines.consume(length);
        if end.is_some() || length == 0 {
            return Ok(());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::{Command, parse_from};
    use crate::flows::read::tests::full;
    use crate::observe::message;

    /// Ids of the flows that are wanted, and what was passed over.
    fn read(text: Vec<u8>, line: &str) -> (Vec<u128>, Option<(String, bool)>) {
        let args = ["egret", "observe"].into_iter().chain(line.split_whitespace());
        let Ok(Command::Observe(args)) = parse_from(args).map(|cli| cli.command) else { panic!("{line}") };
        let wanted = Wanted::read(&args.filters.given).expect(line);
        let selection = Selection::read(&args.selection, true).expect(line);
        let mut input = Input::new(Box::new(io::Cursor::new(text)), wanted, &selection).expect(line);
        let mut ids = Vec::new();
        while let Some(answer) = input.next().expect("read") {
            match answer.response_types {
                Some(ResponseTypes::Flow(f)) => ids.push(super::read::flow(&f).map_or(0, |f| f.uuid)),
                _ => ids.push(999),
            }
        }
        (ids, input.complaint())
    }

    fn line(change: impl FnOnce(&mut egret_core::flow::Flow)) -> String {
        let mut flow = full();
        change(&mut flow);
        let entry = egret_core::flow::Entry::Flow(std::sync::Arc::new(flow));
        json::response(&message::response(&entry, "n1", None)) + "\n"
    }

    #[test]
    fn filters_are_asked_of_lines() {
        use egret_common::verdict::{DropReason, Verdict};
        let text = [
            line(|f| f.uuid = 1),
            line(|f| (f.uuid, f.destination.pod) = (2, "db".into())),
            "{\"lost_events\":{\"source\":\"HUBBLE_RING_BUFFER\",\"num_events_lost\":\"3\"}}\n".to_owned(),
            "\n{\"agent_event\":{\"type\":\"AGENT_STARTED\"}}\n".to_owned(),
            line(|f| (f.uuid, f.reason, f.why) = (3, Some(DropReason::NoRule), Some("NoRule: x".into()))),
            line(|f| (f.uuid, f.verdict, f.reason, f.why) = (4, Verdict::Forwarded, None, None)),
            line(|f| (f.uuid, f.time) = (5, 1_000_000_000)),
        ]
        .concat();
        let check = |args: &str, want: &[u128]| {
            assert_eq!(read(text.clone().into_bytes(), args), (want.to_vec(), None), "{args}");
        };
        check("", &[1, 2, 999, 3, 4, 5]);
        check("--to-pod shop/db", &[2, 999]);
        check("--not --to-pod shop/db --verdict DROPPED", &[1, 999, 3, 5]);
        check("--reason NameExpired", &[1, 2, 999, 5]);
        check("--reason NoRule", &[999, 3]);
        check("--until 2000-01-01", &[999, 5]);
        check("--since 2000-01-01 --fqdn api.example", &[1, 2, 999, 3, 4]);
    }

    #[test]
    fn what_cannot_be_read_is_told() {
        let capture = "{\"flow\":{\"verdict\":\"FORWARDED\",\"event_type\":{\"type\":3}}}\n";
        assert_eq!(read(capture.into(), ""), (vec![0], None), "nothing has to be known about it");
        let (ids, complaint) = read(capture.into(), "--verdict FORWARDED");
        let told = complaint.expect("told");
        assert!(ids.is_empty() && told.1 && told.0.contains("an event of type 3"), "{told:?}");
        let long = [
            vec![b'{'; (1 << 20) + 7],
            b"\n".to_vec(),
            line(|f| f.uuid = 8).into_bytes(),
            b"\xff\n{".to_vec(),
        ];
        let (ids, complaint) = read(long.concat(), "");
        let told = complaint.expect("told");
        assert_eq!(ids, [8]);
        assert!(!told.1 && told.0 == "3 lines were passed over; line 1: it is too long", "{told:?}");
        assert_eq!(read(Vec::new(), ""), (vec![], None));
    }
}
