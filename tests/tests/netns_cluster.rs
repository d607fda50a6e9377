//! The tests of `cluster_api`, against the double; and that they leave nothing behind on a server.

use std::panic::{AssertUnwindSafe, catch_unwind};

use egret_tests::anyapi::{Scene, Scope, Server, cases};
use egret_tests::apiserver::ApiServer;

egret_tests::cluster_tests!(egret_tests::anyapi::Server::double);

/// Of everything that a test makes, or that its agent writes.
const KINDS: [&str; 13] = [
    "Pod",
    "Service",
    "EndpointSlice",
    "NetworkPolicy",
    "CiliumNetworkPolicy",
    "ClusterNetworkPolicy",
    "Lease",
    "Event",
    "ServiceAccount",
    "ClusterRole",
    "ClusterRoleBinding",
    "Role",
    "RoleBinding",
];

const OTHERS: &str = "\
{apiVersion: v1, kind: Namespace, metadata: {name: others}}
---
{apiVersion: networking.k8s.io/v1, kind: NetworkPolicy, metadata: {name: np, namespace: others}, spec: {podSelector: {}}}
";

const OTHERS_CILIUM: &str = "\
apiVersion: cilium.io/v2
kind: CiliumNetworkPolicy
metadata: {name: cnp, namespace: others}
spec: {endpointSelector: {}, ingress: [{}]}
";

#[test]
fn nothing_stays_of_a_test_that_fails_and_nothing_else_goes() {
    let server = Server::double().expect("always there");
    let api = server.as_double().expect("it is one");
    api.apply(OTHERS);
    let before = api.get("NetworkPolicy", "others", "np");
    let failed = catch_unwind(AssertUnwindSafe(|| {
        let scene = Scene::new(&server);
        let ns = &scene.scope.name;
        scene.scope.pod("a", "web", 1);
        server.apply(&format!(
            "{{apiVersion: v1, kind: Service, metadata: {{name: svc, namespace: {ns}}}, spec: {{ports: [{{port: 80}}]}}}}\n---\n\
             {{apiVersion: discovery.k8s.io/v1, kind: EndpointSlice, metadata: {{name: svc-1, namespace: {ns}}}, addressType: \
             IPv4, endpoints: []}}\n---\n\
             {{apiVersion: networking.k8s.io/v1, kind: NetworkPolicy, metadata: {{name: np, namespace: {ns}}}, spec: \
             {{podSelectr: {{}}}}}}\n---\n\
             {{apiVersion: cilium.io/v2, kind: CiliumNetworkPolicy, metadata: {{name: cnp, namespace: {ns}}}, spec: \
             {{endpointSelector: {{}}, egress: [{{}}]}}}}\n---\n\
             {{apiVersion: policy.networking.k8s.io/v1alpha2, kind: ClusterNetworkPolicy, metadata: {{name: {ns}}}, spec: \
             {{tier: Admin, priority: 1, subject: {{namespaces: {{}}}}}}}}\n"
        ));
        // Also what only the agent writes: the lease, an event about the bad object.
        scene.expect("all kinds", || KINDS.iter().all(|kind| !api.all(kind).is_empty()));
        panic!("as a test that fails");
    }));
    let failed = failed.expect_err("it panics");
    assert_eq!(failed.downcast_ref::<&str>(), Some(&"as a test that fails"), "{failed:?}");
    for kind in KINDS {
        let mut left = api.all(kind);
        left.retain(|object| object["metadata"]["namespace"] != "others");
        assert!(left.is_empty(), "{left:?}");
    }
    let namespaces = api.all("Namespace");
    assert!(namespaces.len() == 1 && namespaces[0]["metadata"]["name"] == "others", "{namespaces:?}");
    assert_eq!(api.get("NetworkPolicy", "others", "np"), before);
}

#[test]
fn a_kubeconfig_is_all_that_the_tests_need() {
    let api = ApiServer::start();
    let config = std::env::temp_dir().join(format!("egret-given-{}", std::process::id()));
    std::fs::write(&config, api.kubeconfig()).expect("written");
    {
        let server = Server::of(config.display().to_string());
        assert!(!server.has_cilium() && !server.has_clusterwide(), "not installed");
        cases::what_is_deleted_is_gone(&server);
        // Kinds that are not there are left out, and said to be.
        cases::policies_by_name_are_compiled(&server);
    }
    std::fs::remove_file(&config).expect("removed");
    let agents = api.requests().into_iter().filter(|request| request.user_agent.starts_with("egret/"));
    assert!(agents.count() > 0 && api.all("Namespace").is_empty());
}

#[test]
fn a_server_where_the_agent_could_write_about_others_is_refused() {
    let server = Server::double().expect("always there");
    let api = server.as_double().expect("it is one");
    api.apply(OTHERS_CILIUM);
    // The double lets everybody do everything.
    let refused = catch_unwind(AssertUnwindSafe(|| drop(Scope::new(&server)))).expect_err("it panics");
    let said = refused.downcast_ref::<String>().expect("a text");
    assert!(said.contains("keep the agent from writing about [\"others/cnp\"]"), "{said}");
    assert!(api.all("ClusterRole").is_empty() && api.all("Namespace").is_empty());
    // Nor does any field but its own matter to the server's clients.
    assert!(api.get("CiliumNetworkPolicy", "others", "cnp").is_some_and(|object| object["status"].is_null()));
}
