//! The one task that owns the state, the maps and the places: what happens, in the order in which it is seen.

use std::collections::{BTreeMap, BTreeSet};
use std::future::Future;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;
use std::pin::pin;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use egret_common::event::FlowEvent;
use egret_common::grant::{self, ticks_of_secs};
use egret_common::ids::EndpointId;
use egret_common::maps::ENDPOINT_AUDIT;
use egret_core::dns::lifetime::Lifetime;
use egret_core::names::Name;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::sync::mpsc;
use tokio::time::{Instant, Interval, MissedTickBehavior, interval, sleep_until};

use super::history::History;
use super::objects::{Objects, Picture};
use super::publish::Recorder;
use super::registry::Registry;
use super::saved::MemoryFile;
use super::startup::Guard;
use super::withheld::Withheld;
use crate::api::server::Server;
use crate::cli::StartupMode;
use crate::datapath::tc::Method;
use crate::datapath::{Datapath, DnsRecord, Ring};
use crate::host;
use crate::learn::{Effects, Learner, now};
use crate::netlink::Subscription;
use crate::observe::Feeder;
use crate::place::Host;
use crate::sandbox::cgroup::Hierarchy;
use crate::source::{News, Told};
use crate::tell;

/// How often records are read that nobody waits for.
const DRAIN: Duration = Duration::from_millis(10);
/// How often pods are looked for that were not found, and interfaces that may be gone.
const LOOK: Duration = Duration::from_millis(250);
/// How often grants that end soon are looked at, and whether there is room for more.
const KEEP: Duration = Duration::from_millis(500);
/// How often this host's addresses are read.
const ADDRESSES: Duration = Duration::from_secs(2);
/// How often what workloads were told is written down.
const SAVE: Duration = Duration::from_secs(1);
/// How often dead grants are removed.
const SWEEP: Duration = Duration::from_secs(10);
/// How often it is checked that the programs are in their places.
const VERIFY: Duration = Duration::from_secs(5);
/// For so long after its end a grant stays, to explain denials ("expired N s ago").
const REMEMBER: u32 = 600;
/// Requests that wait.
pub(super) const REQUESTS: usize = 16;
/// News that are taken in before what follows from them is put in force at most.
const NEWS: usize = 256;
/// Problems that are kept apart.
const PROBLEMS: usize = 64;

/// What does not change.
#[derive(Debug, Clone)]
pub(super) struct Setting {
    pub(super) node: String,
    /// `ENDPOINT_*` bits that every endpoint has.
    pub(super) flags: u32,
    pub(super) lifetime: Lifetime,
    pub(super) keep_in_use: bool,
    /// Resolvers whose answers are learned, beside the cluster's: this host's, and `--trusted-resolver`.
    pub(super) trusted: BTreeSet<SocketAddr>,
    /// Search domains of this host, which pods have as well.
    pub(super) search: Vec<Name>,
    /// `--cluster-domain`.
    pub(super) cluster_domain: Name,
    pub(super) method: Method,
    pub(super) host: Host,
    pub(super) hierarchy: Hierarchy,
    /// `--startup`.
    pub(super) startup: StartupMode,
    /// `--kubepods`, below the cgroup2 mount.
    pub(super) kubepods: Option<PathBuf>,
    /// The pod that this process runs in.
    pub(super) own_pod: Option<OwnPod>,
    /// `--drop-events`.
    pub(super) drop_events: bool,
    pub(super) started: SystemTime,
    pub(super) adopted: bool,
}

impl Setting {
    /// Whether anything is held back, for display.
    pub(super) fn mode(&self) -> &'static str {
        if self.flags & ENDPOINT_AUDIT != 0 { "audit" } else { "enforce" }
    }
}

/// The pod that this process runs in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct OwnPod {
    pub(super) uid: String,
    /// Id of its cgroup, of version 2.
    pub(super) cgroup: Option<u64>,
}

