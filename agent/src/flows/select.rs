//! Which of the flows that pass the filters: what is asked of a server, and what is done here where a server cannot.

use std::collections::VecDeque;

use jiff::Timestamp;
use prost_types::Timestamp as Message;

use super::filters::Wanted;
use super::when;
use crate::cli::SelectionArgs;
use crate::observe::proto::observer::get_flows_response::ResponseTypes;
use crate::observe::proto::observer::{GetFlowsRequest, GetFlowsResponse};

/// What is shown if nothing else is said.
const LAST: u64 = 20;

/// What is wanted.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Selection {
    /// `None`: all.
    number: Option<u64>,
    first: bool,
    pub(super) follow: bool,
    pub(super) since: Option<Message>,
    pub(super) until: Option<Message>,
    /// `--all`, rather than nothing said.
    all: bool,
}

impl Selection {
    /// Reads options; of a file, everything is shown unless something else is said.
    pub(super) fn read(args: &SelectionArgs, of_file: bool) -> Result<Self, String> {
        let now = Timestamp::now();
        let time = |name: &str, text: &Option<String>| {
            let time = text.as_deref().map(|text| when::read(text, now));
            time.transpose().map_err(|error| format!("--{name} {error}"))
        };
        let (since, until) = (time("since", &args.since)?, time("until", &args.until)?);
        let bare = !args.follow && !args.all && !of_file && since.is_none() && until.is_none();
        let number = args.last.or(args.first).or(bare.then_some(LAST));
        if number == Some(0) {
            return Err("--first and --last begin at 1".to_owned());
        }
        Ok(Self {
            number,
            first: args.first.is_some(),
            follow: args.follow,
            since,
            until: until.filter(|_| !args.follow),
            all: args.all,
        })
    }

    /// What to ask. Where a part of the filters is not the server's, numbers are not either.
    pub(super) fn request(&self, wanted: &Wanted) -> GetFlowsRequest {
        let here = !wanted.reasons.is_empty();
        let number = match self.number {
            Some(_) if here => u64::MAX,
            Some(number) => number,
            None if self.all || (self.until.is_some() && self.since.is_none()) => u64::MAX,
            None => 0,
        };
        GetFlowsRequest {
            number,
            first: self.first,
            follow: self.follow,
            since: self.since,
            until: self.until,
            whitelist: wanted.white.clone(),
            blacklist: wanted.black.clone(),
            ..GetFlowsRequest::default()
        }
    }

    /// The same number, counted here.
    pub(super) fn keep(&self) -> Keep {
        let first = self.first || self.since.is_some();
        match self.number {
            // The number is where the past ends, not the whole.
            Some(number) if first && !self.follow => Keep::First(number),
            Some(number) if !first => Keep::Last { number, held: VecDeque::new(), flows: 0 },
            _ => Keep::All,
        }
    }
}

/// Counts flows. Losses go with them, uncounted.
#[derive(Debug)]
pub(super) enum Keep {
    All,
    /// How many more.
    First(u64),
    Last {
        number: u64,
        held: VecDeque<GetFlowsResponse>,
        flows: u64,
    },
}

impl Keep {
    /// Takes an answer, and gives it if it is to be shown already.
    pub(super) fn take(&mut self, answer: GetFlowsResponse) -> Option<GetFlowsResponse> {
        match self {
            Self::All => Some(answer),
            Self::First(0) => None,
            Self::First(number) => {
                *number -= u64::from(is_flow(&answer));
                Some(answer)
            }
            Self::Last { number, held, flows } => {
                *flows += u64::from(is_flow(&answer));
                held.push_back(answer);
                while *flows > *number
                    && let Some(oldest) = held.pop_front()
                {
                    *flows -= u64::from(is_flow(&oldest));
                }
                None
            }
        }
    }

    /// Whether nothing more is taken.
    pub(super) fn is_full(&self) -> bool {
        matches!(self, Self::First(0))
    }

    /// What was held back; from now on everything is shown.
    pub(super) fn release(&mut self) -> VecDeque<GetFlowsResponse> {
        match std::mem::replace(self, Self::All) {
            Self::Last { held, .. } => held,
            other => {
                *self = other;
                VecDeque::new()
            }
        }
    }
}

