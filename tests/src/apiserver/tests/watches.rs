//! Watches: order, filters, bookmarks, and every way in which they end.

use std::time::{Duration, Instant};

use super::*;
use crate::wait::until_true;

const WATCH: &str = "/api/v1/pods?watch=true";

#[test]
fn changes_come_in_order() {
    let server = ApiServer::start();
    server.apply_json(pod("default", "old", "n1"));
    let from = server.revision();
    let mut watching = watch(&server, &format!("{WATCH}&resourceVersion={from}"));
    let mut wanted = Vec::new();
    for round in 0..200 {
        let name = format!("p{}", round % 7);
        let verb = match round / 7 % 3 {
            0 => "ADDED",
            1 => "MODIFIED",
            _ => "DELETED",
        };
        match verb {
            "DELETED" => server.delete("Pod", "default", &name),
            verb => server.apply_json(pod("default", &name, verb)),
        }
        wanted.push(format!("{verb} {name} {}", server.revision()));
    }
    for wanted in &wanted {
        assert_eq!(watching.brief(), *wanted);
    }
    // Another one that begins later sees the same.
    let mut late = watch(&server, &format!("{WATCH}&resourceVersion={from}"));
    for wanted in &wanted {
        assert_eq!(late.brief(), *wanted);
    }
}

#[test]
fn without_a_version_everything_is_added_first() {
    let server = ApiServer::start();
    server.apply_json(pod("a", "one", "n1"));
    server.apply_json(pod("b", "two", "n1"));
    for version in ["", "&resourceVersion=0", "&resourceVersion="] {
        let mut watching = watch(&server, &format!("{WATCH}{version}"));
        assert_eq!(watching.brief(), "ADDED one 101");
        let event = watching.next();
        assert_eq!((&event["type"], &event["object"]["kind"]), (&"ADDED".into(), &"Pod".into()));
        server.apply(&format!(
            "{{apiVersion: v1, kind: Pod, metadata: {{namespace: c, name: x{}}}}}",
            server.revision()
        ));
        assert!(watching.brief().starts_with("ADDED x"));
        server.delete("Pod", "c", &format!("x{}", server.revision() - 1));
    }
}

#[test]
fn who_stops_matching_is_deleted() {
    let server = ApiServer::start();
    let mut watching =
        watch(&server, &format!("{WATCH}&fieldSelector=spec.nodeName=n1,status.phase!=Succeeded"));
    server.apply_json(pod("default", "other", "n2"));
    server.apply_json(pod("default", "mine", ""));
    server.apply_json(pod("default", "mine", "n1"));
    assert_eq!(watching.brief(), "ADDED mine 103");
    let mut done = pod("default", "mine", "n1");
    done["metadata"]["labels"] = json!({"app": "changed"});
    server.apply_json(done.clone());
    assert_eq!(watching.brief(), "MODIFIED mine 104");
    done["status"]["phase"] = "Succeeded".into();
    server.apply_json(done);
    let gone = watching.next();
    assert_eq!(
        (&gone["type"], &gone["object"]["metadata"]["resourceVersion"]),
        (&"DELETED".into(), &"105".into())
    );
    assert_eq!(gone["object"]["status"]["phase"], "Running", "the last state that matched");
    server.delete("Pod", "default", "mine");
    server.apply_json(pod("default", "next", "n1"));
    assert_eq!(watching.brief(), "ADDED next 107");
}

#[test]
fn a_watch_keeps_to_its_namespace() {
    let server = ApiServer::start();
    let mut watching = watch(&server, "/api/v1/namespaces/a/pods?watch=1&labelSelector=app=x");
    for (namespace, name) in [("a-b", "x"), ("b", "x"), ("a", "y"), ("a", "x")] {
        server.apply_json(pod(namespace, name, "n1"));
    }
    assert_eq!(watching.brief(), "ADDED x 104");
}

#[test]
fn bookmarks_tell_of_changes_elsewhere() {
    let server = ApiServer::start();
    server.apply_json(pod("default", "one", "n1"));
    let from = server.revision();
    let mut watching = watch(&server, &format!("{WATCH}&resourceVersion={from}&allowWatchBookmarks=true"));
    server.apply("{apiVersion: v1, kind: Namespace, metadata: {name: elsewhere}}");
    let start = Instant::now();
    let event = watching.next();
    assert_eq!(event["type"], "BOOKMARK");
    let object = &event["object"];
    assert_eq!((&object["kind"], &object["metadata"]["resourceVersion"]), (&"Pod".into(), &"102".into()));
    assert!(object["metadata"]["annotations"].is_null());
    assert!(start.elapsed() < Duration::from_secs(5));
    server.apply_json(pod("default", "two", "n1"));
    assert_eq!(watching.brief(), "ADDED two 103");
}

#[test]
fn a_bookmark_says_what_the_client_does_not_know() {
    let server = ApiServer::start();
    server.apply_json(pod("default", "one", "n1"));
    let bookmarks = format!("{WATCH}&allowWatchBookmarks=true&timeoutSeconds=6");
    let mut watching = watch(&server, &bookmarks);
    let mut other = watch(&server, &format!("{bookmarks}&labelSelector=none"));
    assert_eq!(watching.brief(), "ADDED one 101");
    assert_eq!(watching.brief(), "BOOKMARK  101", "which need not be the newest version");
    server.apply_json(pod("default", "two", "n1"));
    assert_eq!(watching.brief(), "ADDED two 102");
    server.apply("{apiVersion: v1, kind: Namespace, metadata: {name: elsewhere}}");
    assert_eq!(watching.brief(), "BOOKMARK  103");
    server.apply_json(pod("default", "three", "n1"));
    assert_eq!(watching.brief(), "ADDED three 104", "after which there is nothing to add");
    // One that sees no pod gets all of it by bookmarks.
    while other.brief() != "BOOKMARK  104" {}
    watching.ends();
    other.ends();
}

