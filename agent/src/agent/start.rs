//! How the agent begins: with empty maps, or with those that an earlier one left.

use std::collections::BTreeSet;
use std::fs;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::os::unix::fs::MetadataExt;
use std::time::SystemTime;

use egret_common::ids::EndpointId;
use egret_common::maps::{
    CONFIG_EVENTS, CONFIG_SERVICES, CONFIG_SLOW_PATTERNS, ENDPOINT_AUDIT, ENDPOINT_DNS_NXDOMAIN,
    ENDPOINT_KEEP, ENDPOINT_REJECT,
};
use egret_core::compile::{CompileError, EndpointSpec, World};
use egret_core::desired::{Desired, diff};
use egret_core::dns::cache::Limits;
use egret_core::dns::lifetime::Lifetime;
use egret_core::policy::DNS_PORT;
use egret_core::state::{Saved, State, Wiring};

use tokio::time::Instant;

use super::history::History;
use super::keeper::{Keeper, OwnPod, Search, Setting};
use super::objects::Objects;
use super::publish::Recorder;
use super::registry::Registry;
use super::saved::{Memory, MemoryFile};
use super::startup::Guard;
use super::withheld::Withheld;
use super::{memory_path, system};
use crate::cli::{AgentArgs, DnsReject, Established, OnDeny};
use crate::datapath::tc::Method;
use crate::datapath::{Datapath, LoadError, Options, Reader, Sizes};
use crate::exit::{self, Refusal};
use crate::host;
use crate::learn::Learner;
use crate::netlink::Subscription;
use crate::observe::Feeder;
use crate::place::Host;
use crate::resolvers;
use crate::sandbox::cgroup;
use crate::sandbox::preflight::Preflight;
use crate::source::Told;
use crate::tell;

/// Events per second, reason and CPU.
const EVENTS: u32 = 100;
/// No endpoint: of a cgroup, it is known, and nothing is judged there.
const NOBODY: EndpointId = 0;
/// Pods of the kubelet's systemd driver stand below two slices.
const POD_LEVEL: u32 = 3;
/// Where NodeLocal DNSCache answers on every node (CASES R-A03).
const NODE_LOCAL_DNS: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::new(169, 254, 20, 10)), DNS_PORT);

/// What can be had before anything is known of the cluster: the kernel's maps, with what an earlier agent left there in
/// force.
#[derive(Debug)]
pub(super) struct Ground {
    setting: Setting,
    datapath: Datapath,
    content: Desired,
    memory: MemoryFile,
}

impl Ground {
    /// Loads or adopts.
    pub(super) fn load(args: &AgentArgs, host: &Preflight) -> Result<Self, Refusal> {
        let memory = MemoryFile::new(args.state.clone().unwrap_or_else(|| memory_path(&args.socket)));
        let (mut datapath, content) = load(args)?;
        let mut setting = setting(args, host, content != Desired::default())?;
        let pods = setting.host.pods();
        if let Some((uid, cgroup)) = Host::own_pod(&pods) {
            let failed = |error| system(&format!("look at {}", cgroup.display()), &error);
            let id = fs::metadata(cgroup).map_err(failed)?.ino();
            let id = Some(id).filter(|_| setting.host.is_unified(cgroup));
            setting.own_pod = Some(OwnPod { uid: uid.to_owned(), cgroup: id });
            let known = |id: u64| datapath.bound_cgroups().iter().any(|(bound, _)| *bound == id);
            // What an earlier agent left above all pods shall not cut this one off from the API server.
            if id.is_some_and(|id| !known(id))
                && let Err(error) = datapath.bind_cgroup(cgroup, NOBODY)
            {
                tell::line(format_args!("warning: {error}"));
            }
        }
        Ok(Self { setting, datapath, content, memory })
    }

    /// For metrics.
    pub(super) fn reader(&self) -> std::io::Result<Reader> {
        self.datapath.reader()
    }

    /// As an answer while nothing more is known.
    pub(super) fn setting(&self) -> &Setting {
        &self.setting
    }
}

