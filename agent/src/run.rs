//! `egret run`, put together: everything that is decided elsewhere is called here in its order.
//!
//! Nothing is made before everything that the user wrote has been understood; CMD is not started before the programs are
//! on its cgroup and the kernel has shown them there. Whatever happens after that, the report is written.

mod banner;
mod cell;
mod describe;
mod leftovers;
mod live;
mod output;
mod plan;
pub mod report;
mod reset;
mod tally;
mod used;
mod watch;

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::time::{Duration, Instant, SystemTime};

use egret_common::ids::{EndpointId, identity};
use egret_common::maps::{
    ENDPOINT_AUDIT, ENDPOINT_LOOPBACK, ENDPOINT_QUERY_FILTER, ENDPOINT_REJECT, ENDPOINT_REPORT,
};
use egret_core::compile::{EndpointSpec, NamesAsk, World};
use egret_core::desired::{Desired, diff};
use egret_core::dns::cache::Limits;
use egret_core::dns::lifetime::Lifetime;
use egret_core::identity::NamedPorts;
use egret_core::policy::Policies;
use egret_core::state::State;
use egret_core::tuning::Lifetimes;

use crate::cli::{OnDeny, RunArgs};
use crate::exit::{self, Refusal};
use crate::host;
use crate::learn::Learner;
use crate::sandbox::child::{self, Spec};
use crate::sandbox::escape::{self, Subject};
use crate::sandbox::process::{Child, Exit};
use crate::sandbox::signals::{self, Signals};
use crate::sandbox::user::{self, UserSpec};
use crate::sandbox::{cgroup::Cgroup, preflight};
use crate::tell;
use cell::{Cell, system};
use output::Outputs;
use plan::Plan;
use report::{CounterLine, LostLine, Report};
use watch::{Setting, Watch};

pub use leftovers::uninstall;

/// The only endpoint of a run.
const ENDPOINT: EndpointId = 1;
/// How often a run that waits for background processes looks at them.
const LOOK: Duration = Duration::from_millis(50);

/// Runs CMD. `Ok` is the code to leave with; after a refusal CMD was not started.
pub fn run(args: &RunArgs) -> Result<u8, Refusal> {
    let signals = Signals::block().map_err(|e| system("read signals", &e))?;
    let user = user::choose(args.user.as_deref())?;
    let plan = Plan::read(args)?;
    let host = preflight::check(user.is_some())?;
    leftovers::clean(&host.hierarchy);
    let mut outputs = Outputs::open(args)?;
    let cell = Cell::make(&host)?;
    let mut watch = enforce(args, &plan, &cell)?;
    let warnings = warnings(args, &plan, user.as_ref());
    banner::print(args, &plan, &warnings);
    let (started, clock) = (SystemTime::now(), Instant::now());
    let exit = hold(args, user, &cell, &signals, &mut watch)?;
    let mut report = summary(args, &plan, &watch, exit);
    report.started = report::rfc3339(started);
    report.duration_ms = clock.elapsed().as_millis() as u64;
    report.warnings.splice(0..0, warnings);
    let policy = outputs.wants_policy().then(|| learned(args, &plan, &watch));
    drop(watch);
    cell.take_down();
    finish(args, &report, policy, &mut outputs, exit)
}

/// Compiles the policies, loads the programs, fills the maps, and puts the programs on the cgroup.
fn enforce(args: &RunArgs, plan: &Plan, cell: &Cell) -> Result<Watch, Refusal> {
    let addresses = host::addresses();
    let state = compile(args, plan, addresses.clone())?;
    let mut datapath = cell.load(state.config_flags())?;
    let full = |error: crate::datapath::ApplyError| {
        Refusal::new(exit::DATA_ERROR, error.to_string(), "the policy is too large for the kernel's tables")
    };
    datapath.apply(&diff(&Desired::default(), state.desired())).map_err(full)?;
    datapath.bind_cgroup(cell.cgroup()?.path(), ENDPOINT).map_err(full)?;
    cell.attach(&mut datapath, args.accept_override)?;
    let learner = Learner::new(state, Some(ENDPOINT));
    let setting = Setting {
        endpoint: ENDPOINT,
        cgroup: cell.cgroup()?.path().to_owned(),
        host: addresses,
        keep_in_use: args.names.keep_in_use,
        reject: args.on_deny == OnDeny::Reject,
        verbose: args.verbose,
    };
    Ok(Watch::new(datapath, learner, setting))
}

fn compile(args: &RunArgs, plan: &Plan, identities: BTreeMap<IpAddr, u32>) -> Result<State, Refusal> {
    let mut flags = ENDPOINT_LOOPBACK | ENDPOINT_REPORT;
    flags |= if plan.isolated { ENDPOINT_QUERY_FILTER } else { 0 };
    flags |= if args.on_deny == OnDeny::Reject { ENDPOINT_REJECT } else { 0 };
    flags |= if args.audit { ENDPOINT_AUDIT } else { 0 };
    let policies: Policies = plan.policies.clone().into();
    let given = args.names.lifetimes().unwrap_or_default();
    let lifetime = Lifetimes::of_policies(policies.each()).under(given).or(Lifetime::default());
    let spec = EndpointSpec {
        id: ENDPOINT,
        identity: identity::HOST,
        flags,
        lifetime,
        ports: NamedPorts::new(),
        policies,
    };
    let world = World {
        search: plan.resolvers.search.clone(),
        cluster_domain: None,
        resolvers: plan.resolvers.servers.clone(),
        identities,
        peers: BTreeMap::new(),
        names_ask: NamesAsk::Yes,
        seen_names: BTreeSet::new(),
    };
    State::new(world, vec![spec], Limits::default())
        .map_err(|error| Refusal::new(exit::DATA_ERROR, error.to_string(), "put ports together into ranges"))
}

