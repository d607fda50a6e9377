//! What the agent writes to the API server: little, seldom, and nothing that enforcement waits for.
//!
//! ```text
//!  Report ──┬──> taint   off this node, once
//!           ├──> drops   events about this node's pods, if asked for
//!           └──> lease ──held──> verdict  conditions and events of objects: one agent of the cluster writes them
//! ```
//! A server that refuses is told of on stderr once per cause; it is tried again.

mod drops;
mod lease;
mod taint;
mod verdict;

use std::collections::BTreeSet;
use std::time::Duration;

use kube::Client;
use kube::runtime::events::Reporter;
use tokio::time::sleep;

use super::trouble::cause;
use crate::source::Reports;
use crate::tell;
use drops::Events;
use lease::Seat;
use verdict::Verdicts;

/// How often it is looked what is left to write.
const ROUND: Duration = Duration::from_secs(3);
/// Causes that are told apart.
const CAUSES: usize = 32;
/// What the agent calls itself in events.
const CONTROLLER: &str = "egret";

/// What is written for this node.
#[derive(Debug, Clone)]
pub struct Writes {
    /// The node's name.
    pub node: String,
    /// `--remove-taint`.
    pub taint: Option<String>,
    /// `--drop-events`.
    pub drops: bool,
}

/// Writes, until the agent ends.
pub(super) async fn follow(client: Client, writes: Writes, mut reports: Reports) {
    let reporter = Reporter { controller: CONTROLLER.to_owned(), instance: Some(writes.node.clone()) };
    let mut taint = writes.taint;
    let mut seat = Seat::new(client.clone(), &writes.node);
    let mut verdicts = Verdicts::new(client.clone(), reporter.clone());
    let mut events = writes.drops.then(|| Events::new(client.clone(), reporter));
    let mut failures = Failures::default();
    loop {
        tokio::select! {
            changed = reports.changed() => if changed.is_err() { return },
            () = sleep(ROUND) => {}
        }
        let report = reports.borrow_and_update().clone();
        if !report.ready {
            continue;
        }
        if let Some(key) = &taint
            && failures.note("take the taint off the node", taint::remove(&client, &writes.node, key).await)
        {
            taint = None;
        }
        let held = seat.is_held().await;
        if matches!(held, Ok(true)) {
            failures.note("write the state of objects", verdicts.write(&report.objects).await);
        } else {
            // Another agent writes, or nobody knows who.
            verdicts.forget();
        }
        failures.note("hold the lease", held.map(drop));
        if let Some(events) = &mut events {
            failures.note("write events about drops", events.write(&report.drops).await);
        }
    }
}

/// What has failed so far.
#[derive(Debug, Default)]
struct Failures(BTreeSet<String>);

impl Failures {
    /// Tells of a failure, each cause once. True: there is none.
    fn note(&mut self, what: &str, result: kube::Result<()>) -> bool {
        let Err(error) = result else { return true };
        let text = format!("cannot {what}: {}", cause(&error));
        if self.0.len() < CAUSES && self.0.insert(text.clone()) {
            tell::line(format_args!("warning: {text}"));
        }
        false
    }
}
