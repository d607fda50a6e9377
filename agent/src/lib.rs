//! Egret's shell: everything that touches the kernel, the file system or the network. Decisions live in
//! `egret-core` (pure) and `egret-common` (shared with the programs).

pub mod agent;
pub mod api;
pub mod cli;
pub mod connection;
pub mod datapath;
pub mod exit;
pub mod flows;
pub mod host;
pub mod kubectl;
pub mod learn;
pub mod metrics;
pub mod netlink;
pub mod observe;
pub mod place;
pub mod propose;
pub mod resolvers;
pub mod run;
pub mod sandbox;
pub mod show;
pub mod source;
pub mod tell;

/// `egret uninstall`: the agent, and what runs have left. The worst code counts.
fn uninstall(args: &cli::UninstallArgs) -> Result<u8, exit::Refusal> {
    let (runs, agent) = (run::uninstall(args)?, agent::uninstall(args)?);
    Ok(if agent == 0 { runs } else { agent })
}

/// The whole process: parses the arguments, does what they say, prints the one line of an error, and gives the exit
/// code.
#[must_use]
pub fn main() -> u8 {
    let program = std::env::args_os().next();
    if program.is_some_and(|program| kubectl::is_meant(program.as_ref())) {
        return kubectl::main(std::env::args_os());
    }
    let cli = match cli::parse() {
        Ok(cli) => cli,
        Err(code) => return code,
    };
    tell::instead_of_panics();
    let work = || match &cli.command {
        cli::Command::Run(args) => run::run(args),
        cli::Command::Agent(args) => agent::run(args),
        cli::Command::Status(args) => show::status(args),
        cli::Command::Endpoint(command) => show::endpoint(command),
        cli::Command::Identity(command) => show::identity(command),
        cli::Command::Fqdn(command) => show::fqdn(command),
        cli::Command::Policy(command) => show::policy(command),
        cli::Command::Observe(args) => flows::observe(args),
        cli::Command::Learn(args) => propose::learn(args),
        cli::Command::Bpf(command) => show::bpf(command),
        cli::Command::Uninstall(args) => uninstall(args),
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
