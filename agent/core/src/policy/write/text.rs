//! The text of a CiliumNetworkPolicy, rule by rule.
//!
//! Owns: how values and comments are put into YAML so that they are read back as they are, whatever they hold. Must not
//! know: where rules come from.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Write,
    net::IpAddr,
};

use crate::{labels::Labels, names::Name, net::host_net, ports::Proto};

/// What an API entry holds at most.
const MAX_ENTRIES: usize = 40;
/// Characters of a comment at most.
const MAX_COMMENT: usize = 400;

/// Protocols and ports; ICMP: type << 8 | code.
pub type PortSet = BTreeSet<(Proto, u16)>;
/// How often each of them was seen.
pub type PortCounts = BTreeMap<(Proto, u16), u64>;

/// A whole object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Draft {
    /// Comments above it.
    pub head: Vec<String>,
    /// Name of the object.
    pub name: String,
    /// Its namespace; `None`: it names none.
    pub namespace: Option<String>,
    /// What it says about itself.
    pub description: &'static str,
    /// Labels of the pods that it is about; none: all of the namespace.
    pub subject: Labels,
    /// Comments above its rules.
    pub remarks: Vec<String>,
    /// What its pods may begin; no rule: nothing.
    pub egress: Option<Vec<DraftRule>>,
    /// What others may begin with its pods; no rule: nothing.
    pub ingress: Option<Vec<DraftRule>>,
}

/// One rule of a [`Draft`].
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct DraftRule {
    /// The other side: peers of one kind, each with a comment.
    pub peers: Vec<(DraftPeer, String)>,
    /// Ports at the destination: with numbers, or of ICMP.
    pub ports: PortSet,
    /// Names that may be asked for, each with a comment.
    pub names: Vec<(DraftName, String)>,
    /// Comments above it.
    pub remarks: Vec<String>,
}

/// The other side of a rule. The order is that of the rules in the text.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum DraftPeer {
    /// Pods with these labels.
    Pods(Labels),
    /// Addresses of a name.
    Name(DraftName),
    /// An entity by its word.
    Entity(&'static str),
    /// One address.
    Address(IpAddr),
}

/// A name, or many.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum DraftName {
    /// This name.
    Exact(Name),
    /// `*.name`: one label more.
    Below(Name),
}

impl Draft {
    /// The text. A direction without a rule opens nothing.
    #[must_use]
    pub fn text(&self) -> String {
        let mut out = String::new();
        comments(&mut out, "", &self.head);
        out.push_str("apiVersion: cilium.io/v2\nkind: CiliumNetworkPolicy\nmetadata:\n");
        let _ = writeln!(out, "  name: {}", plain(&self.name));
        if let Some(namespace) = &self.namespace {
            let _ = writeln!(out, "  namespace: {}", plain(namespace));
        }
        let _ = writeln!(out, "spec:\n  description: {}", quoted(self.description));
        if self.subject.is_empty() {
            out.push_str("  endpointSelector: {}\n");
        } else {
            out.push_str("  endpointSelector:\n    matchLabels:\n");
            labels(&mut out, "      ", &self.subject);
        }
        comments(&mut out, "  ", &self.remarks);
        for (field, word, rules) in [("egress", "to", &self.egress), ("ingress", "from", &self.ingress)] {
            let Some(rules) = rules else { continue };
            let _ = writeln!(out, "  {field}:");
            rules.iter().for_each(|rule| rule.write(&mut out, word));
            if rules.is_empty() {
                out.push_str("  - {}\n");
            }
        }
        out
    }
}

impl DraftRule {
    /// Rules of these peers: one per set of ports, with all peers of a kind that have exactly that set. ICMP stands in a rule
    /// of its own. How often each was seen is for `comment`.
    pub fn grouped(
        peers: impl IntoIterator<Item = (DraftPeer, PortCounts)>,
        comment: impl Fn(&DraftPeer, u64) -> String,
    ) -> Vec<Self> {
        let mut groups: BTreeMap<(usize, PortSet), Vec<(DraftPeer, String)>> = BTreeMap::new();
        for (peer, ports) in peers {
            let (icmp, ported): (PortCounts, PortCounts) =
                ports.into_iter().partition(|((p, _), _)| is_icmp(*p));
            for counts in [ported, icmp].into_iter().filter(|counts| !counts.is_empty()) {
                let seen = counts.values().fold(0u64, |sum, count| sum.saturating_add(*count));
                let of_peer = (peer.clone(), comment(&peer, seen));
                groups.entry((peer.kind(), counts.into_keys().collect())).or_default().push(of_peer);
            }
        }
        let rule = |((_, ports), mut peers): ((usize, PortSet), Vec<_>)| {
            peers.sort();
            Self { peers, ports, names: Vec::new(), remarks: Vec::new() }
        };
        let mut rules: Vec<Self> = groups.into_iter().map(rule).collect();
        rules.sort();
        rules
    }

    fn write(&self, out: &mut String, word: &str) {
        comments(out, "  ", &self.remarks);
        let field = self.peers.first().map_or("Endpoints", |(peer, _)| peer.field());
        let _ = writeln!(out, "  - {word}{field}:");
        for (peer, comment) in &self.peers {
            peer.write(out, comment);
        }
        let ports: Vec<_> = self.ports.iter().copied().collect();
        if ports.iter().any(|(p, _)| is_icmp(*p)) {
            icmp_fields(out, &ports);
        } else {
            port_blocks(out, &ports, &self.names);
        }
    }
}

