//! The taint that keeps pods off a node until they are held there.

use k8s_openapi::api::core::v1::Node;
use kube::api::{Patch, PatchParams};
use kube::{Api, Client};
use serde_json::json;

/// Takes every taint with this key off the node. Nothing to do is done.
pub(super) async fn remove(client: &Client, node: &str, key: &str) -> kube::Result<()> {
    let nodes: Api<Node> = Api::all(client.clone());
    let found = nodes.get(node).await?;
    let mut taints = found.spec.and_then(|spec| spec.taints).unwrap_or_default();
    let before = taints.len();
    taints.retain(|taint| taint.key != key);
    if taints.len() == before {
        return Ok(());
    }
    // The version makes the server refuse if somebody else has written meanwhile: his taints must not be lost.
    let version = found.metadata.resource_version;
    let patch = json!({"metadata": {"resourceVersion": version}, "spec": {"taints": taints}});
    nodes.patch(node, &PatchParams::default(), &Patch::Merge(patch)).await.map(drop)
}
