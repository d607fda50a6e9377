//! Tables of ClusterNetworkPolicy objects: what is read, what is refused with which path, and what fails closed.

use super::*;
use crate::policy::{cilium, parse};

fn object(spec: &str) -> String {
    let spec: String = spec.lines().map(|l| format!("  {l}\n")).collect();
    format!(
        "apiVersion: policy.networking.k8s.io/v1alpha2\nkind: ClusterNetworkPolicy\nmetadata: {{name: t}}\nspec:\n{spec}"
    )
}

/// An object of the Admin tier about everybody.
fn admin(lists: &str) -> String {
    object(&format!("tier: Admin\npriority: 7\nsubject: {{namespaces: {{}}}}\n{lists}"))
}

fn read(text: &str) -> Policy {
    let loaded = parse(text);
    assert_eq!(loaded.diagnostics, [], "{text}");
    loaded.policies[0].clone()
}

fn refused(text: &str, want: &str) {
    let loaded = parse(text);
    let first = loaded.diagnostics.first().map(ToString::to_string).unwrap_or_default();
    assert!(loaded.policies.is_empty(), "{text}");
    let want = format!("error: ClusterNetworkPolicy/t: {want}");
    assert!(first.starts_with(&want), "{text}\n got {first}\nwant {want}");
}

/// The rest of an egress rule that accepts, and what is wrong with it.
fn refused_rule(rest: &str, want: &str) {
    refused(&admin(&format!("egress: [{{action: Accept, {rest}}}]")), &format!("spec.egress[0]{want}"));
}

/// `direction effect path: peers ports`, one per rule.
fn rules(lists: &str) -> Vec<String> {
    let policy = read(&admin(lists));
    let line = |r: &Rule| {
        let peers = match &r.peers {
            Peers::Pods(selectors) => {
                selectors.iter().map(|s| format!("[{s}]")).collect::<Vec<_>>().join(" ")
            }
            Peers::Cidrs(nets) => nets
                .iter()
                .inspect(|n| assert!(n.pods))
                .map(|n| n.net.to_string())
                .collect::<Vec<_>>()
                .join(" "),
            Peers::Names(names) => names.iter().map(ToString::to_string).collect::<Vec<_>>().join(" "),
            Peers::Objects(objects) => objects.iter().map(ToString::to_string).collect::<Vec<_>>().join(" "),
            other => format!("{other:?}"),
        };
        format!("{:?} {:?} {}: {peers} {}", r.direction, r.effect, r.path, r.ports)
    };
    policy.rules().iter().map(line).collect()
}

#[test]
fn tier_priority_and_subject() {
    let policy = read(&object(
        "tier: Baseline\npriority: 1000\nsubject: {pods: {namespaceSelector: {matchLabels: {team: red}}, podSelector: \
         {matchLabels: {app: x}}}}",
    ));
    assert_eq!(policy.standing(), Standing { tier: Tier::Baseline, priority: 1000 });
    assert_eq!(policy.origin().to_string(), "ClusterNetworkPolicy/t");
    assert_eq!((policy.isolates().egress, policy.isolates().ingress), (false, false));
    let subject =
        |text: &str| match read(&object(&format!("tier: Admin\npriority: 0\nsubject: {text}"))).subject() {
            Subject::Pods(selector) => selector.to_string(),
            other => panic!("{other:?}"),
        };
    let of = "io.cilium.k8s.namespace.labels.";
    assert_eq!(subject("{namespaces: {}}"), "");
    assert_eq!(subject("{namespaces: {matchLabels: {team: red}}}"), format!("{of}team=red"));
    assert_eq!(
        subject(
            "{pods: {namespaceSelector: {matchLabels: {team: red}}, podSelector: {matchLabels: {app: x}}}}"
        ),
        format!("app=x,{of}team=red")
    );
    // The API's conformance leaves the selector of namespaces out and means all of them.
    assert_eq!(subject("{pods: {podSelector: {matchLabels: {app: x}}}}"), "app=x");
    assert_eq!(subject("{pods: {podSelector: {}, namespaceSelector: {}}}"), "");
}

