//! `egret observe` beside a real agent: lines, reasons, causes, JSON, files, and a server that goes away.

use std::time::Duration;

use egret::observe::proto::flow::agent_event::Notification;
use egret::observe::proto::flow::{AgentEvent, AgentEventType, Flow, FlowFilter, Verdict};
use egret::observe::proto::observer::{GetAgentEventsRequest, GetFlowsRequest};
use egret_tests::cluster::{Cluster, names_of_web};
use egret_tests::egret::binary;
use egret_tests::exec::{Cmd, Outcome, Running};
use egret_tests::hubble::Hubble;
use egret_tests::probe::Session;
use egret_tests::scrape::Scraper;
use egret_tests::wait;
use nix::sys::signal::Signal;
use serde_json::Value;

/// How long something may take to be seen.
const LIMIT: Duration = Duration::from_secs(10);

/// A cluster in which `web` may look up vendor.example, and reach it at port 80.
fn started(args: &[&str]) -> Option<(Cluster, Session)> {
    let mut cluster = Cluster::new()?.agent_args(args);
    cluster.agent.put("names.yaml", &names_of_web(&["vendor.example"]));
    cluster.agent.start();
    for pod in ["shop/web", "shop/api", "kube-system/dns"] {
        cluster.agent.expect_ready(pod);
    }
    let session = Session::start(&cluster.place("web"));
    Some((cluster, session))
}

/// Waits until a dropped flow of `web` to this port was seen.
fn expect_drop(hubble: &Hubble, port: &str) {
    hubble.expect(FlowFilter {
        source_pod: vec!["shop/web".into()],
        destination_port: vec![port.into()],
        verdict: vec![Verdict::Dropped.into()],
        ..Default::default()
    });
}

fn command(cluster: &Cluster, args: &str) -> Cmd {
    let program = binary().display().to_string();
    let server = format!("unix://{}", cluster.agent.hubble_socket().display());
    Cmd::new([program.as_str(), "observe"].into_iter().chain(args.split_whitespace()))
        .env("HUBBLE_SERVER", &server)
}

fn observe(cluster: &Cluster, args: &str) -> Outcome {
    cluster.node().run(&command(cluster, args))
}

/// The lines, without their times.
#[track_caller]
fn lines(cluster: &Cluster, args: &str) -> Vec<String> {
    let outcome = observe(cluster, args);
    outcome.expect_success();
    let bare = |line: &str| match line.split_once(": ") {
        Some((time, rest)) if !line.starts_with(' ') && time.len() == 19 => rest.to_owned(),
        _ => line.to_owned(),
    };
    outcome.stdout.lines().map(bare).collect()
}

#[test]
fn lines_say_who_what_and_why() {
    let Some((cluster, mut session)) = started(&[]) else { return };
    let hubble = Hubble::connect(&cluster.agent.hubble_socket());
    session.resolve("vendor.example").first();
    session.tcp("192.0.2.10:80").allowed();
    for port in [2001, 2002, 2003] {
        session.tcp(&format!("192.0.2.77:{port}")).denied();
    }
    session.tcp("192.0.2.77:80").denied();
    session.tcp("192.0.2.10:443").denied();
    session.resolve("evil.example").failed();
    expect_drop(&hubble, "443");
    expect_drop(&hubble, "53");

    shown(&cluster);
    reasons(&cluster);
    as_json(&cluster, &hubble);
    from_a_file(&cluster);
    refused(&cluster);
}

