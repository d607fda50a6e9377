//! Every truth table, read by its expectations, by the text of its policies and by the compiled maps. The programs' part is
//! `kernel_tables` of egret-tests.

use std::collections::BTreeSet;

use egret_tables::{
    all::{FAMILIES, family},
    maps::Maps,
    run::{Tally, run},
    table::read,
};

/// Runs a family; it must have made this many probes at least.
fn check(name: &str, probes: usize) {
    let mut tally = Tally::default();
    for table in family(name) {
        tally += run(&table, &mut Maps::default());
    }
    eprintln!("{name}: {tally:?}");
    assert!(tally.probes >= probes, "{tally:?}");
}

#[test]
fn k_upstream_titles() {
    check("upstream", 50_000);
}

#[test]
fn k_public_recipes() {
    check("recipes", 10_000);
}

#[test]
fn k_a02_k_a04_k_a08_k_a10_cases() {
    check("cases", 15_000);
}

#[test]
fn k_cilium() {
    check("cilium", 50_000);
}

#[test]
fn k_a08_cyclonus_steps() {
    check("cyclonus steps", 20_000);
}

#[test]
fn r_a01_r_a02_services() {
    check("services", 3_000);
}

#[test]
fn w_n_t_r_names() {
    check("dns", 10_000);
}

#[test]
fn k_cyclonus_peers() {
    check("cyclonus peers", 100_000);
}

#[test]
fn k_a03_k_a04_k_a05_cyclonus_ports_and_protocols() {
    check("cyclonus ports", 200_000);
}

#[test]
fn k_cyclonus_rules_are_a_union_that_keeps_peers_and_ports_together() {
    check("cyclonus rules", 50_000);
}

#[test]
fn k_cyclonus_conflicts_and_targets() {
    check("cyclonus conflicts", 10_000);
    check("cyclonus targets", 10_000);
}

/// A table that expects something else than what the policy says fails: the loader looks.
#[test]
#[should_panic(expected = "by `deny x/b -> x/a`")]
fn a_wrong_expectation_is_found() {
    let text = "[{title: t, steps: [{expect: ['allow * -> *', 'deny x/b -> x/a']}]}]";
    run(&read(text)[0], &mut Maps::default());
}

#[test]
fn titles_differ() {
    let mut titles = BTreeSet::new();
    for (name, make) in FAMILIES {
        for table in make() {
            assert!(titles.insert(table.title.clone()), "{name}: {} is there twice", table.title);
        }
    }
    eprintln!("{} tables", titles.len());
}