impl DraftPeer {
    /// Peers of one rule are of one kind.
    pub(crate) fn kind(&self) -> usize {
        match self {
            Self::Pods(_) => 0,
            Self::Name(_) => 1,
            Self::Entity(_) => 2,
            Self::Address(_) => 3,
        }
    }

    fn field(&self) -> &'static str {
        ["Endpoints", "FQDNs", "Entities", "CIDR"][self.kind()]
    }

    fn write(&self, out: &mut String, comment: &str) {
        let comment = behind(comment);
        let _ = match self {
            Self::Pods(wanted) => {
                let _ = writeln!(out, "    - matchLabels:{comment}");
                labels(out, "        ", wanted);
                Ok(())
            }
            Self::Name(name) => writeln!(out, "    - {}{comment}", name.field()),
            Self::Entity(entity) => writeln!(out, "    - {entity}{comment}"),
            Self::Address(ip) => writeln!(out, "    - \"{}\"{comment}", host_net(*ip)),
        };
    }
}

impl DraftName {
    fn field(&self) -> String {
        match self {
            Self::Exact(name) => format!("matchName: \"{name}\""),
            Self::Below(name) => format!("matchPattern: \"*.{name}\""),
        }
    }
}

/// Blocks of as many ports as one may have, each with the names that may be asked for through it.
fn port_blocks(out: &mut String, ports: &[(Proto, u16)], names: &[(DraftName, String)]) {
    out.push_str("    toPorts:\n");
    for block in ports.chunks(MAX_ENTRIES) {
        out.push_str("    - ports:\n");
        for (proto, port) in block {
            let protocol = proto.to_string().to_uppercase();
            let _ = writeln!(out, "      - port: \"{port}\"\n        protocol: {protocol}");
        }
        if !names.is_empty() {
            out.push_str("      rules:\n        dns:\n");
        }
        for (name, comment) in names {
            let _ = writeln!(out, "        - {}{}", name.field(), behind(comment));
        }
    }
}

fn icmp_fields(out: &mut String, ports: &[(Proto, u16)]) {
    let types: BTreeSet<(&str, u16)> =
        ports.iter().map(|(p, port)| (if *p == Proto::Icmp { "IPv4" } else { "IPv6" }, port >> 8)).collect();
    let types: Vec<_> = types.into_iter().collect();
    out.push_str("    icmps:\n");
    for block in types.chunks(MAX_ENTRIES) {
        out.push_str("    - fields:\n");
        for (family, number) in block {
            let _ = writeln!(out, "      - family: {family}\n        type: {number}");
        }
    }
}

fn is_icmp(proto: Proto) -> bool {
    matches!(proto, Proto::Icmp | Proto::Icmpv6)
}

fn labels(out: &mut String, indent: &str, labels: &Labels) {
    for (key, value) in labels {
        let _ = writeln!(out, "{indent}{}: {}", quoted(&format!("k8s:{key}")), plain(value));
    }
}

fn comments(out: &mut String, indent: &str, lines: &[String]) {
    for line in lines {
        let _ = writeln!(out, "{indent}# {}", sanitised(line));
    }
}

/// A comment at the end of a line.
fn behind(comment: &str) -> String {
    if comment.is_empty() { String::new() } else { format!(" # {}", sanitised(comment)) }
}

/// The text without what could end a comment or steer a terminal.
#[must_use]
pub fn sanitised(text: &str) -> String {
    let plain = |c: char| if c == ' ' || c.is_ascii_graphic() { c } else { '?' };
    text.chars().take(MAX_COMMENT).map(plain).collect()
}

/// Words that readers of YAML 1.1 take for something else than a string.
const WORDS: [&str; 10] = ["y", "n", "yes", "no", "on", "off", "true", "false", "null", "nan"];

/// The text as it is if nobody can take it for anything else than a string, else in quotes.
fn plain(text: &str) -> String {
    let letter = text.starts_with(|c: char| c.is_ascii_lowercase());
    let safe = text.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-');
    if letter && safe && !WORDS.contains(&text) { text.to_owned() } else { quoted(text) }
}

fn quoted(text: &str) -> String {
    let mut out = String::from("\"");
    for c in text.chars() {
        match c {
            '"' | '\\' => out.extend(['\\', c]),
            ' ' => out.push(c),
            _ if c.is_ascii_graphic() => out.push(c),
            _ => {
                let _ = write!(out, "\\U{:08X}", u32::from(c));
            }
        }
    }
    out + "\""
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hostile_text_is_read_back_as_it_is_and_ends_no_comment() {
        let evil = "x\"\\\n- {}\u{1b}[31m\u{85}\u{2028}\u{1F600}: # y";
        let text = quoted(evil);
        assert!(text.is_ascii() && !text.contains(char::is_control), "{text}");
        assert_eq!(serde_yaml_ng::from_str::<String>(&text).unwrap(), evil);
        let comment = sanitised(evil);
        assert!(comment.is_ascii() && !comment.contains(char::is_control), "{comment}");
        assert_eq!(sanitised(&"a".repeat(5000)).len(), MAX_COMMENT);
    }

    #[test]
    fn names_that_are_words_of_yaml_are_quoted() {
        for (text, want) in [
            ("egret-run", "egret-run"),
            ("shop", "shop"),
            ("on", "\"on\""),
            ("1e3", "\"1e3\""),
            ("2026-12-01", "\"2026-12-01\""),
            ("a: b", "\"a: b\""),
        ] {
            assert_eq!(plain(text), want);
            assert_eq!(serde_yaml_ng::from_str::<String>(&plain(text)).unwrap(), text);
        }
    }
}
