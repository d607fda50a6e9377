//! `cargo xtask demo`: real programs under `egret run` in a world of network namespaces, a row per step
//! with what was expected and what was seen.
//!
//! ```text
//! steps (what is run and what must come of it) ─> stage (world, runs in parallel) ─> table (text, JSON)
//!                                       check (what curl, the captures and the report saw) ─┘
//! ```
//! Knows Egret by its command line and its report only, as its users do.

mod check;
mod control;
mod options;
mod stage;
mod steps;
mod table;

use std::process::ExitCode;
use std::time::Instant;

use options::Options;

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
    let start = Instant::now();
    let mut outcome = stage::play(&options);
    outcome.seconds = start.elapsed().as_secs_f64();
    if options.json {
        println!("{:#}", table::json(&outcome));
    } else {
        print!("{}", table::text(&outcome));
    }
    if outcome.passed() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
