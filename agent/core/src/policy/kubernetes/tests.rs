//! Tables of NetworkPolicy objects: what is read, and what is refused with which path.

use super::*;
use crate::policy::parse;

fn object(spec: &str) -> String {
    let spec: String = spec.lines().map(|l| format!("  {l}\n")).collect();
    let head = "apiVersion: networking.k8s.io/v1\nkind: NetworkPolicy\nmetadata: {name: t, namespace: x}\n";
    format!("{head}spec:\n{spec}")
}

fn read(spec: &str) -> Policy {
    let loaded = parse(&object(spec));
    assert!(!loaded.has_errors(), "{spec}\n{:?}", loaded.diagnostics);
    loaded.policies[0].clone()
}

fn warnings(spec: &str) -> Vec<String> {
    parse(&object(spec)).diagnostics.iter().map(ToString::to_string).collect()
}

/// The object is invalid, and the first finding begins with this text.
fn refused(spec: &str, want: &str) {
    let loaded = parse(&object(spec));
    let first = loaded.diagnostics.first().map(ToString::to_string).unwrap_or_default();
    assert!(loaded.policies.is_empty(), "{spec}");
    let want = format!("error: NetworkPolicy/x/t: spec{want}");
    assert!(first.starts_with(&want), "{spec}\n got {first}\nwant {want}");
}

/// `kind: selectors or networks`, one per rule that the entry became.
fn peers(from: &str) -> Vec<String> {
    let policy = read(&format!("ingress: [{{from: {from}}}]"));
    let list = |items: Vec<String>| items.join(" | ");
    policy
        .rules()
        .iter()
        .map(|rule| match &rule.peers {
            Peers::Any => "any".to_owned(),
            Peers::Pods(selectors) => {
                format!("pods: {}", list(selectors.iter().map(ToString::to_string).collect()))
            }
            Peers::Cidrs(cidrs) => {
                assert!(cidrs.iter().all(|c| c.pods));
                let text = |c: &CidrPeer| format!("{} without {:?}", c.net, c.except);
                format!("blocks: {}", list(cidrs.iter().map(text).collect()))
            }
            other => panic!("{other:?}"),
        })
        .collect()
}

fn ports(ports: &str) -> String {
    read(&format!("ingress: [{{ports: {ports}}}]")).rules()[0].ports.to_string()
}

#[test]
fn peers_imply_the_namespace_that_they_do_not_name() {
    let ns = "io.kubernetes.pod.namespace=x";
    let of = "io.cilium.k8s.namespace.labels.";
    assert_eq!(peers("[{podSelector: {}}]"), [format!("pods: {ns}")]);
    assert_eq!(peers("[{podSelector: {matchLabels: {app: a}}}]"), [format!("pods: app=a,{ns}")]);
    assert_eq!(peers("[{namespaceSelector: {}}]"), ["pods: "]);
    assert_eq!(peers("[{namespaceSelector: {matchLabels: {team: t}}}]"), [format!("pods: {of}team=t")]);
    assert_eq!(
        peers("[{podSelector: {matchLabels: {app: a}}, namespaceSelector: {matchLabels: {team: t}}}]"),
        [format!("pods: app=a,{of}team=t")]
    );
    assert_eq!(peers("[{podSelector: {matchLabels: {app: a}}, namespaceSelector: {}}]"), ["pods: app=a"]);
    assert_eq!(
        peers(
            "[{podSelector: {}}, {namespaceSelector: {matchLabels: {team: t}}}, {ipBlock: {cidr: 10.0.0.0/8}}]"
        ),
        [format!("pods: {ns} | {of}team=t"), "blocks: 10.0.0.0/8 without []".to_owned()]
    );
    assert_eq!(
        peers("[{ipBlock: {cidr: '2001:db8::/32', except: ['2001:db8:1::/48']}}]"),
        ["blocks: 2001:db8::/32 without [2001:db8:1::/48]"]
    );
    assert_eq!(peers("[]"), ["any"]);
    let expressions = "[{podSelector: {matchExpressions: [{key: a, operator: In, values: [x, y]}, \
                       {key: b, operator: NotIn, values: [z]}, {key: c, operator: Exists}, \
                       {key: d, operator: DoesNotExist, values: []}]}, namespaceSelector: {}}]";
    assert_eq!(peers(expressions), ["pods: a in (x,y),b notin (z),c,!d"]);
}

