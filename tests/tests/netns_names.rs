//! Names of pods over the agent's life: learned by the kernel, remembered by the agent, kept over its end.

use std::time::Duration;

use egret_tests::agent::Agent;
use egret_tests::exec::Cmd;
use egret_tests::lab::Lab;
use egret_tests::policy::POD_C as POD;
use egret_tests::wait;
use nix::sys::signal::Signal;

const LIMIT: Duration = Duration::from_secs(5);

fn policy(names: &str) -> String {
    format!(
        "apiVersion: cilium.io/v2\nkind: CiliumNetworkPolicy\nmetadata: {{name: c, namespace: shop}}\nspec:\n  \
         endpointSelector: {{matchLabels: {{app: c}}}}\n  egress:\n  - toCIDR: [10.7.0.53/32]\n    \
         toPorts: [{{ports: [{{port: \"53\", protocol: ANY}}], rules: {{dns: [{{matchPattern: \"*.example.com\"}}]}}}}]\n  \
         - toFQDNs: [{names}]\n    toPorts: [{{ports: [{{port: \"443\", protocol: TCP}}]}}]\n"
    )
}

fn reaches(lab: &Lab, host: &str) -> bool {
    let line = format!("exec 3<>/dev/tcp/{host}/443");
    lab.world.place("c").run(&Cmd::new(["timeout", "2", "bash", "-c", &line])).success()
}

fn cached(agent: &Agent) -> Vec<String> {
    let all = agent.json(&["fqdn", "cache", "list"]);
    let all = all.as_array().expect("a list").iter();
    all.filter_map(|told| told["fqdn"].as_str().map(str::to_owned)).collect()
}

#[track_caller]
fn expect(what: &str, holds: impl FnMut() -> bool) {
    let mut holds = holds;
    assert!(wait::until(wait::patient(LIMIT), || holds().then_some(())).is_some(), "{what}");
}

#[test]
fn l_a01_names_outlive_the_agent() {
    let Some(lab) = Lab::start() else { return };
    lab.zone.add("later.example.com", 60, &["192.0.2.11"]).add("evil.example.org", 60, &["192.0.2.66"]);
    let mut agent = Agent::new(&lab.world, "r").args(&["--trusted-resolver", "10.7.0.53"]);
    agent.put("c.yaml", POD);
    agent.put("policy.yaml", &policy("{matchPattern: \"*.example.com\"}"));
    agent.start();
    agent.expect_ready("shop/c");
    assert!(
        reaches(&lab, "api.example.com")
            && !reaches(&lab, "192.0.2.11")
            && !reaches(&lab, "evil.example.org")
    );
    expect("the agent has heard of it", || cached(&agent).contains(&"api.example.com.".to_owned()));
    expect("it is written down within a second or two", || agent.memory().contains("api.example.com"));

    agent.end(Signal::SIGKILL);
    assert!(reaches(&lab, "192.0.2.10"), "what was learned stays open");
    assert!(reaches(&lab, "later.example.com"), "a new name of an allowed pattern");
    assert!(!reaches(&lab, "evil.example.org") && !reaches(&lab, "192.0.2.66"), "denied stays denied");

    agent.start();
    assert!(reaches(&lab, "192.0.2.10") && reaches(&lab, "192.0.2.11"), "{}", agent.said());
    expect("both names are known", || {
        let names = cached(&agent);
        ["api.example.com.", "later.example.com."].iter().all(|name| names.contains(&(*name).to_owned()))
    });
    // The patterns become other classes (CASES T-A06): what was told under them follows.
    agent.put("policy.yaml", &policy("{matchName: api.example.com}"));
    expect("no rule names it any more", || !reaches(&lab, "192.0.2.11"));
    assert!(reaches(&lab, "192.0.2.10"), "still named: {}", agent.ask(&["bpf", "dump"]).stdout);
}
