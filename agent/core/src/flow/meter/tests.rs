//! Tables: what is asked for, flows, and what is shown then.

use std::sync::Arc;

use egret_common::net::Direction;
use egret_common::verdict::{DropReason, Verdict};

use super::*;
use crate::flow::tests::flow;
use crate::flow::{Dns, Kind, L4, Workload};

fn meter(config: &str) -> Meter {
    Meter::new(&config.parse().unwrap_or_else(|error| panic!("{config}: {error}")))
}

/// Every series as Prometheus writes it, labels that are empty left out.
fn shown(meter: &Meter) -> Vec<String> {
    let row = |family: &Family, (labels, count): Row<'_>| {
        let labels = labels.iter().filter(|(_, value)| !value.is_empty());
        let labels: Vec<String> = labels.map(|(name, value)| format!("{name}={value:?}")).collect();
        format!("{}{{{}}} {count}", family.name(), labels.join(","))
    };
    meter.families().flat_map(|family| family.rows().map(move |labels| row(family, labels))).collect()
}

#[track_caller]
fn check(config: &str, flows: &[Flow], want: &[&str]) {
    let mut meter = meter(config);
    flows.iter().for_each(|flow| meter.count(flow));
    assert_eq!(shown(&meter), want, "{config}");
}

/// The usual flow, changed.
fn with(change: impl FnOnce(&mut Flow)) -> Flow {
    let mut flow = flow(1);
    change(&mut flow);
    flow
}

/// A denial is two flows: the verdict and the packet.
fn denied(reason: DropReason) -> [Flow; 2] {
    let verdict = with(|f| {
        (f.verdict, f.reason, f.is_reply) = (Verdict::Dropped, Some(reason), None);
        f.matched = Some(crate::flow::Match::None);
    });
    [verdict.clone(), Flow { kind: Kind::Drop, matched: None, ..verdict }]
}

/// A DNS message; an answer has an address for each `ips`.
fn dns(query: &str, qtype: &str, answer: Option<(u16, u8)>) -> Flow {
    with(|f| {
        (f.kind, f.matched, f.l4) = (Kind::L7, None, L4::Udp(40_000, 53));
        let mut dns = Dns { query: query.into(), qtypes: vec![qtype.into()], ..Dns::default() };
        f.is_reply = Some(answer.is_some());
        if let Some((rcode, ips)) = answer {
            (dns.response, dns.rcode) = (true, rcode);
            dns.ips = (0..ips).map(|n| [192, 0, 2, n].into()).collect();
            dns.rrtypes =
                ["CNAME", qtype].into_iter().take(2 * usize::from(ips > 0)).map(Into::into).collect();
        }
        f.dns = Some(dns);
    })
}

#[test]
fn drops_are_counted_once() {
    let mut flows = Vec::from(denied(DropReason::NameExpired));
    flows.extend(denied(DropReason::DenyRule));
    flows.extend(denied(DropReason::DenyRule));
    flows.push(flow(1));
    let mut refused = dns("a.example.", "A", None);
    (refused.verdict, refused.reason) = (Verdict::Dropped, Some(DropReason::QueryRefused));
    flows.push(refused);
    let [audited, _] = denied(DropReason::NoRule);
    flows.push(Flow { verdict: Verdict::Audited, ..audited });
    let want = [
        "drop{reason=\"POLICY_DENIED\",protocol=\"DNS\"} 1",
        "drop{reason=\"POLICY_DENIED\",protocol=\"TCP\"} 1",
        "drop{reason=\"POLICY_DENY\",protocol=\"TCP\"} 2",
    ];
    check("drop", &flows, &want);
}

#[test]
fn flows_by_protocol_type_and_verdict() {
    let mut flows = Vec::from(denied(DropReason::NoRule));
    flows.extend([flow(1), flow(2), dns("a.example.", "A", None), with(|f| f.l4 = L4::Other(47))]);
    let want = [
        "flows_processed{protocol=\"DNS\",type=\"L7\",subtype=\"DNS\",verdict=\"FORWARDED\"} 1",
        "flows_processed{protocol=\"TCP\",type=\"Drop\",verdict=\"DROPPED\"} 1",
        "flows_processed{protocol=\"TCP\",type=\"PolicyVerdict\",verdict=\"DROPPED\"} 1",
        "flows_processed{protocol=\"TCP\",type=\"PolicyVerdict\",verdict=\"FORWARDED\"} 2",
        "flows_processed{protocol=\"Unknown L4\",type=\"PolicyVerdict\",verdict=\"FORWARDED\"} 1",
    ];
    check("flow", &flows, &want);
}

