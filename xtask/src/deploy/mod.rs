//! `xtask deploy check`: the Helm chart, what is rendered from it, samples of what its CRDs take, and the end-to-end script with
//! its objects.
//!
//! ```text
//! chart + values ─helm─> objects ─> as checked in? ─> valid for Kubernetes?     samples ─> taken or refused by our CRDs?
//! ```
//! `deploy/egret.yaml` is the chart with default values and `deploy/crds.yaml` its CRDs: what others apply is also what
//! the next change is compared with. Other values have their results in `deploy/helm/golden`. The rules for alerts in
//! `deploy/prometheus` are promtool's business.

mod chart;
mod golden;

use std::{
    fs,
    path::{Path, PathBuf},
    time::Instant,
};

use anyhow::{Context, Result, bail};

use self::golden::Golden;
use crate::{
    kind,
    setup::{self, Tools},
    sh,
};

/// Checks everything under `deploy`, or writes the rendered files anew first.
pub(crate) fn check(update: bool) -> Result<()> {
    let begin = Instant::now();
    setup::ensure(&[setup::Tier::Deploy])?;
    let tools = setup::tools()?;
    println!("tools: {:.1} s", begin.elapsed().as_secs_f64());
    chart::lint(&tools)?;
    let goldens = goldens()?;
    let mut differ = 0;
    for golden in &goldens {
        let rendered = golden.render(&tools)?;
        if update {
            golden.write(&rendered)?;
        } else if let Some(difference) = golden.compare(&rendered)? {
            println!("{difference}");
            differ += 1;
        }
    }
    if differ > 0 {
        bail!(
            "{differ} files are not what the chart renders; `cargo xtask deploy check --update` writes them anew"
        );
    }
    println!("chart: {} rendered files are as checked in", goldens.len());
    let refused = files("deploy/helm/values/refused")?;
    refused.iter().try_for_each(|values| chart::is_refused(&tools, values))?;
    println!("values: {} bad files are refused", refused.len());
    let by_hand = [UNINSTALL].iter().chain(KIND).map(PathBuf::from);
    let objects = goldens.iter().map(|golden| golden.file.clone()).chain(by_hand);
    script(&tools, "validate.py objects", &objects.collect::<Vec<_>>())?;
    let samples = [vec![PathBuf::from(CRDS), PathBuf::from(KIND_NAMES)], files("deploy/samples")?];
    script(&tools, "validate.py samples", &samples.concat())?;
    script(&tools, "guard.py", &[PathBuf::from(GATE)])?;
    let scripts = kind::scripts();
    sh::run(sh::command("shellcheck").args(scripts))?;
    println!("scripts: {} without a finding of shellcheck", scripts.len());
    alerts()?;
    println!("deploy: all in {:.1} s", begin.elapsed().as_secs_f64());
    Ok(())
}

const CRDS: &str = "deploy/crds.yaml";
/// Written by hand: it is applied when the chart is gone.
const UNINSTALL: &str = "deploy/uninstall.yaml";
/// What the end-to-end script applies.
const KIND: &[&str] = &["deploy/kind/pods.yaml", "deploy/kind/deny.yaml", "deploy/kind/allow.yaml"];
/// As the others, but of a kind that our CRDs define.
const KIND_NAMES: &str = "deploy/kind/names.yaml";
/// Holds the admission policy.
const GATE: &str = "deploy/helm/golden/gate.yaml";

/// The rules for alerts: whether Prometheus takes them, and whether each comes when it should.
fn alerts() -> Result<()> {
    for (words, file) in [("check rules", "alerts.yaml"), ("test rules", "alerts_test.yaml")] {
        let path = Path::new("deploy/prometheus").join(file);
        sh::run_quiet(sh::command("promtool").args(words.split(' ')).arg(path))?;
    }
    println!("alerts: promtool takes them, and each comes when it should");
    Ok(())
}

/// Every rendered file and how it comes about.
fn goldens() -> Result<Vec<Golden>> {
    let mut all = vec![
        Golden::new("deploy/egret.yaml", "the agent, as the chart renders it with default values", &[]),
        Golden::new(
            CRDS,
            "CRDs for clusters without Cilium: never over those that are there",
            &["--set", "crds.install=true", "--show-only", "templates/crds.yaml"],
        ),
    ];
    for values in files("deploy/helm/values")? {
        let name = values.file_name().context("values without a name")?;
        let shown = values.to_string_lossy().into_owned();
        let file = Path::new("deploy/helm/golden").join(name);
        all.push(Golden::new(file, format!("the chart with {shown}"), &["--values", &shown]));
    }
    Ok(all)
}

/// The YAML files right in a folder, by name; none is an error.
fn files(folder: &str) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(sh::workspace().join(folder)).with_context(|| format!("reading {folder}"))? {
        let name = entry?.file_name();
        if name.to_string_lossy().ends_with(".yaml") {
            found.push(Path::new(folder).join(name));
        }
    }
    found.sort();
    if found.is_empty() {
        bail!("{folder} holds no YAML");
    }
    Ok(found)
}

/// Runs a script that stands beside this file, called with `words` and with these files.
fn script(tools: &Tools, words: &str, files: &[PathBuf]) -> Result<()> {
    let mut words = words.split(' ');
    let path = Path::new("xtask/src/deploy").join(words.next().unwrap_or_default());
    sh::run(sh::command(&tools.python.to_string_lossy()).arg(path).args(words).args(files))
}
