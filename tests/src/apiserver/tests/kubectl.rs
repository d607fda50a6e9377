//! An unmodified kubectl finds its way: discovery, lists, writes and a watch as its users see them.

use std::io::{BufRead, BufReader, Write};
use std::process::{Command, Stdio};

use super::*;

/// Runs kubectl against a server; what it prints, both ways.
struct Kubectl {
    program: std::path::PathBuf,
    config: std::path::PathBuf,
}

impl Kubectl {
    fn new(server: &ApiServer) -> Option<Self> {
        let Some(program) = crate::egret::kubectl() else {
            eprintln!("not run: there is no kubectl here");
            return None;
        };
        let port = server.addr().port();
        let config = std::env::temp_dir().join(format!("egret-double-{}-{port}", std::process::id()));
        std::fs::write(&config, server.kubeconfig()).expect("a file");
        Some(Self { program, config })
    }

    fn command(&self, line: &str) -> Command {
        let mut command = Command::new(&self.program);
        // Its cache of discovery would outlive the server.
        command.env("KUBECONFIG", &self.config).env("KUBECACHEDIR", self.config.with_extension("cache"));
        command.args(line.split(' '));
        command
    }

    fn run(&self, line: &str, input: &str) -> String {
        let piped = || Stdio::piped();
        let mut child =
            self.command(line).stdin(piped()).stdout(piped()).stderr(piped()).spawn().expect("kubectl");
        child.stdin.take().expect("a pipe").write_all(input.as_bytes()).expect("read by kubectl");
        let output = child.wait_with_output().expect("kubectl");
        let text = [output.stdout, output.stderr].concat();
        String::from_utf8_lossy(&text).trim().to_owned()
    }
}

impl Drop for Kubectl {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.config);
        let _ = std::fs::remove_dir_all(self.config.with_extension("cache"));
    }
}

#[test]
fn kubectl_reads_and_writes() {
    let server = ApiServer::start();
    let Some(kubectl) = Kubectl::new(&server) else { return };
    server.install(Crd::CiliumNetworkPolicy);
    server.apply_json(pod("shop", "one", "n1"));
    let run = |line: &str| kubectl.run(line, "");
    assert_eq!(run("get pods -A -o name"), "pod/one");
    assert_eq!(run("get po -A -o name --field-selector=spec.nodeName=n2"), "");
    assert_eq!(run("get pods -n shop -l app=one -o jsonpath={.items[0].spec.nodeName}"), "n1");
    let made = kubectl.run("create --validate=false -f -", &policy("two").to_string());
    assert_eq!(made, "ciliumnetworkpolicy.cilium.io/two created");
    assert!(
        kubectl.run("create --validate=false -f -", &policy("two").to_string()).contains("AlreadyExists")
    );
    let patched = run("patch cnp two --subresource=status --type=merge -p {\"status\":{\"ok\":true}}");
    assert_eq!(patched, "ciliumnetworkpolicy.cilium.io/two patched");
    let two = server.get("CiliumNetworkPolicy", "default", "two").expect("it");
    assert_eq!((&two["status"]["ok"], &two["spec"]["endpointSelector"]), (&true.into(), &json!({})));
    assert_eq!(run("label pod one -n shop tier=front"), "pod/one labeled");
    assert_eq!(run("get pods -n shop -l tier=front -o name"), "pod/one");
    assert!(run("delete pod one -n shop").contains("\"one\" deleted"));
    assert!(run("get pod one -n shop").contains("NotFound"));
}

#[test]
fn kubectl_watches() {
    let server = ApiServer::start();
    let Some(kubectl) = Kubectl::new(&server) else { return };
    server.apply_json(pod("default", "one", "n1"));
    let mut child = kubectl
        .command("get pods -w -o name --output-watch-events=false")
        .stdout(Stdio::piped())
        .spawn()
        .expect("kubectl");
    let mut lines = BufReader::new(child.stdout.take().expect("a pipe")).lines().map_while(Result::ok);
    assert_eq!(lines.next().as_deref(), Some("pod/one"));
    server.apply_json(pod("default", "two", "n1"));
    assert_eq!(lines.next().as_deref(), Some("pod/two"));
    drop(server);
    let _ = child.kill();
    let _ = child.wait();
}
