//! Tables of objects as a cluster reads them: subjects, pods, nodes, named ports.

use super::*;
use crate::{
    policy::{Entity, parse},
    ports::PortSpec,
};

const NS: &str = "io.kubernetes.pod.namespace";

fn object(kind: &str, spec: &str) -> String {
    let spec: String = spec.lines().map(|l| format!("  {l}\n")).collect();
    format!("apiVersion: cilium.io/v2\nkind: {kind}\nmetadata: {{name: t, namespace: x}}\nspec:\n{spec}")
}

fn read_kind(kind: &str, spec: &str) -> Policy {
    let loaded = parse(&object(kind, spec));
    assert!(!loaded.has_errors(), "{spec}\n{:?}", loaded.diagnostics);
    loaded.policies[0].clone()
}

fn read(spec: &str) -> Policy {
    read_kind("CiliumNetworkPolicy", spec)
}

fn refused(spec: &str, want: &str) {
    let loaded = parse(&object("CiliumNetworkPolicy", spec));
    let first = loaded.diagnostics.first().map(ToString::to_string).unwrap_or_default();
    assert!(loaded.policies.is_empty(), "{spec}");
    let want = format!("error: CiliumNetworkPolicy/x/t: spec{want}");
    assert!(first.starts_with(&want), "{spec}\n got {first}\nwant {want}");
}

fn subject(policy: &Policy) -> String {
    match policy.subject() {
        Subject::Pods(selector) => format!("pods {selector}"),
        Subject::Nodes(selector) => format!("nodes {selector}"),
        Subject::This => "this".to_owned(),
    }
}

fn shown(rule: &Rule) -> String {
    match &rule.peers {
        Peers::Pods(selectors) => selectors.iter().map(ToString::to_string).collect::<Vec<_>>().join(" | "),
        Peers::Entities(entities) => format!("{entities:?}"),
        other => format!("{other:?}"),
    }
}

fn peers(kind: &str, peers: &str) -> Vec<String> {
    let policy = read_kind(kind, &format!("endpointSelector: {{}}\negress: [{{{peers}}}]"));
    policy.rules().iter().map(shown).collect()
}

#[test]
fn the_subject_is_of_the_objects_namespace_or_of_any() {
    let of = |kind, selector| subject(&read_kind(kind, &format!("{selector}\negress: [{{}}]")));
    let (cnp, ccnp) = ("CiliumNetworkPolicy", "CiliumClusterwideNetworkPolicy");
    assert_eq!(of(cnp, "endpointSelector: {}"), format!("pods {NS}=x"));
    assert_eq!(of(cnp, "endpointSelector: {matchLabels: {'k8s:app': a}}"), format!("pods app=a,{NS}=x"));
    let same = format!("endpointSelector: {{matchLabels: {{'k8s:{NS}': x}}}}");
    assert_eq!(of(cnp, &same), format!("pods {NS}=x"));
    assert_eq!(of(ccnp, "endpointSelector: {}"), "pods ");
    assert_eq!(of(ccnp, &same), format!("pods {NS}=x"));
    assert_eq!(of(ccnp, "nodeSelector: {matchLabels: {role: db}}"), "nodes role=db");
    refused("egress: [{}]", ": needs endpointSelector or nodeSelector");
    refused("nodeSelector: {}\negress: [{}]", ".nodeSelector: only allowed in a CiliumClusterwide");
    let other = format!("endpointSelector: {{matchLabels: {{'k8s:{NS}': y}}}}\negress: [{{}}]");
    refused(&other, ".endpointSelector: selects another namespace; the object is about pods of `x` only");
    refused(
        "endpointSelector: {matchLabels: {'reserved:init': ''}}\negress: [{}]",
        ".endpointSelector.matchLabels.reserved:init: labels of source `reserved`",
    );
    refused(
        "endpointSelector: {matchlabels: {}}\negress: [{}]",
        ".endpointSelector.matchlabels: unknown field",
    );
}

