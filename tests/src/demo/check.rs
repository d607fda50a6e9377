//! What was seen of a step: the attempts that its programs print, the report, the captures, the resolver.

use super::stage::Captures;
use super::steps::Verdict;
use crate::egret::Run;
use crate::lab::Lab;

/// One attempt, as the programs of the steps print it: `CODE SECONDS`, before it the server's banner.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Attempt {
    /// curl's exit code, or 0 for success.
    pub(super) code: i32,
    /// How long it took.
    pub(super) seconds: f64,
    /// `address:port` that answered.
    pub(super) reached: Option<String>,
}

/// The attempts in a program's output.
pub(super) fn attempts(stdout: &str) -> Vec<Attempt> {
    let mut reached = None;
    let mut found = Vec::new();
    for line in stdout.lines() {
        if let Some(banner) = line.strip_prefix("reached ") {
            reached = banner.split_whitespace().next().map(String::from);
        } else if let Some((code, seconds)) = numbers(line) {
            found.push(Attempt { code, seconds, reached: reached.take() });
        }
    }
    found
}

fn numbers(line: &str) -> Option<(i32, f64)> {
    let (code, seconds) = line.split_once(' ')?;
    Some((code.parse().ok()?, seconds.parse().ok()?))
}

/// All that a check may look at.
pub(super) struct Seen<'a> {
    /// Outcome and report of `egret run`.
    pub(super) run: &'a Run,
    /// Resolver and servers.
    pub(super) lab: &'a Lab,
    /// Packets that arrived.
    pub(super) captures: &'a Captures,
    /// Seconds within which a refusal must come.
    pub(super) at_once: f64,
}

impl Seen<'_> {
    /// The `n`th attempt.
    pub(super) fn attempt(&self, n: usize) -> Result<Attempt, String> {
        let list = attempts(&self.run.outcome.stdout);
        list.get(n).cloned().ok_or_else(|| format!("attempt {} was not made", n + 1))
    }

    /// The `n`th attempt reached `target`.
    pub(super) fn reaches(&self, n: usize, target: &str) -> Verdict {
        let attempt = self.attempt(n)?;
        match attempt.reached.as_deref() {
            Some(reached) if reached == target && attempt.code == 0 => Ok(format!("reached {target}")),
            Some(reached) => Err(format!("reached {reached}")),
            None => Err(format!("not reached (code {})", attempt.code)),
        }
    }

    /// The `n`th attempt failed at once with `code` (curl: 6 = name, 7 = connect).
    pub(super) fn refused(&self, n: usize, code: i32) -> Verdict {
        let attempt = self.attempt(n)?;
        let seen = match attempt.reached {
            Some(reached) => format!("reached {reached}"),
            None if attempt.code == code => format!("refused in {:.1} ms", attempt.seconds * 1e3),
            None => format!("failed with code {} after {:.1} s", attempt.code, attempt.seconds),
        };
        let refused = seen.starts_with("refused") && attempt.seconds < self.at_once;
        if refused { Ok(seen) } else { Err(seen) }
    }

    /// The report gives `reason` for `protocol` to `target`.
    pub(super) fn reason(&self, protocol: &str, target: &str, reason: &str) -> Verdict {
        let wanted = target.parse().ok();
        let row = self.run.report.denied().into_iter().find(|row| {
            row.protocol == protocol
                && row.address.map(|ip| std::net::SocketAddr::new(ip.to_canonical(), row.port)) == wanted
        });
        match row {
            Some(row) if row.reason == reason => Ok(row.reason),
            Some(row) => Err(format!("reported as {}", row.reason)),
            None => Err(format!("{protocol} {target} is not in the report")),
        }
    }

    /// Not one packet to `address` arrived at the servers.
    pub(super) fn nothing_arrived(&self, address: &str) -> Verdict {
        match self.captures.web.count_to(address) {
            0 => Ok("no packet arrived".into()),
            count => Err(format!("{count} packets arrived at {address}")),
        }
    }

    /// The resolver was not asked about `part`, and no packet with it came near.
    pub(super) fn never_asked(&self, part: &str) -> Verdict {
        let holds = |bytes: &[u8]| {
            bytes.to_ascii_lowercase().windows(part.len()).any(|window| window == part.as_bytes())
        };
        let asked = self.lab.queries().count_by(|query| holds(&query.bytes));
        let packets = self.captures.dns.all().iter().filter(|packet| holds(&packet.bytes)).count();
        match (asked, packets) {
            (0, 0) => Ok("0 queries, 0 packets at the resolver".into()),
            _ => Err(format!("{asked} queries, {packets} packets at the resolver")),
        }
    }
}

/// All parts in order, joined; the first that fails ends it.
pub(super) fn all(parts: &[Verdict]) -> Verdict {
    let texts: Result<Vec<String>, String> = parts.iter().cloned().collect();
    texts.map(|texts| texts.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attempts_are_read() {
        let found = attempts("reached 192.0.2.1:80 from 10.7.0.2:4000\n0 0.004\n7 0.001\nother text\n");
        let first = Attempt { code: 0, seconds: 0.004, reached: Some("192.0.2.1:80".into()) };
        assert_eq!(found, [first, Attempt { code: 7, seconds: 0.001, reached: None }]);
    }

    #[test]
    fn the_first_failure_ends_a_row() {
        assert_eq!(all(&[Ok("a".into()), Ok("b".into())]), Ok("a, b".into()));
        assert_eq!(all(&[Ok("a".into()), Err("b".into()), Err("c".into())]), Err("b".into()));
    }
}
