//! One line per field and value: whether the flow of [`flow`] passes, changed as the line says.

use egret_common::verdict::{DropReason, Verdict};

use super::*;
use crate::flow::{Dns, Kind, L4, ServiceRef, tests::flow};

type Change<'a> = &'a dyn Fn(&mut Flow);

const AS_IS: Change<'static> = &|_| {};

fn strings(values: &[&str]) -> Vec<String> {
    values.iter().map(|value| (*value).to_owned()).collect()
}

#[track_caller]
fn passes(filter: &FlowFilter, change: Change<'_>) -> bool {
    let mut flow = flow(1);
    change(&mut flow);
    let white = Filters::new(std::slice::from_ref(filter), &[]).expect("valid").pass(&flow);
    let black = Filters::new(&[], std::slice::from_ref(filter)).expect("valid").pass(&flow);
    assert_ne!(white, black, "a blacklist is the opposite");
    white
}

/// One text field with one value each.
#[track_caller]
fn check(set: fn(&mut FlowFilter) -> &mut Vec<String>, change: Change<'_>, cases: &[(&str, bool)]) {
    for (value, want) in cases {
        let mut filter = FlowFilter::default();
        *set(&mut filter) = strings(&[value]);
        assert_eq!(passes(&filter, change), *want, "{value}");
        // Alternatives.
        set(&mut filter).push((*value).to_owned());
        assert_eq!(passes(&filter, change), *want, "{value} twice");
    }
}

#[track_caller]
fn bad(set: fn(&mut FlowFilter) -> &mut Vec<String>, field: &str, values: &[&str]) {
    for value in values {
        let mut filter = FlowFilter::default();
        *set(&mut filter) = strings(&[value]);
        let error = Filters::new(&[filter.clone()], &[]).expect_err(value);
        assert_eq!((error.field, error.value.as_str()), (field, *value));
        assert!(Filters::new(&[], &[filter]).is_err(), "in a blacklist as well");
    }
}

#[test]
fn addresses() {
    let cases = [
        ("10.244.0.11", true),
        ("::ffff:10.244.0.11", true),
        ("10.244.0.0/16", true),
        ("10.244.0.12", false),
        ("192.0.2.10", false),
        ("2001:db8::/32", false),
        ("0.0.0.0/0", true),
    ];
    check(|f| &mut f.source.ip, AS_IS, &cases);
    check(|f| &mut f.destination.ip, AS_IS, &[("192.0.2.10", true), ("10.244.0.11", false)]);
    check(|f| &mut f.source.ip, &|f| f.source.ip = None, &[("0.0.0.0/0", false)]);
    bad(|f| &mut f.source.ip, "source_ip", &["", "10.0.0", "10.0.0.0/33", "web"]);
    bad(|f| &mut f.destination.ip, "destination_ip", &["x"]);
    check(|f| &mut f.source_ip_xlated, AS_IS, &[("0.0.0.0/0", false)]);
    bad(|f| &mut f.source_ip_xlated, "source_ip_xlated", &["x"]);
    for (version, want) in [(1, true), (2, false)] {
        assert_eq!(passes(&FlowFilter { ip_version: vec![version], ..Default::default() }, AS_IS), want);
    }
}

#[test]
fn pods_and_services() {
    let cases = [
        ("shop/web-0", true),
        ("shop/web", true),
        ("shop/", true),
        ("/web", true),
        ("/", true),
        ("shop/web-00", false),
        ("shop2/web", false),
        ("sho/", false),
        ("web-0", false),
    ];
    check(|f| &mut f.source.pod, AS_IS, &cases);
    check(|f| &mut f.destination.pod, AS_IS, &[("/", false), ("shop/", false)]);
    check(|f| &mut f.source.pod, &|f| f.source.namespace = "default".into(), &[("web", true), ("x", false)]);
    bad(|f| &mut f.source.pod, "source_pod", &["", "a/b/c"]);
    bad(|f| &mut f.destination.pod, "destination_pod", &[""]);
    let with_service: Change<'_> = &|f| {
        f.destination.service = Some(ServiceRef { namespace: "shop".into(), name: "api".into() });
    };
    let cases = [("shop/api", true), ("shop/a", true), ("/api", true), ("api", false), ("shop/b", false)];
    check(|f| &mut f.destination.service, with_service, &cases);
    check(|f| &mut f.source.service, with_service, &[("/", false)]);
    check(|f| &mut f.destination.service, AS_IS, &[("/", false)]);
    bad(|f| &mut f.destination.service, "destination_service", &[""]);
    bad(|f| &mut f.source.service, "source_service", &[""]);
}

