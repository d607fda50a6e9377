//! The agent's part while CMD runs: one task that owns the state and everything that is written to the maps.
//!
//! DNS records that wait for an answer wake it at once; all others are read every 10 ms. Enforcement does not depend on
//! it: when egret is killed, names that the kernel's fast path knows go on to work, and nothing is freed.

use std::collections::BTreeMap;
use std::future::Future;
use std::io;
use std::net::IpAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;
use std::pin::pin;
use std::time::Duration;

use egret_common::decide::{Decision, Question};
use egret_common::event::{DNS_SLOW, FlowEvent};
use egret_common::grant::ticks_of_secs;
use egret_common::ids::EndpointId;
use egret_common::judge::judge_connect;
use egret_common::maps::{Destination, DestinationKey};
use egret_common::net::Direction;
use egret_core::desired::View;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::time::{MissedTickBehavior, interval};

use super::tally::Tally;
use super::{live, reset};
use crate::datapath::{Datapath, DnsRecord, Ring, Sizes};
use crate::learn::{Effects, Learner, ip, now, socket};
use crate::tell;
use crate::{connection, host};

/// How often records are read that nobody waits for.
const DRAIN: Duration = Duration::from_millis(10);
/// How often grants that end soon are looked at: half the shortest lifetime there is.
const KEEP: Duration = Duration::from_millis(500);
/// How often this host's addresses and the destinations are read.
const ADDRESSES: Duration = Duration::from_secs(2);
/// How often dead grants are removed.
const SWEEP: Duration = Duration::from_secs(30);
/// How often it is checked that the programs are still on their hooks.
const VERIFY: Duration = Duration::from_secs(60);
/// For so long after its end a grant stays, to explain denials ("expired N s ago").
const REMEMBER: u32 = 600;

/// What the task needs to know.
#[derive(Debug)]
pub(super) struct Setting {
    /// The workload.
    pub(super) endpoint: EndpointId,
    /// Its cgroup directory.
    pub(super) cgroup: PathBuf,
    /// This host's addresses, as the kernel was told them.
    pub(super) host: BTreeMap<IpAddr, u32>,
    /// `--keep-in-use`.
    pub(super) keep_in_use: bool,
    /// `--on-deny reject`: nothing may hang.
    pub(super) reject: bool,
    /// `--verbose`.
    pub(super) verbose: bool,
}

/// The task.
#[derive(Debug)]
pub(super) struct Watch {
    /// The maps.
    pub(super) datapath: Datapath,
    /// The state.
    pub(super) learner: Learner,
    /// What does not change, but for this host's addresses.
    pub(super) setting: Setting,
    dns: Ring<DnsRecord<'static>>,
    flows: Ring<FlowEvent>,
    tally: Tally,
    map_full: u64,
    complaints: BTreeMap<&'static str, u64>,
}

impl Watch {
    /// Takes everything over.
    #[must_use]
    pub(super) fn new(mut datapath: Datapath, learner: Learner, setting: Setting) -> Self {
        let (dns, flows) = (datapath.take_dns_ring(), datapath.take_flow_ring());
        let tally = Tally::default();
        Self { datapath, learner, setting, dns, flows, tally, map_full: 0, complaints: BTreeMap::new() }
    }

    /// Works until `end`, and once more after it, so that nothing is missing in the report.
    pub(super) async fn until<T>(&mut self, end: impl Future<Output = T>) -> io::Result<T> {
        let mut end = pin!(end);
        let waiting: OwnedFd = self.dns.as_fd().try_clone_to_owned()?;
        // SAFETY: the descriptor stays open for as long as `waiting`, which owns it.
        let waiting = unsafe { AsyncFd::register_with_interest(waiting, Interest::READABLE) }?;
        let periods = [DRAIN, KEEP, ADDRESSES, SWEEP, VERIFY];
        let [mut drain, mut keep, mut addresses, mut sweep, mut verify] = periods.map(|period| {
            let mut timer = interval(period);
            timer.set_missed_tick_behavior(MissedTickBehavior::Skip);
            timer
        });
        let out = loop {
            tokio::select! {
                out = &mut end => break out,
                ready = waiting.readable() => {
                    // First, so that a record which comes while the others are read wakes again.
                    ready?.clear_ready();
                    self.read_dns();
                }
                _ = drain.tick() => {
                    self.read_dns();
                    self.read_flows();
                }
                _ = keep.tick(), if self.setting.keep_in_use => self.keep(),
                _ = addresses.tick() => {
                    self.read_addresses();
                    self.read_destinations();
                }
                _ = sweep.tick() => self.sweep(),
                _ = verify.tick() => self.verify(),
            }
        };
        self.read_dns();
        self.read_flows();
        self.read_destinations();
        Ok(out)
    }

    /// All destinations of the run.
    pub(super) fn destinations(&self) -> Vec<(DestinationKey, Destination)> {
        self.tally.all()
    }

    /// What went wrong on the way, for the report.
    pub(super) fn complaints(&self) -> impl Iterator<Item = String> {
        self.complaints.iter().map(|(what, count)| format!("{what} ({count} times)"))
    }

