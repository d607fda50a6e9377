//! The cluster of a table as its steps change it, and its objects as YAML, as an API server would give them.

use std::{collections::BTreeMap, fmt::Write as _, net::IpAddr};

use egret_core::{identity::NamedPorts, labels::Labels, ports::Proto};
use serde_yaml_ng::Value;

use crate::table::{Object, PodRow, ServiceRow, Step, WorldRow};

/// This node, which every pod is on.
pub const NODE: &str = "n1";

/// A pod.
#[derive(Debug, Clone)]
pub struct Pod {
    /// Namespace.
    pub namespace: String,
    /// Name.
    pub name: String,
    /// One of each family.
    pub ips: Vec<IpAddr>,
    /// Its own labels.
    pub labels: Labels,
    /// Ports that have a name.
    pub ports: NamedPorts,
    /// Service account.
    pub account: String,
    /// On its node's network.
    pub host_network: bool,
    /// At its end.
    pub ended: bool,
}

impl Pod {
    /// `namespace/name`.
    #[must_use]
    pub fn key(&self) -> String {
        format!("{}/{}", self.namespace, self.name)
    }

    /// Whether it sends and receives by an address of its own.
    #[must_use]
    pub fn is_party(&self) -> bool {
        !self.host_network && !self.ended
    }

    /// Its address of a family.
    #[must_use]
    pub fn ip(&self, v6: bool) -> Option<IpAddr> {
        self.ips.iter().copied().find(|ip| ip.is_ipv6() == v6)
    }
}

/// A Service.
#[derive(Debug, Clone)]
pub struct Service {
    /// Addresses; none if it is headless.
    pub vips: Vec<IpAddr>,
    /// As it is written.
    pub row: ServiceRow,
    /// The only pod that it is for.
    pub only: Option<String>,
}

/// The cluster at one moment.
#[derive(Debug, Clone, Default)]
pub struct Scene {
    /// Labels by name, without those that the API server adds.
    pub namespaces: BTreeMap<String, Labels>,
    /// In the order in which they came.
    pub pods: Vec<Pod>,
    /// By `namespace/name`.
    pub services: BTreeMap<String, Service>,
    /// `world`, `host`, `remote-node`, `kube-apiserver` by address.
    pub outside: BTreeMap<IpAddr, String>,
    /// YAML by key.
    pub policies: BTreeMap<String, String>,
    /// Every namespace that ever was, in the order of the numbers in its addresses, with how many pods it ever had.
    numbers: Vec<(String, usize)>,
}

impl Scene {
    /// The beginning.
    #[must_use]
    pub fn new(world: &WorldRow) -> Self {
        let mut scene = Self { outside: world.outside.clone(), ..Self::default() };
        for (namespace, labels) in &world.namespaces {
            scene.set_namespace(namespace, labels.clone());
            let own = world.pods.iter().filter(|p| p.namespace == *namespace);
            for row in world.each.iter().chain(own) {
                scene.add_pod(&PodRow { namespace: namespace.clone(), ..row.clone() });
            }
        }
        for (name, row) in &world.services {
            scene.put_service(name, row);
        }
        scene
    }

    /// Puts a step's changes in force.
    ///
    /// # Panics
    /// When something is not there.
    pub fn change(&mut self, step: &Step) {
        for name in &step.delete {
            assert!(self.policies.remove(name).is_some(), "{name} is not in force");
        }
        for namespace in &step.delete_namespaces {
            assert!(self.namespaces.remove(namespace).is_some(), "{namespace} is no namespace");
            self.pods.retain(|p| p.namespace != *namespace);
            self.policies.retain(|key, _| key.split('/').nth(1) != Some(namespace.as_str()));
            self.services.retain(|key, _| !key.starts_with(&format!("{namespace}/")));
        }
        for (name, labels) in &step.set_namespace_labels {
            self.set_namespace(name, labels.clone());
        }
        for name in &step.delete_pods {
            let before = self.pods.len();
            self.pods.retain(|p| p.key() != *name);
            assert_ne!(before, self.pods.len(), "{name} is no pod");
        }
        step.add_pods.iter().for_each(|row| self.add_pod(row));
        step.end_pods.iter().for_each(|name| self.pod(name).ended = true);
        step.set_labels.iter().for_each(|(name, labels)| self.pod(name).labels = labels.clone());
        step.set_ports.iter().for_each(|(name, ports)| self.pod(name).ports = named_ports(ports));
        step.delete_services.iter().for_each(|name| drop(self.services.remove(name)));
        step.put_services.iter().for_each(|(name, row)| self.put_service(name, row));
        step.apply.iter().for_each(|object| self.apply(object));
    }

