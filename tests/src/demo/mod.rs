//! `cargo xtask demo`: real programs under `egret run`, and in pods that `egret agent` holds, in worlds of network
//! namespaces; a row per step with what was expected and what was seen.
//!
//! ```text
//! steps (what is run and what must come of it) ─> stage (world, runs in parallel) ─> table (text, JSON)
//!                                       check (what curl, the captures and the report saw) ─┘   │
//! pods (a node, one agent, policies that come and go) ──────────────────────────────────────────┘
//! ```
//! Knows Egret by its command line and its report only, as its users do.

mod check;
mod control;
mod options;
mod pods;
mod stage;
mod steps;
mod table;

use std::process::ExitCode;
use std::time::Instant;

use options::Options;
use stage::{Outcome, Part};

/// Runs the demonstration with the process's arguments; 0 only if every row is as expected.
pub fn main() -> ExitCode {
    let options = match Options::parse(std::env::args().skip(1)) {
        Ok(options) => options,
        Err(message) => {
            eprintln!("demo: {message}");
            return ExitCode::from(64);
        }
    };
    if let Some(reason) = crate::netns::unavailable() {
        eprintln!("demo: {reason}");
        return ExitCode::from(77);
    }
    let mut outcome = Outcome::default();
    let parts: [(bool, fn(&Options) -> Part); 2] =
        [(options.no_run, stage::play), (options.no_pods, pods::play)];
    for (_, play) in parts.into_iter().filter(|(left_out, _)| !left_out) {
        let start = Instant::now();
        let part = play(&options);
        outcome.parts.push(Part { seconds: start.elapsed().as_secs_f64(), ..part });
    }
    if options.json {
        println!("{:#}", table::json(&outcome));
    } else {
        print!("{}", table::text(&outcome));
    }
    if outcome.passed() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
