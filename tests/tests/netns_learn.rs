//! `egret learn`: pods in audit do what they do, by annotation and by flag; the policy that is learned lets the same pass
//! once it is enforced, and nothing foreign.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use egret::observe::proto::flow::{FlowFilter, Verdict};
use egret_tests::cluster::{Cluster, names_of_web};
use egret_tests::egret::binary;
use egret_tests::exec::{Cmd, Outcome, Place, Running};
use egret_tests::hubble::Hubble;
use egret_tests::wait;
use nix::sys::signal::Signal;

/// Nobody in `shop` may begin anything, but ask for one name.
const DENY: &str = "apiVersion: cilium.io/v2\nkind: CiliumNetworkPolicy\nmetadata: {name: deny, namespace: shop}\nspec:\n  \
    endpointSelector: {}\n  egress:\n  - toEndpoints:\n    - matchLabels: {k8s-app: kube-dns, io.kubernetes.pod.namespace: kube-system}\n    \
    toPorts:\n    - ports: [{port: \"5353\", protocol: ANY}]\n      rules: {dns: [{matchName: nothing.example}]}\n";

/// As kubelet writes it.
const RESOLV: &str = "nameserver 10.96.0.10\nsearch shop.svc.cluster.local svc.cluster.local cluster.local\n\
    options ndots:5 timeout:2 attempts:2\n";

