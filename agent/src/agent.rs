//! `egret agent`, put together.
//!
//! ```text
//!  source ──News───> Objects ──Picture──> Registry ──EndpointSpec──> State ──MapOp──> Datapath
//!                                            └──place──> interface or cgroup ──attach──┘   │
//!  sockets <──api── answers <── Keeper, the one task that owns all of it <──records── rings┘
//!                                 ├──Entry────> observe: flows, on a thread of its own
//!                                 ├──Snapshot─> metrics, on a thread of its own
//!                                 └──Report───> the source: what there is to tell about objects
//! ```
//! Everything is pinned: the agent's end, by whatever signal, changes nothing for traffic. The next agent goes on with
//! the same maps and puts its programs into the same links.

mod answer;
mod ends;
mod explain;
mod gather;
mod history;
mod keeper;
mod known;
#[doc(hidden)]
pub mod measure;
mod objects;
mod offline;
mod pods;
mod publish;
mod records;
mod registry;
mod saved;
mod start;
mod startup;
mod withheld;

use std::fs::{self, File};
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};

use crate::api::server::Server;
use egret_core::flow::MeterConfig;

use crate::cli::{self, AgentArgs, UninstallArgs};
use crate::datapath;
use crate::datapath::tc::{Method, Place, TcHook};
use crate::exit::{self, Refusal};
use crate::metrics::{self, About, Places, Publisher};
use crate::observe::{self, Meters};
use crate::place::netns;
use crate::sandbox::preflight;
use crate::sandbox::signals::Signals;
use crate::source::files::Files;
use crate::source::k8s::{K8s, Writes};
use crate::source::{self, Source};
use crate::tell;
use gather::gather;
use keeper::Keeper;
use publish::Recorder;
use start::Ground;

pub use objects::Checked;
pub use offline::Offline;

/// Runs until a signal ends it.
pub fn run(args: &AgentArgs) -> Result<u8, Refusal> {
    let signals = Signals::block().map_err(|e| system("read signals", &e))?;
    let host = preflight::check(false)?;
    let _lock = Lock::take(&args.socket)?;
    let places = places(args)?;
    let mut told = source::start(open(args)?).map_err(|e| system("start the source", &e))?;
    let (observer, _hubble) = observe::start(&hubble(args, &places)?)?;
    let ground = Ground::load(args, &host)?;
    let meters = places.meters.clone();
    let wanted = places.own.is_some() || places.hubble.is_some();
    let publisher = wanted.then(|| serve(places, &ground)).transpose()?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_io().enable_time().build();
    let runtime = runtime.map_err(|e| system("start the event loop", &e))?;
    let tasks = tokio::task::LocalSet::new();
    tasks.block_on(&runtime, async {
        let server = Server::listen(&args.socket);
        let server = server.map_err(|e| system(&format!("listen at {}", args.socket.display()), &e))?;
        let Some(objects) = gather(&mut told, &ground, ending(&signals), &server).await? else {
            return Ok(());
        };
        let mut keeper = Keeper::start(ground, told, objects, observer)?;
        keeper.recorder = Recorder::new(publisher, meters);
        keeper.publish();
        tell::line("ready");
        keeper.until(ending(&signals), &server).await.map_err(|e| system("wait for events", &e))
    })?;
    tell::line("ends; what is enforced stays enforced until `egret uninstall`");
    Ok(0)
}

/// Takes the addresses that metrics are served at.
fn places(args: &AgentArgs) -> Result<Places, Refusal> {
    let config = args.hubble.hubble_metrics.as_ref();
    for metric in config.into_iter().flat_map(MeterConfig::empty) {
        tell::line(format_args!(
            "warning: --hubble-metrics {metric}: Egret reads none of it: nothing is counted"
        ));
    }
    Ok(Places {
        own: args.metrics.map(|address| listen("--metrics", address)).transpose()?,
        hubble: args
            .hubble
            .hubble_metrics_server
            .map(|address| listen("--hubble-metrics-server", address))
            .transpose()?,
        meters: config.map(Meters::new),
    })
}

fn listen(option: &str, address: SocketAddr) -> Result<TcpListener, Refusal> {
    metrics::bind(address).map_err(|error| {
        let cause = format!("cannot serve metrics at {address}: {error}");
        Refusal::new(exit::OS_ERROR, cause, format!("give {option} an address that is free"))
    })
}

fn serve(places: Places, ground: &Ground) -> Result<Publisher, Refusal> {
    let (setting, reader) = (ground.setting(), ground.reader());
    let about =
        About { started: setting.started, adopted: setting.adopted, audit: setting.mode() == "audit" };
    let publisher = reader.and_then(|reader| metrics::serve(places, about, reader));
    publisher.map_err(|e| system("serve metrics", &e))
}

