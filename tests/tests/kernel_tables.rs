//! Every truth table through the loaded programs of pods' interfaces: expectations, oracle and programs agree. `egret-tables`'
//! own tests say the same of the compiled maps for every probe; here each takes a tenth of a millisecond, so of the generated
//! tables every fifth probe is made that some policy is about, and of all tables every eleventh of the others. One test, since
//! loading takes seconds; a failure names its table.

use std::time::Instant;

use egret_tables::{
    all::FAMILIES,
    run::{Tally, run},
};
use egret_tests::tables::Programs;

#[test]
fn k_r_t_n_truth_tables_through_the_programs() {
    let mut programs = Programs::load();
    let mut total = Tally::default();
    for (name, make) in FAMILIES {
        let start = Instant::now();
        let mut tally = Tally::default();
        // Prime to the numbers of ports, families and pods, so that every one of them comes up.
        let ruled = if name.starts_with("cyclonus") { 5 } else { 1 };
        let emulated = std::env::var_os("EGRET_VM").is_some();
        programs.every = if emulated { [13 * ruled, 143] } else { [ruled, 11] };
        for table in make() {
            tally += run(&table, &mut programs);
            programs.clear();
        }
        eprintln!("{name}: {tally:?} in {:.1} s", start.elapsed().as_secs_f64());
        total += tally;
    }
    eprintln!("{total:?}");
    assert!(total.tables >= 250, "{total:?}");
}
