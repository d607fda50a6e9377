//! Tables of objects: what is read, and what is refused with which path.

use super::*;
use crate::{names::Pattern, policy::Entity, ports::Ports};

fn object(spec: &str) -> String {
    let spec: String = spec.lines().map(|l| format!("  {l}\n")).collect();
    format!("apiVersion: cilium.io/v2\nkind: CiliumNetworkPolicy\nmetadata: {{name: t}}\nspec:\n{spec}")
}

fn rules(spec: &str) -> Vec<Rule> {
    let loaded = parse(&object(spec));
    assert!(!loaded.has_errors(), "{spec}\n{:?}", loaded.diagnostics);
    loaded.policies[0].rules().to_vec()
}

/// The object is invalid, and the first finding begins with this text.
fn refused(spec: &str, want: &str) {
    let loaded = parse(&object(spec));
    let first = loaded.diagnostics.first().map(ToString::to_string).unwrap_or_default();
    assert!(loaded.policies.is_empty(), "{spec}");
    let want = format!("error: CiliumNetworkPolicy/t: {want}");
    assert!(first.starts_with(&want), "{spec}\n got {first}\nwant {want}");
}

fn rule(spec: &str) -> Rule {
    let mut rules = rules(&format!("egress: [{spec}]"));
    assert_eq!(rules.len(), 1);
    rules.remove(0)
}

fn refused_rule(spec: &str, want: &str) {
    refused(&format!("egress: [{spec}]"), &format!("spec.egress[0]{want}"));
}

fn ports(spec: &str) -> String {
    rule(&format!("{{toEntities: [all], toPorts: [{{ports: {spec}}}]}}")).ports.to_string()
}

#[test]
fn peers_are_read() {
    let p = |t: &str| Pattern::match_pattern(t).unwrap();
    let names = rule("{toFQDNs: [{matchName: A.example.}, {matchPattern: '*.b.example'}]}");
    assert_eq!(names.peers, Peers::Names(vec![p("a.example"), p("*.b.example")]));
    assert_eq!((names.ports, names.dns), (Ports::All, None));
    assert_eq!(
        rule("{toEntities: [world, host]}").peers,
        Peers::Entities([Entity::World, Entity::Host].into())
    );
    let cidr = |net: &str, except: &[&str]| super::super::CidrPeer {
        net: net.parse().unwrap(),
        except: except.iter().map(|e| e.parse().unwrap()).collect(),
        pods: false,
    };
    assert_eq!(
        rule("{toCIDR: [192.0.2.1, 10.0.0.0/8]}").peers,
        Peers::Cidrs(vec![cidr("192.0.2.1/32", &[]), cidr("10.0.0.0/8", &[])])
    );
    assert_eq!(
        rule("{toCIDRSet: [{cidr: 10.0.0.0/8, except: [10.1.0.0/16]}]}").peers,
        Peers::Cidrs(vec![cidr("10.0.0.0/8", &["10.1.0.0/16"])])
    );
    assert_eq!(rule("{}").peers, Peers::Nobody);
    assert_eq!(rule("{toCIDR: []}").peers, Peers::Nobody);
    assert_eq!(rule("{toFQDNs: [], toPorts: [{ports: [{port: '1'}]}]}").peers, Peers::Nobody);
    assert_eq!(rule("{toPorts: [{ports: [{port: '1'}]}]}").peers, Peers::Any);
}

#[test]
fn k_a03_ports_are_read() {
    assert_eq!(ports("[{port: '443', protocol: TCP}]"), "443/tcp");
    assert_eq!(ports("[{port: 443, protocol: tcp}]"), "443/tcp");
    assert_eq!(ports("[{port: '53'}]"), "53/tcp,53/udp,53/sctp");
    assert_eq!(ports("[{port: '53', protocol: ANY}]"), "53/tcp,53/udp,53/sctp");
    assert_eq!(ports("[{port: '79', endPort: 82, protocol: TCP}]"), "79-82/tcp");
    assert_eq!(ports("[{port: '0', protocol: UDP}]"), "*/udp");
    assert_eq!(
        rule("{toEntities: [all], icmps: [{fields: [{type: 8}, {family: IPv6, type: EchoRequest}]}]}")
            .ports
            .to_string(),
        "2048-2303/icmp,32768-33023/icmpv6"
    );
    let port = |p: &str, want: &str| {
        refused_rule(
            &format!("{{toEntities: [all], toPorts: [{{ports: [{p}]}}]}}"),
            &format!(".toPorts[0].ports[0]{want}"),
        )
    };
    port("{port: '80', endPort: 79, protocol: TCP}", ".endPort: must not be less than port");
    port("{port: '0', endPort: 79, protocol: TCP}", ".endPort: must not be less");
    port("{port: http, protocol: TCP}", ".port: `http` is no number: named ports belong to pods");
    port("{port: http, endPort: 90}", ".port: `http` is no number");
    port("{port: '65536'}", ".port: `65536` is no port number");
    port("{port: '-1'}", ".port: `-1` is no number");
    port("{protocol: TCP}", ".port: is missing");
}

