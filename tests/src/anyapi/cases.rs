//! What an agent makes of the objects of a server. Each case stands alone, in a namespace of its own.

use std::time::Duration;

use serde_json::Value;

use super::{Scene, Server};

/// How long a change of labels may take to be in force (DESIGN 4).
const SECOND: Duration = Duration::from_secs(1);

/// Pods with the same labels share an identity, which their addresses lead to.
pub fn identities_come_from_labels(server: &Server) {
    let scene = Scene::new(server);
    for (n, (pod, app)) in (1..).zip([("a", "web"), ("b", "web"), ("c", "api")]) {
        scene.scope.pod(pod, app, n);
        let found = |address: &String| {
            let identity = scene.identity(pod);
            identity >= 256 && scene.has("IDENTITIES", &format!("{address} -> {identity}"))
        };
        scene.expect("each address of the pod", || scene.scope.addresses(n).iter().all(found));
    }
    assert_eq!(scene.identity("a"), scene.identity("b"));
    assert_ne!(scene.identity("a"), scene.identity("c"));
    let ns = &scene.scope.name;
    let labels = scene.labels(scene.identity("c"));
    for label in [
        "app=api".to_owned(),
        format!("io.kubernetes.pod.namespace={ns}"),
        format!("io.cilium.k8s.namespace.labels.kubernetes.io/metadata.name={ns}"),
        "io.cilium.k8s.namespace.labels.team=red".to_owned(),
        "io.cilium.k8s.policy.serviceaccount=tester".to_owned(),
    ] {
        assert!(labels.contains(&format!("k8s:{label}")), "{label}: {labels:?}");
    }
}

/// A label of the pod and one of its namespace: another identity within a second, and the old one when the label is back.
pub fn a_label_change_re_identifies_within_a_second(server: &Server) {
    let scene = Scene::new(server);
    scene.scope.pod("a", "web", 1);
    let [address, _] = scene.scope.addresses(1);
    let is_known = |label: &str| {
        let identity = scene.identity("a");
        let entry = format!("{address} -> {identity}");
        scene.labels(identity).contains(&format!("k8s:{label}")) && scene.dump("IDENTITIES").contains(&entry)
    };
    scene.expect("the pod", || is_known("app=web"));
    let before = scene.identity("a");
    scene.scope.label("pod/a", "app=other");
    scene.expect_within(SECOND, "the pod's label", || is_known("app=other"));
    let other = scene.identity("a");
    assert_ne!(other, before);
    let namespace = format!("namespace/{}", scene.scope.name);
    scene.scope.label(&namespace, "team=blue");
    scene.expect_within(SECOND, "the namespace's", || is_known("io.cilium.k8s.namespace.labels.team=blue"));
    assert!(![before, other].contains(&scene.identity("a")));
    scene.scope.label(&namespace, "team=red");
    scene.scope.label("pod/a", "app=web");
    scene.expect_within(SECOND, "the labels of before", || scene.identity("a") == before);
}

