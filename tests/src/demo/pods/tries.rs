//! One program in one pod, and what came of it.

use std::time::Duration;

use super::Verdict;
use crate::exec::{Cmd, Outcome, Place};
use crate::wait::patient;

/// What must come of an attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Want {
    /// The server at this `address:port` answers.
    Reach(&'static str),
    /// The name is not resolved: no answer comes.
    NoAnswer,
    /// The name is refused at once.
    NoName,
    /// The connect gets no answer.
    Silence,
    /// The connect is refused at once.
    Refused,
}

/// `curl` of a URL from a pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Try {
    pub(super) pod: &'static str,
    pub(super) url: &'static str,
    pub(super) want: Want,
}

/// curl's codes.
const NO_NAME: i32 = 6;
const NO_CONNECTION: i32 = 7;
const TIMED_OUT: i32 = 28;

/// What curl printed.
#[derive(Clone, Debug, Default, PartialEq)]
struct Seen {
    reached: Option<String>,
    code: i32,
    seconds: f64,
    resolved: bool,
}

impl Try {
    pub(super) fn new(pod: &'static str, url: &'static str, want: Want) -> Self {
        Self { pod, url, want }
    }

    /// Runs it in the pod's place, and compares.
    pub(super) fn perform(&self, place: &Place) -> Verdict {
        let outcome = place.run(&self.command());
        let seen = Seen::read(&outcome, self.url);
        let text = format!("{} {}", self.target(), seen.text());
        if seen.is(self.want) { Ok(text) } else { Err(format!("{}: {text}", self.pod)) }
    }

    /// Whether it is about something that is not to work.
    pub(super) fn is_denied(&self) -> bool {
        !matches!(self.want, Want::Reach(_))
    }

    /// Whether it works.
    pub(super) fn works(&self, place: &Place) -> bool {
        let open = Self { want: Want::Reach(""), ..*self };
        Seen::read(&place.run(&open.command()), self.url).reached.is_some()
    }

    /// Host, and port unless it is that of HTTP.
    fn target(&self) -> &'static str {
        self.url.trim_start_matches("http://").trim_end_matches('/')
    }

    fn command(&self) -> Cmd {
        let limit = match self.want {
            // The retry of a SYN or a query comes after a second: a grant that is only late would show.
            Want::Silence | Want::NoAnswer => silence(),
            _ => patient(Duration::from_secs(8)),
        };
        let seconds = limit.as_secs_f64().to_string();
        let format = "%{exitcode} %{time_total} %{time_namelookup}\n";
        let argv = ["curl", "-sS", "--noproxy", "*", "--max-time", &seconds, "-w", format, self.url];
        Cmd::new(argv).timeout(limit * 2)
    }
}

/// Seconds within which a refusal must come: before the first retry of a SYN.
pub(super) fn at_once() -> f64 {
    patient(Duration::from_millis(900)).as_secs_f64().min(3.5)
}

/// For how long nothing must come.
pub(super) fn silence() -> Duration {
    patient(Duration::from_millis(1500)).min(Duration::from_secs(4))
}

impl Seen {
    fn read(outcome: &Outcome, url: &str) -> Self {
        let mut seen = Self { code: outcome.code.unwrap_or(-1), ..Self::default() };
        for line in outcome.stdout.lines() {
            if let Some(banner) = line.strip_prefix("reached ") {
                seen.reached = banner.split_whitespace().next().map(String::from);
            }
        }
        let numbers: Vec<f64> = outcome
            .stdout
            .lines()
            .last()
            .unwrap_or_default()
            .split(' ')
            .filter_map(|n| n.parse().ok())
            .collect();
        if let [_, seconds, lookup] = numbers[..] {
            let literal =
                url.trim_start_matches("http://").starts_with(|c: char| c.is_ascii_digit() || c == '[');
            (seen.seconds, seen.resolved) = (seconds, literal || lookup > 0.0);
        }
        seen
    }

    fn is(&self, want: Want) -> bool {
        let at_once = self.seconds < at_once();
        let failed = self.reached.is_none();
        match want {
            Want::Reach(place) => self.code == 0 && self.reached.as_deref() == Some(place),
            Want::NoAnswer => {
                failed && !self.resolved && matches!(self.code, TIMED_OUT | NO_NAME) && !at_once
            }
            Want::NoName => failed && self.code == NO_NAME && at_once,
            Want::Silence => failed && self.resolved && self.code == TIMED_OUT,
            Want::Refused => failed && self.resolved && self.code == NO_CONNECTION && at_once,
        }
    }

    fn text(&self) -> String {
        let time = match self.seconds {
            seconds if seconds < 1.0 => format!("{:.1} ms", seconds * 1e3),
            seconds => format!("{seconds:.1} s"),
        };
        match (&self.reached, self.code, self.resolved) {
            (Some(place), ..) => format!("-> {place}"),
            (None, NO_NAME, _) => format!("no name in {time}"),
            (None, TIMED_OUT, false) => format!("not resolved in {time}"),
            (None, TIMED_OUT, true) => format!("silence for {time}"),
            (None, NO_CONNECTION, _) => format!("refused in {time}"),
            (None, code, _) => format!("curl failed with {code} after {time}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(stdout: &str, code: i32, url: &str) -> Seen {
        let outcome = Outcome {
            code: Some(code),
            signal: None,
            timed_out: false,
            stdout: stdout.into(),
            stderr: String::new(),
            elapsed: Duration::ZERO,
        };
        Seen::read(&outcome, url)
    }

    #[test]
    fn curl_is_understood() {
        let name = "http://a.example/";
        let reached = seen("reached 192.0.2.1:80 from 10.0.0.1:4\n0 0.004 0.001\n", 0, name);
        assert!(reached.is(Want::Reach("192.0.2.1:80")) && !reached.is(Want::Reach("192.0.2.2:80")));
        assert_eq!(reached.text(), "-> 192.0.2.1:80");
        let check = |stdout: &str, code, url: &str, is: Want| {
            let seen = seen(stdout, code, url);
            for want in [Want::NoAnswer, Want::NoName, Want::Silence, Want::Refused, Want::Reach("")] {
                assert_eq!(seen.is(want), want == is, "{seen:?} {want:?}");
            }
        };
        check("28 1.501 0.000000\n", 28, name, Want::NoAnswer);
        check("28 1.501 0.002\n", 28, name, Want::Silence);
        check("28 1.501 0.000000\n", 28, "http://192.0.2.1/", Want::Silence);
        check("6 0.002 0.000000\n", 6, name, Want::NoName);
        check("7 0.002 0.000000\n", 7, "http://192.0.2.1/", Want::Refused);
    }
}
