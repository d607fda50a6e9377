//! `kubectl egret`: the same questions, asked of the agent on a pod's node.
//!
//! ```text
//!  kubectl egret --pod web-0 endpoint list
//!     └─ kubectl get pod ──> node ──> kubectl get pods (agents) ──> kubectl exec AGENT -- egret endpoint list
//! ```
//! Everything goes through `kubectl` itself: whoever may use that is whoever may use this, with the same contexts and
//! logins. Owns which agent is asked; says so on stderr. Must not know what the answers mean.

use std::ffi::OsString;
use std::path::Path;
use std::process::{Command, Stdio};

use clap::Parser;
use serde_json::Value;

use crate::exit::{self, Refusal};
use crate::tell;

/// The agents, in their own namespace only: anybody may write these labels on a pod of his.
const AGENTS: &str = "app.kubernetes.io/name=egret,app.kubernetes.io/component=agent";
/// Their container.
const CONTAINER: &str = "agent";

/// Ask the Egret agent of a pod's node, or those of all nodes
#[derive(Debug, Parser)]
#[command(name = "kubectl egret", version, max_term_width = 100)]
struct Plugin {
    /// The agent on this pod's node: NAME, or NAMESPACE/NAME
    #[arg(long, value_name = "POD", conflicts_with = "node")]
    pod: Option<String>,
    /// The agent on this node
    #[arg(long, value_name = "NODE")]
    node: Option<String>,
    /// The pod's namespace; default: kubectl's
    #[arg(long, short, value_name = "NAMESPACE")]
    namespace: Option<String>,
    /// Where the agents are
    #[arg(long, value_name = "NAMESPACE", default_value = "kube-system")]
    agent_namespace: String,
    /// As kubectl's
    #[arg(long, value_name = "NAME")]
    context: Option<String>,
    /// As kubectl's
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<String>,
    /// What to ask, as `egret` is asked: status, endpoint list, policy get, ...
    #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true, value_name = "COMMAND")]
    command: Vec<String>,
}

/// An agent that runs.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Agent {
    node: String,
    pod: String,
}

/// Whether the process was started under the plugin's name.
pub fn is_meant(program: &Path) -> bool {
    // A plugin's dashes may be underscores.
    program.file_name().is_some_and(|name| name == "kubectl-egret" || name == "kubectl_egret")
}

/// The whole process.
pub fn main(args: impl IntoIterator<Item = OsString>) -> u8 {
    let plugin = match Plugin::try_parse_from(args) {
        Ok(plugin) => plugin,
        Err(error) => {
            let _ = error.print();
            return if error.use_stderr() { exit::USAGE } else { 0 };
        }
    };
    plugin.run().unwrap_or_else(|refusal| {
        tell::line(&refusal);
        refusal.code
    })
}

impl Plugin {
    fn run(&self) -> Result<u8, Refusal> {
        let node = match &self.pod {
            Some(pod) => Some(self.node_of(pod)?),
            None => self.node.clone(),
        };
        let found = self.get(&["pods", "-n", &self.agent_namespace, "-l", AGENTS])?;
        let agents = agents(&found, node.as_deref());
        if agents.is_empty() {
            let place = node.map_or_else(String::new, |node| format!(" on node {node}"));
            let cause = format!("no agent runs{place} in namespace {}", self.agent_namespace);
            return Err(Refusal::new(
                exit::UNAVAILABLE,
                cause,
                "see its DaemonSet, or give --agent-namespace",
            ));
        }
        let mut worst = 0;
        for agent in &agents {
            tell::line(format_args!("node {}: {}/{}", agent.node, self.agent_namespace, agent.pod));
            worst = worst.max(self.exec(agent)?);
        }
        Ok(worst)
    }

    fn node_of(&self, pod: &str) -> Result<String, Refusal> {
        let (namespace, name) = match pod.split_once('/') {
            Some((namespace, name)) => (Some(namespace), name),
            None => (self.namespace.as_deref(), pod),
        };
        let mut what = vec!["pod", name];
        what.extend(namespace.into_iter().flat_map(|namespace| ["-n", namespace]));
        let found = self.get(&what)?;
        let node = found["spec"]["nodeName"].as_str().map(str::to_owned);
        node.ok_or_else(|| {
            let cause = format!("pod {pod} is on no node yet");
            Refusal::new(exit::UNAVAILABLE, cause, "ask again once it is scheduled")
        })
    }

