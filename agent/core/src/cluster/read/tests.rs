//! Tables of objects: what is read of them, and what is refused with which path.

use super::{super::object::*, *};

/// The one object of a text.
fn one(text: &str) -> Body {
    let contents = read(text);
    assert_eq!(contents.diagnostics, [], "{text}");
    assert_eq!(contents.objects.len(), 1, "{text}");
    contents.objects[0].body.clone()
}

fn pod(rest: &str) -> Pod {
    match one(&format!("apiVersion: v1\nkind: Pod\nmetadata: {{name: p}}\n{rest}")) {
        Body::Pod(pod) => pod,
        other => panic!("{other:?}"),
    }
}

fn service(rest: &str) -> Service {
    match one(&format!("apiVersion: v1\nkind: Service\nmetadata: {{name: s}}\n{rest}")) {
        Body::Service(service) => service,
        other => panic!("{other:?}"),
    }
}

/// Everything that is told about a text, line by line.
fn told(text: &str) -> Vec<String> {
    read(text).diagnostics.iter().map(ToString::to_string).collect()
}

fn refused(kind: &str, rest: &str, want: &str) {
    let text = format!("apiVersion: v1\nkind: {kind}\nmetadata: {{name: x, namespace: n}}\n{rest}");
    let contents = read(&text);
    assert_eq!(contents.diagnostics.iter().map(ToString::to_string).collect::<Vec<_>>(), [want], "{rest}");
    assert!(contents.objects.is_empty() && !contents.torn, "{rest}");
    assert_eq!(contents.broken.len(), 1, "{rest}");
}

fn ips(texts: &[&str]) -> BTreeSet<std::net::IpAddr> {
    texts.iter().map(|t| t.parse().unwrap()).collect()
}

#[test]
fn a_pod_as_the_api_server_writes_it() {
    let text = "
apiVersion: v1
kind: Pod
metadata:
  name: web-1
  namespace: shop
  uid: 11111111-2222-3333-4444-555555555555
  creationTimestamp: '2026-01-31T12:00:00Z'
  labels: {app: web}
  annotations: {egret.dev/interface: veth0, kubectl.kubernetes.io/other: x}
  ownerReferences: [{kind: ReplicaSet}]
spec:
  nodeName: n1
  serviceAccountName: web
  initContainers:
  - {name: side, restartPolicy: Always, ports: [{name: admin, containerPort: 9000}]}
  - {name: once, ports: [{name: gone, containerPort: 1}]}
  containers:
  - name: c
    ports:
    - {name: web, containerPort: 80}
    - {name: web, containerPort: 81, protocol: UDP}
    - {containerPort: 82}
  - name: d
    ports: [{name: web, containerPort: 83}]
status:
  phase: Running
  podIP: 10.1.0.5
  podIPs: [{ip: 10.1.0.5}, {ip: 'fd00::5'}]
";
    let contents = read(text);
    assert_eq!(contents.objects[0].key, Key::new(Kind::Pod, "shop", "web-1"));
    let labels = |pairs: &[(&str, &str)]| {
        pairs.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect::<crate::labels::Labels>()
    };
    use crate::ports::Proto::{Tcp, Udp};
    let want = Pod {
        searches: Default::default(),
        // Nothing controls it.
        workload: None,
        uid: "11111111-2222-3333-4444-555555555555".to_owned(),
        created: "2026-01-31T12:00:00Z".to_owned(),
        labels: labels(&[("app", "web")]),
        annotations: labels(&[("egret.dev/interface", "veth0")]),
        node: Some("n1".to_owned()),
        service_account: "web".to_owned(),
        host_network: false,
        phase: Phase::Live,
        ips: ips(&["10.1.0.5", "fd00::5"]),
        ports: [(("admin", Tcp), 9000), (("web", Tcp), 80), (("web", Udp), 81)]
            .map(|((name, proto), port)| ((name.to_owned(), proto), port))
            .into(),
    };
    assert_eq!(one(text), Body::Pod(want));
}