/// What the user should know before CMD starts: ways round that stay open.
fn warnings(args: &RunArgs, plan: &Plan, user: Option<&UserSpec>) -> Vec<String> {
    let mut out = plan.warnings.clone();
    let found = escape::detect(&Subject::new(user), &args.hide);
    out.extend(found.into_iter().map(|w| format!("{}: {}; {}", w.what, w.why, w.remedy)));
    let caps =
        args.keep_cap.iter().map(|cap| format!("CMD keeps {cap}, by which it can get round the firewall"));
    out.extend(caps);
    let fds = args
        .keep_fd
        .iter()
        .map(|fd| format!("CMD keeps file descriptor {fd}: if it is a socket, no hook sees it"));
    out.extend(fds);
    if args.no_syscall_filter {
        out.push("system calls are not filtered: io_uring, vsock and other socket families are open".into());
    }
    out.extend(child::replaced_stdio(&args.keep_fd));
    out
}

/// Starts CMD and works beside it until it has ended.
fn hold(
    args: &RunArgs,
    user: Option<UserSpec>,
    cell: &Cell,
    signals: &Signals,
    watch: &mut Watch,
) -> Result<Exit, Refusal> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_io().enable_time().build();
    let runtime = runtime.map_err(|e| system("start the event loop", &e))?;
    let spec = Spec {
        argv: args.command.clone(),
        env: user::environment(std::env::vars_os(), user.as_ref()),
        cwd: None,
        user,
        keep_caps: args.keep_cap.clone(),
        keep_fds: args.keep_fd.clone(),
        hide: args.hide.clone(),
        no_syscall_filter: args.no_syscall_filter,
        signal_mask: signals.original_mask,
    };
    let cgroup = cell.cgroup()?;
    let child = child::spawn(&spec, cgroup)?;
    let lost = |e: std::io::Error| {
        Refusal::new(exit::OS_ERROR, format!("lost sight of CMD: {e}"), "it is being ended")
    };
    let end = end(&child, cgroup, signals, args.wait_children);
    runtime.block_on(watch.until(end)).map_err(lost)?.map_err(lost)
}

/// CMD's end; with `--wait-children` that of the last process in the cgroup.
async fn end(child: &Child, cgroup: &Cgroup, signals: &Signals, wait: bool) -> std::io::Result<Exit> {
    let exit = signals::supervise(child, cgroup, signals).await?;
    while wait && !cgroup.is_empty()? {
        tokio::select! {
            // CMD is gone: a signal now means that the waiting is over.
            received = signals.next() => if signals::to_forward(received?, cgroup) { break },
            () = tokio::time::sleep(LOOK) => {}
        }
    }
    Ok(exit)
}

/// The report, from the kernel's counts.
fn summary(args: &RunArgs, plan: &Plan, watch: &Watch, exit: Exit) -> Report {
    let destinations = watch.destinations();
    let counters = watch.datapath.counters(ENDPOINT);
    let mut warnings: Vec<String> = watch.learner.notes().cloned().collect();
    warnings.extend(watch.complaints());
    let state = watch.datapath.endpoint_state(ENDPOINT);
    if state.map_full > 0 {
        let count = state.map_full;
        warnings.push(format!(
            "the kernel's table of learned addresses was full: {count} times nothing was opened"
        ));
    }
    Report {
        version: report::VERSION,
        command: args.command.iter().map(|a| a.to_string_lossy().into_owned()).collect(),
        mode: if args.audit { "audit" } else { "enforce" },
        exit_code: exit.code,
        signal: exit.signal,
        allowed: plan.understood.clone(),
        denied: report::rows::build(&destinations, &watch.learner, &plan.resolvers.search, args.audit),
        counters: counters.iter().map(CounterLine::from).collect(),
        lost: LostLine::new(watch.datapath.lost(), &counters),
        warnings,
        ..Report::default()
    }
}

fn learned(args: &RunArgs, plan: &Plan, watch: &Watch) -> String {
    let open = used::AlwaysOpen { host: &watch.setting.host, resolvers: &plan.resolvers.servers };
    let destinations = watch.destinations();
    used::policy(&destinations, &watch.learner, &open, &plan.resolvers.search, args.audit)
}

/// Prints and writes what is known now, and gives the code.
fn finish(
    args: &RunArgs,
    report: &Report,
    policy: Option<String>,
    outputs: &mut Outputs,
    exit: Exit,
) -> Result<u8, Refusal> {
    if !args.quiet || !report.denied.is_empty() {
        tell::text(&report.text());
    }
    let written =
        outputs.write_report(report).and_then(|()| outputs.write_policy(policy.as_deref().unwrap_or("")));
    let code = exit::combine(exit.code, !report.denied.is_empty(), args.fail_on_deny);
    match written {
        Ok(()) => Ok(code),
        Err(error) => {
            tell::line(format_args!("the report could not be written: {error}"));
            Ok(if code == 0 { exit::CANNOT_CREATE } else { code })
        }
    }
}
