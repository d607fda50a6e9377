//! Writes: who wins, what is kept, and what a status subresource may change.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use super::*;
use crate::wait::until_true;

const LEASES: &str = "/apis/coordination.k8s.io/v1/namespaces/default/leases";
const POLICIES: &str = "/apis/cilium.io/v2/namespaces/default/ciliumnetworkpolicies";
const POD: &str = "/api/v1/namespaces/default/pods/one";

fn lease(name: &str, holder: &str) -> Value {
    json!({
        "apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": name},
        "spec": {"holderIdentity": holder},
    })
}

#[test]
fn what_exists_is_not_created_again() {
    let server = ApiServer::start();
    let made = send(&server, "POST", LEASES, "json", &lease("one", "a")).expect(201);
    let metadata = &made["metadata"];
    assert_eq!((&metadata["namespace"], &metadata["generation"]), (&"default".into(), &1.into()));
    let uid = metadata["uid"].as_str().expect("a uid");
    let parts: Vec<usize> = uid.split('-').map(str::len).collect();
    assert_eq!((parts.as_slice(), uid.is_ascii()), ([8, 4, 4, 4, 12].as_slice(), true), "{uid}");
    assert_eq!(metadata["creationTimestamp"].as_str().map(str::len), Some("2026-01-01T00:00:00Z".len()));
    assert_eq!(send(&server, "POST", LEASES, "json", &lease("one", "b")).reason(409), "AlreadyExists");
    let mut unnamed = lease("", "a");
    assert_eq!(send(&server, "POST", LEASES, "json", &unnamed).reason(422), "Invalid");
    unnamed["metadata"] = json!({"generateName": "gen-"});
    let names: Vec<String> = (0..2)
        .map(|_| send(&server, "POST", LEASES, "json", &unnamed).expect(201)["metadata"]["name"].to_string())
        .collect();
    assert!(names[0].starts_with("\"gen-") && names[0] != names[1], "{names:?}");
}

#[test]
fn a_stale_version_is_a_conflict() {
    let server = ApiServer::start();
    let made = send(&server, "POST", LEASES, "json", &lease("one", "a")).expect(201);
    let path = format!("{LEASES}/one");
    let mut next = made.clone();
    next["spec"]["holderIdentity"] = "b".into();
    let replaced = send(&server, "PUT", &path, "json", &next).expect(200);
    assert_eq!(
        (&replaced["metadata"]["uid"], &replaced["metadata"]["generation"]),
        (&made["metadata"]["uid"], &2.into())
    );
    assert_eq!(send(&server, "PUT", &path, "json", &next).reason(409), "Conflict");
    let patch = json!({"metadata": {"resourceVersion": made["metadata"]["resourceVersion"]}, "spec": {}});
    assert_eq!(send(&server, "PATCH", &path, "merge-patch+json", &patch).reason(409), "Conflict");
    assert_eq!(send(&server, "PUT", &path, "json", &lease("one", "c")).reason(422), "Invalid");
    assert_eq!(send(&server, "PUT", &path, "json", &lease("two", "c")).reason(400), "BadRequest");
    send(&server, "PUT", &format!("{LEASES}/two"), "json", &lease("two", "c")).expect(201);
    assert_eq!(server.get("Lease", "default", "one").expect("it")["spec"]["holderIdentity"], "b");
}

#[test]
fn a_status_is_written_apart_from_all_else() {
    let server = ApiServer::start();
    server.install(Crd::CiliumNetworkPolicy);
    let mut one = policy("one");
    one["status"] = json!({"conditions": []});
    let made = send(&server, "POST", POLICIES, "json", &one).expect(201);
    assert!(made["status"].is_null(), "not at creation");
    let path = format!("{POLICIES}/one");
    let status = format!("{path}/status");
    let patch = json!({"status": {"a": 1}, "spec": {"endpointSelector": {"x": "y"}}, "metadata": {"labels": {"l": "m"}}});
    let patched = send(&server, "PATCH", &status, "merge-patch+json", &patch).expect(200);
    assert_eq!((&patched["status"], &patched["spec"]), (&json!({"a": 1}), &json!({"endpointSelector": {}})));
    assert_eq!(
        (&patched["metadata"]["generation"], &patched["metadata"]["labels"]),
        (&1.into(), &Value::Null)
    );
    let mut whole = patched.clone();
    whole["status"] = json!({"b": 2});
    whole["spec"]["egress"] = json!([]);
    let replaced = send(&server, "PUT", &path, "json", &whole).expect(200);
    assert_eq!((&replaced["status"], &replaced["spec"]["egress"]), (&json!({"a": 1}), &json!([])));
    assert_eq!(replaced["metadata"]["generation"], 2);
    whole["metadata"]["resourceVersion"] = replaced["metadata"]["resourceVersion"].clone();
    whole["spec"] = json!({});
    let replaced = send(&server, "PUT", &status, "json", &whole).expect(200);
    assert_eq!((&replaced["status"], &replaced["spec"]["egress"]), (&json!({"b": 2}), &json!([])));
    assert_eq!(get(&server, &status).expect(200), replaced);
    assert_eq!(get(&server, &format!("{LEASES}/one/status")).code, 404, "leases have none");
}