/// Backends by a selector, and by an EndpointSlice where there is no selector.
pub fn services_stand_for_their_backends(server: &Server) {
    let scene = Scene::new(server);
    let ns = &scene.scope.name;
    scene.scope.pod("a", "api", 1);
    let service = |name: &str, selector: &str, port: u16| {
        server.apply(&format!(
            "apiVersion: v1\nkind: Service\nmetadata: {{name: {name}, namespace: {ns}}}\nspec: {{{selector} ports: [{{port: \
             {port}, targetPort: web, protocol: TCP}}]}}\n"
        ));
        format!("{} port {port} protocol 6 ->", scene.scope.address_of(name))
    };
    // Pods with one identity and one port stand for each other: which of the addresses is in the map is not said.
    let api = service("api", "selector: {app: api},", 80);
    let backend = || {
        let entries = scene.dump("SERVICES");
        let entry = entries.iter().find(|entry| entry.starts_with(&api)).cloned().unwrap_or_default();
        scene.scope.addresses(1).iter().any(|ip| entry.contains(&format!(" {ip} port 8080;")))
    };
    scene.expect("the pod that is selected", backend);
    scene.scope.label("pod/a", "app=other");
    scene.expect("not selected any more", || !backend());
    scene.scope.label("pod/a", "app=api");
    scene.expect("selected again", backend);
    let outside = service("outside", "", 443);
    let slice = |address: &str, port: u16| {
        server.apply(&format!(
            "apiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\nmetadata: {{name: outside-1, namespace: {ns}, labels: \
             {{kubernetes.io/service-name: outside}}}}\naddressType: IPv4\nendpoints: [{{addresses: [{address}]}}]\nports: \
             [{{name: '', port: {port}, protocol: TCP}}]\n"
        ));
    };
    for (address, port) in [("203.0.113.9", 9443), ("203.0.113.10", 9444)] {
        slice(address, port);
        let entry = format!("{outside} {address} port {port};");
        scene.expect("what the slice says", || scene.dump("SERVICES").contains(&entry));
    }
    scene.scope.delete("service/outside");
    scene.expect("the service is gone", || !scene.has("SERVICES", &outside));
    assert!(backend(), "the other one is not");
}

/// NetworkPolicy: nothing passes but what is allowed, to whoever has the label now.
pub fn a_selected_pod_is_denied_what_nothing_allows(server: &Server) {
    let scene = Scene::new(server);
    let ns = &scene.scope.name;
    scene.scope.pod("a", "web", 1);
    scene.scope.pod("b", "api", 2);
    let state = |pod: &str| {
        let endpoint = scene.endpoint(pod);
        [&endpoint["ingress"], &endpoint["egress"]].map(|side| side.as_str().unwrap_or_default().to_owned())
    };
    scene.expect("nothing isolates", || ["a", "b"].iter().all(|pod| state(pod) == ["Disabled", "Disabled"]));
    let policy = |name: &str, rest: &str| {
        server.apply(&format!(
            "apiVersion: networking.k8s.io/v1\nkind: NetworkPolicy\nmetadata: {{name: {name}, namespace: {ns}}}\nspec:\n  \
             podSelector: {{matchLabels: {{app: web}}}}\n  {rest}\n"
        ));
    };
    policy("deny", "policyTypes: [Ingress, Egress]");
    scene.expect("default deny", || state("a") == ["Enabled", "Enabled"]);
    assert_eq!(state("b"), ["Disabled", "Disabled"]);
    assert_eq!(scene.egress("RULES", "a"), [] as [&str; 0]);
    assert_eq!(scene.policy(&format!("NetworkPolicy/{ns}/deny"))["selects"][0], format!("{ns}/a"));
    let to_api = "policyTypes: [Egress]\n  egress: [{to: [{podSelector: {matchLabels: {app: api}}}], ports: [{port: 8080, \
                  protocol: TCP}]}]";
    policy("allow", to_api);
    // Exactly one rule, for that identity.
    let opens = |pod: &str| {
        let class = format!("class {:#x} chunk 0 -> 6:8080-8080 allow", scene.identity(pod));
        let rules = scene.egress("RULES", "a");
        rules.len() == 1 && rules[0].starts_with(&class) && !rules[0].trim_end_matches(';').contains(';')
    };
    scene.expect("allowed by label", || opens("b"));
    scene.scope.label("pod/b", "app=other");
    scene.expect_within(SECOND, "nobody has the label", || scene.egress("RULES", "a").is_empty());
    scene.scope.label("pod/b", "app=api");
    scene.expect_within(SECOND, "the label is back", || opens("b"));
    ["networkpolicy/allow", "networkpolicy/deny"].iter().for_each(|policy| scene.scope.delete(policy));
    scene.expect("nothing isolates any more", || state("a") == ["Disabled", "Disabled"]);
}