#[test]
fn k_a05_protocols_never_default() {
    assert_eq!(ports("[{port: '81', protocol: SCTP}]"), "81/sctp");
    for bad in ["TPC", "GRE", "''", "VRRP"] {
        refused_rule(
            &format!("{{toEntities: [all], toPorts: [{{ports: [{{port: '81', protocol: {bad}}}]}}]}}"),
            ".toPorts[0].ports[0].protocol: ",
        );
    }
}

#[test]
fn what_is_not_enforced_is_refused_with_its_path() {
    let block = |b: &str| format!("{{toEntities: [all], toPorts: [{{ports: [{{port: '443'}}], {b}}}]}}");
    refused_rule(&block("rules: {http: [{method: GET}]}"), ".toPorts[0].rules.http: not enforced by Egret");
    refused_rule(&block("rules: {kafka: []}"), ".toPorts[0].rules.kafka: not enforced");
    refused_rule(&block("rules: {l7proto: x}"), ".toPorts[0].rules.l7proto: not enforced");
    refused_rule(&block("terminatingTLS: {}"), ".toPorts[0].terminatingTLS: not enforced");
    refused_rule(&block("originatingTLS: {}"), ".toPorts[0].originatingTLS: not enforced");
    refused_rule(&block("serverNames: [a]"), ".toPorts[0].serverNames: not enforced");
    refused_rule(&block("listener: {}"), ".toPorts[0].listener: not enforced");
    refused_rule(&block("rulez: {}"), ".toPorts[0].rulez: unknown field");
    refused_rule("{toEntities: [all], authentication: {mode: required}}", ".authentication: not enforced");
    refused_rule("{toServices: [{k8sService: {}}]}", ".toServices: not enforced");
    refused_rule("{toNodes: [{}]}", ".toNodes: not enforced");
    refused_rule("{toGroups: [{}]}", ".toGroups: not enforced");
    refused_rule("{toRequires: [{}]}", ".toRequires: not enforced");
    refused_rule("{toCIDRSet: [{cidrGroupRef: x}]}", ".toCIDRSet[0].cidrGroupRef: not enforced");
    refused_rule("{toEndpoints: [{matchLabels: {app: x}}]}", ".toEndpoints: not enforced");
    refused_rule("{toEntities: [cluster-mesh]}", ".toEntities[0]: `cluster-mesh`: not enforced");
    refused_rule("{toEntities: [wrold]}", ".toEntities[0]: `wrold` is no entity");
    refused_rule("{toFQDN: [{matchName: a}]}", ".toFQDN: unknown field");
    refused("nodeSelector: {}\negress: [{}]", "spec.nodeSelector: not enforced");
    refused("egres: [{}]", "spec.egres: unknown field");
    refused("ingress: [{fromEndpoints: [{}]}]", "spec.ingress[0].fromEndpoints: not enforced");
    refused("ingress: [{fromFQDNs: [{matchName: a}]}]", "spec.ingress[0].fromFQDNs: unknown field");
}