#[test]
fn each_spec_is_a_policy_of_its_own() {
    let text = "apiVersion: cilium.io/v2\nkind: CiliumClusterwideNetworkPolicy\nmetadata: {name: t}\nspecs:\n\
                - {endpointSelector: {matchLabels: {app: a}}, egress: [{}]}\n\
                - {nodeSelector: {}, ingress: [{fromEntities: [cluster]}]}\n";
    let loaded = parse(text);
    assert_eq!(loaded.diagnostics, []);
    let all: Vec<_> = loaded.policies.iter().map(|p| (subject(p), p.isolates().egress)).collect();
    assert_eq!(all, [("pods app=a".to_owned(), true), ("nodes ".to_owned(), false)]);
    assert_eq!(loaded.policies[1].rules()[0].path, "specs[1].ingress[0]");
}

#[test]
fn endpoints_imply_the_namespace_that_they_do_not_name() {
    let (cnp, ccnp) = ("CiliumNetworkPolicy", "CiliumClusterwideNetworkPolicy");
    assert_eq!(peers(cnp, "toEndpoints: [{}]"), [format!("{NS}=x")]);
    assert_eq!(
        peers(cnp, "toEndpoints: [{matchLabels: {app: a}}, {matchLabels: {'any:app': b}}]"),
        [format!("app=a,{NS}=x | app=b,{NS}=x")]
    );
    let other = format!("toEndpoints: [{{matchLabels: {{'k8s:{NS}': y, k8s-app: dns}}}}]");
    assert_eq!(peers(cnp, &other), [format!("{NS}=y,k8s-app=dns")]);
    let any = format!("toEndpoints: [{{matchExpressions: [{{key: 'k8s:{NS}', operator: Exists}}]}}]");
    assert_eq!(peers(cnp, &any), [NS]);
    let labels = "io.cilium.k8s.namespace.labels.team";
    let by_label = format!("toEndpoints: [{{matchLabels: {{'k8s:{labels}': t}}}}]");
    assert_eq!(peers(cnp, &by_label), [format!("{labels}=t")]);
    assert_eq!(peers(ccnp, "toEndpoints: [{}]"), [""]);
    assert_eq!(peers(ccnp, "toEndpoints: [{matchLabels: {app: a}}]"), ["app=a"]);
    assert_eq!(peers(cnp, "toEndpoints: []"), ["Nobody"]);
}

#[test]
fn reserved_labels_are_entities() {
    let cnp = "CiliumNetworkPolicy";
    assert_eq!(peers(cnp, "toEndpoints: [{matchLabels: {'reserved:host': ''}}]"), ["{Host}"]);
    assert_eq!(
        peers(
            cnp,
            "toEndpoints: [{matchLabels: {app: a}}, {matchExpressions: [{key: 'reserved:kube-apiserver', operator: Exists}]}]"
        ),
        [format!("app=a,{NS}=x"), "{KubeApiserver}".to_owned()]
    );
    let rule = |peers: &str, want: &str| {
        let want = format!(".egress[0].toEndpoints[0]{want}");
        refused(&format!("endpointSelector: {{}}\negress: [{{toEndpoints: [{peers}]}}]"), &want);
    };
    rule("{matchLabels: {'reserved:init': ''}}", ": reserved label `init`: not enforced by Egret");
    rule("{matchLabels: {'reserved:hosts': ''}}", ": reserved label `hosts` is no entity");
    rule("{matchLabels: {'reserved:host': '', app: a}}", ": a reserved label stands alone");
    rule(
        "{matchExpressions: [{key: 'reserved:host', operator: DoesNotExist}]}",
        ": `reserved:host` can only be there",
    );
    rule("{matchLabels: {'cidr:10.0.0.0/8': ''}}", ".matchLabels.cidr:10.0.0.0/8: labels of source `cidr`");
    rule("{matchLabels: {'k8s:': a}}", ".matchLabels.k8s:: is no label");
}

