//! Tables for the grammar, and the matcher against a regular expression built the way the API describes it.

use proptest::prelude::*;
use regex_lite::Regex;

use super::*;

/// Names that match, then names that do not.
fn check(pattern: &str, yes: &[&str], no: &[&str]) {
    check_parsed(&Pattern::match_pattern(pattern).unwrap_or_else(|e| panic!("{pattern}: {e}")), yes, no);
}

fn check_parsed(p: &Pattern, yes: &[&str], no: &[&str]) {
    for n in yes {
        assert!(p.matches(&Name::from_dns(n).unwrap()), "{p} must match {n}");
    }
    for n in no {
        assert!(!p.matches(&Name::from_dns(n).unwrap()), "{p} must not match {n}");
    }
}

fn kind(pattern: &str) -> &'static str {
    match Pattern::match_pattern(pattern).unwrap().kind() {
        Kind::Exact(_) => "exact",
        Kind::OneLabelSuffix(_) => "one",
        Kind::DeepSuffix(_) => "deep",
        Kind::All => "all",
        Kind::Slow(_) => "slow",
    }
}

#[test]
fn n_a01_what_a_star_covers() {
    check("*.example.com", &["a.example.com", "A.EXAMPLE.com."], &["example.com", "a.b.example.com"]);
    check("**.example.com", &["a.example.com", "a.b.example.com"], &["example.com", "xexample.com"]);
    check("****.example.com", &["a.b.c.example.com"], &["example.com"]);
    check("*example.com", &["example.com", "sub-example.com"], &["www.example.com"]);
    check("**example.com", &["example.com", "subexample.com"], &["www.example.com"]);
    check(
        "sub*.example.com",
        &["sub.example.com", "subdomain.example.com"],
        &["www.example.com", "example.com"],
    );
    check(
        "a.*.example.com",
        &["a.b.example.com"],
        &["a.example.com", "a.b.c.example.com", "b.b.example.com"],
    );
    check("a.**.example.com", &["a.b.example.com"], &["a.b.c.example.com"]);
    check(
        "**.s*.example.com",
        &["a.s1.example.com", "a.b.s.example.com"],
        &["s1.example.com", "a.t.example.com"],
    );
    check(
        "a*b*c.example",
        &["abc.example", "axbxc.example", "abbcc.example"],
        &["ab.example", "abcd.example"],
    );
    for all in ["*", "**", "*.", "***."] {
        check(all, &["example.com", "a.b.example.com", "localhost"], &[]);
    }
}

#[test]
fn n_a01_domain_names_flavour() {
    let p = Pattern::domain_name("*.Example.com.").unwrap();
    check_parsed(&p, &["a.example.com", "a.b.example.com"], &["example.com"]);
    check_parsed(&Pattern::domain_name("example.com").unwrap(), &["example.com"], &["a.example.com"]);
    assert_eq!(Pattern::domain_name("a.*.example.com"), Err(PatternError::StarNotFirst));
    assert_eq!(Pattern::domain_name("*.com"), Err(PatternError::OneLabel));
    assert_eq!(Pattern::domain_name("*"), Err(PatternError::StarNotFirst));
}

#[test]
fn n_a01_kinds() {
    assert_eq!(kind("a.example.com"), "exact");
    assert_eq!(kind("*.example.com"), "one");
    assert_eq!(kind("**.example.com"), "deep");
    assert_eq!(kind("***.example.com"), "deep");
    assert_eq!(kind("*"), "all");
    for slow in
        ["sub*.example.com", "a.*.example.com", "*.*.example.com", "**.*.example.com", "**example.com"]
    {
        assert_eq!(kind(slow), "slow", "{slow}");
    }
}

#[test]
fn n_a02_final_dot_in_a_pattern() {
    assert_eq!(Pattern::match_pattern("*.Example.com."), Pattern::match_pattern("*.example.com"));
    assert_eq!(Pattern::match_name(" api.example.com. "), Pattern::match_name("API.example.com"));
    assert_eq!(Pattern::match_name("."), Err(NameError::Empty.into()));
    assert_eq!(Pattern::match_pattern("."), Err(NameError::Empty.into()));
}