#[test]
fn what_a_pod_leaves_out_has_the_apis_default() {
    let bare = pod("");
    assert_eq!((bare.service_account.as_str(), bare.node.as_deref()), ("default", None));
    assert_eq!((bare.phase, bare.ips.len()), (Phase::Live, 0));
    assert_eq!(pod("spec: {serviceAccountName: '', nodeName: ''}"), bare);
    assert_eq!(pod("spec: null\nstatus: {phase: Pending, podIP: ''}"), bare);
    let key =
        &read("{apiVersion: v1, kind: Pod, metadata: {name: p, creationTimestamp: null}}").objects[0].key;
    assert_eq!(key.to_string(), "Pod/default/p");
}

#[test]
fn k_a07_phases() {
    for (phase, want) in [
        ("Pending", Phase::Live),
        ("Running", Phase::Live),
        ("Unknown", Phase::Live),
        ("Succeeded", Phase::Ended),
        ("Failed", Phase::Ended),
    ] {
        assert_eq!(pod(&format!("status: {{phase: {phase}}}")).phase, want, "{phase}");
    }
}

#[test]
fn k_a14_addresses_come_from_both_fields() {
    let check = |status: &str, want: &[&str]| {
        assert_eq!(pod(&format!("status: {{{status}}}")).ips, ips(want), "{status}");
    };
    check("podIP: 10.0.0.1", &["10.0.0.1"]);
    check("podIPs: [{ip: 'fd00::1'}]", &["fd00::1"]);
    check("podIP: 'fd00::1', podIPs: [{ip: 'fd00::1'}, {ip: 10.0.0.1}]", &["10.0.0.1", "fd00::1"]);
    check("podIP: '::ffff:10.0.0.1'", &["10.0.0.1"]);
}

#[test]
fn wrong_types_name_object_and_field() {
    let pod = |rest, want: &str| refused("Pod", rest, &format!("error: Pod/n/x: {want}"));
    pod("spec: []", "spec: expected an object, found a list");
    pod("spec: {nodeName: 5}", "spec.nodeName: expected a string, found a number");
    pod("spec: {hostNetwork: 'yes'}", "spec.hostNetwork: expected true or false, found a string");
    pod("spec: {containers: {}}", "spec.containers: expected a list, found an object");
    pod(
        "spec: {containers: [{ports: [{containerPort: 0}]}]}",
        "spec.containers[0].ports[0].containerPort: 0 is no port",
    );
    pod(
        "spec: {containers: [{ports: [{name: a}]}]}",
        "spec.containers[0].ports[0].containerPort: is missing",
    );
    pod(
        "spec: {containers: [{ports: [{containerPort: 1, protocol: TPC}]}]}",
        "spec.containers[0].ports[0].protocol: `TPC` is none of TCP, UDP, SCTP",
    );
    pod("status: {phase: Done}", "status.phase: `Done` is no phase");
    pod("status: {podIPs: [{ip: 10.0.0}]}", "status.podIPs[0].ip: `10.0.0` is no address");
    pod("status: {podIP: 127.0.0.1}", "status.podIP: 127.0.0.1 is nobody's address");
    let service = |rest, want: &str| refused("Service", rest, &format!("error: Service/n/x: {want}"));
    service("spec: {ports: [{port: 80, targetPort: 70000}]}", "spec.ports[0].targetPort: 70000 is no port");
    service("spec: {ports: [{name: a}]}", "spec.ports[0].port: is missing");
    service("spec: {selector: {app: 1}}", "spec.selector[app]: expected a string, found a number");
    service("spec: {externalIPs: [x]}", "spec.externalIPs[0]: `x` is no address");
    refused(
        "Node",
        "status: {addresses: [{type: InternalIP, address: n1}]}",
        "error: Node/x: status.addresses[0].address: `n1` is no address",
    );
    let text = "{apiVersion: v1, kind: Pod, metadata: {name: x, labels: {a: true}}}";
    assert_eq!(told(text), ["error: Pod/default/x: metadata.labels[a]: expected a string, found a boolean"]);
}