/// Lines of single flows. Clients may send a packet again: of equal lines, one counts.
fn shown(cluster: &Cluster) {
    let mut denied =
        lines(cluster, "--from-pod shop/web --to-port 443 -t policy-verdict --why --print-policy-names");
    denied.dedup();
    denied.truncate(2);
    let id = cluster.agent.json(&["endpoint", "list"]);
    let web = id.as_array().into_iter().flatten().find(|e| e["pod"] == "shop/web").expect("it is held");
    let [line, why] = &denied[..] else { panic!("{denied:?}") };
    let (source, rest) = line.split_once(' ').expect("words");
    assert!(source.starts_with("shop/web:"), "{line}");
    let identity = &web["identity"];
    let (them, rest) = rest.split_once(" vendor.example:443 ").expect("the name that it was told");
    assert_eq!(them, format!("(ID:{identity}) <>"));
    assert!(
        rest.ends_with(" policy-verdict:none EGRESS DENIED BY names (CiliumNetworkPolicy) (TCP Flags: SYN; NamePortMismatch)"),
        "{line}"
    );
    assert!(why.starts_with("    NamePortMismatch: ") && why.contains("vendor.example"), "{why}");

    let allowed = lines(cluster, "--verdict FORWARDED --to-port 80 --numeric --from-pod shop/web");
    assert!(
        allowed.iter().all(|line| line.contains(" -> 192.0.2.10:80 ")) && !allowed.is_empty(),
        "{allowed:?}"
    );
    let dns = lines(cluster, "--protocol dns --verdict DROPPED --all");
    assert!(
        dns.iter()
            .any(|l| l.ends_with(" dns-request kernel DROPPED (DNS Query evil.example. A; QueryRefused)")),
        "{dns:?}"
    );
    let table = observe(cluster, "-o table --last 3 --print-node-name");
    assert!(
        table.success() && table.stdout.starts_with("TIMESTAMP ") && table.stdout.lines().count() == 4,
        "{table:#?}"
    );
    let colours = observe(cluster, "--color always --last 1 --verdict DROPPED").stdout;
    assert!(colours.contains("\x1b[31m"), "{colours:?}");
    assert!(!observe(cluster, "--last 1").stdout.contains('\x1b'), "no terminal, no colours");
}

/// One number of Hubble's, several reasons: those that were asked for, as many as were asked for.
fn reasons(cluster: &Cluster) {
    let of = |args: &str| lines(cluster, args);
    let unruled = of("--reason NoRule -t policy-verdict --all");
    assert!(unruled.len() >= 3 && unruled.iter().all(|l| l.contains(" 192.0.2.77:200")), "{unruled:?}");
    // The newest flows are others.
    let last = of("--reason NoRule -t policy-verdict --last 2");
    assert_eq!(last, unruled[unruled.len() - 2..]);
    let first = of("--reason NoRule -t policy-verdict --first 1");
    assert!(first.len() == 1 && first[0].contains("192.0.2.77:2001 "), "{first:?}");
    let two = of("--reason NamePortMismatch --reason queryrefused --all");
    assert!(
        two.iter().any(|l| l.contains("vendor.example:443 "))
            && two.iter().any(|l| l.contains("QueryRefused")),
        "{two:?}"
    );
    assert!(!two.iter().any(|l| l.contains("NameUnresolved") || l.contains("NoRule")));
    assert!(of("--reason MapFull --all").is_empty());
}

fn as_json(cluster: &Cluster, hubble: &Hubble) {
    let until = "--until 2100-01-01";
    let outcome = observe(cluster, &format!("-o json --verdict DROPPED --reason NamePortMismatch {until}"));
    let values: Vec<Value> =
        outcome.stdout.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    let filter = FlowFilter { verdict: vec![Verdict::Dropped.into()], ..Default::default() };
    let seen: Vec<Flow> = hubble.flows(GetFlowsRequest { whitelist: vec![filter], ..Default::default() });
    let seen = seen.iter().filter(|flow| flow.policy_log.concat().starts_with("NamePortMismatch: "));
    let ids: Vec<&str> = seen.map(|flow| flow.uuid.as_str()).collect();
    assert_eq!(values.iter().map(|v| v["flow"]["uuid"].as_str().expect("one")).collect::<Vec<_>>(), ids);
    let flow = &values[0]["flow"];
    assert_eq!(
        (
            &flow["verdict"],
            &flow["drop_reason_desc"],
            &flow["IP"]["ipVersion"],
            &flow["l4"]["TCP"]["destination_port"]
        ),
        (&"DROPPED".into(), &"POLICY_DENIED".into(), &"IPv4".into(), &443.into())
    );
    assert_eq!(values[0]["time"], flow["time"]);
    assert_eq!(values[0]["node_name"], "n1");
}

