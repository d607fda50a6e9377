//! `egret learn --check`: what policies would have denied.

use std::io::Write;
use std::path::PathBuf;

use egret_core::policy::{self, Policy, Severity};
use egret_core::propose::{Options, replay};

use super::gather::Gathered;
use super::refused;
use crate::exit::{self, Refusal};
use crate::show;
use crate::tell;

/// Reads the files. A policy that is not whole would be another policy: 65.
pub(super) fn policies(files: &[PathBuf]) -> Result<Vec<Policy>, Refusal> {
    let mut policies = Vec::new();
    for path in files {
        let loaded = policy::parse(&show::read_file(path)?);
        loaded.diagnostics.iter().for_each(|found| tell::line(tell::plain(&found.to_string())));
        if loaded.diagnostics.iter().any(|found| found.severity == Severity::Error) {
            let cause = format!("{} is no policy that can be enforced", path.display());
            return Err(Refusal::new(exit::DATA_ERROR, cause, "mend it; see `egret policy check`"));
        }
        policies.extend(loaded.policies);
    }
    Ok(policies)
}

/// Prints what would be denied, the most frequent first.
pub(super) fn check(policies: &[Policy], gathered: &Gathered, options: &Options) -> Result<u8, Refusal> {
    let replayed = replay(policies, &gathered.collected, &gathered.services, options);
    let replayed = replayed.map_err(refused)?;
    let mut denied = replayed.denied;
    if replayed.passed == 0 && denied.is_empty() {
        return Err(refused(gathered.collected.nothing()));
    }
    denied.sort_by_key(|denied| std::cmp::Reverse(denied.count));
    let mut out = std::io::stdout().lock();
    for line in &denied {
        // A reader that has seen enough is no error.
        let _ = writeln!(out, "{}", tell::plain(&line.to_string()));
    }
    for subject in &replayed.unselected {
        tell::line(tell::plain(&format!("no policy is about {subject}")));
    }
    let would: u64 = denied.iter().map(|denied| denied.count).sum();
    tell::line(format_args!("{} flows would pass, {would} would be denied", replayed.passed));
    Ok(if denied.is_empty() { 0 } else { exit::WOULD_DENY })
}
