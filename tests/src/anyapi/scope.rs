//! What a test makes on a server, and that all of it goes again, whatever becomes of the test.
//!
//! Owns the names and addresses. Must not know: agents.

use std::fs;
use std::io::Write;
use std::net::IpAddr;
use std::os::unix::fs::OpenOptionsExt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, SystemTime};

use serde_json::{Value, json};

use super::Server;
use crate::wait;

/// Before the name of everything that is made.
const PREFIX: &str = "egret-test-";
/// On whose status the agent writes what it thinks of them.
const WITH_CONDITIONS: [&str; 3] = [
    "ciliumnetworkpolicies.cilium.io",
    "ciliumclusterwidenetworkpolicies.cilium.io",
    "clusternetworkpolicies.policy.networking.k8s.io",
];
/// How long a namespace may take to go, where somebody empties it.
const EMPTIED: Duration = Duration::from_secs(60);
/// After this long it is looked whether somebody does.
const NOTICED: Duration = Duration::from_secs(10);

/// A namespace with what is in it, and objects of the cluster that bear its name.
#[derive(Debug)]
pub struct Scope<'a> {
    /// The server.
    pub server: &'a Server,
    /// Of the namespace, of everything that is in none, and of the node, which does not exist.
    pub name: String,
    number: u8,
}

impl<'a> Scope<'a> {
    /// A namespace with a service account for its pods, and what the agent may do.
    ///
    /// # Panics
    ///
    /// If the agent could write about others' policies.
    pub fn new(server: &'a Server) -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).expect("after 1970");
        let unique = (now.as_micros() as u32).wrapping_mul(31) ^ std::process::id() << 8;
        let unique = unique.wrapping_add(COUNT.fetch_add(1, Ordering::Relaxed));
        let scope = Self { server, name: format!("{PREFIX}{unique:08x}"), number: (unique % 251) as u8 };
        // From here on a failure removes what is there already.
        server.apply(&format!("{}{}", scope.place(), scope.rights()));
        scope.expect_confined();
        scope
    }

    /// The addresses of its pod number `n`.
    pub fn addresses(&self, n: u8) -> [String; 2] {
        [format!("198.18.{}.{n}", self.number), format!("2001:db8:a1:{:x}::{n:x}", self.number)]
    }

    /// Makes pod number `n`, bound to the node and running.
    #[track_caller]
    pub fn pod(&self, name: &str, app: &str, n: u8) {
        let ns = &self.name;
        self.server.apply(&format!(
            "apiVersion: v1\nkind: Pod\nmetadata: {{name: {name}, namespace: {ns}, labels: {{app: {app}}}}}\nspec:\n  \
             nodeName: {ns}\n  serviceAccountName: tester\n  automountServiceAccountToken: false\n  containers:\n  - {{name: \
             main, image: none.invalid/none, ports: [{{name: web, containerPort: 8080, protocol: TCP}}]}}\n"
        ));
        let [v4, v6] = self.addresses(n);
        let status = json!({"status": {
            "phase": "Running", "podIP": v4, "podIPs": [{"ip": v4}, {"ip": v6}],
            "conditions": [{"type": "Ready", "status": "True"}],
        }});
        let (ns, status) = (["-n", ns], status.to_string());
        let patch = ["patch", "pod", name, "--subresource=status", "--type=merge", "-p", &status];
        self.server.kubectl(&[&ns[..], &patch].concat());
    }

    /// The address that the server has given to a Service.
    #[track_caller]
    pub fn address_of(&self, service: &str) -> IpAddr {
        let path = ["-o", "jsonpath={.spec.clusterIP}"];
        let text = self.server.kubectl(&[&["get", "-n", &self.name, "service", service], &path[..]].concat());
        text.parse().unwrap_or_else(|_| panic!("{service} has no address: {text:?}"))
    }

    /// Sets a label (`app=web`) of an object (`pod/a`).
    #[track_caller]
    pub fn label(&self, object: &str, label: &str) {
        self.server.kubectl(&["label", "-n", &self.name, object, label, "--overwrite"]);
    }

    /// Deletes an object (`pod/a`) at once.
    #[track_caller]
    pub fn delete(&self, object: &str) {
        self.server.kubectl(&["delete", "-n", &self.name, object, "--force", "--grace-period=0"]);
    }

    /// Writes the kubeconfig of the agent: as its own user, in this namespace.
    pub fn agent_config(&self) -> PathBuf {
        let mut config = self.server.own_config();
        config["users"][0]["user"]["as"] = self.name.as_str().into();
        config["contexts"][0]["context"]["namespace"] = self.name.as_str().into();
        let path = self.server.dir().join(format!("{}.json", self.name));
        // Whoever reads it is who the tests are.
        let mut file =
            fs::OpenOptions::new().create_new(true).write(true).mode(0o600).open(&path).expect("new");
        file.write_all(config.to_string().as_bytes()).expect("written");
        path
    }

    fn place(&self) -> String {
        let ns = &self.name;
        format!(
            "{{apiVersion: v1, kind: Namespace, metadata: {{name: {ns}, labels: {{egret.dev/test: {ns}, team: red}}}}}}\n---\n\
             {{apiVersion: v1, kind: ServiceAccount, metadata: {{name: tester, namespace: {ns}}}}}\n---\n"
        )
    }

