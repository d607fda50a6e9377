//! The negative control: what Egret refused works without it, so it was Egret that refused it.

use super::check::attempts;
use super::stage::{Row, in_parallel};
use super::steps::Step;
use crate::lab::Lab;

/// Runs the refused part of each step without Egret; all of them must reach their target.
pub(super) fn row(lab: &Lab, steps: &[Step]) -> Row {
    let refused: Vec<_> = steps.iter().filter_map(|step| Some((step.name, step.control.as_ref()?))).collect();
    let outcomes = in_parallel(&refused, |(_, command)| lab.bare().run(command));
    let worked = |outcome: &crate::exec::Outcome| {
        let tries = attempts(&outcome.stdout);
        outcome.success() && !tries.is_empty() && tries.iter().all(|attempt| attempt.code == 0)
    };
    let failed: Vec<&str> = refused
        .iter()
        .zip(&outcomes)
        .filter(|(_, outcome)| !outcome.as_ref().is_ok_and(worked))
        .map(|((name, _), _)| *name)
        .collect();
    let (all, works) = (refused.len(), refused.len() - failed.len());
    let list = if failed.is_empty() { String::new() } else { format!(", not: {}", failed.join(", ")) };
    Row {
        step: "negative control".into(),
        command: "(what was refused, without egret)".into(),
        expected: format!("all {all} succeed"),
        seen: format!("{works} of {all} succeed{list}"),
        ok: failed.is_empty() && all > 0,
    }
}
