//! The values of filters that are more than words.

use std::net::IpAddr;

use ipnet::IpNet;
use regex_lite::escape;

use crate::flow::CLUSTER;

/// Namespace of an object that is named alone.
const NAMESPACE: &str = "default";

/// An address or a CIDR.
pub(super) fn net(text: &str) -> Result<IpNet, String> {
    if let Ok(ip) = text.parse::<IpAddr>() {
        return Ok(ip.to_canonical().into());
    }
    text.parse::<IpNet>().map(|net| net.trunc()).map_err(|_| "neither an address nor a CIDR".into())
}

/// A word as it is.
pub(super) fn word(text: &str) -> Result<String, String> {
    Ok(text.to_owned())
}

/// A decimal port.
pub(super) fn port(text: &str) -> Result<u16, String> {
    text.parse().map_err(|_| "no port (0 to 65535)".into())
}

/// A status code, or its beginning and `+`.
pub(super) fn http_status(text: &str) -> Result<(), String> {
    let digits = text.strip_suffix('+').unwrap_or(text);
    let most = if digits.len() == text.len() { 3..=3 } else { 1..=2 };
    let good = most.contains(&digits.len())
        && digits.bytes().all(|b| b.is_ascii_digit())
        && digits.starts_with(['1', '2', '3', '4', '5']);
    if good { Ok(()) } else { Err("write 404, 40+ or 4+".into()) }
}

/// A pattern of names: `*` stands for any run of letters, digits, dots and hyphens.
pub(super) fn fqdn(text: &str) -> Result<String, String> {
    let lower = text.to_ascii_lowercase();
    let pattern = lower.strip_suffix('.').unwrap_or(&lower);
    if pattern.is_empty() {
        return Err("the name is empty".into());
    }
    Ok(glob(pattern, "[-.0-9a-z]*"))
}

/// A pattern of node names, with or without the cluster's name in front.
pub(super) fn node(text: &str) -> Result<String, String> {
    let (cluster, node) = text.split_once('/').unwrap_or((CLUSTER, text));
    let node = if node.is_empty() && !cluster.is_empty() && text.contains('/') { "*" } else { node };
    if node.is_empty() {
        return Err("the node's name is empty".into());
    }
    if node.contains('/') {
        return Err("write NODE or CLUSTER/NODE".into());
    }
    // Every node here is of the one cluster.
    if !is_cluster(cluster) {
        return Ok("$.".into());
    }
    Ok(glob(node, "[-.0-9a-zA-Z]*"))
}

fn glob(pattern: &str, star: &str) -> String {
    let parts: Vec<String> = pattern.split('*').map(escape).collect();
    format!("^(?:{})$", parts.join(star))
}

/// Whether the pattern is met by the cluster's name, of which `*` stands for any run.
fn is_cluster(pattern: &str) -> bool {
    let Some((head, tail)) = pattern.split_once('*') else { return pattern == CLUSTER };
    let Some(mut rest) = CLUSTER.strip_prefix(head) else { return false };
    let mut parts: Vec<&str> = tail.split('*').collect();
    let last = parts.pop().unwrap_or_default();
    for part in parts {
        let Some(at) = rest.find(part) else { return false };
        rest = &rest[at + part.len()..];
    }
    rest.ends_with(last)
}

/// A pod or a Service.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Object {
    /// Empty: any.
    namespace: String,
    prefix: String,
}

impl Object {
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        if text.is_empty() {
            return Err("write NAMESPACE/NAME".into());
        }
        let (namespace, prefix) = text.split_once('/').unwrap_or((NAMESPACE, text));
        if prefix.contains('/') {
            return Err("write NAMESPACE/NAME".into());
        }
        Ok(Self { namespace: namespace.into(), prefix: prefix.into() })
    }

    pub(super) fn matches(&self, namespace: &str, name: &str) -> bool {
        if namespace.is_empty() && name.is_empty() {
            return false;
        }
        (self.namespace.is_empty() || self.namespace == namespace) && name.starts_with(&self.prefix)
    }
}
