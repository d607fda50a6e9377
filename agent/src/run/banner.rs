//! The start lines: what was understood, before CMD begins.

use super::plan::Plan;
use crate::cli::{OnDeny, RunArgs};
use crate::tell;

/// Prints them on stderr; warnings also with `--quiet`.
pub(super) fn print(args: &RunArgs, plan: &Plan, warnings: &[String]) {
    if !args.quiet {
        lines(args, plan).into_iter().for_each(tell::line);
    }
    warnings.iter().for_each(|warning| tell::line(format_args!("warning: {warning}")));
}

fn lines(args: &RunArgs, plan: &Plan) -> Vec<String> {
    let mode = match (args.audit, args.on_deny) {
        (true, _) => "audit: nothing is held back, what would be denied is reported",
        (false, OnDeny::Reject) => "enforce: what is denied fails at once",
        (false, OnDeny::Drop) => "enforce: what is denied vanishes",
    };
    let mut out = vec![format!("mode: {mode}")];
    match plan.understood.as_slice() {
        [] if plan.isolated => out.push("allowed: nothing but loopback".into()),
        [] => out.push("allowed: everything".into()),
        lines => out.extend(lines.iter().map(|line| format!("allowed: {line}"))),
    }
    let servers: Vec<String> = plan.resolvers.servers.iter().map(ToString::to_string).collect();
    let asked = if plan.isolated { "for the names above only" } else { "for every name" };
    out.push(format!("resolvers: {}, {asked}", servers.join(", ")));
    if !plan.resolvers.search.is_empty() {
        let search: Vec<&str> = plan.resolvers.search.iter().map(egret_core::names::Name::as_str).collect();
        out.push(format!("search domains: {} (ndots {})", search.join(", "), plan.resolvers.ndots));
    }
    out.push("loopback and this host's own addresses: open".into());
    out
}
