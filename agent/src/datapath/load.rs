//! Loading the embedded object: sizes, configuration, programs, pins.

use std::{
    collections::BTreeMap,
    fs, io,
    path::{Path, PathBuf},
};

use aya::{
    Ebpf, EbpfLoader,
    maps::{Map, MapData, MapInfo, RingBuf},
    programs::{Program, ProgramError},
};
use egret_common::{ABI_VERSION, maps::Config};

use super::{LoadError, Sizes, bpf_sys, cgroup_link::CgroupHook, hz, pins, reader::Ledger};

static OBJECT: &[u8] = aya::include_bytes_aligned!(env!("EGRET_BPF_OBJECT"));

/// Maps that are pinned: what an agent that takes over needs, and what programs must not lose.
pub(super) const MAPS: [&str; 22] = [
    "ENDPOINT_BY_CGROUP",
    "ENDPOINT_BY_IFINDEX",
    "STARTUP",
    "ADDRESSES",
    "SERVICES",
    "ENDPOINTS",
    "ENDPOINT_STATE",
    "IDENTITIES",
    "CIDR_CLASSES",
    "NAME_EXACT",
    "NAME_SUFFIX",
    "GRANTS",
    "RULES",
    "FLOWS",
    "FRAGMENTS",
    "DNS_QUERIES",
    "TRUSTED_RESOLVERS",
    "COUNTERS",
    "DESTINATIONS",
    "FLOW_EVENTS",
    "DNS_EVENTS",
    "LOST",
];

/// Programs that are never attached.
const OWN: [&str; 2] = ["egret_grant", "egret_clock"];

/// Programs at the host's side of a pod's veth: what the pod sends, what it gets.
pub const POD: [&str; 2] = ["egret_from_pod", "egret_to_pod"];

/// Programs on the cgroup above all pods.
pub(super) const STARTUP: [(CgroupHook, &str); 2] =
    [(CgroupHook::SkbEgress, "egret_startup_egress"), (CgroupHook::SkbIngress, "egret_startup_ingress")];

/// Lines of the verifier's log that an error shows.
const LOG_LINES: usize = 12;

/// How to load.
#[derive(Debug, Clone)]
pub struct Options {
    /// Directory of this instance on a BPF file system, such as `/sys/fs/bpf/egret/run-1`. Made here; must not hold
    /// pins of this ABI, unless they are adopted.
    pub dir: PathBuf,
    /// Level of the cgroup at which the programs are attached (0 = root; see `cgroup_link::level`).
    pub cgroup_level: u32,
    /// `CONFIG_*` bits.
    pub config_flags: u32,
    /// Drop events per second, reason, endpoint and CPU.
    pub events_per_second: u32,
    /// Entries per map.
    pub sizes: Sizes,
    /// Go on with the maps that are pinned in `dir`, as far as they are there (`super::content` tells what they hold).
    pub adopt: bool,
    /// Load the programs for interfaces of pods, too.
    pub pods: bool,
}

/// The loaded programs and their maps. The only writer of the agent's maps. Dropping it detaches nothing.
pub struct Datapath {
    pub(super) dir: PathBuf,
    pub(super) sizes: Sizes,
    /// Names of the programs that are loaded.
    programs: Vec<&'static str>,
    pub(super) ebpf: Ebpf,
    pub(super) dns_ring: Option<RingBuf<MapData>>,
    pub(super) flow_ring: Option<RingBuf<MapData>>,
    /// Kernel ids of the maps in [`MAPS`].
    pub(super) map_ids: BTreeMap<&'static str, u32>,
    /// The programs for cgroups of further levels, by level.
    pub(super) levels: BTreeMap<u32, Ebpf>,
    pub(super) options: Options,
    /// What readers in other threads must know.
    pub(super) ledger: std::sync::Arc<Ledger>,
    hz: u32,
}

impl std::fmt::Debug for Datapath {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Datapath").field("dir", &self.dir).field("hz", &self.hz).finish_non_exhaustive()
    }
}

