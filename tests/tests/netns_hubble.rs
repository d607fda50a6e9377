//! Hubble's API of a real agent, asked as `hubble` asks: flows of pods with names, policies and reasons, every way to
//! select them, and what else the service answers.

use std::os::unix::fs::PermissionsExt;
use std::time::Duration;

use egret::observe::proto::flow::layer4::Protocol;
use egret::observe::proto::flow::layer7::Record;
use egret::observe::proto::flow::{Dns, EventTypeFilter, Flow, FlowFilter, Policy, Verdict};
use egret::observe::proto::observer::{
    GetFlowsRequest, GetNamespacesRequest, GetNodesRequest, ServerStatusRequest,
};
use egret_tests::cluster::{API_POD, API_VIP, Cluster, names_of_web};
use egret_tests::hubble::Hubble;
use egret_tests::probe::{Session, UdpMode};
use egret_tests::wait;
use prost_types::{FieldMask, Timestamp};
use tonic::Code;

const DROPPED: i32 = Verdict::Dropped as i32;
const FORWARDED: i32 = Verdict::Forwarded as i32;

/// A cluster in which `web` may look up vendor.example, and reach it at port 80.
fn started(args: &[&str]) -> Option<(Cluster, Session, Hubble)> {
    let mut cluster = Cluster::new()?.agent_args(args);
    cluster.agent.put("names.yaml", &names_of_web(&["vendor.example"]));
    cluster.agent.start();
    for pod in ["shop/web", "shop/api", "kube-system/dns"] {
        cluster.agent.expect_ready(pod);
    }
    let session = Session::start(&cluster.place("web"));
    let hubble = Hubble::connect(&cluster.agent.hubble_socket());
    Some((cluster, session, hubble))
}

fn strings(values: &[&str]) -> Vec<String> {
    values.iter().map(|value| (*value).to_owned()).collect()
}

