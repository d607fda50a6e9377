//! Loaded programs for tests that hand them packets (`BPF_PROG_TEST_RUN`): own maps, own pins, and this process in a
//! cgroup that is endpoint 1, since a test run sees the cgroup of the process that asks for it.
//!
//! ```text
//!  Arena ── Datapath (pins below /sys/fs/bpf/egret/test-*)
//!    └───── Home: the cgroup; one per process, left when the last arena is gone
//! ```

use std::fs;
use std::ops::{Deref, DerefMut};
use std::path::{Path, PathBuf};
use std::process;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use egret::datapath::{Datapath, Options, ROOT, Sizes, cgroup_link};
use egret::sandbox::cgroup::{Cgroup, Hierarchy};

use crate::{lock::Lock, residue};

/// The endpoint that this process is.
pub const ENDPOINT: u32 = 1;

/// Loaded programs, until dropped.
#[derive(Debug)]
pub struct Arena {
    datapath: Option<Datapath>,
    dir: PathBuf,
    home: Arc<Home>,
    _lock: Lock,
}

impl Arena {
    /// Loads with these flags (`CONFIG_*`) and sizes and no rate limit on events; panics with the reason when the
    /// programs do not load.
    #[track_caller]
    pub fn load(config_flags: u32, sizes: Sizes) -> Self {
        Self::load_limited(config_flags, sizes, u32::MAX)
    }

    /// As [`Arena::load`], with a limit of drop events per second, reason and CPU.
    #[track_caller]
    pub fn load_limited(config_flags: u32, sizes: Sizes, events_per_second: u32) -> Self {
        Self::load_with(config_flags, sizes, events_per_second, false)
    }

    /// As [`Arena::load`], with the programs of pods' interfaces.
    #[track_caller]
    pub fn load_pods(config_flags: u32, sizes: Sizes) -> Self {
        Self::load_with(config_flags, sizes, u32::MAX, true)
    }

    /// As [`Arena::load_limited`], with or without the programs of pods' interfaces.
    #[track_caller]
    pub fn load_with(config_flags: u32, sizes: Sizes, events_per_second: u32, pods: bool) -> Self {
        let lock = Lock::shared();
        residue::ensure_bpffs();
        let home = Home::enter();
        let dir = fresh_dir();
        let options = Options {
            dir: dir.clone(),
            cgroup_level: home.level,
            config_flags,
            events_per_second,
            sizes,
            adopt: false,
            pods,
        };
        let mut datapath = Datapath::load(&options).unwrap_or_else(|error| panic!("{error}"));
        datapath.bind_cgroup(home.path(), ENDPOINT).unwrap_or_else(|error| panic!("{error}"));
        Self { datapath: Some(datapath), dir, home, _lock: lock }
    }

    /// The cgroup that this process is in.
    pub fn cgroup(&self) -> &Path {
        self.home.path()
    }

    /// The mount point of cgroup v2.
    pub fn cgroup_mount(&self) -> &Path {
        &self.home.hierarchy.mount
    }

    /// Runs a program on a packet that begins at its network header.
    #[track_caller]
    pub fn run(&self, program: &'static str, packet: &[u8]) -> u32 {
        let mut frame = vec![2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1];
        frame.extend(match (packet.first().map_or(0, |byte| byte >> 4), packet.len()) {
            (4, 20..) => [0x08, 0x00],
            (6, 40..) => [0x86, 0xdd],
            // A kernel since 6.17 runs no program on an IP packet without its whole header; ours do not ask.
            _ => [0x88, 0xb5],
        });
        frame.extend(packet);
        self.test_run(program, &frame, 1).unwrap_or_else(|error| panic!("{error}: {packet:02x?}")).value
    }
}

impl Deref for Arena {
    type Target = Datapath;

    fn deref(&self) -> &Datapath {
        self.datapath.as_ref().expect("loaded until dropped")
    }
}

impl DerefMut for Arena {
    fn deref_mut(&mut self) -> &mut Datapath {
        self.datapath.as_mut().expect("loaded until dropped")
    }
}

impl Drop for Arena {
    fn drop(&mut self) {
        drop(self.datapath.take());
        if let Err(error) = egret::datapath::remove(&self.dir) {
            eprintln!("the pins in {} stay: {error}", self.dir.display());
        }
    }
}

/// A directory for pins that nobody else uses.
pub fn fresh_dir() -> PathBuf {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    Path::new(ROOT).join(format!("test-{}-{number}", process::id()))
}

/// The cgroup of this process while an arena exists.
#[derive(Debug)]
struct Home {
    hierarchy: Hierarchy,
    cgroup: Option<Cgroup>,
    level: u32,
}

impl Home {
    fn enter() -> Arc<Self> {
        static CURRENT: Mutex<Weak<Home>> = Mutex::new(Weak::new());
        let mut current = CURRENT.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(home) = current.upgrade() {
            return home;
        }
        let home = Arc::new(Self::make());
        *current = Arc::downgrade(&home);
        home
    }

    fn make() -> Self {
        let hierarchy = Hierarchy::find().expect("cgroup v2");
        let cgroup = hierarchy.create(&format!("test-{}", process::id())).expect("a cgroup of our own");
        let (own, mount) = (&hierarchy.own, &hierarchy.mount);
        let level = cgroup_link::level(cgroup.path(), own, mount).expect("the cgroup's level");
        move_self(cgroup.path());
        Self { hierarchy, cgroup: Some(cgroup), level }
    }

    fn path(&self) -> &Path {
        self.cgroup.as_ref().map_or(Path::new("/"), Cgroup::path)
    }
}

impl Drop for Home {
    fn drop(&mut self) {
        move_self(&self.hierarchy.own);
        let removed = self.cgroup.take().map(Cgroup::remove);
        if let Some(Err(error)) = removed {
            eprintln!("the test's cgroup stays: {error}");
        }
    }
}

fn move_self(to: &Path) {
    let file = to.join("cgroup.procs");
    fs::write(&file, process::id().to_string()).unwrap_or_else(|e| panic!("{}: {e}", file.display()));
}