#[test]
fn names() {
    let cases = [
        ("api.example", true),
        ("API.Example.", true),
        ("*.example", true),
        ("*", true),
        ("api.*", true),
        ("*pi.ex*", true),
        ("pi.example", false),
        ("api.exampl", false),
        ("apixexample", false),
        ("*.api.example", false),
    ];
    check(|f| &mut f.destination.fqdn, AS_IS, &cases);
    check(|f| &mut f.source.fqdn, AS_IS, &[("*", false)]);
    // A star spans dots, and only what names are made of.
    check(
        |f| &mut f.destination.fqdn,
        &|f| f.destination.names = strings(&["a.b_c.d", "a.b.d"]),
        &[("a.*.d", true), ("a.b*c.d", false), ("a.b_c.*", true)],
    );
    bad(|f| &mut f.destination.fqdn, "destination_fqdn", &["", "."]);
    bad(|f| &mut f.source.fqdn, "source_fqdn", &[""]);
    let asked: Change<'_> = &|f| f.dns = Some(Dns { query: "www.a.example.".into(), ..Dns::default() });
    let cases = [("a\\.example", true), ("^www", true), ("^a", false), ("example\\.$", true)];
    check(|f| &mut f.dns_query, asked, &cases);
    check(|f| &mut f.dns_query, AS_IS, &[(".*", false)]);
    bad(|f| &mut f.dns_query, "dns_query", &["("]);
}

#[test]
fn labels() {
    let cases = [
        ("app=web", true),
        ("app==web", true),
        ("k8s:app=web", true),
        ("any:app=web", true),
        ("reserved:app=web", false),
        ("app=api", false),
        ("app", true),
        ("!app", false),
        ("!other", true),
        ("app!=web", false),
        ("app!=api", true),
        ("other!=x", true),
        ("app in (api, web)", true),
        ("app in (api)", false),
        ("app notin (api)", true),
        ("other notin (api)", true),
        ("app notin (api,web)", false),
        ("app=web,tier=2", true),
        ("app=web, tier=3", false),
        ("app in (web,api),!x", true),
        ("tier>1", true),
        ("tier<2", false),
        ("", true),
    ];
    check(|f| &mut f.source.label, AS_IS, &cases);
    let cases = [("reserved:world", true), ("world", true), ("k8s:world", false), ("app=web", false)];
    check(|f| &mut f.destination.label, AS_IS, &cases);
    let wrong = ["app in (a", "app in a)", "=x", "a b", "app within (x)", "tier>x", "!"];
    bad(|f| &mut f.source.label, "source_label", &wrong);
    bad(|f| &mut f.destination.label, "destination_label", &["((a))"]);
    check(|f| &mut f.node_labels, AS_IS, &[("zone=a", true), ("zone in (b)", false), ("!zone", false)]);
    bad(|f| &mut f.node_labels, "node_labels", &["a b"]);
}

#[test]
fn ports_protocols_and_flags() {
    check(|f| &mut f.source.port, AS_IS, &[("40000", true), ("443", false)]);
    check(|f| &mut f.destination.port, AS_IS, &[("443", true), ("40000", false)]);
    check(|f| &mut f.destination.port, &|f| f.l4 = L4::Udp(1, 53), &[("53", true)]);
    check(|f| &mut f.destination.port, &|f| f.l4 = L4::Sctp(1, 53), &[("53", true)]);
    check(|f| &mut f.destination.port, &|f| f.l4 = L4::Icmpv4(8, 0), &[("0", false), ("8", false)]);
    bad(|f| &mut f.source.port, "source_port", &["", "65536", "http", "-1"]);
    bad(|f| &mut f.destination.port, "destination_port", &["x"]);
    let of = |l4: L4, cases: &[(&str, bool)]| check(|f| &mut f.protocol, &|f| f.l4 = l4, cases);
    of(L4::Udp(1, 2), &[("udp", true), ("UDP", true), ("tcp", false), ("dns", false)]);
    of(L4::Sctp(1, 2), &[("sctp", true), ("udp", false)]);
    of(L4::Icmpv4(8, 0), &[("icmp", true), ("icmpv4", true), ("icmpv6", false)]);
    of(L4::Icmpv6(128, 0), &[("icmp", true), ("icmpv4", false), ("icmpv6", true)]);
    of(L4::Other(112), &[("vrrp", true), ("igmp", false), ("tcp", false)]);
    of(L4::Other(2), &[("igmp", true)]);
    let dns: Change<'_> = &|f| (f.kind, f.dns, f.l4) = (Kind::L7, Some(Dns::default()), L4::Udp(1, 53));
    check(|f| &mut f.protocol, dns, &[("dns", true), ("udp", true), ("http", false), ("kafka", false)]);
    bad(|f| &mut f.protocol, "protocol", &["", "quic", "6"]);
    let flags = |sets: &[u16], set: u16, want: bool| {
        let filter = FlowFilter { tcp_flags: sets.to_vec(), ..Default::default() };
        let change = |f: &mut Flow| f.l4 = L4::Tcp { ports: (1, 2), flags: set };
        assert_eq!(passes(&filter, &change), want, "{sets:?} {set}");
        assert!(!passes(&filter, &|f| f.l4 = L4::Udp(1, 2)));
    };
    flags(&[0x12], 0x12, true);
    flags(&[0x12], 0x32, true);
    flags(&[0x12], 0x02, false);
    flags(&[0x12, 0x02], 0x02, true);
}

