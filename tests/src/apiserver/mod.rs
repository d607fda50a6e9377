//! A double of the Kubernetes API server: real HTTP/1.1, the resources that an agent of Egret reads and writes, and
//! faults on demand. In memory, without TLS, without schemas: it checks what the protocol of lists and watches says,
//! not what a policy may contain.
//!
//! ```text
//! server   connections, log, faults          store     objects, history, one counter of versions
//!   └ route   path -> answer                   └ object   one object as bytes, ready to be sent
//!       ├ discovery, read (lists, pages)     kinds     the table of resources
//!       ├ watch                              select    label and field selectors
//!       └ write (with patch)                 options   the query, validated
//! ```
//!
//! As the real server: items of a list carry a type only if they are custom resources; a page is bound to the version
//! of the first one; a watch whose version is forgotten is answered by 200 and an `ERROR` event; a write that changes
//! nothing makes no version; `.status` is written through its subresource alone; a Service that is created gets an
//! address; paths of groups that are not there get 404 in plain text.
//!
//! Not as the real server: no admission, no validation, no rights, no ownership of fields (an apply patch is merged, its lists
//! replace), no `dryRun`, no finalizers and no grace on deletion, no protobuf, no tables, no compression, no OpenAPI;
//! events of `v1` and `events.k8s.io/v1` are two things; a future version is refused at once instead of after 3 s.

mod discovery;
mod kinds;
mod object;
mod options;
mod patch;
mod read;
mod reply;
mod route;
mod select;
mod server;
mod store;
#[cfg(test)]
mod tests;
pub mod town;
mod watch;
mod write;

use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use serde::Deserialize;
use serde_json::{Map, Value};
use tokio::sync::oneshot;

use kinds::{KINDS, Kind};
use server::{Shared, TOKEN};
use store::Expected;

/// Resources that are there only once they have been installed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Crd {
    /// `ciliumnetworkpolicies.cilium.io`, v2.
    CiliumNetworkPolicy,
    /// `ciliumclusterwidenetworkpolicies.cilium.io`, v2.
    CiliumClusterwideNetworkPolicy,
    /// `ciliumcidrgroups.cilium.io`, v2.
    CiliumCidrGroup,
    /// `clusternetworkpolicies.policy.networking.k8s.io`, v1alpha2.
    ClusterNetworkPolicy,
}

impl Crd {
    /// All of them.
    pub const ALL: [Self; 4] = [
        Self::CiliumNetworkPolicy,
        Self::CiliumClusterwideNetworkPolicy,
        Self::CiliumCidrGroup,
        Self::ClusterNetworkPolicy,
    ];

    fn id(self) -> usize {
        let plural = match self {
            Self::CiliumNetworkPolicy => "ciliumnetworkpolicies",
            Self::CiliumClusterwideNetworkPolicy => "ciliumclusterwidenetworkpolicies",
            Self::CiliumCidrGroup => "ciliumcidrgroups",
            Self::ClusterNetworkPolicy => "clusternetworkpolicies",
        };
        KINDS.iter().position(|kind| kind.plural == plural).expect("in the table")
    }
}

/// A request as it came in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// `GET`, ...
    pub method: String,
    /// Without the query.
    pub path: String,
    /// As it was written, without the question mark.
    pub query: String,
    /// Empty if there was none.
    pub user_agent: String,
}

