//! Options and the filters that follow from them, as `hubble observe --print-raw-filters` shows them.

use super::*;
use crate::cli::{Command, parse_from};

/// What the options ask for: the lists as JSON, with `!` before what is left out, and `?` before reasons.
fn asked(line: &str) -> Result<String, String> {
    let args = ["egret", "observe"].into_iter().chain(line.split_whitespace());
    let args = match parse_from(args).map_err(|code| format!("code {code}"))?.command {
        Command::Observe(args) => args,
        other => panic!("{other:?}"),
    };
    let wanted = Wanted::read(&args.filters.given)?;
    let white = wanted.white.iter().map(json::filter);
    let black = wanted.black.iter().map(|filter| format!("!{}", json::filter(filter)));
    let reasons = wanted.reasons.iter().map(|reason| format!("?{}", reason.name()));
    Ok(white.chain(black).chain(reasons).collect::<Vec<_>>().join(" "))
}

#[track_caller]
fn check(line: &str, want: &str) {
    assert_eq!(asked(line).as_deref(), Ok(want), "{line}");
}

#[test]
fn one_end_or_either() {
    check("", "");
    check("--from-pod shop/web", r#"{"source_pod":["shop/web"]}"#);
    check("--to-pod a/b --to-pod c/", r#"{"destination_pod":["a/b","c/"]}"#);
    check("--pod shop/web", r#"{"source_pod":["shop/web"]} {"destination_pod":["shop/web"]}"#);
    check("-n shop", r#"{"source_pod":["shop/"]} {"destination_pod":["shop/"]}"#);
    check("-n shop --pod web", r#"{"source_pod":["shop/web"]} {"destination_pod":["shop/web"]}"#);
    check("-A", r#"{"source_pod":["/"]} {"destination_pod":["/"]}"#);
    check("-A --pod web", r#"{"source_pod":["/web"]} {"destination_pod":["/web"]}"#);
    check("--from-namespace a --to-namespace b", r#"{"source_pod":["a/"],"destination_pod":["b/"]}"#);
    check("--to-namespace a --to-service s", r#"{"destination_service":["a/s"]}"#);
    check("--from-pod a/b --to-namespace c", r#"{"source_pod":["a/b"],"destination_pod":["c/"]}"#);
    check("--ip 192.0.2.1", r#"{"source_ip":["192.0.2.1"]} {"destination_ip":["192.0.2.1"]}"#);
    check("--from-ip 10.0.0.0/8 --to-ip ::1", r#"{"source_ip":["10.0.0.0/8"],"destination_ip":["::1"]}"#);
    check("--to-fqdn *.example", r#"{"destination_fqdn":["*.example"]}"#);
    check("--fqdn a.b", r#"{"source_fqdn":["a.b"]} {"destination_fqdn":["a.b"]}"#);
    check("--port 53 --port 80", r#"{"source_port":["53","80"]} {"destination_port":["53","80"]}"#);
    check("--to-port 443", r#"{"destination_port":["443"]}"#);
    check("--identity world", r#"{"source_identity":[2]} {"destination_identity":[2]}"#);
    check(
        "--from-identity 300 --to-identity host",
        r#"{"source_identity":[300],"destination_identity":[1]}"#,
    );
    check("-l app=web", r#"{"source_label":["app=web"]} {"destination_label":["app=web"]}"#);
    check("--to-label reserved:world", r#"{"destination_label":["reserved:world"]}"#);
    check("--to-service shop/api", r#"{"destination_service":["shop/api"]}"#);
    check("--from-workload Deployment/", r#"{"source_workload":[{"kind":"Deployment"}]}"#);
    check("--to-workload Job/a", r#"{"destination_workload":[{"name":"a","kind":"Job"}]}"#);
    check("--to-cluster default", r#"{"destination_cluster_name":["default"]}"#);
}

#[test]
fn two_sides_with_what_is_about_both() {
    check(
        "--pod shop/web --to-port 443 --verdict dropped",
        r#"{"source_pod":["shop/web"],"verdict":["DROPPED"],"destination_port":["443"]} {"destination_pod":["shop/web"],"verdict":["DROPPED"],"destination_port":["443"]}"#,
    );
    // As of hubble: the value is at one end of both, not of any.
    check(
        "--ip 192.0.2.1 --port 53",
        r#"{"source_ip":["192.0.2.1"],"source_port":["53"]} {"destination_ip":["192.0.2.1"],"destination_port":["53"]}"#,
    );
}

#[test]
fn fields_of_the_whole_flow() {
    check("--protocol TCP --protocol dns", r#"{"protocol":["tcp","dns"]}"#);
    check("--verdict DROPPED --verdict AUDIT", r#"{"verdict":["DROPPED","AUDIT"]}"#);
    check("--drop-reason-desc policy_deny", r#"{"drop_reason_desc":["POLICY_DENY"]}"#);
    check("-t drop", r#"{"event_type":[{"type":1}]}"#);
    check(
        "-t drop:133 -t l7",
        r#"{"event_type":[{"type":1,"match_sub_type":true,"sub_type":133},{"type":129}]}"#,
    );
    check("-t trace:to-endpoint", r#"{"event_type":[{"type":4,"match_sub_type":true}]}"#);
    check("-t policy-verdict -t 7", r#"{"event_type":[{"type":5},{"type":7}]}"#);
    check("--traffic-direction Ingress", r#"{"traffic_direction":["INGRESS"]}"#);
    check("--tcp-flags syn,ACK --tcp-flags RST", r#"{"tcp_flags":[{"SYN":true,"ACK":true},{"RST":true}]}"#);
    check("-4", r#"{"ip_version":["IPv4"]}"#);
    check("--ipv6", r#"{"ip_version":["IPv6"]}"#);
    check("--ip-version v4 --ip-version 6", r#"{"ip_version":["IPv4","IPv6"]}"#);
    check("--node-name n* --node-label zone=a", r#"{"node_name":["n*"],"node_labels":["zone=a"]}"#);
    check("--uuid x --interface eth0", r#"{"uuid":["x"],"interface":[{"name":"eth0"}]}"#);
}

#[test]
fn what_is_left_out() {
    check("--not --verdict FORWARDED", r#"!{"verdict":["FORWARDED"]}"#);
    check(
        "--pod a/b --not --to-port 53 --protocol udp",
        r#"{"source_pod":["a/b"],"protocol":["udp"]} {"destination_pod":["a/b"],"protocol":["udp"]} !{"destination_port":["53"]}"#,
    );
    check("--not --to-port 53 --not --protocol udp", r#"!{"protocol":["udp"],"destination_port":["53"]}"#);
    check("--not -4 -6", r#"{"ip_version":["IPv6"]} !{"ip_version":["IPv4"]}"#);
    check(
        "--ip 10.0.0.1 --not --fqdn a.b",
        concat!(
            r#"{"source_ip":["10.0.0.1"]} {"destination_ip":["10.0.0.1"]} "#,
            r#"!{"source_fqdn":["a.b"]} !{"destination_fqdn":["a.b"]}"#
        ),
    );
    check(
        r#"--allowlist {"uuid":["a"]}{"uuid":["b"]} --denylist {"verdict":["AUDIT"]} --uuid c"#,
        r#"{"uuid":["c"]} {"uuid":["a"]} {"uuid":["b"]} !{"verdict":["AUDIT"]}"#,
    );
}

#[test]
fn reasons_ask_for_denials() {
    check("--reason NoRule", r#"{"verdict":["DROPPED","AUDIT"]} ?NoRule"#);
    check(
        "--reason nameexpired --reason MapFull -4",
        r#"{"verdict":["DROPPED","AUDIT"],"ip_version":["IPv4"]} ?NameExpired ?MapFull"#,
    );
    // What is asked for otherwise is not made wider.
    check("--reason NoRule --verdict AUDIT", r#"{"verdict":["AUDIT"]} ?NoRule"#);
    check(
        r#"--reason NoRule --allowlist {"uuid":["a"]}"#,
        r#"{"verdict":["DROPPED","AUDIT"],"uuid":["a"]} ?NoRule"#,
    );
}

#[test]
fn what_makes_no_sense_is_refused() {
    for (line, part) in [
        ("--fqdn a.b --ip 10.0.0.1", "--fqdn cannot be combined with --ip"),
        ("--to-ip 10.0.0.1 --fqdn a.b", "--fqdn cannot be combined with --to-ip"),
        ("--to-pod a/b --namespace c", "--namespace cannot be combined with --to-pod"),
        ("--pod a/b --from-namespace c", "--pod cannot be combined with --from-namespace"),
        ("--from-fqdn a.b --from-pod c/d", "--from-fqdn cannot be combined with --from-pod"),
        ("-4 -6", "cannot be combined"),
        ("--port 1 --to-port 2", "cannot be combined"),
        ("-n a --pod b/c", "names a namespace"),
        ("--not", "nothing follows --not"),
        ("--not --not -4", "two --not"),
        ("--not --reason NoRule", "--not cannot be about --reason"),
        ("--reason Because", "NoRule, DenyRule, NameUnresolved"),
        ("--ip x", "source_ip"),
        ("--to-port 70000", "destination_port"),
        ("--identity nobody", "kube-apiserver"),
        ("--verdict no", "FORWARDED"),
        ("--verdict UNKNOWN", "FORWARDED"),
        ("--drop-reason-desc no", "POLICY_DENIED"),
        ("-t x", "policy-verdict"),
        ("-t drop:x", "after the colon"),
        ("-t drop:to-stack", "after the colon"),
        ("--protocol quic", "protocol"),
        ("--tcp-flags SYN,", "write FIN"),
        ("--traffic-direction up", "ingress"),
        ("--ip-version 5", "4 or 6"),
        ("--workload a/b/c", "KIND/NAME"),
        ("--allowlist {", "--allowlist"),
        (r#"--denylist {"who":["x"]}"#, "--denylist"),
    ] {
        let error = asked(line).expect_err(line);
        assert!(error.contains(part), "{line}: {error}");
    }
}

#[test]
fn egrets_reasons_are_asked_here() {
    let wanted = Wanted { reasons: [DropReason::NoRule].into(), ..Default::default() };
    let flow = |text: &str| Flow { verdict: 2, summary: text.into(), ..Default::default() };
    assert!(wanted.has_reason(&flow("UDP; NoRule")) && !wanted.has_reason(&flow("UDP; NameUnresolved")));
    assert!(!wanted.has_reason(&flow("UDP")) && Wanted::default().has_reason(&flow("UDP")));
}