    /// Puts a policy in force, beside the others or in the place of the one with its name.
    pub fn apply(&mut self, object: &Object) {
        self.policies.insert(object.key.clone(), object.text.clone());
    }

    /// A pod at the next place of its namespace, which no pod had before.
    pub fn add_pod(&mut self, row: &PodRow) {
        let n = self.number(&row.namespace);
        let (_, p) = &mut self.numbers[n - 1];
        *p += 1;
        let ips =
            [format!("10.1.{n}.{p}"), format!("fd00:{n}::{p}")].map(|ip| ip.parse().expect("an address"));
        let pod = Pod {
            namespace: row.namespace.clone(),
            name: row.name.clone(),
            ips: if row.ips.is_empty() { ips.to_vec() } else { row.ips.clone() },
            labels: row.labels.clone(),
            ports: named_ports(&row.ports),
            account: row.account.clone(),
            host_network: row.host_network,
            ended: false,
        };
        self.pods.push(pod);
    }

    /// A ClusterIP for each pod that its labels tell from the others of its namespace, on every port that is tried.
    pub fn serve_each(&mut self, ports: &[String]) {
        self.services.retain(|_, service| service.only.is_none());
        for pod in self.pods.iter().filter(|p| p.is_party() && !p.labels.is_empty()) {
            let alike = self.pods.iter().filter(|p| p.namespace == pod.namespace && !p.ended);
            if alike.filter(|p| is_selected(p, &pod.labels)).count() > 1 {
                continue;
            }
            let key = format!("{}/only-{}", pod.namespace, pod.name);
            let vips = pod.ips.iter().map(|ip| vip_of(*ip)).collect();
            let row = ServiceRow {
                selector: pod.labels.clone(),
                ports: ports.iter().filter_map(|text| port_of(pod, text)).collect(),
                endpoints: Vec::new(),
                headless: false,
            };
            self.services.insert(key, Service { vips, row, only: Some(pod.key()) });
        }
    }

    /// Where a port of a Service leads to.
    #[must_use]
    pub fn backends(&self, service: &str, port: &str, v6: bool) -> Vec<(IpAddr, u16)> {
        let Some(found) = self.services.get(service) else { return Vec::new() };
        let Some(target) = found.row.ports.get(port) else { return Vec::new() };
        let (namespace, _) = service.split_once('/').expect("NAMESPACE/NAME");
        let (_, proto) = port.split_once('/').expect("PORT/PROTO");
        let proto = Proto::with_ports_from_str(proto).expect("a protocol");
        let mut out = Vec::new();
        for pod in self.pods.iter().filter(|p| p.namespace == namespace && !p.ended) {
            let target = match target {
                Value::String(name) => pod.ports.get(&(name.clone(), proto)).copied(),
                number => number.as_u64().map(|n| n as u16),
            };
            let meant = !found.row.selector.is_empty() && is_selected(pod, &found.row.selector);
            out.extend(pod.ip(v6).zip(target).filter(|_| meant));
        }
        let own = found.row.endpoints.iter().filter(|ip| ip.is_ipv6() == v6);
        out.extend(own.map(|ip| (*ip, target.as_u64().unwrap_or_default() as u16)));
        out
    }

