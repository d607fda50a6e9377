//! The floor programs (`ebpf/src/bin/floor.rs`), loaded over the maps of an arena.

use std::path::PathBuf;

use aya::programs::{Program, TestRun as _, TestRunOptions};
use aya::{Ebpf, EbpfLoader};
use egret::datapath::cgroup_link;
use egret::sandbox::cgroup::Hierarchy;
use egret_common::ABI_VERSION;
use egret_tests::arena::Arena;
use egret_tests::egret::profile_dir;

const MAPS: [&str; 6] =
    ["FLOWS", "ENDPOINT_BY_CGROUP", "ENDPOINT_BY_IFINDEX", "ENDPOINTS", "GRANTS", "RULES"];

/// Loaded floor programs.
pub(crate) struct Floor(Ebpf);

impl Floor {
    /// Loads them; they see the arena's maps.
    pub(crate) fn load(arena: &Arena) -> Self {
        let object = object();
        let bytes = std::fs::read(&object).unwrap_or_else(|error| {
            panic!("{}: {error}: run `cargo xtask bench`, or build egret", object.display())
        });
        let own = Hierarchy::find().expect("cgroup v2").own;
        let level = cgroup_link::level(arena.cgroup(), &own, arena.cgroup_mount()).expect("a level");
        let pins = arena.dir().join(format!("v{ABI_VERSION}"));
        let mut loader = EbpfLoader::new();
        loader.override_global("CGROUP_LEVEL", &level, true);
        for name in MAPS {
            loader.map_pin_path(name, pins.join(name));
        }
        let mut ebpf = loader.load(&bytes).unwrap_or_else(|error| panic!("{}: {error}", object.display()));
        for (name, program) in ebpf.programs_mut() {
            let loaded = match program {
                Program::CgroupSkb(program) => program.load(),
                Program::SchedClassifier(program) => program.load(),
                _ => panic!("{name}: of another kind"),
            };
            loaded.unwrap_or_else(|error| panic!("{name}: {error}"));
        }
        Self(ebpf)
    }

    /// Runs one on a frame; what it returned and how long one of `repeat` runs took.
    pub(crate) fn run(&self, name: &str, frame: &[u8], repeat: u32) -> (u32, u64) {
        let mut out = vec![0; frame.len() + 256];
        let mut options = TestRunOptions::new();
        options.data_in = Some(frame);
        options.data_out = Some(&mut out);
        options.repeat = repeat;
        let result = match self.0.program(name) {
            Some(Program::CgroupSkb(program)) => program.test_run(options),
            Some(Program::SchedClassifier(program)) => program.test_run(options),
            _ => panic!("{name}: no such program"),
        };
        let result = result.unwrap_or_else(|error| panic!("{name}: {error}"));
        (result.return_value, result.duration.as_nanos() as u64)
    }
}

/// Where the build of Egret's own programs leaves it.
fn object() -> PathBuf {
    let target = if cfg!(target_endian = "big") { "bpfeb-unknown-none" } else { "bpfel-unknown-none" };
    let beside = || profile_dir().join("../bpf").join(target).join("release/egret-floor");
    std::env::var_os("EGRET_FLOOR_OBJECT").map_or_else(beside, PathBuf::from)
}