#[test]
fn combinations_that_the_api_forbids() {
    refused_rule(
        "{toFQDNs: [{matchName: a}], toCIDR: [10.0.0.0/8]}",
        ".toCIDR: cannot be combined with `spec.egress[0].toFQDNs`",
    );
    refused_rule("{toEntities: [all], toCIDR: [10.0.0.0/8]}", ".toEntities: cannot be combined");
    refused_rule("{toFQDNs: [{matchName: a, matchPattern: b}]}", ".toFQDNs[0]: takes only one");
    refused_rule("{toFQDNs: [{}]}", ".toFQDNs[0]: needs matchName");
    refused(
        "egressDeny: [{toFQDNs: [{matchName: a}]}]",
        "spec.egressDeny[0].toFQDNs: not allowed in a deny rule",
    );
    refused("egressDeny: [{}]", "spec.egressDeny[0]: denies nothing");
    refused_rule(
        "{toCIDRSet: [{cidr: 10.0.0.0/8, except: [11.0.0.0/8]}]}",
        ".toCIDRSet[0].except[0]: 11.0.0.0/8 is not inside 10.0.0.0/8",
    );
    refused_rule(
        "{toEntities: [all], toPorts: [{ports: [{port: '1'}]}], icmps: [{fields: [{type: 8}]}]}",
        ".icmps: cannot be combined",
    );
    let many = format!("{{toPorts: [{{ports: [{}]}}]}}", vec!["{port: '1'}"; 41].join(","));
    refused_rule(&many, ".toPorts[0].ports: has 41 entries, the limit is 40");
    refused_rule("{toPorts: []}", ".toPorts: is empty");
    refused("description: x", "spec: has no rule");
    refused_rule("{toFQDNs: null}", ".toFQDNs: is null");
    refused_rule("{toCIDR: 10.0.0.0/8}", ".toCIDR: expected a list, found a string");
    refused_rule("{toCIDR: [10.0.0.0/40]}", ".toCIDR[0]: `10.0.0.0/40` is no address");
}

#[test]
fn n_a05_names_are_refused_with_their_path() {
    refused_rule(
        "{toFQDNs: [{matchName: ok}, {matchPattern: 'host.example.*'}]}",
        ".toFQDNs[1].matchPattern: `host.example.*`: a wildcard in the last label",
    );
    refused_rule("{toFQDNs: [{matchName: 'a..b'}]}", ".toFQDNs[0].matchName: `a..b`: label 2");
    refused_rule(
        "{toFQDNs: [{matchName: '*.b'}]}",
        ".toFQDNs[0].matchName: `*.b`: `*` is not allowed in a full name",
    );
}

#[test]
fn dns_rules() {
    let dns = |peer: &str, ports: &str, names: &str| {
        format!("{{{peer}, toPorts: [{{ports: [{ports}], rules: {{dns: {names}}}}}]}}")
    };
    let kube = "toEndpoints: [{matchLabels: {k8s-app: kube-dns}}]";
    let r = rule(&dns(
        kube,
        "{port: '53', protocol: ANY}",
        "[{matchPattern: '*'}, {matchName: a.x, matchPattern: '*.y'}]",
    ));
    assert_eq!(r.peers, Peers::Resolvers);
    assert_eq!(r.dns.unwrap().iter().map(ToString::to_string).collect::<Vec<_>>(), ["*", "a.x", "*.y"]);
    refused_rule(
        &dns(kube, "{port: '5353'}", "[{matchPattern: '*'}]"),
        ".toEndpoints: not enforced by Egret: there are no pods",
    );
    refused_rule(
        &format!("{{{kube}, toPorts: [{{ports: [{{port: '53'}}]}}]}}"),
        ".toEndpoints: not enforced",
    );
    let cidr = "toCIDR: [192.0.2.53]";
    assert!(rule(&dns(cidr, "{port: '5353', protocol: UDP}", "[{matchName: a}]")).dns.is_some());
    refused_rule(&dns(cidr, "{port: '0'}", "[{matchName: a}]"), ".toPorts[0].ports: rules.dns takes neither");
    refused_rule(
        &dns(cidr, "{port: '53', endPort: 54}", "[{matchName: a}]"),
        ".toPorts[0].ports: rules.dns takes neither",
    );
    refused_rule(
        &dns(cidr, "{port: '53', protocol: SCTP}", "[{matchName: a}]"),
        ".toPorts[0].ports: rules.dns takes protocol",
    );
    refused_rule(&dns(cidr, "{port: '53'}", "[]"), ".toPorts[0].rules.dns: is empty");
    refused_rule(&dns(cidr, "{port: '53'}", "[{}]"), ".toPorts[0].rules.dns[0]: needs");
    refused_rule(
        &dns("toFQDNs: [{matchName: a}]", "{port: '53'}", "[{matchName: a}]"),
        ".toPorts[0].rules.dns: cannot be combined with toFQDNs",
    );
    refused(
        "egressDeny: [{toEntities: [all], toPorts: [{ports: [{port: '53'}], rules: {dns: [{matchName: a}]}}]}]",
        "spec.egressDeny[0].toPorts[0].rules.dns: only allowed",
    );
}