#[test]
fn verdicts_reasons_types_and_replies() {
    let drop: Change<'_> = &|f| {
        (f.kind, f.verdict, f.reason, f.is_reply) =
            (Kind::Drop, Verdict::Dropped, Some(DropReason::NameExpired), None);
    };
    let audit: Change<'_> = &|f| (f.verdict, f.reason) = (Verdict::Audited, Some(DropReason::NoRule));
    let one = |filter: FlowFilter, change: Change<'_>, want: bool| {
        assert_eq!(passes(&filter, change), want, "{filter:?}");
    };
    let d = FlowFilter::default;
    for (number, want) in [(1, [true, false, false]), (2, [false, true, false]), (4, [false, false, true])] {
        for (change, want) in [AS_IS, drop, audit].into_iter().zip(want) {
            one(FlowFilter { verdict: vec![number], ..d() }, change, want);
        }
    }
    for (change, want) in [(AS_IS, false), (drop, true), (audit, false)] {
        one(FlowFilter { drop_reason_desc: vec![133], ..d() }, change, want);
        one(FlowFilter { drop_reason_desc: vec![181], ..d() }, change, false);
    }
    one(FlowFilter { drop_reason_desc: vec![0], ..d() }, AS_IS, false);
    let kind =
        |kind: i32, sub: Option<i32>| FlowFilter { event_type: vec![EventTypeFilter { kind, sub }], ..d() };
    for (filter, on_verdict, on_drop) in [
        (kind(5, None), true, false),
        (kind(1, None), false, true),
        (kind(1, Some(133)), false, true),
        (kind(1, Some(181)), false, false),
        (kind(0, None), true, true),
        (kind(0, Some(133)), false, true),
        (kind(129, None), false, false),
    ] {
        one(filter.clone(), AS_IS, on_verdict);
        one(filter, drop, on_drop);
    }
    // A reply that is not known to be one: only a drop counts, as none.
    for (is, verdict, reply, want) in [
        (Some(true), Verdict::Forwarded, true, true),
        (Some(true), Verdict::Forwarded, false, false),
        (Some(false), Verdict::Forwarded, false, true),
        (None, Verdict::Forwarded, false, false),
        (None, Verdict::Forwarded, true, false),
        (None, Verdict::Dropped, false, true),
        (None, Verdict::Dropped, true, false),
    ] {
        let change = |f: &mut Flow| (f.is_reply, f.verdict) = (is, verdict);
        one(FlowFilter { reply: vec![reply], ..d() }, &change, want);
    }
    one(FlowFilter { traffic_direction: vec![2], ..d() }, AS_IS, true);
    one(FlowFilter { traffic_direction: vec![1], ..d() }, AS_IS, false);
}

