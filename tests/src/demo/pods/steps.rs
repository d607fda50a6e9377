//! Who may reach whom: policies, labels, addresses.

use super::story::Story;
use super::tries::{Try, Want, at_once};
use super::{Step, Verdict, policies};
use crate::cluster::API_POD;
use crate::dnsd::Transport;

const VENDOR: &str = "http://vendor.example/";
const VENDOR_AT: Want = Want::Reach("192.0.2.10:80");
const BY_NAME: &str = "http://api.shop.svc.cluster.local/";
const BY_VIP: &str = "http://10.96.0.80/";
const BY_POD: &str = "http://10.244.0.12:8080/";
const TO_API: Want = Want::Reach(API_POD);

/// All steps, in the order in which they are done.
pub(super) fn all() -> Vec<Step> {
    vec![
        Step {
            name: "flat network",
            done: "no policy",
            expected: "all reach each other and the world",
            act: flat,
            core: true,
        },
        Step {
            name: "default deny",
            done: "apply a NetworkPolicy for all pods",
            expected: "nothing passes, look-ups neither",
            act: default_deny,
            core: true,
        },
        Step {
            name: "DNS forgotten",
            done: "allow web -> api and vendor.example",
            expected: "by address yes, by name no, and egret says why",
            act: dns_forgotten,
            core: true,
        },
        Step {
            name: "DNS at the wrong port",
            done: "allow kube-dns:53; its pods listen at 5353",
            expected: "by name no, and egret says why",
            act: dns_at_the_wrong_port,
            core: false,
        },
        Step {
            name: "DNS allowed",
            done: "allow kube-dns:5353 for these names",
            expected: "names work, others are refused at once",
            act: dns_allowed,
            core: true,
        },
        Step {
            name: "address without look-up",
            done: "web: curl 192.0.2.30 (direct.example, allowed)",
            expected: "denied until it is looked up",
            act: direct,
            core: true,
        },
        Step {
            name: "pod created anew",
            done: "web ends, comes back with another address",
            expected: "its access and that to api stay",
            act: created_anew,
            core: false,
        },
        Step {
            name: "label change",
            done: "web: app=web -> app=other -> app=web",
            expected: "access goes, and comes back",
            act: label_change,
            core: true,
        },
        Step {
            name: "union of policies",
            done: "apply a second policy, NetworkPolicy for web",
            expected: "what either allows",
            act: union,
            core: false,
        },
        Step {
            name: "deny beats allow",
            done: "apply egressDeny for 203.0.113.9",
            expected: "that one denied, its neighbour not",
            act: deny_beats_allow,
            core: true,
        },
        Step {
            name: "ingress",
            done: "job may reach all; api takes only web",
            expected: "job -> api denied, job -> world not",
            act: ingress,
            core: false,
        },
        Step {
            name: "reject",
            done: "annotate web with egret.dev/reject",
            expected: "refused at once: RST, ICMP",
            act: reject,
            core: true,
        },
    ]
}

/// The last one.
pub(super) fn control() -> Step {
    Step {
        name: "negative control",
        done: "remove all policies, try what was denied",
        expected: "all succeed",
        act: Story::denied_work_now,
        core: true,
    }
}

fn flat(story: &mut Story) -> Verdict {
    story.all(&[
        Try::new("web", VENDOR, VENDOR_AT),
        Try::new("web", BY_NAME, TO_API),
        Try::new("web", BY_POD, TO_API),
        Try::new("job", BY_VIP, TO_API),
        Try::new("api", VENDOR, VENDOR_AT),
    ])
}

fn default_deny(story: &mut Story) -> Verdict {
    story.apply("deny.yaml", policies::DEFAULT_DENY);
    story.all(&[
        Try::new("web", VENDOR, Want::NoAnswer),
        Try::new("web", BY_VIP, Want::Silence),
        Try::new("web", BY_POD, Want::Silence),
        Try::new("job", BY_VIP, Want::Silence),
        Try::new("api", VENDOR, Want::NoAnswer),
    ])
}