/// The task.
#[derive(Debug)]
pub(super) struct Keeper {
    pub(super) setting: Setting,
    pub(super) datapath: Datapath,
    pub(super) dns: Ring<DnsRecord<'static>>,
    pub(super) flows: Ring<FlowEvent>,
    pub(super) learner: Learner,
    /// Where flows go to be observed.
    pub(super) observer: Feeder,
    /// Events that it will never see.
    pub(super) withheld: Withheld,
    pub(super) told: Told,
    /// That interfaces of this host change; `None`: they are only looked for now and then.
    pub(super) links: Option<Subscription>,
    /// When pods are looked for again that were not found.
    pub(super) search: Search,
    pub(super) objects: Objects,
    pub(super) picture: Picture,
    pub(super) registry: Registry,
    pub(super) memory: MemoryFile,
    /// This host's addresses.
    pub(super) own: BTreeMap<IpAddr, u32>,
    /// Endpoints with an answer that the agent has not done with.
    pub(super) slow: BTreeSet<EndpointId>,
    /// Addresses that the kernel found no room for.
    pub(super) map_full: u64,
    /// Counts every change of what is enforced.
    pub(super) revision: u64,
    /// What went wrong, with the number of times.
    pub(super) problems: BTreeMap<String, u64>,
    /// What stands in the way of the newest objects, until it is mended.
    pub(super) refused: Option<String>,
    /// The same of the source.
    pub(super) trouble: Option<String>,
    /// The same of the kernel's maps, which did not take all.
    pub(super) incomplete: Option<String>,
    /// Objects have changed, and what follows is not in force yet.
    pub(super) pending: bool,
    /// The source was not told what there is to tell about the newest objects.
    pub(super) unreported: bool,
    /// Until then the objects are let be: of all time, this takes half at most.
    pub(super) rest: Instant,
    /// When flows that are over were last looked for, in jiffies.
    pub(super) swept: Option<u64>,
    /// What is in force above all pods.
    pub(super) guard: Guard,
    /// For metrics.
    pub(super) recorder: Recorder,
    /// For whoever follows the agent's events.
    pub(super) history: History,
}

impl Keeper {
    /// Works until `end`.
    pub(super) async fn until(&mut self, end: impl Future<Output = ()>, server: &Server) -> io::Result<()> {
        let mut end = pin!(end);
        let waiting: OwnedFd = self.dns.as_fd().try_clone_to_owned()?;
        // SAFETY: the descriptor stays open for as long as `waiting`, which owns it.
        let waiting = unsafe { AsyncFd::register_with_interest(waiting, Interest::READABLE) }?;
        let (asked, mut requests) = mpsc::channel(REQUESTS);
        let mut serve = pin!(server.serve(asked));
        let mut timers = Timers::new();
        loop {
            tokio::select! {
                () = &mut end => break,
                () = &mut serve => {}
                ready = waiting.readable() => {
                    // First, so that a record which comes while the others are read wakes again.
                    ready?.clear_ready();
                    self.read_dns();
                }
                Some((request, reply)) = requests.recv() => {
                    // Who asked may have gone.
                    let _ = reply.send(self.answer(&request));
                }
                news = self.told.news.recv() => match news {
                    Some(news) => self.take(news),
                    // Without it nothing new would ever be enforced; whoever starts agents shall start another.
                    None => return Err(io::Error::other("the source has ended")),
                },
                () = sleep_until(self.rest), if self.pending => self.settle(),
                task = timers.next() => self.perform_task(task),
            }
        }
        self.read_dns();
        self.save();
        Ok(())
    }

    fn perform_task(&mut self, task: Task) {
        match task {
            Task::Drain => {
                self.read_dns();
                self.read_flows();
                // An error is a full queue: anything may have changed.
                if self.links.as_ref().is_some_and(|links| links.drain().unwrap_or(true)) {
                    self.search = Search::default();
                    self.look();
                }
            }
            Task::Look => self.look(),
            Task::Keep => {
                if self.setting.keep_in_use {
                    self.keep();
                }
                self.make_room();
            }
            Task::Addresses => self.read_addresses(),
            Task::Save => {
                self.save();
                self.report();
                self.publish();
                self.show_losses();
            }
            Task::Sweep => {
                let before = now().saturating_sub(ticks_of_secs(REMEMBER));
                self.sweep(before);
                self.tell_ends();
                self.report_drops();
                self.learner.state_mut().forget(before);
                self.forget_classes();
                self.forget_series();
            }
            Task::Verify => {
                self.verify();
                self.complete();
            }
        }
    }

    /// Name classes that no policy and no grant speaks of any more.
    fn forget_classes(&mut self) {
        let granted = || {
            let slots = self.datapath.grants().into_iter().flat_map(|(_, grants)| grants.slots);
            slots.filter(|slot| *slot != 0).map(grant::class).collect()
        };
        let ops = self.learner.state_mut().forget_classes(granted);
        self.perform(&Effects { ops, grants: Vec::new() });
    }