/// CiliumNetworkPolicy with a name.
pub fn policies_by_name_are_compiled(server: &Server) {
    let Some(scene) = with(server.has_cilium(), "CiliumNetworkPolicy", server) else { return };
    let ns = &scene.scope.name;
    scene.scope.pod("a", "web", 1);
    let policy = |name: &str, port: u16| {
        server.apply(&format!(
            "apiVersion: cilium.io/v2\nkind: CiliumNetworkPolicy\nmetadata: {{name: names, namespace: {ns}}}\nspec:\n  \
             endpointSelector: {{matchLabels: {{app: web}}}}\n  egress:\n  - toFQDNs: [{{matchName: {name}}}]\n    toPorts: \
             [{{ports: [{{port: '{port}', protocol: TCP}}]}}]\n"
        ));
    };
    for (name, port) in [("one", 443), ("two", 8443)] {
        let name = format!("{name}.{ns}.example");
        policy(&name, port);
        let class = || {
            let entry = scene
                .dump("NAME_EXACT")
                .into_iter()
                .find(|entry| entry.starts_with(&format!("{name} -> ")))?;
            Some(entry.rsplit_once(' ')?.1.to_owned())
        };
        let rule = |class: String| {
            let rule = format!("class {class} chunk 0 -> 6:{port}-{port} allow");
            scene.egress("RULES", "a").iter().any(|line| line.starts_with(&rule))
        };
        scene.expect("the name and its port", || class().is_some_and(rule));
    }
    assert!(!scene.has("NAME_EXACT", &format!("one.{ns}.example")), "the name of before");
    // A name that nobody may ask for is of no use.
    assert!(scene.is_told(&format!("CiliumNetworkPolicy/{ns}/names")), "no rule lets it look up names");
}

/// ClusterNetworkPolicy, for this namespace alone.
pub fn policies_of_the_admin_tier_are_compiled(server: &Server) {
    let Some(scene) = with(server.has_clusterwide(), "ClusterNetworkPolicy", server) else { return };
    let ns = &scene.scope.name;
    scene.scope.pod("a", "web", 1);
    server.apply(&format!(
        "apiVersion: policy.networking.k8s.io/v1alpha2\nkind: ClusterNetworkPolicy\nmetadata: {{name: {ns}, labels: \
         {{egret.dev/test: {ns}}}}}\nspec:\n  tier: Admin\n  priority: 917\n  subject: {{namespaces: {{matchLabels: \
         {{kubernetes.io/metadata.name: {ns}}}}}}}\n  egress: [{{name: documentation, action: Deny, to: [{{networks: \
         [203.0.113.0/24]}}]}}]\n"
    ));
    let name = format!("ClusterNetworkPolicy/{ns}");
    let selects = || scene.policy(&name)["selects"] == serde_json::json!([format!("{ns}/a")]);
    scene.expect("the pods of the namespace", selects);
    let policy = scene.policy(&name);
    assert_eq!((&policy["tier"], &policy["priority"]), (&"Admin".into(), &917.into()), "{policy:#}");
    let net = || {
        scene.egress("CIDR_CLASSES", "a").iter().any(|line| line.starts_with("::ffff:203.0.113.0/120 -> "))
    };
    scene.expect("its network", net);
    server.kubectl(&["delete", "clusternetworkpolicies.policy.networking.k8s.io", ns]);
    scene.expect("gone", || !net() && scene.policy(&name).is_null());
}