/// What was written can be read again: the same flows, the same lines.
fn from_a_file(cluster: &Cluster) {
    let json = observe(cluster, "-o json --all").expect_success().stdout.clone();
    let file = cluster.world.dir().join("flows.json");
    std::fs::write(&file, format!("{json}no JSON\n")).expect("written");
    for args in [
        "--all",
        "--reason NoRule --last 2",
        "--pod shop/web --not --protocol dns --all",
        "--fqdn *.example --all",
    ] {
        let server = observe(cluster, args).stdout;
        assert!(!server.is_empty(), "{args}");
        let outcome = observe(cluster, &format!("--input-file {} {args}", file.display()));
        assert_eq!(outcome.expect_success().stdout, server, "{args}");
        assert!(outcome.stderr.contains("1 lines were passed over"), "{outcome:#?}");
        let piped =
            cluster.node().run(&command(cluster, &format!("--input-file - {args}")).stdin(json.clone()));
        assert_eq!((piped.stdout.as_str(), piped.stderr.as_str()), (server.as_str(), ""), "{args}");
    }
    let nothing = cluster.node().run(&command(cluster, "--input-file -").stdin("x\n"));
    assert_eq!(nothing.code, Some(65), "{nothing:#?}");
    assert_eq!(observe(cluster, "--input-file /nowhere").code, Some(66));
}

fn refused(cluster: &Cluster) {
    for (args, code, part) in [
        ("--reason Because", 64, "NamePortMismatch"),
        ("--ip nobody", 64, "source_ip"),
        ("--fqdn a.b --ip 192.0.2.1", 64, "cannot be combined"),
        ("-f -o table", 64, "cannot follow"),
        ("--server /run/x", 64, "unix:///PATH"),
        ("--server unix:///nowhere", 69, "no answer at unix:///nowhere"),
        ("--server 127.0.0.1:9", 69, "no answer at 127.0.0.1:9"),
        ("--tls --server 127.0.0.1:9", 64, "--tls-ca-cert-files"),
    ] {
        let outcome = observe(cluster, args);
        assert_eq!(outcome.code, Some(code), "{args}: {outcome:#?}");
        assert!(
            outcome.stderr.starts_with("egret: ") && outcome.stderr.contains(part),
            "{args}: {outcome:#?}"
        );
    }
    let raw = observe(cluster, "--print-raw-filters --pod shop/web --not --verdict FORWARDED").stdout;
    let want = "allowlist:\n    - '{\"source_pod\":[\"shop/web\"]}'\n    - '{\"destination_pod\":[\"shop/web\"]}'\n\
                denylist:\n    - '{\"verdict\":[\"FORWARDED\"]}'\n";
    assert_eq!(raw, want);
}

/// Waits until a follower has said this.
#[track_caller]
fn expect_said(running: &Running, part: &str) -> String {
    let said = || Some(running.stdout_so_far()).filter(|said| said.contains(part));
    wait::until(wait::patient(LIMIT), said)
        .unwrap_or_else(|| panic!("no {part:?}: {}", running.stdout_so_far()))
}

#[test]
fn who_follows_sees_what_comes_and_how_it_ends() {
    let Some((mut cluster, mut session)) = started(&[]) else { return };
    let hubble = Hubble::connect(&cluster.agent.hubble_socket());
    for port in [3001, 3002, 3003] {
        session.tcp(&format!("192.0.2.77:{port}")).denied();
    }
    expect_drop(&hubble, "3003");
    let follow =
        |args: &str| cluster.node().spawn(&command(&cluster, args).timeout(Duration::from_secs(120)));
    let by_server = follow("--follow --last 1 -t policy-verdict --from-pod shop/web --verdict DROPPED");
    let by_reason = follow("--follow --last 1 -t policy-verdict --reason NoRule --why");
    let other = follow("--follow --last 1 --reason InvalidSource");
    for follower in [&by_server, &by_reason] {
        let said = expect_said(follower, "192.0.2.77:3003 ");
        assert!(!said.contains("192.0.2.77:3002 "), "{said}");
    }
    session.tcp("192.0.2.77:3004").denied();
    for follower in [&by_server, &by_reason] {
        expect_said(follower, "192.0.2.77:3004 ");
    }
    assert!(by_reason.stdout_so_far().contains("\n    NoRule: "));
    cluster.agent.end(Signal::SIGTERM);
    for follower in [by_server, by_reason, other] {
        let ended = follower.wait(LIMIT);
        assert_eq!(ended.code, Some(69), "{ended:#?}");
        assert!(ended.stderr.contains(" is gone: "), "{ended:#?}");
    }
}