#[test]
fn a_watch_can_begin_with_a_list() {
    let server = ApiServer::start();
    server.apply_json(pod("default", "one", "n1"));
    server.apply_json(pod("default", "two", "n1"));
    let streaming = "&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true";
    let mut watching = watch(&server, &format!("{WATCH}{streaming}"));
    assert_eq!(watching.brief(), "ADDED one 101");
    assert_eq!(watching.brief(), "ADDED two 102");
    let end = watching.next();
    assert_eq!(
        (&end["type"], &end["object"]["metadata"]["resourceVersion"]),
        (&"BOOKMARK".into(), &"102".into())
    );
    assert_eq!(end["object"]["metadata"]["annotations"]["k8s.io/initial-events-end"], "true");
    server.delete("Pod", "default", "one");
    assert_eq!(watching.brief(), "DELETED one 103");
    assert_eq!(get(&server, &format!("{WATCH}&sendInitialEvents=true")).reason(422), "Invalid");
    assert_eq!(get(&server, &format!("{WATCH}{streaming}&resourceVersion=999")).reason(504), "Timeout");
    let none = "&sendInitialEvents=false&resourceVersionMatch=NotOlderThan";
    let mut watching = watch(&server, &format!("{WATCH}{none}"));
    server.apply_json(pod("default", "three", "n1"));
    assert_eq!(watching.brief(), "ADDED three 104", "and nothing of before");
}

#[test]
fn a_watch_ends_when_its_time_is_over() {
    let server = ApiServer::start();
    let start = Instant::now();
    let mut watching = watch(&server, &format!("{WATCH}&timeoutSeconds=1"));
    watching.ends();
    assert!((1.0..8.0).contains(&start.elapsed().as_secs_f64()), "{:?}", start.elapsed());
}

#[test]
fn a_forgotten_history_ends_open_watches_and_new_ones() {
    let server = ApiServer::start();
    server.apply_json(pod("default", "one", "n1"));
    let from = server.revision();
    let mut open = watch(&server, &format!("{WATCH}&resourceVersion={from}"));
    server.apply_json(pod("default", "two", "n1"));
    assert_eq!(open.brief(), "ADDED two 102");
    server.expire();
    open.ends_gone();
    let mut new = watch(&server, &format!("{WATCH}&resourceVersion={from}"));
    new.ends_gone();
    server.set_gone_as_status(true);
    assert_eq!(get(&server, &format!("{WATCH}&resourceVersion={from}")).reason(410), "Expired");
    let mut newest = watch(&server, &format!("{WATCH}&resourceVersion={}", server.revision()));
    server.delete("Pod", "default", "two");
    assert_eq!(newest.brief(), "DELETED two 103");
}

#[test]
fn who_reads_too_slowly_is_left_behind() {
    let server = ApiServer::start();
    server.set_history(4);
    let mut slow = watch(&server, &format!("{WATCH}&resourceVersion={}", server.revision()));
    // More than the buffers of both sockets take.
    let mut large = pod("default", "large", "n1");
    for round in 0..100 {
        large["metadata"]["annotations"] = json!({"filler": format!("{round}").repeat(200_000)});
        server.apply_json(large.clone());
    }
    let mut last = 100;
    loop {
        let event = slow.next();
        if event["type"] == "ERROR" {
            assert_eq!(event["object"]["code"], 410);
            break;
        }
        let version =
            event["object"]["metadata"]["resourceVersion"].as_str().and_then(|text| text.parse().ok());
        assert_eq!(version, Some(last + 1), "no gap before the end");
        last += 1;
    }
    slow.ends();
    assert!(last < server.revision());
}

#[test]
fn an_uninstalled_resource_goes_with_its_objects() {
    let server = ApiServer::start();
    let path = "/apis/cilium.io/v2/ciliumnetworkpolicies";
    server.install(Crd::CiliumNetworkPolicy);
    server.apply_json(policy("one"));
    server.apply_json(policy("two"));
    let mut watching = watch(&server, &format!("{path}?watch=true&resourceVersion=102"));
    server.uninstall(Crd::CiliumNetworkPolicy);
    assert_eq!(watching.brief(), "DELETED one 103");
    assert_eq!(watching.brief(), "DELETED two 104");
    watching.ends();
    assert_eq!(get(&server, path).code, 404);
    assert_eq!(get(&server, &format!("{path}?watch=true")).code, 404);
    server.install(Crd::CiliumNetworkPolicy);
    assert_eq!(names(&get(&server, path).expect(200)), [""; 0]);
}

#[test]
fn open_watches_are_counted() {
    let server = ApiServer::start();
    let first = watch(&server, WATCH);
    let second = watch(&server, WATCH);
    assert_eq!(server.watches(), 2);
    drop(first);
    until_true("a watch whose client left ends", Duration::from_secs(10), || server.watches() == 1);
    drop(second);
    until_true("the other one too", Duration::from_secs(10), || server.watches() == 0);
}