#[test]
fn n_a03_bad_patterns() {
    let long = format!("*.{}", "a.".repeat(2500));
    assert_eq!(Pattern::match_pattern(&long), Err(PatternError::TooLong(long.len())));
    assert_eq!(Pattern::match_pattern("*..example.com"), Err(NameError::EmptyLabel(1).into()));
    assert_eq!(Pattern::match_pattern("a*..example.com"), Err(NameError::EmptyLabel(2).into()));
    assert_eq!(Pattern::match_pattern("-a*.example.com"), Err(NameError::Hyphen("-a*".into()).into()));
    assert_eq!(Pattern::match_pattern("a*.exam ple.com"), Err(NameError::BadChar(' ').into()));
    assert!(Pattern::match_pattern("").is_err());
    assert!(Pattern::match_pattern("**.").is_ok());
    assert_eq!(Pattern::match_name("*.example.com"), Err(PatternError::StarInName));
}

#[test]
fn n_a05_trailing_wildcard_is_rejected_with_the_reason() {
    let e = Pattern::match_pattern("uploads.host.example.*").unwrap_err();
    assert!(matches!(e, PatternError::OpenEnd(..)));
    assert!(e.to_string().contains("uploads.host.example.evil.example"), "{e}");
    for bad in ["a.ex*", "*.*", "**.*", "a.*x"] {
        assert!(matches!(Pattern::match_pattern(bad), Err(PatternError::OpenEnd(..))), "{bad}");
    }
    check("db*", &["db", "db1"], &["db1.example"]);
}

#[test]
fn w_a12_below_a_search_domain() {
    let corp = Name::parse("corp.example").unwrap();
    let p = |t: &str| Pattern::match_pattern(t).unwrap().below(&corp);
    check_parsed(&p("api.example.com").unwrap(), &["api.example.com.corp.example"], &["api.example.com"]);
    check_parsed(&p("*.x.test").unwrap(), &["a.x.test.corp.example"], &["a.b.x.test.corp.example"]);
    check_parsed(&p("s*.x.test").unwrap(), &["s1.x.test.corp.example"], &["s1.x.test"]);
    assert_eq!(p("*"), None);
}

/// POLICY-APIS 2, 1.1: dots escaped, leading `**.` = labels, other runs of stars = within a label.
fn reference(pattern: &str) -> Regex {
    let p = format!("{}.", pattern.trim().to_lowercase().trim_end_matches('.'));
    if p.trim_end_matches('.').bytes().all(|b| b == b'*') {
        return Regex::new(r"^([-a-zA-Z0-9_]+[.])+$").unwrap();
    }
    let mut out = String::from("^");
    let mut rest = p.as_str();
    let stars = rest.len() - rest.trim_start_matches('*').len();
    if stars >= 2 && rest[stars..].starts_with('.') {
        out.push_str("([-a-zA-Z0-9_]+([.][-a-zA-Z0-9_]+){0,})[.]");
        rest = &rest[stars + 1..];
    }
    let mut chars = rest.chars().peekable();
    while let Some(c) = chars.next() {
        match c {
            '.' => out.push_str("[.]"),
            '*' => {
                while chars.next_if_eq(&'*').is_some() {}
                out.push_str("[-a-zA-Z0-9_]*");
            }
            c => out.push(c),
        }
    }
    out.push('$');
    Regex::new(&out).unwrap()
}

fn any_pattern() -> impl Strategy<Value = String> {
    proptest::collection::vec("[ab*]{1,3}|\\*|\\*\\*", 1..5).prop_map(|labels| labels.join("."))
}

fn any_name() -> impl Strategy<Value = String> {
    proptest::collection::vec("[ab]{1,3}", 1..5).prop_map(|labels| labels.join("."))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1024))]

    #[test]
    fn n_a01_matcher_equals_the_regular_expression(pattern in any_pattern(), names in proptest::collection::vec(any_name(), 8)) {
        let Ok(p) = Pattern::match_pattern(&pattern) else { return Ok(()) };
        let re = reference(&pattern);
        let shown = Pattern::match_pattern(&p.to_string()).unwrap();
        prop_assert_eq!(&shown, &p, "printing and reading again");
        for n in names {
            let name = Name::parse(&n).unwrap();
            prop_assert_eq!(p.matches(&name), re.is_match(&format!("{n}.")), "{} against {}", pattern, n);
        }
    }

    #[test]
    fn n_a03_parser_never_panics(text in "[-a-z*._ \u{e4}]{0,300}") {
        let _ = Pattern::match_pattern(&text);
        let _ = Pattern::domain_name(&text);
        let _ = Name::from_dns(&text);
    }

    #[test]
    fn names_survive_the_wire(n in any_name()) {
        let name = Name::parse(&n).unwrap();
        prop_assert_eq!(Name::from_wire(&name.to_wire()).unwrap(), name);
    }
}