#[test]
fn flows_are_exported_as_they_are_observed() {
    let file = std::env::temp_dir().join(format!("egret-export-{}.json", std::process::id()));
    let path = file.display().to_string();
    let deny = r#"--hubble-export-denylist={"protocol":["dns"]}"#;
    let Some((mut cluster, mut session)) = started(&["--hubble-export-file-path", &path, deny]) else {
        return;
    };
    let hubble = Hubble::connect(&cluster.agent.hubble_socket());
    session.resolve("vendor.example").first();
    session.tcp("192.0.2.10:80").allowed();
    session.tcp("192.0.2.10:443").denied();
    expect_drop(&hubble, "443");
    let log = |port: &str| std::fs::read_to_string(&file).is_ok_and(|text| text.contains(port));
    assert!(wait::until(wait::patient(LIMIT), || log("\"destination_port\":443").then_some(())).is_some());
    // The last moments as well.
    session.tcp("192.0.2.77:2001").denied();
    let observed = observe(&cluster, "--all --not --protocol dns").expect_success().stdout.clone();
    cluster.agent.end(Signal::SIGTERM);
    let exported = observe(&cluster, &format!("--input-file {path}")).expect_success().stdout.clone();
    assert!(exported.starts_with(&observed) && observed.contains(":443 "), "{observed}\n{exported}");
    assert!(exported.contains("192.0.2.77:2001 ") && !exported.contains("dns-"), "{exported}");
    let mode =
        std::os::unix::fs::PermissionsExt::mode(&std::fs::metadata(&file).expect("there").permissions());
    assert_eq!(mode & 0o777, 0o600);
    let json = std::fs::read_to_string(&file).expect("text");
    let one: Value = serde_json::from_str(json.lines().next().expect("a line")).expect("JSON");
    assert!(one["flow"]["uuid"].is_string() && one["node_name"] == "n1" && one["time"].is_string(), "{one}");
    std::fs::remove_file(&file).expect("removed");
}

#[test]
fn a_full_disk_holds_up_nobody() {
    let dir = std::env::temp_dir().join(format!("egret-small-{}", std::process::id()));
    let path = dir.join("flows.json").display().to_string();
    let args = ["--hubble-export-file-path", &path, "--metrics", "127.0.0.1:9964"];
    let Some((cluster, mut session)) = started(&args) else { return };
    let problems = || cluster.agent.json(&["status"])["problems"].to_string();
    let lost = || cluster.agent.json(&["status"])["lost"]["exported-flows"].as_u64().expect("counted");
    session.tcp("192.0.2.77:2001").denied();
    let told = wait::until(wait::patient(LIMIT), || problems().contains("No such file").then_some(()));
    assert!(told.is_some(), "an agent starts without it: {}", problems());
    // In the agent's own mount namespace, with which it goes.
    std::fs::create_dir(&dir).expect("made");
    let (pid, place) = (cluster.agent.process().pid(), dir.display());
    let mount = format!("nsenter -t {pid} -m mount -t tmpfs -o size=16k tmpfs {place}");
    cluster.node().run(&Cmd::sh(&mount)).expect_success();
    session.tcp("192.0.2.77:2002").denied();
    let well = wait::until(wait::patient(LIMIT), || (!problems().contains("not exported")).then_some(()));
    assert!(well.is_some(), "it is there now: {}", problems());
    let before = lost();
    let many: Vec<String> = (3001..=3060).map(|port| format!("192.0.2.77:{port}")).collect();
    let many: Vec<&str> = many.iter().map(String::as_str).collect();
    session.datagrams(egret_tests::probe::UdpMode::SendMmsg, &many, false, b"x");
    let told = wait::until(wait::patient(LIMIT), || problems().contains("No space left").then_some(()));
    assert!(told.is_some() && lost() > before, "{}", problems());
    let mut scraper = Scraper::new(&cluster.world, "n", "127.0.0.1:9964");
    let page = || (scraper.scrape().value("egret_unexported_flows_total", &[]) > 0.0).then_some(());
    assert!(wait::until(wait::patient(LIMIT), page).is_some(), "metrics tell it as well");
    // Names are still looked up and learned, and flows are observed.
    session.resolve("vendor.example").first();
    session.tcp("192.0.2.10:80").allowed();
    expect_drop(&Hubble::connect(&cluster.agent.hubble_socket()), "3060");
    let seen = format!("/proc/{pid}/root{place}/flows.json");
    let text = std::fs::read_to_string(seen).expect("text");
    assert!(
        text.ends_with('\n') && text.lines().all(|l| serde_json::from_str::<Value>(l).is_ok()),
        "whole lines"
    );
    drop(cluster);
    std::fs::remove_dir_all(&dir).expect("removed");
}

