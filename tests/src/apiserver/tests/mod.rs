//! The double tests itself over real connections: what its users take for granted about the API holds.

mod client;
mod faults;
mod kubectl;
mod lists;
mod watches;
mod writes;

use serde_json::{Value, json};

use super::{ApiServer, Crd};
use client::{get, send, watch};

/// A pod of `app` on `node`.
fn pod(namespace: &str, name: &str, node: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"namespace": namespace, "name": name, "labels": {"app": name}},
        "spec": {"nodeName": node, "containers": [{"name": "main", "image": "none"}]},
        "status": {"phase": "Running"},
    })
}

/// A CiliumNetworkPolicy.
fn policy(name: &str) -> Value {
    json!({
        "apiVersion": "cilium.io/v2", "kind": "CiliumNetworkPolicy",
        "metadata": {"namespace": "default", "name": name}, "spec": {"endpointSelector": {}},
    })
}

/// The names of a list's items.
fn names(list: &Value) -> Vec<String> {
    let items = list["items"].as_array().expect("items");
    items.iter().map(|item| item["metadata"]["name"].as_str().expect("a name").to_owned()).collect()
}
