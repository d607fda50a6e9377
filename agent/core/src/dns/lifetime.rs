//! How long a learned address opens new connections (DESIGN 3.4; CASES W-A13, T-A02).

use egret_common::grant::{GrantTime, ticks_of_secs};

/// Floor, cap and grace, all in seconds. `floor <= cap`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Lifetime {
    floor: u32,
    cap: u32,
    grace: u32,
}

impl Default for Lifetime {
    /// Floor 5 s (a TTL of 0 must serve the transaction in progress), cap 24 h, grace 30 s (the default DNS cache of
    /// a JVM).
    fn default() -> Self {
        Self { floor: 5, cap: 86_400, grace: 30 }
    }
}

impl Lifetime {
    /// Limits in seconds; `None` if the floor is above the cap.
    #[must_use]
    pub fn new(floor: u32, cap: u32, grace: u32) -> Option<Self> {
        (floor <= cap).then_some(Self { floor, cap, grace })
    }

    /// Shortest lifetime before grace, in seconds.
    #[must_use]
    pub fn floor(&self) -> u32 {
        self.floor
    }

    /// Longest lifetime before grace, in seconds.
    #[must_use]
    pub fn cap(&self) -> u32 {
        self.cap
    }

    /// Seconds added to every lifetime.
    #[must_use]
    pub fn grace(&self) -> u32 {
        self.grace
    }

    /// When an address learned at `now` with this TTL (seconds) stops opening new connections.
    #[must_use]
    pub fn expiry(&self, now: GrantTime, ttl: u32) -> GrantTime {
        let seconds = ttl.clamp(self.floor, self.cap).saturating_add(self.grace);
        now.saturating_add(ticks_of_secs(seconds))
    }
}

/// Whether and how far a grant is extended while its address is in use (`keep-in-use`).
///
/// `in_use`: the workload still has an open connection to the address. The extension is short, so that it ends soon
/// after the connection does: floor and grace from now, decided again each time the agent looks.
#[must_use]
pub fn keep_in_use(
    lifetime: &Lifetime,
    expires: GrantTime,
    in_use: bool,
    now: GrantTime,
) -> Option<GrantTime> {
    let until = lifetime.expiry(now, 0);
    let dead = expires <= now;
    (in_use && !dead && expires < until).then_some(until)
}

#[cfg(test)]
mod tests {
    use super::*;
    use egret_common::{grant, maps::Endpoint};

    fn check(ttl: u32, want_seconds: u32) {
        let life = Lifetime::default();
        assert_eq!(life.expiry(1000, ttl), 1000 + ticks_of_secs(want_seconds));
        let endpoint = Endpoint {
            ttl_floor: life.floor(),
            ttl_cap: life.cap(),
            grace: life.grace(),
            ..Endpoint::default()
        };
        assert_eq!(life.expiry(1000, ttl), grant::expiry(&endpoint, 1000, ttl), "kernel and agent agree");
    }

    #[test]
    fn w_a13_floor_cap_and_grace() {
        check(0, 35);
        check(1, 35);
        check(5, 35);
        check(6, 36);
        check(86_400, 86_430);
        check(u32::MAX, 86_430);
        assert_eq!(Lifetime::new(10, 5, 0), None);
    }

    #[test]
    fn t_a02_grace_is_settable() {
        let short = Lifetime::new(5, 60, 0).unwrap();
        assert_eq!(short.expiry(0, 5), ticks_of_secs(5));
        let long = Lifetime::new(5, 60, 60).unwrap();
        assert_eq!(long.expiry(0, 5), ticks_of_secs(65));
    }

    #[test]
    fn t_a01_use_keeps_a_grant_alive_and_never_revives_one() {
        let life = Lifetime::default();
        let now = 10_000;
        let soon = now + ticks_of_secs(10);
        assert_eq!(keep_in_use(&life, soon, true, now), Some(now + ticks_of_secs(35)));
        assert_eq!(keep_in_use(&life, soon, false, now), None);
        assert_eq!(keep_in_use(&life, now + ticks_of_secs(60), true, now), None, "far from its end");
        assert_eq!(keep_in_use(&life, now, true, now), None, "dead already");
    }
}