#[test]
fn every_address_that_the_node_translates_is_a_vip() {
    let text = "
spec:
  clusterIP: 10.96.0.7
  clusterIPs: [10.96.0.7, 'fd00:96::7']
  externalIPs: [192.0.2.7]
  selector: {app: web}
  ports:
  - {name: web, port: 80, targetPort: http}
  - {name: dns, port: 53, protocol: UDP, targetPort: 5353}
  - {name: same, port: 81}
status:
  loadBalancer:
    ingress: [{ip: 198.51.100.7}, {ip: 198.51.100.8, ipMode: Proxy}, {hostname: lb.example}]
";
    let service = service(text);
    assert_eq!(service.vips, ips(&["10.96.0.7", "fd00:96::7", "192.0.2.7", "198.51.100.7"]));
    let targets: Vec<TargetPort> = service.ports.iter().map(|p| p.target.clone()).collect();
    let want = [TargetPort::Name("http".into()), TargetPort::Number(5353), TargetPort::Number(81)];
    assert_eq!(targets, want);
}

#[test]
fn headless_and_external_name_have_no_vip() {
    assert!(service("spec: {clusterIP: None, clusterIPs: [None], ports: [{port: 80}]}").vips.is_empty());
    let external = service("spec: {type: ExternalName, externalName: a.example, externalIPs: [192.0.2.1]}");
    assert!(external.vips.is_empty());
}

#[test]
fn what_kube_proxy_leaves_alone_is_no_vip() {
    let vips = |labels: &str| {
        let text = format!(
            "apiVersion: v1\nkind: Service\nmetadata: {{name: s, labels: {{{labels}}}}}\nspec: {{clusterIP: 10.96.0.7, externalIPs: \
             [192.0.2.7], ports: [{{port: 443}}]}}\n"
        );
        match one(&text) {
            Body::Service(service) => service.vips.len(),
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(vips("app: web"), 2);
    assert_eq!(vips("service.kubernetes.io/service-proxy-name: other"), 0);
    assert_eq!(vips("service.kubernetes.io/headless: ''"), 0);
}

#[test]
fn endpoint_slices() {
    let text = "
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: web-abc, namespace: n, labels: {kubernetes.io/service-name: web}}
addressType: IPv4
endpoints:
- {addresses: [10.1.0.1], conditions: {ready: true}}
- {addresses: [10.1.0.2], conditions: {ready: false}}
ports: [{name: http, port: 8080, protocol: TCP}, {name: any, port: null}]
";
    let want = EndpointSlice {
        service: "web".to_owned(),
        addresses: ips(&["10.1.0.1", "10.1.0.2"]),
        ports: vec![("http".to_owned(), crate::ports::Proto::Tcp, 8080)],
    };
    assert_eq!(one(text), Body::EndpointSlice(want));
}

#[test]
fn a_node_has_the_addresses_that_are_addresses() {
    let text = "
apiVersion: v1
kind: Node
metadata: {name: n1, labels: {zone: a}}
status:
  addresses:
  - {type: InternalIP, address: 192.0.2.1}
  - {type: InternalIP, address: 'fd00::1'}
  - {type: ExternalIP, address: 198.51.100.1}
  - {type: Hostname, address: n1}
  - {type: InternalDNS, address: n1.example}
";
    let Body::Node(node) = one(text) else { panic!() };
    assert_eq!(node.addresses, ips(&["192.0.2.1", "fd00::1", "198.51.100.1"]));
    assert_eq!(read(text).objects[0].key.to_string(), "Node/n1");
}

#[test]
fn lists_and_documents() {
    let list = "
apiVersion: v1
kind: List
items:
- {apiVersion: v1, kind: Namespace, metadata: {name: a, labels: {x: y}}}
- {apiVersion: v1, kind: Pod, metadata: {name: b}, spec: 7}
- {apiVersion: v1, kind: Pod, metadata: {name: c}}
---
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: d}
---
kind: Pod
metadata: {name: e}
";
    let contents = read(list);
    let keys: Vec<String> = contents.objects.iter().map(|o| o.key.to_string()).collect();
    assert_eq!(keys, ["Namespace/a", "Pod/default/c"]);
    assert_eq!(contents.broken, [Key::new(Kind::Pod, "default", "b")].into());
    assert!(contents.torn);
    assert_eq!(
        told(list),
        [
            "error: Pod/default/b: spec: expected an object, found a number",
            "warning: document 3: kind: not used by Egret: an object of another kind",
            "error: document 4: apiVersion: is missing",
        ]
    );
    assert!(told("{kind: List, items: 5}")[0].contains("items: expected a list"));
    assert_eq!(read("{kind: List}"), Contents::default());
    assert_eq!(read(""), Contents::default());
}

