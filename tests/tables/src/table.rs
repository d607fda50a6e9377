//! A table as it is written. Must not know: how it is run.

use std::{collections::BTreeMap, net::IpAddr};

use egret_core::labels::Labels;
use serde::Deserialize;
use serde_yaml_ng::{Mapping, Value};

use crate::{dns::Exchange, line::Expect};

/// What probes are tried on when a table names nothing: the ports of the upstream suites.
const PORTS: [&str; 6] = ["80/tcp", "81/tcp", "80/udp", "81/udp", "80/sctp", "81/sctp"];

/// A truth table.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Table {
    /// What it is about; unlike every other table's.
    pub title: String,
    /// Id in CASES, for who searches.
    #[serde(default)]
    pub case: String,
    /// The grid, if there is none.
    #[serde(default)]
    pub world: WorldRow,
    /// `port/protocol` of each probe; for ICMP the port is type << 8 | code.
    #[serde(default = "ports")]
    pub ports: Vec<String>,
    /// `podip`, `svc`: by the pods' addresses, and by a ClusterIP for each of them; both unless it says something else.
    #[serde(default = "both_ways")]
    pub via: Vec<String>,
    /// In their order.
    pub steps: Vec<Step>,
}

fn ports() -> Vec<String> {
    PORTS.map(str::to_owned).to_vec()
}

fn both_ways() -> Vec<String> {
    ["podip", "svc"].map(str::to_owned).to_vec()
}

/// The cluster at the beginning.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WorldRow {
    /// Labels by name.
    pub namespaces: BTreeMap<String, Labels>,
    /// Pods of every namespace.
    #[serde(default)]
    pub each: Vec<PodRow>,
    /// Pods of one namespace each.
    #[serde(default)]
    pub pods: Vec<PodRow>,
    /// By `namespace/name`.
    #[serde(default)]
    pub services: BTreeMap<String, ServiceRow>,
    /// `world`, `host`, `remote-node`, `kube-apiserver` by address.
    pub outside: BTreeMap<IpAddr, String>,
}

/// The grid of the upstream suites: namespaces x, y, z with pods a, b, c, which serve 80 and 81 over TCP, UDP and SCTP
/// under names such as `serve-80-tcp`; and an address of nobody in each family.
impl Default for WorldRow {
    fn default() -> Self {
        let text = "{namespaces: {x: {ns: x}, y: {ns: y}, z: {ns: z}}, each: [{name: a}, {name: b}, {name: c}], \
                    outside: {198.51.100.7: world, '2001:db8:99::7': world}}";
        let mut grid: Self = serde_yaml_ng::from_str(text).expect("the grid");
        for pod in &mut grid.each {
            pod.labels = [("pod".to_owned(), pod.name.clone())].into();
            let serves = |text: &&str| {
                let (port, proto) = text.split_once('/').expect("PORT/PROTO");
                (format!("serve-{port}-{proto}/{proto}"), port.parse().expect("a port"))
            };
            pod.ports = PORTS.iter().map(serves).collect();
        }
        grid
    }
}

/// A pod.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PodRow {
    /// Namespace.
    #[serde(default)]
    pub namespace: String,
    /// Name.
    pub name: String,
    /// Labels.
    #[serde(default)]
    pub labels: Labels,
    /// `name/proto: number`.
    #[serde(default)]
    pub ports: BTreeMap<String, u16>,
    /// Service account.
    #[serde(default = "default_account")]
    pub account: String,
    /// Addresses, if not those of its place in its namespace; of a host-network pod the node's.
    #[serde(default)]
    pub ips: Vec<IpAddr>,
    /// Uses its node's network.
    #[serde(default)]
    pub host_network: bool,
}

fn default_account() -> String {
    "default".to_owned()
}

/// A Service.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ServiceRow {
    /// Labels of the pods behind it.
    #[serde(default)]
    pub selector: Labels,
    /// `port/proto: target`, a number or a pod's name for a port.
    pub ports: BTreeMap<String, Value>,
    /// Addresses of endpoints that no selector finds.
    #[serde(default)]
    pub endpoints: Vec<IpAddr>,
    /// Without an address of its own.
    #[serde(default)]
    pub headless: bool,
}

