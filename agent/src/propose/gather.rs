//! Flows from a server or a file, as far as they count.

use std::borrow::Cow;
use std::path::Path;
use std::pin::pin;
use std::time::Duration;

use egret_core::propose::{Choice, Collected, Services};
use jiff::Timestamp;
use tokio::signal::ctrl_c;
use tokio::time::{Instant, sleep_until};

use super::record::{Record, Recorded};
use super::{choose, services, usage};
use crate::cli::LearnArgs;
use crate::exit::{self, Refusal};
use crate::flows::{Client, Input, Line, duration, read, read_time, target};
use crate::observe::proto::flow as wire;
use crate::observe::proto::observer::get_flows_response::ResponseTypes;
use crate::observe::proto::observer::{GetFlowsRequest, GetFlowsResponse};
use crate::tell;

/// The event type of verdicts of policies (Cilium `monitor/api`, `MessageTypePolicyVerdict`).
const POLICY_VERDICT: i32 = 5;

/// What there is to learn from.
#[derive(Debug)]
pub(super) struct Gathered {
    pub(super) collected: Collected,
    pub(super) services: Services,
    /// Events that no policy is about.
    pub(super) odd: u64,
    /// Why it ended too early.
    pub(super) cut: Option<Refusal>,
}

/// Counts answers.
struct Counter {
    collected: Collected,
    odd: u64,
    since: u64,
    record: Option<Record>,
}

/// Everything that the options ask for.
pub(super) fn gather(args: &LearnArgs) -> Result<Gathered, Refusal> {
    let choice = choose::choice(args)?;
    let since = args.since.as_deref().map(|text| read_time(text, Timestamp::now()));
    let since = since.transpose().map_err(|error| usage(format!("--since {error}")))?;
    let record = args.record.as_deref().map(Record::create).transpose()?;
    let mut counter = Counter {
        collected: Collected::new(choice.clone(), args.include_dropped),
        odd: 0,
        since: since.as_ref().map_or(0, read::nanoseconds),
        record,
    };
    let mut cut = None;
    let list = match &args.input_file {
        Some(path) => from_file(path, &mut counter)?,
        None => {
            let before = if args.duration.is_some() { services::ask(&args.socket) } else { Vec::new() };
            cut = from_server(args, request(args, &choice, since), &mut counter)?;
            // Once more: Services that came up in the meantime are meant as well. The later answer counts.
            before.into_iter().chain(services::ask(&args.socket)).collect()
        }
    };
    if let Some(mut record) = counter.record.take() {
        record.services(&list)?;
        record.end()?;
    }
    let (collected, odd) = (counter.collected, counter.odd);
    Ok(Gathered { collected, services: services::read(&list), odd, cut })
}

fn request(args: &LearnArgs, choice: &Choice, since: Option<prost_types::Timestamp>) -> GetFlowsRequest {
    let follow = args.duration.is_some();
    let number = match args.last {
        Some(last) => last,
        None if since.is_some() || follow => 0,
        None => u64::MAX,
    };
    GetFlowsRequest {
        number,
        follow,
        since,
        whitelist: choose::filters(choice),
        ..GetFlowsRequest::default()
    }
}

/// Gives why the stream ended before its time, if it did.
fn from_server(
    args: &LearnArgs,
    request: GetFlowsRequest,
    counter: &mut Counter,
) -> Result<Option<Refusal>, Refusal> {
    let length = args.duration.as_deref().map(length).transpose()?;
    let (server, tls) = target(&args.server)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_io().enable_time().build();
    let runtime = runtime.map_err(|error| {
        Refusal::new(exit::OS_ERROR, format!("cannot start the event loop: {error}"), "try again")
    })?;
    runtime.block_on(async {
        let client = Client::connect(&server, tls.as_ref()).await?;
        let mut flows = client.flows(request).await?;
        let Some(length) = length else {
            while let Some(answer) = flows.next().await? {
                counter.take(&answer)?;
            }
            return Ok(None);
        };
        let end = Instant::now() + length;
        let mut stopped = pin!(ctrl_c());
        loop {
            let answer = tokio::select! {
                answer = flows.next() => answer,
                () = sleep_until(end) => return Ok(None),
                // Who has seen enough gets the policy of what was seen.
                _ = &mut stopped => return Ok(None),
            };
            match answer {
                Ok(Some(answer)) => counter.take(&answer)?,
                Ok(None) => {
                    let cause = format!("{server} is gone: it ended the stream");
                    return Ok(Some(Refusal::new(exit::UNAVAILABLE, cause, "is `egret agent` running?")));
                }
                Err(refusal) => return Ok(Some(refusal)),
            }
        }
    })
}

fn length(text: &str) -> Result<Duration, Refusal> {
    let wrong = || usage(format!("--for {text:?}: write how long, such as 10m"));
    let nanoseconds = duration(text).and_then(|ns| u64::try_from(ns).ok()).filter(|ns| *ns > 0);
    nanoseconds.map(Duration::from_nanos).ok_or_else(wrong)
}

/// The Services that stand there.
fn from_file(path: &Path, counter: &mut Counter) -> Result<Vec<crate::api::Service>, Refusal> {
    let unreadable = |error: std::io::Error| {
        let cause = format!("cannot read {}: {error}", path.display());
        Refusal::new(exit::NO_INPUT, cause, "give a file of flows as JSON")
    };
    let mut input = Input::whole(Input::open(path).map_err(unreadable)?).map_err(usage)?;
    let mut recorded = Recorded::default();
    while let Some(line) = input.next_line().map_err(unreadable)? {
        match line {
            Line::Answer(answer) => counter.take(&answer)?,
            Line::Other(text) => recorded.take(&text),
        }
    }
    match input.complaint() {
        Some((complaint, true)) => {
            let cause = format!("{}: {}", path.display(), tell::plain(&complaint));
            return Err(Refusal::new(exit::DATA_ERROR, cause, "give a file of flows as JSON"));
        }
        Some((complaint, false)) => tell::line(tell::plain(&complaint)),
        None => {}
    }
    Ok(recorded.end())
}

impl Counter {
    fn take(&mut self, answer: &GetFlowsResponse) -> Result<(), Refusal> {
        let counts = match &answer.response_types {
            Some(ResponseTypes::Flow(message)) => match read::flow(&forwarded(message)) {
                Ok(flow) => flow.time >= self.since && self.collected.see(&flow),
                Err(_) => {
                    self.odd += 1;
                    false
                }
            },
            Some(ResponseTypes::LostEvents(lost)) => {
                self.collected.lose(lost.num_events_lost);
                true
            }
            _ => false,
        };
        match &mut self.record {
            Some(record) if counts => record.answer(answer),
            _ => Ok(()),
        }
    }
}

/// What a policy of Cilium sends to its proxy has passed that policy: its verdict says so, and is the first of the connection.
fn forwarded(message: &wire::Flow) -> Cow<'_, wire::Flow> {
    let of_policy = message.event_type.as_ref().is_some_and(|event| event.r#type == POLICY_VERDICT);
    if !of_policy || message.verdict != wire::Verdict::Redirected as i32 {
        return Cow::Borrowed(message);
    }
    Cow::Owned(wire::Flow { verdict: wire::Verdict::Forwarded as i32, ..message.clone() })
}