/// Type and object of an event.
fn told(event: &AgentEvent) -> String {
    let kind = event.r#type().as_str_name();
    match event.notification.as_ref().expect("it says something") {
        Notification::AgentStart(started) => format!("{kind} {}", started.time.is_some()),
        Notification::PolicyUpdate(of) => format!("{kind} {} {}", of.labels.join(","), of.rule_count),
        Notification::EndpointRegenerate(of) => format!("{kind} {} {}", of.id, of.error),
        Notification::EndpointUpdate(of) => format!("{kind} {} {}/{}", of.id, of.namespace, of.pod_name),
    }
}

/// Labels that name the policy.
const POLICY: &str = "k8s:io.cilium.k8s.policy.derived-from=CiliumNetworkPolicy,k8s:io.cilium.k8s.policy.name=names,\
                      k8s:io.cilium.k8s.policy.namespace=shop";

/// All that a request gets.
fn agent_events(hubble: &Hubble, request: GetAgentEventsRequest) -> Vec<AgentEvent> {
    let mut stream = hubble.ask(|mut c| async move { c.get_agent_events(request).await });
    let mut all = Vec::new();
    while let Some(answer) = hubble.block_on(stream.message()).expect("no error") {
        assert!(answer.node_name == "n1" && answer.time.is_some());
        all.push(answer.agent_event.expect("one"));
    }
    all
}

