//! The agent's life, and what it tells: start, questions, end, another start, uninstall.

use std::os::unix::fs::PermissionsExt;
use std::time::Duration;

use egret_common::ABI_VERSION;
use egret_tests::agent::Agent;
use egret_tests::exec::Cmd;
use egret_tests::netns::{World, WorldBuilder};
use egret_tests::wait;
use nix::sys::signal::Signal;

const GOOD: &str = "\
apiVersion: cilium.io/v2
kind: CiliumNetworkPolicy
metadata: {name: web, namespace: shop}
spec:
  endpointSelector: {matchLabels: {app: web}}
  egress:
  - toFQDNs: [{matchName: api.vendor.example}]
    toPorts: [{ports: [{port: \"443\", protocol: TCP}]}]
";

fn host() -> World {
    WorldBuilder::new().ns("h").build()
}

#[test]
fn l_a01_its_end_changes_nothing_and_the_next_one_goes_on() {
    let world = host();
    let mut agent = Agent::new(&world, "h");
    agent.start();
    let status = agent.json(&["status"]);
    assert_eq!((status["node"].as_str(), status["adopted"].as_bool()), (Some("n1"), Some(false)));
    let mode = std::fs::metadata(agent.socket()).expect("a socket").permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    // One per socket; and it is not uninstalled under its feet.
    let second = agent.run();
    assert_eq!(second.code, Some(75), "{second:#?}");
    assert_eq!(agent.uninstall().code, Some(75));
    let pins = agent.pins().join(format!("v{ABI_VERSION}"));
    for signal in [Signal::SIGTERM, Signal::SIGKILL] {
        let outcome = agent.end(signal);
        assert_eq!(outcome.code.is_some(), signal == Signal::SIGTERM, "{outcome:#?}");
        assert!(pins.join("RULES").exists() && pins.join("FLOWS").exists());
        assert_eq!(agent.ask(&["status"]).code, Some(69), "nobody answers");
        agent.start();
    }
    agent.end(Signal::SIGTERM);
    let removed = agent.uninstall();
    assert!(!agent.pins().exists(), "{removed:#?}");
    assert!(matches!(agent.uninstall().code, Some(0 | 75)), "other tests may run");
}

#[test]
fn n_a03_a_bad_object_is_told_and_stops_nothing() {
    let world = host();
    let mut agent = Agent::new(&world, "h");
    agent.put("bad.yaml", &GOOD.replace("matchName: api", "matchName: api."));
    agent.put("good.yaml", GOOD);
    agent.start();
    let policies = agent.json(&["policy", "get"]);
    let told = policies["diagnostics"].to_string();
    assert!(told.contains("bad.yaml") && told.contains("spec.egress[0].toFQDNs[0]"), "{policies:#}");
    let status = agent.ask(&["status"]);
    assert_eq!(status.code, Some(69), "somebody should look: {status:#?}");
    agent.remove("bad.yaml");
    let mended = || {
        let told = agent.json(&["policy", "get"])["diagnostics"].to_string();
        (!told.contains("bad.yaml")).then_some(())
    };
    assert!(wait::until(Duration::from_secs(5), mended).is_some());
}

#[test]
fn every_list_is_a_table_and_json() {
    let world = host();
    let mut agent = Agent::new(&world, "h");
    agent.start();
    for (args, head) in [
        (
            &["endpoint", "list"][..],
            "ENDPOINT   POLICY (ingress) ENFORCEMENT   POLICY (egress) ENFORCEMENT   IDENTITY",
        ),
        (&["identity", "list"], "ID   LABELS"),
        (&["fqdn", "cache", "list"], "Endpoint   Source   FQDN   TTL   ExpirationTime   IPs"),
        (&["policy", "get"], "POLICY   TIER   SUBJECT   DEFAULT DENY   RULES   SELECTS"),
        (&["bpf", "dump"], "MAP"),
    ] {
        let table = agent.ask(args).expect_success().stdout.clone();
        assert!(table.lines().next().is_some_and(|line| line.starts_with(head)), "{args:?}: {table}");
        assert!(agent.json(args).is_array() || agent.json(args).is_object());
    }
    assert!(agent.ask(&["identity", "list"]).stdout.contains("reserved:world"));
    let none = agent.ask(&["endpoint", "get", "7"]);
    assert!(none.code == Some(65) && none.stderr.contains("no endpoint 7"), "{none:#?}");
}

#[test]
fn policy_check_needs_no_agent() {
    let world = host();
    let (good, bad) = (world.dir().join("good.yaml"), world.dir().join("bad.yaml"));
    std::fs::write(&good, GOOD).expect("written");
    std::fs::write(&bad, GOOD.replace("toFQDNs", "toFQDN")).expect("written");
    let check = |path: &std::path::Path, more: &[&str]| {
        let binary = egret_tests::egret::binary().display().to_string();
        let path = path.display().to_string();
        let argv = [&[binary.as_str(), "policy", "check", &path], more].concat();
        world.place("h").run(&Cmd::new(argv))
    };
    let fine = check(&good, &[]);
    assert!(fine.success() && fine.stdout.contains("CiliumNetworkPolicy/shop/web"), "{fine:#?}");
    assert!(fine.stderr.contains("DNS"), "names without DNS are warned of: {fine:#?}");
    let wrong = check(&bad, &[]);
    assert!(wrong.code == Some(65) && wrong.stderr.contains("spec.egress[0].toFQDN"), "{wrong:#?}");
    assert_eq!(check(&world.dir().join("missing.yaml"), &[]).code, Some(66));
    let json: serde_json::Value = serde_json::from_str(&check(&good, &["-o", "json"]).stdout).expect("JSON");
    assert_eq!(json["policies"][0]["name"], "CiliumNetworkPolicy/shop/web");
}
