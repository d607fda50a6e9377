//! Running other programs: errors that name the command, exit codes that survive.

use std::{
    fmt,
    path::{Path, PathBuf},
    process::{Command, ExitStatus, Stdio},
};

use anyhow::{Context, Result, bail};

/// A program ended with a code that the task should end with too.
#[derive(Debug)]
pub(crate) struct Failed {
    what: String,
    code: u8,
}

impl Failed {
    /// A failure of `what` that makes xtask exit with `code`.
    pub(crate) fn new(what: impl Into<String>, code: u8) -> Self {
        Self { what: what.into(), code }
    }
}

impl fmt::Display for Failed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.what)
    }
}

impl std::error::Error for Failed {}

/// The exit code that `error` asks for; 1 when it asks for none.
pub(crate) fn exit_code(error: &anyhow::Error) -> u8 {
    error.chain().find_map(|e| e.downcast_ref::<Failed>()).map_or(1, |failed| failed.code)
}

/// The repository's root.
pub(crate) fn workspace() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("xtask lies in the workspace")
}

/// Where builds and caches go: `CARGO_TARGET_DIR`, else `target`.
pub(crate) fn target_dir() -> PathBuf {
    let name = std::env::var_os("CARGO_TARGET_DIR").unwrap_or_else(|| "target".into());
    workspace().join(name)
}

/// A command that starts in the repository's root.
pub(crate) fn command(program: &str) -> Command {
    let mut command = Command::new(program);
    command.current_dir(workspace());
    command
}

/// Runs to the end with inherited output; an exit code other than 0 is an error that carries it.
pub(crate) fn run(command: &mut Command) -> Result<()> {
    let shown = show(command);
    let status = command.status().with_context(|| format!("cannot start `{shown}`"))?;
    check(&shown, status)
}

/// As [`run`], but prints the output only if it fails.
pub(crate) fn run_quiet(command: &mut Command) -> Result<()> {
    let shown = show(command);
    let output = command.stdin(Stdio::null()).output().with_context(|| format!("cannot start `{shown}`"))?;
    if !output.status.success() {
        eprint!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    }
    check(&shown, output.status)
}

/// Runs to the end and returns what it printed.
pub(crate) fn stdout(command: &mut Command) -> Result<String> {
    let shown = show(command);
    let output =
        command.stderr(Stdio::inherit()).output().with_context(|| format!("cannot start `{shown}`"))?;
    check(&shown, output.status)?;
    String::from_utf8(output.stdout).with_context(|| format!("`{shown}` printed bytes that are not text"))
}

/// Turns an exit status into a result.
pub(crate) fn check(shown: &str, status: ExitStatus) -> Result<()> {
    match status.code() {
        Some(0) => Ok(()),
        Some(code) => {
            bail!(Failed::new(format!("`{shown}` exited with {code}"), u8::try_from(code).unwrap_or(1)))
        }
        None => bail!("`{shown}` was ended by a signal ({status})"),
    }
}

/// The command as one would type it, without its environment.
pub(crate) fn show(command: &Command) -> String {
    let mut words = vec![command.get_program().to_string_lossy().into_owned()];
    words.extend(command.get_args().map(|a| a.to_string_lossy().into_owned()));
    let mut line = words.join(" ");
    if line.chars().count() > 300 {
        line = line.chars().take(300).collect::<String>() + "...";
    }
    line
}

/// The full path of a program: the PATH first, then the folders that a user's PATH lacks.
pub(crate) fn find(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let home = std::env::var_os("CARGO_HOME")
        .map(PathBuf::from)
        .or_else(|| std::env::var_os("HOME").map(|home| PathBuf::from(home).join(".cargo")));
    std::env::split_paths(&path)
        .chain(["/usr/local/sbin", "/usr/sbin", "/sbin"].map(PathBuf::from))
        .chain(home.map(|home| home.join("bin")))
        .map(|folder| folder.join(program))
        .find(|file| file.is_file())
}

/// Whether this process is root.
pub(crate) fn is_root() -> bool {
    // The effective user is the second number of the line "Uid:".
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    status
        .lines()
        .find_map(|line| line.strip_prefix("Uid:"))
        .and_then(|ids| ids.split_whitespace().nth(1))
        .is_some_and(|id| id == "0")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exit_code_of_a_program_reaches_the_caller() {
        let error = run(command("sh").args(["-c", "exit 77"])).unwrap_err();
        assert_eq!(exit_code(&error.context("outer")), 77);
        assert_eq!(exit_code(&anyhow::anyhow!("plain")), 1);
    }

    #[test]
    fn missing_program_is_named() {
        let error = run(&mut command("no-such-program")).unwrap_err();
        assert!(format!("{error:#}").contains("no-such-program"), "{error:#}");
    }
}
