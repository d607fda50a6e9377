//! What the kernel tells: DNS messages, flows, and addresses in use.

use std::collections::BTreeSet;
use std::net::IpAddr;

use egret_common::event::DNS_SLOW;
use egret_common::grant::GrantTime;
use egret_common::ids::EndpointId;
use egret_common::net::Addr;
use egret_core::compile::addr;
use egret_core::desired::diff;

use super::keeper::Keeper;
use crate::connection;
use crate::datapath::ApplyError;
use crate::learn::{Effects, now};
use crate::tell;

impl Keeper {
    /// Reads all DNS records and does what follows.
    pub(super) fn read_dns(&mut self) {
        // An answer is done with when it was read, and everything that follows from it was written. What is pending is
        // asked before that: one that comes meanwhile has its own turn.
        let done = std::mem::take(&mut self.slow);
        let pending: Vec<(EndpointId, u64)> =
            done.into_iter().map(|id| (id, self.datapath.endpoint_state(id).pending_until)).collect();
        let (learner, slow) = (&mut self.learner, &mut self.slow);
        let mut all = Effects::default();
        let mut failed = 0;
        let mut messages = Vec::new();
        let count = self.dns.drain(|record| {
            if record.event.flags & DNS_SLOW != 0 {
                slow.insert(record.event.endpoint);
            }
            let mut hear = |message: &[u8]| messages.push((record.event, message.to_vec()));
            match learner.see_and(&record.event, record.payload, &mut hear) {
                Ok(effects) => {
                    all.ops.extend(effects.ops);
                    all.grants.extend(effects.grants);
                }
                Err(_) => failed += 1,
            }
        });
        self.complain(
            "a name has more port ranges than the kernel's table holds: it stays closed".into(),
            failed,
        );
        if count > 0 {
            self.perform(&all);
        }
        self.show_messages(&messages);
        for (id, until) in pending.into_iter().filter(|(_, until)| *until != 0) {
            // If it fails, the silence ends by itself.
            let _ = self.datapath.settle(id, until);
        }
    }

    /// Writes to the maps; what a class number means is written down before.
    pub(super) fn perform(&mut self, effects: &Effects) {
        if !effects.ops.is_empty() {
            self.save();
        }
        if let Err(error) = self.datapath.apply(&effects.ops) {
            self.miss(&error);
        }
        let mut refused = 0;
        for g in &effects.grants {
            let made = self.datapath.grant(g.key.endpoint, g.key.addr, g.class, g.expires);
            // No room: the kernel counts that.
            refused += u64::from(made.is_err());
        }
        self.complain("a learned address could not be written".into(), refused);
    }

    /// What could not be written is not forgotten: rules come before the endpoints that they are for, so what was in force
    /// stays until all of it fits ([`Keeper::complete`]).
    fn miss(&mut self, error: &ApplyError) {
        let text = format!("the newest rules are not in force: {error}");
        if self.incomplete.as_ref() != Some(&text) {
            tell::line(format_args!("warning: {text}"));
        }
        self.incomplete = Some(text);
    }

    /// Writes what the maps lack since a write has failed.
    pub(super) fn complete(&mut self) {
        if self.incomplete.is_none() {
            return;
        }
        let ops = diff(&self.datapath.content(), self.learner.state().desired());
        match self.datapath.apply(&ops) {
            Ok(()) => {
                self.incomplete = None;
                self.revision += 1;
                self.recorder.changed();
                tell::line("the newest rules are in force now");
            }
            Err(error) => self.miss(&error),
        }
    }

    /// Where the kernel found no room for an address, what is over goes at once, and is not remembered to explain
    /// denials (CASES L-A03).
    pub(super) fn make_room(&mut self) {
        let full = self.registry.iter().map(|e| self.datapath.endpoint_state(e.id).map_full).sum();
        if full > self.map_full {
            let missed = full - self.map_full;
            self.complain("the kernel's table of learned addresses had no room".into(), missed);
            self.sweep(now());
        }
        self.map_full = full;
    }

    /// Removes grants that ended before `before`, or all that ended if there is little room.
    pub(super) fn sweep(&self, before: GrantTime) {
        self.datapath.sweep_for_room(before, now(), || self.used().unwrap_or_default());
    }

    /// The addresses that endpoints have connections to. `None`: the kernel does not tell.
    fn used(&self) -> Option<BTreeSet<(EndpointId, Addr)>> {
        let jiffies = self.datapath.clock().ok()?.jiffies;
        let hz = u64::from(self.datapath.hz());
        let flows = self.datapath.flows().into_iter();
        let live = flows.filter(|(_, value)| connection::is_live(value, jiffies, hz));
        Some(live.map(|(key, _)| (key.endpoint, key.remote)).collect())
    }

    /// Reads all flow records: they are for whoever observes.
    pub(super) fn read_flows(&mut self) {
        let mut events = Vec::new();
        self.flows.drain(|event| events.push(event));
        if !events.is_empty() {
            // Whatever these endpoints were told before is in the other ring by now: so no flow lacks a name that was.
            self.read_dns();
        }
        self.show_events(&events);
    }

    /// Grants whose address an endpoint still has a connection to are prolonged.
    pub(super) fn keep(&mut self) {
        let now = now();
        let ids: Vec<EndpointId> = self.registry.iter().map(|entry| entry.id).collect();
        let ending: Vec<EndpointId> =
            ids.into_iter().filter(|id| self.learner.state().has_ending(*id, now)).collect();
        if ending.is_empty() {
            return;
        }
        let Some(used) = self.used() else { return };
        let mut grants = Vec::new();
        for id in ending {
            let in_use = |ip: IpAddr| used.contains(&(id, addr(ip)));
            grants.extend(self.learner.state_mut().keep_in_use(id, in_use, now));
        }
        self.recorder.kept(grants.len());
        self.perform(&Effects { ops: Vec::new(), grants });
    }
}