#[test]
fn what_the_apis_rules_refuse_of_the_head() {
    let spec = |tier: &str, priority: &str, subject: &str| {
        object(&format!("tier: {tier}\npriority: {priority}\nsubject: {subject}"))
    };
    let all = "{namespaces: {}}";
    refused(&spec("Normal", "0", all), "spec.tier: `Normal` is neither Admin nor Baseline");
    refused(&spec("Admin", "1001", all), "spec.priority: is no priority from 0 to 1000");
    refused(&spec("Admin", "-1", all), "spec.priority: is no priority");
    refused(&spec("Admin", "'5'", all), "spec.priority: is no priority");
    refused(&spec("Admin", "0", "{}"), "spec.subject: needs namespaces or pods");
    refused(
        &spec("Admin", "0", "{namespaces: {}, pods: {podSelector: {}}}"),
        "spec.subject: takes only one of namespaces, pods",
    );
    refused(
        &spec("Admin", "0", "{pods: {namespaceSelector: {}}}"),
        "spec.subject.pods.podSelector: is missing",
    );
    refused(&object("priority: 0\nsubject: {namespaces: {}}"), "spec.tier: is missing");
    refused(&object("tier: Admin\nsubject: {namespaces: {}}"), "spec.priority: is missing");
    refused(&object("tier: Admin\npriority: 0"), "spec.subject: is missing");
    refused(&admin("rules: []"), "spec.rules: unknown field");
    refused(&admin("egress: null"), "spec.egress: is null");
}

#[test]
fn a_rule_stays_in_its_place() {
    let of = "io.cilium.k8s.namespace.labels.";
    assert_eq!(
        rules(
            "ingress:\n- {action: Pass, from: [{namespaces: {}}]}\n\
             egress:\n\
             - {name: first, action: Accept, to: [{namespaces: {matchLabels: {team: red}}}, {pods: {podSelector: {matchLabels: {app: x}}}}]}\n\
             - {action: Deny, to: [{networks: [10.0.0.0/8, '::/0']}, {nodes: {}}, {namespaces: {}}]}"
        ),
        [
            format!("Egress Allow spec.egress[0] (first): [{of}team=red] [app=x] *"),
            "Egress Deny spec.egress[1]: [] *".to_owned(),
            "Egress Deny spec.egress[1]: 10.0.0.0/8 ::/0 *".to_owned(),
            "Egress Deny spec.egress[1]: node *".to_owned(),
            "Ingress Pass spec.ingress[0]: [] *".to_owned(),
        ]
    );
}

#[test]
fn protocols() {
    let ports = |protocols: &str| {
        let all =
            rules(&format!("egress: [{{action: Deny, to: [{{namespaces: {{}}}}], protocols: {protocols}}}]"));
        all[0].rsplit(' ').next().unwrap().to_owned()
    };
    assert_eq!(ports("[{tcp: {destinationPort: {number: 80}}}]"), "80/tcp");
    assert_eq!(
        ports(
            "[{udp: {destinationPort: {range: {start: 1, end: 65535}}}}, {sctp: {destinationPort: {number: 9}}}]"
        ),
        "1-65535/udp,9/sctp"
    );
    assert_eq!(ports("[{destinationNamedPort: web}]"), "web/any");
    let bad = |protocol: &str, want: &str| {
        refused_rule(
            &format!("to: [{{namespaces: {{}}}}], protocols: [{protocol}]"),
            &format!(".protocols[0]{want}"),
        );
    };
    bad("{tcp: {}}", ".tcp.destinationPort: is missing");
    bad("{tcp: {destinationPort: {}}}", ".tcp.destinationPort: needs number or range");
    bad("{tcp: {destinationPort: {number: 0}}}", ".tcp.destinationPort.number: is no port number");
    bad("{tcp: {destinationPort: {number: 65536}}}", ".tcp.destinationPort.number: is no port number");
    bad(
        "{tcp: {destinationPort: {number: 1, range: {start: 1, end: 2}}}}",
        ".tcp.destinationPort: takes only one of",
    );
    bad(
        "{tcp: {destinationPort: {range: {start: 2, end: 2}}}}",
        ".tcp.destinationPort.range.end: must be greater",
    );
    bad(
        "{tcp: {destinationPort: {range: {start: 3, end: 2}}}}",
        ".tcp.destinationPort.range.end: must be greater",
    );
    bad("{tcp: {destinationPort: {range: {start: 3}}}}", ".tcp.destinationPort.range.end: is missing");
    bad(
        "{tcp: {destinationPort: {number: 1}}, udp: {destinationPort: {number: 1}}}",
        ": takes only one of tcp, udp",
    );
    bad("{tcp: {destinationPort: {number: 1}, flags: x}}", ".tcp.flags: unknown field");
    bad("{destinationNamedPort: Web}", ".destinationNamedPort: `Web` is no port name");
    refused_rule("to: [{namespaces: {}}], protocols: []", ".protocols: is empty");
    let many = vec!["{tcp: {destinationPort: {number: 1}}}"; 26].join(", ");
    refused_rule(
        &format!("to: [{{namespaces: {{}}}}], protocols: [{many}]"),
        ".protocols: has 26 entries, the limit is 25",
    );
}

