//! `egret learn`: a policy out of flows, or what a policy would do with flows. (What DNS teaches is [`crate::learn`].)
//!
//! ```text
//!  Hubble's API ──┐                       ┌──propose──> YAML, with comments
//!  file of JSON ──┴─gather─> Collected ───┤
//!  agent's socket ─services─> Services ───┴──replay───> what would be denied
//! ```
//! Owns: where flows come from, which are chosen, what is said about losses. Must not know: what a flow means for a policy
//! (`egret_core::propose`).

mod check;
mod choose;
mod gather;
mod record;
mod services;

use std::fs;
use std::io::Write;

use egret_core::propose::{Options, Proposal, ProposeError, propose};

use crate::cli::LearnArgs;
use crate::exit::{self, Refusal};
use crate::tell;
use gather::{Gathered, gather};

/// Lines on stderr about what no rule was made for.
const MAX_NOTES: usize = 50;

/// `egret learn`.
///
/// # Errors
/// See the codes of [`crate::cli::LearnArgs`].
pub fn learn(args: &LearnArgs) -> Result<u8, Refusal> {
    let options = options(args)?;
    let policies = check::policies(&args.check)?;
    let gathered = gather(args)?;
    tell_losses(&gathered);
    let code = match args.check.is_empty() {
        true => {
            let proposal = propose(&gathered.collected, &gathered.services, &options).map_err(refused)?;
            notes(&proposal);
            write(args, &proposal.text)?;
            0
        }
        false => check::check(&policies, &gathered, &options)?,
    };
    // What was seen until then is not thrown away, and is not the whole either.
    gathered.cut.map_or(Ok(code), Err)
}

fn options(args: &LearnArgs) -> Result<Options, Refusal> {
    let domain = args.cluster_domain.parse();
    let domain =
        domain.map_err(|error| usage(format!("--cluster-domain {:?}: {error}", args.cluster_domain)))?;
    if let Some(name) = args.name.as_ref().filter(|name| !is_name(name)) {
        return Err(usage(format!("--name {name:?}: write small letters, digits, '-' and '.', 200 at most")));
    }
    let least = args.wildcard.map(|least| usize::try_from(least).unwrap_or(usize::MAX));
    Ok(Options {
        name: args.name.clone(),
        wildcard: least,
        ingress: args.ingress,
        addresses: !args.no_addresses,
        cluster_domain: domain,
    })
}

/// Whether an object may be called so, and something be added to it (RFC 1123).
fn is_name(name: &str) -> bool {
    let inner = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-' || b == b'.';
    let outer = |b: Option<char>| b.is_some_and(|c| c.is_ascii_lowercase() || c.is_ascii_digit());
    name.len() <= 200 && name.bytes().all(inner) && outer(name.chars().next()) && outer(name.chars().last())
}

fn usage(error: impl AsRef<str>) -> Refusal {
    Refusal::new(exit::USAGE, tell::plain(error.as_ref()), "see `egret learn --help`")
}

/// Why there is no policy, and what to do about it.
fn refused(error: ProposeError) -> Refusal {
    let (code, remedy) = match &error {
        ProposeError::Nothing => {
            (exit::UNAVAILABLE, "choose other workloads or another time, or wait with --for")
        }
        ProposeError::NoLabels => (exit::DATA_ERROR, "take flows with the labels of their ends"),
        ProposeError::Unlabelled(_) => (exit::DATA_ERROR, "label them, then learn anew"),
        ProposeError::TooMany { .. } => {
            (exit::DATA_ERROR, "choose fewer workloads or a shorter time, or give --wildcard")
        }
        ProposeError::Unreadable(_) => (exit::SOFTWARE, "please report this"),
        ProposeError::Compile(_) => (exit::DATA_ERROR, "choose fewer workloads"),
    };
    Refusal::new(code, tell::plain(&error.to_string()), remedy)
}

fn tell_losses(gathered: &Gathered) {
    let lost = gathered.collected.lost();
    if lost > 0 {
        tell::line(format_args!("{lost} flows were lost: the policy may lack rules"));
    }
    let unlabelled = gathered.collected.unlabelled();
    if unlabelled > 0 {
        tell::line(format_args!("{unlabelled} flows carry no labels: whose they are is not known"));
    }
    if gathered.odd > 0 {
        tell::line(format_args!("{} events are of a kind that says nothing about policies", gathered.odd));
    }
}

fn notes(proposal: &Proposal) {
    proposal.notes.iter().take(MAX_NOTES).for_each(|note| tell::line(tell::plain(note)));
    if let Some(more) = proposal.notes.len().checked_sub(MAX_NOTES).filter(|more| *more > 0) {
        tell::line(format_args!("and {more} more"));
    }
}

fn write(args: &LearnArgs, text: &str) -> Result<(), Refusal> {
    let Some(path) = &args.output else {
        // A reader that has seen enough is no error.
        let _ = std::io::stdout().lock().write_all(text.as_bytes());
        return Ok(());
    };
    fs::write(path, text).map_err(|error| {
        let cause = format!("--output {}: {error}", path.display());
        Refusal::new(exit::CANNOT_CREATE, cause, "give a file in a directory that can be written")
    })
}

#[cfg(test)]
mod tests;
