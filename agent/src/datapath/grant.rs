//! Writing `GRANTS` and reading the kernel's clocks: through programs, since only a program can write a grant
//! atomically beside the learner, and only a program can read both clocks at one moment.

use std::collections::BTreeSet;

use egret_common::{
    event::{CLOCK_AT, ClockReading, GRANT_PUT, GRANT_SETTLE, GRANT_SWEEP, GrantRequest},
    grant::{self, GrantTime},
    ids::{ClassId, EndpointId},
    maps::{GrantKey, Grants},
    net::Addr,
};

use super::{Datapath, RunError};

const GRANT: &str = "egret_grant";
const CLOCK: &str = "egret_clock";

impl Datapath {
    /// Opens `addr` for `endpoint` under `class` until `expires`; a longer lifetime that stands already is kept.
    /// `Ok(false)`: no room, which the kernel counted.
    ///
    /// # Errors
    /// [`RunError`] when the program does not run.
    pub fn grant(
        &self,
        endpoint: u32,
        addr: Addr,
        class: ClassId,
        expires: GrantTime,
    ) -> Result<bool, RunError> {
        self.request(&GrantRequest { addr, endpoint, class, expires, op: GRANT_PUT })
    }

    /// Removes the entries of `GRANTS` whose slots all expired before `before`. Returns how many.
    pub fn sweep(&self, before: GrantTime) -> usize {
        self.sweep_among(self.grants(), before, Default::default)
    }

    /// As [`Datapath::sweep`]; but where more than half of the room is taken, everything goes that is over `now`. Never
    /// what `in_use` gives: by an expired grant an open connection is judged again.
    pub fn sweep_for_room(
        &self,
        before: GrantTime,
        now: GrantTime,
        in_use: impl FnOnce() -> BTreeSet<(EndpointId, Addr)>,
    ) -> usize {
        let grants = self.grants();
        let crowded = grants.len() > self.sizes.grants as usize / 2;
        self.sweep_among(grants, if crowded { now } else { before }, in_use)
    }

    fn sweep_among(
        &self,
        grants: Vec<(GrantKey, Grants)>,
        before: GrantTime,
        in_use: impl FnOnce() -> BTreeSet<(EndpointId, Addr)>,
    ) -> usize {
        let over = |slots: &[u64]| slots.iter().all(|slot| *slot == 0 || grant::expires(*slot) < before);
        let over: Vec<GrantKey> =
            grants.into_iter().filter(|(_, grants)| over(&grants.slots)).map(|(key, _)| key).collect();
        if over.is_empty() {
            return 0;
        }
        let in_use = in_use();
        let dead = over.iter().filter(|key| !in_use.contains(&(key.endpoint, key.addr)));
        dead.filter(|key| self.sweep_one(key, before)).count()
    }

    fn sweep_one(&self, key: &GrantKey, before: GrantTime) -> bool {
        let GrantKey { addr, endpoint, .. } = *key;
        let request = GrantRequest { addr, endpoint, class: 0, expires: before, op: GRANT_SWEEP };
        // The program looks again; what it leaves is looked at in the next sweep.
        self.request(&request).unwrap_or(false)
    }

    /// Tells the kernel that every answer is done with that was on its way when `EndpointState::pending_until` was
    /// `pending_until`: what is refused from now on is refused at once. `Ok(false)`: another one came since.
    ///
    /// # Errors
    /// [`RunError`] when the program does not run.
    pub fn settle(&self, endpoint: u32, pending_until: u64) -> Result<bool, RunError> {
        let (addr, expires) = (Addr::default(), pending_until as u32);
        self.request(&GrantRequest { addr, endpoint, class: 0, expires, op: GRANT_SETTLE })
    }

    fn request(&self, request: &GrantRequest) -> Result<bool, RunError> {
        let mut packet = vec![0; CLOCK_AT];
        packet.extend(request.addr.octets());
        for word in [request.endpoint, request.class, request.expires, request.op] {
            packet.extend(word.to_ne_bytes());
        }
        match self.test_run(GRANT, &packet, 1)?.value {
            0 => Ok(true),
            1 => Ok(false),
            other => Err(RunError { program: GRANT, error: format!("it returned {other}") }),
        }
    }

    /// Jiffies and boot time, read at one moment.
    ///
    /// # Errors
    /// [`RunError`] when the program does not run.
    pub fn clock(&self) -> Result<ClockReading, RunError> {
        let run = self.test_run(CLOCK, &[0; CLOCK_AT + size_of::<ClockReading>() + 8], 1)?;
        let word = |at: usize| Some(u64::from_ne_bytes(run.packet.get(at..at + 8)?.try_into().ok()?));
        let reading = || Some(ClockReading { jiffies: word(CLOCK_AT)?, boot_ns: word(CLOCK_AT + 8)? });
        reading().filter(|_| run.value == 0).ok_or_else(|| RunError {
            program: CLOCK,
            error: format!("it returned {} and {} bytes", run.value, run.packet.len()),
        })
    }
}