    /// All objects.
    #[must_use]
    pub fn objects(&self) -> String {
        let mut out = String::new();
        for (name, labels) in &self.namespaces {
            let mut labels = labels.clone();
            labels.insert("kubernetes.io/metadata.name".to_owned(), name.clone());
            object(&mut out, "v1", "Namespace", &format!("{{name: {name}, labels: {labels:?}}}"), "");
        }
        self.nodes(&mut out);
        self.pods.iter().for_each(|pod| write_pod(&mut out, pod));
        self.services.iter().for_each(|(key, service)| self.write_service(&mut out, key, service));
        for text in self.policies.values() {
            out += "---\n";
            out += text;
        }
        out
    }

    fn nodes(&self, out: &mut String) {
        for (node, role) in [(NODE, "host"), ("n2", "remote-node")] {
            let ips = self.outside.iter().filter(|(_, r)| *r == role);
            let ips: Vec<_> = ips.map(|(ip, _)| format!("{{type: InternalIP, address: '{ip}'}}")).collect();
            let status = format!("status: {{addresses: [{}]}}", ips.join(", "));
            object(out, "v1", "Node", &format!("{{name: {node}}}"), &status);
        }
        let api: Vec<IpAddr> =
            self.outside.iter().filter(|(_, r)| *r == "kube-apiserver").map(|(ip, _)| *ip).collect();
        if !api.is_empty() {
            write_slices(out, "default", "kubernetes", &api, &["{name: https, port: 6443}".to_owned()]);
        }
    }

    fn write_service(&self, out: &mut String, key: &str, service: &Service) {
        let (namespace, name) = key.split_once('/').expect("NAMESPACE/NAME");
        let ports: Vec<_> =
            service.row.ports.iter().map(|(port, target)| service_port(port, target)).collect();
        let vips: Vec<_> = service.vips.iter().map(|ip| format!("'{ip}'")).collect();
        let cluster_ip = vips.first().cloned().unwrap_or_else(|| "None".to_owned());
        let spec = format!(
            "spec: {{clusterIP: {cluster_ip}, clusterIPs: [{}], selector: {:?}, ports: [{}]}}",
            vips.join(", "),
            service.row.selector,
            ports.join(", ")
        );
        object(out, "v1", "Service", &format!("{{namespace: {namespace}, name: {name}}}"), &spec);
        if service.row.endpoints.is_empty() {
            return;
        }
        let end = |(port, target): (&String, &Value)| {
            let (_, proto) = port.split_once('/').expect("PORT/PROTO");
            let target = target.as_u64().expect("a number: these are no pods");
            format!("{{name: {}, protocol: {}, port: {target}}}", port_name(port), proto.to_uppercase())
        };
        let ends: Vec<String> = service.row.ports.iter().map(end).collect();
        write_slices(out, namespace, name, &service.row.endpoints, &ends);
    }

    fn set_namespace(&mut self, name: &str, labels: Labels) {
        self.number(name);
        self.namespaces.insert(name.to_owned(), labels);
    }

    fn put_service(&mut self, key: &str, row: &ServiceRow) {
        let (namespace, _) = key.split_once('/').expect("NAMESPACE/NAME");
        let n = self.number(namespace);
        let next = 1 + self.services.keys().filter(|k| k.starts_with(&format!("{namespace}/"))).count();
        let vips = [format!("10.96.{n}.{next}"), format!("fd96:{n}::{next}")];
        let vips = vips.map(|ip| ip.parse().expect("an address")).to_vec();
        let vips = self.services.get(key).map_or(vips, |before| before.vips.clone());
        let vips = if row.headless { Vec::new() } else { vips };
        self.services.insert(key.to_owned(), Service { vips, row: row.clone(), only: None });
    }

    fn pod(&mut self, key: &str) -> &mut Pod {
        self.pods.iter_mut().find(|p| p.key() == key).unwrap_or_else(|| panic!("{key} is no pod"))
    }

    fn number(&mut self, namespace: &str) -> usize {
        if let Some(at) = self.numbers.iter().position(|(n, _)| n == namespace) {
            return at + 1;
        }
        self.numbers.push((namespace.to_owned(), 0));
        self.numbers.len()
    }
}

fn is_selected(pod: &Pod, selector: &Labels) -> bool {
    selector.iter().all(|(k, v)| pod.labels.get(k) == Some(v))
}

