//! The agent as an operator starts it: `egret agent` in a namespace of a world, a folder of objects, and the commands that
//! ask it. Knows its command line and its JSON, nothing of its insides.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use nix::sys::signal::Signal;
use serde_json::Value;

use crate::apiserver::ApiServer;
use crate::egret::binary;
use crate::exec::{Cmd, Outcome, Place, Running};
use crate::netns::World;
use crate::{residue, wait};

/// How long it may take to load its programs.
const START: Duration = Duration::from_secs(60);
/// How long a change of an object may take to be in force.
const CHANGE: Duration = Duration::from_secs(5);

/// An agent with its own pins, socket and folder.
#[derive(Debug)]
pub struct Agent {
    place: Place,
    dir: PathBuf,
    pins: PathBuf,
    args: Vec<String>,
    node: String,
    /// Of `--source`; empty: the folder.
    source: Vec<String>,
    running: Option<Running>,
}

impl Agent {
    /// In the namespace `ns`, with an empty folder; it is not started yet.
    pub fn new(world: &World, ns: &str) -> Self {
        Self::beside(world.place(ns), world.dir())
    }

    /// At any place, with its files below `dir`; it is not started yet.
    pub fn beside(place: Place, dir: &Path) -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        residue::ensure_bpffs();
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let dir = dir.join(format!("agent-{number}"));
        fs::create_dir_all(dir.join("objects")).expect("a folder");
        let pins = Path::new(egret::datapath::ROOT).join(format!("agent-{}-{number}", std::process::id()));
        let (node, args, source) = ("n1".to_owned(), Vec::new(), Vec::new());
        Self { place, dir, pins, args, node, source, running: None }
    }

    /// Asks an API server instead of the folder.
    #[must_use]
    pub fn of(self, api: &ApiServer) -> Self {
        let file = self.dir.join("kubeconfig");
        fs::write(&file, api.kubeconfig()).expect("written");
        self.kubeconfig(&file)
    }

    /// Asks the API server of this file instead of the folder.
    #[must_use]
    pub fn kubeconfig(mut self, file: &Path) -> Self {
        self.source = ["k8s".into(), "--kubeconfig".into(), file.display().to_string()].into();
        self
    }

    /// Started at another place, such as in a cgroup.
    #[must_use]
    pub fn at(mut self, place: Place) -> Self {
        self.place = place;
        self
    }

    /// On the node of this name instead of `n1`.
    #[must_use]
    pub fn node(mut self, name: &str) -> Self {
        self.node = name.to_owned();
        self
    }

    /// With further arguments.
    #[must_use]
    pub fn args(mut self, args: &[&str]) -> Self {
        self.args.extend(args.iter().map(|arg| arg.to_string()));
        self
    }

    /// Other further arguments, from the next start on.
    pub fn set_args(&mut self, args: &[&str]) {
        self.args = args.iter().map(|arg| arg.to_string()).collect();
    }

    /// Writes a file of the folder, whole at once.
    pub fn put(&self, name: &str, text: &str) {
        let new = self.dir.join("new");
        fs::write(&new, text).expect("written");
        fs::rename(new, self.dir.join("objects").join(name)).expect("in place");
    }

    /// Removes a file of the folder.
    pub fn remove(&self, name: &str) {
        fs::remove_file(self.dir.join("objects").join(name)).expect("removed");
    }

    /// Writes a file, and waits until what follows from it is in force.
    #[track_caller]
    pub fn apply(&self, name: &str, text: &str) {
        self.awaited(|| self.put(name, text));
    }

    /// Removes a file, and waits until what follows from that is in force.
    #[track_caller]
    pub fn withdraw(&self, name: &str) {
        self.awaited(|| self.remove(name));
    }

    /// Changes the folder, and waits until something else than before is in force.
    #[track_caller]
    pub fn awaited(&self, change: impl FnOnce()) {
        let before = self.revision();
        change();
        self.expect_newer(before);
    }

    /// Waits until something else is in force than at the revision `before`.
    #[track_caller]
    pub fn expect_newer(&self, before: u64) {
        let newer = wait::until(wait::patient(CHANGE), || (self.revision() > before).then_some(()));
        assert!(newer.is_some(), "nothing has changed: {}", self.json(&["policy", "get"]));
    }

    /// Counts the changes of what is in force.
    pub fn revision(&self) -> u64 {
        self.json(&["status"])["revision"].as_u64().expect("a number")
    }

    /// Starts it, and waits until it is ready.
    pub fn start(&mut self) {
        self.begin();
        self.expect_probe("ready", true);
    }

    /// Starts it, and waits until it answers, whatever that is.
    pub fn begin(&mut self) {
        self.running = Some(self.place.spawn(&self.command()));
        self.expect_probe("live", true);
    }

    /// What `egret status --probe` says.
    pub fn probe(&self, probe: &str) -> bool {
        let outcome = self.ask(&["status", "--probe", probe]);
        assert!(matches!(outcome.code, Some(0 | 1)), "{outcome:#?}");
        outcome.success()
    }

    /// Waits until a probe says so.
    #[track_caller]
    pub fn expect_probe(&self, probe: &str, want: bool) {
        let said = wait::until(wait::patient(START), || {
            assert!(!self.process().ends_within(Duration::ZERO), "it ended: {}", self.said());
            (self.probe(probe) == want).then_some(())
        });
        assert!(said.is_some(), "{probe} is not {want}: {}", self.said());
    }

    /// Runs it where it is expected to end by itself.
    pub fn run(&self) -> Outcome {
        self.place.run(&self.command())
    }

    /// Ends it by a signal, and gives what it said.
    pub fn end(&mut self, signal: Signal) -> Outcome {
        let running = self.running.take().expect("it runs");
        running.signal(signal);
        running.wait(Duration::from_secs(10))
    }

    /// Any `egret` command that asks the agent.
    pub fn ask(&self, args: &[&str]) -> Outcome {
        let mut argv = vec![binary().display().to_string()];
        argv.extend(args.iter().map(|arg| arg.to_string()));
        argv.extend(["--socket".into(), self.socket().display().to_string()]);
        self.place.run(&Cmd::new(argv))
    }

    /// The JSON that a command answers with.
    pub fn json(&self, args: &[&str]) -> Value {
        let outcome = self.ask(&[args, &["-o", "json"]].concat());
        serde_json::from_str(&outcome.stdout)
            .unwrap_or_else(|error| panic!("{args:?}: {error}: {outcome:#?}"))
    }

    /// Waits until the pod (`ns/name`) is held; panics with all that is known otherwise.
    #[track_caller]
    pub fn expect_ready(&self, pod: &str) -> u64 {
        let ready = || {
            let all = self.json(&["endpoint", "list"]);
            let all = all.as_array().expect("a list").clone();
            let found = all.into_iter().find(|e| e["pod"] == pod && e["state"] == "ready");
            found.and_then(|e| e["id"].as_u64())
        };
        wait::until(wait::patient(CHANGE), ready)
            .unwrap_or_else(|| panic!("{pod} is not held: {}", self.json(&["endpoint", "list"])))
    }

    /// Packets of a pod (`ns/name`) that were dropped so far, by reason.
    pub fn drops(&self, pod: &str) -> BTreeMap<String, u64> {
        let all = self.json(&["endpoint", "list"]);
        let one = all.as_array().into_iter().flatten().find(|e| e["pod"] == pod);
        let rows = one.into_iter().flat_map(|e| e["counters"].as_array()).flatten();
        let mut sums = BTreeMap::new();
        for row in rows.filter(|row| row["reason"] != "Forwarded") {
            let (reason, packets) = (row["reason"].as_str(), row["packets"].as_u64());
            *sums.entry(reason.unwrap_or_default().to_owned()).or_default() += packets.unwrap_or_default();
        }
        sums
    }

    /// `egret uninstall`.
    pub fn uninstall(&self) -> Outcome {
        self.ask(&["uninstall", "--pins", &self.pins.display().to_string()])
    }

    /// Where it answers.
    pub fn socket(&self) -> PathBuf {
        self.dir.join("egret.sock")
    }

    /// Where it serves flows.
    pub fn hubble_socket(&self) -> PathBuf {
        self.dir.join("hubble.sock")
    }

    /// Where it pins.
    pub fn pins(&self) -> &Path {
        &self.pins
    }

    /// What it has written down for the next one.
    pub fn memory(&self) -> String {
        fs::read_to_string(self.dir.join("agent-state.json")).unwrap_or_default()
    }

    /// The process. Panics unless it runs.
    pub fn process(&self) -> &Running {
        self.running.as_ref().expect("it runs")
    }

    /// What it has said.
    pub fn said(&self) -> String {
        self.running.as_ref().map(Running::stderr_so_far).unwrap_or_default()
    }

    fn command(&self) -> Cmd {
        let objects = format!("dir:{}", self.dir.join("objects").display());
        let (socket, pins) = (self.socket().display().to_string(), self.pins.display().to_string());
        let program = binary().display().to_string();
        let fixed = ["agent", "--socket", &socket, "--pins", &pins, "--node", &self.node, "--source"];
        let source: Vec<&str> = match self.source.is_empty() {
            true => vec![&objects],
            false => self.source.iter().map(String::as_str).collect(),
        };
        let more = self.args.iter().map(String::as_str);
        Cmd::new([program.as_str()].into_iter().chain(fixed).chain(source).chain(more))
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        drop(self.running.take());
        if let Err(error) = egret::datapath::remove(&self.pins) {
            eprintln!("the pins in {} stay: {error}", self.pins.display());
        }
    }
}
