//! Probes, and the lines that say what is expected of them.

use std::fmt;

use serde::Deserialize;

/// One connection that is tried.
#[derive(Debug, Clone, Copy)]
pub struct Trial<'a> {
    /// `namespace/pod`, an address, or `world ` and an address.
    pub from: &'a str,
    /// As `from`, or `svc:namespace/name`.
    pub to: &'a str,
    /// Port, or type << 8 | code.
    pub port: &'a str,
    /// `tcp`, `udp`, `sctp`, `icmp`, `icmpv6` or a number.
    pub proto: &'a str,
    /// The family.
    pub v6: bool,
    /// The pod is tried by the ClusterIP that leads to it alone.
    pub by_service: bool,
}

/// What is expected of every probe of a step.
#[derive(Deserialize)]
#[serde(try_from = "Vec<String>")]
pub enum Expect {
    /// The last line that fits counts.
    Lines(Vec<Line>),
    /// What the policies mean.
    Meaning(Box<dyn Fn(&Trial<'_>) -> bool>),
}

impl Default for Expect {
    fn default() -> Self {
        Self::Lines(Vec::new())
    }
}

impl fmt::Debug for Expect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Lines(lines) => f.debug_list().entries(lines.iter().map(|l| &l.text)).finish(),
            Self::Meaning(_) => f.write_str("a meaning"),
        }
    }
}

impl TryFrom<Vec<String>> for Expect {
    type Error = String;

    fn try_from(lines: Vec<String>) -> Result<Self, String> {
        Ok(Self::Lines(lines.iter().map(|l| Line::read(l)).collect::<Result<_, _>>()?))
    }
}

impl Expect {
    /// Whether nothing is asked.
    #[must_use]
    pub fn is_silent(&self) -> bool {
        matches!(self, Self::Lines(lines) if lines.is_empty())
    }

    /// Whether the connection may begin, and by which line.
    ///
    /// # Panics
    /// When no line fits.
    #[must_use]
    pub fn of(&self, trial: &Trial<'_>) -> (bool, &str) {
        match self {
            Self::Meaning(means) => (means(trial), "its meaning"),
            Self::Lines(lines) => {
                let line = lines.iter().rev().find(|l| l.fits(trial));
                let line = line.unwrap_or_else(|| panic!("no line is about {trial:?}"));
                (line.allow, &line.text)
            }
        }
    }
}

/// `allow FROM -> TO [PORT/PROTO] [v4|v6] [podip|svc]`. FROM and TO are lists with commas: `*`, `namespace/pod` with
/// stars, an address, `world`, and for TO `svc:namespace/name` with stars.
#[derive(Debug, Clone)]
pub struct Line {
    text: String,
    allow: bool,
    from: Vec<String>,
    to: Vec<String>,
    ports: (String, String),
    v6: Option<bool>,
    by_service: Option<bool>,
}

impl Line {
    fn read(text: &str) -> Result<Self, String> {
        let wrong = |what: &str| format!("`{text}`: {what}");
        let mut words = text.split_whitespace();
        let allow = match words.next() {
            Some("allow") => true,
            Some("deny") => false,
            _ => return Err(wrong("begins with neither allow nor deny")),
        };
        let list =
            |w: Option<&str>| w.map(|w| w.split(',').map(str::to_owned).collect()).ok_or(wrong("too short"));
        let from = list(words.next())?;
        if words.next() != Some("->") {
            return Err(wrong("has no arrow"));
        }
        let to = list(words.next())?;
        let ports = ("*".to_owned(), "*".to_owned());
        let mut line = Self { text: text.to_owned(), allow, from, to, ports, v6: None, by_service: None };
        for word in words {
            match (word, word.split_once('/')) {
                ("v4" | "v6", _) => line.v6 = Some(word == "v6"),
                ("podip" | "svc", _) => line.by_service = Some(word == "svc"),
                (_, Some((port, proto))) => line.ports = (port.to_owned(), proto.to_owned()),
                _ => return Err(wrong("ends in a word that means nothing")),
            }
        }
        Ok(line)
    }

    fn fits(&self, trial: &Trial<'_>) -> bool {
        fits_any(&self.from, trial.from)
            && fits_any(&self.to, trial.to)
            && fits(&self.ports.0, trial.port)
            && fits(&self.ports.1, trial.proto)
            && self.v6.is_none_or(|v6| v6 == trial.v6)
            && self.by_service.is_none_or(|by| by == trial.by_service)
    }
}

fn fits(pattern: &str, text: &str) -> bool {
    pattern == "*" || pattern == text
}

fn fits_any(patterns: &[String], who: &str) -> bool {
    let kind = |text: &str| (text.starts_with("svc:"), text.contains('/'));
    patterns.iter().any(|pattern| match pattern.as_str() {
        "*" => true,
        "world" => who.starts_with("world "),
        _ if kind(pattern) != kind(who) => false,
        _ => match (pattern.split_once('/'), who.split_once('/')) {
            (Some((ns, name)), Some((of, called))) => {
                fits(ns.trim_start_matches("svc:"), of.trim_start_matches("svc:")) && fits(name, called)
            }
            _ => pattern == who.trim_start_matches("world "),
        },
    })
}

/// The IP protocol number of a probe.
///
/// # Panics
/// When it is none.
#[must_use]
pub fn protocol(text: &str) -> u8 {
    match text {
        "tcp" => 6,
        "udp" => 17,
        "sctp" => 132,
        "icmp" => 1,
        "icmpv6" => 58,
        number => number.parse().unwrap_or_else(|_| panic!("`{number}` is no protocol")),
    }
}
