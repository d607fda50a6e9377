//! Rows from counts and knowledge.

use super::*;
use crate::learn::fixture::{destination, exchange, learner, name};

const RESOLVER: &str = "10.7.0.53";

/// Name, target, count, reason, suggestion.
fn shown(rows: &[Row]) -> Vec<String> {
    let show = |r: &Row| {
        let name = r.name.as_deref().unwrap_or("-");
        let target = r.address.map(|a| a.to_string()).unwrap_or_default();
        let allow = r.suggestion.as_deref().unwrap_or("-");
        format!("{name} {target} {}/{} x{} {} {allow}", r.port, r.protocol, r.count, r.reason)
    };
    rows.iter().map(show).collect()
}

#[test]
fn s_a05_a_refused_name_has_a_row_with_its_remedy() {
    let mut l = learner(&["git.example"], &[]);
    exchange(&mut l, "cdn.example", [192, 0, 2, 82], 5, Some(70));
    exchange(&mut l, "cdn.example", [192, 0, 2, 82], 5, Some(71));
    let counts = [
        destination(RESOLVER, 53, Some(DropReason::QueryRefused), 4, 70),
        destination(RESOLVER, 53, Some(DropReason::QueryRefused), 4, 71),
    ];
    let rows = build(&counts, &l, &[], false);
    assert_eq!(shown(&rows), ["cdn.example 10.7.0.53 53/dns x2 QueryRefused --allow cdn.example"]);
}

#[test]
fn s_a02_audit_gives_the_rows_of_enforcement() {
    let mut l = learner(&["git.example"], &[]);
    let early = destination("192.0.2.82", 22, Some(DropReason::NameUnresolved), 3, 0);
    exchange(&mut l, "cdn.example", [192, 0, 2, 82], 5, Some(70));
    let counts = [
        destination(RESOLVER, 53, Some(DropReason::QueryRefused), 4, 70),
        destination("192.0.2.82", 443, Some(DropReason::NameUnresolved), 6, 0),
        destination("192.0.2.82", 80, Some(DropReason::NameUnresolved), 7, 0),
        destination("192.0.2.9", 443, Some(DropReason::NameUnresolved), 8, 0),
        destination("192.0.2.10", 443, None, 8, 0),
        early,
    ];
    let rows = build(&counts, &l, &[], true);
    assert_eq!(
        shown(&rows),
        [
            "cdn.example 192.0.2.82 22/tcp x1 NameUnresolved --allow cdn.example:22",
            "cdn.example 10.7.0.53 53/dns x1 QueryRefused --allow cdn.example:443 --allow cdn.example:80",
            "- 192.0.2.9 443/tcp x1 NameUnresolved --allow 192.0.2.9:443",
        ]
    );
    assert_eq!(rows[1].then.len(), 2);
    let enforced = build(&counts[..1], &l, &[], false);
    assert_eq!(shown(&enforced), ["cdn.example 10.7.0.53 53/dns x1 QueryRefused --allow cdn.example"]);
}

#[test]
fn w_a05_a_try_that_was_held_and_then_went_through_is_no_denial() {
    let l = learner(&["api.example"], &[]);
    let mut held = destination("192.0.2.2", 443, Some(DropReason::NameUnresolved), 5, 0);
    held.1.held = 1;
    let went = destination("192.0.2.2", 443, None, 6, 0);
    assert_eq!(build(&[held, went], &l, &[], false), []);
    assert_eq!(build(&[held], &l, &[], false).len(), 1, "it never went through");
    held.1.count = 3;
    assert_eq!(build(&[held, went], &l, &[], false)[0].count, 2);
}

#[test]
fn w_a12_search_forms_of_a_refused_name_are_one_row() {
    let search = [name("shop.svc.cluster.local"), name("cluster.local")];
    let mut l = learner(&["git.example"], &search);
    let mut counts = Vec::new();
    for (n, text) in
        ["bad.example.shop.svc.cluster.local", "bad.example.cluster.local", "bad.example"].iter().enumerate()
    {
        exchange(&mut l, text, [192, 0, 2, 82], 5, Some(70 + n as u64));
        counts.push(destination(RESOLVER, 53, Some(DropReason::QueryRefused), 4, 70 + n as u64));
    }
    let rows = build(&counts, &l, &search, false);
    assert_eq!(shown(&rows), ["bad.example 10.7.0.53 53/dns x3 QueryRefused --allow bad.example"]);
}

#[test]
fn t_a04_every_name_of_an_address_is_listed() {
    let mut l = learner(&["ok.example", "also.example:22"], &[]);
    exchange(&mut l, "ok.example", [198, 51, 100, 5], 5, None);
    exchange(&mut l, "also.example", [198, 51, 100, 5], 6, None);
    let class = l.state().desired().name_class(&name("ok.example"));
    let mut count = destination("198.51.100.5", 25, Some(DropReason::NamePortMismatch), 8, 0);
    count.1.class = class;
    let rows = build(&[count], &l, &[], false);
    assert_eq!(shown(&rows), ["ok.example 198.51.100.5 25/tcp x1 NamePortMismatch --allow ok.example:25"]);
    assert_eq!(rows[0].names, ["also.example", "ok.example"]);
}

#[test]
fn t_a02_an_expired_name_says_since_when() {
    let mut l = learner(&["jvm.example"], &[]);
    exchange(&mut l, "jvm.example", [192, 0, 2, 41], 5, None);
    let mut count = destination("192.0.2.41", 443, Some(DropReason::NameExpired), 8, 0);
    count.1.age = 12;
    let rows = build(&[count], &l, &[], false);
    assert!(rows[0].explanation.contains("expired 12 s ago (jvm.example)"), "{rows:?}");
}

#[test]
fn the_table_says_what_to_do() {
    let mut l = learner(&["git.example"], &[]);
    exchange(&mut l, "cdn.example", [192, 0, 2, 82], 5, Some(70));
    let counts = [destination(RESOLVER, 53, Some(DropReason::QueryRefused), 4, 70)];
    let text = crate::run::report::table(&build(&counts, &l, &[], false), false);
    assert!(text.starts_with("egret: denied:\n  NAME "), "{text}");
    let row = text.lines().nth(2).expect("a row");
    let words: Vec<&str> = row.split_whitespace().collect();
    assert_eq!(
        words,
        ["cdn.example", "-", "dns", "curl[100]", "1", "QueryRefused", "--allow", "cdn.example"]
    );
    assert_eq!(crate::run::report::table(&[], true), "egret: nothing would have been denied\n");
}
