//! The policies that the needs come to.
//!
//! Owns: one object per kind of workload, its name, and the proof that it opens what was seen. Must not know:
//! how YAML is written.

use std::collections::{BTreeMap, BTreeSet};

use egret_common::net::Direction;

use super::{
    Choice, Collected, Need, ProposeError, Services, Tally, made::Made, peers::standing, replay::replay,
};
use crate::{
    labels::Labels,
    names::Name,
    policy::{self, Policy, Severity},
};

/// Characters of an object's name at most (RFC 1123), with room for what makes it another one.
const MAX_NAME: usize = 240;

/// What is said of a pod that no selector tells from others.
const NO_LABEL: &str = "has no label of its own: label it first";
/// Such pods that an error names.
const MAX_UNLABELLED: usize = 8;

/// What is wanted.
#[derive(Debug, Clone)]
pub struct Options {
    /// Name of the object; `None`: one of the workload's labels.
    pub name: Option<String>,
    /// So many names of one zone become a pattern; `None`: never.
    pub wildcard: Option<usize>,
    /// What others begin as well.
    pub ingress: bool,
    /// Addresses without a name become rules, not comments.
    pub addresses: bool,
    /// The cluster's own domain.
    pub cluster_domain: Name,
}

impl Options {
    /// Whether needs of this direction are meant.
    pub(super) fn counts(&self, direction: Direction) -> bool {
        self.ingress || direction == Direction::Egress
    }
}

/// A policy, or several.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Proposal {
    /// The objects as YAML.
    pub text: String,
    /// The same, read back.
    pub policies: Vec<Policy>,
    /// What somebody should know: what no rule could be made for.
    pub notes: Vec<String>,
}

/// Whom an object is about: namespace and labels.
type About = (String, Labels);

/// The policies under which everything that was seen passes, and nothing else.
///
/// # Errors
/// [`ProposeError`].
pub fn propose(
    collected: &Collected,
    services: &Services,
    options: &Options,
) -> Result<Proposal, ProposeError> {
    let mut of: BTreeMap<About, Vec<(&Need, Tally)>> = BTreeMap::new();
    let mut unlabelled = BTreeSet::new();
    let needs = collected.needs()?.iter();
    for (need, tally) in needs.filter(|(need, _)| options.counts(need.seen.direction)) {
        let about = about(collected.choice(), need);
        if about.1.is_empty() {
            // A selector for it would take every pod of the namespace.
            unlabelled.extend(collected.pods(&need.seen.subject));
        } else {
            of.entry(about).or_default().push((need, *tally));
        }
    }
    let mut notes: Vec<String> = unlabelled.into_iter().map(|pod| format!("{pod} {NO_LABEL}")).collect();
    if of.is_empty() {
        notes.truncate(MAX_UNLABELLED);
        return Err(if notes.is_empty() {
            collected.nothing()
        } else {
            ProposeError::Unlabelled(notes.join(", "))
        });
    }
    let (mut texts, mut names) = (Vec::new(), BTreeSet::new());
    for (about, needs) in &of {
        let name = object_name(options, about, of.len() > 1, &mut names);
        let made = Made::new(needs, services, options)?;
        notes.extend(made.notes().map(|lack| format!("{}/{name}: {lack}", about.0)));
        texts.push(made.draft(about, name, collected.lost(), options).text());
    }
    let text = texts.join("---\n");
    let policies = read(&text)?;
    let replayed = replay(&policies, collected, services, options)?;
    notes.extend(replayed.denied.iter().map(|denied| format!("not opened: {denied}")));
    Ok(Proposal { text, policies, notes })
}

fn about(choice: &Choice, need: &Need) -> About {
    let subject = &need.seen.subject;
    let labels = match choice {
        Choice::Labels { labels, .. } if !labels.is_empty() => labels.clone(),
        _ => standing(&subject.labels),
    };
    (subject.namespace.clone(), labels)
}

/// A name that the API takes, and that no other one of these objects in the same namespace has.
fn object_name(
    options: &Options,
    (namespace, labels): &About,
    many: bool,
    taken: &mut BTreeSet<(String, String)>,
) -> String {
    let own = ["app.kubernetes.io/name", "app", "k8s-app", "name"].iter().find_map(|key| labels.get(*key));
    let own = own.or_else(|| labels.values().next()).map_or("workload", String::as_str);
    let wanted = match &options.name {
        Some(name) if many => format!("{name}-{own}"),
        Some(name) => name.clone(),
        None => format!("{own}-learned"),
    };
    let legal = |c: char| if c.is_ascii_alphanumeric() || c == '.' { c.to_ascii_lowercase() } else { '-' };
    let base: String = wanted.chars().map(legal).take(MAX_NAME).collect();
    let base = base.trim_matches(['-', '.']).to_owned();
    let base = if base.is_empty() { "learned".to_owned() } else { base };
    let mut names = std::iter::once(base.clone()).chain((2..).map(|n| format!("{base}-{n}")));
    let name = names.find(|name| taken.insert((namespace.clone(), name.clone())));
    name.unwrap_or(base)
}

fn read(text: &str) -> Result<Vec<Policy>, ProposeError> {
    let loaded = policy::parse(text);
    match loaded.diagnostics.iter().find(|d| d.severity == Severity::Error) {
        Some(error) => Err(ProposeError::Unreadable(error.to_string())),
        None => Ok(loaded.policies),
    }
}
