//! A server and the kubectl that writes to it. Knows its kubeconfig and which kinds it has, nothing of what is tested.

use std::fs;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use serde_json::Value;

use crate::apiserver::{ApiServer, Crd};
use crate::egret::kubectl;
use crate::exec::{Cmd, Outcome, Place};
use crate::lock::Lock;
use crate::netns::{World, WorldBuilder};

/// Tells the tests which server they may use: not `KUBECONFIG`, which points at a cluster that one works with.
const VARIABLE: &str = "EGRET_KUBECONFIG";
/// How long a kubectl may take.
const PATIENCE: Duration = Duration::from_secs(60);

/// A server that is there.
#[derive(Debug)]
pub struct Server {
    place: Place,
    dir: PathBuf,
    /// As in `KUBECONFIG`.
    config: String,
    kubectl: PathBuf,
    /// It has the schemas by which objects are checked.
    has_schemas: bool,
    cilium: bool,
    clusterwide: bool,
    double: Option<(ApiServer, World)>,
    /// Of a world, the world has it.
    lock: Option<Lock>,
}

impl Server {
    /// The one of `EGRET_KUBECONFIG`; without it there is none.
    pub fn given() -> Option<Self> {
        let Ok(config) = std::env::var(VARIABLE) else {
            eprintln!("not run: no {VARIABLE}; `KUBECONFIG=... cargo xtask test cluster` sets it");
            return None;
        };
        Some(Self::of(config))
    }

    /// The one of a kubeconfig, asked from where this process is.
    pub fn of(config: String) -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let dir = std::env::temp_dir().join(format!("egret-api-{}-{number}", std::process::id()));
        let mut server = Self::new(Place::own(), dir, config, None);
        server.lock = Some(Lock::shared());
        server
    }

    /// The double, in a namespace of its own, with every kind.
    pub fn double() -> Option<Self> {
        let world = WorldBuilder::new().ns("h").build();
        let listener = world.ns("h").run(|| TcpListener::bind("127.0.0.1:0")).expect("bound");
        let api = ApiServer::on(listener);
        Crd::ALL.into_iter().for_each(|crd| api.install(crd));
        let (place, dir) = (world.place("h"), world.dir().join("api"));
        fs::create_dir_all(&dir).expect("a folder");
        let config = dir.join("config");
        fs::write(&config, api.kubeconfig()).expect("written");
        Some(Self::new(place, dir, config.display().to_string(), Some((api, world))))
    }

    fn new(place: Place, dir: PathBuf, config: String, double: Option<(ApiServer, World)>) -> Self {
        let Some(kubectl) = kubectl() else { panic!("no kubectl: `cargo xtask setup deploy` puts it there") };
        fs::create_dir_all(&dir).expect("a folder");
        let (has_schemas, cilium, clusterwide) = (false, false, false);
        let mut server =
            Self { place, dir, config, kubectl, has_schemas, cilium, clusterwide, double, lock: None };
        server.run(&["get", "--raw", "/readyz"], "").expect_success();
        server.has_schemas = server.run(&["get", "--raw", "/openapi/v3"], "").success();
        server.cilium = server.serves("/apis/cilium.io/v2", "ciliumnetworkpolicies");
        server.clusterwide =
            server.serves("/apis/policy.networking.k8s.io/v1alpha2", "clusternetworkpolicies");
        server
    }

    /// Where the agent runs that asks it.
    pub fn place(&self) -> &Place {
        &self.place
    }

    /// For files.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// The double itself, if that is what it is.
    pub fn as_double(&self) -> Option<&ApiServer> {
        self.double.as_ref().map(|(api, _)| api)
    }

    /// It has CiliumNetworkPolicies.
    pub fn has_cilium(&self) -> bool {
        self.cilium
    }

    /// It has ClusterNetworkPolicies.
    pub fn has_clusterwide(&self) -> bool {
        self.clusterwide
    }

    /// Runs kubectl.
    pub fn run(&self, args: &[&str], input: &str) -> Outcome {
        let program = self.kubectl.display().to_string();
        let cmd = Cmd::new([&[program.as_str()], args].concat()).timeout(PATIENCE).stdin(input);
        // Its cache of discovery would outlive the server.
        let cache = self.dir.join("cache").display().to_string();
        self.place.run(&cmd.env("KUBECONFIG", &self.config).env("KUBECACHEDIR", &cache))
    }

    /// Runs kubectl, which must succeed, and gives what it printed.
    #[track_caller]
    pub fn kubectl(&self, args: &[&str]) -> String {
        let outcome = self.run(args, "");
        assert!(outcome.success(), "kubectl {}: {outcome:#?}", args.join(" "));
        outcome.stdout.trim().to_owned()
    }

    /// Applies objects, which the server must take without a word about any field.
    #[track_caller]
    pub fn apply(&self, yaml: &str) {
        let validate = if self.has_schemas { "--validate=strict" } else { "--validate=false" };
        let args = ["apply", "--server-side", "--field-manager=egret-test", validate, "-f", "-"];
        let outcome = self.run(&args, yaml);
        assert!(outcome.success() && !outcome.stderr.contains("unknown field"), "{yaml}: {outcome:#?}");
    }

    /// The object, unless there is none.
    pub fn get(&self, namespace: &str, kind: &str, name: &str) -> Option<Value> {
        let text = self.kubectl(&["get", "-n", namespace, kind, name, "--ignore-not-found", "-o", "json"]);
        (!text.is_empty()).then(|| serde_json::from_str(&text).expect("JSON"))
    }

    /// The kubeconfig of who is asked as, without any other cluster.
    pub fn own_config(&self) -> Value {
        let text = self.kubectl(&["config", "view", "--minify", "--flatten", "--raw", "-o", "json"]);
        serde_json::from_str(&text).expect("JSON")
    }

    fn serves(&self, group: &str, plural: &str) -> bool {
        let outcome = self.run(&["get", "--raw", group], "");
        let list: Value = serde_json::from_str(&outcome.stdout).unwrap_or_default();
        let known = |all: &Vec<Value>| all.iter().any(|resource| resource["name"] == plural);
        outcome.success() && list["resources"].as_array().is_some_and(known)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.dir);
    }
}