/// A field that Egret does not enforce: a diagnostic, a condition, and the last good version in force.
pub fn a_bad_object_is_told_and_says_so_itself(server: &Server) {
    let Some(scene) = with(server.has_cilium(), "CiliumNetworkPolicy", server) else { return };
    let ns = &scene.scope.name;
    scene.scope.pod("a", "web", 1);
    let policy = |port: &str, rules: &str| {
        server.apply(&format!(
            "apiVersion: cilium.io/v2\nkind: CiliumNetworkPolicy\nmetadata: {{name: web, namespace: {ns}}}\nspec:\n  \
             endpointSelector: {{matchLabels: {{app: web}}}}\n  egress:\n  - toCIDR: [203.0.113.9/32]\n    toPorts: [{{ports: \
             [{{port: '{port}', protocol: TCP}}]{rules}}}]\n"
        ));
    };
    let condition = || {
        let object = server.get(ns, "ciliumnetworkpolicies.cilium.io", "web").unwrap_or_default();
        let all = object["status"]["conditions"].as_array().cloned().unwrap_or_default();
        all.into_iter().find(|condition| condition["type"] == "Valid").unwrap_or_default()
    };
    let says = |condition: Value, status: &str, reason: &str, message: &str| {
        let text = condition["message"].as_str().unwrap_or_default();
        condition["status"] == status && condition["reason"] == reason && text.contains(message)
    };
    let path = "spec.egress[0].toPorts[0].rules.http";
    let in_force = || scene.egress("RULES", "a").iter().any(|line| line.contains(" 6:80-80 allow"));
    policy("80", "");
    scene.expect("it is in force", in_force);
    scene.expect("it says that it is valid", || says(condition(), "True", "PolicyValid", ""));
    policy("80", ", rules: {http: [{method: GET}]}");
    scene.expect("the field", || scene.is_told(&format!("CiliumNetworkPolicy/{ns}/web: {path}")));
    scene.expect("it says that it is not valid", || says(condition(), "False", "PolicyInvalid", path));
    assert!(in_force() && scene.is_told("stays in force as it was read last"), "{}", scene.agent.said());
    policy("81", "");
    scene.expect("the new port", || {
        scene.egress("RULES", "a").iter().any(|line| line.contains(" 6:81-81 allow"))
    });
    scene.expect("it says that it is valid again", || says(condition(), "True", "PolicyValid", ""));
    assert!(!in_force() && !scene.is_told(path));
}

/// Of pods, services and policies nothing stays in the agent.
pub fn what_is_deleted_is_gone(server: &Server) {
    let scene = Scene::new(server);
    let ns = &scene.scope.name;
    scene.scope.pod("a", "web", 1);
    scene.scope.pod("b", "api", 2);
    server.apply(&format!(
        "{{apiVersion: v1, kind: Service, metadata: {{name: api, namespace: {ns}}}, spec: {{selector: {{app: api}}, ports: \
         [{{port: 80, targetPort: 8080, protocol: TCP}}]}}}}\n---\n{{apiVersion: networking.k8s.io/v1, kind: NetworkPolicy, \
         metadata: {{name: web, namespace: {ns}}}, spec: {{podSelector: {{}}, policyTypes: [Egress], egress: [{{to: \
         [{{podSelector: {{}}}}]}}]}}}}\n"
    ));
    let vip = scene.scope.address_of("api");
    let name = format!("NetworkPolicy/{ns}/web");
    let service = || scene.has("SERVICES", &format!("{vip} port 80 "));
    let addresses: Vec<String> = [1, 2].iter().flat_map(|n| scene.scope.addresses(*n)).collect();
    let known = |map: &str| addresses.iter().filter(|ip| scene.has(map, &format!("{ip} -> "))).count();
    scene.expect("all of it", || {
        service() && known("IDENTITIES") == 4 && scene.egress("RULES", "a").len() == 2
    });
    assert_eq!((scene.endpoints().len(), scene.identities().len()), (2, 2));
    scene.scope.delete("networkpolicy/web");
    scene.expect("no policy", || scene.policy(&name).is_null() && scene.egress("RULES", "a").is_empty());
    scene.scope.delete("service/api");
    scene.expect("no service", || !service());
    scene.scope.delete("pod/a");
    scene.expect("one pod less", || scene.endpoint("a").is_null() && known("IDENTITIES") == 2);
    assert!(!scene.endpoint("b").is_null(), "the other one stays");
    scene.scope.delete("pod/b");
    let nothing = || known("IDENTITIES") == 0 && known("ADDRESSES") == 0 && scene.identities().is_empty();
    scene.expect("no pod", || scene.endpoints().is_empty() && nothing());
}

/// A scene, if the server has the kind.
fn with<'a>(has: bool, kind: &str, server: &'a Server) -> Option<Scene<'a>> {
    if !has {
        eprintln!("not run: the server has no {kind}");
    }
    has.then(|| Scene::new(server))
}
