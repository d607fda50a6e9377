//! Every program loads, is put on a cgroup, found there, and goes again without a trace; the verifier's work on each
//! stays within its budget.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use egret::datapath::{self, Datapath, Mismatch, Options, Sizes, cgroup_link::CgroupHook};
use egret_common::{
    ABI_VERSION,
    maps::{CONFIG_EVENTS, CONFIG_SERVICES, CONFIG_SLOW_PATTERNS},
};
use egret_tests::arena::{self, Arena};
use egret_tests::wait;

const PROGRAMS: usize = 13;
/// Flags stand in read-only data: what they switch off, the verifier does not look at.
const EVERYTHING: u32 = CONFIG_EVENTS | CONFIG_SLOW_PATTERNS | CONFIG_SERVICES;

#[test]
fn every_program_loads_with_the_sizes_of_a_node() {
    let arena = Arena::load_pods(EVERYTHING, Sizes::node());
    let programs = arena.verified_instructions();
    assert!(programs.len() == PROGRAMS && programs.iter().all(|(_, count)| *count > 0), "{programs:?}");
    assert!([100, 250, 300, 1000].contains(&arena.hz()));
    let fill = arena.fill();
    let full: Vec<_> =
        fill.iter().filter(|f| f.entries > usize::from(f.name == "ENDPOINT_BY_CGROUP")).collect();
    assert!(fill.len() == 11 && full.is_empty(), "{fill:?}");
    assert_eq!(arena.lost(), Default::default());
    assert!(arena.counters(4095).is_empty() && arena.counters(4096).is_empty());
}

#[test]
fn l_a02_attached_programs_are_ours_and_removing_the_pins_detaches_them() {
    let mut arena = Arena::load(0, Sizes::run());
    let (cgroup, mount) = (arena.cgroup().to_owned(), arena.cgroup_mount().to_owned());
    assert!(matches!(arena.verify(&cgroup), Err(Mismatch::NotAttached { .. })));
    arena.attach_cgroup(&cgroup, &mount, false).expect("attached");
    arena.verify(&cgroup).expect("ours are there");
    for hook in CgroupHook::ALL {
        let found = datapath::cgroup_link::attached(&cgroup, hook).expect("asked").programs;
        assert_eq!(found.len(), 1, "{hook:?}: {found:?}");
    }
    assert!(datapath::instances().into_iter().any(|i| i.dir == arena.dir()), "the instance is listed");
    // Another loader's programs are not the ones on the hooks, and it sees that.
    let other = Arena::load(0, Sizes::run());
    assert!(matches!(other.verify(&cgroup), Err(Mismatch::NotAttached { .. })));
    drop(other);
    arena.verify(&cgroup).expect("still there");

    let dir = arena.dir().to_owned();
    // Half of an instance, as a killed `remove` leaves it.
    fs::remove_file(dir.join(format!("v{ABI_VERSION}/RULES"))).expect("pinned");
    datapath::remove(&dir).expect("removed");
    assert!(!dir.exists());
    datapath::remove(&dir).expect("nothing to do is no error");
    // The kernel lets go of a link a moment after its last name is gone.
    let attached =
        || CgroupHook::ALL.map(|hook| datapath::cgroup_link::attached(&cgroup, hook).expect("asked"));
    let gone = || attached().iter().all(|query| query.programs.is_empty()).then_some(());
    assert!(wait::until(Duration::from_secs(5), gone).is_some(), "{:?}", attached());
}

#[test]
fn a_failed_load_leaves_no_pins() {
    let sizes = Sizes { grants: 0, ..Sizes::run() };
    let dir = arena::fresh_dir();
    let options = Options {
        dir,
        cgroup_level: 1,
        config_flags: 0,
        events_per_second: 1,
        sizes,
        adopt: false,
        pods: true,
    };
    let error = Datapath::load(&options).expect_err("no map has no entries").to_string();
    assert!(error.contains("GRANTS"), "{error}");
    assert!(!options.dir.exists());
}

/// Programs and their budgets per kernel release.
type Budgets = BTreeMap<String, BTreeMap<String, u32>>;

#[test]
fn verifier_budget() {
    let file = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("golden/verifier-budget.txt");
    let release = fs::read_to_string("/proc/sys/kernel/osrelease").expect("the kernel's release");
    let release = release.split('.').take(2).collect::<Vec<_>>().join(".");
    // What one command needs knows no Services; what a node needs does.
    let run = Arena::load(EVERYTHING & !CONFIG_SERVICES, Sizes::run()).verified_instructions();
    let node = Arena::load_pods(EVERYTHING, Sizes::run()).verified_instructions();
    let named = |place: &str, counts: Vec<(&'static str, u32)>| -> Vec<(String, u32)> {
        counts.into_iter().map(|(name, count)| (format!("{place}/{name}"), count)).collect()
    };
    let counts = [named("run", run), named("node", node)].concat();
    let mut budgets = read(include_str!("../golden/verifier-budget.txt"));
    if std::env::var_os("EGRET_UPDATE_GOLDEN").is_some() {
        let with_headroom = counts.iter().map(|(name, count)| (name.clone(), headroom(*count)));
        budgets.insert(release, with_headroom.collect());
        fs::write(&file, write(&budgets)).expect("the golden file");
        return;
    }
    let budget = budgets.get(&release).unwrap_or_else(|| {
        panic!("no budget for kernel {release}: EGRET_UPDATE_GOLDEN=1 writes one; it would hold {counts:?}")
    });
    let mut over = String::new();
    for (name, count) in counts {
        let limit = budget.get(&name).copied().unwrap_or(0);
        println!("{name:23} {count:7} of {limit:7}");
        if count > limit {
            let _ = writeln!(over, "{name}: {count} verified instructions, the budget is {limit}");
        }
    }
    assert!(over.is_empty(), "{over}EGRET_UPDATE_GOLDEN=1 rewrites {}", file.display());
}

/// A quarter more, rounded up to hundreds: compilers differ a little.
fn headroom(count: u32) -> u32 {
    (count + count / 4).div_ceil(100) * 100
}

fn read(text: &str) -> Budgets {
    let mut budgets = Budgets::new();
    let mut release = String::new();
    for line in text.lines().filter(|line| !line.starts_with('#') && !line.trim().is_empty()) {
        match line.split_whitespace().collect::<Vec<_>>().as_slice() {
            ["kernel", name] => release = (*name).to_owned(),
            [program, budget] => {
                let budget = budget.parse().unwrap_or_else(|_| panic!("a number in {line:?}"));
                budgets.entry(release.clone()).or_default().insert((*program).to_owned(), budget);
            }
            _ => panic!("{line:?} is no line of the budget"),
        }
    }
    budgets
}

fn write(budgets: &Budgets) -> String {
    let mut text = String::from(
        "# Instructions that the verifier may walk, per kernel release and program (`cargo xtask verify`).\n\
         # Written by EGRET_UPDATE_GOLDEN=1 with a quarter of headroom; the kernel's limit is 1,000,000.\n",
    );
    for (release, programs) in budgets {
        let _ = writeln!(text, "\nkernel {release}");
        for (program, budget) in programs {
            let _ = writeln!(text, "{program} {budget}");
        }
    }
    text
}