/// What the pod is for: names of the world, by search list and as they are, a Service, a pod, addresses; a name that there
/// is not. The last connection is that of UDP.
const WORK: &str = "set -e
curl -sS -m 8 http://vendor.example/
curl -sS -m 8 http://api/
curl -sS -m 8 http://10.244.0.12:9090/
getent ahostsv4 db.vendor.example
python3 -c 'import socket; s = socket.create_connection((\"db.vendor.example\", 5432), 8); s.sendall(b\"x\\n\"); print(s.recv(9))'
getent hosts missing.vendor.example && exit 9
python3 -c '
import socket, struct
s = socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP); s.settimeout(8)
s.sendto(struct.pack(\"!BBHHH\", 8, 0, 0xf7f7, 7, 1), (\"203.0.113.7\", 0)); print(s.recv(99)[20])
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); s.settimeout(8)
s.sendto(b\"x\", (\"203.0.113.5\", 9999)); print(s.recv(9))'
";

fn cluster(args: &[&str]) -> Option<Cluster> {
    started(args, &[("deny.yaml", DENY)])
}

fn started(args: &[&str], policies: &[(&str, &str)]) -> Option<Cluster> {
    let mut cluster = Cluster::new()?.agent_args(args);
    cluster.zone.add("db.vendor.example", 60, &["192.0.2.20"]).add("evil.example", 60, &["192.0.2.66"]);
    policies.iter().for_each(|(name, text)| cluster.agent.put(name, text));
    cluster.agent.start();
    for pod in ["shop/web", "shop/job", "shop/api", "kube-system/dns"] {
        cluster.agent.expect_ready(pod);
    }
    Some(cluster)
}

fn place(cluster: &Cluster, pod: &str) -> Place {
    cluster.world.place(pod).resolv_conf(RESOLV)
}

fn work(cluster: &Cluster, pod: &str) -> Outcome {
    place(cluster, pod).run(&Cmd::sh(WORK).timeout(Duration::from_secs(60)))
}

/// `egret learn` with its files below the world's folder.
fn learn(cluster: &Cluster, args: &[&str]) -> Outcome {
    let server = format!("unix://{}", cluster.agent.hubble_socket().display());
    let source: &[&str] = if args.contains(&"--input-file") { &[] } else { &["--server", &server] };
    cluster.agent.ask(&[&["learn"], args, source].concat())
}

fn file(cluster: &Cluster, name: &str) -> PathBuf {
    cluster.world.dir().join(name)
}

/// `egret learn` in namespace `shop` that goes on until it is stopped.
fn following(cluster: &Cluster, args: &[&str], policy: &Path, record: &Path) -> Running {
    let text = |path: &Path| path.display().to_string();
    let mut argv = vec![text(&binary())];
    argv.extend(
        ["learn", "-n", "shop", "--for", "10m"].into_iter().chain(args.iter().copied()).map(str::to_owned),
    );
    argv.extend(["--server".into(), format!("unix://{}", cluster.agent.hubble_socket().display())]);
    argv.extend(["--socket".into(), text(&cluster.agent.socket())]);
    argv.extend(["--output".into(), text(policy), "--record".into(), text(record)]);
    cluster.node().spawn(&Cmd::new(argv).timeout(Duration::from_secs(120)))
}

fn expect_recorded(record: &Path, part: &str) {
    let there = || fs::read_to_string(record).is_ok_and(|text| text.contains(part)).then_some(());
    assert!(wait::until(wait::patient(Duration::from_secs(20)), there).is_some(), "{part} was not seen");
}

/// Waits until the last of the work is there to be asked for.
fn expect_seen(cluster: &Cluster, pod: &str) -> Hubble {
    let hubble = Hubble::connect(&cluster.agent.hubble_socket());
    let filter = |destination: &str| FlowFilter {
        source_pod: vec![pod.to_owned()],
        destination_ip: vec![destination.to_owned()],
        verdict: vec![Verdict::Audit as i32],
        ..Default::default()
    };
    hubble.expect(filter("203.0.113.5"));
    let question = FlowFilter {
        source_pod: vec![pod.to_owned()],
        verdict: vec![Verdict::Audit as i32],
        dns_query: vec!["^vendor\\.example\\.$".into()],
        ..Default::default()
    };
    // A look-up that would have been refused has passed, and shows.
    hubble.expect(question);
    hubble
}

/// The same work passes now; nothing else does.
fn expect_enforced(cluster: &Cluster, pod: &str) {
    work(cluster, pod).expect_success();
    let before = cluster.queries().count("evil.example");
    for foreign in [
        "curl -sS -m 3 http://evil.example/",
        "curl -sS -m 3 http://192.0.2.66/",
        "curl -sS -m 3 http://vendor.example:8080/",
        "curl -sS -m 3 http://10.244.0.12:8081/",
        "getent hosts evil.example",
    ] {
        let outcome = place(cluster, pod).run(&Cmd::sh(foreign));
        assert!(!outcome.success(), "{foreign}: {outcome:#?}");
    }
    assert_eq!(cluster.queries().count("evil.example"), before, "no such question leaves the node");
}

fn expect_text(path: &Path, selector: &str) {
    let text = fs::read_to_string(path).expect("written");
    for part in [
        selector,
        "matchName: vendor.example\"",
        "- matchName: \"api.shop.svc.cluster.local\" # asked ",
        "- matchName: \"missing.vendor.example\"",
        "- \"203.0.113.5/32\" # seen once; no name was asked for",
        "      - family: IPv4\n        type: 8\n",
        "\"k8s:app\": api\n    toPorts:\n    - ports:\n      - port: \"8080\"\n        protocol: TCP\n      - port: \"9090\"",
        "- port: \"5353\"\n        protocol: UDP",
    ] {
        let part = part.replace("matchName: vendor", "matchName: \"vendor");
        assert!(text.contains(&part), "{part}\n{text}");
    }
    // Names with a search domain come with the name itself; no address of a name is written, and no wildcard.
    for part in ["192.0.2.", "vendor.example.shop", "*", "10.96.", "evil"] {
        assert!(!text.contains(part), "{part}\n{text}");
    }
}

#[test]
fn audit_by_annotation_then_learn_then_enforce() {
    let Some(mut cluster) = cluster(&["--on-deny", "reject"]) else { return };
    let before = cluster.agent.revision();
    cluster.change("web", |pod| pod.annotations.push(("egret.dev/audit", "true")));
    cluster.agent.expect_newer(before);
    work(&cluster, "web").expect_success();
    // Its neighbour is not in audit.
    assert!(!place(&cluster, "job").run(&Cmd::sh("curl -sS -m 3 http://192.0.2.10/")).success());
    expect_seen(&cluster, "shop/web");

    let (policy, record) = (file(&cluster, "web.yaml"), file(&cluster, "web.json"));
    let (policy_path, record_path) = (policy.display().to_string(), record.display().to_string());
    let learned = learn(&cluster, &["--pod", "shop/web", "--output", &policy_path, "--record", &record_path]);
    learned.expect_success();
    assert_eq!(learned.stderr, "", "nothing is missing");
    expect_text(&policy, "    matchLabels:\n      \"k8s:app\": web\n");
    let again = learn(&cluster, &["--pod", "shop/web", "--input-file", &record_path]);
    assert_eq!(again.stdout, fs::read_to_string(&policy).expect("written"), "the record says as much");
    let checked =
        cluster.node().run(&Cmd::new([&binary().display().to_string(), "policy", "check", &policy_path]));
    checked.expect_success();

    cluster.agent.put("learned.yaml", &again.stdout);
    let before = cluster.agent.revision();
    cluster.change("web", |pod| pod.annotations.clear());
    cluster.agent.expect_newer(before);
    expect_enforced(&cluster, "web");
    replays(&cluster, &policy_path, &record_path);
}

/// What was recorded passes; what was dropped since would not, and neither would the record under a narrower policy.
fn replays(cluster: &Cluster, policy: &str, record: &str) {
    let good = learn(cluster, &["--check", policy, "--input-file", record]);
    good.expect_success();
    assert!(good.stdout.is_empty() && good.stderr.contains(", 0 would be denied"), "{good:#?}");
    let hubble = Hubble::connect(&cluster.agent.hubble_socket());
    hubble.expect(FlowFilter {
        // The last connection that was tried.
        destination_port: vec!["8081".into()],
        verdict: vec![Verdict::Dropped as i32],
        ..Default::default()
    });
    let live = learn(cluster, &["--check", policy, "--pod", "shop/web", "--include-dropped"]);
    assert_eq!(live.code, Some(1), "{live:#?}");
    for part in [
        "the question for evil.example: QueryRefused",
        "192.0.2.66: port 80/tcp: NameUnresolved",
        "port 8080/tcp",
    ] {
        assert!(live.stdout.contains(part), "{part}: {live:#?}");
    }
    let narrow = file(cluster, "narrow.yaml");
    fs::write(&narrow, names_of_web(&["vendor.example"])).expect("written");
    let narrow = learn(cluster, &["--check", &narrow.display().to_string(), "--input-file", record]);
    assert_eq!(narrow.code, Some(1), "{narrow:#?}");
    for part in [
        "to Service shop/api 10.96.0.80: port 80/tcp: ServiceBackendDenied",
        "203.0.113.7: icmp type 8: NoRule",
    ] {
        assert!(narrow.stdout.contains(part), "{part}: {narrow:#?}");
    }
    assert!(!narrow.stdout.contains("(vendor.example): port 80/tcp"), "{narrow:#?}");
    let bad = learn(cluster, &["--pod", "shop/none", "--input-file", record]);
    assert_eq!(bad.code, Some(69), "{bad:#?}");
}

#[test]
fn audit_by_flag_then_learn_then_enforce() {
    let Some(mut cluster) = cluster(&["--audit"]) else { return };
    let (policy, record) = (file(&cluster, "job.yaml"), file(&cluster, "job.json"));
    let learning = following(&cluster, &["--selector", "app=job", "--since", "1h"], &policy, &record);
    work(&cluster, "job").expect_success();
    expect_seen(&cluster, "shop/job");
    expect_recorded(&record, "203.0.113.5");
    // As Ctrl-C does.
    learning.signal(Signal::SIGINT);
    learning.wait(Duration::from_secs(20)).expect_success();
    expect_text(&policy, "    matchLabels:\n      \"k8s:app\": job\n");

    cluster.agent.end(Signal::SIGTERM).expect_success();
    cluster.agent.put("learned.yaml", &fs::read_to_string(&policy).expect("written"));
    cluster.agent.set_args(&["--on-deny", "reject"]);
    cluster.agent.start();
    cluster.agent.expect_ready("shop/job");
    expect_enforced(&cluster, "job");
}

#[test]
fn pods_that_nothing_holds_back_are_learned_from() {
    let Some(mut cluster) = started(&["--on-deny", "reject"], &[]) else { return };
    work(&cluster, "web").expect_success();
    let hubble = Hubble::connect(&cluster.agent.hubble_socket());
    let last = FlowFilter { destination_ip: vec!["203.0.113.5".into()], ..Default::default() };
    hubble.expect(last);
    let (web, api) = (file(&cluster, "web.yaml"), file(&cluster, "api.yaml"));
    let text = |path: &Path| path.display().to_string();
    learn(&cluster, &["--pod", "shop/web", "--output", &text(&web)]).expect_success();
    expect_text(&web, "    matchLabels:\n      \"k8s:app\": web\n");
    learn(&cluster, &["--pod", "shop/api", "--ingress", "--name", "api-in", "--output", &text(&api)])
        .expect_success();

    let policies = [&web, &api].map(|path| fs::read_to_string(path).expect("written"));
    cluster.agent.apply("learned.yaml", &policies.join("---\n"));
    expect_enforced(&cluster, "web");
    // What nobody did before: `job` comes to `api`, which begins something itself.
    for (pod, foreign) in
        [("job", "http://10.244.0.12:8080/"), ("job", "http://10.96.0.80/"), ("api", "http://192.0.2.10/")]
    {
        let outcome = place(&cluster, pod).run(&Cmd::new(["curl", "-sS", "-m", "3", foreign]));
        assert!(!outcome.success(), "{pod}: {outcome:#?}");
    }
    place(&cluster, "job").run(&Cmd::new(["curl", "-sS", "-m", "8", "http://192.0.2.10/"])).expect_success();
    cut_short(&mut cluster);
}

/// The agent goes while somebody learns: what was seen until then is written.
fn cut_short(cluster: &mut Cluster) {
    let (policy, record) = (file(cluster, "cut.yaml"), file(cluster, "cut.json"));
    let learning = following(cluster, &["--selector", "app=web", "--since", "1h"], &policy, &record);
    expect_recorded(&record, "vendor.example");
    cluster.agent.end(Signal::SIGTERM).expect_success();
    let said = learning.wait(Duration::from_secs(20));
    assert_eq!(said.code, Some(69), "{said:#?}");
    assert!(said.stderr.contains("is gone"), "{said:#?}");
    let text = fs::read_to_string(policy).expect("written");
    assert!(
        text.contains("  - toFQDNs:\n    - matchName: \"") && text.contains("\"k8s:app\": web"),
        "{text}"
    );
}