fn is_flow(answer: &GetFlowsResponse) -> bool {
    matches!(answer.response_types, Some(ResponseTypes::Flow(_)))
}

#[cfg(test)]
mod tests {
    use egret_common::verdict::DropReason;

    use super::*;
    use crate::cli::{Command, parse_from};
    use crate::observe::proto::flow::LostEvent;

    fn selection(line: &str, of_file: bool) -> Result<Selection, String> {
        let args = ["egret", "observe"].into_iter().chain(line.split_whitespace());
        match parse_from(args).map_err(|code| format!("code {code}"))?.command {
            Command::Observe(args) => Selection::read(&args.selection, of_file),
            other => panic!("{other:?}"),
        }
    }

    /// Number, first, follow, since, until of the request; then the same with a reason.
    #[track_caller]
    fn check(line: &str, want: (u64, bool, bool, bool, bool), with_reason: u64) {
        let selection = selection(line, false).expect(line);
        let request = |wanted: &Wanted| selection.request(wanted);
        let r = request(&Wanted::default());
        assert_eq!((r.number, r.first, r.follow, r.since.is_some(), r.until.is_some()), want, "{line}");
        let wanted = Wanted { reasons: [DropReason::NoRule].into(), ..Default::default() };
        assert_eq!(request(&wanted).number, with_reason, "{line}");
    }

    #[test]
    fn what_is_asked_of_a_server() {
        const ALL: u64 = u64::MAX;
        check("", (20, false, false, false, false), ALL);
        check("--last 5", (5, false, false, false, false), ALL);
        check("--first 5", (5, true, false, false, false), ALL);
        check("--all", (ALL, false, false, false, false), ALL);
        check("--follow", (0, false, true, false, false), 0);
        check("-f --last 3", (3, false, true, false, false), ALL);
        check("--since 5m", (0, false, false, true, false), 0);
        check("--until 5m", (ALL, false, false, false, true), ALL);
        check("--since 5m --until 1m --last 7", (7, false, false, true, true), ALL);
        check("-f --since 5m --until 1m", (0, false, true, true, false), 0);
        for bad in
            ["--first 1 --last 2", "--all --last 1", "--first 1 -f", "--last 0", "--since x", "--last -1"]
        {
            assert!(selection(bad, false).is_err(), "{bad}");
        }
    }

    #[test]
    fn numbers_are_counted_in_flows() {
        let flow = |uuid: u64| GetFlowsResponse {
            node_name: uuid.to_string(),
            response_types: Some(ResponseTypes::Flow(Box::default())),
            ..Default::default()
        };
        let lost = || GetFlowsResponse {
            node_name: "lost".into(),
            response_types: Some(ResponseTypes::LostEvents(LostEvent::default())),
            ..Default::default()
        };
        let check = |line: &str, of_file: bool, want: &str| {
            let mut keep = selection(line, of_file).expect(line).keep();
            let all = [lost(), flow(1), flow(2), lost(), flow(3), flow(4)];
            let mut shown: Vec<String> = Vec::new();
            for answer in all {
                if keep.is_full() {
                    break;
                }
                shown.extend(keep.take(answer).map(|answer| answer.node_name));
            }
            shown.extend(keep.release().into_iter().map(|answer| answer.node_name));
            // What is followed comes after.
            shown.extend(keep.take(flow(5)).map(|answer| answer.node_name));
            assert_eq!(shown.join(" "), want, "{line}");
        };
        check("--last 2", false, "lost 3 4 5");
        check("--last 1", false, "4 5");
        check("--last 3", false, "2 lost 3 4 5");
        check("--last 9", false, "lost 1 2 lost 3 4 5");
        check("--first 2", false, "lost 1 2");
        check("--first 3", true, "lost 1 2 lost 3");
        check("--since 1h --last 1", false, "lost 1");
        check("--follow --last 1", false, "4 5");
        check("--all", false, "lost 1 2 lost 3 4 5");
        check("", true, "lost 1 2 lost 3 4 5");
    }
}
