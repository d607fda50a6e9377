//! The part about `egret agent`, as an operator's runbook: a node with pods, one agent, policies that come and go, a row
//! per step.
//!
//! ```text
//! steps, times (what is done and what must come of it) ─> story (cluster, attempts) ─> Part
//!                                 policies (YAML) ─┘        try (one program in a pod)
//! ```
//! The steps build upon each other. What a step shows as denied is tried again at the end without any policy.

mod policies;
mod steps;
mod story;
mod times;
mod tries;

use std::panic::{AssertUnwindSafe, catch_unwind};

use super::options::Options;
use super::stage::{Part, Row, words};
use crate::cluster::Cluster;
use story::Story;

/// What was seen: as expected, or not.
type Verdict = Result<String, String>;

/// One row.
struct Step {
    /// What it is about.
    name: &'static str,
    /// What the operator does, or who tries what.
    done: &'static str,
    /// What must come of it.
    expected: &'static str,
    /// Does it.
    act: fn(&mut Story) -> Verdict,
    /// Whether it also runs in the VM.
    core: bool,
}

/// Makes the node and plays all steps.
pub(super) fn play(options: &Options) -> Part {
    let mut part = Part { title: "egret agent", ..Part::default() };
    let Some(cluster) = Cluster::new() else { return part };
    let mut story = Story::begin(cluster);
    let steps = steps::all().into_iter().chain(times::all()).filter(|step| step.core || !options.core);
    for step in steps.chain([steps::control()]) {
        // Later steps stand on earlier ones; they are tried all the same.
        let verdict = catch_unwind(AssertUnwindSafe(|| (step.act)(&mut story)));
        let verdict = verdict.unwrap_or_else(|panic| Err(words(&*panic)));
        part.rows.push(row(&step, verdict, &story));
    }
    part.drops = story.counters();
    part
}

fn row(step: &Step, verdict: Verdict, story: &Story) -> Row {
    let ok = verdict.is_ok();
    let seen = verdict.unwrap_or_else(|text| format!("{text}\n    agent: {}", story.agent_said()));
    Row { step: step.name.into(), command: step.done.into(), expected: step.expected.into(), seen, ok }
}