    /// Takes news in, and those that wait behind them.
    fn take(&mut self, news: News) {
        let mut next = Some(news);
        for _ in 0..NEWS {
            let Some(news) = next else { break };
            match news {
                News::Texts(texts) => self.pending |= self.objects.read(&texts),
                News::Objects(news) => self.pending |= self.objects.take(news),
                News::Trouble(trouble) => self.trouble = trouble,
            }
            next = self.told.news.try_recv().ok();
        }
        if self.pending && Instant::now() >= self.rest {
            self.settle();
        }
    }

    /// Puts in force what follows from the objects; then rests for as long as that took.
    fn settle(&mut self) {
        let begin = Instant::now();
        self.pending = false;
        self.unreported = true;
        self.reconcile();
        let end = Instant::now();
        self.rest = end + (end - begin);
    }

    /// Lets the source know what there is to tell about objects.
    fn report(&mut self) {
        // A folder has no use for it.
        if self.told.kinds.is_empty() || !std::mem::take(&mut self.unreported) {
            return;
        }
        let objects = self.objects.verdicts();
        self.told.report.send_if_modified(|report| {
            let changed = !report.ready || *report.objects != objects;
            report.ready = true;
            report.objects = Arc::new(objects);
            changed
        });
    }

    fn report_drops(&mut self) {
        if self.setting.drop_events {
            let drops = Arc::new(self.drops());
            self.told.report.send_if_modified(|report| {
                let changed = report.drops != drops;
                report.drops = drops;
                changed
            });
        }
    }

    fn read_addresses(&mut self) {
        let own = host::addresses();
        if own != self.own && !own.is_empty() {
            self.own = own;
            self.reconcile();
        }
    }

    /// Writes down what the next agent needs.
    pub(super) fn save(&mut self) {
        let (endpoints, identities) = (self.registry.numbers(), self.objects.identities());
        if let Err(error) = self.memory.write(&endpoints, identities, self.learner.state()) {
            self.complain(format!("cannot write {}: {error}", self.memory.path().display()), 1);
        }
    }

    /// Remembers a problem; the first time it is printed.
    pub(super) fn complain(&mut self, what: String, count: u64) {
        if count == 0 || (self.problems.len() >= PROBLEMS && !self.problems.contains_key(&what)) {
            return;
        }
        let known = self.problems.entry(what.clone()).or_default();
        if *known == 0 {
            tell::line(format_args!("warning: {what}"));
        }
        *known += count;
    }
}

/// Patience with pods that are not found: from one [`LOOK`] on, twice as long each time.
#[derive(Debug, Default)]
pub(super) struct Search {
    /// Looks that found nobody, since something last changed.
    vain: u32,
    /// Looks until the next search.
    pause: u32,
}

impl Search {
    /// Between two searches at most, in looks.
    const MOST: u32 = 8;

    /// Whether it is time to search.
    pub(super) fn is_due(&mut self) -> bool {
        let due = self.pause == 0;
        self.pause = self.pause.saturating_sub(1);
        due
    }

    /// What a search came to.
    pub(super) fn note(&mut self, found: bool) {
        self.vain = if found { 0 } else { self.vain + 1 };
        self.pause = if found { 0 } else { (1 << self.vain.min(3)).min(Self::MOST) - 1 };
    }
}

/// What is done at its time.
#[derive(Debug, Clone, Copy)]
enum Task {
    Drain,
    Look,
    Keep,
    Addresses,
    Save,
    Sweep,
    Verify,
}

struct Timers([(Task, Interval); 7]);

impl Timers {
    fn new() -> Self {
        let all = [
            (Task::Drain, DRAIN),
            (Task::Look, LOOK),
            (Task::Keep, KEEP),
            (Task::Addresses, ADDRESSES),
            (Task::Save, SAVE),
            (Task::Sweep, SWEEP),
            (Task::Verify, VERIFY),
        ];
        Self(all.map(|(task, period)| {
            let mut timer = interval(period);
            timer.set_missed_tick_behavior(MissedTickBehavior::Skip);
            (task, timer)
        }))
    }

    /// The task whose time has come first. Cancelling loses nothing.
    async fn next(&mut self) -> Task {
        std::future::poll_fn(|cx| {
            let due =
                self.0.iter_mut().find_map(|(task, timer)| timer.poll_tick(cx).is_ready().then_some(*task));
            due.map_or(std::task::Poll::Pending, std::task::Poll::Ready)
        })
        .await
    }
}
