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