#[test]
fn dns_with_and_without_names() {
    let mut refused = dns("evil.example.", "A", None);
    (refused.verdict, refused.reason) = (Verdict::Dropped, Some(DropReason::QueryRefused));
    let flows = [
        dns("a.example.", "A", None),
        dns("a.example.", "AAAA", None),
        dns("a.example.", "A", Some((0, 2))),
        dns("b.example.", "A", Some((3, 0))),
        refused,
        flow(1),
    ];
    let plain = [
        "dns_queries{qtypes=\"A\",ips_returned=\"0\"} 1",
        "dns_queries{qtypes=\"AAAA\",ips_returned=\"0\"} 1",
        "dns_queries{rcode=\"Policy denied\",qtypes=\"A\",ips_returned=\"0\"} 1",
        "dns_responses{rcode=\"No Error\",qtypes=\"A\",ips_returned=\"2\"} 1",
        "dns_responses{rcode=\"Non-Existent Domain\",qtypes=\"A\",ips_returned=\"0\"} 1",
        "dns_response_types{type=\"A\",qtypes=\"A\"} 1",
        "dns_response_types{type=\"CNAME\",qtypes=\"A\"} 1",
    ];
    check("dns", &flows, &plain);
    let named = [
        "dns_queries{qtypes=\"A\",ips_returned=\"0\",query=\"a.example.\"} 1",
        "dns_queries{rcode=\"Policy denied\",qtypes=\"A\",ips_returned=\"0\",query=\"evil.example.\"} 1",
        "dns_responses{rcode=\"No Error\",qtypes=\"A\",ips_returned=\"2\",query=\"a.example.\"} 1",
        "dns_responses{rcode=\"Non-Existent Domain\",qtypes=\"A\",ips_returned=\"0\",query=\"b.example.\"} 1",
        "dns_response_types{type=\"A\",qtypes=\"A\",query=\"a.example.\"} 1",
        "dns_response_types{type=\"CNAME\",qtypes=\"A\",query=\"a.example.\"} 1",
    ];
    check("dns:query;ignoreAAAA", &flows, &named);
}

#[test]
fn flows_to_the_world() {
    let [verdict, packet] = denied(DropReason::DenyRule);
    let [_, unmatched] = denied(DropReason::NoRule);
    let flows = [
        flow(1),
        with(|f| f.l4 = L4::Udp(1, 53)),
        with(|f| f.is_reply = Some(true)),
        with(|f| f.destination.labels = Arc::new(["k8s:app=x".to_owned()])),
        with(|f| f.l4 = L4::Tcp { ports: (1, 80), flags: 0x10 }),
        verdict,
        packet,
        unmatched,
    ];
    let want = [
        "flows_to_world{protocol=\"TCP\",verdict=\"DROPPED\"} 1",
        "flows_to_world{protocol=\"TCP\",verdict=\"FORWARDED\"} 2",
        "flows_to_world{protocol=\"UDP\",verdict=\"FORWARDED\"} 1",
    ];
    check("flows-to-world", &flows, &want);
    let want = [
        "flows_to_world{protocol=\"TCP\",verdict=\"DROPPED\",port=\"443\"} 3",
        "flows_to_world{protocol=\"TCP\",verdict=\"FORWARDED\",port=\"443\"} 1",
    ];
    check("flows-to-world:any-drop;port;syn-only", &flows, &want);
}

#[test]
fn flags_ports_messages_and_verdicts() {
    let v6 = |f: &mut Flow| {
        (f.source.ip, f.destination.ip) = ("2001:db8::1".parse().ok(), "2001:db8::2".parse().ok());
    };
    let flows = [
        flow(1),
        with(|f| f.l4 = L4::Tcp { ports: (1, 2), flags: 0x12 }),
        with(|f| (f.l4, _) = (L4::Tcp { ports: (1, 2), flags: 0x05 }, v6(f))),
        with(|f| f.l4 = L4::Icmpv4(8, 0)),
        with(|f| (f.l4, _) = (L4::Icmpv6(128, 0), v6(f))),
        with(|f| f.is_reply = Some(true)),
        denied(DropReason::NoRule)[0].clone(),
        with(|f| (f.direction, f.source.identity) = (Direction::Ingress, 1)),
        dns("a.example.", "A", None),
    ];
    let flags = [
        "tcp_flags{flag=\"FIN\",family=\"IPv6\"} 1",
        "tcp_flags{flag=\"RST\",family=\"IPv6\"} 1",
        "tcp_flags{flag=\"SYN\",family=\"IPv4\"} 3",
        "tcp_flags{flag=\"SYN-ACK\",family=\"IPv4\"} 1",
    ];
    check("tcp", &flows, &flags);
    let ports = [
        "port_distribution{protocol=\"ICMPv4\",port=\"0\"} 1",
        "port_distribution{protocol=\"ICMPv6\",port=\"0\"} 1",
        "port_distribution{protocol=\"TCP\",port=\"2\"} 2",
        "port_distribution{protocol=\"TCP\",port=\"443\"} 2",
        "port_distribution{protocol=\"UDP\",port=\"53\"} 1",
    ];
    check("port-distribution", &flows, &ports);
    let messages =
        ["icmp{family=\"IPv4\",type=\"EchoRequest\"} 1", "icmp{family=\"IPv6\",type=\"EchoRequest\"} 1"];
    check("icmp", &flows, &messages);
    let verdicts = [
        "policy_verdicts{direction=\"egress\",match=\"l3-l4\",action=\"forwarded\"} 6",
        "policy_verdicts{direction=\"egress\",match=\"l7/dns\",action=\"forwarded\"} 1",
        "policy_verdicts{direction=\"egress\",match=\"none\",action=\"dropped\"} 1",
    ];
    check("policy", &flows, &verdicts);
}