/// What happens, and who may reach whom afterwards.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Step {
    /// Seconds that pass first.
    #[serde(default)]
    pub after: u32,
    /// `Kind/namespace/name`, `Kind/name`.
    #[serde(default)]
    pub delete: Vec<String>,
    /// Specs with `np: NAMESPACE/NAME`, `cnp: NAMESPACE/NAME`, `ccnp: NAME` or `kcnp: NAME` (ClusterNetworkPolicy) beside
    /// their fields.
    #[serde(default)]
    pub apply: Vec<Object>,
    /// The labels by pod.
    #[serde(default)]
    pub set_labels: BTreeMap<String, Labels>,
    /// The labels by namespace, which may be new.
    #[serde(default)]
    pub set_namespace_labels: BTreeMap<String, Labels>,
    /// The named ports by pod.
    #[serde(default)]
    pub set_ports: BTreeMap<String, BTreeMap<String, u16>>,
    /// New pods.
    #[serde(default)]
    pub add_pods: Vec<PodRow>,
    /// Pods that are gone.
    #[serde(default)]
    pub delete_pods: Vec<String>,
    /// Pods that have done their work and still are objects.
    #[serde(default)]
    pub end_pods: Vec<String>,
    /// Namespaces that are gone with their pods and policies.
    #[serde(default)]
    pub delete_namespaces: Vec<String>,
    /// New Services, or other ones in their places.
    #[serde(default)]
    pub put_services: BTreeMap<String, ServiceRow>,
    /// Services that are gone.
    #[serde(default)]
    pub delete_services: Vec<String>,
    /// What is asked and answered then, one after the other.
    #[serde(default)]
    pub dns: Vec<Exchange>,
    /// Who may reach whom then.
    #[serde(default)]
    pub expect: Expect,
}

impl Step {
    /// Policies, and what they mean.
    #[must_use]
    pub fn of_policies(apply: Vec<Object>, expect: Expect) -> Self {
        Self { apply, expect, ..serde_yaml_ng::from_str("{}").expect("an empty step") }
    }
}

/// A policy object.
#[derive(Debug, Clone, Deserialize)]
#[serde(try_from = "Mapping")]
pub struct Object {
    /// `Kind/namespace/name`, `Kind/name`.
    pub key: String,
    /// Its YAML.
    pub text: String,
}

impl TryFrom<Mapping> for Object {
    type Error = String;

    fn try_from(mut spec: Mapping) -> Result<Self, String> {
        let kinds = [
            ("np", "networking.k8s.io/v1", "NetworkPolicy"),
            ("cnp", "cilium.io/v2", "CiliumNetworkPolicy"),
            ("ccnp", "cilium.io/v2", "CiliumClusterwideNetworkPolicy"),
            ("kcnp", "policy.networking.k8s.io/v1alpha2", "ClusterNetworkPolicy"),
        ];
        let found = kinds.iter().find_map(|(word, api, kind)| Some((spec.remove(*word)?, api, kind)));
        let (name, api, kind) = found.ok_or("needs np, cnp, ccnp or kcnp")?;
        let name = name.as_str().ok_or("a name is a text")?;
        let metadata = match name.split_once('/') {
            Some((namespace, name)) => format!("{{namespace: {namespace}, name: {name}}}"),
            None => format!("{{name: {name}}}"),
        };
        let body = if spec.contains_key("specs") { spec.remove("specs") } else { None };
        let (field, body) = body.map_or(("spec", Value::Mapping(spec)), |specs| ("specs", specs));
        let body = serde_yaml_ng::to_string(&body).map_err(|e| e.to_string())?;
        let body: String = body.lines().map(|l| format!("  {l}\n")).collect();
        let text = format!("apiVersion: {api}\nkind: {kind}\nmetadata: {metadata}\n{field}:\n{body}");
        Ok(Self { key: format!("{kind}/{name}"), text })
    }
}

/// Reads the tables of a text.
///
/// # Panics
/// When it holds none.
#[must_use]
pub fn read(text: &str) -> Vec<Table> {
    // Merge keys keep worlds short that differ in one thing.
    let mut value: Value = serde_yaml_ng::from_str(text).unwrap_or_else(|e| panic!("{e}"));
    value.apply_merge().unwrap_or_else(|e| panic!("{e}"));
    serde_yaml_ng::from_value(value).unwrap_or_else(|e| panic!("{e}"))
}