#[test]
fn a_write_that_changes_nothing_is_no_change() {
    let server = ApiServer::start();
    server.apply_json(pod("default", "one", "n1"));
    let before = server.revision();
    server.apply_json(pod("default", "one", "n1"));
    let patch = json!({"metadata": {"labels": {"app": "one"}}});
    send(&server, "PATCH", POD, "merge-patch+json", &patch).expect(200);
    assert_eq!(server.revision(), before);
    let patch = json!({"metadata": {"labels": {"app": null, "more": "x"}}});
    let patched = send(&server, "PATCH", POD, "merge-patch+json", &patch).expect(200);
    assert_eq!(patched["metadata"]["labels"], json!({"more": "x"}));
    assert_eq!((server.revision(), &patched["metadata"]["generation"]), (before + 1, &1.into()));
    let patched = send(&server, "PATCH", POD, "merge-patch+json", &json!({"spec": null})).expect(200);
    assert_eq!((&patched["spec"], &patched["metadata"]["generation"]), (&Value::Null, &2.into()));
}

#[test]
fn who_is_overtaken_begins_anew() {
    let server = ApiServer::start();
    server.apply_json(pod("default", "one", "n1"));
    let (done, patches) = (AtomicBool::new(false), AtomicU32::new(0));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !done.load(Ordering::SeqCst) {
                let patch =
                    json!({"metadata": {"annotations": {"n": patches.load(Ordering::SeqCst).to_string()}}});
                send(&server, "PATCH", POD, "merge-patch+json", &patch).expect(200);
                patches.fetch_add(1, Ordering::SeqCst);
            }
        });
        let kept = (0..100).all(|number| {
            let node = format!("n{number}");
            server.apply_json(pod("default", "one", &node));
            let before = patches.load(Ordering::SeqCst);
            let later = || patches.load(Ordering::SeqCst) >= before + 2;
            until_true("the patch under way is done", Duration::from_secs(10), later);
            server.get("Pod", "default", "one").is_some_and(|pod| pod["spec"]["nodeName"] == node)
        });
        done.store(true, Ordering::SeqCst);
        assert!(kept, "a patch of the annotations took the node back");
    });
}

#[test]
fn every_patch_has_its_rules() {
    let server = ApiServer::start();
    server.install(Crd::CiliumNetworkPolicy);
    let path = format!("{POLICIES}/one");
    let apply = |path: &str, body: &Value| send(&server, "PATCH", path, "apply-patch+yaml", body);
    assert_eq!(apply(&path, &policy("one")).reason(422), "Invalid", "without a field manager");
    let managed = format!("{path}?fieldManager=egret");
    apply(&managed, &policy("one")).expect(201);
    let mut changed = policy("one");
    changed["spec"]["egress"] = json!([{}]);
    assert_eq!(
        apply(&managed, &changed).expect(200)["spec"],
        json!({"endpointSelector": {}, "egress": [{}]})
    );
    assert_eq!(apply(&managed, &json!({"spec": {}})).reason(400), "BadRequest", "without a type");
    changed["metadata"]["managedFields"] = json!([]);
    assert_eq!(apply(&managed, &changed).reason(400), "BadRequest");
    let status = format!("{POLICIES}/none/status?fieldManager=egret");
    assert_eq!(apply(&status, &policy("none")).reason(404), "NotFound");
    let strategic =
        |path: &str, body: &Value| send(&server, "PATCH", path, "strategic-merge-patch+json", body);
    assert_eq!(strategic(&path, &json!({})).reason(415), "UnsupportedMediaType");
    server.apply_json(pod("default", "one", "n1"));
    let patch = json!({"spec": {"$setElementOrder/containers": [], "priority": 3}});
    let patched = strategic(POD, &patch).expect(200);
    assert_eq!(
        (&patched["spec"]["priority"], patched["spec"].as_object().map(|spec| spec.len())),
        (&3.into(), Some(3))
    );
    assert_eq!(
        send(&server, "PATCH", POD, "json-patch+json", &json!([])).reason(415),
        "UnsupportedMediaType"
    );
    let dry = send(&server, "PATCH", &format!("{POD}?dryRun=All"), "merge-patch+json", &json!({}));
    assert_eq!(dry.reason(400), "BadRequest");
}