#[test]
fn named_ports_belong_to_pods() {
    for (peer, field) in [
        ("{networks: [10.0.0.0/8]}", "networks"),
        ("{nodes: {}}", "nodes"),
        ("{domainNames: [a.example]}", "domainNames"),
    ] {
        refused_rule(
            &format!("to: [{{namespaces: {{}}}}, {peer}], protocols: [{{destinationNamedPort: web}}]"),
            &format!(".protocols[0].destinationNamedPort: only pods have named ports, and `{field}` are not"),
        );
    }
}

#[test]
fn peers_that_the_apis_rules_refuse() {
    refused_rule("to: []", ".to: is empty");
    refused_rule("from: [{namespaces: {}}]", ".to: is missing");
    refused(&admin("ingress: [{action: Deny, to: [{namespaces: {}}]}]"), "spec.ingress[0].from: is missing");
    refused_rule("to: [{namespaces: {}, nodes: {}}]", ".to[0]: takes only one of namespaces, nodes");
    refused_rule("to: [{namespaces: {}, more: 1}]", ".to[0].more: unknown field");
    refused_rule("to: [{networks: []}]", ".to[0].networks: is empty");
    refused_rule("to: [{networks: [10.0.0.0]}]", ".to[0].networks[0]: `10.0.0.0` is no CIDR");
    refused_rule(
        "to: [{networks: [10.0.0.0/8, 10.0.0.0/8]}]",
        ".to[0].networks[1]: stands in the list twice",
    );
    let long = "0000:0000:0000:0000:0000:ffff:255.255.255.255/128";
    refused_rule(&format!("to: [{{networks: ['{long}']}}]"), ".to[0].networks[0]: is longer than 43");
    let many: Vec<String> = (0..26).map(|i| format!("10.0.{i}.0/24")).collect();
    refused_rule(&format!("to: [{{networks: [{}]}}]", many.join(", ")), ".to[0].networks: has 26 entries");
    refused_rule(&format!("to: [{}]", vec!["{namespaces: {}}"; 26].join(", ")), ".to: has 26 entries");
    let rule = "{action: Deny, to: [{namespaces: {}}]}";
    refused(&admin(&format!("egress: [{}]", vec![rule; 26].join(", "))), "spec.egress: has 26 entries");
    assert_eq!(rules(&format!("egress: [{}]", vec![rule; 25].join(", "))).len(), 25);
    refused(&admin("egress: [{to: [{namespaces: {}}]}]"), "spec.egress[0].action: is missing");
    refused(
        &admin("egress: [{action: Allow, to: [{namespaces: {}}]}]"),
        "spec.egress[0].action: `Allow` is none of",
    );
    refused_rule(
        &format!("name: {}, to: [{{namespaces: {{}}}}]", "x".repeat(101)),
        ".name: is longer than 100",
    );
}

