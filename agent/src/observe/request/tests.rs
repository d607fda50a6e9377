//! Every field of a filter arrives where it belongs.

use egret_core::flow::TCP_NS;
use prost_types::Timestamp;

use super::*;

fn text(value: &str) -> Vec<String> {
    vec![value.to_owned()]
}

/// A filter in which every text is the number of its field.
fn numbered() -> wire::FlowFilter {
    let workload = |n: &str| vec![wire::Workload { name: n.into(), kind: "k".into() }];
    wire::FlowFilter {
        source_ip: text("1"),
        source_pod: text("2"),
        destination_ip: text("3"),
        destination_pod: text("4"),
        verdict: vec![5],
        event_type: vec![wire::EventTypeFilter { r#type: 6, match_sub_type: true, sub_type: 66 }],
        source_fqdn: text("7"),
        destination_fqdn: text("8"),
        http_status_code: text("9"),
        source_label: text("10"),
        destination_label: text("11"),
        protocol: text("12"),
        source_port: text("13"),
        destination_port: text("14"),
        reply: vec![true],
        source_service: text("16"),
        destination_service: text("17"),
        dns_query: text("18"),
        source_identity: vec![19],
        destination_identity: vec![20],
        http_method: text("21"),
        http_path: text("22"),
        tcp_flags: vec![wire::TcpFlags { syn: true, ns: true, ..Default::default() }],
        node_name: text("24"),
        ip_version: vec![25],
        source_workload: workload("26"),
        destination_workload: workload("27"),
        trace_id: text("28"),
        uuid: text("29"),
        traffic_direction: vec![30],
        http_url: text("31"),
        http_header: vec![wire::HttpHeader { key: "32".into(), value: "v".into() }],
        drop_reason_desc: vec![33],
        source_ip_xlated: text("34"),
        interface: vec![wire::NetworkInterface { index: 35, name: "i".into() }],
        node_labels: text("36"),
        source_cluster_name: text("37"),
        destination_cluster_name: text("38"),
        ip_trace_id: vec![39],
        encrypted: vec![true],
        experimental: Some(wire::flow_filter::Experimental { cel_expression: text("999") }),
    }
}

#[test]
fn no_field_is_lost_or_mixed_up() {
    let side = |numbers: [&str; 6], port: &str, identity: u32, workload: &str, cluster: &str| SideFilter {
        ip: text(numbers[0]),
        pod: text(numbers[1]),
        fqdn: text(numbers[2]),
        label: text(numbers[3]),
        service: text(numbers[4]),
        port: text(port),
        identity: vec![identity],
        workload: vec![Workload { name: workload.into(), kind: "k".into() }],
        cluster_name: text(cluster),
    };
    let want = FlowFilter {
        source: side(["1", "2", "7", "10", "16", ""], "13", 19, "26", "37"),
        destination: side(["3", "4", "8", "11", "17", ""], "14", 20, "27", "38"),
        source_ip_xlated: text("34"),
        verdict: vec![5],
        drop_reason_desc: vec![33],
        event_type: vec![EventTypeFilter { kind: 6, sub: Some(66) }],
        traffic_direction: vec![30],
        protocol: text("12"),
        tcp_flags: vec![0x02 | TCP_NS],
        ip_version: vec![25],
        reply: vec![true],
        dns_query: text("18"),
        http_status_code: text("9"),
        http_method: text("21"),
        http_path: text("22"),
        http_url: text("31"),
        http_header: vec![("32".into(), "v".into())],
        node_name: text("24"),
        node_labels: text("36"),
        trace_id: text("28"),
        ip_trace_id: vec![39],
        uuid: text("29"),
        interface: vec![Interface { index: 35, name: "i".into() }],
        encrypted: vec![true],
        cel_expression: text("999"),
    };
    assert_eq!(filter(&numbered()), want);
    assert_eq!(filter(&wire::FlowFilter::default()), FlowFilter::default());
    // A subtype counts only if it is meant to.
    let any = wire::EventTypeFilter { r#type: 1, match_sub_type: false, sub_type: 7 };
    assert_eq!(event_type(&any), EventTypeFilter { kind: 1, sub: None });
}

#[test]
fn numbers_times_and_masks() {
    let mask = |path: &str| Some(FieldMask { paths: text(path) });
    let request = GetFlowsRequest {
        number: 3,
        first: true,
        follow: true,
        since: Some(Timestamp { seconds: 2, nanos: 5 }),
        until: Some(Timestamp { seconds: -1, nanos: 7 }),
        experimental: Some(crate::observe::proto::observer::get_flows_request::Experimental {
            field_mask: mask("old"),
        }),
        ..Default::default()
    };
    let want = Query { number: 3, first: true, follow: true, since: Some(2_000_000_005), until: Some(7) };
    assert_eq!(query(&request), want);
    assert_eq!(super::mask(&request).map(|mask| mask.paths.concat()), Some("old".into()));
    let newer = GetFlowsRequest { field_mask: mask("new"), ..request };
    assert_eq!(super::mask(&newer).map(|mask| mask.paths.concat()), Some("new".into()));
    assert!(super::mask(&GetFlowsRequest::default()).is_none());
    let far = Timestamp { seconds: i64::MAX, nanos: 0 };
    assert_eq!(nanoseconds(&far), u64::MAX);
}