impl Datapath {
    /// Creates the maps, loads every program and pins both below `options.dir`. Nothing is attached yet.
    ///
    /// # Errors
    /// [`LoadError`]; what was pinned until then is removed again, unless pins were to be adopted.
    pub fn load(options: &Options) -> Result<Self, LoadError> {
        if OBJECT.is_empty() {
            return Err(LoadError::NoObject);
        }
        let hz = hz::measure().map_err(LoadError::Hz)?;
        let dir = options.dir.join(format!("v{ABI_VERSION}"));
        fs::create_dir_all(&dir).map_err(|error| LoadError::Directory { path: dir.clone(), error })?;
        let loaded = Self::load_into(options, dir, hz);
        if loaded.is_err() && !options.adopt {
            // The error that led here is the one worth telling.
            let _ = pins::remove(&options.dir);
        }
        loaded
    }

    fn load_into(options: &Options, dir: PathBuf, hz: u32) -> Result<Self, LoadError> {
        let mut ebpf = create(options, options.adopt.then_some(&*dir), options.cgroup_level, hz)?;
        let programs = program_names(options.pods);
        load_programs(&mut ebpf, &programs)?;
        let mut map_ids = BTreeMap::new();
        for name in MAPS {
            let map = ebpf.map(name).ok_or(LoadError::Missing { kind: "map", name })?;
            let path = dir.join(name);
            let pinned = if options.adopt { Ok(()) } else { map.pin(&path).map_err(io::Error::other) };
            let id = pinned.and_then(|()| Ok(MapInfo::from_pin(&path).map_err(io::Error::other)?.id()));
            map_ids.insert(name, id.map_err(|error| LoadError::Pin { path, error })?);
        }
        for name in &programs {
            pin_program(&ebpf, name, &dir)?;
        }
        let dns_ring = Some(ring(&mut ebpf, "DNS_EVENTS")?);
        let flow_ring = Some(ring(&mut ebpf, "FLOW_EVENTS")?);
        let dir = options.dir.clone();
        let (sizes, options) = (options.sizes, options.clone());
        let levels = BTreeMap::new();
        let ledger = std::sync::Arc::default();
        Ok(Self { dir, sizes, programs, ebpf, dns_ring, flow_ring, map_ids, levels, options, ledger, hz })
    }

    /// Directory of this instance.
    #[must_use]
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Kernel ticks (jiffies) per second, as measured.
    #[must_use]
    pub fn hz(&self) -> u32 {
        self.hz
    }

    /// Every program with the number of instructions that the verifier walked; 0 if the kernel does not tell.
    pub fn verified_instructions(&self) -> Vec<(&'static str, u32)> {
        let count = |name| self.ebpf.program(name)?.info().ok()?.verified_instruction_count();
        self.programs.iter().map(|name| (*name, count(name).unwrap_or(0))).collect()
    }

    /// Removes every pin of this instance: that detaches its programs. Foreign programs stay.
    ///
    /// # Errors
    /// What the file system says; the rest is removed all the same.
    pub fn unpin(self) -> io::Result<()> {
        pins::remove(&self.dir)
    }
}

/// The program of a hook.
pub(super) const fn program_of(hook: CgroupHook) -> &'static str {
    match hook {
        CgroupHook::SkbEgress => "egret_egress",
        CgroupHook::SkbIngress => "egret_ingress",
        CgroupHook::SockCreate => "egret_sock_create",
        CgroupHook::Connect4 => "egret_connect4",
        CgroupHook::Connect6 => "egret_connect6",
        CgroupHook::SendMsg4 => "egret_sendmsg4",
        CgroupHook::SendMsg6 => "egret_sendmsg6",
    }
}

fn program_names(pods: bool) -> Vec<&'static str> {
    let always = OWN.into_iter().chain(CgroupHook::ALL.map(program_of));
    let of_pods = POD.into_iter().chain(STARTUP.map(|(_, name)| name));
    always.chain(of_pods.filter(|_| pods)).collect()
}

/// Maps and programs of the object, not loaded yet. With `pins` the maps are those that are pinned there; what is not is
/// made and pinned.
pub(super) fn create(options: &Options, pins: Option<&Path>, level: u32, hz: u32) -> Result<Ebpf, LoadError> {
    let config = Config {
        hz,
        cgroup_level: level,
        flags: options.config_flags,
        events_per_second: options.events_per_second,
    };
    let entries = options.sizes.entries();
    let mut loader = EbpfLoader::new();
    loader.override_global("CONFIG", &config, true);
    for (name, entries) in entries {
        loader.map_max_entries(name, entries);
    }
    for name in pins.iter().flat_map(|_| MAPS) {
        loader.map_pin_path(name, pins.map(|dir| dir.join(name)).unwrap_or_default());
    }
    if let Some(pins) = pins {
        check_sizes(&entries, pins)?;
    }
    loader.load(OBJECT).map_err(|error| LoadError::Object(chain(&error)))
}