fn kind(kind: i32) -> Vec<EventTypeFilter> {
    vec![EventTypeFilter { r#type: kind, ..Default::default() }]
}

/// Verdicts about `web` and this destination port.
fn verdicts(port: &str, verdict: i32) -> FlowFilter {
    FlowFilter {
        source_pod: strings(&["shop/web"]),
        destination_port: strings(&[port]),
        verdict: vec![verdict],
        event_type: kind(5),
        traffic_direction: vec![2],
        ..Default::default()
    }
}

fn names_policy(list: &[Policy]) -> bool {
    matches!(list, [p] if (p.kind.as_str(), p.namespace.as_str(), p.name.as_str()) == ("CiliumNetworkPolicy", "shop", "names"))
}

fn dns(flow: &Flow) -> &Dns {
    match flow.l7.as_ref().and_then(|l7| l7.record.as_ref()) {
        Some(Record::Dns(dns)) => dns,
        _ => panic!("no DNS: {flow:#?}"),
    }
}

fn time(flow: &Flow) -> (i64, i32) {
    let time = flow.time.expect("a time");
    (time.seconds, time.nanos)
}

#[test]
fn flows_tell_who_what_and_why() {
    let Some((_cluster, mut session, hubble)) = started(&[]) else { return };
    session.resolve("vendor.example").first();
    session.tcp("192.0.2.10:80").allowed();
    session.tcp("192.0.2.10:443").denied();
    session.tcp("192.0.2.77:80").denied();
    session.resolve("evil.example").failed();
    expect_allowed(&hubble);
    expect_denied(&hubble);
    expect_dns(&hubble);
}

fn expect_allowed(hubble: &Hubble) {
    let allowed = hubble.expect(verdicts("80", FORWARDED));
    let (source, destination) =
        (allowed.source.as_ref().expect("one"), allowed.destination.as_ref().expect("one"));
    assert_eq!((source.namespace.as_str(), source.pod_name.as_str()), ("shop", "web"));
    assert!(
        source.id > 0 && source.identity >= 256 && source.labels.contains(&"k8s:app=web".to_owned()),
        "{source:#?}"
    );
    assert_eq!(allowed.destination_names, ["vendor.example"]);
    assert!(
        destination.identity >= 16_777_216 && destination.labels.contains(&"fqdn:vendor.example".to_owned())
    );
    assert!(names_policy(&allowed.egress_allowed_by), "{allowed:#?}");
    assert_eq!(
        (allowed.policy_match_type, allowed.is_reply, allowed.summary.as_str()),
        (2, Some(false), "TCP Flags: SYN")
    );
    assert_eq!(
        (allowed.node_name.as_str(), allowed.ip.as_ref().map(|ip| ip.destination.as_str())),
        ("n1", Some("192.0.2.10"))
    );
    assert_eq!(allowed.interface.as_ref().map(|i| i.name.as_str()), Some("vweb"));
}

fn expect_denied(hubble: &Hubble) {
    // The port is not that of the name's rule; the address is nobody's name.
    let wrong_port = hubble.expect(verdicts("443", DROPPED));
    assert_eq!((wrong_port.drop_reason_desc, wrong_port.is_reply), (133, None));
    assert!(wrong_port.summary.ends_with("; NamePortMismatch"), "{wrong_port:#?}");
    assert!(names_policy(&wrong_port.egress_denied_by), "{wrong_port:#?}");
    let why = wrong_port.policy_log.concat();
    assert!(why.starts_with("NamePortMismatch: ") && why.contains("vendor.example"), "{why}");
    let unknown =
        hubble.expect(FlowFilter { destination_ip: strings(&["192.0.2.77"]), ..verdicts("80", DROPPED) });
    assert!(unknown.summary.ends_with("; NameUnresolved"), "{unknown:#?}");
    assert!(unknown.destination_names.is_empty());
    // The packet that was dropped, beside the verdict.
    let drop = FlowFilter {
        event_type: vec![EventTypeFilter { r#type: 1, match_sub_type: true, sub_type: 133 }],
        ..verdicts("443", DROPPED)
    };
    assert!(hubble.expect(drop).egress_denied_by.is_empty());
}

fn expect_dns(hubble: &Hubble) {
    let query = FlowFilter {
        event_type: kind(129),
        reply: vec![false],
        dns_query: strings(&["^vendor\\.example\\.$"]),
        ..Default::default()
    };
    let asked = hubble.expect(query);
    assert_eq!((asked.verdict, dns(&asked).query.as_str()), (FORWARDED, "vendor.example."));
    assert!(asked.summary.starts_with("DNS Query vendor.example. A"), "{}", asked.summary);
    assert_eq!(asked.destination_service.as_ref().map(|s| s.name.as_str()), Some("kube-dns"));
    let answer = FlowFilter {
        reply: vec![true],
        protocol: strings(&["dns"]),
        destination_pod: strings(&["shop/web"]),
        dns_query: strings(&["vendor"]),
        ..Default::default()
    };
    let answers = || hubble.matching(answer.clone()).into_iter().find(|f| dns(f).ips == ["192.0.2.10"]);
    let told = wait::until(wait::patient(Duration::from_secs(5)), answers).expect("an answer");
    assert_eq!(
        (dns(&told).ttl, dns(&told).qtypes.concat(), dns(&told).rrtypes.concat()),
        (60, "A".into(), "A".into())
    );
    assert_eq!(told.summary, "DNS Answer \"192.0.2.10\" TTL: 60 (Kernel vendor.example. A)");
    // Somebody asks for what he may not: his query is the flow that was dropped.
    let refused = hubble.expect(FlowFilter {
        protocol: strings(&["dns"]),
        verdict: vec![DROPPED],
        ..Default::default()
    });
    assert_eq!((refused.drop_reason_desc, dns(&refused).query.as_str()), (133, "evil.example."));
}

#[test]
fn filters_select_by_both_ends() {
    let Some((cluster, mut session, hubble)) = started(&[]) else { return };
    let mut job = Session::start(&cluster.place("job"));
    cluster.agent.expect_ready("shop/job");
    session.resolve("vendor.example").first();
    session.tcp("192.0.2.10:80").allowed();
    session.tcp("192.0.2.10:443").denied();
    job.tcp(API_POD).allowed();
    job.tcp(&format!("{API_VIP}:80")).allowed();
    hubble.expect(verdicts("443", DROPPED));
    let to_pod = hubble.expect(FlowFilter {
        source_pod: strings(&["shop/job"]),
        destination_pod: strings(&["shop/api"]),
        traffic_direction: vec![2],
        ..Default::default()
    });
    // Nothing isolates it: everything is allowed, by nobody.
    assert_eq!((to_pod.policy_match_type, to_pod.egress_allowed_by.len()), (4, 0));
    assert!(
        to_pod.destination.as_ref().is_some_and(|d| d.id > 0 && d.labels.contains(&"k8s:app=api".to_owned()))
    );
    let to_service =
        hubble.expect(FlowFilter { destination_service: strings(&["shop/api"]), ..Default::default() });
    assert_eq!(to_service.ip.map(|ip| ip.destination).as_deref(), Some(API_VIP));
    let received = FlowFilter {
        destination_pod: strings(&["shop/api"]),
        source_pod: strings(&["shop/job"]),
        traffic_direction: vec![1],
        ..Default::default()
    };
    hubble.expect(received);

    let all = hubble.flows(GetFlowsRequest::default());
    let check = |filter: FlowFilter, passes: &dyn Fn(&Flow) -> bool| {
        let request = |white, black| GetFlowsRequest {
            whitelist: white,
            blacklist: black,
            until: all.last().and_then(|f| f.time),
            ..Default::default()
        };
        let want = all.iter().filter(|flow| passes(flow)).count();
        assert!(want > 0 && want < all.len(), "{filter:?} tells nothing apart");
        let got = hubble.flows(request(vec![filter.clone()], vec![]));
        assert!(got.iter().all(passes), "{filter:?}");
        assert_eq!(got.len(), want, "{filter:?}");
        let rest = hubble.flows(request(vec![], vec![filter]));
        assert_eq!(rest.len(), all.len() - want);
    };
    let d = FlowFilter::default;
    let pod = |flow: &Flow, name: &str| flow.source.as_ref().is_some_and(|s| s.pod_name == name);
    check(FlowFilter { source_pod: strings(&["shop/job"]), ..d() }, &|f| pod(f, "job"));
    check(FlowFilter { source_label: strings(&["app in (web,x)"]), ..d() }, &|f| pod(f, "web"));
    check(FlowFilter { verdict: vec![DROPPED], ..d() }, &|f| f.verdict == DROPPED);
    check(FlowFilter { destination_fqdn: strings(&["*.EXAMPLE."]), ..d() }, &|f| {
        f.destination_names == ["vendor.example"]
    });
    check(FlowFilter { event_type: kind(1), ..d() }, &|f| f.event_type.is_some_and(|t| t.r#type == 1));
    check(FlowFilter { event_type: kind(129), ..d() }, &|f| f.l7.is_some());
    let port = |flow: &Flow| match flow.l4.and_then(|l4| l4.protocol) {
        Some(Protocol::Tcp(tcp)) => tcp.destination_port,
        Some(Protocol::Udp(udp)) => udp.destination_port,
        _ => 0,
    };
    check(FlowFilter { destination_port: strings(&["443", "8080"]), ..d() }, &|f| {
        [443, 8080].contains(&port(f))
    });
    check(FlowFilter { protocol: strings(&["tcp"]), ..d() }, &|f| {
        matches!(f.l4.and_then(|l4| l4.protocol), Some(Protocol::Tcp(_)))
    });
}

#[test]
fn selection_follows_hubbles_rules() {
    let Some((_cluster, mut session, hubble)) = started(&["--flow-buffer", "31"]) else { return };
    // Ports in their order are flows in their order.
    (1001..=1004).for_each(|port| try_port(&mut session, port));
    hubble.expect(verdicts("1004", DROPPED));
    let white = vec![FlowFilter {
        event_type: kind(5),
        verdict: vec![DROPPED],
        destination_ip: strings(&["192.0.2.77"]),
        ..Default::default()
    }];
    let base = GetFlowsRequest { whitelist: white, ..Default::default() };
    by_number_and_time(&hubble, &base);
    followers(&hubble, &base, &mut session);
    errors(&hubble);
    masks(&hubble, &base);

    // The ring is full, and the first port is forgotten.
    let many: Vec<String> = (2001..=2020).map(|port| format!("192.0.2.77:{port}")).collect();
    let many: Vec<&str> = many.iter().map(String::as_str).collect();
    session.datagrams(UdpMode::SendMmsg, &many, false, b"x");
    hubble.expect(verdicts("2020", DROPPED));
    let status = hubble.ask(|mut client| async move { client.server_status(ServerStatusRequest {}).await });
    assert_eq!((status.num_flows, status.max_flows), (31, 31));
    assert!(
        status.seen_flows > 40 && status.uptime_ns > 0 && status.version.starts_with("egret "),
        "{status:?}"
    );
    assert!(ports(&hubble.flows(base)).into_iter().all(|port| port > 2000));
}

fn try_port(session: &mut Session, port: u16) {
    session.tcp(&format!("192.0.2.77:{port}")).denied();
}

/// Destination ports in their order. A client that gets no answer may send its SYN again.
fn ports(flows: &[Flow]) -> Vec<u32> {
    let mut ports: Vec<u32> = flows.iter().map(destination_port).collect();
    ports.dedup();
    ports
}

fn by_number_and_time(hubble: &Hubble, base: &GetFlowsRequest) {
    let ask = |request: GetFlowsRequest| ports(&hubble.flows(request));
    assert_eq!(ask(base.clone()), [1001, 1002, 1003, 1004]);
    let last = hubble.flows(GetFlowsRequest { number: 1, ..base.clone() });
    assert_eq!(last.iter().map(destination_port).collect::<Vec<_>>(), [1004]);
    assert_eq!(ask(GetFlowsRequest { number: 1, first: true, ..base.clone() }), [1001]);
    let all = hubble.flows(base.clone());
    assert!(all.windows(2).all(|pair| time(&pair[0]) <= time(&pair[1])), "oldest first");
    let at = |port: u32| all.iter().find(|f| destination_port(f) == port).and_then(|f| f.time).expect("seen");
    assert_eq!(ask(GetFlowsRequest { since: Some(at(1003)), ..base.clone() }), [1003, 1004]);
    assert_eq!(ask(GetFlowsRequest { since: Some(at(1002)), number: 1, ..base.clone() }), [1002]);
    assert_eq!(ask(GetFlowsRequest { until: Some(at(1002)), ..base.clone() }), [1001, 1002]);
    assert_eq!(
        ask(GetFlowsRequest { since: Some(at(1002)), until: Some(at(1003)), ..base.clone() }),
        [1002, 1003]
    );
    let later = Timestamp { seconds: at(1004).seconds + 3600, nanos: 0 };
    assert_eq!(ask(GetFlowsRequest { since: Some(later), ..base.clone() }), [0; 0]);
}

/// A follower without a number gets only what comes; with one, also what was.
fn followers(hubble: &Hubble, base: &GetFlowsRequest, session: &mut Session) {
    let limit = wait::patient(Duration::from_secs(5));
    let mut new = hubble.follow(base.clone());
    assert!(new.next(Duration::from_millis(200)).is_none());
    try_port(session, 1005);
    assert_eq!(new.next(limit).map(|f| f.as_ref().map(destination_port).ok()), Some(Some(1005)));
    let mut last = hubble.follow(GetFlowsRequest { number: 1, ..base.clone() });
    assert_eq!(last.next(limit).map(|f| f.as_ref().map(destination_port).ok()), Some(Some(1005)));
}

/// What makes no sense is said, and nothing else breaks.
fn errors(hubble: &Hubble) {
    let error = |request: GetFlowsRequest| {
        let status = hubble.answers(request).expect_err("an error");
        (status.code(), status.message().to_owned())
    };
    let both = GetFlowsRequest { first: true, follow: true, ..Default::default() };
    assert_eq!(error(both).0, Code::InvalidArgument);
    let bad = |filter: FlowFilter| GetFlowsRequest { blacklist: vec![filter], ..Default::default() };
    let (code, text) = error(bad(FlowFilter { source_ip: strings(&["x"]), ..Default::default() }));
    assert!(code == Code::Unknown && text.contains("source_ip") && text.contains("\"x\""), "{text}");
    assert_eq!(
        error(bad(FlowFilter { protocol: strings(&["quic"]), ..Default::default() })).0,
        Code::Unknown
    );
    let many = GetFlowsRequest { whitelist: vec![FlowFilter::default(); 65], ..Default::default() };
    assert_eq!(error(many).0, Code::Unknown);
    let large = FlowFilter { dns_query: vec![r"(\w{9}){9}".into(); 250], ..Default::default() };
    let (code, text) = error(bad(large));
    assert!(code == Code::Unknown && text.contains("dns_query") && text.contains("too large"), "{text}");
    let huge = FlowFilter { uuid: vec!["x".repeat(1 << 16)], ..Default::default() };
    assert_eq!(error(bad(huge)).0, Code::OutOfRange);
    let mask = Some(FieldMask { paths: strings(&["nothing"]) });
    assert_eq!(error(GetFlowsRequest { field_mask: mask, ..Default::default() }).0, Code::Unknown);
}

/// A mask leaves out what it does not name, but for what explains a line.
fn masks(hubble: &Hubble, base: &GetFlowsRequest) {
    let paths = strings(&["verdict", "destination.identity", "Summary"]);
    let masked = hubble.flows(GetFlowsRequest { field_mask: Some(FieldMask { paths }), ..base.clone() });
    let flow = masked.last().expect("there");
    assert!(
        flow.ip.is_none()
            && flow.l4.is_none()
            && flow.source.is_none()
            && flow.uuid.is_empty()
            && flow.node_name.is_empty()
    );
    assert!(flow.destination.as_ref().is_some_and(|d| d.identity == 2 && d.labels.is_empty()), "{flow:#?}");
    assert_eq!((flow.verdict, flow.traffic_direction, flow.drop_reason_desc), (DROPPED, 2, 133));
    assert!(flow.summary.ends_with("; NoRule") && names_policy(&flow.egress_denied_by), "{flow:#?}");
}

fn destination_port(flow: &Flow) -> u32 {
    match flow.l4.and_then(|l4| l4.protocol) {
        Some(Protocol::Tcp(tcp)) => tcp.destination_port,
        Some(Protocol::Udp(udp)) => udp.destination_port,
        other => panic!("no ports: {other:?}"),
    }
}

#[test]
fn what_is_not_shown_is_counted_to_the_packet() {
    let Some((cluster, mut session, hubble)) = started(&[]) else { return };
    let many: Vec<String> = (2001..=2900).map(|port| format!("192.0.2.77:{port}")).collect();
    let many: Vec<&str> = many.iter().map(String::as_str).collect();
    session.datagrams(UdpMode::SendMmsg, &many, false, b"x");
    let drops = FlowFilter { source_pod: strings(&["shop/web"]), event_type: kind(1), ..Default::default() };
    let sums = || {
        let counted: u64 = cluster.agent.drops("shop/web").values().sum();
        (counted, hubble.matching(drops.clone()).len() as u64, hubble.lost())
    };
    let equal = || Some(sums()).filter(|(counted, shown, lost)| shown + lost == *counted && *lost > 0);
    let found = wait::until(wait::patient(Duration::from_secs(10)), equal);
    let (counted, shown, lost) = found.unwrap_or_else(|| panic!("counted, shown, lost: {:?}", sums()));
    assert!(counted >= 900 && shown >= 100 && lost >= 100, "{counted} {shown} {lost}");
}

#[test]
fn in_audit_mode_flows_say_what_would_have_been_dropped() {
    let Some((_cluster, mut session, hubble)) = started(&["--audit"]) else { return };
    session.resolve("vendor.example").first();
    session.tcp("192.0.2.10:443").allowed();
    let audited = hubble.expect(verdicts("443", Verdict::Audit as i32));
    assert_eq!((audited.drop_reason_desc, audited.is_reply), (0, Some(false)));
    assert!(audited.summary.ends_with("; NamePortMismatch") && names_policy(&audited.egress_denied_by));
    session.resolve("other.example").failed();
    let asked = FlowFilter { dns_query: strings(&["^other"]), reply: vec![false], ..Default::default() };
    assert_eq!(hubble.expect(asked.clone()).verdict, Verdict::Audit as i32);
    // The query was let through, and answered: there is no such name.
    let answered = hubble.expect(FlowFilter { reply: vec![true], ..asked });
    assert!(answered.summary.starts_with("DNS Answer RCode: Non-Existent Domain"), "{}", answered.summary);
    assert!(hubble.matching(FlowFilter { verdict: vec![DROPPED], ..Default::default() }).is_empty());
}

#[test]
fn the_service_answers_what_clients_ask_first() {
    let Some((cluster, mut session, hubble)) = started(&["--hubble-listen", "127.0.0.1:4245"]) else {
        return;
    };
    let mode = std::fs::metadata(cluster.agent.hubble_socket()).expect("a socket").permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    for service in ["", "hubble.server.Observer"] {
        assert_eq!(hubble.health(service).expect("served"), 1, "{service:?}");
    }
    assert_eq!(hubble.health("observer.Nothing").expect_err("unknown").code(), Code::NotFound);
    session.tcp("192.0.2.77:80").denied();
    hubble.expect(verdicts("80", DROPPED));
    let namespaces = hubble.ask(|mut c| async move { c.get_namespaces(GetNamespacesRequest {}).await });
    let names: Vec<&str> = namespaces.namespaces.iter().map(|n| n.namespace.as_str()).collect();
    assert!(names.contains(&"shop") && names.is_sorted(), "{names:?}");
    let nodes = hubble.ask(|mut c| async move { c.get_nodes(GetNodesRequest {}).await }).nodes;
    assert_eq!((nodes.len(), nodes[0].name.as_str(), nodes[0].state, nodes[0].max_flows), (1, "n1", 1, 4095));
    let peer = hubble.peer();
    assert_eq!((peer.name.as_str(), peer.r#type), ("n1", 1));
    let ended = cluster.world.ns("n").run(|| {
        // The same over TCP, from inside the node's network.
        let tcp = Hubble::at("http://127.0.0.1:4245");
        (tcp.health("").expect("served"), tcp.matching(verdicts("80", DROPPED)).len())
    });
    assert!(ended.0 == 1 && ended.1 > 0, "{ended:?}");
}

#[test]
fn connections_have_a_limit_and_places_come_free() {
    use std::io::{Read, Write};
    use std::os::unix::net::UnixStream;
    let Some((cluster, _session, hubble)) = started(&[]) else { return };
    assert_eq!(hubble.health("").ok(), Some(1));
    let socket = cluster.agent.hubble_socket();
    // The server speaks first once it serves a connection: its settings.
    let connect = || {
        let mut stream = UnixStream::connect(&socket).expect("the kernel's queue has room");
        stream.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0").expect("taken");
        stream
    };
    let speaks = |stream: &mut UnixStream, limit: Duration| {
        stream.set_read_timeout(Some(limit)).expect("set");
        stream.read(&mut [0; 9]).is_ok_and(|read| read > 0)
    };
    // One place is this test's own client's.
    let mut held: Vec<UnixStream> = (0..63).map(|_| connect()).collect();
    assert!(held.iter_mut().all(|stream| speaks(stream, Duration::from_secs(10))));
    let mut late = connect();
    assert!(!speaks(&mut late, Duration::from_millis(500)), "it waits");
    assert_eq!(hubble.health("").ok(), Some(1), "those that are there are served");
    held.pop();
    assert!(speaks(&mut late, Duration::from_secs(10)), "a place came free");
    // Who says nothing keeps no place.
    drop(held);
    let silent: Vec<UnixStream> = (0..62).map(|_| UnixStream::connect(&socket).expect("room")).collect();
    let mut after = connect();
    assert!(!speaks(&mut after, Duration::from_secs(1)), "they have the places");
    assert!(speaks(&mut after, wait::patient(Duration::from_secs(20))), "their places came free");
    drop(silent);
}

#[test]
fn a_connection_that_is_over_tells_what_has_passed() {
    let Some((_cluster, mut session, hubble)) = started(&[]) else { return };
    session.resolve("vendor.example").first();
    let conn = session.tcp("192.0.2.10:80").allowed();
    let text = "x".repeat(1000);
    assert!(session.echo(conn, &text) && session.echo(conn, &text));
    session.close(conn);
    // A TCP connection is over ten seconds after its last FIN, and the table is looked at every ten seconds.
    let over = FlowFilter { event_type: kind(4), ..verdicts("80", FORWARDED) };
    let ended = || hubble.matching(over.clone()).into_iter().next();
    let ended = wait::until(wait::patient(Duration::from_secs(40)), ended).expect("an end");
    let (source, destination) = (ended.source.as_ref().expect("one"), ended.destination_names.as_slice());
    assert_eq!((source.pod_name.as_str(), destination), ("web", &["vendor.example".to_owned()][..]));
    assert_eq!(ended.event_type.map(|event| (event.r#type, event.sub_type)), Some((4, 3)), "to-stack");
    let numbers: Vec<u64> = ended
        .policy_log
        .concat()
        .split(|c: char| !c.is_ascii_digit())
        .filter_map(|number| number.parse().ok())
        .collect();
    let [sent, sent_bytes, received, received_bytes, ..] = numbers[..] else { panic!("{ended:#?}") };
    // SYN, ACK, twice 1,000 bytes, FIN, and what TCP acknowledges; 52 bytes of headers each.
    assert!((5..20).contains(&sent) && (4..20).contains(&received), "{ended:#?}");
    assert!((2000 + 40 * sent..2000 + 60 * sent + 100).contains(&sent_bytes), "{ended:#?}");
    assert!((2000 + 40 * received..2000 + 60 * received + 100).contains(&received_bytes), "{ended:#?}");
    assert!(ended.summary.starts_with("TCP ended: sent ") && ended.is_reply == Some(false), "{ended:#?}");
}
