//! `xtask kind`: the end-to-end script on a cluster of kind. Owns what it needs and the image; what is tried there, the script
//! knows (`deploy/kind/e2e.sh`).

use std::{ffi::OsString, path::Path, process::Stdio};

use anyhow::{Result, bail};

use crate::{image, sh};

const SCRIPT: &str = "deploy/kind/e2e.sh";
/// What the script runs, and where one has it from.
const PROGRAMS: [(&str, &str); 4] = [
    ("docker", "Docker, with its engine running"),
    ("kind", "kind, from its project's releases"),
    ("kubectl", "`cargo xtask setup deploy` brings it"),
    ("helm", "`cargo xtask setup deploy` brings it"),
];

/// Makes the image and runs the script.
pub(crate) fn run() -> Result<()> {
    let path = path();
    let missing = missing(&path);
    if !missing.is_empty() {
        bail!(sh::Failed::new(
            format!("a cluster of kind needs what is not here:\n  {}", missing.join("\n  ")),
            69
        ));
    }
    if !engine_answers(&path) {
        bail!(sh::Failed::new("no Docker engine answers: `docker info` says why", 69));
    }
    let archive = sh::target_dir().join("egret-image.tar");
    image::run(None, Some(&archive), None, false)?;
    sh::run(sh::command("bash").arg(SCRIPT).arg(&archive).env("PATH", &path))
}

/// The programs that setup has put into the target folder come after the user's own.
fn path() -> OsString {
    let own = sh::target_dir().join("deploy-tools/bin");
    let path = std::env::var_os("PATH").unwrap_or_default();
    let all = std::env::split_paths(&path).chain([own.clone()]);
    std::env::join_paths(all).unwrap_or_else(|_| own.into())
}

fn missing(path: &OsString) -> Vec<String> {
    let has = |program: &str| std::env::split_paths(path).any(|folder| folder.join(program).is_file());
    let lacks = PROGRAMS.into_iter().filter(|(program, _)| !has(program));
    lacks.map(|(program, from)| format!("{program:<8} {from}")).collect()
}

fn engine_answers(path: &OsString) -> bool {
    let mut command = sh::command("docker");
    command.arg("info").env("PATH", path).stdout(Stdio::null()).stderr(Stdio::null());
    command.status().is_ok_and(|status| status.success())
}

/// Shell scripts, for `deploy check`.
pub(crate) fn scripts() -> [&'static Path; 1] {
    [Path::new(SCRIPT)]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_program_that_lacks_is_named() {
        let all = missing(&OsString::from("/nowhere"));
        assert_eq!(all.len(), PROGRAMS.len());
        assert!(all.iter().zip(PROGRAMS).all(|(line, (program, _))| line.starts_with(program)), "{all:?}");
        let folder = std::env::temp_dir().join(format!("egret-kind-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        for (program, _) in PROGRAMS {
            std::fs::write(folder.join(program), "").unwrap();
        }
        assert_eq!(missing(&folder.clone().into_os_string()), [] as [&str; 0]);
        std::fs::remove_dir_all(folder).unwrap();
    }
}
