//! Tables of rules that name other objects.

use super::*;
use crate::policy::parse;

fn object(rest: &str) -> String {
    format!(
        "apiVersion: cilium.io/v2\nkind: CiliumNetworkPolicy\nmetadata: {{name: t, namespace: x}}\nspec:\n  \
         endpointSelector: {{}}\n  {rest}\n"
    )
}

/// Each kind of peer of one egress rule.
fn peers(rule: &str) -> Vec<String> {
    let text = object(&format!("egress: [{{{rule}}}]"));
    let loaded = parse(&text);
    assert_eq!(loaded.diagnostics, [], "{text}");
    let shown = |r: &Rule| match &r.peers {
        Peers::Objects(objects) => objects.iter().map(ToString::to_string).collect::<Vec<_>>().join(", "),
        Peers::Cidrs(nets) => {
            nets.iter().map(|n| format!("{} {:?}", n.net, n.except)).collect::<Vec<_>>().join(", ")
        }
        other => format!("{other:?}"),
    };
    loaded.policies[0].rules().iter().map(shown).collect()
}

fn refused(rest: &str, want: &str) {
    let loaded = parse(&object(rest));
    let first = loaded.diagnostics.first().map(ToString::to_string).unwrap_or_default();
    assert!(loaded.policies.is_empty(), "{rest}");
    let want = format!("error: CiliumNetworkPolicy/x/t: spec{want}");
    assert!(first.starts_with(&want), "{rest}\n got {first}\nwant {want}");
}

#[test]
fn services() {
    assert_eq!(
        peers(
            "toServices: [{k8sService: {serviceName: db, namespace: shop}}, {k8sService: {serviceName: db}}]"
        ),
        ["Service db, Service db in namespace shop"]
    );
    assert_eq!(
        peers("toServices: [{k8sServiceSelector: {selector: {matchLabels: {'k8s:app': a}}, namespace: ''}}]"),
        ["Service with labels app=a"]
    );
    assert_eq!(
        peers("toServices: [{k8sServiceSelector: {selector: {}, namespace: y}}]"),
        ["Service in namespace y"]
    );
    assert_eq!(peers("toServices: []"), ["Nobody"]);
    let ports = "toPorts: [{ports: [{port: '53', protocol: UDP}], rules: {dns: [{matchName: a.x}]}}]";
    assert_eq!(
        peers(&format!("toServices: [{{k8sService: {{serviceName: dns}}}}], {ports}")),
        ["Service dns"]
    );
    let bad = |item: &str, want: &str| {
        refused(&format!("egress: [{{toServices: [{item}]}}]"), &format!(".egress[0].toServices[0]{want}"))
    };
    bad("{}", ": needs k8sService or k8sServiceSelector");
    bad("{k8sService: {}}", ".k8sService.serviceName: is missing");
    bad("{k8sService: {name: x}}", ".k8sService.serviceName: is missing");
    bad("{k8sService: {serviceName: x, name: x}}", ".k8sService.name: unknown field");
    bad("{k8sServiceSelector: {namespace: x}}", ".k8sServiceSelector.selector: is missing");
    bad(
        "{k8sService: {serviceName: x}, k8sServiceSelector: {selector: {}}}",
        ".k8sServiceSelector: cannot stand beside `k8sService`",
    );
    bad("{service: x}", ".service: unknown field");
    refused("ingress: [{fromServices: [{}]}]", ".ingress[0].fromServices: unknown field");
    refused("egressDeny: [{toServices: []}]", ".egressDeny[0]: denies nothing");
    refused(
        "egress: [{toServices: [], toCIDR: [10.0.0.0/8]}]",
        ".egress[0].toServices: cannot be combined with `spec.egress[0].toCIDR`",
    );
}

#[test]
fn nodes() {
    assert_eq!(
        peers("toNodes: [{matchLabels: {'node:role': cp}}, {matchLabels: {'k8s:zone': a}}, {}]"),
        ["node, node with labels role=cp, node with labels zone=a"]
    );
    let loaded = parse(&object("ingress: [{fromNodes: [{matchLabels: {role: cp}}]}]"));
    assert!(matches!(&loaded.policies[0].rules()[0].peers, Peers::Objects(_)), "{loaded:?}");
    refused(
        "egress: [{toNodes: [{matchLabels: {'reserved:host': ''}}]}]",
        ".egress[0].toNodes[0].matchLabels",
    );
}

#[test]
fn groups_of_networks() {
    assert_eq!(peers("toCIDRSet: [{cidrGroupRef: vpn}]"), ["CiliumCIDRGroup vpn"]);
    assert_eq!(
        peers(
            "toCIDRSet: [{cidrGroupSelector: {matchLabels: {role: vpn}}}, {cidr: 10.0.0.0/8, except: [10.1.0.0/16]}]"
        ),
        ["10.0.0.0/8 [10.1.0.0/16]", "CiliumCIDRGroup with labels role=vpn"]
    );
    let bad = |item: &str, want: &str| {
        refused(
            &format!("ingress: [{{fromCIDRSet: [{item}]}}]"),
            &format!(".ingress[0].fromCIDRSet[0]{want}"),
        )
    };
    bad("{}", ": needs one of cidr, cidrGroupRef and cidrGroupSelector");
    bad("{cidr: 10.0.0.0/8, cidrGroupRef: x}", ": takes only one of");
    bad("{cidrGroupRef: x, cidrGroupSelector: {}}", ": takes only one of");
    bad("{cidrGroupRef: x, except: [10.0.0.0/8]}", ".except: only allowed beside `cidr`");
    bad("{cidrGroupRef: x, more: 1}", ".more: unknown field");
}
