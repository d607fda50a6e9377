//! Nanoseconds per name match: a query with the filter on, less the same query with the filter off.

use egret_common::maps::{ENDPOINT_AUDIT, ENDPOINT_QUERY_FILTER};
use egret_tests::dnsd::raw::{self, rtype};

use super::setup;
use super::stats::median;
use super::table::{Budget, Table};

const REPEAT: u32 = 64;
const CALLS: usize = 300;

/// Line, and the name that is asked for.
const CASES: [(&str, &str); 5] = [
    ("exact, hit", "host7.exact.bench.example"),
    ("*.suffix, hit", "www.zone7.bench.example"),
    ("**.suffix, hit", "a.b.c.deep7.bench.example"),
    ("miss beside", "a.b.other.bench.example"),
    ("miss far", "www.some-other-vendor.test"),
];

pub(super) fn run() -> Table {
    let mut table =
        Table::of_ns("name match: a query with the filter on, less the same query with the filter off");
    for patterns in [10, 1_000, 10_000] {
        // Audit: a name that is not listed goes the same way as one that is.
        let (mut arena, state) = setup::arena(0, &allow(patterns), ENDPOINT_AUDIT);
        let mut ring = arena.take_dns_ring();
        for (line, name) in CASES {
            let frame = setup::dns(true, 40_000, &raw::query(7, name, rtype::A));
            let (mut with, mut without) = (Vec::new(), Vec::new());
            for _ in 0..CALLS {
                for (flags, times) in
                    [(ENDPOINT_AUDIT, &mut without), (ENDPOINT_AUDIT | ENDPOINT_QUERY_FILTER, &mut with)]
                {
                    setup::set_flags(&mut arena, &state, flags);
                    times.push(setup::run(&arena, "egret_egress", &frame, REPEAT).1);
                    ring.drain(|_| ());
                }
            }
            let (with, without) = (median(&with), median(&without));
            let budget = (patterns == 1_000).then_some(Budget { ns: 1000, times: None });
            table.ns(&format!("{patterns} patterns, {line}"), with.saturating_sub(without), None, budget);
        }
    }
    table.note("the difference holds the look-ups of the name and that of the right to ask");
    table
}

/// Names, `*.` and `**.` suffixes in equal parts.
fn allow(patterns: usize) -> Vec<String> {
    let pattern = |n: usize| match n % 3 {
        0 => format!("host{}.exact.bench.example:443", n / 3 + 7),
        1 => format!("*.zone{}.bench.example:443", n / 3 + 7),
        _ => format!("**.deep{}.bench.example:443", n / 3 + 7),
    };
    (0..patterns).map(pattern).collect()
}
