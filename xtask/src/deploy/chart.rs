//! Calls of Helm.

use std::{fs, path::Path};

use anyhow::{Context, Result, bail};

use crate::{setup::Tools, sh};

const CHART: &str = "deploy/helm/egret";

/// Helm's own opinion of the chart.
pub(super) fn lint(tools: &Tools) -> Result<()> {
    sh::run_quiet(helm(tools).args(["lint", "--strict", CHART]))
}

/// What the chart renders with these arguments.
pub(super) fn render(tools: &Tools, args: &[String]) -> Result<String> {
    sh::stdout(template(tools).args(args))
}

/// Checks that the chart takes this file of values for what its first line says: `# refused: TEXT OF THE ERROR`.
pub(super) fn is_refused(tools: &Tools, values: &Path) -> Result<()> {
    let text = fs::read_to_string(sh::workspace().join(values))?;
    let wanted = text.lines().next().and_then(|line| line.strip_prefix("# refused: "));
    let wanted = wanted.with_context(|| format!("{} does not say how it is refused", values.display()))?;
    let output = template(tools).arg("--values").arg(values).output().context("cannot start helm")?;
    let told = String::from_utf8_lossy(&output.stderr);
    if output.status.success() || !told.contains(wanted) {
        bail!("{} should be refused with `{wanted}`, helm says: {told}", values.display());
    }
    Ok(())
}

fn template(tools: &Tools) -> std::process::Command {
    let mut command = helm(tools);
    command.args(["template", "egret", CHART, "--namespace", "kube-system"]);
    command
}

/// Helm with nothing of the user's: no plugins, no repositories, no cluster.
fn helm(tools: &Tools) -> std::process::Command {
    let mut command = sh::command(&tools.helm.to_string_lossy());
    let nowhere = sh::target_dir().join("deploy-tools/home");
    for variable in ["HELM_CONFIG_HOME", "HELM_CACHE_HOME", "HELM_DATA_HOME"] {
        command.env(variable, &nowhere);
    }
    command.env_remove("KUBECONFIG");
    command
}