fn named_ports(ports: &BTreeMap<String, u16>) -> NamedPorts {
    let named = |(key, port): (&String, &u16)| {
        let (name, proto) = key.split_once('/').expect("NAME/PROTO");
        ((name.to_owned(), Proto::with_ports_from_str(proto).expect("a protocol")), *port)
    };
    ports.iter().map(named).collect()
}

/// The ClusterIP that leads to the pod with this address alone.
fn vip_of(ip: IpAddr) -> IpAddr {
    match ip {
        IpAddr::V4(v4) => {
            let [_, _, n, p] = v4.octets();
            IpAddr::from([10, 97, n, p])
        }
        IpAddr::V6(v6) => {
            let mut words = v6.segments();
            words[0] = 0xfd97;
            IpAddr::from(words)
        }
    }
}

/// A port of such a Service: by the pod's name for it, if it has one.
fn port_of(pod: &Pod, text: &str) -> Option<(String, Value)> {
    let (port, proto) = text.split_once('/')?;
    let proto = Proto::with_ports_from_str(proto)?;
    let number: u16 = port.parse().ok()?;
    let named = pod.ports.iter().find(|((_, p), n)| (*p, **n) == (proto, number));
    let target = named.map_or(Value::from(number), |((name, _), _)| Value::from(name.clone()));
    Some((text.to_owned(), target))
}

fn object(out: &mut String, api: &str, kind: &str, metadata: &str, rest: &str) {
    let comma = if rest.is_empty() { "" } else { ", " };
    let _ = writeln!(out, "---\n{{apiVersion: {api}, kind: {kind}, metadata: {metadata}{comma}{rest}}}");
}

fn write_pod(out: &mut String, pod: &Pod) {
    let Pod { namespace, name, labels, account, host_network, .. } = pod;
    let ports: Vec<String> = pod
        .ports
        .iter()
        .map(|((name, proto), port)| {
            format!("{{name: {name}, protocol: {}, containerPort: {port}}}", proto.to_string().to_uppercase())
        })
        .collect();
    let ips: Vec<_> = pod.ips.iter().map(|ip| format!("{{ip: '{ip}'}}")).collect();
    let phase = if pod.ended { "Succeeded" } else { "Running" };
    let rest = format!(
        "spec: {{nodeName: {NODE}, hostNetwork: {host_network}, serviceAccountName: {account}, \
         containers: [{{name: c, ports: [{}]}}]}}, status: {{phase: {phase}, podIPs: [{}]}}",
        ports.join(", "),
        ips.join(", ")
    );
    object(out, "v1", "Pod", &format!("{{namespace: {namespace}, name: {name}, labels: {labels:?}}}"), &rest);
}

fn port_name(port: &str) -> String {
    format!("p{}", port.replace('/', "-"))
}

fn service_port(port: &str, target: &Value) -> String {
    let (number, proto) = port.split_once('/').expect("PORT/PROTO");
    let target = match target {
        Value::String(name) => name.clone(),
        number => number.as_u64().expect("a port").to_string(),
    };
    let (name, proto) = (port_name(port), proto.to_uppercase());
    format!("{{name: {name}, protocol: {proto}, port: {number}, targetPort: {target}}}")
}

/// A slice for each family, as the API has them.
fn write_slices(out: &mut String, namespace: &str, service: &str, ips: &[IpAddr], ports: &[String]) {
    for (family, v6) in [("IPv4", false), ("IPv6", true)] {
        let ips: Vec<_> =
            ips.iter().filter(|ip| ip.is_ipv6() == v6).map(|ip| format!("{{addresses: ['{ip}']}}")).collect();
        if ips.is_empty() {
            continue;
        }
        let name = format!("{service}-{}", family.to_lowercase());
        let labels = format!("{{kubernetes.io/service-name: {service}}}");
        let metadata = format!("{{namespace: {namespace}, name: {name}, labels: {labels}}}");
        let rest =
            format!("addressType: {family}, endpoints: [{}], ports: [{}]", ips.join(", "), ports.join(", "));
        object(out, "discovery.k8s.io/v1", "EndpointSlice", &metadata, &rest);
    }
}
