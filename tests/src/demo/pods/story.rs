//! The cluster as the steps change it, and what they do with it.

use std::collections::BTreeMap;

use super::Verdict;
use super::tries::Try;
use crate::cluster::Cluster;
use crate::demo::stage::in_parallel;
use crate::exec::{Cmd, Place, Running};

/// The cluster, and what was denied so far.
pub(super) struct Story {
    pub(super) cluster: Cluster,
    denied: Vec<Try>,
    /// Files of policies in the folder.
    files: Vec<&'static str>,
}

impl Story {
    /// Names, the agent with short lifetimes, every pod held.
    pub(super) fn begin(cluster: Cluster) -> Self {
        furnish(&cluster);
        // Seconds instead of minutes, for the step about expiry; an open connection does not keep its address open.
        let lifetimes = ["--ttl-floor", "1", "--grace", "1", "--keep-in-use", "false"];
        let mut cluster = cluster.agent_args(&lifetimes);
        cluster.agent.start();
        for pod in ["web", "api", "job", "dns"] {
            cluster.agent.expect_ready(&cluster.pod(pod).full_name());
        }
        Self { cluster, denied: Vec::new(), files: Vec::new() }
    }

    /// Puts a policy into the folder, and waits until it is in force.
    pub(super) fn apply(&mut self, file: &'static str, text: &str) {
        self.cluster.agent.apply(file, text);
        if !self.files.contains(&file) {
            self.files.push(file);
        }
    }

    /// All attempts at the same time; every one must come out as wanted.
    pub(super) fn all(&mut self, tries: &[Try]) -> Verdict {
        for tried in tries.iter().filter(|t| t.is_denied()) {
            if !self.denied.contains(tried) {
                self.denied.push(*tried);
            }
        }
        let verdicts = in_parallel(&self.placed(tries), |(t, place)| t.perform(place));
        let texts: Result<Vec<String>, String> = verdicts.into_iter().map(Result::flatten).collect();
        texts.map(|texts| texts.join(", "))
    }

    /// Everything that was denied is tried again.
    pub(super) fn denied_work_now(&mut self) -> Verdict {
        let files = std::mem::take(&mut self.files);
        self.cluster.agent.awaited(|| files.iter().for_each(|file| self.cluster.agent.remove(file)));
        let worked = in_parallel(&self.placed(&self.denied), |(t, place)| t.works(place));
        let failed: Vec<&str> = self
            .denied
            .iter()
            .zip(&worked)
            .filter(|(_, worked)| **worked != Ok(true))
            .map(|(t, _)| t.url)
            .collect();
        let count = format!("{} of {} succeed", worked.len() - failed.len(), worked.len());
        match failed.is_empty() && !worked.is_empty() {
            true => Ok(count),
            false => Err(format!("{count}, not: {}", failed.join(", "))),
        }
    }

    fn placed(&self, tries: &[Try]) -> Vec<(Try, Place)> {
        tries.iter().map(|t| (*t, self.cluster.place(t.pod))).collect()
    }

    /// A Python program that goes on in a pod, line by line.
    pub(super) fn python(&self, pod: &str, program: &str) -> Running {
        self.cluster.place(pod).spawn(&crate::traffic::python(program))
    }

    /// The first line that `egret ARGS` prints with `part` in it.
    pub(super) fn told(&self, args: &[&str], part: &str) -> Verdict {
        let outcome = self.cluster.agent.ask(args);
        line_of(&outcome.stdout, part)
            .ok_or_else(|| format!("egret {} does not say {part:?}", args.join(" ")))
    }

    /// As [`Story::told`], of `egret policy check` without an agent.
    pub(super) fn checked(&self, text: &str, part: &str) -> Verdict {
        let path = self.cluster.world.dir().join("policy.yaml");
        std::fs::write(&path, text).map_err(|error| error.to_string())?;
        let (egret, path) = (crate::egret::binary().display().to_string(), path.display().to_string());
        let outcome = self.cluster.node().run(&Cmd::new([egret.as_str(), "policy", "check", &path]));
        let line = line_of(&outcome.stderr, part).or_else(|| line_of(&outcome.stdout, part));
        line.ok_or_else(|| format!("egret policy check does not say {part:?}"))
    }

    /// Packets of the pod that the kernel dropped for `reason`.
    pub(super) fn drops(&self, pod: &str, reason: &str) -> u64 {
        let name = self.cluster.pod(pod).full_name();
        self.cluster.agent.drops(&name).get(reason).copied().unwrap_or_default()
    }

    /// Pod and reason -> packets.
    pub(super) fn counters(&self) -> BTreeMap<String, u64> {
        let pods = ["web", "api", "job", "dns"].map(|pod| self.cluster.pod(pod).full_name());
        let rows = pods.iter().flat_map(|pod| {
            let drops = self.cluster.agent.drops(pod).into_iter();
            drops.map(move |(reason, packets)| (format!("{pod} {reason}"), packets))
        });
        rows.collect()
    }

    /// The agent's last lines.
    pub(super) fn agent_said(&self) -> String {
        let said = self.cluster.agent.said();
        let lines: Vec<&str> = said.lines().collect();
        lines[lines.len().saturating_sub(5)..].join("\n    ")
    }
}

/// Each step has its own names and addresses.
fn furnish(cluster: &Cluster) {
    let zone = &cluster.zone;
    zone.add("other.example", 60, &["192.0.2.20"])
        .add("direct.example", 60, &["192.0.2.30"])
        .rotate("rotate.example", 1, &[&["192.0.2.51"], &["192.0.2.52"]])
        .add("a.example", 60, &["192.0.2.61"])
        .add("b.example", 60, &["192.0.2.62"])
        .add("c.example", 60, &["192.0.2.63"]);
    for number in 0..super::times::FRESH {
        zone.add(&format!("n{number}.fresh.example"), 60, &[&format!("192.0.2.{}", 100 + number % 100)]);
    }
}

fn line_of(text: &str, part: &str) -> Option<String> {
    let line = text.lines().find(|line| line.contains(part))?;
    Some(line.split_whitespace().collect::<Vec<_>>().join(" "))
}
