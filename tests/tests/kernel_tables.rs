//! Every truth table through the loaded programs of pods' interfaces: expectations, oracle and programs agree. `egret-tables`'
//! own tests say the same of the compiled maps for every probe; here each takes a tenth of a millisecond, so only some are
//! made. Loading takes seconds, so there are two tests only; a failure names its table.

use std::time::Instant;

use egret_tables::{
    all::{FAMILIES, is_generated},
    run::{Tally, run},
};
use egret_tests::tables::Programs;

/// Runs the families that are `wanted`. `every`: of how many probes one is made, of those that some policy is about and of
/// the others; prime to the numbers of ports, families and pods, so that every one of them comes up.
fn check(wanted: impl Fn(&str) -> bool, every: [usize; 2]) -> Tally {
    let mut programs = Programs::load();
    // An emulated machine is ten times slower (`cargo xtask test vm`).
    let slower = if std::env::var_os("EGRET_VM").is_some() { 13 } else { 1 };
    programs.every = every.map(|n| n * slower);
    let mut total = Tally::default();
    for (name, make) in FAMILIES.iter().filter(|(name, _)| wanted(name)) {
        let start = Instant::now();
        let mut tally = Tally::default();
        for table in make() {
            tally += run(&table, &mut programs);
            programs.clear();
        }
        eprintln!("{name}: {tally:?} in {:.1} s", start.elapsed().as_secs_f64());
        total += tally;
    }
    total
}

#[test]
fn k_r_t_n_written_tables_through_the_programs() {
    let total = check(|name| !is_generated(name), [1, 11]);
    assert!(total.tables >= 250 && total.queries >= 100, "{total:?}");
}

#[test]
fn k_cyclonus_tables_through_the_programs() {
    let total = check(is_generated, [5, 55]);
    assert!(total.tables >= 450, "{total:?}");
}
