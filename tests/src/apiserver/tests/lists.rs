//! Lists: order, pages, versions, selectors, and what discovery says of them.

use super::*;

const PODS: &str = "/api/v1/pods";

fn five() -> ApiServer {
    let server = ApiServer::start();
    for (number, node) in ["n1", "n2", "n1", "n2", "n1"].into_iter().enumerate() {
        server.apply_json(pod("default", &format!("p{number}"), node));
    }
    server
}

#[test]
fn a_list_is_in_the_order_of_the_database() {
    let server = ApiServer::start();
    for (namespace, name) in [("b", "x"), ("a", "z"), ("a-b", "y"), ("a", "a")] {
        server.apply_json(pod(namespace, name, "n1"));
    }
    let list = get(&server, PODS).expect(200);
    assert_eq!(names(&list), ["y", "a", "z", "x"], "a-b/ sorts before a/");
    assert_eq!((&list["kind"], &list["apiVersion"]), (&"PodList".into(), &"v1".into()));
    assert_eq!(list["metadata"]["resourceVersion"], server.revision().to_string());
    assert_eq!(names(&get(&server, "/api/v1/namespaces/a/pods").expect(200)), ["a", "z"]);
    assert_eq!(names(&get(&server, "/api/v1/namespaces/none/pods").expect(200)), [""; 0]);
}

#[test]
fn only_items_of_custom_resources_say_what_they_are() {
    let server = five();
    server.install(Crd::CiliumNetworkPolicy);
    server.apply_json(policy("one"));
    let item = &get(&server, PODS).expect(200)["items"][0];
    assert!(item["kind"].is_null() && item["apiVersion"].is_null(), "{item}");
    let item = &get(&server, "/apis/cilium.io/v2/ciliumnetworkpolicies").expect(200)["items"][0];
    assert_eq!((&item["kind"], &item["apiVersion"]), (&"CiliumNetworkPolicy".into(), &"cilium.io/v2".into()));
    let alone = get(&server, "/api/v1/namespaces/default/pods/p0").expect(200);
    assert_eq!((&alone["kind"], &alone["apiVersion"]), (&"Pod".into(), &"v1".into()));
}

#[test]
fn pages_are_of_one_version() {
    let server = five();
    let version = server.revision().to_string();
    let first = get(&server, "/api/v1/pods?limit=2").expect(200);
    assert_eq!(names(&first), ["p0", "p1"]);
    assert_eq!(first["metadata"]["remainingItemCount"], 3);
    server.delete("Pod", "default", "p3");
    server.apply_json(pod("default", "p2a", "n1"));
    server.apply_json(pod("default", "p4", "elsewhere"));
    server.apply_json(pod("default", "p4", "elsewhere again"));
    let token = first["metadata"]["continue"].as_str().expect("more");
    let second = get(&server, &format!("/api/v1/pods?limit=2&continue={token}")).expect(200);
    assert_eq!(names(&second), ["p2", "p3"]);
    let token = second["metadata"]["continue"].as_str().expect("more");
    let third = get(&server, &format!("/api/v1/pods?limit=2&continue={token}")).expect(200);
    assert_eq!(names(&third), ["p4"]);
    assert_eq!(third["items"][0]["spec"]["nodeName"], "n1", "as it was");
    assert!(third["metadata"]["continue"].is_null());
    for page in [first, second, third] {
        assert_eq!(page["metadata"]["resourceVersion"], version);
    }
    assert_eq!(names(&get(&server, PODS).expect(200)), ["p0", "p1", "p2", "p2a", "p4"]);
}

#[test]
fn a_page_of_a_forgotten_version_is_gone() {
    let server = five();
    let first = get(&server, "/api/v1/pods?limit=2").expect(200);
    server.delete("Pod", "default", "p3");
    server.expire();
    let token = first["metadata"]["continue"].as_str().expect("more");
    let second = get(&server, &format!("/api/v1/pods?limit=2&continue={token}"));
    assert_eq!(second.reason(410), "Expired");
    let status = second.json();
    let token = status["metadata"]["continue"].as_str().expect("a way to go on");
    let second = get(&server, &format!("/api/v1/pods?continue={token}")).expect(200);
    assert_eq!(names(&second), ["p2", "p4"], "in the newest state");
    assert_eq!(get(&server, "/api/v1/pods?continue=none").reason(400), "BadRequest");
}

