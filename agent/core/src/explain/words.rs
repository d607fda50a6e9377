//! Numbers as words.

use egret_common::{
    grant::{GrantTime, secs_of_ticks},
    net::proto,
};

use crate::dns::RCODES;

/// `12 s ago`, `3 min ago`, `2 h ago`.
pub(super) fn ago(nanoseconds: u64) -> String {
    format!("{} ago", span(nanoseconds / 1_000_000_000))
}

/// `12 s`, `3 min`, `2 h`.
pub(super) fn span(seconds: u64) -> String {
    match seconds {
        0..=119 => format!("{seconds} s"),
        120..=7199 => format!("{} min", seconds / 60),
        _ => format!("{} h", seconds / 3600),
    }
}

/// How long something holds, or that it does not any more.
pub(super) fn left(expires: GrantTime, now: GrantTime) -> String {
    match expires.checked_sub(now).filter(|left| *left > 0) {
        Some(left) => format!("open for {} more", span(secs_of_ticks(left).into())),
        None => format!("expired {} ago", span(secs_of_ticks(now - expires).into())),
    }
}

/// `443/tcp`.
#[must_use]
pub fn port(protocol: u8, port: u16) -> String {
    match protocol {
        proto::TCP => format!("{port}/tcp"),
        proto::UDP => format!("{port}/udp"),
        proto::SCTP => format!("{port}/sctp"),
        proto::ICMP => format!("icmp type {}", port >> 8),
        proto::ICMPV6 => format!("icmpv6 type {}", port >> 8),
        other => format!("protocol {other}"),
    }
}

/// `a, b and c`; the first few of many.
pub(super) fn list<S: AsRef<str>>(of: &[S]) -> String {
    const MOST: usize = 8;
    let shown: Vec<&str> = of.iter().take(MOST).map(AsRef::as_ref).collect();
    match shown.as_slice() {
        [] => "nothing".into(),
        [one] => (*one).into(),
        _ if of.len() > MOST => format!("{} and {} more", shown.join(", "), of.len() - MOST),
        [first @ .., last] => format!("{} and {last}", first.join(", ")),
    }
}

/// The words for a response code (RFC 1035 4.1.1).
pub(super) fn rcode(code: u16) -> String {
    RCODES.get(usize::from(code)).map_or_else(|| format!("code {code}"), |name| (*name).to_owned())
}

/// The labels that somebody has written, without those that follow from the namespace and the service account.
pub(super) fn labels(of: &[String]) -> String {
    let written = |label: &&String| !label.contains("io.cilium.k8s.");
    list(&of.iter().filter(written).collect::<Vec<_>>())
}

/// `1 address`, `2 addresses`.
pub(super) fn addresses(count: usize) -> String {
    if count == 1 { "1 address".into() } else { format!("{count} addresses") }
}