#[test]
fn absent_and_empty_differ() {
    let isolates = |spec: &str| {
        let i = read(spec).isolates();
        (i.egress, i.ingress)
    };
    assert_eq!(isolates("podSelector: {}"), (false, true));
    assert_eq!(isolates("podSelector: {}\negress: []"), (false, true));
    assert_eq!(isolates("podSelector: {}\negress: [{}]"), (true, true));
    assert_eq!(isolates("podSelector: {}\ningress: [{}]"), (false, true));
    assert_eq!(isolates("policyTypes: []\negress: [{}]"), (true, true));
    assert_eq!(isolates("policyTypes: [Egress]"), (true, false));
    assert_eq!(isolates("policyTypes: [Egress, Ingress]"), (true, true));
    assert_eq!(isolates("policyTypes: [Ingress]"), (false, true));
    assert_eq!(read("ingress: []").rules(), []);
    assert_eq!(read("ingress: [{}]").rules()[0].peers, Peers::Any);
    assert_eq!(read("ingress: [{}]").rules()[0].ports, Ports::All);
    let ignored = read("policyTypes: [Ingress]\negress: [{}]");
    assert_eq!(ignored.rules(), []);
    let told = warnings("policyTypes: [Ingress]\negress: [{}]");
    assert_eq!(
        told,
        ["warning: NetworkPolicy/x/t: spec.egress: has no effect: policyTypes does not list this direction"]
    );
    let told = warnings("ingress: [{from: [], ports: []}]");
    assert!(told[0].contains("spec.ingress[0].from: is empty, which means everybody"), "{told:?}");
    assert!(told[1].contains("spec.ingress[0].ports: is empty, which means every port"), "{told:?}");
}

#[test]
fn the_subject_is_of_the_objects_namespace() {
    let subject = |policy: &Policy| match policy.subject() {
        Subject::Pods(selector) => selector.to_string(),
        other => panic!("{other:?}"),
    };
    assert_eq!(subject(&read("podSelector: {matchLabels: {a: b}}")), "a=b,io.kubernetes.pod.namespace=x");
    assert_eq!(subject(&read("ingress: [{}]")), "io.kubernetes.pod.namespace=x");
    let text =
        "apiVersion: networking.k8s.io/v1\nkind: NetworkPolicy\nmetadata: {name: t}\nspec: {podSelector: {}}";
    let loaded = parse(text);
    assert_eq!(loaded.policies[0].origin().to_string(), "NetworkPolicy/default/t");
    assert_eq!(subject(&loaded.policies[0]), "io.kubernetes.pod.namespace=default");
}

#[test]
fn k_a03_k_a04_k_a05_ports_are_read() {
    assert_eq!(ports("[{port: 80}]"), "80/tcp");
    assert_eq!(ports("[{port: 80, protocol: UDP}, {port: 81, protocol: SCTP}]"), "80/udp,81/sctp");
    assert_eq!(ports("[{protocol: UDP}]"), "*/udp");
    assert_eq!(ports("[{}]"), "*/tcp");
    assert_eq!(ports("[{port: 79, endPort: 82}]"), "79-82/tcp");
    assert_eq!(ports("[{port: 79, endPort: 79}]"), "79/tcp");
    assert_eq!(ports("[{port: web}, {port: dns-2, protocol: UDP}]"), "web/tcp,dns-2/udp");
    let port = |port: &str, want: &str| {
        refused(&format!("ingress: [{{ports: [{port}]}}]"), &format!(".ingress[0].ports[0]{want}"));
    };
    port("{port: 79, endPort: 78}", ".endPort: must not be less than port");
    port("{port: web, endPort: 78}", ".endPort: cannot stand beside a named port");
    port("{endPort: 78}", ".endPort: needs `port`");
    port("{port: 0}", ".port: is no port number");
    port("{port: 65536}", ".port: is no port number");
    port("{port: -1}", ".port: expected a string, found a number");
    port("{port: '80'}", ".port: `80` is no port name");
    port("{port: Web}", ".port: `Web` is no port name");
    port("{port: a--b}", ".port: `a--b` is no port name");
    port("{port: a-very-long-name}", ".port: `a-very-long-name` is no port name");
    port("{port: 80, endPort: web}", ".endPort: is no port number");
    port("{port: 80, protocol: TPC}", ".protocol: `TPC` is none of TCP, UDP and SCTP");
    port("{port: 80, protocol: tcp}", ".protocol: `tcp` is none of");
    port("{port: 80, protocl: UDP}", ".protocl: unknown field");
}