fn dns_forgotten(story: &mut Story) -> Verdict {
    let text = format!("{}---\n{}", policies::API, policies::WEB_WITHOUT_DNS);
    let checked = story.checked(&text, "names without a rule that lets DNS through")?;
    story.apply("web.yaml", &text);
    let told = story.told(&["status"], "names without a rule that lets DNS through")?;
    let tried = story.all(&[
        Try::new("web", BY_NAME, Want::NoAnswer),
        Try::new("web", BY_VIP, TO_API),
        Try::new("web", BY_POD, TO_API),
        Try::new("web", VENDOR, Want::NoAnswer),
    ])?;
    // Without an agent no pod is known, and no resolver.
    if !checked.contains("spec.egress[1]") {
        return Err(format!("policy check names no field: {checked}"));
    }
    Ok(format!("{tried}\n    egret status: {told}"))
}

fn dns_at_the_wrong_port(story: &mut Story) -> Verdict {
    story.apply("web.yaml", &format!("{}---\n{}", policies::API, policies::web(53)));
    let told = story.told(&["status"], "opens port 53, and the DNS pods listen on 5353")?;
    let tried = story.all(&[Try::new("web", BY_NAME, Want::NoAnswer)])?;
    Ok(format!("{tried}\n    egret status: {told}"))
}

fn dns_allowed(story: &mut Story) -> Verdict {
    story.apply("web.yaml", &format!("{}---\n{}", policies::API, policies::web(5353)));
    let status = story.cluster.agent.ask(&["status"]);
    if status.stdout.contains("DNS through") {
        return Err(format!("egret status still complains: {}", status.stdout));
    }
    let tried = story.all(&[
        Try::new("web", VENDOR, VENDOR_AT),
        Try::new("web", BY_NAME, TO_API),
        Try::new("web", "http://other.example/", Want::NoName),
    ])?;
    let by_tcp = story.cluster.place("web").run(&crate::traffic::dig(
        crate::cluster::DNS_VIP,
        "vendor.example",
        &["+tcp", "+short"],
    ));
    let queries = story.cluster.queries();
    let tcp = queries.count_by(|q| q.transport == Transport::Tcp && q.name_lower() == "vendor.example");
    match (queries.count("other.example"), tcp, by_tcp.stdout.trim()) {
        (0, 1.., "192.0.2.10") => Ok(format!("{tried}, 0 queries for it at kube-dns, dig +tcp works")),
        (asked, tcp, answer) => Err(format!("{asked} queries for other.example, {tcp} by TCP: {answer:?}")),
    }
}

fn direct(story: &mut Story) -> Verdict {
    let before = story.drops("web", "NameUnresolved");
    let url = "http://192.0.2.30/";
    let denied = story.all(&[Try::new("web", url, Want::Silence)])?;
    let dropped = story.drops("web", "NameUnresolved") - before;
    if dropped == 0 {
        return Err("the kernel counted nothing as NameUnresolved".into());
    }
    let asked = story.cluster.place("web").run(&crate::traffic::getent("direct.example"));
    asked.success().then_some(()).ok_or("getent failed")?;
    let open = story.all(&[Try::new("web", url, Want::Reach("192.0.2.30:80"))])?;
    Ok(format!("{denied}, NameUnresolved {dropped}; after getent: {open}"))
}

fn created_anew(story: &mut Story) -> Verdict {
    let agent_sees = |story: &Story| story.cluster.agent.expect_ready("shop/web");
    let before = (agent_sees(story), story.cluster.pod("web").addresses[0]);
    let cluster = &mut story.cluster;
    cluster.recreate("web", "web2");
    let uid =
        |c: &crate::cluster::Cluster| c.agent.json(&["endpoint", "list"]).to_string().contains("uid-web2");
    crate::wait::until_true("the agent sees the new pod", std::time::Duration::from_secs(5), || uid(cluster));
    agent_sees(story);
    let tried = story.all(&[Try::new("web", VENDOR, VENDOR_AT), Try::new("web", BY_NAME, TO_API)])?;
    Ok(format!("{} -> {}: {tried}", before.1, story.cluster.pod("web").addresses[0]))
}