#[test]
fn what_is_deleted_is_gone_and_what_comes_after_is_another() {
    let server = ApiServer::start();
    server.apply_json(pod("default", "one", "n1"));
    let first = server.get("Pod", "default", "one").expect("it");
    let wrong = json!({"preconditions": {"uid": "another"}});
    assert_eq!(send(&server, "DELETE", POD, "json", &wrong).reason(409), "Conflict");
    let status = send(&server, "DELETE", POD, "json", &Value::Null).expect(200);
    assert_eq!(
        (&status["status"], &status["details"]["uid"]),
        (&"Success".into(), &first["metadata"]["uid"])
    );
    assert_eq!(send(&server, "DELETE", POD, "json", &Value::Null).reason(404), "NotFound");
    assert_eq!(get(&server, POD).reason(404), "NotFound");
    assert_eq!(send(&server, "PUT", POD, "json", &pod("default", "one", "n1")).reason(404), "NotFound");
    server.apply_json(pod("default", "one", "n1"));
    let second = server.get("Pod", "default", "one").expect("it");
    assert_ne!(first["metadata"]["uid"], second["metadata"]["uid"]);
}

#[test]
fn what_cannot_be_is_refused() {
    let server = ApiServer::start();
    let path = "/api/v1/namespaces/default/pods";
    assert_eq!(send(&server, "PUT", path, "json", &json!({})).reason(405), "MethodNotAllowed");
    assert_eq!(
        send(&server, "POST", "/api/v1/pods", "json", &pod("a", "b", "c")).reason(405),
        "MethodNotAllowed"
    );
    assert_eq!(send(&server, "POST", POD, "json", &pod("a", "b", "c")).reason(405), "MethodNotAllowed");
    assert_eq!(send(&server, "POST", path, "json", &lease("one", "a")).reason(400), "BadRequest");
    assert_eq!(send(&server, "POST", path, "json", &pod("other", "one", "n1")).reason(400), "BadRequest");
    assert_eq!(send(&server, "POST", path, "json", &json!([])).reason(400), "BadRequest");
    assert_eq!(
        send(&server, "POST", path, "vnd.kubernetes.protobuf", &json!({})).reason(415),
        "UnsupportedMediaType"
    );
    let mut versioned = pod("default", "one", "n1");
    versioned["metadata"]["resourceVersion"] = "7".into();
    assert_eq!(send(&server, "POST", path, "json", &versioned).reason(500), "InternalError");
    for text in ["{apiVersion: v1, kind: Nothing, metadata: {name: x}}", "{apiVersion: v1, kind: Pod}", "[]"]
    {
        let caught = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| server.apply(text)));
        assert!(caught.is_err(), "{text}");
    }
    assert_eq!(server.revision(), 100);
}

#[test]
fn texts_hold_many_objects() {
    let server = ApiServer::start();
    server.apply(
        "apiVersion: v1\nkind: Namespace\nmetadata: {name: shop}\n---\n---\napiVersion: v1\nkind: List\nitems:\n\
         - {apiVersion: v1, kind: Pod, metadata: {name: a}}\n- {apiVersion: v1, kind: Event, metadata: {name: e}}\n---\n\
         {apiVersion: events.k8s.io/v1, kind: Event, metadata: {name: f, namespace: shop}}\n",
    );
    assert_eq!(server.all("Event").len(), 2);
    assert!(server.get("Event", "shop", "f").is_some() && server.get("Event", "default", "e").is_some());
    assert!(server.get("Namespace", "", "shop").is_some() && server.get("Pod", "default", "a").is_some());
    assert!(server.get("Pod", "shop", "a").is_none());
}

#[test]
fn a_service_that_asks_for_no_address_gets_one() {
    let server = ApiServer::start();
    let address = |name: &str, spec: Value| {
        let service =
            json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": name}, "spec": spec});
        let made = send(&server, "POST", "/api/v1/namespaces/default/services", "json", &service);
        made.expect(201)["spec"]["clusterIP"].as_str().map(str::to_owned)
    };
    let (one, two) = (address("one", json!({})), address("two", json!({"type": "NodePort"})));
    assert!(
        one.as_ref().is_some_and(|ip| ip.starts_with("10.97.")) && two.is_some() && one != two,
        "{one:?} {two:?}"
    );
    assert_eq!(address("three", json!({"clusterIP": "None"})).as_deref(), Some("None"));
    assert_eq!(address("four", json!({"type": "ExternalName", "externalName": "x.example"})), None);
}