#[test]
fn default_deny_follows_the_rules_unless_said_otherwise() {
    let isolates = |spec: &str| {
        let i = parse(&object(spec)).policies[0].isolates();
        (i.egress, i.ingress)
    };
    assert_eq!(isolates("egress: [{}]"), (true, false));
    assert_eq!(isolates("ingressDeny: [{fromEntities: [all]}]"), (false, true));
    assert_eq!(isolates("egress: [{}]\nenableDefaultDeny: {egress: false}"), (false, false));
    assert_eq!(isolates("egress: [{}]\nenableDefaultDeny: {ingress: true}"), (true, true));
}

#[test]
fn documents_lists_and_specs() {
    let two = format!("{}---\n{}", object("egress: [{}]"), object("ingress: [{}]"));
    assert_eq!(parse(&two).policies.len(), 2);
    let list = "apiVersion: v1\nkind: List\nitems:\n- apiVersion: cilium.io/v2\n  kind: CiliumClusterwideNetworkPolicy\n  metadata: {name: a, uid: x}\n  specs: [{egress: [{}]}, {ingress: [{}]}]\n  status: {}\n";
    let loaded = parse(list);
    assert_eq!(loaded.diagnostics, []);
    assert_eq!(loaded.policies[0].isolates(), Isolation { egress: true, ingress: true });
    assert_eq!(loaded.policies[0].origin().to_string(), "CiliumClusterwideNetworkPolicy/a");
    let broken = parse(&format!("{}---\na: [\n", object("egress: [{}]")));
    assert_eq!((broken.policies.len(), broken.has_errors()), (1, true));
    assert!(parse("").has_errors() && parse("---\n").has_errors() && parse("42").has_errors());
    assert!(
        parse("kind: Pod\napiVersion: v1\nmetadata: {name: x}").diagnostics[0]
            .to_string()
            .contains("apiVersion: `v1` is not supported")
    );
}

#[test]
fn n_a03_one_bad_rule_makes_the_object_invalid_and_no_other() {
    let text = format!("{}---\n{}", object("egress: [{toFQDN: []}, {toCIDR: [x]}]"), object("egress: [{}]"));
    let loaded = parse(&text);
    assert_eq!(loaded.policies.len(), 1);
    let paths: Vec<_> = loaded.diagnostics.iter().map(|d| d.path.as_str()).collect();
    assert_eq!(paths, ["spec.egress[0].toFQDN", "spec.egress[1].toCIDR[0]"]);
}

#[test]
fn duplicate_keys_are_errors() {
    let loaded = parse(&object("egress: [{toCIDR: [10.0.0.0/8], toCIDR: [0.0.0.0/0]}]"));
    assert!(loaded.has_errors() && loaded.policies.is_empty());
    assert!(loaded.diagnostics[0].message.contains("duplicate"), "{:?}", loaded.diagnostics);
}

#[test]
fn r_a04_warnings() {
    let warns =
        |spec: &str| parse(&object(spec)).diagnostics.iter().map(ToString::to_string).collect::<Vec<_>>();
    let w = warns("endpointSelector: {matchLabels: {app: x}}\negress: [{toFQDNs: [{matchName: a}]}]");
    assert!(w[0].starts_with("warning: CiliumNetworkPolicy/t: spec.endpointSelector: ignored"), "{w:?}");
    assert!(w[1].contains("spec.egress[0]: toFQDNs without a rule that lets DNS through"), "{w:?}");
    assert_eq!(warns("endpointSelector: {}\negress: [{toCIDR: [10.0.0.0/8]}]"), Vec::<String>::new());
    assert_eq!(warns("egress: [{toFQDNs: [{matchName: a}]}, {toEntities: [all]}]"), Vec::<String>::new());
}

proptest::proptest! {
    #![proptest_config(proptest::prelude::ProptestConfig::with_cases(1024))]

    #[test]
    fn no_text_makes_the_reader_panic(spec in "([a-c1 :{}\\[\\],'*&!.\n-]|: |- |---\n|<<){0,60}", cut in 0usize..300) {
        let _ = parse(&object(&spec));
        let _ = parse(&spec);
        let whole = object("egress: [{toFQDNs: [{matchName: a}], toPorts: [{ports: [{port: '443', protocol: TCP}]}]}]");
        let _ = parse(&format!("{}{spec}{}", &whole[..cut.min(whole.len())], &whole[cut.min(whole.len())..]));
    }
}