#[test]
fn n_a01_domain_names() {
    assert_eq!(
        rules(
            "egress: [{action: Accept, to: [{domainNames: [www.Example.com., '*.example.com', a_b.example.com]}]}]"
        ),
        ["Egress Allow spec.egress[0]: www.example.com **.example.com a_b.example.com *"]
    );
    let bad = |names: &str, want: &str| {
        refused_rule(&format!("to: [{{domainNames: {names}}}]"), &format!(".to[0].domainNames{want}"))
    };
    bad("['*']", "[0]: `*`: in domainNames `*` is allowed only as the whole first label");
    bad("['a.*.example']", "[0]: `a.*.example`: in domainNames");
    bad("['*a.example']", "[0]: `*a.example`: in domainNames");
    bad("[localhost]", "[0]: `localhost`: domainNames needs at least two labels");
    bad("['*.com']", "[0]: `*.com`: domainNames needs at least two labels");
    bad("['-a.example']", "[0]: `-a.example`");
    bad("[a.example, a.example]", "[1]: stands in the list twice");
    bad("[]", ": is empty");
    let rule = |action: &str| format!("egress: [{{action: {action}, to: [{{domainNames: [a.example]}}]}}]");
    refused(&admin(&rule("Deny")), "spec.egress[0].to[0].domainNames: only allowed in Accept rules");
    refused(&admin(&rule("Pass")), "spec.egress[0].to[0].domainNames: only allowed in Accept rules");
    let baseline = format!("tier: Baseline\npriority: 0\nsubject: {{namespaces: {{}}}}\n{}", rule("Accept"));
    refused(&object(&baseline), "spec.egress[0].to[0].domainNames: only allowed in the Admin tier");
}

/// What is not known comes from a newer version of the API.
#[test]
fn unknown_peers_and_protocols_fail_closed() {
    let closed = |action: &str, rest: &str, path: &str| {
        let loaded = parse(&admin(&format!("egress: [{{action: {action}, {rest}}}]")));
        assert_eq!(loaded.diagnostics.len(), 1, "{:?}", loaded.diagnostics);
        let found = loaded.diagnostics[0].to_string();
        assert!(
            found.starts_with(&format!("warning: ClusterNetworkPolicy/t: spec.egress[0]{path}: ")),
            "{found}"
        );
        let rule = &loaded.policies[0].rules()[0];
        assert_eq!(loaded.policies[0].rules().len(), 1);
        (rule.effect, rule.peers.clone(), rule.ports.clone())
    };
    let (nothing, everything) =
        ((Effect::Allow, Peers::Nobody, Ports::All), (Effect::Deny, Peers::Any, Ports::All));
    for rest in ["to: [{}]", "to: [{services: {}}]", "to: [{namespaces: {}}, {}]"] {
        let path = if rest.contains("namespaces") { ".to[1]" } else { ".to[0]" };
        assert_eq!(closed("Accept", rest, path), nothing, "{rest}");
        assert_eq!(closed("Deny", rest, path), everything, "{rest}");
        assert_eq!(closed("Pass", rest, path), everything, "{rest}");
    }
    let some = "to: [{namespaces: {}}], protocols: [{tcp: {destinationPort: {number: 1}}}, {icmp: {}}]";
    assert_eq!(closed("Accept", some, ".protocols[1]"), nothing);
    assert_eq!(closed("Deny", some, ".protocols[1]"), everything);
    // Not a peer of ingress: what is not known there either.
    let loaded = parse(&admin("ingress: [{action: Deny, from: [{networks: [10.0.0.0/8]}]}]"));
    assert_eq!(loaded.policies[0].rules()[0].peers, Peers::Any);
}

#[test]
fn versions_and_places() {
    let beta = admin("").replace("v1alpha2", "v1beta1");
    assert_eq!(read(&beta), read(&admin("")));
    let old = parse(&admin("").replace("v1alpha2", "v1alpha1"));
    assert!(old.diagnostics[0].to_string().contains("`policy.networking.k8s.io/v1alpha1` is not supported"));
    // `egret run` has no pods.
    assert!(
        cilium::parse(&admin("")).diagnostics[0]
            .to_string()
            .contains("is not supported; expected cilium.io/v2")
    );
}

proptest::proptest! {
    #![proptest_config(proptest::prelude::ProptestConfig::with_cases(512))]
    #[test]
    fn no_text_makes_the_reader_panic(lists in "([a-c1 :{}\\[\\],'*.\n-]|: |- |to|action|networks|protocols){0,60}", cut in 0usize..400) {
        let _ = parse(&admin(&lists));
        let whole = admin("egress: [{action: Accept, to: [{networks: [10.0.0.0/8]}], protocols: [{tcp: {destinationPort: {range: {start: 1, end: 2}}}}]}]");
        let at = cut.min(whole.len());
        let _ = parse(&format!("{}{lists}{}", &whole[..at], &whole[at..]));
    }
}