/// Between two pods of workloads, coming in.
fn between() -> Flow {
    with(|f| {
        f.source.workloads = vec![Workload { name: "web".into(), kind: "Deployment".into() }];
        f.destination.namespace = "db".into();
        f.destination.pod = "pg-0".into();
        f.destination.labels = Arc::new(["k8s:app.kubernetes.io/name=pg".to_owned(), "k8s:app=x".to_owned()]);
        f.destination.names.clear();
        f.direction = Direction::Ingress;
    })
}

#[test]
fn ends_are_called_as_was_asked() {
    for (config, want) in [
        ("sourceContext=pod", "source=\"shop/web-0\""),
        ("sourceContext=pod-name;destinationContext=pod", "source=\"web-0\",destination=\"db/pg-0\""),
        ("SOURCECONTEXT=IDENTITY", "source=\"k8s:app=web,k8s:tier=2\""),
        ("destinationContext=dns|ip", "destination=\"192.0.2.10\""),
        ("destinationContext=dns", ""),
        ("destinationContext=workload|reserved-identity|namespace", "destination=\"db\""),
        ("sourceContext=workload", "source=\"shop/web\""),
        ("sourceContext=workload-name;destinationContext=app", "source=\"web\",destination=\"pg\""),
        ("destinationContext=ip;destinationEgressContext=dns", "destination=\"192.0.2.10\""),
        ("destinationContext=ip;destinationIngressContext=namespace", "destination=\"db\""),
        ("sourceEgressContext=pod", ""),
        (
            "labelsContext=traffic_direction,source_ip,destination_pod,source_workload_kind,source_app",
            "source_ip=\"10.244.0.11\",source_workload_kind=\"Deployment\",source_app=\"web\",destination_pod=\"pg-0\",\
             traffic_direction=\"ingress\"",
        ),
        (
            "labelsContext=source_pod,source_namespace,source_workload,destination_ip,destination_namespace,\
             destination_workload,destination_workload_kind,destination_app",
            "source_pod=\"web-0\",source_namespace=\"shop\",source_workload=\"web\",destination_ip=\"192.0.2.10\",\
             destination_namespace=\"db\",destination_app=\"pg\"",
        ),
    ] {
        let comma = if want.is_empty() { "" } else { "," };
        let want = format!("tcp_flags{{flag=\"SYN\",family=\"IPv4\"{comma}{want}}} 1");
        check(&format!("tcp:{config}"), &[between()], &[&want]);
    }
    // To the world by its name; and what is both.
    check(
        "drop flow:destinationContext=dns|ip",
        &[flow(1)],
        &[
            "flows_processed{protocol=\"TCP\",type=\"PolicyVerdict\",verdict=\"FORWARDED\",destination=\"api.example\"} 1",
        ],
    );
    let api = with(|f| {
        f.destination.labels = Arc::new(["reserved:world".to_owned(), "reserved:kube-apiserver".to_owned()]);
    });
    check(
        "icmp tcp:destinationContext=reserved-identity",
        &[api],
        &["tcp_flags{flag=\"SYN\",family=\"IPv4\",destination=\"reserved:kube-apiserver\"} 1"],
    );
}

