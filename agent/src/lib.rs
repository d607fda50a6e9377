//! Egret's shell: everything that touches the kernel, the file system or the network. Decisions live in
//! `egret-core` (pure) and `egret-common` (shared with the programs).

pub mod cli;
pub mod datapath;
pub mod exit;
pub mod run;
pub mod sandbox;
pub mod tell;

/// The whole process: parses the arguments, does what they say, prints the one line of an error, and gives the exit
/// code.
#[must_use]
pub fn main() -> u8 {
    let cli = match cli::parse() {
        Ok(cli) => cli,
        Err(code) => return code,
    };
    tell::instead_of_panics();
    let work = || match &cli.command {
        cli::Command::Run(args) => run::run(args),
        cli::Command::Uninstall(args) => run::uninstall(args),
    };
    match std::panic::catch_unwind(std::panic::AssertUnwindSafe(work)) {
        Ok(Ok(code)) => code,
        Ok(Err(refusal)) => {
            tell::line(&refusal);
            refusal.code
        }
        Err(_) => exit::SOFTWARE,
    }
}