    fn read_dns(&mut self) {
        let (learner, verbose) = (&mut self.learner, self.setting.verbose);
        let mut all = Effects::default();
        let (mut failed, mut slow) = (0, false);
        let pending = self.datapath.endpoint_state(self.setting.endpoint).pending_until;
        self.dns.drain(|record| {
            slow |= record.event.flags & DNS_SLOW != 0;
            match learner.see(&record.event, record.payload) {
                Ok(effects) => {
                    all.ops.extend(effects.ops);
                    all.grants.extend(effects.grants);
                }
                Err(_) => failed += 1,
            }
            if verbose {
                live::query(&record.event, learner);
            }
        });
        self.complain("a name has more port ranges than the kernel's table holds: it stays closed", failed);
        self.perform(&all);
        if slow && pending != 0 {
            // If it fails, the silence ends by itself.
            let _ = self.datapath.settle(self.setting.endpoint, pending);
        }
    }

    fn perform(&mut self, effects: &Effects) {
        if let Err(error) = self.datapath.apply(&effects.ops) {
            if self.setting.verbose {
                tell::line(&error);
            }
            self.complain("a kernel table did not take an entry: names of slow patterns may stay closed", 1);
        }
        let mut refused = 0;
        for g in &effects.grants {
            let made = self.datapath.grant(g.key.endpoint, g.key.addr, g.class, g.expires);
            refused += u64::from(!matches!(made, Ok(true)));
        }
        self.complain("the kernel's table of learned addresses had no room", refused);
    }

    fn complain(&mut self, what: &'static str, count: u64) {
        if count > 0 {
            *self.complaints.entry(what).or_default() += count;
        }
    }

    fn read_flows(&mut self) {
        let (learner, verbose, endpoint) = (&self.learner, self.setting.verbose, self.setting.endpoint);
        let (mut hang, mut silent) = (Vec::new(), Vec::new());
        self.flows.drain(|event| {
            if event.endpoint != endpoint || event.reason == 0 {
                return;
            }
            if verbose {
                live::denial(&event, learner);
            }
            if connection::refused_stream(&event) {
                hang.push(event);
            } else if connection::silent_connect(&event) {
                silent.push(event);
            }
        });
        if !self.setting.reject {
            return;
        }
        hang.extend(self.still_denied(silent));
        for event in hang {
            let (local, remote) =
                (socket(event.local, event.local_port), socket(event.remote, event.remote_port));
            // The client then waits for its own timeout, as without this.
            let _ = reset::connection(local, remote);
        }
    }

    /// Of connects that were dropped in silence, since an answer was on its way, those that it did not open. All
    /// answers that came before them have been read by now.
    fn still_denied(&self, mut silent: Vec<FlowEvent>) -> Vec<FlowEvent> {
        let Some(endpoint) = self.learner.state().desired().endpoints.get(&self.setting.endpoint) else {
            return Vec::new();
        };
        if silent.is_empty() {
            return silent;
        }
        let grants = self.datapath.grants().into_iter().collect();
        let view = View { desired: self.learner.state().desired(), grants: &grants, now: now() };
        silent.retain(|e| {
            let question = Question {
                remote: e.remote,
                direction: Direction::Egress,
                proto: e.proto,
                port: e.remote_port,
            };
            let mut decision = Decision::default();
            judge_connect(&view, endpoint, &question, &mut decision);
            decision.reason != 0
        });
        silent
    }

    /// Grants whose address CMD still has a connection to are prolonged.
    fn keep(&mut self) {
        let now = now();
        if !self.learner.state().has_ending(self.setting.endpoint, now) {
            return;
        }
        let Ok(clock) = self.datapath.clock() else { return };
        let hz = u64::from(self.datapath.hz());
        let flows = self.datapath.flows();
        let live = flows.iter().filter(|(_, value)| connection::is_live(value, clock.jiffies, hz));
        let used: std::collections::BTreeSet<IpAddr> = live.map(|(key, _)| ip(key.remote)).collect();
        let grants =
            self.learner.state_mut().keep_in_use(self.setting.endpoint, |ip| used.contains(&ip), now);
        self.perform(&Effects { ops: Vec::new(), grants });
    }

    fn read_addresses(&mut self) {
        let host = host::addresses();
        if host != self.setting.host && !host.is_empty() {
            match self.learner.state_mut().set_identities(host.clone()) {
                Ok(ops) => self.perform(&Effects { ops, grants: Vec::new() }),
                Err(_) => self.complain("other addresses of this host are not known to the rules", 1),
            }
            self.setting.host = host;
        }
        let full = self.datapath.endpoint_state(self.setting.endpoint).map_full;
        if full != self.map_full {
            self.map_full = full;
            self.datapath.sweep(now());
        }
    }

    fn read_destinations(&mut self) {
        let table = self.datapath.destinations();
        let crowded = table.len() * 10 >= Sizes::run().destinations as usize * 9;
        self.complain(
            "the kernel's table of destinations was nearly full: the report may lack some",
            u64::from(crowded),
        );
        self.tally.add(table);
    }

    fn verify(&mut self) {
        if let Err(error) = self.datapath.verify(&self.setting.cgroup) {
            tell::line(format_args!("warning: enforcement was interfered with: {error}"));
            self.complain("the programs were found changed on their hooks: CMD may not have been held", 1);
        }
    }

    fn sweep(&mut self) {
        self.datapath.sweep(now().saturating_sub(ticks_of_secs(REMEMBER)));
    }
}
