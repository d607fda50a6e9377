//! Every truth table, read by its expectations, by the text of its policies and by the compiled maps. The programs' part is
//! `kernel_tables` of egret-tests.

use std::collections::BTreeSet;

use egret_tables::{
    all::{FAMILIES, family, is_generated},
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
fn k_conformance_of_cluster_network_policy() {
    check("tiers", 25_000);
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

/// What the tables are asked for (POLICY-APIS 7): the titles of the upstream suite, the public recipes, at least as many shapes
/// as cyclonus generates, and 250 tables that somebody wrote.
#[test]
fn r_k_there_are_as_many_tables_as_there_have_to_be() {
    let wanted = [
        ("upstream", 48),
        ("recipes", 13),
        ("cases", 25),
        ("cilium", 70),
        ("services", 15),
        ("dns", 50),
        // Actions 6, namespace 2, example 1, rules 4.
        ("cyclonus steps", 13),
        ("cyclonus peers", 112),
        ("cyclonus ports", 70),
        ("cyclonus rules", 4),
        ("cyclonus conflicts", 16),
        ("cyclonus targets", 6),
    ];
    let mut titles = BTreeSet::new();
    let (mut written, mut steps) = (0, 0);
    for (name, make) in FAMILIES {
        let tables = make();
        let least = wanted.iter().find(|(n, _)| n == name).map_or(1, |(_, least)| *least);
        assert!(tables.len() >= least, "{name}: {} tables, {least} are wanted", tables.len());
        written += if is_generated(name) { 0 } else { tables.len() };
        for table in tables {
            steps += table.steps.len();
            assert!(
                table.steps.iter().any(|s| !s.expect.is_silent() || !s.dns.is_empty()),
                "{}",
                table.title
            );
            assert!(titles.insert(table.title.clone()), "{name}: {} is there twice", table.title);
        }
    }
    eprintln!("{} tables, {written} of them written, {steps} steps", titles.len());
    assert!(written >= 250 && titles.len() >= 700, "{written} {}", titles.len());
}