#[test]
fn a_version_is_a_lower_bound_or_exact() {
    let server = five();
    let old = server.revision();
    server.delete("Pod", "default", "p0");
    let list = |query: &str| get(&server, &format!("/api/v1/pods?{query}"));
    let exact = list(&format!("resourceVersion={old}&resourceVersionMatch=Exact")).expect(200);
    assert_eq!((names(&exact).len(), &exact["metadata"]["resourceVersion"]), (5, &old.to_string().into()));
    let newer = list(&format!("resourceVersion={old}&resourceVersionMatch=NotOlderThan")).expect(200);
    assert_eq!(names(&newer).len(), 4);
    assert_eq!(names(&list(&format!("resourceVersion={old}")).expect(200)).len(), 4);
    assert_eq!(
        names(&list("resourceVersion=0&limit=2").expect(200)).len(),
        4,
        "from memory there are no pages"
    );
    assert_eq!(list("resourceVersion=100000").reason(504), "Timeout");
    assert_eq!(list("resourceVersionMatch=Exact").reason(422), "Invalid");
    assert_eq!(list("resourceVersion=0&resourceVersionMatch=Exact").reason(422), "Invalid");
    assert_eq!(list("resourceVersion=1&resourceVersionMatch=About").reason(422), "Invalid");
    assert_eq!(list("sendInitialEvents=true").reason(422), "Invalid");
    assert_eq!(list("resourceVersion=abc").reason(400), "BadRequest");
    server.expire();
    assert_eq!(list(&format!("resourceVersion={old}&resourceVersionMatch=Exact")).reason(410), "Expired");
}

#[test]
fn selectors_select() {
    let server = five();
    let check = |selector: &str, wanted: &[&str]| {
        let list = get(&server, &format!("/api/v1/pods?{selector}")).expect(200);
        assert_eq!(names(&list), wanted, "{selector}");
    };
    check("fieldSelector=spec.nodeName%3Dn2", &["p1", "p3"]);
    check("fieldSelector=spec.nodeName%21%3Dn2,metadata.name!=p4", &["p0", "p2"]);
    check(
        "fieldSelector=spec.nodeName==n1,status.phase=Running,metadata.namespace=default",
        &["p0", "p2", "p4"],
    );
    check("fieldSelector=metadata.namespace=other", &[]);
    check("labelSelector=app%3Dp1", &["p1"]);
    check("labelSelector=app+in+(p1,p3),app!=p3", &["p1"]);
    check("labelSelector=app+notin+(p1,p2),app", &["p0", "p3", "p4"]);
    check("labelSelector=!app", &[]);
    check("labelSelector=other!=x&limit=2", &["p0", "p1"]);
    let page = get(&server, "/api/v1/pods?fieldSelector=spec.nodeName=n1&limit=2").expect(200);
    assert!(page["metadata"]["continue"].is_string() && page["metadata"]["remainingItemCount"].is_null());
    assert_eq!(get(&server, "/api/v1/pods?fieldSelector=spec.image=x").reason(400), "BadRequest");
    assert_eq!(get(&server, "/api/v1/nodes?fieldSelector=spec.nodeName=x").reason(400), "BadRequest");
    assert_eq!(get(&server, "/api/v1/pods?labelSelector=a+b").reason(400), "BadRequest");
}

#[test]
fn discovery_names_what_is_installed() {
    let server = ApiServer::start();
    let groups = |server: &ApiServer| -> Vec<String> {
        let list = get(server, "/apis").expect(200);
        list["groups"].as_array().expect("groups").iter().map(|group| group["name"].to_string()).collect()
    };
    assert!(!groups(&server).iter().any(|name| name.contains("cilium")), "{:?}", groups(&server));
    for path in
        ["/apis/cilium.io", "/apis/cilium.io/v2", "/apis/cilium.io/v2/ciliumnetworkpolicies", "/apis/a/b/c/d"]
    {
        let answer = get(&server, path);
        assert_eq!(
            (answer.code, answer.header("content-type")),
            (404, "text/plain; charset=utf-8"),
            "{path}"
        );
    }
    server.install(Crd::CiliumCidrGroup);
    server.install(Crd::ClusterNetworkPolicy);
    assert_eq!(groups(&server).iter().filter(|name| name.contains("cilium")).count(), 1);
    assert_eq!(groups(&server).len(), 7);
    let resources = get(&server, "/apis/cilium.io/v2").expect(200);
    assert_eq!(names_of_resources(&resources), ["ciliumcidrgroups"]);
    assert_eq!(get(&server, "/apis/cilium.io/v2/ciliumnetworkpolicies").code, 404);
    let resources = get(&server, "/apis/policy.networking.k8s.io/v1alpha2").expect(200);
    assert_eq!(names_of_resources(&resources), ["clusternetworkpolicies", "clusternetworkpolicies/status"]);
    let core = get(&server, "/api/v1").expect(200);
    assert!(names_of_resources(&core).contains(&"pods/status".into()), "{core}");
    assert_eq!(get(&server, "/api").expect(200)["versions"], json!(["v1"]));
    assert_eq!(get(&server, "/version").expect(200)["major"], "1");
    assert_eq!(get(&server, "/healthz").body, b"ok");
}

fn names_of_resources(list: &Value) -> Vec<String> {
    let resources = list["resources"].as_array().expect("resources").iter();
    resources.map(|resource| resource["name"].as_str().expect("a name").to_owned()).collect()
}