#[test]
fn what_means_nothing_is_named() {
    for (config, part) in [
        ("", ""),
        ("  ", "  "),
        ("drops", "drops"),
        ("drop dns:querry", "querry"),
        ("dns:query=yes", "query=yes"),
        ("drop:any-drop", "any-drop"),
        ("drop flow drop:sourceContext=ip", "drop:sourceContext=ip"),
        ("flow:sourceContext=ip|name", "sourceContext=ip|name"),
        ("flow:sourceContext=", "sourceContext="),
        ("flow:sourceContext", "sourceContext"),
        ("flow:sourcesContext=ip", "sourcesContext=ip"),
        ("tcp:labelsContext=source_ip,sauce", "labelsContext=source_ip,sauce"),
        ("http:sourceContext=x", "sourceContext=x"),
        ("drop,flow", "drop,flow"),
    ] {
        let error = config.parse::<Config>().expect_err(config);
        assert_eq!(error.part, part, "{config}: {error}");
    }
    let config: Config = "httpV2:exemplars=true;labelsContext=source_ip drop kafka".parse().expect("good");
    assert_eq!((config.empty(), config.handlers().len()), (&["httpV2", "kafka"][..], 1));
}

#[test]
fn series_are_bounded_and_what_is_beyond_is_counted() {
    let mut meter = meter("dns:query icmp");
    for n in 0..2_010 {
        meter.count(&dns(&format!("{n}.example."), "A", None));
    }
    meter.count(&dns("0.example.", "A", None));
    let counts: Vec<(usize, u64)> = meter.families().map(|f| (f.rows().count(), f.uncounted())).collect();
    assert_eq!(counts, [(2_000, 10), (0, 0), (0, 0), (0, 0)]);
    let first = "dns_queries{qtypes=\"A\",ips_returned=\"0\",query=\"0.example.\"} 2";
    assert!(shown(&meter).iter().any(|row| row == first), "one that is there counts on");
}

#[test]
fn values_are_short_and_clean() {
    let bad = format!("a\n\u{1b}[31m\0{}é", "x".repeat(600));
    let mut meter = meter("dns:query");
    meter.count(&dns(&bad, "A", None));
    let families: Vec<&Family> = meter.families().collect();
    let (labels, _) = families[0].rows().next().expect("one");
    let query = labels.iter().find(|(name, _)| *name == "query").expect("there").1;
    assert!(query.starts_with("a??[31m?xxx") && query.len() == 512, "{query:?}");
}

#[test]
fn a_pods_series_go_a_minute_after_it() {
    const S: u64 = 1_000_000_000;
    let mut meter =
        meter("tcp:sourceContext=pod icmp:sourceContext=namespace drop:labelsContext=destination_ip");
    let ping = with(|f| f.l4 = L4::Icmpv4(8, 0));
    let [_, mut packet] = denied(DropReason::NoRule);
    (packet.destination.namespace, packet.destination.pod) = ("db".into(), "pg-0".into());
    let [_, world] = denied(DropReason::NoRule);
    let of_other = with(|f| f.source.pod = "web-1".into());
    for flow in [&flow(1), &of_other, &ping, &packet] {
        meter.count(flow);
    }
    assert_eq!(shown(&meter).len(), 4);
    let gone = |namespace: &str, name: &str| (namespace, name) != ("shop", "web-0") && name != "pg-0";
    meter.forget(10 * S, gone);
    meter.forget(69 * S, gone);
    assert_eq!(shown(&meter).len(), 4, "it may be scraped once more");
    // It is there again, for a moment.
    meter.forget(69 * S, |_, name| name != "pg-0");
    meter.forget(70 * S, gone);
    let left = shown(&meter);
    assert!(left.len() == 3 && !left.iter().any(|row| row.starts_with("drop")), "{left:?}");
    meter.forget(130 * S, gone);
    assert_eq!(
        shown(&meter),
        [
            "tcp_flags{flag=\"SYN\",family=\"IPv4\",source=\"shop/web-1\"} 1",
            "icmp{family=\"IPv4\",type=\"EchoRequest\",source=\"shop\"} 1",
        ]
    );
    // The address is nobody's pod now: the series stays.
    meter.count(&packet);
    meter.count(&world);
    meter.forget(200 * S, gone);
    meter.forget(300 * S, gone);
    assert!(
        shown(&meter)
            .iter()
            .any(|row| row
                == "drop{reason=\"POLICY_DENIED\",protocol=\"TCP\",destination_ip=\"192.0.2.10\"} 2")
    );
}

#[test]
fn losses_by_source() {
    let mut meter = meter("drop");
    for (source, count) in
        [(LostSource::Kernel, 3), (LostSource::Queue, 4), (LostSource::Ring, 5), (LostSource::Kernel, 1)]
    {
        meter.count_lost(&Lost { source, count, first: 0, last: 0 });
    }
    assert_eq!(meter.lost(), [("perf_event_ring_buffer", 4), ("observer_events_queue", 4)]);
}
