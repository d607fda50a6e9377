//! The `egret` binary: command line in, exit code out.

use std::process::ExitCode;

fn main() -> ExitCode {
    ExitCode::from(egret::main())
}
