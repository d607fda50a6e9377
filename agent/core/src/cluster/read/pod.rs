//! Pods, namespaces and nodes.
//!
//! Owns: which fields count. Must not know: what follows from them.

use std::sync::Arc;

use super::{
    super::object::{Node, Phase, Pod},
    field::{Field, Read},
    owner,
};
use crate::{identity::NamedPorts, labels::Labels, names::Name, tuning::ANNOTATIONS};

/// What admission writes if a pod names no service account.
const SERVICE_ACCOUNT: &str = "default";
/// Of static pods.
const STATIC: &str = "kubernetes.io/config.hash";
/// Shape of the API's times: whole seconds, UTC.
const TIME: &str = "0000-00-00T00:00:00Z";

/// A pod.
pub(super) fn pod(root: &Field<'_>) -> Read<Pod> {
    let (metadata, spec, status) = (root.get("metadata")?, root.get("spec")?, root.get("status")?);
    let mut annotations = metadata.get("annotations")?.labels()?;
    // A pod that the kubelet read from a file goes by the file's hash on the node; the API has another uid for it.
    let uid = match annotations.remove(STATIC).filter(|hash| is_hash(hash)) {
        Some(hash) => hash,
        None => metadata.get("uid")?.text_or_empty()?,
    };
    annotations.retain(|key, _| key.starts_with(ANNOTATIONS));
    let node = spec.get("nodeName")?.text_or_empty()?;
    let account = spec.get("serviceAccountName")?.text_or_empty()?;
    let labels = metadata.get("labels")?.labels()?;
    let mut pod = Pod {
        uid,
        created: time(&metadata.get("creationTimestamp")?)?,
        workload: owner::workload(&metadata, &labels).map(Arc::new),
        labels,
        annotations,
        node: Some(node).filter(|n| !n.is_empty()),
        service_account: if account.is_empty() { SERVICE_ACCOUNT.to_owned() } else { account },
        host_network: spec.get("hostNetwork")?.boolean()?,
        phase: phase(&status.get("phase")?)?,
        ports: named_ports(&spec)?,
        ..Pod::default()
    };
    pod.ips.extend(status.get("podIP")?.address()?);
    for item in status.get("podIPs")?.items()? {
        pod.ips.extend(item.get("ip")?.address()?);
    }
    for item in spec.get("dnsConfig")?.get("searches")?.items()? {
        // One that is no name, such as `.`, is of no use here, and loses no pod.
        pod.searches.extend(Name::parse(item.need_text()?).ok());
    }
    Ok(pod)
}

/// The kubelet's hash of a file. Anybody may write the annotation: in the place of a uid it must name no pod of the API
/// server, all of whose uids have dashes, or one pod would be held to the policies of another.
fn is_hash(text: &str) -> bool {
    text.len() == 32 && text.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b))
}

/// A namespace is its labels.
pub(super) fn namespace(root: &Field<'_>) -> Read<Labels> {
    root.get("metadata")?.get("labels")?.labels()
}

/// A node.
pub(super) fn node(root: &Field<'_>) -> Read<Node> {
    let mut node = Node { labels: root.get("metadata")?.get("labels")?.labels()?, ..Node::default() };
    for item in root.get("status")?.get("addresses")?.items()? {
        // Hostname, InternalDNS, ExternalDNS are names.
        if item.get("type")?.text()?.is_some_and(|t| t.ends_with("IP")) {
            node.addresses.extend(item.get("address")?.address()?);
        }
    }
    Ok(node)
}

fn phase(field: &Field<'_>) -> Read<Phase> {
    match field.text()?.unwrap_or_default() {
        "Succeeded" | "Failed" => Ok(Phase::Ended),
        "" | "Pending" | "Running" | "Unknown" => Ok(Phase::Live),
        other => Err(field.problem(format!("`{other}` is no phase"))),
    }
}

fn time(field: &Field<'_>) -> Read<String> {
    let text = field.text_or_empty()?;
    let shape = |c: char| if c.is_ascii_digit() { '0' } else { c };
    if text.is_empty() || text.chars().map(shape).eq(TIME.chars()) {
        return Ok(text);
    }
    Err(field.problem(format!("`{text}` is no time such as 2026-01-31T12:00:00Z")))
}

/// Of the containers, and of the init containers that keep running. The first one with a name has it.
fn named_ports(spec: &Field<'_>) -> Read<NamedPorts> {
    let mut ports = NamedPorts::new();
    for container in spec.get("containers")?.items()? {
        add_ports(&container, &mut ports)?;
    }
    for container in spec.get("initContainers")?.items()? {
        if container.get("restartPolicy")?.text()? == Some("Always") {
            add_ports(&container, &mut ports)?;
        }
    }
    Ok(ports)
}

fn add_ports(container: &Field<'_>, ports: &mut NamedPorts) -> Read<()> {
    for item in container.get("ports")?.items()? {
        let name = item.get("name")?.text_or_empty()?;
        let proto = item.get("protocol")?.proto()?;
        let number = item.get("containerPort")?;
        let Some(port) = number.port()? else { return Err(number.problem("is missing")) };
        if !name.is_empty() {
            ports.entry((name, proto)).or_insert(port);
        }
    }
    Ok(())
}
