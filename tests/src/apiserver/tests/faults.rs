//! Faults on demand, the log, and the end of the server.

use std::time::{Duration, Instant};

use super::client::{Incoming, try_get};
use super::*;
use crate::wait::until_true;

const PODS: &str = "/api/v1/pods";

#[test]
fn connections_are_cut_in_the_middle() {
    let server = ApiServer::start();
    server.apply_json(pod("default", "one", "n1"));
    let mut watching = watch(&server, &format!("{PODS}?watch=1"));
    assert_eq!(watching.brief(), "ADDED one 101");
    server.drop_connections();
    assert!(watching.try_next().is_err(), "no proper end");
    until_true("the watch is over", Duration::from_secs(10), || server.watches() == 0);
    assert_eq!(names(&get(&server, PODS).expect(200)), ["one"]);
    // While an answer is being waited for.
    server.set_delay(Duration::from_secs(600));
    std::thread::scope(|scope| {
        let asking = scope.spawn(|| try_get(&server, PODS));
        until_true("the request is there", Duration::from_secs(10), || server.requests().len() == 3);
        server.drop_connections();
        assert!(asking.join().expect("no panic").is_err());
    });
}

#[test]
fn answers_are_late() {
    let server = ApiServer::start();
    let mut watching = watch(&server, &format!("{PODS}?watch=1"));
    server.set_delay(Duration::from_millis(300));
    let start = Instant::now();
    get(&server, PODS).expect(200);
    assert!(start.elapsed() >= Duration::from_millis(300), "{:?}", start.elapsed());
    server.apply_json(pod("default", "one", "n1"));
    assert_eq!(watching.brief(), "ADDED one 101");
    server.set_delay(Duration::ZERO);
}

#[test]
fn everything_fails_as_told() {
    let server = ApiServer::start();
    for (status, wanted) in
        [(500, "InternalError"), (429, "TooManyRequests"), (401, "Unauthorized"), (403, "Forbidden")]
    {
        server.set_failing(Some(status));
        for path in [PODS, "/version", "/apis/cilium.io/v2/ciliumnetworkpolicies?watch=1"] {
            let answer = get(&server, path);
            assert_eq!(answer.reason(status), wanted);
            assert_eq!(answer.header("retry-after"), if status == 429 { "1" } else { "" });
        }
    }
    server.set_failing(None);
    get(&server, PODS).expect(200);
}

#[test]
fn a_wrong_token_is_not_let_in() {
    let server = ApiServer::start();
    let config: Value = serde_yaml_ng::from_str(&server.kubeconfig()).expect("YAML");
    assert_eq!(config["clusters"][0]["cluster"]["server"], format!("http://{}", server.addr()));
    let token = config["users"][0]["user"]["token"].as_str().expect("a token");
    let ask = |token: &str| {
        let head = format!("GET {PODS} HTTP/1.1\r\nAuthorization: Bearer {token}\r\n");
        Incoming::open(&server, &head, "").and_then(Incoming::finish).expect("an answer")
    };
    ask(token).expect(200);
    assert_eq!(ask("guess").reason(401), "Unauthorized");
}

#[test]
fn a_server_that_is_down_takes_no_connection() {
    let server = ApiServer::start();
    let mut watching = watch(&server, &format!("{PODS}?watch=1"));
    server.set_refusing(true);
    assert!(watching.try_next().is_err());
    assert!(try_get(&server, PODS).is_err());
    let asked = server.requests().len();
    server.set_refusing(false);
    get(&server, PODS).expect(200);
    assert_eq!((asked, server.requests().len()), (1, 2));
}

#[test]
fn requests_are_remembered() {
    let server = ApiServer::start();
    let head = format!("GET {PODS}?limit=1&watch=0 HTTP/1.1\r\nUser-Agent: egret/1\r\n");
    Incoming::open(&server, &head, "").and_then(Incoming::finish).expect("an answer").expect(200);
    send(&server, "DELETE", "/api/v1/namespaces/a/pods/b", "json", &Value::Null).reason(404);
    let requests = server.requests();
    let brief: Vec<_> =
        requests.iter().map(|one| (&*one.method, &*one.path, &*one.query, &*one.user_agent)).collect();
    let wanted =
        [("GET", PODS, "limit=1&watch=0", "egret/1"), ("DELETE", "/api/v1/namespaces/a/pods/b", "", "")];
    assert_eq!((brief.as_slice(), server.requests_forgotten()), (wanted.as_slice(), 0));
}

#[test]
fn the_end_of_the_server_ends_everything() {
    let server = ApiServer::start();
    server.apply_json(pod("default", "one", "n1"));
    let mut watching = watch(&server, &format!("{PODS}?watch=1"));
    assert_eq!(watching.brief(), "ADDED one 101");
    let addr = server.addr();
    drop(server);
    assert!(watching.try_next().is_err());
    assert!(std::net::TcpStream::connect(addr).is_err());
}
