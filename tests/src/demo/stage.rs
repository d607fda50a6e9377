//! Plays the steps of `egret run`: one world for all, every step in its own thread with its own `egret run`.

use std::collections::BTreeMap;
use std::thread;

use super::check::Seen;
use super::options::Options;
use super::steps::{self, Step};
use super::{control, steps::Verdict};
use crate::egret::Run;
use crate::lab::Lab;
use crate::servers::Capture;

/// A row of the table.
#[derive(Clone, Debug)]
pub(super) struct Row {
    /// The step's name.
    pub(super) step: String,
    /// What a user would type.
    pub(super) command: String,
    /// What must come of it.
    pub(super) expected: String,
    /// What came of it.
    pub(super) seen: String,
    /// Whether the two agree.
    pub(super) ok: bool,
}

/// The rows about one command.
#[derive(Clone, Debug, Default)]
pub(super) struct Part {
    /// The command.
    pub(super) title: &'static str,
    /// One per step.
    pub(super) rows: Vec<Row>,
    /// What the kernel's counters say in the end: (whose and) why -> packets.
    pub(super) drops: BTreeMap<String, u64>,
    /// From start to end.
    pub(super) seconds: f64,
}

/// Everything the demonstration has to tell.
#[derive(Clone, Debug, Default)]
pub(super) struct Outcome {
    /// One per command.
    pub(super) parts: Vec<Part>,
}

impl Outcome {
    /// All rows.
    pub(super) fn rows(&self) -> impl Iterator<Item = &Row> {
        self.parts.iter().flat_map(|part| &part.rows)
    }

    /// Whether every row is as expected.
    pub(super) fn passed(&self) -> bool {
        !self.parts.is_empty()
            && self.parts.iter().all(|part| !part.rows.is_empty() && part.rows.iter().all(|row| row.ok))
    }
}

/// Makes the world, plays all steps of `egret run` and then the control without Egret.
pub(super) fn play(options: &Options) -> Part {
    let mut part = Part { title: "egret run", ..Part::default() };
    let Some(lab) = Lab::start() else { return part };
    steps::furnish(&lab);
    let steps: Vec<Step> = steps::all().into_iter().filter(|step| step.core || !options.core).collect();
    let captures = Captures { web: lab.capture(), dns: Capture::start(lab.world.ns("d")) };
    let runs = in_parallel(&steps, |step| lab.egret().args(step.options).run(&step.command));
    for (step, run) in steps.iter().zip(runs) {
        let verdict = run.and_then(|run| {
            count_drops(&run, &mut part.drops);
            let seen = Seen { run: &run, lab: &lab, captures: &captures, at_once: Options::at_once() };
            (step.check)(&seen).map_err(|text| format!("{text}{}", complaint(&run)))
        });
        part.rows.push(step.row(verdict));
    }
    part.rows.push(control::row(&lab, &steps));
    part
}

/// What arrives where nothing may arrive.
pub(super) struct Captures {
    /// At the servers.
    pub(super) web: Capture,
    /// At the resolver.
    pub(super) dns: Capture,
}

/// Runs `act` for every step at the same time; a panic becomes the text of an error.
pub(super) fn in_parallel<S: Sync, T: Send>(
    steps: &[S],
    act: impl Fn(&S) -> T + Sync,
) -> Vec<Result<T, String>> {
    let act = &act;
    thread::scope(|scope| {
        let threads: Vec<_> = steps.iter().map(|step| scope.spawn(move || act(step))).collect();
        threads.into_iter().map(|thread| thread.join().map_err(|panic| words(&*panic))).collect()
    })
}

/// The text of a panic.
pub(super) fn words(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().cloned();
    text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).into())).unwrap_or_default()
}

/// Adds the kernel's counters of one run.
fn count_drops(run: &Run, drops: &mut BTreeMap<String, u64>) {
    for (reason, packets) in run.report.drop_counters() {
        *drops.entry(reason).or_default() += packets;
    }
}

/// What the programs said, for a row that is not as expected.
fn complaint(run: &Run) -> String {
    let (stdout, stderr) = (run.outcome.stdout.trim(), run.outcome.stderr.trim());
    format!("\n    exit {:?}\n    stdout: {stdout}\n    stderr: {stderr}", run.outcome.code)
}

impl Step {
    fn row(&self, verdict: Verdict) -> Row {
        let ok = verdict.is_ok();
        Row {
            step: self.name.into(),
            command: format!("{} -- {}", self.options.join(" "), self.shown),
            expected: self.expected.into(),
            seen: verdict.unwrap_or_else(|text| text),
            ok,
        }
    }
}