    /// The agent reads everything that agents read, and writes in this namespace only.
    fn rights(&self) -> String {
        let name = &self.name;
        let meta = json!({"name": name, "namespace": name, "labels": {"egret.dev/test": name}});
        let allow = |groups: &[&str], resources: &[&str], verbs: &[&str]| -> Value {
            json!({"apiGroups": groups, "resources": resources, "verbs": verbs})
        };
        let object = |kind: &str, more: Value| {
            let mut object =
                json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": kind, "metadata": meta});
            if kind.starts_with("Cluster") {
                object["metadata"].as_object_mut().expect("made above").remove("namespace");
            }
            object.as_object_mut().expect("made above").extend(more.as_object().cloned().unwrap_or_default());
            format!("{object}\n---\n")
        };
        let bind = |kind: &str| {
            let group = "rbac.authorization.k8s.io";
            json!({
                "roleRef": {"apiGroup": group, "kind": kind, "name": name},
                "subjects": [{"apiGroup": group, "kind": "User", "name": name}],
            })
        };
        let watched = ["pods", "namespaces", "nodes", "services", "endpointslices", "networkpolicies"];
        let custom = ["ciliumnetworkpolicies", "ciliumclusterwidenetworkpolicies", "ciliumcidrgroups"];
        let groups = ["", "discovery.k8s.io", "networking.k8s.io", "cilium.io", "policy.networking.k8s.io"];
        let read = [&watched[..], &custom, &["clusternetworkpolicies"]].concat();
        let reads = allow(&groups, &read, &["get", "list", "watch"]);
        let writes = [
            allow(&["coordination.k8s.io"], &["leases"], &["get", "create", "update"]),
            allow(&["cilium.io"], &["ciliumnetworkpolicies/status"], &["patch"]),
            allow(&["events.k8s.io"], &["events"], &["create", "patch"]),
        ];
        object("ClusterRole", json!({"rules": [reads]}))
            + &object("ClusterRoleBinding", bind("ClusterRole"))
            + &object("Role", json!({"rules": writes}))
            + &object("RoleBinding", bind("Role"))
    }

    /// Where rights are not asked for, the agent would write its opinion on every policy that is there.
    fn expect_confined(&self) {
        let server = self.server;
        let of_others = ["auth", "can-i", "patch", "ciliumnetworkpolicies.cilium.io", "--subresource=status"];
        let who = ["-n", "default", "--as", self.name.as_str()];
        // Perhaps with a reason; anything else is no answer.
        if server.run(&[&of_others[..], &who].concat(), "").stdout.starts_with("no") {
            return;
        }
        let all = "{range .items[*]}{.metadata.namespace}/{.metadata.name}{\"\\n\"}{end}";
        let path = format!("jsonpath={all}");
        let of = |kind: &&str| server.run(&["get", kind, "-A", "--ignore-not-found", "-o", &path], "").stdout;
        let policies = WITH_CONDITIONS.iter().map(of).collect::<String>();
        let others: Vec<&str> = policies.lines().filter(|policy| !policy.contains(PREFIX)).collect();
        assert!(others.is_empty(), "this server does not keep the agent from writing about {others:?}");
    }

    fn remove(&self) {
        let (server, name) = (self.server, self.name.as_str());
        let mut inside =
            "pods,services,endpointslices.discovery.k8s.io,networkpolicies.networking.k8s.io,leases,\
            events.events.k8s.io,rolebindings,roles"
                .to_owned();
        // One without a namespace of its own at a time: who is not there holds up nobody.
        let mut outside = vec![format!("clusterrolebinding/{name}"), format!("clusterrole/{name}")];
        if server.has_cilium() {
            inside += ",ciliumnetworkpolicies.cilium.io";
        }
        if server.has_clusterwide() {
            outside.push(format!("clusternetworkpolicies.policy.networking.k8s.io/{name}"));
        }
        let at_once = ["--ignore-not-found", "--wait=false"];
        let all = ["delete", "-n", name, inside.as_str(), "--all", "--force", "--grace-period=0"];
        self.told(&[&all[..], &at_once].concat());
        let named = ["events", "serviceaccounts"];
        named
            .iter()
            .for_each(|kind| self.told(&[&["delete", "-n", name, kind, "--all"], &at_once[..]].concat()));
        let outside: Vec<&str> = outside.iter().map(String::as_str).collect();
        self.told(&[&["delete"], &outside[..], &at_once].concat());
        self.told(&[&["delete", "namespace", name], &at_once[..]].concat());
        self.await_end();
    }

    /// A server without controllers leaves an empty namespace as it is: then nobody else would finish it.
    fn await_end(&self) {
        let gone = |limit| wait::until(limit, || self.namespace().is_none().then_some(())).is_some();
        if gone(NOTICED) {
            return;
        }
        if let Some(mut left) = self.namespace().filter(|left| left["status"]["conditions"].is_null()) {
            left["spec"]["finalizers"] = json!([]);
            let path = format!("/api/v1/namespaces/{}/finalize", self.name);
            let _ = self.server.run(&["replace", "--raw", &path, "-f", "-"], &left.to_string());
        }
        if !gone(EMPTIED) {
            eprintln!("the namespace {} is still there", self.name);
        }
    }

    fn namespace(&self) -> Option<Value> {
        let get = ["get", "namespace", &self.name, "--ignore-not-found", "-o", "json"];
        serde_json::from_str(&self.server.run(&get, "").stdout).ok()
    }

    /// Runs kubectl; a failure is told, and hinders nothing that comes after it.
    fn told(&self, args: &[&str]) {
        let outcome = self.server.run(args, "");
        if !outcome.success() {
            eprintln!("kubectl {}: {}", args.join(" "), outcome.stderr);
        }
    }
}

impl Drop for Scope<'_> {
    fn drop(&mut self) {
        self.remove();
    }
}
