//! The `ip` command in batch mode: one process for many commands.

use std::io::Write;
use std::process::{Command, Stdio};

/// Runs `commands` in the named namespace (or in ours) and panics with ip's words if one fails.
pub(super) fn batch(ns: Option<&str>, commands: &[String]) {
    if let Err(error) = try_batch(ns, commands, false) {
        panic!("ip in {ns:?}: {error}\n{}", commands.join("\n"));
    }
}

/// As [`batch`]; with `force` it goes on after a command that fails.
pub(super) fn try_batch(ns: Option<&str>, commands: &[String], force: bool) -> Result<(), String> {
    let mut ip = Command::new("ip");
    if let Some(name) = ns {
        ip.args(["-n", name]);
    }
    if force {
        ip.arg("-force");
    }
    ip.args(["-batch", "-"]).stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped());
    let mut child = ip.spawn().map_err(|error| format!("cannot start ip: {error}"))?;
    let input = child.stdin.take().map(|mut pipe| pipe.write_all((commands.join("\n") + "\n").as_bytes()));
    let output = child.wait_with_output().map_err(|error| error.to_string())?;
    match (output.status.success(), input) {
        (true, Some(Ok(()))) => Ok(()),
        _ => Err(String::from_utf8_lossy(&output.stderr).into_owned()),
    }
}
