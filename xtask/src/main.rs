//! `cargo xtask`: everything that is done to this repository rather than by it.
//!
//! ```text
//! cli ─> setup (packages)       test ─> cargo (nextest, artifacts)      ci = all of them in order
//!        cargo (build, lint)    vm   ─> kernel package, initramfs, qemu
//!                               image (OCI layout)   deploy ─> helm, schemas, shellcheck     kind ─> image, deploy/kind/e2e.sh
//! ```
//! Nothing here knows what the product does: tests are picked by file name (`kernel_*`, `netns_*`), programs
//! by binary name (`egret`, `demo`, `bench`).

mod cargo;
mod ci;
mod cli;
mod deploy;
mod image;
mod kind;
mod setup;
mod sh;
mod tally;
mod test;
mod thin;
mod tidy;
mod vm;

use std::process::ExitCode;

fn main() -> ExitCode {
    match cli::run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("xtask: {error:#}");
            ExitCode::from(sh::exit_code(&error))
        }
    }
}