#[test]
fn ingress_from_pods_and_entities() {
    let policy = read(
        "endpointSelector: {}\ningress:\n- fromEndpoints: [{matchLabels: {app: a}}]\n- fromEntities: [cluster, world]\n\
         ingressDeny:\n- fromEndpoints: [{}]\n  toPorts: [{ports: [{port: '22', protocol: TCP}]}]",
    );
    let got: Vec<_> = policy.rules().iter().map(|r| (r.effect, shown(r))).collect();
    assert_eq!(
        got,
        [
            (Effect::Allow, format!("app=a,{NS}=x")),
            (
                Effect::Allow,
                format!("{:?}", std::collections::BTreeSet::from([Entity::World, Entity::Cluster]))
            ),
            (Effect::Deny, format!("{NS}=x")),
        ]
    );
    for entity in ["init", "health", "unmanaged", "ingress", "cluster-mesh"] {
        let spec = format!("endpointSelector: {{}}\ningress: [{{fromEntities: [{entity}]}}]");
        refused(&spec, &format!(".ingress[0].fromEntities[0]: `{entity}`: not enforced by Egret"));
    }
}

#[test]
fn k_a04_ports_may_have_names() {
    let ports = |ports: &str| {
        let spec = format!("endpointSelector: {{}}\ningress: [{{toPorts: [{{ports: [{ports}]}}]}}]");
        read(&spec).rules()[0].ports.clone()
    };
    let named = |proto, name: &str| Ports::Only(vec![PortSpec::Named(proto, name.to_owned())]);
    assert_eq!(ports("{port: web, protocol: TCP}"), named(Some(crate::ports::Proto::Tcp), "web"));
    assert_eq!(ports("{port: Web}"), named(None, "web"));
    assert_eq!(ports("{port: web, protocol: ANY}"), named(None, "web"));
    assert_eq!(ports("{port: '80', protocol: TCP}").to_string(), "80/tcp");
    let port = |port: &str, want: &str| {
        let spec = format!("endpointSelector: {{}}\negress: [{{toEntities: [all], toPorts: [{port}]}}]");
        refused(&spec, &format!(".egress[0].toPorts[0]{want}"));
    };
    port("{ports: [{port: web, endPort: 90}]}", ".ports[0].endPort: cannot stand beside a named port");
    port("{ports: [{port: -web-}]}", ".ports[0].port: `-web-` is neither a number nor");
    port("{ports: [{port: web, protocol: TPC}]}", ".ports[0].protocol: `TPC` is not enforced");
    port("{ports: [{port: dns}], rules: {dns: [{matchName: a}]}}", ".ports: rules.dns takes numbers");
    refused(
        "endpointSelector: {}\negress: [{toFQDNs: [{matchName: a}], toPorts: [{ports: [{port: web}]}]}]",
        ".egress[0].toPorts[0].ports: named ports belong to pods",
    );
}

#[test]
fn r_a04_names_that_nobody_can_ask_for_are_reported() {
    let warns = |spec: &str| {
        let loaded =
            parse(&object("CiliumNetworkPolicy", &format!("endpointSelector: {{}}\negress: [{spec}]")));
        assert!(!loaded.has_errors(), "{:?}", loaded.diagnostics);
        loaded.diagnostics.iter().map(ToString::to_string).collect::<Vec<_>>()
    };
    let names = "{toFQDNs: [{matchName: a}]}";
    assert!(warns(names)[0].contains("spec.egress[0]: toFQDNs without a rule that lets DNS through"));
    let dns = format!(
        "{{toEndpoints: [{{matchLabels: {{'k8s:{NS}': kube-system, 'k8s:k8s-app': kube-dns}}}}], toPorts: [{{ports: [{{port: '53', protocol: ANY}}]"
    );
    assert_eq!(
        warns(&format!("{names}, {dns}, rules: {{dns: [{{matchPattern: '*'}}]}}}}]}}")),
        Vec::<String>::new()
    );
    assert_eq!(warns(&format!("{names}, {dns}}}]}}")), Vec::<String>::new());
}
