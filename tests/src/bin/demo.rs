//! `cargo xtask demo`: see [`egret_tests::demo`].

use std::process::ExitCode;

fn main() -> ExitCode {
    egret_tests::demo::main()
}
