//! N: how names match, by real look-ups under `egret run`.

use egret_tests::exec::Cmd;
use egret_tests::lab::Lab;
use egret_tests::policy::Cnp;

#[test]
fn n_a01_smoke_a_star_is_one_label_and_two_stars_are_more() {
    let Some(lab) = Lab::start() else { return };
    let names = ["example.com", "a.example.com", "a.b.example.com"];
    for (name, n) in names.iter().zip(1..) {
        lab.zone.add(name, 60, &[&format!("192.0.2.{n}")]);
    }
    for (pattern, allowed) in
        [("*.example.com", [false, true, false]), ("**.example.com", [false, true, true])]
    {
        let mut probe = lab.egret().allow(pattern).session();
        for ((name, n), allowed) in names.iter().zip(1..).zip(allowed) {
            lab.queries().clear();
            assert_eq!(probe.resolve(name).addresses.is_empty(), !allowed, "{pattern} {name}");
            assert_eq!(probe.tcp(&format!("192.0.2.{n}:443")).result.is_ok(), allowed, "{pattern} {name}");
            assert_eq!(lab.queries().all().is_empty(), !allowed, "{pattern} {name}");
        }
    }
}

#[test]
fn n_a02_a_final_dot_makes_no_difference() {
    let Some(lab) = Lab::start() else { return };
    for (policy, name) in [
        ("api.example.com.", "api.example.com"),
        ("api.example.com", "api.example.com."),
        ("api.example.com.:443", "api.example.com."),
    ] {
        let mut probe = lab.egret().allow(policy).session();
        probe.held();
        assert_eq!(probe.resolve_family(name, 4).first(), "192.0.2.10", "{policy} {name}");
        probe.tcp("192.0.2.10:443").allowed();
        probe.finish().report.nothing_denied();
    }
}

/// Whether `egret run --allow NAME` starts its command; if not it must say why in one line.
fn starts(lab: &Lab, name: &str) -> bool {
    let run = lab.egret().allow(name).run(&Cmd::new(["echo", "started"]));
    let started = run.outcome.stdout.contains("started");
    if !started {
        assert!(matches!(run.outcome.code, Some(64..=78)), "{name}: {:?}", run.outcome);
        assert!(run.outcome.stderr.contains("egret:"), "{name}: {:?}", run.outcome);
    }
    started
}

#[test]
fn n_a03_names_that_cannot_be_are_refused_before_the_start() {
    let Some(lab) = Lab::start() else { return };
    let label = "a".repeat(63);
    let longest = format!("{label}.{label}.{label}.{}", "b".repeat(61));
    assert_eq!(longest.len(), 253);
    assert!(starts(&lab, &longest));
    for bad in [
        format!("{longest}b"),
        format!("{label}a.example"),
        "a..b".into(),
        ".".into(),
        String::new(),
        "x".repeat(5000),
        "a.example:99999".into(),
        "a.example:443/icmpx".into(),
    ] {
        assert!(!starts(&lab, &bad), "{bad}");
    }
}

#[test]
fn n_a04_any_name_is_not_any_address() {
    let Some(lab) = Lab::start() else { return };
    lab.zone.add("x.example", 60, &["203.0.113.5"]);
    let policy = Cnp::new().queries("*").fqdn("*", &["80/TCP", "443/TCP"]).text();
    let mut probe = lab.egret().policy(&policy).session();
    probe.tcp("203.0.113.7:443").refused();
    assert_eq!(probe.resolve("x.example").first(), "203.0.113.5");
    probe.tcp("203.0.113.5:443").allowed();
    probe.tcp("203.0.113.5:22").refused();
    probe.tcp("203.0.113.7:443").refused();
    assert_eq!(probe.finish().report.reason("tcp", "203.0.113.7:443"), "NameUnresolved");
}

#[test]
fn n_a04_a_name_without_addresses_opens_nothing() {
    let Some(lab) = Lab::start() else { return };
    let mut probe = lab.egret().allow("never-resolved.example:80").allow("api.example.com:443").session();
    for target in ["192.0.2.10:80", "203.0.113.7:80", "[2001:db8:a::10]:80"] {
        probe.tcp(target).refused();
    }
    probe.resolve("api.example.com").first();
    for target in ["192.0.2.10:80", "203.0.113.7:80", "[2001:db8:a::10]:80"] {
        probe.tcp(target).refused();
    }
    assert_eq!(probe.finish().report.reason("tcp", "203.0.113.7:80"), "NameUnresolved");
}

#[test]
fn n_a05_a_trailing_wildcard_is_refused() {
    let Some(lab) = Lab::start() else { return };
    assert!(!starts(&lab, "uploads.host.example.*"));
    let policy = Cnp::new().fqdn("uploads.host.example.*", &["443/TCP"]).text();
    let run = lab.egret().policy(&policy).run(&Cmd::new(["echo", "started"]));
    assert!(!run.outcome.stdout.contains("started"), "{:?}", run.outcome);
    assert!(run.outcome.stderr.contains("uploads.host.example.*"), "the message names the pattern");
}

#[test]
fn n_a01_a_star_inside_a_label_is_the_agents_work() {
    let Some(lab) = Lab::start() else { return };
    for n in 1..=3 {
        lab.zone.add(&format!("api{n}.example.com"), 60, &[&format!("192.0.2.{}", 10 + n)]);
    }
    let mut probe = lab.egret().allow("api*.example.com:443").session();
    for n in 1..=3 {
        probe.resolve_family(&format!("api{n}.example.com"), 4).first();
        probe.tcp_patient(&format!("192.0.2.{}:443", 10 + n)).allowed();
    }
    probe.resolve("api1.example.org").failed();
    // It might have been the pattern's. Once the agent has seen that it is not, it is refused.
    probe.resolve_family("other.example.com", 4).first();
    probe.tcp_patient("192.0.2.99:443").denied();
    probe.resolve_family("other.example.com", 4).failed();
    let report = probe.finish().report;
    assert_eq!(report.row_of_name("api1.example.org").reason, "QueryRefused");
    assert_eq!(report.row("tcp", "192.0.2.99:443").name, "other.example.com");
    assert_eq!(report.denied().len(), 3, "{:#}", report.0);
}
