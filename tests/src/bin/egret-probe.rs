//! The workload of the scenario tests: `egret-probe serve` obeys lines of JSON on standard input.

use std::process::ExitCode;

fn main() -> ExitCode {
    match std::env::args().nth(1).as_deref() {
        Some("serve") => {
            egret_tests::probe::serve();
            ExitCode::SUCCESS
        }
        _ => {
            eprintln!("usage: egret-probe serve");
            ExitCode::from(64)
        }
    }
}