impl Keeper {
    /// Puts in force what was told.
    pub(super) fn start(
        ground: Ground,
        told: Told,
        objects: Objects,
        observer: Feeder,
    ) -> Result<Self, Refusal> {
        let Ground { setting, datapath, content, memory } = ground;
        let earlier = memory.read().filter(|_| content != Desired::default());
        let mut keeper =
            Parts { setting, datapath, earlier, memory, told, objects, observer }.put_together()?;
        keeper.begin(&content)?;
        Ok(keeper)
    }

    /// The first round. Everything of before that is not wanted any more goes.
    fn begin(&mut self, content: &Desired) -> Result<(), Refusal> {
        let ops = diff(content, self.learner.state().desired());
        self.save();
        let full = |error: crate::datapath::ApplyError| {
            Refusal::new(
                exit::DATA_ERROR,
                error.to_string(),
                "the policies are too large for the kernel's tables",
            )
        };
        self.datapath.apply(&ops).map_err(full)?;
        let known: BTreeSet<u32> = self.registry.iter().map(|entry| entry.id).collect();
        let gone: Vec<u32> = content.endpoints.keys().copied().filter(|id| !known.contains(id)).collect();
        for (ifindex, _) in self.datapath.bound_interfaces().into_iter().filter(|(_, id)| !known.contains(id))
        {
            // The interface may be gone.
            let _ = self.datapath.detach_interface(ifindex, self.setting.method);
            let _ = self.datapath.bind_interface(ifindex, None);
        }
        if !gone.is_empty() {
            self.datapath.purge(&|id| !known.contains(&id), &gone);
        }
        self.datapath.sweep_interfaces();
        let own = self.setting.own_pod.as_ref().and_then(|own| own.cgroup);
        let own: BTreeSet<u64> = own.into_iter().collect();
        let bound = self.datapath.bound_cgroups().into_iter();
        for (cgroup, _) in bound.filter(|(cgroup, id)| !known.contains(id) && !own.contains(cgroup)) {
            // The cgroup may be gone.
            let _ = self.datapath.release_cgroup(cgroup);
        }
        self.attach();
        self.guard_pods();
        self.tell_changes();
        Ok(())
    }
}

struct Parts {
    setting: Setting,
    datapath: Datapath,
    earlier: Option<Memory>,
    memory: MemoryFile,
    told: Told,
    objects: Objects,
    observer: Feeder,
}

impl Parts {
    fn put_together(self) -> Result<Keeper, Refusal> {
        let Self { setting, mut datapath, earlier, memory, told, mut objects, observer } = self;
        let numbers = earlier.as_ref().map(Memory::numbers).unwrap_or_default();
        if let Some(earlier) = &earlier {
            earlier.restore(objects.identities_mut());
        }
        let own = host::addresses();
        let picture = objects.picture(&setting.node, &own).sparing(setting.own_pod.as_ref());
        let mut registry = Registry::new(most(), numbers);
        registry.update(&picture.local);
        let last_set = datapath.last_set(&datapath.content());
        let world = picture.world(&setting);
        let (dns, flows) = (datapath.take_dns_ring(), datapath.take_flow_ring());
        let empty = state(world, Vec::new(), Wiring::default(), None, 0).map_err(unfit)?.0;
        let learner = Learner::new(empty, None);
        let withheld = Withheld::new(setting.adopted);
        let mut keeper = Keeper {
            setting,
            datapath,
            dns,
            flows,
            learner,
            observer,
            withheld,
            told,
            links: Subscription::to_links().ok(),
            search: Search::default(),
            objects,
            picture,
            registry,
            memory,
            own,
            slow: BTreeSet::new(),
            map_full: 0,
            revision: 1,
            problems: Default::default(),
            refused: None,
            trouble: None,
            pending: false,
            unreported: true,
            rest: Instant::now(),
            incomplete: None,
            swept: None,
            guard: Guard::default(),
            recorder: Recorder::default(),
            history: History::default(),
        };
        keeper.find();
        let world = keeper.picture.world(&keeper.setting);
        let saved = earlier.as_ref().map(|earlier| &earlier.state);
        let (state, resumed) =
            state(world, keeper.specs(), keeper.wiring(), saved, last_set).map_err(unfit)?;
        if keeper.setting.adopted && !resumed {
            tell::line("what earlier agents learned cannot be read: names must be looked up again");
            keeper.datapath.purge(&|_| true, &[]);
        }
        keeper.learner = Learner::new(state, None);
        Ok(keeper)
    }
}