fn label_change(story: &mut Story) -> Verdict {
    let relabel = |story: &mut Story, value| {
        let before = story.cluster.agent.revision();
        story.cluster.change("web", |pod| pod.label("app", value));
        story.cluster.agent.expect_newer(before);
    };
    relabel(story, "other");
    let gone = story.all(&[
        Try::new("web", BY_VIP, Want::Silence),
        Try::new("web", "http://192.0.2.10/", Want::Silence),
    ])?;
    relabel(story, "web");
    let back = story.all(&[Try::new("web", BY_VIP, TO_API), Try::new("web", VENDOR, VENDOR_AT)])?;
    Ok(format!("{gone}; {back}"))
}

const PARTNER: &str = "http://203.0.113.9:8080/";

fn union(story: &mut Story) -> Verdict {
    let before = story.all(&[Try::new("web", PARTNER, Want::Silence)])?;
    story.apply("partners.yaml", policies::PARTNERS);
    let after = story.all(&[
        Try::new("web", PARTNER, Want::Reach("203.0.113.9:8080")),
        Try::new("web", VENDOR, VENDOR_AT),
    ])?;
    Ok(format!("{before}; then {after}"))
}

fn deny_beats_allow(story: &mut Story) -> Verdict {
    let both = format!("{}---\n{}", policies::PARTNERS, policies::NOT_THIS_ONE);
    story.apply("partners.yaml", &both);
    let tried = story.all(&[
        Try::new("web", PARTNER, Want::Silence),
        Try::new("web", "http://203.0.113.10:8080/", Want::Reach("203.0.113.10:8080")),
    ])?;
    let dropped = story.drops("web", "DenyRule");
    if dropped > 0 {
        Ok(format!("{tried}, DenyRule {dropped}"))
    } else {
        Err("no DenyRule was counted".into())
    }
}

fn ingress(story: &mut Story) -> Verdict {
    story.apply("job.yaml", policies::JOB);
    let tried = story.all(&[
        Try::new("job", BY_POD, Want::Silence),
        Try::new("job", BY_VIP, Want::Silence),
        Try::new("job", VENDOR, VENDOR_AT),
        Try::new("web", BY_POD, TO_API),
    ])?;
    let dropped = story.drops("api", "NoRule");
    if dropped > 0 {
        Ok(format!("{tried}, NoRule at api {dropped}"))
    } else {
        Err("api counted nothing".into())
    }
}

fn reject(story: &mut Story) -> Verdict {
    let before = story.cluster.agent.revision();
    story.cluster.change("web", |pod| pod.annotations.push(("egret.dev/reject", "true")));
    story.cluster.agent.expect_newer(before);
    let reset = story.all(&[Try::new("web", "http://203.0.113.99/", Want::Refused)])?;
    let program = "import socket, time\n\
        s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); s.settimeout(5)\n\
        s.connect(('203.0.113.99', 9999)); start = time.time(); s.send(b'x')\n\
        try: s.recv(9)\n\
        except OSError as error: print(error.errno, time.time() - start)\n";
    let icmp = story.cluster.place("web").run(&crate::traffic::python(program));
    let before = story.cluster.agent.revision();
    story.cluster.change("web", |pod| pod.annotations.clear());
    story.cluster.agent.expect_newer(before);
    let numbers: Vec<f64> = icmp.stdout.split_whitespace().filter_map(|word| word.parse().ok()).collect();
    match numbers[..] {
        [errno, seconds] if errno == f64::from(libc::EHOSTUNREACH) && seconds < at_once() => {
            Ok(format!("{reset}; UDP: EHOSTUNREACH in {:.1} ms", seconds * 1e3))
        }
        _ => Err(format!("UDP: {icmp:?}")),
    }
}
