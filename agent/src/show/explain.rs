//! `egret policy explain`: the chain as a table, then the verdict, the cause and the remedy.

use std::path::Path;

use egret_core::explain::Cause;
use egret_core::names::Name;

use super::check::read_file;
use super::table::Table;
use super::{json, print};
use crate::agent::Offline;
use crate::api::{self, Explanation, Request, client};
use crate::cli::{Format, PolicyExplain};
use crate::exit::{self, Refusal};
use crate::source::folder::{Folder, Texts};
use crate::tell;

/// The domain of most clusters.
const DOMAIN: &str = "cluster.local";

/// 0, or as the command's help says.
pub(super) fn explain(args: &PolicyExplain) -> Result<u8, Refusal> {
    let (explanation, code) = match &args.policies {
        Some(folder) => offline(args, folder)?,
        None => online(args)?,
    };
    print(&match args.view.output {
        Format::Json => json(&explanation),
        Format::Table => text(&explanation),
    });
    let passes = matches!(explanation.verdict.as_str(), "allowed" | "audited");
    Ok(if code == 0 && args.exit_code && !passes { 1 } else { code })
}

fn online(args: &PolicyExplain) -> Result<(Explanation, u8), Refusal> {
    let request = Request::Explain { from: args.from.clone(), to: args.to.clone() };
    match client::ask(&args.view.socket, &request) {
        Ok(explanation) => Ok((explanation, 0)),
        Err(refusal) if refusal.code == exit::UNAVAILABLE => {
            let explanation = nobody_answers(args, &refusal, &args.pins);
            tell::line(&refusal);
            Ok((explanation, refusal.code))
        }
        Err(refusal) => Err(refusal),
    }
}

/// What can be said while no agent runs.
fn nobody_answers(args: &PolicyExplain, refusal: &Refusal, pins: &Path) -> Explanation {
    let mut evidence = vec![refusal.cause.clone()];
    let (sentence, remedy) = match pins.exists() {
        true => {
            evidence.push(format!("what an agent left is pinned at {}", pins.display()));
            (
                "no agent runs here; the policies that it left stay in force, and answers of DNS are learned, but \
                 nothing new is enforced and nobody can tell what decides",
                "start the agent again: `egret agent`, or look at why its pod does not run",
            )
        }
        false => (
            "no agent runs here, and none has left anything in force: nothing is enforced by Egret",
            "start the agent: `egret agent`",
        ),
    };
    let link =
        api::Link { direction: "egress".into(), link: "agent".into(), state: "broken".into(), evidence };
    Explanation {
        version: 1,
        from: args.from.clone(),
        to: args.to.clone(),
        verdict: "unknown".into(),
        cause: api::Cause { code: Cause::AgentDown.code().into(), text: sentence.into() },
        remedy: remedy.into(),
        links: vec![link],
        ..Explanation::default()
    }
}

fn offline(args: &PolicyExplain, folder: &Path) -> Result<(Explanation, u8), Refusal> {
    let mut texts = read_folder(folder)?;
    for path in &args.pods {
        texts.files.insert(path.clone(), read_file(path)?.into());
    }
    let refuse =
        |why: String| Refusal::new(exit::DATA_ERROR, why, "see `egret policy check` for what files hold");
    let domain = Name::parse(DOMAIN).map_err(|error| refuse(error.to_string()))?;
    let offline = Offline::new(&texts, domain, &args.from, &args.to);
    let (told, bad) = offline.diagnostics();
    told.iter().for_each(tell::line);
    let trusted = args.trusted_resolver.iter().copied().collect();
    let explanation = offline.explain(&args.from, &args.to, &trusted).map_err(refuse)?;
    Ok((explanation, if bad { exit::DATA_ERROR } else { 0 }))
}

/// What is in a folder, as the agent reads one.
fn read_folder(path: &Path) -> Result<Texts, Refusal> {
    let texts = Folder::new(path.to_owned()).look().map_err(|error| {
        let cause = format!("{}: {error}", path.display());
        Refusal::new(exit::NO_INPUT, cause, "give a folder that can be read")
    })?;
    // Nothing has changed since nobody looked: it is empty.
    Ok(texts.unwrap_or_default())
}

fn text(of: &Explanation) -> String {
    let mut head = Table::plain();
    head.row(["From", &of.from]);
    let port = match (&of.port_from, of.port.as_str()) {
        (_, "") => String::new(),
        (None, port) => format!(", port {port}"),
        (Some(from), port) => format!(", port {port} ({from})"),
    };
    head.row(["To", &format!("{}{port}", of.to)]);
    let mut links = Table::new(["", "LINK", "STATE", "EVIDENCE"]);
    let mut before = "";
    for link in &of.links {
        let direction = if before == link.direction { "" } else { &link.direction };
        before = &link.direction;
        let one = |text: &str| vec![text.to_owned()];
        links.cells([one(direction), one(&link.link), one(&link.state), link.evidence.clone()]);
    }
    let mut end = Table::plain();
    let reason = of.reason.as_ref().map(|reason| format!(": {reason}")).unwrap_or_default();
    end.row(["Verdict", &format!("{}{reason}", of.verdict)]);
    end.row(["Cause", &format!("{} ({})", of.cause.text, of.cause.code)]);
    end.row(["Remedy", &of.remedy]);
    format!("{}\n{}\n{}", head.text(), links.text(), end.text())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::{Command, PolicyCommand, parse_from};

    fn args(more: &[&str]) -> Result<PolicyExplain, u8> {
        let fixed = ["egret", "policy", "explain", "--from", "shop/web", "--to", "a.example"];
        match parse_from(fixed.iter().chain(more).copied())?.command {
            Command::Policy(PolicyCommand::Explain(args)) => Ok(args),
            _ => panic!("another command"),
        }
    }

    #[test]
    fn folder_and_file_go_together() {
        assert!(args(&[]).is_ok() && args(&["--policies", "d", "--pods", "f", "--pods", "g"]).is_ok());
        for bad in [&["--policies", "d"][..], &["--pods", "f"], &["--trusted-resolver", "192.0.2.53"]] {
            assert_eq!(args(bad).err(), Some(exit::USAGE), "{bad:?}");
        }
    }

    #[test]
    fn without_an_agent_it_is_told_what_is_in_force() {
        let args = args(&[]).expect("valid");
        let refusal = Refusal::new(exit::UNAVAILABLE, "no answer", "look");
        let told = nobody_answers(&args, &refusal, Path::new("/"));
        assert!(told.cause.text.contains("stay in force"), "{told:?}");
        assert_eq!((told.cause.code.as_str(), told.verdict.as_str()), ("agent-down", "unknown"));
        let text = text(&told);
        assert!(text.contains("broken   no answer") && text.contains("(agent-down)"), "{text}");
        let told = nobody_answers(&args, &refusal, Path::new("/nowhere"));
        assert!(told.cause.text.contains("nothing is enforced"), "{told:?}");
    }
}