fn open(args: &AgentArgs) -> Result<Box<dyn Source>, Refusal> {
    match &args.source {
        cli::Source::Folder(path) => {
            let files = Files::open(path.clone()).map_err(|error| {
                let cause = format!("dir:{}: {error}", path.display());
                Refusal::new(exit::NO_INPUT, cause, "give a folder that can be read")
            })?;
            Ok(Box::new(files))
        }
        cli::Source::K8s => {
            let writes = Writes {
                node: start::node_name(args)?,
                taint: args.remove_taint.clone(),
                drops: args.drop_events,
            };
            let (kubeconfig, trust) = (args.kubeconfig.clone(), args.trust_annotations);
            Ok(Box::new(K8s { kubeconfig, trust, writes }))
        }
    }
}

/// Where flows are served.
fn hubble(args: &AgentArgs, places: &Places) -> Result<observe::Options, Refusal> {
    let beside = || args.socket.with_file_name("hubble.sock");
    Ok(observe::Options {
        socket: args.hubble.hubble_socket.clone().unwrap_or_else(beside),
        listen: args.hubble.listen()?,
        flows: args.hubble.flow_buffer,
        node: start::node_name(args)?,
        export: args.hubble.export.options()?,
        meters: places.meters.clone(),
    })
}

/// The signals that end it; others are for commands that are run.
async fn ending(signals: &Signals) {
    loop {
        match signals.next().await {
            Ok(received) if !matches!(received.signal, libc::SIGTERM | libc::SIGINT) => {}
            _ => return,
        }
    }
}

/// What `egret uninstall` does about the agent: 0, or 75 while one runs.
pub fn uninstall(args: &UninstallArgs) -> Result<u8, Refusal> {
    if !args.pins.exists() {
        return Ok(0);
    }
    let Ok(_lock) = Lock::take(&args.socket) else {
        tell::line("the agent runs: left alone; end it first");
        return Ok(exit::IN_USE);
    };
    let verb = if args.dry_run { "would remove" } else { "removing" };
    tell::line(format_args!("{verb} the agent's programs and pins {}", args.pins.display()));
    if args.dry_run {
        return Ok(0);
    }
    remove_filters(&args.pins);
    if let Err(error) = datapath::remove(&args.pins) {
        tell::line(format_args!("cannot remove the agent's pins: {error}"));
        return Ok(exit::OS_ERROR);
    }
    let _ = fs::remove_file(memory_path(&args.socket));
    Ok(0)
}

/// Filters outlive pins.
fn remove_filters(pins: &Path) {
    if Method::of_kernel() == Method::Tcx {
        return;
    }
    for interface in netns::interfaces().unwrap_or_default() {
        for hook in TcHook::ALL {
            let place = Place { ifindex: interface.ifindex, hook, pins, method: Method::Clsact };
            if let Err(error) = place.take_off() {
                tell::line(format_args!("interface {}: {error}", interface.name));
            }
        }
    }
}

/// Where the next agent looks for what this one knew.
fn memory_path(socket: &Path) -> PathBuf {
    socket.with_file_name("agent-state.json")
}

/// One agent per socket.
#[derive(Debug)]
struct Lock(#[expect(dead_code, reason = "held, not read")] File);

impl Lock {
    fn take(socket: &Path) -> Result<Self, Refusal> {
        let path = socket.with_extension("lock");
        let dir = socket.parent().map_or(Ok(()), fs::create_dir_all);
        let file = dir.and_then(|()| File::options().create(true).truncate(false).write(true).open(&path));
        let file = file.map_err(|error| system(&format!("open {}", path.display()), &error))?;
        // SAFETY: flock on a descriptor that is open; it is released when the file is closed.
        if unsafe { libc::flock(file.as_raw_fd(), libc::LOCK_EX | libc::LOCK_NB) } == 0 {
            return Ok(Self(file));
        }
        let error = io::Error::last_os_error();
        Err(match error.kind() {
            io::ErrorKind::WouldBlock => Refusal::new(
                exit::IN_USE,
                format!("another agent runs at {}", socket.display()),
                "end it first, or give this one another --socket",
            ),
            _ => system(&format!("lock {}", path.display()), &error),
        })
    }
}

/// A system call failed that should not.
fn system(what: &str, error: &dyn std::fmt::Display) -> Refusal {
    Refusal::new(exit::OS_ERROR, format!("cannot {what}: {error}"), "what was enforced stays enforced")
}