/// What happens to the agent is told: from its start on, or as it happens.
#[test]
fn agent_events_tell_what_has_changed() {
    let Some((cluster, _session)) = started(&[]) else { return };
    let web = cluster.agent.expect_ready("shop/web");
    let hubble = Hubble::connect(&cluster.agent.hubble_socket());
    let ask = |request| agent_events(&hubble, request);
    let all: Vec<String> = ask(GetAgentEventsRequest::default()).iter().map(told).collect();
    assert_eq!(all[0], "AGENT_STARTED true");
    for want in [
        format!("ENDPOINT_CREATED {web} shop/web"),
        format!("ENDPOINT_REGENERATE_SUCCESS {web} "),
        format!("POLICY_UPDATED {POLICY} 2"),
    ] {
        assert!(all.contains(&want), "{want}: {all:#?}");
    }
    let labels =
        ask(GetAgentEventsRequest::default()).into_iter().find_map(|event| match event.notification {
            Some(Notification::EndpointUpdate(of)) if of.pod_name == "web" => Some(of.labels),
            _ => None,
        });
    assert!(labels.is_some_and(|labels| labels.contains(&"k8s:app=web".to_owned())));
    let one = |first| ask(GetAgentEventsRequest { number: 1, first, ..Default::default() });
    assert_eq!(one(true)[0].r#type(), AgentEventType::AgentStarted);
    assert_eq!(told(&one(false)[0]), *all.last().expect("some"));
    changes(&cluster, &hubble, web);
}

/// Changes, each with its event.
fn changes(cluster: &Cluster, hubble: &Hubble, web: u64) {
    let request = GetAgentEventsRequest { follow: true, ..Default::default() };
    let mut stream = hubble.ask(|mut c| async move { c.get_agent_events(request).await });
    let mut expect = |want: String| {
        let next = async {
            loop {
                let answer = stream.message().await.expect("no error").expect("no end");
                if told(&answer.agent_event.expect("one")) == want {
                    return;
                }
            }
        };
        let told = hubble.block_on(async { tokio::time::timeout(wait::patient(LIMIT), next).await });
        assert!(told.is_ok(), "{want} is not told");
    };
    let api = cluster.agent.expect_ready("shop/api");
    cluster.agent.withdraw("names.yaml");
    expect(format!("ENDPOINT_REGENERATE_SUCCESS {web} "));
    expect(format!("POLICY_DELETED {POLICY} 0"));
    cluster.agent.remove("pod-api.yaml");
    expect(format!("ENDPOINT_DELETED {api} shop/api"));
    cluster.agent.apply("names.yaml", &names_of_web(&["vendor.example"]));
    expect(format!("POLICY_UPDATED {POLICY} 2"));
}

/// Denials of `web` at this port with their causes, as `egret observe --why` tells them.
#[track_caller]
fn causes(cluster: &Cluster, options: &str) -> Vec<String> {
    let args = format!("--from-pod shop/web -t policy-verdict {options} --why");
    let told = || {
        let mut why = lines(cluster, &args);
        why.retain(|line| line.starts_with("    "));
        why.dedup();
        (!why.is_empty()).then_some(why)
    };
    wait::until(wait::patient(LIMIT), told).unwrap_or_else(|| panic!("{options}: nothing"))
}

#[test]
fn n_a04_t_a04_s_a05_denials_say_why_in_words() {
    let Some((cluster, mut session)) = started(&[]) else { return };
    cluster.zone.add("x.example", 60, &["203.0.113.5"]).add("ok.example", 60, &["198.51.100.5"]);
    cluster.zone.add("bad.example", 60, &["198.51.100.5"]).add("assets.cdn.example", 60, &["192.0.2.82"]);
    // N-A04: any name is not any address.
    cluster.agent.apply("names.yaml", &names_of_web(&["*"]));
    session.resolve("x.example").first();
    session.tcp("203.0.113.5:80").allowed();
    session.tcp("203.0.113.7:80").denied();
    let never = "    NameUnresolved: Rules by name allow this port, but this workload was never told this address under an \
                 allowed name.";
    assert_eq!(causes(&cluster, "--verdict DROPPED --to-ip 203.0.113.7"), [never]);
    // T-A04: an address that two names share is told with both, and was closed under the one that is not allowed.
    let two =
        names_of_web(&["ok.example"]).replacen("- matchName: \"ok.example\"", "- matchPattern: \"*\"", 1);
    cluster.agent.apply("names.yaml", &two);
    session.resolve("bad.example").first();
    session.tcp("198.51.100.5:80").denied();
    let one = format!("{never} The address is known here as bad.example.");
    assert_eq!(causes(&cluster, "--verdict DROPPED --to-ip 198.51.100.5"), [one]);
    session.resolve("ok.example").first();
    session.tcp("198.51.100.5:80").allowed();
    let named = |wanted: Value| {
        let flows = lines(
            &cluster,
            "--from-pod shop/web -t policy-verdict --verdict FORWARDED -o json --to-ip 198.51.100.5",
        );
        let flow: Value = serde_json::from_str(flows.last()?).ok()?;
        (flow["flow"]["destination_names"] == wanted).then_some(())
    };
    let both = || named(serde_json::json!(["bad.example", "ok.example"]));
    assert!(wait::until(wait::patient(LIMIT), both).is_some(), "both names are in the flow");
    // S-A05: the second host that a download leads to. Its look-up is what is refused, and named.
    cluster.agent.apply("names.yaml", &names_of_web(&["vendor.example"]));
    session.resolve("assets.cdn.example").failed();
    let refused = || {
        let told = lines(&cluster, "--from-pod shop/web --reason QueryRefused --why");
        told.iter().any(|line| line.contains("assets.cdn.example")).then_some(told)
    };
    let told = wait::until(wait::patient(LIMIT), refused).expect("the query");
    let why = "    QueryRefused: The name in the DNS query is not on the list; the query did not leave this machine.";
    assert!(told.iter().any(|line| line.starts_with(why)), "{told:#?}");
}