/// A running server; dropping it closes all connections.
#[derive(Debug)]
pub struct ApiServer {
    shared: Arc<Shared>,
    addr: SocketAddr,
    /// Dropped to end the thread.
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl ApiServer {
    /// On a free port of 127.0.0.1.
    pub fn start() -> Self {
        Self::on(TcpListener::bind("127.0.0.1:0").expect("a free port"))
    }

    /// On a listener, which may have been made inside another network namespace.
    pub fn on(listener: TcpListener) -> Self {
        listener.set_nonblocking(true).expect("a socket");
        let addr = listener.local_addr().expect("a bound socket");
        let shared = Arc::new(Shared::new());
        let (stop, stopped) = oneshot::channel();
        let served = Arc::clone(&shared);
        let thread = thread::Builder::new()
            .name("apiserver".into())
            .spawn(move || server::serve(listener, served, stopped))
            .expect("a thread");
        Self { shared, addr, stop: Some(stop), thread: Some(thread) }
    }

    /// Where it listens.
    pub fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// The text of a kubeconfig for it. Requests with another bearer token get 401, requests without any are served.
    pub fn kubeconfig(&self) -> String {
        let addr = self.addr;
        format!(
            "apiVersion: v1\nkind: Config\nclusters:\n- name: double\n  cluster: {{server: \"http://{addr}\"}}\n\
             users:\n- name: egret\n  user: {{token: {TOKEN}}}\ncontexts:\n- name: double\n  context: {{cluster: \
             double, user: egret}}\ncurrent-context: double\n"
        )
    }

    /// Creates or replaces each object of a YAML text, its status included. Sets what the server sets: `uid`,
    /// `creationTimestamp`, `resourceVersion` and `generation`; the namespace is `default` if none is given.
    ///
    /// # Panics
    ///
    /// If a document is no object of a resource that is there.
    pub fn apply(&self, yaml: &str) {
        for document in serde_yaml_ng::Deserializer::from_str(yaml) {
            match Value::deserialize(document).expect("YAML") {
                Value::Null => {}
                value => self.apply_json(value),
            }
        }
    }

    /// [`ApiServer::apply`] for one object, or for a `List` of them.
    ///
    /// # Panics
    ///
    /// If it is no object of a resource that is there.
    pub fn apply_json(&self, value: Value) {
        let Value::Object(mut object) = value else { panic!("no object: {value}") };
        if object.get("kind").and_then(Value::as_str) == Some("List") {
            let items =
                object.remove("items").and_then(|items| items.as_array().cloned()).unwrap_or_default();
            return items.into_iter().for_each(|item| self.apply_json(item));
        }
        let id =
            Kind::of(&object).unwrap_or_else(|| panic!("of no resource: {}", Value::Object(object.clone())));
        assert!(!patch::meta(&object, "name").is_empty(), "without a name: {}", Value::Object(object));
        if KINDS[id].namespaced && patch::meta(&object, "namespace").is_empty() {
            patch::metadata(&mut object).insert("namespace".into(), "default".into());
        }
        if let Err(clash) = write::store(&self.shared, id, &object) {
            panic!("{}: {clash:?}", KINDS[id].kind);
        }
    }

    /// Deletes an object. The namespace of an object that has none is empty.
    ///
    /// # Panics
    ///
    /// If it does not exist.
    pub fn delete(&self, kind: &str, namespace: &str, name: &str) {
        let mut store = self.shared.store();
        let gone = by_kind(kind).any(|id| {
            let key = KINDS[id].key(namespace, name);
            store.remove(id, &key, Expected::Any).is_ok()
        });
        assert!(gone, "no {kind} {namespace}/{name}");
    }

    /// An object as the server gives it.
    pub fn get(&self, kind: &str, namespace: &str, name: &str) -> Option<Value> {
        let store = self.shared.store();
        by_kind(kind).find_map(|id| {
            let object = store.get(id, &KINDS[id].key(namespace, name))?;
            Some(Value::Object(object.value(&KINDS[id])))
        })
    }

    /// All objects of a kind, in order.
    pub fn all(&self, kind: &str) -> Vec<Map<String, Value>> {
        let store = self.shared.store();
        let ids = by_kind(kind).filter_map(|id| Some((id, store.shelf(id)?)));
        ids.flat_map(|(id, shelf)| {
            let objects = shelf.at(store.revision, "", "").into_iter().flatten();
            objects.map(move |object| object.value(&KINDS[id]))
        })
        .collect()
    }

    /// Makes a resource known.
    pub fn install(&self, crd: Crd) {
        self.shared.store().install(crd.id());
    }

    /// Deletes the objects of a resource, with an event for each, then the resource: its watches end, and it is 404.
    pub fn uninstall(&self, crd: Crd) {
        self.shared.store().uninstall(crd.id());
    }

    /// The version of the last change.
    pub fn revision(&self) -> u64 {
        self.shared.store().revision
    }

    /// Forgets the history: open watches get an `ERROR` event with code 410 and end, so do new ones from an older
    /// version; a page of an older version gets status 410.
    pub fn expire(&self) {
        self.shared.store().expire();
    }

    /// Whether a new watch from a forgotten version gets status 410 instead of 200 and an `ERROR` event. No current
    /// server of Kubernetes does so; some that stand behind it, and proxies, do.
    pub fn set_gone_as_status(&self, plain: bool) {
        self.shared.faults.set_gone_as_status(plain);
    }

    /// How many changes of each resource are remembered (10,000 at first). A watch that is further behind gets 410.
    pub fn set_history(&self, changes: usize) {
        self.shared.store().history = changes;
    }

    /// Closes every open connection in the middle of what it does.
    pub fn drop_connections(&self) {
        self.shared.cut();
    }

    /// Waits before each response. Open watches are not slower.
    pub fn set_delay(&self, delay: Duration) {
        self.shared.faults.set_delay(delay);
    }

    /// Closes every connection as soon as it is made, and those that are open: a server that is down.
    pub fn set_refusing(&self, refusing: bool) {
        self.shared.faults.set_refusing(refusing);
        if refusing {
            self.shared.cut();
        }
    }

    /// Answers everything with this status (500, 429, 401, 403, ...). Open watches go on.
    pub fn set_failing(&self, status: Option<u16>) {
        self.shared.faults.set_failing(status);
    }

    /// The last 10,000 requests, in the order in which they came.
    pub fn requests(&self) -> Vec<Request> {
        let log = self.shared.log.lock().expect("nobody panics while he holds it");
        log.requests.iter().cloned().collect()
    }

    /// How many requests came before those.
    pub fn requests_forgotten(&self) -> u64 {
        self.shared.log.lock().expect("nobody panics while he holds it").dropped
    }

    /// Open watches.
    pub fn watches(&self) -> usize {
        self.shared.watches.load(Ordering::Relaxed)
    }
}

impl Drop for ApiServer {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// The resources whose objects are of this kind.
fn by_kind(kind: &str) -> impl Iterator<Item = usize> {
    (0..KINDS.len()).filter(move |id| KINDS[*id].kind == kind)
}
