//! How long a change of a label or a policy takes to the kernel, at 200 endpoints and 1,000 identities.
//!
//! The agent's own code, from texts on, over real maps; no process around it. Changes of all kinds take turns, and each
//! is undone or replaced by a later one.

mod town;

use std::path::PathBuf;
use std::time::{Duration, Instant};

use egret::agent::measure::{Course, Stage};
use egret::datapath::Sizes;
use egret_core::desired::diff;
use egret_tests::arena::Arena;

use super::stats::quantile;
use super::table::Table;
use town::Pod;

/// Changes of each kind.
const TURNS: u32 = 100;

const KINDS: [&str; 4] =
    ["label, local pod", "label, other pod", "policy of a namespace", "policy of all pods"];
const LINES: [&str; Stage::ALL.len()] = [
    "text to objects",
    "identities, owners, backends",
    "endpoints",
    "compile and compare",
    "write down for the next agent",
];

pub(super) fn run() -> Table {
    let mut arena = Arena::load(0, Sizes::node());
    let memory = std::env::temp_dir().join(format!("egret-bench-{}.json", std::process::id()));
    let files = town::files(|_| String::new());
    let (mut course, ops) = Course::new(town::NODE, files, Sizes::node().endpoints, memory.clone());
    let count = ops.len();
    let errors: Vec<&String> = course.diagnostics().0.iter().filter(|d| d.contains("error")).collect();
    assert!(errors.is_empty(), "{errors:#?}");
    arena.apply(&ops).expect("maps that are large enough");
    let (endpoints, rules) = (course.desired().endpoints.len(), course.desired().rules.len());
    let mut times: [Vec<[Duration; LINES.len() + 1]>; KINDS.len()] = Default::default();
    let (mut writes, mut warnings) = ([0; KINDS.len()], Vec::new());
    for turn in 0..TURNS {
        for (kind, times) in times.iter_mut().enumerate() {
            let (path, text) = edit(kind, turn);
            let change = course.change(&path, &text);
            let at = Instant::now();
            arena.apply(&change.ops).expect("maps that are large enough");
            let written = at.elapsed();
            assert!(!change.ops.is_empty(), "{}: no change", path.display());
            warnings.push(course.diagnostics().1);
            let mut all = [written; LINES.len() + 1];
            all[..LINES.len()].copy_from_slice(&change.times);
            times.push(all);
            writes[kind] += change.ops.len();
        }
    }
    assert!(same_as_kernel(&arena, &course), "the kernel's maps are not what was wanted");
    let mut table = table(&times);
    let _ = std::fs::remove_file(memory);
    table.note(format!(
        "not on the way, when somebody asks: warnings about policies, {} ms",
        p50_p99(&warnings)
    ));
    let mean = writes.map(|count| count / TURNS as usize);
    table.note(format!(
        "{endpoints} endpoints, 1,000 identities, 4,000 pods, 161 policies; {count} entries at first, {rules} of them RULES; {TURNS} \
         changes of each kind, {mean:?} map writes each"
    ));
    table
}

/// The file and its next text.
fn edit(kind: usize, turn: u32) -> (PathBuf, String) {
    let ns = turn * 7 % town::NAMESPACES;
    match kind {
        // Every second label is one that no pod had before.
        0 | 1 => {
            let pod = if kind == 0 { Pod::pick_local(turn * 13) } else { Pod::pick(turn * 97 + 3) };
            let text = match turn % 2 {
                0 => pod.text((pod.app + 1 + turn / 2 % (town::APPS - 1)) % town::APPS, 1, ""),
                _ => pod.text(pod.app, 2 + turn, ""),
            };
            (pod.file(), text)
        }
        2 => match turn % 3 {
            0 => (format!("policy-{ns}-web.yaml").into(), town::web(ns, 1000 + turn)),
            1 => {
                let more = [format!("new{turn}.vendor.example")];
                (format!("policy-{ns}-names.yaml").into(), town::names(ns, &more))
            }
            _ => (format!("policy-{ns}-partners.yaml").into(), town::partners(ns, 2000 + turn, turn % 256)),
        },
        _ => ("policy-all.yaml".into(), town::clusterwide(1000 + turn)),
    }
}

fn same_as_kernel(arena: &Arena, course: &Course) -> bool {
    let rest = diff(&arena.content(), course.desired());
    rest.iter().for_each(|op| println!("  {op}"));
    rest.is_empty()
}

fn table(times: &[Vec<[Duration; LINES.len() + 1]>; KINDS.len()]) -> Table {
    let head = ["ms, p50 / p99", KINDS[0], KINDS[1], KINDS[2], KINDS[3], "all"];
    let mut table = Table::new("changes: from a text to the kernel's maps", head);
    let all: Vec<_> = times.iter().flatten().copied().collect();
    let columns: Vec<&[_]> = times.iter().map(Vec::as_slice).chain([all.as_slice()]).collect();
    let mut line = |name: &str, of: &dyn Fn(&[Duration; LINES.len() + 1]) -> Duration| {
        let cell = |changes: &[_]| p50_p99(&changes.iter().map(of).collect::<Vec<_>>());
        let mut cells = vec![name.to_owned()];
        cells.extend(columns.iter().map(|changes| cell(changes)));
        table.row(cells.try_into().expect("six columns"));
    };
    for (i, name) in LINES.iter().enumerate() {
        line(name, &|change| change[i]);
    }
    line("map writes", &|change| change[LINES.len()]);
    line("total", &|change| change.iter().sum());
    table
}

fn p50_p99(times: &[Duration]) -> String {
    let us: Vec<u64> = times.iter().map(|time| time.as_micros() as u64).collect();
    let [p50, p99] = [0.5, 0.99].map(|share| quantile(&us, share) as f64 / 1e3);
    format!("{p50:.1} / {p99:.1}")
}
