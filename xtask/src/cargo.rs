//! Builds through cargo, and where it put what it built.
//!
//! Every build here selects the same packages (the workspace without the BPF crate), so that tests, demonstration and
//! VM share one set of compiled dependencies.

use std::{
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use anyhow::{Context, Result};
use serde_json::Value;

use crate::sh;

/// The packages of the host.
pub(crate) const HOST_PACKAGES: [&str; 3] = ["--workspace", "--exclude", "egret-ebpf"];

/// Something executable that cargo built.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Executable {
    /// The package's name.
    pub(crate) package: String,
    /// The target's name: of the binary or of the test file.
    pub(crate) name: String,
    /// `bin`, `test`, `lib`, ...
    pub(crate) kind: String,
    /// Whether it is a test harness.
    pub(crate) is_test: bool,
    /// Where it is.
    pub(crate) path: PathBuf,
    /// The package's folder, where cargo starts its tests.
    pub(crate) folder: PathBuf,
}

/// Builds every binary of the workspace; `args` go to cargo.
pub(crate) fn build_bins(args: &[String]) -> Result<Vec<Executable>> {
    build(sh::command("cargo").arg("build").args(HOST_PACKAGES).arg("--bins").args(args))
}

/// Builds these binaries of the workspace and no others; `args` go to cargo.
pub(crate) fn build_some(names: &[&str], args: &[&str]) -> Result<Vec<Executable>> {
    let names = names.iter().flat_map(|name| ["--bin", name]);
    build(sh::command("cargo").arg("build").args(HOST_PACKAGES).args(names).args(args))
}

/// Builds every test of the workspace.
pub(crate) fn build_tests() -> Result<Vec<Executable>> {
    build(
        sh::command("cargo")
            .args(["test", "--no-run"])
            .args(HOST_PACKAGES)
            .args(["--lib", "--bins", "--tests"]),
    )
}

/// The binary `name` among what was built.
pub(crate) fn binary<'a>(built: &'a [Executable], name: &str) -> Option<&'a Executable> {
    built.iter().find(|e| !e.is_test && e.kind == "bin" && e.name == name)
}

/// Tells a test or demonstration where the binary under test is.
pub(crate) fn with_egret(command: &mut Command, built: &[Executable]) -> Result<()> {
    let egret = binary(built, "egret").context("cargo built no binary `egret`")?;
    command.env("EGRET_BIN", &egret.path);
    Ok(())
}

/// Builds by this command of cargo, which needs no format of messages yet.
pub(crate) fn build(command: &mut Command) -> Result<Vec<Executable>> {
    command.args(["--message-format", "json-render-diagnostics"]).stderr(Stdio::inherit());
    Ok(executables(&sh::stdout(command)?))
}

/// The executables in cargo's JSON messages.
fn executables(messages: &str) -> Vec<Executable> {
    messages.lines().filter_map(|line| executable(&serde_json::from_str(line).ok()?)).collect()
}

fn executable(message: &Value) -> Option<Executable> {
    if message["reason"] != "compiler-artifact" {
        return None;
    }
    let manifest = Path::new(message["manifest_path"].as_str()?);
    let folder = manifest.parent()?;
    Some(Executable {
        package: package_name(message["package_id"].as_str()?, folder),
        name: message["target"]["name"].as_str()?.to_owned(),
        kind: message["target"]["kind"][0].as_str()?.to_owned(),
        is_test: message["profile"]["test"].as_bool()?,
        path: PathBuf::from(message["executable"].as_str()?),
        folder: folder.to_owned(),
    })
}

/// A package id is `path+file:///folder#name@version`, or `#version` where the folder has the package's name.
fn package_name(id: &str, folder: &Path) -> String {
    let fragment = id.rsplit_once('#').map_or("", |(_, fragment)| fragment);
    match fragment.split_once('@') {
        Some((name, _)) => name.to_owned(),
        None => folder.file_name().unwrap_or_default().to_string_lossy().into_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MESSAGES: &str = r#"{"reason":"compiler-artifact","package_id":"path+file:///w/tests#egret-tests@0.1.0","manifest_path":"/w/tests/Cargo.toml","target":{"kind":["test"],"name":"kernel_load"},"profile":{"test":true},"executable":"/w/target/debug/deps/kernel_load-1"}
{"reason":"compiler-artifact","package_id":"path+file:///w/xtask#0.1.0","manifest_path":"/w/xtask/Cargo.toml","target":{"kind":["bin"],"name":"xtask"},"profile":{"test":false},"executable":"/w/target/debug/xtask"}
{"reason":"compiler-artifact","package_id":"path+file:///w/common#egret-common@0.1.0","manifest_path":"/w/common/Cargo.toml","target":{"kind":["lib"],"name":"egret_common"},"profile":{"test":false},"executable":null}
{"reason":"build-finished","success":true}"#;

    #[test]
    fn executables_are_read_from_messages() {
        let found = executables(MESSAGES);
        let names: Vec<_> = found.iter().map(|e| (e.package.as_str(), e.name.as_str(), e.is_test)).collect();
        assert_eq!(names, [("egret-tests", "kernel_load", true), ("xtask", "xtask", false)]);
        assert_eq!(binary(&found, "xtask").unwrap().path, Path::new("/w/target/debug/xtask"));
        assert_eq!(binary(&found, "kernel_load"), None);
    }
}
