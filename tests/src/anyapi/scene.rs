//! A scope with an agent of its node, and what that agent says of it. Of other objects on the server nothing is asked.

use std::time::Duration;

use serde_json::Value;

use super::{Scope, Server};
use crate::agent::Agent;
use crate::wait;

/// How long a change may take, where no figure is promised.
const LIMIT: Duration = Duration::from_secs(20);

/// An agent that asks the server. It ends before its objects do.
#[derive(Debug)]
pub struct Scene<'a> {
    /// The agent.
    pub agent: Agent,
    /// What is on the server.
    pub scope: Scope<'a>,
}

impl<'a> Scene<'a> {
    /// An empty namespace, and an agent that has read it.
    pub fn new(server: &'a Server) -> Self {
        let scope = Scope::new(server);
        let agent = Agent::beside(server.place().clone(), server.dir());
        // This machine may be a node with pods: they are not held meanwhile.
        let agent = agent.kubeconfig(&scope.agent_config()).node(&scope.name).args(&["--startup", "allow"]);
        let mut scene = Self { agent, scope };
        scene.agent.start();
        scene
    }

    /// Waits until it holds.
    #[track_caller]
    pub fn expect(&self, what: &str, holds: impl Fn() -> bool) {
        self.expect_within(LIMIT, what, holds);
    }

    /// Waits so long until it holds; panics with all that the agent says.
    #[track_caller]
    pub fn expect_within(&self, limit: Duration, what: &str, holds: impl Fn() -> bool) {
        let held = wait::until(wait::patient(limit), || holds().then_some(()));
        let ask = |args: &[&str]| self.agent.ask(args).stdout;
        assert!(
            held.is_some(),
            "not within {limit:?}: {what}\n{}\n{}\n{}\n{}",
            ask(&["endpoint", "list", "-o", "json"]),
            ask(&["policy", "get", "-o", "json"]),
            ask(&["bpf", "dump"]),
            self.agent.said()
        );
    }

    /// The endpoints of this scene.
    pub fn endpoints(&self) -> Vec<Value> {
        let prefix = format!("{}/", self.scope.name);
        let mut all = rows(self.agent.json(&["endpoint", "list"]));
        all.retain(|endpoint| endpoint["pod"].as_str().is_some_and(|pod| pod.starts_with(&prefix)));
        all
    }

    /// One of them, `null` if it is not there.
    pub fn endpoint(&self, pod: &str) -> Value {
        let name = format!("{}/{pod}", self.scope.name);
        self.endpoints().into_iter().find(|endpoint| endpoint["pod"] == name).unwrap_or_default()
    }

    /// The number of its identity; 0: none.
    pub fn identity(&self, pod: &str) -> u64 {
        self.endpoint(pod)["identity"].as_u64().unwrap_or(0)
    }

    /// The labels of an identity.
    pub fn labels(&self, identity: u64) -> Vec<String> {
        let all = rows(self.agent.json(&["identity", "list"]));
        let found = all.into_iter().find(|row| row["id"] == identity).unwrap_or_default();
        rows(found["labels"].clone()).iter().filter_map(Value::as_str).map(str::to_owned).collect()
    }

    /// Identities of pods of this scene.
    pub fn identities(&self) -> Vec<u64> {
        let own = format!("k8s:io.kubernetes.pod.namespace={}", self.scope.name);
        let all = rows(self.agent.json(&["identity", "list"])).into_iter();
        let ours = all.filter(|row| rows(row["labels"].clone()).iter().any(|label| label == own.as_str()));
        ours.filter_map(|row| row["id"].as_u64()).collect()
    }

    /// The entries of a map of the kernel.
    pub fn dump(&self, map: &str) -> Vec<String> {
        let maps = rows(self.agent.json(&["bpf", "dump", map]));
        let entries = maps.into_iter().flat_map(|map| rows(map["entries"].clone()));
        entries.filter_map(|entry| entry.as_str().map(str::to_owned)).collect()
    }

    /// Whether a map has an entry that begins so.
    pub fn has(&self, map: &str, entry: &str) -> bool {
        self.dump(map).iter().any(|line| line.starts_with(entry))
    }

    /// What a pod's set says of what it sends, without the set's number, which every change changes.
    pub fn egress(&self, map: &str, pod: &str) -> Vec<String> {
        let begin = format!("{} -> egress set ", self.endpoint(pod)["id"]);
        let all = self.dump("ENDPOINTS");
        let set = all.iter().find_map(|line| line.strip_prefix(&begin)?.split(' ').next());
        let Some(set) = set else { return Vec::new() };
        let prefix = format!("set {set} ");
        self.dump(map).iter().filter_map(|line| line.strip_prefix(&prefix).map(str::to_owned)).collect()
    }

    /// The object (`NetworkPolicy/NAMESPACE/NAME`) as the agent has it, `null` if it has none.
    pub fn policy(&self, name: &str) -> Value {
        let all = rows(self.agent.json(&["policy", "get"])["policies"].clone());
        all.into_iter().find(|policy| policy["name"] == name).unwrap_or_default()
    }

    /// Whether the agent tells this of some object.
    pub fn is_told(&self, text: &str) -> bool {
        let all = rows(self.agent.json(&["policy", "get"])["diagnostics"].clone());
        all.iter().filter_map(Value::as_str).any(|line| line.contains(text))
    }
}

fn rows(list: Value) -> Vec<Value> {
    match list {
        Value::Array(rows) => rows,
        _ => Vec::new(),
    }
}