/// A map that is there is taken as it is: one of another size would be misread.
fn check_sizes(entries: &[(&'static str, u32)], pins: &Path) -> Result<(), LoadError> {
    for (name, wanted) in entries {
        let Ok(found) = MapInfo::from_pin(pins.join(name)) else { continue };
        if found.max_entries() != *wanted {
            return Err(LoadError::Shape { name, found: found.max_entries(), wanted: *wanted });
        }
    }
    Ok(())
}

/// Loads all programs, each in a thread of its own: the verifier takes up to a second for one.
fn load_programs(ebpf: &mut Ebpf, names: &[&'static str]) -> Result<(), LoadError> {
    if let Some(name) = names.iter().find(|name| ebpf.program(name).is_none()) {
        return Err(LoadError::Missing { kind: "program", name });
    }
    std::thread::scope(|scope| {
        let ours = ebpf
            .programs_mut()
            .filter_map(|(name, program)| Some((*names.iter().find(|ours| **ours == name)?, program)));
        let loads: Vec<_> =
            ours.map(|(name, program)| (name, scope.spawn(move || load_program(program, name)))).collect();
        let done = |(name, load): (_, std::thread::ScopedJoinHandle<'_, _>)| {
            load.join().unwrap_or_else(|_| Err(refused(name, "the loading thread panicked".to_owned(), "")))
        };
        // Every thread is waited for; the first error is told.
        loads.into_iter().map(done).fold(Ok(()), Result::and)
    })
}

pub(super) fn load_program(program: &mut Program, name: &'static str) -> Result<(), LoadError> {
    let result = match program {
        Program::CgroupSkb(program) => program.load(),
        Program::CgroupSock(program) => program.load(),
        Program::CgroupSockAddr(program) => program.load(),
        Program::SchedClassifier(program) => program.load(),
        _ => return Err(LoadError::Missing { kind: "program", name }),
    };
    result.map_err(|error| match error {
        ProgramError::LoadError { io_error, verifier_log } => {
            refused(name, io_error.to_string(), &verifier_log.to_string())
        }
        other => refused(name, chain(&other), ""),
    })
}

/// The last lines of the verifier's log say what it stumbled over; the statistics behind them do not.
fn refused(name: &str, error: String, log: &str) -> LoadError {
    let lines: Vec<&str> = log.lines().filter(|line| !line.trim().is_empty()).collect();
    let verifier = lines[lines.len().saturating_sub(LOG_LINES)..].join("\n");
    LoadError::Refused { program: name.to_owned(), error, verifier }
}

fn pin_program(ebpf: &Ebpf, name: &'static str, dir: &Path) -> Result<(), LoadError> {
    use std::os::fd::AsFd;
    let path = dir.join(format!("prog_{name}"));
    let program = ebpf.program(name).ok_or(LoadError::Missing { kind: "program", name })?;
    let fd = program.fd().map_err(|error| refused(name, chain(&error), ""))?;
    // One that an earlier process pinned; links hold what runs.
    let _ = fs::remove_file(&path);
    bpf_sys::pin(fd.as_fd(), &path).map_err(|error| LoadError::Pin { path, error })
}

fn ring(ebpf: &mut Ebpf, name: &'static str) -> Result<RingBuf<MapData>, LoadError> {
    let map: Map = ebpf.take_map(name).ok_or(LoadError::Missing { kind: "map", name })?;
    RingBuf::try_from(map).map_err(|error| LoadError::Object(chain(&error)))
}

/// An error with its causes, on one line. aya's errors show only their own part.
pub(super) fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(inner) = cause {
        let inner_text = inner.to_string();
        if !text.contains(&inner_text) {
            text = format!("{text}: {inner_text}");
        }
        cause = inner.source();
    }
    text
}