/// Numbers of endpoints are below this.
fn most() -> EndpointId {
    let sizes = Sizes::node();
    sizes.gone().unwrap_or(sizes.endpoints)
}

/// The state, and whether it goes on with what was saved.
fn state(
    world: World,
    specs: Vec<EndpointSpec>,
    wiring: Wiring,
    saved: Option<&Saved>,
    last_set: u32,
) -> Result<(State, bool), CompileError> {
    let limits = Limits::default();
    if let Some(saved) = saved
        && let Some(state) =
            State::resume(world.clone(), specs.clone(), wiring.clone(), limits, saved, last_set)?
    {
        return Ok((state, true));
    }
    let state = State::resume(world, specs, wiring, limits, &Saved::default(), last_set)?;
    // Nothing saved is always readable.
    state
        .map(|state| (state, false))
        .ok_or(CompileError::TooManyIntervals { rule: String::new(), intervals: 0 })
}

fn unfit(error: CompileError) -> Refusal {
    Refusal::new(exit::DATA_ERROR, error.to_string(), "put ports together into ranges")
}

/// The datapath, and what its maps hold.
fn load(args: &AgentArgs) -> Result<(Datapath, Desired), Refusal> {
    let options = Options {
        dir: args.pins.clone(),
        cgroup_level: POD_LEVEL,
        // Flags stand in read-only data, and policies and Services come and go.
        config_flags: CONFIG_EVENTS | CONFIG_SERVICES | CONFIG_SLOW_PATTERNS,
        events_per_second: EVENTS,
        sizes: Sizes::node(),
        adopt: true,
        pods: true,
    };
    let datapath = Datapath::load(&options).map_err(|error| {
        let remedy = match error {
            LoadError::NoObject => "nothing can be enforced without them",
            LoadError::Shape { .. } => "`egret uninstall` removes the old maps",
            _ => "what was enforced stays enforced",
        };
        let text = error.to_string();
        let (cause, log) = text.split_once('\n').unwrap_or((&text, ""));
        log.lines().for_each(|line| tell::line(format_args!("verifier: {line}")));
        Refusal::new(exit::UNAVAILABLE, cause, remedy)
    })?;
    let content = datapath.content();
    Ok((datapath, content))
}

/// How this node is called in objects.
pub(super) fn node_name(args: &AgentArgs) -> Result<String, Refusal> {
    match &args.node {
        Some(node) => Ok(node.clone()),
        None => nix::sys::utsname::uname()
            .map(|name| name.nodename().to_string_lossy().into_owned())
            .map_err(|error| system("find this host's name", &error)),
    }
}

fn setting(args: &AgentArgs, host: &Preflight, adopted: bool) -> Result<Setting, Refusal> {
    let mut host_resolvers = resolvers::read();
    host_resolvers.servers.insert(NODE_LOCAL_DNS);
    let mut flags = if args.audit { ENDPOINT_AUDIT } else { 0 };
    flags |= if args.dns_reject == DnsReject::Nxdomain { ENDPOINT_DNS_NXDOMAIN } else { 0 };
    flags |= if args.established == Established::Keep { ENDPOINT_KEEP } else { 0 };
    flags |= if args.on_deny == OnDeny::Reject { ENDPOINT_REJECT } else { 0 };
    Ok(Setting {
        node: node_name(args)?,
        flags,
        lifetime: args.names.lifetimes().unwrap_or_default().or(Lifetime::default()),
        keep_in_use: args.names.keep_in_use,
        trusted: args.names.trusted_resolver.iter().copied().chain(host_resolvers.servers).collect(),
        search: host_resolvers.search,
        cluster_domain: args.cluster_domain.clone(),
        method: Method::of_kernel(),
        host: Host {
            cgroups: host.hierarchy.mount.clone(),
            cgroups_v1: cgroup::version_one().map_err(|e| system("read the mount table", &e))?,
            proc: "/proc".into(),
        },
        hierarchy: host.hierarchy.clone(),
        startup: args.startup,
        kubepods: args.kubepods.as_ref().map(|path| path.strip_prefix("/").unwrap_or(path).to_owned()),
        own_pod: None,
        drop_events: args.drop_events,
        started: SystemTime::now(),
        adopted,
    })
}