#[test]
fn identities_workloads_and_places() {
    let side = |change: fn(&mut SideFilter), source: bool, destination: bool| {
        let (mut one, mut other) = (FlowFilter::default(), FlowFilter::default());
        change(&mut one.source);
        change(&mut other.destination);
        let with: Change<'_> =
            &|f| f.source.workloads = vec![Workload { name: "web".into(), kind: "Deployment".into() }];
        assert_eq!((passes(&one, with), passes(&other, with)), (source, destination), "{one:?}");
    };
    side(|f| f.identity = vec![300], true, false);
    side(|f| f.identity = vec![1, 2], false, true);
    side(|f| f.cluster_name = strings(&["default"]), true, false);
    side(|f| f.cluster_name = strings(&["other"]), false, false);
    let workload = |name: &str, kind: &str| Workload { name: name.into(), kind: kind.into() };
    for (wanted, want) in [
        (workload("web", ""), true),
        (workload("", "Deployment"), true),
        (workload("web", "Deployment"), true),
        (workload("web", "DaemonSet"), false),
        (workload("we", ""), false),
    ] {
        let filter = FlowFilter {
            source: SideFilter { workload: vec![wanted], ..Default::default() },
            ..Default::default()
        };
        let with: Change<'_> = &|f| f.source.workloads = vec![workload("web", "Deployment")];
        assert_eq!(passes(&filter, with), want, "{filter:?}");
        assert!(!passes(&filter, AS_IS));
    }
    let nodes = [
        ("n1", true),
        ("default/n1", true),
        ("n*", true),
        ("*", true),
        ("*/n1", true),
        ("default/", true),
        ("n2", false),
        ("other/n1", false),
        ("n", false),
    ];
    check(|f| &mut f.node_name, AS_IS, &nodes);
    bad(|f| &mut f.node_name, "node_name", &["", "a/b/c"]);
    let uuid = [("01234567-89ab-cdef-0011-223344556677", true), ("0", false)];
    check(|f| &mut f.uuid, AS_IS, &uuid);
    check(|f| &mut f.trace_id, AS_IS, &[("x", false)]);
    for (index, name, want) in [(9, "", true), (0, "veth9", true), (9, "veth8", false), (8, "", false)] {
        let filter =
            FlowFilter { interface: vec![Interface { index, name: name.into() }], ..Default::default() };
        assert_eq!(passes(&filter, AS_IS), want, "{index} {name}");
        assert!(!passes(&filter, &|f| f.interface = None));
    }
    let filter = |encrypted| FlowFilter { encrypted: vec![encrypted], ..Default::default() };
    assert!(passes(&filter(false), AS_IS) && !passes(&filter(true), AS_IS));
    assert!(!passes(&FlowFilter { ip_trace_id: vec![7], ..Default::default() }, AS_IS));
}

#[test]
fn http_never_matches_but_is_read() {
    check(|f| &mut f.http_status_code, AS_IS, &[("404", false), ("4+", false), ("40+", false)]);
    check(|f| &mut f.http_method, AS_IS, &[("GET", false)]);
    check(|f| &mut f.http_path, AS_IS, &[(".*", false)]);
    check(|f| &mut f.http_url, AS_IS, &[(".*", false)]);
    let header = FlowFilter { http_header: vec![("a".into(), "b".into())], ..Default::default() };
    assert!(!passes(&header, AS_IS));
    bad(|f| &mut f.http_status_code, "http_status_code", &["", "+", "4", "404+", "600", "x"]);
    bad(|f| &mut f.http_path, "http_path", &["["]);
    bad(|f| &mut f.http_url, "http_url", &["["]);
    bad(|f| &mut f.cel_expression, "cel_expression", &["true"]);
}

#[test]
fn fields_are_all_asked_filters_and_values_are_alternatives() {
    let pod = |pod: &str| SideFilter { pod: strings(&[pod]), ..Default::default() };
    let both = |verdict| FlowFilter { source: pod("shop/"), verdict: vec![verdict], ..Default::default() };
    let (yes, no) = (both(1), both(2));
    let f = flow(1);
    for (white, black, want) in [
        (vec![], vec![], true),
        (vec![FlowFilter::default()], vec![], true),
        (vec![], vec![FlowFilter::default()], false),
        (vec![yes.clone()], vec![], true),
        (vec![no.clone()], vec![], false),
        (vec![no.clone(), yes.clone()], vec![], true),
        (vec![yes.clone()], vec![no.clone()], true),
        (vec![yes.clone()], vec![no.clone(), yes.clone()], false),
        (vec![], vec![no], true),
    ] {
        assert_eq!(Filters::new(&white, &black).expect("valid").pass(&f), want, "{white:?} {black:?}");
    }
    let values = FlowFilter { verdict: vec![2, 1], ..Default::default() };
    assert!(Filters::new(&[values], &[]).expect("valid").pass(&f));
    assert!(Filters::new(&[yes], &[]).expect("valid").pass(&f));
}
