//! The runbook's pages: what a command prints in an incident, beside what the page shows.
//!
//! Knows the Markdown of `docs/runbook.md`: below the heading of an incident, a block
//! that begins with `$ COMMAND` holds what the command printed. Numbers that
//! no two runs share (ages, numbers of endpoints and identities) count as equal. `EGRET_UPDATE_GOLDEN=1` writes the page anew.

use std::fs;
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};

use crate::agent::Agent;

/// One write at a time.
static PAGE: Mutex<()> = Mutex::new(());

/// Asks for an explanation: its cause must be `cause`, and the page must show what it prints in this incident.
#[track_caller]
pub fn explain(agent: &Agent, incident: &str, (from, to): (&str, &str), cause: &str) -> serde_json::Value {
    let args = ["policy", "explain", "--from", from, "--to", to];
    let pins = agent.pins().display().to_string();
    let with_pins = [&args[..], &["--pins", &pins]].concat();
    let told = agent.json(&with_pins);
    assert_eq!(told["cause"]["code"], cause, "{told:#}");
    let place = Place { incident, command: &format!("egret {}", args.join(" ")) };
    shows(&place, &placeless(&agent.ask(&with_pins).stdout, agent));
    told
}

/// Where something is shown.
struct Place<'a> {
    /// The heading.
    incident: &'a str,
    /// The first line of the block.
    command: &'a str,
}

/// The page must show that the command printed this.
#[track_caller]
fn shows(place: &Place<'_>, output: &str) {
    let write = std::env::var_os("EGRET_UPDATE_GOLDEN").is_some();
    let _turn = PAGE.lock().unwrap_or_else(PoisonError::into_inner);
    let text = fs::read_to_string(page()).expect("the page");
    let (begin, end) = place
        .find(&text)
        .unwrap_or_else(|| panic!("no block of {} below {} in the runbook", place.command, place.incident));
    if write {
        fs::write(page(), replaced(&text, (begin, end), output)).expect("written");
        return;
    }
    let command = place.command;
    assert_eq!(
        timeless(&text[begin..end]),
        timeless(output),
        "{command}: EGRET_UPDATE_GOLDEN=1 writes it anew"
    );
}

impl Place<'_> {
    /// From behind the command's line to the end of the block.
    fn find(&self, text: &str) -> Option<(usize, usize)> {
        let heading = format!("\n## {}\n", self.incident);
        let section = text.find(&heading)? + heading.len();
        let close = text[section..].find("\n## ").map_or(text.len(), |at| section + at);
        let line = format!("\n$ {}\n", self.command);
        let begin = section + text[section..close].find(&line)? + line.len();
        Some((begin, begin + text[begin..].find("```")?))
    }
}

fn replaced(text: &str, (begin, end): (usize, usize), output: &str) -> String {
    format!("{}{}\n{}", &text[..begin], output.trim_end(), &text[end..])
}

fn page() -> PathBuf {
    PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/runbook.md"))
}

/// Paths of the test as an operator has them.
fn placeless(output: &str, agent: &Agent) -> String {
    output
        .replace(&agent.socket().display().to_string(), "/run/egret/egret.sock")
        .replace(&agent.pins().display().to_string(), "/sys/fs/bpf/egret/agent")
}

/// Every number of seconds, endpoints, packets and ports below the line's own is one number; columns are one space apart.
fn timeless(text: &str) -> Vec<String> {
    let plain = |line: &str| {
        let line = line.replace(" once,", " 1 times,");
        let words = line.split_whitespace().collect::<Vec<_>>();
        let number = |at: usize| words.get(at).is_some_and(|w| w.parse::<u64>().is_ok());
        let counted = |at: usize| {
            let unit = words
                .get(at + 1)
                .is_some_and(|w| matches!(w.trim_end_matches([',', ';', ')']), "s" | "min" | "h" | "times"));
            let named = at > 0 && words[at - 1].chars().next().is_some_and(char::is_uppercase);
            number(at) && (unit || named || words.get(at.wrapping_sub(1)) == Some(&"endpoint"))
        };
        let words = words.iter().enumerate().map(|(at, word)| if counted(at) { "N" } else { *word });
        words.collect::<Vec<_>>().join(" ")
    };
    text.trim_end().lines().map(plain).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_is_replaced_alone() {
        let page = "\n## a\n```console\n$ egret x\nold\n```\n## b\n```console\n$ egret x\nkept\n```\n";
        let place = |incident| Place { incident, command: "egret x" };
        let of = |text: &str, incident| place(incident).find(text).map(|(b, e)| text[b..e].to_owned());
        let new = replaced(page, place("a").find(page).expect("there"), "new\nlines\n\n");
        assert_eq!(of(&new, "a").as_deref(), Some("new\nlines\n"));
        assert_eq!(of(&new, "b").as_deref(), Some("kept\n"));
        assert_eq!(Place { incident: "b", command: "egret y" }.find(&new), None);
        assert_eq!(of(&new, "c"), None);
    }

    #[test]
    fn ages_do_not_count_and_words_do() {
        assert_eq!(timeless("it expired 3 s ago  (NoRule 4)"), timeless("it expired 12 s ago (NoRule 4)"));
        assert_ne!(timeless("port 80"), timeless("port 81"));
        assert_ne!(timeless("denied"), timeless("allowed"));
    }
}
