//! A cluster of any size for benchmarks: pods as large as real ones, and changes of it at a rate. Everything follows
//! from numbers, so two towns of the same size are the same. Knows the double only as a place to put objects.

mod mould;
mod pod;

use std::net::Ipv4Addr;
use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::ApiServer;
use super::store::Expected;

/// Pods lie in so many namespaces, each with so many applications, whose pods share their labels.
const NAMESPACES: u32 = 100;
const APPS: u32 = 20;

/// A cluster by its size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Town {
    /// Pods at first.
    pub pods: u32,
    /// Pods are spread over them evenly.
    pub nodes: u32,
}

impl Town {
    /// Puts the nodes, the namespaces and all pods into a server.
    pub fn settle(&self, server: &ApiServer) {
        (0..self.nodes).for_each(|number| server.apply_json(node(number)));
        for number in 0..NAMESPACES.min(self.pods) {
            let name = namespace(number);
            let labels =
                json!({"kubernetes.io/metadata.name": name, "team": format!("team-{}", number % 10)});
            server.apply_json(json!({
                "apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels},
                "spec": {"finalizers": ["kubernetes"]}, "status": {"phase": "Active"},
            }));
        }
        (0..self.pods).for_each(|number| self.add(server, number));
    }

    /// Puts in a pod, one of the first or a further one, as it is when it runs. It always has the same `uid`.
    pub fn add(&self, server: &ApiServer, number: u32) {
        self.relabel(server, number, 0);
    }

    /// Gives a pod the labels of another release of its application.
    pub fn relabel(&self, server: &ApiServer, number: u32, release: u32) {
        let draft = mould::draft(&self.values(number, release));
        server.shared.store().put(*mould::PODS, draft, Expected::Any).expect("pods are always there");
    }

    /// Deletes a pod.
    pub fn remove(&self, server: &ApiServer, number: u32) {
        server.delete("Pod", &namespace(number), &name(number));
    }

    /// A pod as an object.
    pub fn pod(&self, number: u32, release: u32) -> Value {
        mould::object(&self.values(number, release))
    }

    fn values(&self, number: u32, release: u32) -> pod::Values {
        pod::values(number, number % self.nodes, release)
    }

    /// The pods of a node, of the first ones.
    pub fn pods_on(&self, node: u32) -> impl Iterator<Item = u32> + use<> {
        (node..self.pods).step_by(self.nodes as usize)
    }
}

/// How a series of changes went.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Pace {
    /// Changes made.
    pub done: u64,
    /// From the first one to the end of the last one.
    pub took: Duration,
    /// The furthest that a change began behind its time.
    pub latest: Duration,
}

/// Makes `count` changes, so many per second. What falls behind is made up for as fast as it goes; [`Pace`] shows it.
///
/// # Panics
///
/// If the rate is not above 0.
pub fn at_rate(per_second: f64, count: u64, mut change: impl FnMut(u64)) -> Pace {
    assert!(per_second > 0.0, "never");
    let start = Instant::now();
    let mut latest = Duration::ZERO;
    for number in 0..count {
        let due = start + Duration::from_secs_f64(number as f64 / per_second);
        thread::sleep(due.saturating_duration_since(Instant::now()));
        latest = latest.max(due.elapsed());
        change(number);
    }
    Pace { done: count, took: start.elapsed(), latest }
}

/// The name of a node.
pub fn node_name(number: u32) -> String {
    format!("node-{number:05}")
}

/// The namespace in which a pod lies.
pub fn namespace(number: u32) -> String {
    format!("town-{:03}", number % NAMESPACES)
}

/// The application of a pod; its name begins with it.
pub fn app(number: u32) -> String {
    format!("app-{:02}", number / NAMESPACES % APPS)
}

/// The name of a pod.
pub fn name(number: u32) -> String {
    format!("{}-{:08x}-{number:05}", app(number), number.wrapping_mul(0x9e37_79b1))
}

/// The address of a pod, within 10.64.0.0/10.
pub fn address(number: u32) -> Ipv4Addr {
    Ipv4Addr::from_bits(0x0a40_0000 | (number + 256))
}

/// The address of a node, within 172.16.0.0/12.
fn node_address(number: u32) -> Ipv4Addr {
    Ipv4Addr::from_bits(0xac10_0000 | (number + 1))
}

fn node(number: u32) -> Value {
    let (name, address) = (node_name(number), node_address(number));
    json!({
        "apiVersion": "v1", "kind": "Node",
        "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name, "kubernetes.io/os": "linux"}},
        "spec": {"podCIDR": format!("10.{}.{}.0/24", 64 + number / 256 % 64, number % 256)},
        "status": {
            "addresses": [
                {"type": "InternalIP", "address": address.to_string()}, {"type": "Hostname", "address": name},
            ],
            "conditions": [{"type": "Ready", "status": "True", "reason": "KubeletReady"}],
            "nodeInfo": {"kernelVersion": "6.12.0", "kubeletVersion": "v1.34.0", "architecture": "amd64"},
        },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_town_settles_and_changes() {
        let (server, town) = (ApiServer::start(), Town { pods: 250, nodes: 10 });
        town.settle(&server);
        assert_eq!([server.all("Node").len(), server.all("Namespace").len()], [10, 100]);
        let pods = server.all("Pod");
        assert_eq!(pods.len(), 250);
        let on_third = pods.iter().filter(|pod| pod["spec"]["nodeName"] == node_name(3));
        assert_eq!((on_third.count(), town.pods_on(3).count()), (25, 25));
        let sizes = pods.iter().map(|pod| serde_json::to_vec(pod).map_or(0, |text| text.len()));
        assert!(
            sizes.clone().all(|size| (6_000..10_000).contains(&size)),
            "{:?}",
            sizes.min().zip(sizes_max(&pods))
        );
        let mut addresses: Vec<&Value> = pods.iter().map(|pod| &pod["status"]["podIP"]).collect();
        addresses.sort_by_key(|address| address.to_string());
        addresses.dedup();
        assert_eq!(addresses.len(), 250);
        let before = server.revision();
        let pace = at_rate(1000.0, 20, |number| town.relabel(&server, number as u32, 1));
        assert_eq!((pace.done, server.revision()), (20, before + 20));
        assert!(pace.took >= Duration::from_millis(19));
        town.remove(&server, 249);
        assert_eq!(server.all("Pod").len(), 249);
    }

    fn sizes_max(pods: &[serde_json::Map<String, Value>]) -> Option<usize> {
        pods.iter().map(|pod| serde_json::to_vec(pod).map_or(0, |text| text.len())).max()
    }
}