    fn get(&self, what: &[&str]) -> Result<Value, Refusal> {
        let mut kubectl = self.kubectl();
        kubectl.arg("get").args(what).args(["-o", "json"]).stderr(Stdio::inherit());
        let output = kubectl.output().map_err(|error| unrunnable(&error))?;
        let failed = |cause: String| Refusal::new(exit::UNAVAILABLE, cause, "see what kubectl said");
        if !output.status.success() {
            return Err(failed(format!("kubectl get {} failed", what.join(" "))));
        }
        serde_json::from_slice(&output.stdout).map_err(|error| failed(format!("kubectl's answer: {error}")))
    }

    fn exec(&self, agent: &Agent) -> Result<u8, Refusal> {
        let mut kubectl = self.kubectl();
        kubectl.args(["exec", "-n", &self.agent_namespace, &agent.pod, "-c", CONTAINER, "--", "egret"]);
        let status = kubectl.args(&self.command).status().map_err(|error| unrunnable(&error))?;
        Ok(status.code().and_then(|code| u8::try_from(code).ok()).unwrap_or(exit::SOFTWARE))
    }

    fn kubectl(&self) -> Command {
        let mut kubectl = Command::new("kubectl");
        let given = [("--context", &self.context), ("--kubeconfig", &self.kubeconfig)];
        for (option, value) in given {
            kubectl.args(value.iter().flat_map(|value| [option, value]));
        }
        kubectl
    }
}

fn unrunnable(error: &std::io::Error) -> Refusal {
    Refusal::new(exit::UNAVAILABLE, format!("cannot run kubectl: {error}"), "it must be on the PATH")
}

/// Those that run, on this node if one is given, by node.
fn agents(list: &Value, node: Option<&str>) -> Vec<Agent> {
    let running = |item: &&Value| item["status"]["phase"] == "Running";
    let agent = |item: &Value| {
        let (node, pod) = (item["spec"]["nodeName"].as_str()?, item["metadata"]["name"].as_str()?);
        Some(Agent { node: node.to_owned(), pod: pod.to_owned() })
    };
    let items = list["items"].as_array().into_iter().flatten().filter(running);
    let mut found: Vec<Agent> = items.filter_map(agent).collect();
    found.retain(|agent| node.is_none_or(|node| agent.node == node));
    found.sort();
    found
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_plugin_is_known_by_its_name() {
        for (program, want) in [
            ("/usr/local/bin/kubectl-egret", true),
            ("kubectl_egret", true),
            ("/usr/bin/egret", false),
            ("kubectl-egret/egret", false),
        ] {
            assert_eq!(is_meant(Path::new(program)), want, "{program}");
        }
    }

    #[test]
    fn everything_after_the_command_is_the_agents() {
        let parse = |args: &[&str]| {
            Plugin::try_parse_from([&["kubectl-egret"], args].concat())
                .map(|plugin| (plugin.pod, plugin.command))
        };
        let command = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>();
        let asked = parse(&["--pod", "shop/web", "endpoint", "list", "-o", "json"]).expect("valid");
        assert_eq!(asked, (Some("shop/web".into()), command(&["endpoint", "list", "-o", "json"])));
        let asked = parse(&["policy", "get", "--node", "x"]).expect("valid");
        assert_eq!(asked, (None, command(&["policy", "get", "--node", "x"])));
        assert!(parse(&[]).is_err() && parse(&["--pod", "a", "--node", "b", "status"]).is_err());
    }

    #[test]
    fn agents_that_do_not_run_are_not_asked() {
        let pod = |name: &str, node: &str, phase: &str| json!({"metadata": {"name": name}, "spec": {"nodeName": node}, "status": {"phase": phase}});
        let list = json!({"items": [
            pod("b", "n2", "Running"), pod("a", "n1", "Running"), pod("c", "n3", "Pending"), json!({"odd": 1})
        ]});
        let names = |node| agents(&list, node).into_iter().map(|a| a.pod).collect::<Vec<_>>();
        assert_eq!(names(None), ["a", "b"]);
        assert_eq!((names(Some("n2")), names(Some("n3"))), (vec!["b".to_owned()], vec![]));
    }
}