#[test]
fn what_the_api_refuses_is_refused_with_its_path() {
    let peer = |peer: &str, want: &str| {
        refused(&format!("egress: [{{to: [{peer}]}}]"), &format!(".egress[0].to[0]{want}"));
    };
    peer("{}", ": needs podSelector, namespaceSelector or ipBlock");
    peer("{ipBlock: {cidr: 10.0.0.0/8}, podSelector: {}}", ".ipBlock: cannot stand beside a selector");
    peer(
        "{ipBlock: {cidr: 10.0.0.0/8, except: [11.0.0.0/8]}}",
        ".ipBlock.except[0]: 11.0.0.0/8 is not inside",
    );
    peer(
        "{ipBlock: {cidr: 10.0.0.0/8, except: ['2001:db8::/32']}}",
        ".ipBlock.except[0]: 2001:db8::/32 is not",
    );
    peer("{ipBlock: {cidr: 10.0.0.0}}", ".ipBlock.cidr: `10.0.0.0` is no CIDR");
    peer("{ipBlock: {cidr: x/8}}", ".ipBlock.cidr: `x/8` is no CIDR");
    peer("{ipBlock: {}}", ".ipBlock.cidr: is missing");
    peer("{podSelector: {matchLabel: {a: b}}}", ".podSelector.matchLabel: unknown field");
    peer(
        "{podSelector: {matchLabels: {a: 1}}}",
        ".podSelector.matchLabels.a: expected a string, found a number",
    );
    peer("{podSelector: null}", ".podSelector: is null");
    peer("{namespaceSelector: }", ".namespaceSelector: is null");
    let expression = |e: &str, want: &str| {
        let path = format!(".podSelector.matchExpressions[0]{want}");
        peer(&format!("{{podSelector: {{matchExpressions: [{e}]}}}}"), &path);
    };
    expression("{key: a, operator: In}", ".operator: needs values");
    expression("{key: a, operator: NotIn, values: []}", ".operator: needs values");
    expression("{key: a, operator: Exists, values: [x]}", ".values: must be empty");
    expression("{key: a, operator: Equals, values: [x]}", ".operator: `Equals` is no operator");
    expression("{operator: Exists}", ".key: is missing");
    refused("egress: [{from: []}]", ".egress[0].from: unknown field");
    refused("ingress: [{to: []}]", ".ingress[0].to: unknown field");
    refused("podselector: {}", ".podselector: unknown field");
    refused("policyTypes: [ingress]", ".policyTypes[0]: `ingress` is neither");
    refused("ingress: [null]", ".ingress[0]: expected an object, found null");
    refused("ingress: {from: []}", ".ingress: expected a list");
}

#[test]
fn n_a03_every_bad_rule_is_told() {
    let text = object("ingress: [{from: [{}]}, {ports: [{port: 0}]}]\negress: [{to: [{}]}]");
    let paths: Vec<String> = parse(&text).diagnostics.into_iter().map(|d| d.path).collect();
    assert_eq!(paths, ["spec.egress[0].to[0]", "spec.ingress[0].from[0]", "spec.ingress[1].ports[0].port"]);
}

#[test]
fn other_kinds_and_versions_are_named() {
    let first = |text: &str| parse(text).diagnostics[0].to_string();
    let pod = first("apiVersion: v1\nkind: Pod\nmetadata: {name: t}");
    assert!(
        pod.contains("apiVersion: `v1` is not supported; expected networking.k8s.io/v1, cilium.io/v2 or"),
        "{pod}"
    );
    let ingress = first("apiVersion: networking.k8s.io/v1\nkind: Ingress\nmetadata: {name: t}");
    assert!(ingress.contains("kind: `Ingress` is not supported"), "{ingress}");
    let mixed = format!(
        "{}---\n{}",
        object("podSelector: {}"),
        "apiVersion: cilium.io/v2\nkind: CiliumNetworkPolicy\nmetadata: {name: c}\nspec: {endpointSelector: {}, egress: [{}]}"
    );
    assert_eq!(parse(&mixed).policies.len(), 2);
}

proptest::proptest! {
    #![proptest_config(proptest::prelude::ProptestConfig::with_cases(1024))]

    #[test]
    fn no_text_makes_the_reader_panic(spec in "([a-c1 :{}\\[\\],'*&!.\n-]|: |- |---\n|<<){0,60}", cut in 0usize..300) {
        let _ = parse(&object(&spec));
        let whole = object("ingress: [{from: [{podSelector: {matchLabels: {a: b}}}, {ipBlock: {cidr: 10.0.0.0/8}}], ports: [{port: web}]}]");
        let cut = cut.min(whole.len());
        let _ = parse(&format!("{}{spec}{}", &whole[..cut], &whole[cut..]));
    }
}