#[test]
fn a_broken_document_ends_the_file() {
    let text = "{apiVersion: v1, kind: Pod, metadata: {name: a}}\n---\nkind: [\n---\n{apiVersion: v1, kind: Pod, metadata: {name: b}}";
    let contents = read(text);
    assert_eq!(contents.objects.len(), 1);
    assert!(contents.torn);
    assert!(contents.diagnostics[0].to_string().contains("those after it are not read"));
}

#[test]
fn merge_keys_are_merged() {
    let text = "
kind: Pod
apiVersion: v1
metadata: {name: a, labels: {<<: &base {app: x, tier: y}, tier: z}}
";
    let Body::Pod(pod) = one(text) else { panic!() };
    assert_eq!((pod.labels["app"].as_str(), pod.labels["tier"].as_str()), ("x", "z"));
}

#[test]
fn the_last_of_two_counts() {
    let text = "
{apiVersion: v1, kind: Pod, metadata: {name: a, labels: {v: '1'}}}
---
{apiVersion: v1, kind: Pod, metadata: {name: a, namespace: default, labels: {v: '2'}}}
";
    let contents = read(text);
    let [Object { body: Body::Pod(pod), .. }] = &contents.objects[..] else { panic!() };
    assert_eq!(pod.labels["v"], "2");
    assert_eq!(told(text), ["warning: Pod/default/a: stands in the file twice; the last one counts"]);
}

#[test]
fn policies_go_to_their_readers() {
    let text = "
apiVersion: cilium.io/v2
kind: CiliumNetworkPolicy
metadata: {name: p}
spec: {endpointSelector: {}, egress: [{toEntities: [world]}]}
";
    let contents = read(text);
    assert_eq!(contents.objects[0].key.to_string(), "CiliumNetworkPolicy/default/p");
    let Body::Policies(policies) = &contents.objects[0].body else { panic!() };
    assert_eq!(policies[0].origin().to_string(), "CiliumNetworkPolicy/default/p");
    let bad = text.replace("[world]", "[moon]");
    assert_eq!(read(&bad).broken, [contents.objects[0].key.clone()].into());
    assert!(
        told(&bad)[0].starts_with("error: CiliumNetworkPolicy/default/p: spec.egress[0].toEntities[0]: ")
    );
    let foreign = "{apiVersion: projectcalico.org/v3, kind: GlobalNetworkPolicy, metadata: {name: p}}";
    assert!(
        told(foreign)[0]
            .starts_with("error: document 1: kind: `GlobalNetworkPolicy` of projectcalico.org/v3")
    );
}

#[test]
fn only_a_files_hash_stands_for_a_uid() {
    let uid = |hash: &str| {
        let text = format!(
            "apiVersion: v1\nkind: Pod\nmetadata: {{name: p, uid: own, annotations: {{kubernetes.io/config.hash: '{hash}'}}}}\n"
        );
        match one(&text) {
            Body::Pod(pod) => pod.uid,
            other => panic!("{other:?}"),
        }
    };
    let hash = "4be3e37cbd1ab3c6e9ae8a6b4c0c1cd1";
    assert_eq!(uid(hash), hash);
    // Another pod's uid, in whatever way it may be written.
    let other = "0f3ab5b9-7a5e-4c5e-9b7a-8d2c1e6f0a11";
    for claim in [
        other,
        &other.replace('-', "_"),
        &other.to_uppercase(),
        "",
        "4be3",
        "4BE3E37CBD1AB3C6E9AE8A6B4C0C1CD1",
    ] {
        assert_eq!(uid(claim), "own", "{claim}");
    }
}
